//! Background commands. Each is a session of its own with one call, on its own thread, through the same
//! pipeline; all end with the connection.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use ringfence_runtime::{CallEnd, CommandIo, OutputTarget, Runtime, SessionSpec, Settled, StdinSource};
use ringfence_types::{Call, ExecCall};
use rmcp::model::CallToolResult;
use rustix::pipe::PipeFlags;
use serde_json::{Map, Value, json};

use super::result::settled;
use crate::error;
use crate::policy_resolution::CliPolicySource;
use crate::signals::{JobSignal, SignalPipes};
use ringfence_mcp::result::{self, MOST, malformed, structured};
use ringfence_types::RefusalNotice;

/// Limit of concurrent jobs.
const MOST_JOBS: usize = 16;
/// How long a start waits for a command that ends or is refused at once.
const AT_ONCE: Duration = Duration::from_millis(300);

/// Current state of a job.
#[derive(Debug, Default)]
struct JobProgress {
    /// The last part of its output.
    output: Vec<u8>,
    dropped: u64,
    ended: Option<Map<String, Value>>,
}

#[derive(Debug)]
struct BackgroundJob {
    id: String,
    command: String,
    signals: SignalPipes,
    progress: Mutex<JobProgress>,
    over: Condvar,
}

impl BackgroundJob {
    fn progress(&self) -> std::sync::MutexGuard<'_, JobProgress> {
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

/// A command that an agent wants in the background.
pub(super) struct JobRequest {
    pub(super) spec: SessionSpec,
    pub(super) exec: ExecCall,
    /// The command as the agent wrote it.
    pub(super) command: String,
    pub(super) description: Option<String>,
}

/// The jobs of one connection.
pub(super) struct BackgroundJobs<'a, 'scope> {
    scope: &'scope Scope<'scope, 'a>,
    runtime: &'a Runtime,
    again: CliPolicySource,
    jobs: Vec<Arc<BackgroundJob>>,
    started: u32,
}

impl<'a, 'scope> BackgroundJobs<'a, 'scope> {
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'a>,
        runtime: &'a Runtime,
        again: CliPolicySource,
    ) -> Self {
        Self { scope, runtime, again, jobs: Vec::new(), started: 0 }
    }

    pub(super) fn start(&mut self, request: JobRequest) -> CallToolResult {
        if self.jobs.len() >= MOST_JOBS {
            self.jobs.retain(|job| !job.is_over());
        }
        if self.jobs.len() >= MOST_JOBS {
            return malformed(&format!("{MOST_JOBS} jobs run already; end one first"));
        }
        let signals = match SignalPipes::new() {
            Ok(signals) => signals,
            Err(error) => return malformed(&format!("no job can be started: {error}")),
        };
        self.started += 1;
        let id = format!("job-{}", self.started);
        let job = Arc::new(BackgroundJob {
            id,
            command: request.command.clone(),
            signals,
            progress: Mutex::default(),
            over: Condvar::new(),
        });
        let (own, runtime, again) = (Arc::clone(&job), self.runtime, self.again.clone());
        let run = move || own.ended(performed(&own, runtime, again, request));
        self.scope.spawn(run);
        let waits = |progress: &mut JobProgress| progress.ended.is_none();
        // `list` reports a job that still runs after that.
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

    /// Ends all jobs; leaving the scope waits for their end.
    pub(super) fn end(&self) {
        self.jobs.iter().for_each(|job| job.signals.send(JobSignal::Kill));
    }

    fn find(&self, id: &str) -> Option<&Arc<BackgroundJob>> {
        self.jobs.iter().find(|job| job.id == id)
    }
}

fn told(jobs: &[Arc<BackgroundJob>]) -> CallToolResult {
    result::jobs(jobs.iter().map(|job| job.line()).collect())
}

fn unknown(id: &str) -> CallToolResult {
    malformed(&format!("there is no job `{id}`"))
}

/// Runs a job on its own thread, from start to end.
fn performed(
    job: &BackgroundJob,
    runtime: &Runtime,
    again: CliPolicySource,
    request: JobRequest,
) -> Map<String, Value> {
    let failed = |why: String| {
        Map::from_iter([("ended".to_owned(), json!("failed")), ("failure".to_owned(), json!(why))])
    };
    let JobRequest { spec, exec, description, .. } = request;
    let workspace = spec.workspace.clone();
    let mut session = match runtime.session(spec) {
        Ok(Ok(session)) => session,
        Ok(Err(refusal)) => return failed(refusal.message),
        Err(error) => return failed(error::chain(&error)),
    };
    session.set_policy_source(again);
    session.set_claim(description);
    // Close-on-exec: a concurrently started program must not inherit an end, or the output would never end.
    let (out, into) = match rustix::pipe::pipe_with(PipeFlags::CLOEXEC) {
        Ok(pipe) => pipe,
        Err(error) => return failed(error.to_string()),
    };
    let settled_call = std::thread::scope(|scope| {
        scope.spawn(move || follow(job, File::from(out)));
        let interrupts = job.signals.interrupts();
        let io = CommandIo {
            stdin: StdinSource::Empty,
            stdout: OutputTarget::Fd(into.as_fd()),
            stderr: OutputTarget::Fd(into.as_fd()),
            interrupts: &interrupts,
            timeout: None,
            output_bytes: 0,
        };
        let settled = session.last_call(Call::Exec(exec), io);
        // The last writer is closed, so that the reader reaches the end.
        drop(into);
        settled
    });
    outcome(&settled_call, |refusal| RefusalNotice::of("jobs", refusal, Some(&workspace)))
}

fn outcome(
    call: &Settled,
    denial: impl FnOnce(&ringfence_types::Refusal) -> RefusalNotice,
) -> Map<String, Value> {
    let mut said = settled(call, denial);
    if let CallEnd::Executed(outcome) = &call.ended {
        result::exited(&mut said, outcome);
    }
    said
}

fn follow(job: &BackgroundJob, mut from: File) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        job.printed(bytes.get(..count).unwrap_or_default());
    }
}
