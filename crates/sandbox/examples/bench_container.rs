//! A call in a running session against the engine's own exec, interleaved: what a session in a container costs.
//!
//! `bench_container SOCKET IMAGE-ID RUNS PODMAN…` where `PODMAN…` is the engine's command with its global options.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a measurement that cannot be made says so and ends"
)]

use std::path::Path;
use std::process::{Command as Program, Stdio};
use std::time::{Duration, Instant};

use ringfence_sandbox::container::ContainerSpec;
use ringfence_sandbox::survey::Rules;
use ringfence_sandbox::{Command, Io, Session, Source, Spec, Target, View};
use ringfence_types::{Access, Backend, Bytes, Limits, NetMode, PathVerdict, Root};

struct Open;

impl Rules for Open {
    fn judge(&self, _relative: &Path) -> PathVerdict {
        PathVerdict::Open
    }
    fn protected_at_root(&self) -> &[&str] {
        &[]
    }
    fn protected_anywhere(&self) -> &[&str] {
        &[]
    }
    fn is_protected(&self, _relative: &Path) -> bool {
        false
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, image, runs, podman @ ..] = arguments.as_slice() else { return };
    let world = tempfile::tempdir().unwrap();
    let world = world.path().canonicalize().unwrap();
    for directory in ["w", "home", "registry"] {
        std::fs::create_dir(world.join(directory)).unwrap();
    }
    let spec = Spec {
        backend: Backend::Container,
        roots: vec![Root { path: Bytes::from(world.join("w")), access: Access::Write }],
        view: View::Constructed,
        toolchains: Vec::new(),
        home: world.join("home"),
        net: NetMode::None,
        limits: Limits::default(),
        files: Vec::new(),
        secrets: Vec::new(),
        registry: world.join("registry"),
        container: Some(ContainerSpec {
            engine: socket.into(),
            image: image.parse().unwrap(),
            runtime: None,
        }),
    };
    let runs: usize = runs.parse().unwrap();
    let engine = |words: &[&str]| {
        let mut command = Program::new(&podman[0]);
        let status = command.args(&podman[1..]).args(words).stdout(Stdio::null()).status().unwrap();
        assert!(status.success(), "{words:?}");
    };
    let limits = ["--ulimit", "nofile=256:256", "--ulimit", "nproc=4096:4096", "--network", "none"];
    engine(&[&["run", "--detach", "--name", "bench"], &limits[..], &[image, "sleep", "1000"]].concat());
    let mut session = Session::start(&spec, &Open).unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        ours.push(timed(|| run(&mut session, &world)));
        theirs.push(timed(|| engine(&["exec", "bench", "sh", "-c", ":"])));
    }
    let (mut first, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..runs.div_ceil(4) {
        first.push(timed(|| run(&mut Session::start(&spec, &Open).unwrap(), &world)));
        whole.push(timed(|| engine(&[&["run", "--rm"], &limits[..], &[image, "sh", "-c", ":"]].concat())));
    }
    engine(&["rm", "--force", "--time", "0", "bench"]);
    for (what, times) in [
        ("call in a running session", ours),
        ("engine exec", theirs),
        ("first call, removal included", first),
        ("engine run --rm", whole),
    ] {
        println!("{what:<30} {}", summary(times));
    }
}

fn run(session: &mut Session, world: &Path) {
    let command = Command {
        argv: ["sh", "-c", ":"].map(Bytes::from).to_vec(),
        env: vec![(Bytes::from("PATH"), Bytes::from("/usr/bin:/bin"))],
        cwd: world.join("w"),
    };
    let io = Io {
        stdin: Source::Empty,
        stdout: Target::Discard,
        stderr: Target::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    };
    assert_eq!(session.run(&command, io).unwrap().exit.code(), 0);
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn summary(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
    format!("p50 {:?}  p90 {:?}  ({} samples)", at(50), at(90), times.len())
}
