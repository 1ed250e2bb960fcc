//! Processes of Codex: each is one call of a session, on its own thread.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use ringfence_authz::env::is_unquestioned;
use ringfence_runtime::{AgentSession, CallEnd, SessionShared, Settled, SignalPipes};
use ringfence_types::{ByteString, Call, ExecCall, NetMode, StandardInput};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::CodexSessions;
use super::codex_sandbox::RequestedSandbox;
use super::streams::{ProcessStreams, SandboxEnds, StreamKind, connected};
use super::unwrap_hook;
use super::wire::{
    FaultKind, MessageWriter, ProcessRequest, ReadOutput, RpcFault, StartProcess, WriteInput, decoded,
    encoded,
};
use crate::error::REFUSED;
use ringfence_types::RefusalNotice;

/// Limit of concurrent processes.
const MOST_PROCESSES: usize = 64;
/// Output kept for `process/read` of one process; everything is also sent as it arrives.
const KEPT: usize = 1024 * 1024;
/// The longest wait of `process/read`.
const PATIENCE: Duration = Duration::from_secs(30);

/// Current state of a process.
#[derive(Debug, Default)]
struct ProcessProgress {
    /// Number of the last notification.
    seq: u64,
    chunks: VecDeque<(u64, &'static str, Vec<u8>)>,
    kept: usize,
    exit: Option<i32>,
    closed: bool,
    failure: Option<String>,
}

#[derive(Debug)]
struct CodexProcess {
    id: String,
    signals: SignalPipes,
    /// Open until the process ends.
    input: Mutex<Option<Arc<OwnedFd>>>,
    progress: Mutex<ProcessProgress>,
    news: Condvar,
}

impl CodexProcess {
    fn progress(&self) -> MutexGuard<'_, ProcessProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn input(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers and sends a notification under one lock, so that notifications arrive in order.
    fn tell(&self, out: &MessageWriter, method: &str, change: impl FnOnce(&mut ProcessProgress) -> Value) {
        let mut progress = self.progress();
        progress.seq += 1;
        let mut params = change(&mut progress);
        if let Some(params) = params.as_object_mut() {
            params.insert("processId".to_owned(), json!(self.id));
            params.insert("seq".to_owned(), json!(progress.seq));
        }
        out.notify(method, &params);
        drop(progress);
        self.news.notify_all();
    }

    fn printed(&self, out: &MessageWriter, stream: &'static str, bytes: &[u8]) {
        self.tell(out, "process/output", |progress| {
            progress.kept += bytes.len();
            progress.chunks.push_back((progress.seq, stream, bytes.to_vec()));
            while progress.kept > KEPT
                && let Some((_, _, oldest)) = progress.chunks.pop_front()
            {
                progress.kept -= oldest.len();
            }
            json!({ "stream": stream, "chunk": encoded(bytes) })
        });
    }

    fn is_over(&self) -> bool {
        self.progress().closed
    }
}

/// The processes of one connection.
pub(super) struct Processes<'s, 'scope> {
    scope: &'scope Scope<'scope, 's>,
    sessions: &'s CodexSessions<'s>,
    out: &'s MessageWriter,
    all: Mutex<ProcessTable>,
}

#[derive(Debug, Default)]
struct ProcessTable {
    processes: BTreeMap<String, Arc<CodexProcess>>,
    /// The client is gone. A process that starts now would have no client to end it.
    is_over: bool,
}

impl<'s, 'scope> Processes<'s, 'scope> {
    pub(super) fn new(
        scope: &'scope Scope<'scope, 's>,
        sessions: &'s CodexSessions<'s>,
        out: &'s MessageWriter,
    ) -> Self {
        Self { scope, sessions, out, all: Mutex::default() }
    }

    /// Answers at once, because an approval may have to come before the start.
    pub(super) fn start(&self, mut start: StartProcess) -> Result<Value, RpcFault> {
        if start.arg0.as_ref().is_some_and(|name| start.argv.first() != Some(name)) {
            return Err(RpcFault::new(
                FaultKind::Params,
                "a program has its own name here: `arg0` is not taken",
            ));
        }
        if let Ok(program) = std::env::current_exe() {
            start.argv = unwrap_hook::meant(start.argv, &program);
        }
        let intent = RequestedSandbox::of(&start.sandbox, &self.sessions.writing.workspace().path)?;
        let net = if start.enforce_managed_network { NetMode::None } else { intent.net };
        let bound = self.sessions.of(intent.access, net);
        let wanted = CodexExec::of(&start, bound, &self.sessions.baseline);
        let form = match (start.tty, start.pipe_stdin) {
            (true, _) => StreamKind::Terminal,
            (false, true) => StreamKind::Input,
            (false, false) => StreamKind::NoInput,
        };
        let streams = connected(form).map_err(RpcFault::internal)?;
        let process = self.enter(start.process_id, streams.outer.input.clone())?;
        let out = self.out;
        let id = process.id.clone();
        self.scope.spawn(move || live(&process, bound, wanted, streams, out));
        Ok(json!({ "processId": id }))
    }

    fn enter(&self, id: String, input: Option<Arc<OwnedFd>>) -> Result<Arc<CodexProcess>, RpcFault> {
        let invalid = |why: String| Err(RpcFault::new(FaultKind::Invalid, why));
        let mut all = self.all();
        if all.is_over {
            return invalid("the connection is closed".to_owned());
        }
        if all.processes.len() >= MOST_PROCESSES {
            all.processes.retain(|_, process| !process.is_over());
        }
        if all.processes.contains_key(&id) {
            return invalid(format!("process `{id}` exists already"));
        }
        if all.processes.len() >= MOST_PROCESSES {
            return invalid(format!("{MOST_PROCESSES} processes run already; end one first"));
        }
        let signals = SignalPipes::new().map_err(RpcFault::internal)?;
        let process = Arc::new(CodexProcess {
            id: id.clone(),
            signals,
            input: Mutex::new(input),
            progress: Mutex::default(),
            news: Condvar::new(),
        });
        all.processes.insert(id, Arc::clone(&process));
        Ok(process)
    }

    fn all(&self) -> MutexGuard<'_, ProcessTable> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &str) -> Option<Arc<CodexProcess>> {
        self.all().processes.get(id).cloned()
    }

    pub(super) fn read(&self, read: &ReadOutput) -> Result<Value, RpcFault> {
        let Some(process) = self.find(&read.process_id) else {
            return Err(RpcFault::new(
                FaultKind::Invalid,
                format!("there is no process `{}`", read.process_id),
            ));
        };
        let after = read.after_seq.unwrap_or(0);
        let waits = |progress: &mut ProcessProgress| progress.seq <= after && !progress.closed;
        let wait = Duration::from_millis(read.wait_ms.unwrap_or(0)).min(PATIENCE);
        let waited = process.news.wait_timeout_while(process.progress(), wait, waits);
        let (progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut room = read.max_bytes.unwrap_or(usize::MAX);
        let mut last = None;
        let mut chunks = Vec::new();
        for (seq, stream, bytes) in progress.chunks.iter().filter(|(seq, ..)| *seq > after) {
            if bytes.len() > room && !chunks.is_empty() {
                last = Some(*seq);
                break;
            }
            room = room.saturating_sub(bytes.len());
            chunks.push(json!({ "seq": seq, "stream": stream, "chunk": encoded(bytes) }));
        }
        Ok(json!({
            "chunks": chunks, "nextSeq": last.unwrap_or(progress.seq + 1), "exited": progress.exit.is_some(),
            "exitCode": progress.exit, "closed": progress.closed, "failure": progress.failure,
            "sandboxDenied": false,
        }))
    }

    pub(super) fn write(&self, write: &WriteInput) -> Result<Value, RpcFault> {
        let bytes = decoded(&write.chunk)?;
        let Some(process) = self.find(&write.process_id) else {
            return Ok(json!({ "status": "unknownProcess" }));
        };
        let input = process.input().clone();
        let Some(input) = input else { return Ok(json!({ "status": "stdinClosed" })) };
        let written = rustix::io::fcntl_dupfd_cloexec(&*input, 0).map(File::from);
        let written = written.map_err(std::io::Error::from).and_then(|mut file| file.write_all(&bytes));
        Ok(json!({ "status": if written.is_ok() { "accepted" } else { "stdinClosed" } }))
    }

    pub(super) fn interrupt(&self, of: &ProcessRequest) -> Value {
        if let Some(process) = self.find(&of.process_id) {
            process.signals.send(Signal::INT);
        }
        json!({})
    }

    pub(super) fn terminate(&self, of: &ProcessRequest) -> Value {
        let process = self.find(&of.process_id).filter(|process| !process.is_over());
        if let Some(process) = &process {
            end(process);
        }
        json!({ "running": process.is_some() })
    }

    /// Ends all processes and refuses new ones; leaving the scope waits for their end.
    pub(super) fn end(&self) {
        let mut all = self.all();
        all.is_over = true;
        all.processes.values().for_each(|process| end(process));
    }
}

/// `TERM` ends the wait for an approval, `KILL` the process.
fn end(process: &CodexProcess) {
    process.signals.send(Signal::TERM);
    process.signals.send(Signal::KILL);
    process.input().take();
}

/// A command that Codex requests.
struct CodexExec {
    /// With the variables of this call that policy allows a caller to set. Codex means the rest for an
    /// unfenced shell.
    exec: ExecCall,
    /// Variables that Codex itself got and passes on. They are not part of the call: Codex sends its whole
    /// environment with each call, and a grant must still match the next one.
    inherited: Vec<(ByteString, ByteString)>,
}

impl CodexExec {
    fn of(start: &StartProcess, bound: &SessionShared<'_>, baseline: &[(ByteString, ByteString)]) -> Self {
        let policy = bound.policy();
        let variables = start.env.iter();
        let variables = variables
            .map(|(name, value)| (ByteString::from(name.as_str()), ByteString::from(value.as_str())));
        // A variable with a secret is evaluated as part of the call.
        let is_clean = |value: &ByteString| {
            str::from_utf8(value.as_slice()).is_ok_and(|value| bound.clean(value) == value)
        };
        let (inherited, env) = variables
            .filter(|(name, value)| is_unquestioned(name, value, policy))
            .partition(|variable| baseline.contains(variable) && is_clean(&variable.1));
        let argv = start.argv.iter().map(|word| ByteString::from(word.as_str())).collect();
        let cwd = ByteString::from(start.cwd.path());
        Self {
            exec: ExecCall { argv, cwd, env, ceiling: None, net: policy.net, stdin: StandardInput::None },
            inherited,
        }
    }
}

/// Runs the process, from the approval to its last output.
fn live(
    process: &CodexProcess,
    bound: &SessionShared<'_>,
    wanted: CodexExec,
    streams: ProcessStreams,
    out: &MessageWriter,
) {
    let ProcessStreams { inner, outer } = streams;
    let exit = std::thread::scope(|scope| {
        for (stream, from) in outer.outputs {
            scope.spawn(move || follow(process, out, stream, File::from(from)));
        }
        let mut lane: AgentSession<'_> = bound.call_handle();
        lane.set_variables(wanted.inherited);
        let interrupts = process.signals.interrupts();
        let settled = lane.call(Call::Exec(wanted.exec), inner.io(&interrupts));
        let exit = explained(&settled, bound, &inner);
        process.input().take();
        // The last writer is closed, so that the readers reach the end.
        drop((inner, outer.input));
        exit
    });
    process.tell(out, "process/exited", |progress| {
        progress.exit = Some(exit);
        json!({ "exitCode": exit, "sandboxDenied": false })
    });
    process.tell(out, "process/closed", |progress| {
        progress.closed = true;
        json!({})
    });
}

/// The exit code. A command that did not run explains why on its error stream.
fn explained(settled: &Settled, bound: &SessionShared<'_>, inner: &SandboxEnds) -> i32 {
    let (text, code) = match &settled.ended {
        CallEnd::Executed(outcome) => {
            if let Some(note) = settled.notice.as_ref().filter(|_| !settled.held.is_empty()) {
                say(inner, &format!("ringfence: {note}"));
            }
            return i32::from(outcome.exit.code());
        }
        CallEnd::Refused(refusal) => {
            (RefusalNotice::of("exec_command", refusal, Some(&bound.workspace().path)).text(), REFUSED)
        }
        CallEnd::Failed { what, hint } => {
            let hint = hint.as_ref().map(|hint| format!("\nringfence: {hint}")).unwrap_or_default();
            (format!("ringfence: {what}{hint}"), crate::args::FAILED)
        }
        CallEnd::Touched(_) => ("ringfence: something else was done".to_owned(), crate::args::FAILED),
    };
    say(inner, &text);
    i32::from(code)
}

fn say(inner: &SandboxEnds, text: &str) {
    // A thread of this process reads it.
    let _told = rustix::io::fcntl_dupfd_cloexec(inner.errors(), 0)
        .map_err(std::io::Error::from)
        .and_then(|fd| writeln!(File::from(fd), "{text}"));
}

fn follow(process: &CodexProcess, out: &MessageWriter, stream: &'static str, mut from: File) {
    let mut bytes = [0; 16 * 1024];
    // Reading a closed terminal is an error.
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        process.printed(out, stream, bytes.get(..count).unwrap_or_default());
    }
}
