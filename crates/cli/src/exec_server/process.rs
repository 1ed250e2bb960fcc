//! Processes of Codex: each is one call of a session, on a thread of its own.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use ringfence_runtime::authz::env::is_unquestioned;
use ringfence_runtime::{AgentSession, Bound, Ended, Settled};
use ringfence_types::{Bytes, Call, Exec, NetMode, StandardInput};
use serde_json::{Value, json};

use super::Sessions;
use super::intent::Intent;
use super::rewritten;
use super::streams::{Form, Inner, Outer, connected};
use super::wire::{Fault, FaultKind, OfProcess, Outgoing, ReadOutput, Start, WriteInput, decoded, encoded};
use crate::error::REFUSED;
use crate::signals::{JobSignal, Signals};
use ringfence_types::Denial;

/// More than an agent keeps an eye on.
const MOST_PROCESSES: usize = 64;
/// What is kept for `process/read` of one process; everything is sent as it comes.
const KEPT: usize = 1024 * 1024;
/// The longest that `process/read` waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is known of a process by now.
#[derive(Debug, Default)]
struct Progress {
    /// Of the last notification.
    seq: u64,
    chunks: VecDeque<(u64, &'static str, Vec<u8>)>,
    kept: usize,
    exit: Option<i32>,
    closed: bool,
    failure: Option<String>,
}

#[derive(Debug)]
struct Process {
    id: String,
    signals: Signals,
    /// Until it is over.
    input: Mutex<Option<Arc<OwnedFd>>>,
    progress: Mutex<Progress>,
    news: Condvar,
}

impl Process {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn input(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers a notification and sends it: what has the smaller number comes first.
    fn tell(&self, out: &Outgoing, method: &str, change: impl FnOnce(&mut Progress) -> Value) {
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

    fn printed(&self, out: &Outgoing, stream: &'static str, bytes: &[u8]) {
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
    sessions: &'s Sessions<'s>,
    out: &'s Outgoing,
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    processes: BTreeMap<String, Arc<Process>>,
    /// The client is gone: what it asked for last, and what begins only now, would not be ended by anybody.
    is_over: bool,
}

impl<'s, 'scope> Processes<'s, 'scope> {
    pub(super) fn new(
        scope: &'scope Scope<'scope, 's>,
        sessions: &'s Sessions<'s>,
        out: &'s Outgoing,
    ) -> Self {
        Self { scope, sessions, out, all: Mutex::default() }
    }

    /// Answers at once: a person may have to be asked before it begins.
    pub(super) fn start(&self, mut start: Start) -> Result<Value, Fault> {
        if start.arg0.as_ref().is_some_and(|name| start.argv.first() != Some(name)) {
            return Err(Fault::new(
                FaultKind::Params,
                "a program has its own name here: `arg0` is not taken",
            ));
        }
        if let Ok(program) = std::env::current_exe() {
            start.argv = rewritten::meant(start.argv, &program);
        }
        let intent = Intent::of(&start.sandbox, &self.sessions.writing.workspace().path)?;
        let net = if start.enforce_managed_network { NetMode::None } else { intent.net };
        let bound = self.sessions.of(intent.access, net);
        let exec = exec(bound, &start);
        let form = match (start.tty, start.pipe_stdin) {
            (true, _) => Form::Terminal,
            (false, true) => Form::Input,
            (false, false) => Form::NoInput,
        };
        let (inner, outer) = connected(form).map_err(Fault::internal)?;
        let process = self.enter(start.process_id, outer.input.clone())?;
        let out = self.out;
        let id = process.id.clone();
        self.scope.spawn(move || live(&process, bound, (exec, inner, outer), out));
        Ok(json!({ "processId": id }))
    }

    fn enter(&self, id: String, input: Option<Arc<OwnedFd>>) -> Result<Arc<Process>, Fault> {
        let invalid = |why: String| Err(Fault::new(FaultKind::Invalid, why));
        let mut all = self.all();
        if all.is_over {
            return invalid("the connection is over".to_owned());
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
        let signals = Signals::new().map_err(Fault::internal)?;
        let process = Arc::new(Process {
            id: id.clone(),
            signals,
            input: Mutex::new(input),
            progress: Mutex::default(),
            news: Condvar::new(),
        });
        all.processes.insert(id, Arc::clone(&process));
        Ok(process)
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &str) -> Option<Arc<Process>> {
        self.all().processes.get(id).cloned()
    }

    pub(super) fn read(&self, read: &ReadOutput) -> Result<Value, Fault> {
        let Some(process) = self.find(&read.process_id) else {
            return Err(Fault::new(FaultKind::Invalid, format!("there is no process `{}`", read.process_id)));
        };
        let after = read.after_seq.unwrap_or(0);
        let waits = |progress: &mut Progress| progress.seq <= after && !progress.closed;
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

    pub(super) fn write(&self, write: &WriteInput) -> Result<Value, Fault> {
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

    pub(super) fn interrupt(&self, of: &OfProcess) -> Value {
        if let Some(process) = self.find(&of.process_id) {
            process.signals.send(JobSignal::Int);
        }
        json!({})
    }

    pub(super) fn terminate(&self, of: &OfProcess) -> Value {
        let process = self.find(&of.process_id).filter(|process| !process.is_over());
        if let Some(process) = &process {
            end(process);
        }
        json!({ "running": process.is_some() })
    }

    /// Ends all of them, and none begins any more; whoever leaves the scope waits until they have.
    pub(super) fn end(&self) {
        let mut all = self.all();
        all.is_over = true;
        all.processes.values().for_each(|process| end(process));
    }
}

/// The first ends the wait for a person, the second what nothing else ends.
fn end(process: &Process) {
    process.signals.send(JobSignal::Term);
    process.signals.send(JobSignal::Kill);
    process.input().take();
}

/// What Codex asks for, with the variables that policy lets a caller set. The rest is for a shell without a fence.
fn exec(bound: &Bound<'_>, start: &Start) -> Exec {
    let policy = bound.policy();
    let variables = start.env.iter();
    let variables = variables.map(|(name, value)| (Bytes::from(name.as_str()), Bytes::from(value.as_str())));
    Exec {
        argv: start.argv.iter().map(|word| Bytes::from(word.as_str())).collect(),
        cwd: Bytes::from(start.cwd.path()),
        env: variables.filter(|(name, value)| is_unquestioned(name, value, policy)).collect(),
        net: policy.net,
        stdin: StandardInput::None,
    }
}

/// From the question whether it may run to the last byte of it.
fn live(process: &Process, bound: &Bound<'_>, (exec, inner, outer): (Exec, Inner, Outer), out: &Outgoing) {
    let exit = std::thread::scope(|scope| {
        for (stream, from) in outer.outputs {
            scope.spawn(move || follow(process, out, (stream, File::from(from))));
        }
        let mut lane: AgentSession<'_> = bound.lane();
        let interrupts = process.signals.interrupts();
        let settled = lane.call(Call::Exec(exec), inner.io(&interrupts));
        let exit = explained(&settled, bound, &inner);
        process.input().take();
        // Now nobody writes any more, and whoever reads comes to the end.
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

/// The exit code. What did not run says why where a program says why.
fn explained(settled: &Settled, bound: &Bound<'_>, inner: &Inner) -> i32 {
    let (text, code) = match &settled.ended {
        Ended::Executed(outcome) => {
            if let Some(note) = settled.note.as_ref().filter(|_| !settled.held.is_empty()) {
                say(inner, &format!("ringfence: {note}"));
            }
            return i32::from(outcome.exit.code());
        }
        Ended::Refused(refusal) => {
            (Denial::of("exec_command", refusal, Some(&bound.workspace().path)).text(), REFUSED)
        }
        Ended::Failed { what, hint } => {
            let hint = hint.as_ref().map(|hint| format!("\nringfence: {hint}")).unwrap_or_default();
            (format!("ringfence: {what}{hint}"), crate::args::FAILED)
        }
        Ended::Touched(_) => ("ringfence: something else was done".to_owned(), crate::args::FAILED),
    };
    say(inner, &text);
    i32::from(code)
}

fn say(inner: &Inner, text: &str) {
    // Whoever reads it is a thread of ours.
    let _told = rustix::io::fcntl_dupfd_cloexec(inner.errors(), 0)
        .map_err(std::io::Error::from)
        .and_then(|fd| writeln!(File::from(fd), "{text}"));
}

fn follow(process: &Process, out: &Outgoing, (stream, mut from): (&'static str, File)) {
    let mut bytes = [0; 16 * 1024];
    // The end of a terminal is an error.
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        process.printed(out, stream, bytes.get(..count).unwrap_or_default());
    }
}
