//! What a session in a container costs, by turns: each mode prints one duration in nanoseconds per line.
//!
//! - `bench_container call SOCKET IMAGE-ID PLACE N`: N calls in one running session;
//! - `bench_container first SOCKET IMAGE-ID PLACE N`: N sessions, each with its first call and its end;
//! - `bench_container prewarmed SOCKET IMAGE-ID PLACE N`: N first calls in containers that waited.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot be made says so and ends"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use ringfence_runtime::EngineContainers;
use ringfence_sandbox::survey::SurveyRules;
use ringfence_sandbox::{
    CommandIo, ContainerPool, HostView, OutputTarget, Sandbox, SandboxCommand, SandboxSpec, StdinSource,
};
use ringfence_types::{Access, Backend, ByteString, ContainerSpec, Limits, NetMode, PathDecision, Root};

struct OpenRules;

impl SurveyRules for OpenRules {
    fn judge(&self, _relative: &Path) -> PathDecision {
        PathDecision::Open
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
    let [mode, socket, image, place, count] = arguments.as_slice() else { return };
    let place = Path::new(place).canonicalize().unwrap();
    for directory in ["w", "home", "registry"] {
        std::fs::create_dir_all(place.join(directory)).unwrap();
    }
    let spec = SandboxSpec {
        backend: Backend::Container,
        roots: vec![Root { path: ByteString::from(place.join("w")), access: Access::Write }],
        view: HostView::Constructed,
        toolchains: Vec::new(),
        shown: Vec::new(),
        home: place.join("home"),
        net: NetMode::None,
        limits: Limits::default(),
        files: Vec::new(),
        secrets: Vec::new(),
        registry: place.join("registry"),
        sweeper: None,
        container: Some(ContainerSpec {
            engine: socket.into(),
            image: image.parse().unwrap(),
            runtime: None,
        }),
        layer: None,
    };
    let count: usize = count.parse().unwrap();
    match mode.as_str() {
        "call" => calls(&spec, count),
        "first" => (0..count).for_each(|_| {
            report(|| run(&mut start(&spec), &spec));
        }),
        "prewarmed" => prewarmed(&spec, count),
        _ => {}
    }
}

fn start(spec: &SandboxSpec) -> Sandbox {
    Sandbox::start_from(spec, &OpenRules, Some(&ContainerPool::new(EngineContainers))).unwrap()
}

fn calls(spec: &SandboxSpec, count: usize) {
    let mut session = start(spec);
    run(&mut session, spec);
    (0..count).for_each(|_| report(|| run(&mut session, spec)));
}

fn prewarmed(spec: &SandboxSpec, count: usize) {
    let pool = ContainerPool::new(EngineContainers);
    for _ in 0..count {
        pool.keep(spec, &OpenRules, 1).unwrap();
        while pool.waiting() == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut used = None;
        report(|| {
            let mut session = Sandbox::start_from(spec, &OpenRules, Some(&pool)).unwrap();
            run(&mut session, spec);
            used = Some(session);
        });
    }
}

fn run(session: &mut Sandbox, spec: &SandboxSpec) {
    let command = SandboxCommand {
        argv: vec![ByteString::from("/usr/bin/true")],
        env: vec![(ByteString::from("PATH"), ByteString::from("/usr/bin:/bin"))],
        cwd: spec.workspace().unwrap().to_owned(),
        approved: None,
    };
    let io = CommandIo {
        stdin: StdinSource::Empty,
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    };
    assert_eq!(session.run(&command, io).unwrap().exit.code(), 0);
}

fn report(work: impl FnOnce()) {
    let start = Instant::now();
    work();
    println!("{}", start.elapsed().as_nanos());
}
