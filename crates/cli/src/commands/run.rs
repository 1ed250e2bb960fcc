//! `ringfence run`: one command, one session.

mod streams;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine as _;
use ringfence_authz::env::ApproverPresence;
use ringfence_policy::{LimitFlags, StartupFlags};
use ringfence_runtime::proxy::FlowSummary;
use ringfence_runtime::secrets::NamedBy;
use ringfence_runtime::{AgentSession, CallEnd, HostSetup, LeakSummary, Runtime, SessionSpec, Settled};
use ringfence_types::{
    Access, ByteString, Call, ExecCall, ExitReason, HeldChange, LimitName, Limits, Outcome, PolicyLayer,
    Posture, Refusal, RefusalCode, Root, RuleId, StandardInput,
};
use serde::Serialize;

use crate::approval::ControllingTerminal;
use crate::args::{FAILED, RunArgs};
use crate::commands::layer::{self, TriedJson};
use crate::commands::proposal;
use crate::engine;
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::leaks;
use crate::output::{self, clean_json, note, plain_json, say};
use crate::policy_resolution::{self, CliPolicySource, PolicyResolutionError, ResolvedPolicy, SpecChanges};
use crate::spill::{Plain, SpilledOutput};
use crate::terminal::TerminalSignals;
use crate::whole_agent;
use streams::{CallerStreams, SpilledStreams};

/// The way of one command, from its arguments to its printed result. `Err` is the exit code after a printed error.
pub(crate) fn run(run: RunArgs, mode: RunMode) -> Result<ExitCode, ExitCode> {
    let environment = Environment::read();
    let run = whole_agent::prepared(run, &environment)
        .map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    let flags = flags(&run)?;
    let runtime = runtime(&environment, attendance(&run))?;
    let governed = match policy_resolution::resolve(&run.place, &environment, runtime.setup(), flags) {
        Ok(governed) => governed,
        Err(PolicyResolutionError::Failed(code)) => return Err(code),
        Err(PolicyResolutionError::Refused(refusal)) => return Ok(recorded(&run, &runtime, &refusal)),
    };
    if !run.json {
        policy_resolution::print_widening_requests(&governed.effective.requests);
    }
    let source = policy_source(&run, &runtime, &environment, &governed);
    let spec = source.changes.made_in(governed.session_spec());
    let opened = runtime.session(spec.clone());
    let opened = opened.map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    let mut session = match opened {
        Ok(session) => session,
        Err(refusal) => return Ok(refused(&run, &refusal)),
    };
    if let Err(refusal) = release_secrets(&run, &mut session)? {
        session.end().map_err(|error| error::failed(&error, error.hint()))?;
        return Ok(refused(&run, &refusal));
    }
    connect_approvers(&run, &environment, &mut session);
    session.set_policy_source(source);
    session.set_claim(run.reason.clone());
    if mode == RunMode::Try {
        session.set_layered();
    }
    let call = exec_call(&run, &governed, &session);
    let signals = TerminalSignals::catch()
        .map_err(|error| error::failed_text(&format!("cannot catch signals: {error}"), None))?;
    let interrupts = signals.interrupts();
    if run.json {
        let streams = SpilledStreams::create(&runtime.setup().state_dir)?;
        let settled = session.last_call(call, streams.io(&interrupts));
        let tried = (mode == RunMode::Try).then(|| layer::tried(&runtime, spec, &settled)).flatten();
        return Ok(print_json_result(&settled, streams, tried.as_ref()));
    }
    let streams = CallerStreams::open();
    let raw = streams.enter_raw_mode();
    let settled = session.last_call(call, streams.io(&interrupts));
    drop(raw);
    let code = print_result(&run, &settled);
    if mode == RunMode::Try {
        layer::after_try(&runtime, &environment, spec, &settled);
    }
    Ok(code)
}

/// Where the command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunMode {
    /// `run`: into the roots.
    Direct,
    /// `try`: into a layer.
    Try,
}

/// Arguments about the session besides policy.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions {
    session: Option<String>,
    /// Passes on the complete output.
    whole_output: bool,
    agent_in: Vec<PathBuf>,
}

impl RunOptions {
    fn of(run: &RunArgs) -> Self {
        Self {
            session: run.session.clone(),
            whole_output: run.max_output.is_none() && !run.json,
            agent_in: run.agent_in.iter().map(|place| policy_resolution::real(place)).collect(),
        }
    }

    pub(crate) fn change(&self, asked: &mut SessionSpec) {
        asked.name.clone_from(&self.session);
        asked.worked_in.extend_from_slice(&self.agent_in);
        // Captured output is buffered on disk, so it needs no default limit.
        let unsaid = asked.policy.limits.output_bytes == Limits::default().output_bytes;
        if unsaid && self.whole_output {
            asked.policy.limits.output_bytes = u64::MAX;
        }
    }
}

pub(crate) fn unreadable_policy() -> Refusal {
    Refusal {
        code: RefusalCode::Profile,
        layer: PolicyLayer::Operator,
        rule: RuleId::PolicyUnreadable.into(),
        message: "the policy changed while a request was pending, and cannot be read".to_owned(),
        hint: Some("correct the policy file".to_owned()),
    }
}

pub(crate) fn runtime(environment: &Environment, attendance: ApproverPresence) -> Result<Runtime, ExitCode> {
    let setup: HostSetup =
        host::setup(environment, attendance).map_err(|error| error::failed(&error, None))?;
    let runtime = Runtime::open(setup).map_err(|error| {
        let hint = error.hint();
        error::failed_text(
            &format!("the ledger cannot be opened, so nothing is done: {}", error::chain(&error)),
            hint.as_deref(),
        )
    })?;
    proposal::tell_recovered(&runtime);
    layer::tell_recovered(&runtime);
    Ok(runtime)
}

fn recorded(run: &RunArgs, runtime: &Runtime, refusal: &Refusal) -> ExitCode {
    match runtime.refuse(refusal) {
        Ok(()) => refused(run, refusal),
        Err(error) => error::failed(&error, None),
    }
}

fn attendance(run: &RunArgs) -> ApproverPresence {
    if std::io::stdin().is_terminal() && !run.json {
        ApproverPresence::Terminal
    } else {
        ApproverPresence::Unattended
    }
}

/// Resolves the policy again, as this run resolved it first.
fn policy_source(
    run: &RunArgs,
    runtime: &Runtime,
    environment: &Environment,
    governed: &ResolvedPolicy,
) -> CliPolicySource {
    CliPolicySource {
        place: run.place.clone(),
        environment: environment.clone(),
        setup: runtime.setup().clone(),
        flags: governed.flags.clone(),
        changes: SpecChanges::Run(RunOptions::of(run)),
    }
}

fn release_secrets(run: &RunArgs, session: &mut AgentSession<'_>) -> Result<Result<(), Refusal>, ExitCode> {
    let named_by = NamedBy::Operator { agent: run.place.agent.as_deref() };
    session.release(&run.secrets, named_by).map_err(|error| error::failed(&error, error.hint()))
}

/// With `--json`, only operators elsewhere can answer.
fn connect_approvers<'a>(run: &RunArgs, environment: &Environment, session: &mut AgentSession<'a>) {
    if !run.json {
        session.set_approver(ControllingTerminal::new(environment));
        session.set_flow_approver(ControllingTerminal::new(environment));
    }
}

fn exec_call(run: &RunArgs, governed: &ResolvedPolicy, session: &AgentSession<'_>) -> Call {
    Call::Exec(ExecCall {
        argv: run.argv.iter().map(|argument| ByteString::from(argument.as_os_str())).collect(),
        cwd: ByteString::from(inside(&session.workspace().path, governed)),
        env: run.env.iter().map(|variable| (variable.0.clone(), variable.1.clone())).collect(),
        ceiling: None,
        net: session.policy().net,
        stdin: StandardInput::None,
    })
}

/// The arguments about policy.
fn flags(run: &RunArgs) -> Result<StartupFlags, ExitCode> {
    let mut roots = Vec::new();
    for (paths, access) in [(&run.read, Access::Read), (&run.write, Access::Write)] {
        for path in paths {
            roots.push(Root { path: ByteString::from(canonical(path)?), access });
        }
    }
    Ok(StartupFlags {
        access: run.workspace_access,
        net: run.network.net,
        hosts: policy_resolution::hosts(&run.network)?,
        backend: run.backend,
        image: run.container.image.clone(),
        engine: run.container.engine.engine.as_deref().map(engine::absolute),
        runtime: run.container.runtime,
        limits: limits(run),
        floor: run.danger_required_controls.clone(),
        danger: run.danger.into(),
        roots,
        ..StartupFlags::default()
    })
}

fn canonical(path: &Path) -> Result<PathBuf, ExitCode> {
    std::fs::canonicalize(path).map_err(|error| {
        let shown = ByteString::from(path).display();
        error::failed_text(
            &format!("root `{shown}` cannot be used: {error}"),
            Some("name a directory that exists"),
        )
    })
}

fn limits(run: &RunArgs) -> LimitFlags {
    LimitFlags {
        memory: run.memory,
        processes: run.pids,
        cpus: run.cpus,
        cpu_time: run.cpu_time,
        max_open_files: run.max_open_files,
        file_size: run.file_size,
        tmp_size: run.tmp_size,
        disk: run.disk,
        timeout: run.timeout,
        max_output: run.max_output,
        max_flows: run.max_flows,
        max_flow_rate: run.max_flow_rate,
        max_bytes_out: run.max_bytes_out,
        max_bytes_in: run.max_bytes_in,
    }
}

/// The caller's directory if it is inside the workspace (also through links) and shown, else the workspace.
fn inside(workspace: &Path, governed: &ResolvedPolicy) -> PathBuf {
    let shown = governed.effective.policy.access != Access::None;
    match std::fs::canonicalize(&governed.cwd) {
        Ok(cwd) if shown && cwd.starts_with(workspace) => cwd,
        _ => workspace.to_owned(),
    }
}

fn print_result(run: &RunArgs, settled: &Settled) -> ExitCode {
    warn_unrecorded(settled);
    if let Some(note) = &settled.notice {
        note!("ringfence: {note}");
    }
    if !matches!(settled.ended, CallEnd::Refused(_)) {
        leaks::tell(&settled.leaks);
    }
    print_refused_hosts(settled);
    match &settled.ended {
        CallEnd::Executed(outcome) => {
            explain(run, outcome);
            ExitCode::from(outcome.exit.code())
        }
        CallEnd::Refused(refusal) => error::refused(refusal),
        CallEnd::Failed { what, hint } => error::failed_text(what, hint.as_deref()),
        CallEnd::Touched(_) => ExitCode::from(FAILED),
    }
}

/// Names refused hosts, because a client's own message often says only that a connection failed.
pub(crate) fn print_refused_hosts(settled: &Settled) {
    const MOST: usize = 10;
    let Some(seen) = &settled.network else { return };
    for refused in seen.refused.iter().take(MOST) {
        let times = if refused.times > 1 { format!(" ({} times)", refused.times) } else { String::new() };
        let shown = |text: &str| ByteString::from(text).display();
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

/// Prints the note about held changes, if it is not shown otherwise.
pub(crate) fn tell_held(settled: &Settled) {
    if let Some(note) = settled.notice.as_ref().filter(|_| !settled.held.is_empty()) {
        note!("ringfence: {note}");
    }
}

pub(crate) fn warn_unrecorded(settled: &Settled) {
    let Some(why) = &settled.record_error else { return };
    match &settled.ended {
        CallEnd::Refused(_) => {
            note!("ringfence: the refusal could not be recorded: {why}");
            note!("  hint: nothing was executed; `ringfence ledger verify` checks the ledger");
        }
        // The intent may be lost too: a ledger that rejects a record may have been replaced.
        CallEnd::Executed(_) | CallEnd::Touched(_) | CallEnd::Failed { .. } => {
            note!("ringfence: the outcome could not be recorded: {why}");
            note!("  hint: `ringfence ledger verify` checks the ledger");
        }
    }
}

/// Explains what the exit code alone does not say.
fn explain(run: &RunArgs, outcome: &Outcome) {
    let program =
        run.argv.first().map(|name| ByteString::from(name.as_os_str()).display()).unwrap_or_default();
    if let ExitReason::NotExecuted { errno } = outcome.exit {
        let why = std::io::Error::from_raw_os_error(errno);
        note!("ringfence: cannot execute `{program}` inside the fence: {why}");
        let on_host = || run.argv.first().and_then(|name| host::on_path(Path::new(name)));
        if let (None, Some(found)) = (&run.container.image, on_host()) {
            let directory =
                found.parent().map(|parent| ByteString::from(parent).display()).unwrap_or_default();
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
        LimitName::OpenFiles => " (raise it with --max-open-files)",
        LimitName::FileSize => " (raise it with --file-size)",
        LimitName::TmpSize => " (raise it with --tmp-size)",
        LimitName::Disk => " (raise it with --disk, or remove something)",
        LimitName::WallClock => " (raise it with --timeout)",
        LimitName::Output => " (raise it with --max-output)",
    }
}

/// The result of `run --json`, schema 1.
#[derive(Serialize)]
struct RunJson<'a> {
    schema: u32,
    transaction: Option<&'a str>,
    /// `executed`, `refused` or `failed`.
    ended: &'static str,
    exit_code: u8,
    outcome: Option<&'a Outcome>,
    refusal: Option<&'a Refusal>,
    failure: Option<&'a str>,
    /// The next step after a failure.
    hint: Option<&'a str>,
    posture: Option<&'a Posture>,
    /// With `--net filtered`: flows, and refused hosts.
    network: Option<&'a FlowSummary>,
    stdout: Option<SpilledOutput>,
    stderr: Option<SpilledOutput>,
    /// A note, for example that the call repeats in a loop.
    notice: Option<&'a str>,
    /// Leaks that were found.
    leaks: &'a [LeakSummary],
    /// Changes that a host program would have executed, and that were held.
    held: &'a [HeldChange],
    record_error: Option<&'a str>,
    /// With `try`: what waits in the layer. Absent if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<&'a TriedJson>,
}

/// Text if it is UTF-8, otherwise base64.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum OutputText {
    Utf8(String),
    Base64 { base64: String },
}

impl From<Vec<u8>> for OutputText {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Utf8(text),
            Err(error) => {
                Self::Base64 { base64: base64::engine::general_purpose::STANDARD.encode(error.as_bytes()) }
            }
        }
    }
}

fn print_json_result(settled: &Settled, streams: SpilledStreams, tried: Option<&TriedJson>) -> ExitCode {
    let (ended, exit_code) = match &settled.ended {
        CallEnd::Executed(outcome) => ("executed", outcome.exit.code()),
        CallEnd::Refused(_) => ("refused", error::REFUSED),
        CallEnd::Failed { .. } | CallEnd::Touched(_) => ("failed", FAILED),
    };
    let report = RunJson {
        schema: 1,
        transaction: settled.transaction.as_ref().map(|id| id.as_str()),
        ended,
        exit_code,
        outcome: if let CallEnd::Executed(outcome) = &settled.ended { Some(outcome) } else { None },
        refusal: if let CallEnd::Refused(refusal) = &settled.ended { Some(refusal) } else { None },
        failure: if let CallEnd::Failed { what, .. } = &settled.ended { Some(what) } else { None },
        hint: if let CallEnd::Failed { hint, .. } = &settled.ended { hint.as_deref() } else { None },
        posture: settled.posture.as_ref(),
        network: settled.network.as_ref(),
        stdout: Some(streams.stdout.finish()),
        stderr: Some(streams.stderr.finish()),
        notice: settled.notice.as_deref(),
        leaks: &settled.leaks,
        held: &settled.held,
        record_error: settled.record_error.as_deref(),
        layer: tried,
    };
    stream_json(&report);
    ExitCode::from(exit_code)
}

fn refused(run: &RunArgs, refusal: &Refusal) -> ExitCode {
    if !run.json {
        return error::refused(refusal);
    }
    print_clean_json(&RunJson {
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
        notice: None,
        leaks: &[],
        held: &[],
        record_error: None,
        layer: None,
    });
    ExitCode::from(error::REFUSED)
}

/// Like [`print_json`], without holding the whole text in memory.
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

/// Redacts values that may repeat the caller's words.
pub(crate) fn print_clean_json<T: Serialize>(value: &T) {
    match serde_json::to_value(value) {
        Ok(value) => print_json(&clean_json(value)),
        Err(error) => note!("ringfence: cannot write JSON: {error}"),
    }
}
