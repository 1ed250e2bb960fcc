//! Prints how long starts take, one duration in nanoseconds per line: `bench_session cold|layered|filtered|warm N [masks K]`.
//! `layered` is `cold` with a copy-on-write view of the workspace, its directories included.
//! Called in small rounds by `cargo xtask bench`, interleaved with its peers.
#![expect(clippy::print_stdout, reason = "the numbers are the program's output")]

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_sandbox::survey::SurveyRules;
use ringfence_sandbox::{
    CommandIo, HostView, LayerMountPaths, LayerSource, OutputTarget, Sandbox, SandboxCommand, SandboxSpec,
    StdinSource,
};
use ringfence_types::{Access, Backend, ByteString, Limits, NetMode, PathDecision, Root};

/// The protected names of the benchmark's workspace: as many as a real policy has.
const PROTECTED: &[&str] = &[
    ".git",
    ".gitmodules",
    ".gitconfig",
    ".bashrc",
    ".bash_profile",
    ".zshrc",
    ".zprofile",
    ".profile",
    ".envrc",
    ".mcp.json",
    ".vscode",
    ".idea",
    ".claude",
    ".codex",
    ".agents",
    ".cursor",
    ".ripgreprc",
    ".ringfence",
];

struct BenchRules;

impl SurveyRules for BenchRules {
    fn judge(&self, relative: &Path) -> PathDecision {
        match relative.extension() {
            Some(extension) if extension == "key" => PathDecision::Hidden,
            _ => PathDecision::Open,
        }
    }
    fn protected_at_root(&self) -> &[&str] {
        PROTECTED
    }
    fn protected_anywhere(&self) -> &[&str] {
        PROTECTED
    }
    fn is_protected(&self, _relative: &Path) -> bool {
        false
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (mode, rounds, masks) = match arguments.as_slice() {
        [mode, rounds] => (*mode, rounds.parse::<u32>()?, 0),
        [mode, rounds, "masks", masks] => (*mode, rounds.parse()?, masks.parse::<u32>()?),
        _ => return Err("usage: bench_session cold|layered|filtered|warm|idle N [masks K]".into()),
    };
    let world = World::new(masks)?;
    match mode {
        "cold" => (0..rounds).try_for_each(|_| report(|| world.run_once(NetMode::None))),
        "layered" => (0..rounds).try_for_each(|round| {
            let layer = BenchLayer { place: world.root.path().join(format!("layers/{round}")) };
            report(|| run_true(&mut Sandbox::start(&world.layered(layer), &BenchRules)?))
        }),
        "filtered" => (0..rounds).try_for_each(|_| report(|| world.run_once(NetMode::Filtered))),
        "warm" => {
            let mut session = world.start(NetMode::None)?;
            run_true(&mut session)?;
            (0..rounds).try_for_each(|_| report(|| run_true(&mut session)))
        }
        "idle" => {
            let _session = world.start(NetMode::None)?;
            println!("ready");
            std::thread::sleep(Duration::from_secs(rounds.into()));
            Ok(())
        }
        other => Err(format!("unknown mode `{other}`").into()),
    }
}

fn report(work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    work()?;
    println!("{}", started.elapsed().as_nanos());
    Ok(())
}

fn run_true(session: &mut Sandbox) -> Result<(), Box<dyn Error>> {
    let command = SandboxCommand {
        argv: vec![ByteString::from("/bin/true")],
        env: Vec::new(),
        cwd: PathBuf::from("/"),
        approved: None,
    };
    let io = CommandIo {
        stdin: StdinSource::Empty,
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 1 << 20,
    };
    let finished = session.run(&command, io)?;
    if finished.exit.code() == 0 { Ok(()) } else { Err(format!("/bin/true: {:?}", finished.exit).into()) }
}

/// The directories of one layer.
#[derive(Debug)]
struct BenchLayer {
    place: PathBuf,
}

impl LayerSource for BenchLayer {
    fn mount_of(&self, _root: &Path) -> io::Result<LayerMountPaths> {
        let paths = LayerMountPaths { upper: self.place.join("upper"), work: self.place.join("work") };
        std::fs::create_dir_all(&paths.upper)?;
        std::fs::create_dir(&paths.work)?;
        Ok(paths)
    }
}

struct World {
    root: tempfile::TempDir,
}

impl World {
    fn new(masks: u32) -> Result<Self, Box<dyn Error>> {
        let root = tempfile::tempdir()?;
        for directory in ["workspace", "home", "registry"] {
            std::fs::create_dir(root.path().join(directory))?;
        }
        // As in bench/fence.h: ten protected paths exist, ten do not.
        for directory in [".git/hooks", ".git/info", ".vscode", ".claude"] {
            std::fs::create_dir_all(root.path().join("workspace").join(directory))?;
        }
        for file in [".git/config", ".gitmodules", ".bashrc", ".profile", ".envrc", ".mcp.json"] {
            std::fs::write(root.path().join("workspace").join(file), "")?;
        }
        for number in 0..masks {
            std::fs::write(root.path().join(format!("workspace/{number}.key")), "secret")?;
        }
        Ok(Self { root })
    }

    fn run_once(&self, net: NetMode) -> Result<(), Box<dyn Error>> {
        run_true(&mut self.start(net)?)
    }

    fn start(&self, net: NetMode) -> Result<Sandbox, Box<dyn Error>> {
        Ok(Sandbox::start(&self.spec(net), &BenchRules)?)
    }

    fn layered(&self, layer: BenchLayer) -> SandboxSpec {
        SandboxSpec { layer: Some(Arc::new(layer)), ..self.spec(NetMode::None) }
    }

    fn spec(&self, net: NetMode) -> SandboxSpec {
        let path = |name: &str| self.root.path().join(name);
        SandboxSpec {
            backend: Backend::Native,
            roots: vec![Root { path: ByteString::from(path("workspace")), access: Access::Write }],
            view: HostView::Constructed,
            toolchains: Vec::new(),
            shown: Vec::new(),
            home: path("home"),
            net,
            limits: Limits::default(),
            files: Vec::new(),
            secrets: Vec::new(),
            registry: path("registry"),
            sweeper: None,
            container: None,
            layer: None,
        }
    }
}
