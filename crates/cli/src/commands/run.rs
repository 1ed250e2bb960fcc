//! `ringfence run`: one command, one session.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine as _;
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::{Flags, LimitFlags};
use ringfence_runtime::network::Seen;
use ringfence_runtime::secrets::NamedBy;
use ringfence_runtime::{Asked, Ended, Io, PolicySource, Runtime, Settled, Setup, Source, Target};
use ringfence_types::{
    Access, Bytes, Call, Exec, Exit, HeldChange, Layer, LimitName, Limits, Outcome, Posture, Refusal,
    RefusalCode, Root, StandardInput,
};
use serde::Serialize;

use crate::approval::Terminal;
use crate::args::{FAILED, Place, Run};
use crate::asked::{self, Governed, Ungoverned};
use crate::commands::tx;
use crate::engine;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::leaks;
use crate::output::{self, clean_json, note, plain_json, say};
use crate::spill::{Plain, Spill, Spilled};
use crate::terminal::{Raw, Signals, reopened};
use crate::whole_agent;

pub(crate) fn run(run: Run) -> ExitCode {
    let environment = Environment::read();
    let run = match whole_agent::prepared(run, &environment) {
        Ok(run) => run,
        Err(error) => return error::failed(&error, error.hint().as_deref()),
    };
    let flags = match flags(&run) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    let attendance = if std::io::stdin().is_terminal() && !run.json {
        Attendance::Terminal
    } else {
        Attendance::Unattended
    };
    let runtime = match runtime(&environment, attendance) {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let governed = match asked::governed(&run.place, &environment, runtime.setup(), flags) {
        Ok(governed) => governed,
        Err(Ungoverned::Failed(code)) => return code,
        Err(Ungoverned::Refused(refusal)) => return recorded(&run, &runtime, &refusal),
    };
    if !run.json {
        asked::tell_requests(&governed.effective.requests);
    }
    call(&run, &runtime, &environment, &governed).unwrap_or_else(|code| code)
}

/// Reads the policy again as it was read for the first time.
#[derive(Clone, Debug)]
struct Again {
    place: Place,
    said: Said,
    environment: Environment,
    setup: Setup,
    flags: Flags,
}

/// What was typed besides policy that a session is asked to be.
#[derive(Clone, Debug)]
struct Said {
    session: Option<String>,
    /// What is passed on belongs to whoever reads it, whole.
    whole_output: bool,
    agent_in: Vec<PathBuf>,
}

impl Said {
    fn of(run: &Run) -> Self {
        Self {
            session: run.session.clone(),
            whole_output: run.output.is_none() && !run.json,
            agent_in: run.agent_in.iter().map(|place| asked::real(place)).collect(),
        }
    }
}

impl PolicySource for Again {
    fn read(&self) -> Result<Asked, Refusal> {
        match asked::governed(&self.place, &self.environment, &self.setup, self.flags.clone()) {
            Ok(governed) => Ok(asked(&self.said, &governed)),
            Err(Ungoverned::Refused(refusal)) => Err(refusal),
            // What is wrong was said.
            Err(Ungoverned::Failed(_)) => Err(unreadable_policy()),
        }
    }
}

pub(crate) fn unreadable_policy() -> Refusal {
    Refusal {
        code: RefusalCode::Profile,
        layer: Layer::Operator,
        rule: "policy.unreadable".to_owned(),
        message: "the policy changed while a question waited, and cannot be read any more".to_owned(),
        hint: Some("correct the policy file".to_owned()),
    }
}

pub(crate) fn runtime(environment: &Environment, attendance: Attendance) -> Result<Runtime, ExitCode> {
    let setup: Setup = host::setup(environment, attendance).map_err(|error| error::failed(&error, None))?;
    let runtime = Runtime::open(setup).map_err(|error| {
        let hint = error.hint();
        error::failed_text(
            &format!("the ledger cannot be opened, so nothing is done: {}", error::chain(&error)),
            hint.as_deref(),
        )
    })?;
    tx::tell_recovered(&runtime);
    Ok(runtime)
}

fn recorded(run: &Run, runtime: &Runtime, refusal: &Refusal) -> ExitCode {
    match runtime.refuse(refusal) {
        Ok(()) => refused(run, refusal),
        Err(error) => error::failed(&error, None),
    }
}

fn call(
    run: &Run,
    runtime: &Runtime,
    environment: &Environment,
    governed: &Governed,
) -> Result<ExitCode, ExitCode> {
    let asked = asked(&Said::of(run), governed);
    let net = asked.policy.net;
    let opened = runtime.session(asked).map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    let mut session = match opened {
        Ok(session) => session,
        Err(refusal) => return Ok(refused(run, &refusal)),
    };
    let released = session.release(&run.secrets, NamedBy::Operator { agent: run.place.agent.as_deref() });
    if let Err(refusal) = released.map_err(|error| error::failed(&error, error.hint()))? {
        session.end().map_err(|error| error::failed(&error, error.hint()))?;
        return Ok(refused(run, &refusal));
    }
    let again = Again {
        place: run.place.clone(),
        said: Said::of(run),
        environment: environment.clone(),
        setup: runtime.setup().clone(),
        flags: governed.flags.clone(),
    };
    if !run.json {
        session.set_approver(Terminal::new(environment));
        session.set_flow_approver(Terminal::new(environment));
    }
    session.set_flow_policy_source(again.clone());
    session.set_policy_source(again);
    session.set_stated_reason(run.reason.clone());
    let workspace = session.workspace().path.clone();
    let call = Call::Exec(Exec {
        argv: run.argv.iter().map(|argument| Bytes::from(argument.as_os_str())).collect(),
        cwd: Bytes::from(inside(&workspace, governed)),
        env: run.env.iter().map(|variable| (variable.0.clone(), variable.1.clone())).collect(),
        net,
        stdin: StandardInput::None,
    });
    let signals = Signals::catch()
        .map_err(|error| error::failed_text(&format!("cannot catch signals: {error}"), None))?;
    let interrupts = signals.interrupts();
    let stdin = std::io::stdin();
    if run.json {
        let spill = || {
            Spill::create(&runtime.setup().state_dir).map_err(|error| {
                error::failed_text(&format!("there is no place for the output: {error}"), None)
            })
        };
        let (stdout, stderr) = (spill()?, spill()?);
        let io = Io {
            stdin: Source::Fd(stdin.as_fd()),
            stdout: Target::Fd(stdout.as_fd()),
            stderr: Target::Fd(stderr.as_fd()),
            interrupts: &interrupts,
            timeout: None,
            output_bytes: 0,
        };
        let settled = session.last_call(call, io);
        return Ok(as_json(&settled, stdout, stderr));
    }
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let interactive = stdin.is_terminal();
    let raw = interactive.then(|| Raw::enter(stdin.as_fd()));
    let terminals =
        [stdout.as_fd(), stderr.as_fd()].map(|fd| fd.is_terminal().then(|| reopened(fd)).flatten());
    let [out, err] = &terminals;
    let out = out.as_ref().map_or(stdout.as_fd(), |fd| fd.as_fd());
    let err = err.as_ref().map_or(stderr.as_fd(), |fd| fd.as_fd());
    let io = Io {
        stdin: if interactive { Source::Terminal(stdin.as_fd()) } else { Source::Fd(stdin.as_fd()) },
        stdout: if interactive { target(out) } else { Target::Fd(out) },
        stderr: if interactive { target(err) } else { Target::Fd(err) },
        interrupts: &interrupts,
        timeout: None,
        output_bytes: 0,
    };
    let settled = session.last_call(call, io);
    drop(raw);
    Ok(shown(run, &settled))
}

/// A command that reads from a terminal also writes to one, unless the caller sends its output elsewhere.
fn target(fd: BorrowedFd<'_>) -> Target<'_> {
    if fd.is_terminal() { Target::Terminal(fd) } else { Target::Fd(fd) }
}

fn asked(said: &Said, governed: &Governed) -> Asked {
    let mut asked = governed.asked();
    asked.name.clone_from(&said.session);
    asked.worked_in.extend_from_slice(&said.agent_in);
    // What is captured waits on disk.
    let unsaid = asked.policy.limits.output_bytes == Limits::default().output_bytes;
    if unsaid && said.whole_output {
        asked.policy.limits.output_bytes = u64::MAX;
    }
    asked
}

/// What was typed, as far as it is about policy.
fn flags(run: &Run) -> Result<Flags, ExitCode> {
    let mut roots = Vec::new();
    for (paths, access) in [(&run.read, Access::Read), (&run.write, Access::Write)] {
        for path in paths {
            roots.push(Root { path: Bytes::from(canonical(path)?), access });
        }
    }
    Ok(Flags {
        access: run.access,
        net: run.network.net,
        hosts: asked::hosts(&run.network)?,
        backend: run.backend,
        image: run.container.image.clone(),
        engine: run.container.engine.engine.as_deref().map(engine::absolute),
        runtime: run.container.runtime,
        limits: limits(run),
        floor: run.danger_floor.clone(),
        danger: run.danger.into(),
        roots,
        ..Flags::default()
    })
}

fn canonical(path: &Path) -> Result<PathBuf, ExitCode> {
    std::fs::canonicalize(path).map_err(|error| {
        let shown = Bytes::from(path).display();
        error::failed_text(
            &format!("root `{shown}` cannot be used: {error}"),
            Some("name a directory that exists"),
        )
    })
}

fn limits(run: &Run) -> LimitFlags {
    LimitFlags {
        memory: run.memory,
        processes: run.pids,
        cpus: run.cpus,
        cpu_time: run.cpu_time,
        open_files: run.open_files,
        file_size: run.file_size,
        tmp_size: run.tmp_size,
        disk: run.disk,
        timeout: run.timeout,
        output: run.output,
        flows: run.flows,
        flow_rate: run.flow_rate,
        net_up: run.net_up,
        net_down: run.net_down,
    }
}

/// The caller's directory where it is inside the workspace (through links as well) and shown, else the workspace.
fn inside(workspace: &Path, governed: &Governed) -> PathBuf {
    let shown = governed.effective.policy.access != Access::None;
    match std::fs::canonicalize(&governed.cwd) {
        Ok(cwd) if shown && cwd.starts_with(workspace) => cwd,
        _ => workspace.to_owned(),
    }
}

fn shown(run: &Run, settled: &Settled) -> ExitCode {
    warn_unrecorded(settled);
    if let Some(note) = &settled.note {
        note!("ringfence: {note}");
    }
    if !matches!(settled.ended, Ended::Refused(_)) {
        leaks::tell(&settled.leaks);
    }
    tell_refused_hosts(settled);
    match &settled.ended {
        Ended::Executed(outcome) => {
            explain(run, outcome);
            ExitCode::from(outcome.exit.code())
        }
        Ended::Refused(refusal) => error::refused(refusal),
        Ended::Failed { what, hint } => error::failed_text(what, hint.as_deref()),
        Ended::Touched(_) => ExitCode::from(FAILED),
    }
}

/// Of a client that was refused, its own message often says only that something failed.
pub(crate) fn tell_refused_hosts(settled: &Settled) {
    const MOST: usize = 10;
    let Some(seen) = &settled.network else { return };
    for refused in seen.refused.iter().take(MOST) {
        let times = if refused.times > 1 { format!(" ({} times)", refused.times) } else { String::new() };
        let shown = |text: &str| Bytes::from(text).display();
        note!("ringfence: refused{times}: {}", shown(&refused.refusal.message));
        note!("  rule: {}", shown(&refused.refusal.rule));
        if let Some(hint) = &refused.refusal.hint {
            note!("  hint: {}", shown(hint));
        }
    }
    let more = seen.refused.len().saturating_sub(MOST);
    if more > 0 {
        note!("ringfence: {more} more hosts were refused; `ringfence ledger show` has all of them");
    }
}

/// What was held, where the note is not shown otherwise.
pub(crate) fn tell_held(settled: &Settled) {
    if let Some(note) = settled.note.as_ref().filter(|_| !settled.held.is_empty()) {
        note!("ringfence: {note}");
    }
}

pub(crate) fn warn_unrecorded(settled: &Settled) {
    let Some(why) = &settled.unrecorded else { return };
    match &settled.ended {
        Ended::Refused(_) => {
            note!("ringfence: the refusal could not be written to the ledger: {why}");
            note!(
                "  hint: nothing was executed; `ringfence ledger verify` shows whether the ledger is whole"
            );
        }
        // Whether the intent is still there is not known: what could not be appended to may have been exchanged.
        Ended::Executed(_) | Ended::Touched(_) | Ended::Failed { .. } => {
            note!("ringfence: the outcome could not be written to the ledger: {why}");
            note!("  hint: `ringfence ledger verify` shows whether the ledger is whole and what it has");
        }
    }
}

/// What the exit code alone does not say.
fn explain(run: &Run, outcome: &Outcome) {
    let program = run.argv.first().map(|name| Bytes::from(name.as_os_str()).display()).unwrap_or_default();
    if let Exit::NotExecuted { errno } = outcome.exit {
        let why = std::io::Error::from_raw_os_error(errno);
        note!("ringfence: cannot execute `{program}` inside the fence: {why}");
        let on_host = || run.argv.first().and_then(|name| host::on_path(Path::new(name)));
        if let (None, Some(found)) = (&run.container.image, on_host()) {
            let directory = found.parent().map(|parent| Bytes::from(parent).display()).unwrap_or_default();
            note!("  hint: the host has it in `{directory}`; `--read DIR` shows a directory inside");
        }
    }
    if let Some(limit) = outcome.limit_hit {
        note!("ringfence: the {} limit was reached{}", limit, raise(limit));
    }
}

fn raise(limit: LimitName) -> &'static str {
    match limit {
        LimitName::Memory => " (raise it with --memory)",
        LimitName::Processes => " (raise it with --pids)",
        LimitName::CpuTime => " (raise it with --cpu-time)",
        LimitName::OpenFiles => " (raise it with --open-files)",
        LimitName::FileSize => " (raise it with --file-size)",
        LimitName::TmpSize => " (raise it with --tmp-size)",
        LimitName::Disk => " (raise it with --disk, or remove something)",
        LimitName::WallClock => " (raise it with --timeout)",
        LimitName::Output => " (raise it with --output)",
    }
}

/// The result of `run --json`, schema 1.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    transaction: Option<&'a str>,
    /// `executed`, `refused` or `failed`.
    ended: &'static str,
    exit_code: u8,
    outcome: Option<&'a Outcome>,
    refusal: Option<&'a Refusal>,
    failure: Option<&'a str>,
    /// What would change the failure.
    hint: Option<&'a str>,
    posture: Option<&'a Posture>,
    /// With `--net filtered`: flows, and hosts that were refused.
    network: Option<&'a Seen>,
    stdout: Option<Spilled>,
    stderr: Option<Spilled>,
    /// That it goes round in circles.
    note: Option<&'a str>,
    /// Secrets that were on their way out.
    leaks: Vec<leaks::Report<'a>>,
    /// What would have made a program of the host execute something, and was made ineffective.
    held: &'a [HeldChange],
    unrecorded: Option<&'a str>,
}

/// Text where it is UTF-8, base64 where it is not.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Text {
    Utf8(String),
    Base64 { base64: String },
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Utf8(text),
            Err(error) => {
                Self::Base64 { base64: base64::engine::general_purpose::STANDARD.encode(error.as_bytes()) }
            }
        }
    }
}

fn as_json(settled: &Settled, stdout: Spill, stderr: Spill) -> ExitCode {
    let (ended, exit_code) = match &settled.ended {
        Ended::Executed(outcome) => ("executed", outcome.exit.code()),
        Ended::Refused(_) => ("refused", error::REFUSED),
        Ended::Failed { .. } | Ended::Touched(_) => ("failed", FAILED),
    };
    let report = Report {
        schema: 1,
        transaction: settled.transaction.as_ref().map(|id| id.as_str()),
        ended,
        exit_code,
        outcome: if let Ended::Executed(outcome) = &settled.ended { Some(outcome) } else { None },
        refusal: if let Ended::Refused(refusal) = &settled.ended { Some(refusal) } else { None },
        failure: if let Ended::Failed { what, .. } = &settled.ended { Some(what) } else { None },
        hint: if let Ended::Failed { hint, .. } = &settled.ended { hint.as_deref() } else { None },
        posture: settled.posture.as_ref(),
        network: settled.network.as_ref(),
        stdout: Some(stdout.finish()),
        stderr: Some(stderr.finish()),
        note: settled.note.as_deref(),
        leaks: leaks::reports(&settled.leaks),
        held: &settled.held,
        unrecorded: settled.unrecorded.as_deref(),
    };
    stream_json(&report);
    ExitCode::from(exit_code)
}

fn refused(run: &Run, refusal: &Refusal) -> ExitCode {
    if !run.json {
        return error::refused(refusal);
    }
    print_clean_json(&Report {
        schema: 1,
        transaction: None,
        ended: "refused",
        exit_code: error::REFUSED,
        outcome: None,
        refusal: Some(refusal),
        failure: None,
        hint: None,
        posture: None,
        network: None,
        stdout: None,
        stderr: None,
        note: None,
        leaks: Vec::new(),
        held: &[],
        unrecorded: None,
    });
    ExitCode::from(error::REFUSED)
}

/// As [`print_json`], without the whole of it in memory.
fn stream_json<T: Serialize>(value: &T) {
    output::stream(|out| {
        let written = serde_json::to_writer(Plain::new(&mut *out), value).map_err(io::Error::from);
        written.and_then(|()| out.write_all(b"\n"))
    });
}

pub(crate) fn print_json<T: Serialize>(value: &T) {
    match serde_json::to_string(value) {
        Ok(text) => say!("{}", plain_json(&text)),
        Err(error) => note!("ringfence: cannot write JSON: {error}"),
    }
}

/// Without anything secret, for what repeats the words of whoever asked.
pub(crate) fn print_clean_json<T: Serialize>(value: &T) {
    match serde_json::to_value(value) {
        Ok(value) => print_json(&clean_json(value)),
        Err(error) => note!("ringfence: cannot write JSON: {error}"),
    }
}
