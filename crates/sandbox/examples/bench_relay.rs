//! How long a command takes whose output passes the relay: `bench_relay bare|scanned DIRECTORY COMMAND…` runs the command in
//! DIRECTORY, behind the fence, throws its output away and prints the duration in nanoseconds. `scanned` looks for secrets on
//! the way, as a session does; the rest is the same.
#![expect(clippy::print_stdout, reason = "the numbers are the program's output")]

use std::error::Error;
use std::fs::OpenOptions;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ringfence_sandbox::survey::Rules;
use ringfence_sandbox::{
    Command, Filter, Filters, Finished, Flow, Io, Quiet, Session, Source, Spec, Target, View,
};
use ringfence_scan::{LazyScanner, LazyStream, Output, Pause};
use ringfence_types::{Access, Backend, Bytes, Limits, NetMode, PathVerdict, Root};

struct NoRules;

impl Rules for NoRules {
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

/// What a session puts there, without policy.
#[derive(Debug)]
struct Scanned {
    stream: Option<LazyStream>,
    output: Output,
}

impl Scanned {
    fn new() -> Self {
        Self { stream: Some(LazyScanner::default().stream_with_threads()), output: Output::default() }
    }

    fn give(&mut self, out: &mut Vec<u8>) -> Flow {
        if out.is_empty() {
            std::mem::swap(out, &mut self.output.clean);
        } else {
            out.append(&mut self.output.clean);
        }
        Flow::On
    }
}

impl Filter for Scanned {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Flow {
        if let Some(stream) = &mut self.stream {
            stream.push(bytes, &mut self.output);
        }
        self.give(out)
    }

    fn pause(&mut self, quiet: Quiet, out: &mut Vec<u8>) -> Flow {
        let pause = match quiet {
            Quiet::Briefly => Pause::Short,
            Quiet::Long => Pause::TooLong,
        };
        if let Some(stream) = &mut self.stream {
            stream.settle(pause, &mut self.output);
        }
        self.give(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Flow {
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
    let argv = argv.iter().map(|word| Bytes::from(word.as_str())).collect();
    let command = Command { argv, env: Vec::new(), cwd: PathBuf::from(directory) };
    let world = tempfile::tempdir()?;
    let mut session = start(world.path(), directory)?;
    let started = Instant::now();
    let finished = run(&mut session, &command, mode)?;
    println!("{}", started.elapsed().as_nanos());
    if finished.exit.code() == 0 { Ok(()) } else { Err(format!("the command: {:?}", finished.exit).into()) }
}

fn run(session: &mut Session, command: &Command, mode: &str) -> Result<Finished, Box<dyn Error>> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    let io = Io {
        stdin: Source::Empty,
        stdout: Target::Fd(null.as_fd()),
        stderr: Target::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: u64::MAX,
    };
    let (mut stdout, mut stderr) = (Scanned::new(), Scanned::new());
    match mode {
        "bare" => Ok(session.run(command, io)?),
        "scanned" => {
            let filters = Filters { stdout: &mut stdout, stderr: &mut stderr };
            Ok(session.run_filtered(command, io, filters)?)
        }
        other => Err(format!("unknown mode `{other}`").into()),
    }
}

fn start(world: &Path, directory: &str) -> Result<Session, Box<dyn Error>> {
    for name in ["home", "registry"] {
        std::fs::create_dir(world.join(name))?;
    }
    let spec = Spec {
        backend: Backend::Native,
        roots: vec![Root { path: Bytes::from(directory), access: Access::Read }],
        view: View::Constructed,
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
    };
    Ok(Session::start(&spec, &NoRules)?)
}
