//! Commands in the background. Each is a session of its own with one call, on a thread of its own, through the same pipeline as
//! everything else; all of them end with the connection.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use ringfence_runtime::{Asked, Ended, Io, Runtime, Settled, Source, Target};
use ringfence_types::{Call, Exec};
use rmcp::model::CallToolResult;
use rustix::pipe::PipeFlags;
use serde_json::{Map, Value, json};

use super::result::settled;
use crate::asked::Again;
use crate::error;
use crate::signals::{JobSignal, Signals};
use ringfence_mcp::result::{self, MOST, malformed, structured};
use ringfence_types::Denial;

/// More than a person keeps an eye on.
const MOST_JOBS: usize = 16;
/// How long a start waits to tell what became of a command that ends, or is refused, at once.
const AT_ONCE: Duration = Duration::from_millis(300);

/// What is known of a job by now.
#[derive(Debug, Default)]
struct Progress {
    /// The end of what it has printed.
    output: Vec<u8>,
    dropped: u64,
    ended: Option<Map<String, Value>>,
}

#[derive(Debug)]
struct Job {
    id: String,
    command: String,
    signals: Signals,
    progress: Mutex<Progress>,
    over: Condvar,
}

impl Job {
    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn printed(&self, bytes: &[u8]) {
        let mut progress = self.progress();
        progress.output.extend_from_slice(bytes);
        let more = progress.output.len().saturating_sub(MOST);
        progress.output.drain(..more);
        progress.dropped += more as u64;
    }

    fn ended(&self, how: Map<String, Value>) {
        self.progress().ended = Some(how);
        self.over.notify_all();
    }

    fn is_over(&self) -> bool {
        self.progress().ended.is_some()
    }

    fn line(&self) -> Value {
        let progress = self.progress();
        let mut line = progress.ended.clone().unwrap_or_default();
        let state = if progress.ended.is_some() { "over" } else { "running" };
        line.insert("state".to_owned(), json!(state));
        line.insert("id".to_owned(), json!(self.id));
        line.insert("command".to_owned(), json!(self.command));
        Value::Object(line)
    }
}

/// The jobs of one connection.
pub(super) struct Jobs<'a, 'scope> {
    scope: &'scope Scope<'scope, 'a>,
    runtime: &'a Runtime,
    again: Again,
    jobs: Vec<Arc<Job>>,
    started: u32,
}

impl<'a, 'scope> Jobs<'a, 'scope> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'a>, runtime: &'a Runtime, again: Again) -> Self {
        Self { scope, runtime, again, jobs: Vec::new(), started: 0 }
    }

    pub(super) fn start(
        &mut self,
        asked: Asked,
        (exec, command, description): (Exec, String, Option<String>),
    ) -> CallToolResult {
        if self.jobs.len() >= MOST_JOBS {
            self.jobs.retain(|job| !job.is_over());
        }
        if self.jobs.len() >= MOST_JOBS {
            return malformed(&format!("{MOST_JOBS} jobs run already; end one first"));
        }
        let signals = match Signals::new() {
            Ok(signals) => signals,
            Err(error) => return malformed(&format!("no job can be started: {error}")),
        };
        self.started += 1;
        let id = format!("job-{}", self.started);
        let job = Arc::new(Job { id, command, signals, progress: Mutex::default(), over: Condvar::new() });
        let (own, runtime, again) = (Arc::clone(&job), self.runtime, self.again.clone());
        let run = move || own.ended(performed(&own, (runtime, again), asked, (exec, description)));
        self.scope.spawn(run);
        let waits = |progress: &mut Progress| progress.ended.is_none();
        // What is still under way after that is told by `list`.
        drop(job.over.wait_timeout_while(job.progress(), AT_ONCE, waits));
        let told = told(std::slice::from_ref(&job));
        self.jobs.push(job);
        told
    }

    pub(super) fn list(&self) -> CallToolResult {
        told(&self.jobs)
    }

    pub(super) fn logs(&self, id: &str) -> CallToolResult {
        let Some(job) = self.find(id) else { return unknown(id) };
        let (output, dropped) = {
            let progress = job.progress();
            (String::from_utf8_lossy(&progress.output).into_owned(), progress.dropped)
        };
        let mut said = result::done(None);
        said.insert("jobs".to_owned(), json!([job.line()]));
        said.insert("truncated".to_owned(), json!(dropped > 0));
        said.insert("output".to_owned(), json!(output));
        structured(said, &output)
    }

    pub(super) fn signal(&self, id: &str, signal: JobSignal) -> CallToolResult {
        let Some(job) = self.find(id) else { return unknown(id) };
        job.signals.send(signal);
        told(std::slice::from_ref(job))
    }

    /// Ends all of them; whoever leaves the scope waits until they have.
    pub(super) fn end(&self) {
        self.jobs.iter().for_each(|job| job.signals.send(JobSignal::Kill));
    }

    fn find(&self, id: &str) -> Option<&Arc<Job>> {
        self.jobs.iter().find(|job| job.id == id)
    }
}

fn told(jobs: &[Arc<Job>]) -> CallToolResult {
    result::jobs(jobs.iter().map(|job| job.line()).collect())
}

fn unknown(id: &str) -> CallToolResult {
    malformed(&format!("there is no job `{id}`"))
}

/// The whole life of a job, on its own thread.
fn performed(
    job: &Job,
    (runtime, again): (&Runtime, Again),
    asked: Asked,
    (exec, description): (Exec, Option<String>),
) -> Map<String, Value> {
    let failed = |why: String| {
        Map::from_iter([("ended".to_owned(), json!("failed")), ("failure".to_owned(), json!(why))])
    };
    let workspace = asked.workspace.clone();
    let mut session = match runtime.session(asked) {
        Ok(Ok(session)) => session,
        Ok(Err(refusal)) => return failed(refusal.message),
        Err(error) => return failed(error::chain(&error)),
    };
    session.set_flow_policy_source(again.clone());
    session.set_policy_source(again);
    session.set_stated_reason(description);
    // A program that is started meanwhile must not have an end of it: the output would not come to its end.
    let (out, into) = match rustix::pipe::pipe_with(PipeFlags::CLOEXEC) {
        Ok(pipe) => pipe,
        Err(error) => return failed(error.to_string()),
    };
    let settled_call = std::thread::scope(|scope| {
        scope.spawn(move || follow(job, File::from(out)));
        let interrupts = job.signals.interrupts();
        let io = Io {
            stdin: Source::Empty,
            stdout: Target::Fd(into.as_fd()),
            stderr: Target::Fd(into.as_fd()),
            interrupts: &interrupts,
            timeout: None,
            output_bytes: 0,
        };
        let settled = session.last_call(Call::Exec(exec), io);
        // Now nobody writes any more, and whoever reads comes to the end.
        drop(into);
        settled
    });
    outcome(&settled_call, |refusal| Denial::of("jobs", refusal, Some(&workspace)))
}

fn outcome(call: &Settled, denial: impl FnOnce(&ringfence_types::Refusal) -> Denial) -> Map<String, Value> {
    let mut said = settled(call, denial);
    if let Ended::Executed(outcome) = &call.ended {
        result::exited(&mut said, outcome);
    }
    said
}

fn follow(job: &Job, mut from: File) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        job.printed(bytes.get(..count).unwrap_or_default());
    }
}
