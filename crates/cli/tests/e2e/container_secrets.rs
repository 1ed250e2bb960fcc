//! What a call in a container is given as a secret is in the memory of that call and nowhere else: no argument and no variable of
//! any process, nothing that the engine tells, keeps or has written, during the call, after it and after a kill.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use ringfence_api::{CreateSession, ExecRequest, StopSession};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::container_policy::configure;
use crate::daemon_fixture::{Served, exec};
use crate::podman::Podman;
use crate::seeded_secrets::forms;
use crate::test_timeouts::end;
use crate::testkit::{World, collect, eventually, finish, marker, send};
use crate::watch::Watch;

const IMAGE: &str = "localhost/ringfence/dev:latest";

/// What Podman needs on a machine that gives it no more than it has.
const NAIVE: &[&str] = &["run", "--network=none", "--ulimit=nofile=256:256", "--ulimit=nproc=1000:1000"];

/// Says what it was given, and waits.
const HOLDS: &str = "stat -f -c %T \"$TOOL_KEY_FILE\"; stat -c %a \"$TOOL_KEY_FILE\"; wc -c <\"$TOOL_KEY_FILE\"; \
    touch holds; while [ ! -e go ]; do sleep 0.02; done; test -r \"$TOOL_KEY_FILE\" && echo still";

struct Search<'p> {
    podman: &'p Podman,
    value: String,
    /// Every form of the value, where nobody searches.
    patterns: TempDir,
}

impl<'p> Search<'p> {
    fn of(podman: &'p Podman, world: &World) -> Self {
        let value = format!("value-of-{}", marker(world));
        let patterns = tempfile::tempdir().unwrap();
        let lines: Vec<Vec<u8>> = forms(&value).into_iter().map(|(_, form)| form).collect();
        fs::write(patterns.path().join("forms"), lines.join(&b'\n')).unwrap();
        Self { podman, value, patterns }
    }

    fn keep(&self, world: &World) {
        let mut set = world.ringfence();
        finish(set.args(["secret", "set", "tool-key"]), self.value.as_bytes()).expect(0);
    }

    /// Every file of the engine and of ringfence that has it, in a form that can be read back.
    fn files(&self, world: &World) -> Vec<PathBuf> {
        let mut grep = self.podman.unshared("grep");
        grep.args(["-rlaF", "-f"]).arg(self.patterns.path().join("forms"));
        let done = finish(grep.arg(self.podman.place()).arg(world.root.path()), b"");
        // What an engine makes and removes while it makes another container is not there any more.
        let unread = done.err.lines().find(|line| !line.ends_with("No such file or directory"));
        assert_eq!(unread, None, "not everything was looked at");
        done.text().lines().map(PathBuf::from).collect()
    }

    /// All that the engine says about its containers and the image.
    fn told(&self) -> String {
        let about = |words: &[&str]| {
            let done = self.podman.podman(words).expect(0);
            done.text() + &done.err
        };
        let mut told = about(&["image", "inspect", IMAGE]) + &about(&["history", "--no-trunc", IMAGE]);
        for id in self.podman.containers() {
            told += &about(&["inspect", &id]);
            told += &about(&["diff", &id]);
        }
        told
    }

    /// Whether whoever is the same user outside can take it out of the memory of a call.
    fn is_in_memory(&self) -> bool {
        let script = "cat /proc/[0-9]*/root/.ringfence/secrets/tool-key 2>/dev/null; true";
        let mut shell = self.podman.unshared("sh");
        finish(shell.args(["-c", script]), b"").expect(0).text().contains(&self.value)
    }

    /// While a call has it.
    #[track_caller]
    fn finds_it_in_memory_alone(&self, world: &World) {
        eventually("the call has it", || world.read("holds").is_some());
        fs::remove_file(world.workspace.join("holds")).unwrap();
        assert!(self.is_in_memory(), "it is somewhere");
        let told = self.told();
        assert!(told.contains("io.ringfence.config"), "there is a container: {told}");
        assert!(!told.contains(&self.value));
        assert_eq!(self.files(world), Vec::<PathBuf>::new());
    }

    #[track_caller]
    fn finds_nothing(&self, world: &World) {
        self.podman.nothing_stays();
        assert!(!self.is_in_memory());
        assert!(!self.told().contains(&self.value));
        assert_eq!(self.files(world), Vec::<PathBuf>::new());
    }

    fn said(&self) -> String {
        format!("tmpfs\n400\n{}\nstill\n", self.value.len())
    }
}

/// S004-16, S004-17: during a call, after it, and when whoever runs it is killed.
#[test]
fn a_secret_in_a_container_is_in_memory_and_nowhere_else() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let search = Search::of(&podman, &world);
    let watch = Watch::begin(&search.value);
    search.keep(&world);
    let begin = || {
        let mut command = world.ringfence();
        command.arg("run").args(flags.with(&["--secret", "tool-key"])).args(["--", "sh", "-c", HOLDS]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let child = begin();
    search.finds_it_in_memory_alone(&world);
    let go = world.write("go", "");
    assert_eq!(collect(child).expect(0).text(), search.said());
    search.finds_nothing(&world);

    fs::remove_file(go).unwrap();
    let child = begin();
    search.finds_it_in_memory_alone(&world);
    send(&child, Signal::KILL);
    assert_eq!(collect(child).signal, Some(9));
    search.finds_nothing(&world);

    let seen = watch.end();
    assert_eq!(seen.shown, Vec::<String>::new());
    // Everybody who has to do with a container was looked at.
    for program in ["conmon", "podman", "ringfence", "runc", "sh"] {
        assert!(seen.programs.iter().any(|name| name.starts_with(program)), "{program}: {:?}", seen.programs);
    }
}

/// S004-16, S004-17: in a container that waited before anybody asked for a secret.
#[test]
fn a_secret_of_a_session_of_the_daemon_is_in_memory_and_nowhere_else() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    let search = Search::of(&podman, &world);
    search.keep(&world);
    configure(&world, &podman, "backend = \"container\"", "image = \"dev\"\nwarm_containers = 1");
    let watch = Watch::begin(&search.value);
    let served = Served::with(world, &[]);
    let world = &served.world;
    let begin = || {
        let wanted = CreateSession { secrets: vec!["tool-key".to_owned()], ..served.wanted() };
        let session = served.client().call(&wanted).unwrap();
        let call = served.client().call(&ExecRequest { background: true, ..exec(&session, HOLDS) }).unwrap();
        assert_eq!(call.failure, None);
        session
    };
    let session = begin();
    search.finds_it_in_memory_alone(world);
    served.client().call(&StopSession { session: session.session, grace_ms: None }).unwrap();
    search.finds_nothing(world);

    begin();
    search.finds_it_in_memory_alone(world);
    send(&served.child, Signal::KILL);
    search.finds_nothing(world);
    assert_eq!(watch.end().shown, Vec::<String>::new());
}

/// The controls: whoever gives it to Podman in the usual ways is found by the same search.
#[test]
fn the_same_search_finds_secrets_that_are_given_to_podman() {
    let podman = Podman::start();
    let (world, _) = podman.world();
    let search = Search::of(&podman, &world);
    assert_eq!(search.files(&world), Vec::<PathBuf>::new());
    let watch = Watch::begin(&search.value);
    let variable = format!("SECRET={}", search.value);
    let mut naive = podman.command(NAIVE);
    naive.args(["-e", &variable, IMAGE, "sh", "-c", "echo started; sleep 1000"]);
    let mut naive = naive.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("it runs", || podman.running().len() == 1);
    assert!(search.told().contains(&search.value), "`podman inspect` tells it");
    assert_ne!(search.files(&world), Vec::<PathBuf>::new(), "the engine has written it down");
    end(&mut naive);
    assert_ne!(watch.end().shown, Vec::<String>::new(), "it is among arguments and variables");
    assert_ne!(search.files(&world), Vec::<PathBuf>::new(), "and it stays when somebody is killed");
    podman.podman(&["rm", "--all", "--force", "--time", "0"]).expect(0);

    // A file that is written inside is a file of the engine.
    let mut naive = podman.command(NAIVE);
    naive.args(["--interactive", IMAGE, "sh", "-c", "cat >/secret; stat -f -c %T /secret"]);
    let kind = finish(&mut naive, search.value.as_bytes()).expect(0).text();
    assert_ne!(kind, "tmpfs\n");
    assert_ne!(search.files(&world), Vec::<PathBuf>::new());
}
