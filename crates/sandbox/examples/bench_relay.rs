//! How long a command takes whose output passes the relay: `bench_relay bare|scanned DIRECTORY COMMAND…` runs the command in
//! DIRECTORY, behind the fence, throws its output away and prints the duration in nanoseconds. `scanned` looks for secrets on
//! the way, as a session does; the rest is the same.
#![expect(clippy::print_stdout, reason = "the numbers are the program's output")]

use std::error::Error;
use std::fs::OpenOptions;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ringfence_sandbox::survey::SurveyRules;
use ringfence_sandbox::{
    CommandExit, CommandIo, FilterAction, HostView, IdleSpan, OutputTarget, Sandbox, SandboxCommand,
    SandboxSpec, StdinSource, StreamFilter, StreamFilters,
};
use ringfence_scan::{LazyScanner, LazyStream, PauseLength, ScanOutput};
use ringfence_types::{Access, Backend, ByteString, Limits, NetMode, PathDecision, Root};

struct RelayBenchRules;

impl SurveyRules for RelayBenchRules {
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

/// The filter that a session puts on an output stream, without policy.
#[derive(Debug)]
struct ScanFilter {
    stream: Option<LazyStream>,
    output: ScanOutput,
}

impl ScanFilter {
    fn new() -> Self {
        Self { stream: Some(LazyScanner::default().stream_with_threads()), output: ScanOutput::default() }
    }

    fn give(&mut self, out: &mut Vec<u8>) -> FilterAction {
        if out.is_empty() {
            std::mem::swap(out, &mut self.output.clean);
        } else {
            out.append(&mut self.output.clean);
        }
        FilterAction::On
    }
}

impl StreamFilter for ScanFilter {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> FilterAction {
        if let Some(stream) = &mut self.stream {
            stream.push(bytes, &mut self.output);
        }
        self.give(out)
    }

    fn pause(&mut self, quiet: IdleSpan, out: &mut Vec<u8>) -> FilterAction {
        let pause = match quiet {
            IdleSpan::Briefly => PauseLength::Short,
            IdleSpan::Long => PauseLength::TooLong,
        };
        if let Some(stream) = &mut self.stream {
            stream.settle(pause, &mut self.output);
        }
        self.give(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> FilterAction {
        if let Some(stream) = self.stream.take() {
            stream.finish(&mut self.output);
        }
        self.give(out)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, directory, argv @ ..] = arguments.as_slice() else {
        return Err("usage: bench_relay bare|scanned DIRECTORY COMMAND…".into());
    };
    let argv = argv.iter().map(|word| ByteString::from(word.as_str())).collect();
    let command = SandboxCommand { argv, env: Vec::new(), cwd: PathBuf::from(directory), approved: None };
    let world = tempfile::tempdir()?;
    let mut session = start(world.path(), directory)?;
    let started = Instant::now();
    let finished = run(&mut session, &command, mode)?;
    println!("{}", started.elapsed().as_nanos());
    if finished.exit.code() == 0 { Ok(()) } else { Err(format!("the command: {:?}", finished.exit).into()) }
}

fn run(session: &mut Sandbox, command: &SandboxCommand, mode: &str) -> Result<CommandExit, Box<dyn Error>> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    let io = CommandIo {
        stdin: StdinSource::Empty,
        stdout: OutputTarget::Fd(null.as_fd()),
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: u64::MAX,
    };
    let (mut stdout, mut stderr) = (ScanFilter::new(), ScanFilter::new());
    match mode {
        "bare" => Ok(session.run(command, io)?),
        "scanned" => {
            let filters = StreamFilters { stdout: &mut stdout, stderr: &mut stderr };
            Ok(session.run_filtered(command, io, Some(filters))?)
        }
        other => Err(format!("unknown mode `{other}`").into()),
    }
}

fn start(world: &Path, directory: &str) -> Result<Sandbox, Box<dyn Error>> {
    for name in ["home", "registry"] {
        std::fs::create_dir(world.join(name))?;
    }
    let spec = SandboxSpec {
        backend: Backend::Native,
        roots: vec![Root { path: ByteString::from(directory), access: Access::Read }],
        view: HostView::Constructed,
        toolchains: Vec::new(),
        shown: Vec::new(),
        home: world.join("home"),
        net: NetMode::None,
        limits: Limits::default(),
        files: Vec::new(),
        secrets: Vec::new(),
        registry: world.join("registry"),
        sweeper: None,
        container: None,
        layer: None,
    };
    Ok(Sandbox::start(&spec, &RelayBenchRules)?)
}
