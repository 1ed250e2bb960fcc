//! A session of the library: started once, many commands, background jobs, nothing left when it ends.
#![expect(clippy::unwrap_used, reason = "the helpers of a test fail like the test")]

#[path = "session/approval.rs"]
mod approval;
#[path = "session/layer.rs"]
mod layer;
#[path = "session/network.rs"]
mod network;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringfence_sandbox::survey::SurveyRules;
use ringfence_sandbox::{
    CommandExit, CommandIo, CommandRunError, HostView, JobId, OutputTarget, Sandbox, SandboxCommand,
    SandboxSpec, SandboxStartError, SecretFile, SkeletonFile, StdinSource,
};
use ringfence_types::{
    Access, Backend, ByteString, ExitReason, LimitName, Limits, NetMode, PathDecision, Root,
};

#[test]
fn many_commands_share_one_sandbox() {
    let world = World::new();
    let mut session = world.start();
    let (_, first) = run(&mut session, &world.sh("readlink /proc/self/ns/pid; echo kept > /tmp/f")).unwrap();
    for number in 0..30 {
        let (finished, output) = run(&mut session, &world.sh(&format!("exit {number}"))).unwrap();
        assert_eq!((finished.exit, output.as_str()), (ExitReason::Code { code: number }, ""));
    }
    let (_, again) = run(&mut session, &world.sh("readlink /proc/self/ns/pid; cat /tmp/f")).unwrap();
    assert_eq!(again, format!("{first}kept\n"));
    drop(session);
    let (_, fresh) = run(&mut world.start(), &world.sh("ls /tmp")).unwrap();
    assert!(!fresh.contains("f\n"), "/tmp outlived its session: {fresh}");
}

/// Not by the ones after it, nor by one that is killed for another reason.
#[test]
fn a_limit_is_named_by_the_call_that_met_it() {
    let world = World::new();
    let mut spec = world.spec();
    spec.limits.memory_bytes = 128 << 20;
    let mut session = Sandbox::start(&spec, &NoRules).unwrap();
    let half = "python3 -c 'import time; kept = bytearray(100 << 20); time.sleep(3)'";
    let (finished, _) = run(&mut session, &world.sh(&format!("{half} & {half} & wait"))).unwrap();
    assert_eq!(finished.limit_hit, Some(LimitName::Memory), "{finished:?}");
    let (finished, _) = run(&mut session, &world.sh("true")).unwrap();
    assert_eq!(finished.limit_hit, None, "{finished:?}");
    let (finished, _) = run(&mut session, &world.sh("kill -9 $$")).unwrap();
    assert_eq!((finished.exit, finished.limit_hit), (ExitReason::Signal { signal: 9 }, None));
}

#[test]
fn secret_files_are_only_where_there_is_a_place_for_them() {
    let world = World::new();
    let secrets = vec![SecretFile { name: "key".to_owned(), content: b"hunter2".to_vec().into() }];
    for backend in [Backend::Native, Backend::Bubblewrap] {
        let mut session =
            Sandbox::start(&SandboxSpec { backend, secrets: secrets.clone(), ..world.spec() }, &NoRules)
                .unwrap();
        let script = "cat /.ringfence/secrets/key; stat -c ' %a' /.ringfence/secrets/key";
        let (_, output) = run(&mut session, &world.sh(script)).unwrap();
        assert_eq!(output, "hunter2 400\n", "{backend}");
    }
    let whole = HostView::WholeMachine { hidden: Vec::new(), frozen: Vec::new() };
    let elsewhere = [Backend::Landlock, Backend::External, Backend::None];
    let elsewhere = elsewhere.map(|backend| SandboxSpec { backend, ..world.spec() });
    for spec in elsewhere.into_iter().chain([SandboxSpec { view: whole, ..world.spec() }]) {
        let refused = Sandbox::start(&SandboxSpec { secrets: secrets.clone(), ..spec.clone() }, &NoRules);
        assert!(matches!(refused, Err(SandboxStartError::Unsupported { .. })), "{:?}", spec.backend);
    }
    assert!(!format!("{secrets:?}").contains("hunter2"));
}

#[test]
fn a_daemon_dies_with_its_call_and_a_job_does_not() {
    let world = World::new();
    let mut session = world.start();
    let job = session.spawn(&world.sh(&format!("cd /tmp; {BEAT}")), &world.output_file("job.out")).unwrap();
    let daemon = format!("(setsid sh -c '{BEAT}' &) ; sleep 0.3");
    run(&mut session, &world.sh(&daemon)).unwrap();
    world.heartbeat().assert_dead();
    let sizes = "wc -c < /tmp/heartbeat; sleep 0.2; wc -c < /tmp/heartbeat";
    let (_, sizes) = run(&mut session, &world.sh(sizes)).unwrap();
    let sizes: Vec<u64> = sizes.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(sizes[1] > sizes[0], "the job died with somebody else's call: {sizes:?}");
    assert_eq!(status(&mut session, job), None);
}

#[test]
fn jobs_are_listed_end_and_can_be_killed() {
    let world = World::new();
    let mut session = world.start();
    let ends = session.spawn(&world.sh("echo from a job; exit 7"), &world.output_file("a.out")).unwrap();
    let stays = session.spawn(&world.sh(BEAT), &world.output_file("b.out")).unwrap();
    world.heartbeat().wait_for_life();
    assert_eq!(wait_for_end(&mut session, ends), 7 << 8);
    assert_eq!(fs::read_to_string(world.path("a.out")).unwrap(), "from a job\n");
    assert_eq!(status(&mut session, stays), None);
    session.kill(stays).unwrap();
    wait_for_end(&mut session, stays);
    world.heartbeat().assert_dead();
}

#[test]
fn nothing_is_left_when_a_session_is_dropped() {
    let world = World::new();
    let mut session = world.start();
    assert!(world.path("workspace/.claude").is_dir(), "the placeholder holds the name");
    session.spawn(&world.sh(&format!("setsid sh -c '{BEAT}' & wait")), &world.output_file("out")).unwrap();
    world.heartbeat().wait_for_life();
    drop(session);
    world.heartbeat().assert_dead();
    assert!(!world.path("workspace/.claude").exists(), "a ghost was left");
    assert!(!world.path("workspace/.git").exists(), "a ghost was left");
}

#[test]
fn a_command_that_kills_its_supervisor_ends_the_session() {
    let world = World::new();
    let mut session = world.start();
    let script = format!("(setsid sh -c '{BEAT}' &); sleep 0.2; kill -9 $PPID; sleep 5");
    let killed = run(&mut session, &world.sh(&script));
    assert!(matches!(killed, Err(CommandRunError::LeaderLost | CommandRunError::SandboxEnded)), "{killed:?}");
    drop(session);
    world.heartbeat().assert_dead();
}

#[test]
fn two_sessions_in_one_workspace_do_not_disturb_each_other() {
    let world = World::new();
    let mut first = world.start();
    let second = world.start();
    drop(second);
    let (finished, _) = run(&mut first, &world.sh("mkdir .claude/x")).unwrap();
    assert_ne!(finished.exit.code(), 0, "the other session took the protection away");
    assert!(world.path("workspace/.claude").is_dir());
    drop(first);
    assert!(!world.path("workspace/.claude").exists());
}

#[test]
fn a_step_that_fails_is_named_and_nothing_runs() {
    let world = World::new();
    let mut spec = world.spec();
    // A file where a directory is needed: the launcher finds out.
    spec.files = vec![SkeletonFile { path: PathBuf::from("/etc/hosts/inside"), content: Vec::new() }];
    match Sandbox::start(&spec, &NoRules) {
        Err(SandboxStartError::Step { step, errno, .. }) => {
            assert_eq!(step.describe(), "build the read-only system");
            assert_eq!(errno, rustix::io::Errno::NOTDIR);
        }
        other => panic!("{other:?}"),
    }
    assert!(!world.path("workspace/.claude").exists(), "a ghost was left");
}

#[test]
fn a_part_that_is_closed_is_not_there_and_one_that_cannot_be_closed_is_refused() {
    let world = World::new();
    let mut spec = world.spec();
    fs::create_dir_all(world.path("workspace/closed/open")).unwrap();
    fs::write(world.path("workspace/closed/file"), "seen").unwrap();
    let look = world.sh("cat closed/file");
    let (control, _) = run(&mut Sandbox::start(&spec, &NoRules).unwrap(), &look).unwrap();
    assert_eq!(control.exit.code(), 0);
    spec.roots.push(Root { path: ByteString::from(world.path("workspace/closed")), access: Access::None });
    let (closed, _) = run(&mut Sandbox::start(&spec, &NoRules).unwrap(), &look).unwrap();
    assert_ne!(closed.exit.code(), 0);
    spec.roots
        .push(Root { path: ByteString::from(world.path("workspace/closed/open")), access: Access::Write });
    assert!(matches!(Sandbox::start(&spec, &NoRules), Err(SandboxStartError::Unsupported { .. })));
}

/// A workspace is judged by its canonical path; if a link is put into that path before it is mounted, the mount must
/// not follow it.
#[test]
fn a_root_that_became_a_link_is_not_mounted() {
    let world = World::new();
    let victim = world.path("victim");
    fs::create_dir(&victim).unwrap();
    fs::create_dir(victim.join(".git")).unwrap();
    fs::remove_dir(world.path("workspace")).unwrap();
    std::os::unix::fs::symlink(&victim, world.path("workspace")).unwrap();
    match Sandbox::start(&world.spec(), &NoRules) {
        Err(SandboxStartError::Step { step, .. }) => assert_eq!(step.describe(), "bind the writable roots"),
        Err(SandboxStartError::Survey(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_a_command_is_an_error_before_anything_runs() {
    let world = World::new();
    let mut session = world.start();
    let nul = SandboxCommand {
        argv: vec![ByteString::from(&b"a\0b"[..])],
        env: Vec::new(),
        cwd: PathBuf::from("/"),
        approved: None,
    };
    assert!(matches!(run(&mut session, &nul), Err(CommandRunError::Nul)));
    let empty = SandboxCommand { argv: Vec::new(), env: Vec::new(), cwd: PathBuf::from("/"), approved: None };
    assert!(matches!(run(&mut session, &empty), Err(CommandRunError::Empty)));
    let (finished, _) = run(&mut session, &world.sh("exit 3")).unwrap();
    assert_eq!(finished.exit.code(), 3, "the session goes on");
}

struct NoRules;

impl SurveyRules for NoRules {
    fn judge(&self, _relative: &Path) -> PathDecision {
        PathDecision::Open
    }
    fn protected_at_root(&self) -> &[&str] {
        &[".claude", ".git"]
    }
    fn protected_anywhere(&self) -> &[&str] {
        &[".claude"]
    }
    fn is_protected(&self, _relative: &Path) -> bool {
        false
    }
}

struct World {
    root: PathBuf,
    #[expect(dead_code, reason = "held for its drop: removes the directory")]
    own: Option<tempfile::TempDir>,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["workspace", "home", "registry"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        Self { root: root.path().canonicalize().unwrap(), own: Some(root) }
    }

    /// One that another process has made and removes.
    fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), own: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec {
            backend: Backend::Native,
            roots: vec![Root { path: ByteString::from(self.path("workspace")), access: Access::Write }],
            view: HostView::Constructed,
            toolchains: Vec::new(),
            shown: Vec::new(),
            home: self.path("home"),
            net: NetMode::None,
            limits: Limits::default(),
            files: Vec::new(),
            secrets: Vec::new(),
            registry: self.path("registry"),
            sweeper: None,
            container: None,
            layer: None,
        }
    }

    fn start(&self) -> Sandbox {
        Sandbox::start(&self.spec(), &NoRules).unwrap()
    }

    fn sh(&self, script: &str) -> SandboxCommand {
        let env = vec![(ByteString::from("PATH"), ByteString::from("/usr/bin:/bin"))];
        let argv = ["/bin/sh", "-c", script].map(ByteString::from).to_vec();
        SandboxCommand { argv, env, cwd: self.path("workspace"), approved: None }
    }

    fn output_file(&self, name: &str) -> OwnedFd {
        fs::File::create(self.path(name)).unwrap().into()
    }

    fn heartbeat(&self) -> Heartbeat {
        Heartbeat { file: self.path("workspace/heartbeat") }
    }
}

/// Something inside writes to this file again and again for as long as it lives.
struct Heartbeat {
    file: PathBuf,
}

const BEAT: &str = "while :; do echo x >> heartbeat; sleep 0.02; done";

impl Heartbeat {
    fn size(&self) -> u64 {
        fs::metadata(&self.file).map_or(0, |metadata| metadata.len())
    }

    fn wait_for_life(&self) {
        let before = self.size();
        let patience = Patience::new();
        while self.size() <= before {
            patience.wait();
        }
    }

    fn assert_dead(&self) {
        let before = self.size();
        assert!(before > 0, "it never lived");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(self.size(), before, "it is still alive");
    }
}

struct Patience(Instant);

impl Patience {
    fn new() -> Self {
        Self(Instant::now() + Duration::from_secs(60))
    }

    fn wait(&self) {
        assert!(Instant::now() < self.0, "it did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn status(session: &mut Sandbox, id: JobId) -> Option<i32> {
    session.jobs().unwrap().iter().find(|job| job.id == id).unwrap().status
}

fn wait_for_end(session: &mut Sandbox, id: JobId) -> i32 {
    let patience = Patience::new();
    loop {
        match status(session, id) {
            Some(status) => return status,
            None => patience.wait(),
        }
    }
}

fn run(session: &mut Sandbox, command: &SandboxCommand) -> Result<(CommandExit, String), CommandRunError> {
    let mut stdout = Vec::new();
    let io = CommandIo {
        stdin: StdinSource::Empty,
        stdout: OutputTarget::Buffer(&mut stdout),
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: Some(Duration::from_secs(20)),
        output_bytes: 1 << 20,
    };
    let finished = session.run(command, io)?;
    Ok((finished, String::from_utf8(stdout).unwrap()))
}
