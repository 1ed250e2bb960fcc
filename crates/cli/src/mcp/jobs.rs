//! Background commands. Each is a session of its own with one call, on its own thread, through the same
//! pipeline; all end with the connection.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use ringfence_api::{ApiError, CallInfo, CallSignal, CallState, ErrorCode};
use ringfence_mcp::OutputTail;
use ringfence_mcp::result::MOST;
use ringfence_runtime::session_api::end_call;
use ringfence_runtime::{CommandIo, OutputTarget, Runtime, SessionSpec, SignalPipes, StdinSource, signal_of};
use ringfence_types::{Call, ExecCall};
use rustix::pipe::PipeFlags;
use rustix::process::Signal;

use super::run_tool::details;
use crate::error;
use crate::policy_resolution::CliPolicySource;

/// Limit of concurrent jobs.
const MOST_JOBS: usize = 16;
/// Current state of a job.
#[derive(Debug, Default)]
struct JobProgress {
    /// The last part of its output.
    output: Vec<u8>,
    dropped: u64,
    ended: Option<CallInfo>,
}

#[derive(Debug)]
struct BackgroundJob {
    number: u64,
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

    fn ended(&self, how: CallInfo) {
        self.progress().ended = Some(how);
        self.over.notify_all();
    }

    fn is_over(&self) -> bool {
        self.progress().ended.is_some()
    }

    fn running(&self) -> CallInfo {
        CallInfo::running(self.number, self.command.clone())
    }

    fn info(&self) -> CallInfo {
        self.progress().ended.clone().unwrap_or_else(|| self.running())
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
    started: u64,
}

impl<'a, 'scope> BackgroundJobs<'a, 'scope> {
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'a>,
        runtime: &'a Runtime,
        again: CliPolicySource,
    ) -> Self {
        Self { scope, runtime, again, jobs: Vec::new(), started: 0 }
    }

    pub(super) fn start(&mut self, request: JobRequest) -> Result<CallInfo, ApiError> {
        let failed = |why: String| ApiError::new(ErrorCode::ResourceExhausted, why);
        if self.jobs.len() >= MOST_JOBS {
            self.jobs.retain(|job| !job.is_over());
        }
        if self.jobs.len() >= MOST_JOBS {
            return Err(failed(format!("{MOST_JOBS} jobs run already; end one first")));
        }
        let signals =
            SignalPipes::new().map_err(|error| failed(format!("no job can be started: {error}")))?;
        self.started += 1;
        let job = Arc::new(BackgroundJob {
            number: self.started,
            command: request.command.clone(),
            signals,
            progress: Mutex::default(),
            over: Condvar::new(),
        });
        let (own, runtime, again) = (Arc::clone(&job), self.runtime, self.again.clone());
        let run = move || {
            let ended = performed(&own, runtime, again, request).unwrap_or_else(|error| CallInfo {
                state: CallState::Failed,
                failure: Some(error.message),
                ..own.running()
            });
            own.ended(ended);
        };
        self.scope.spawn(run);
        let info = job.info();
        self.jobs.push(job);
        Ok(info)
    }

    pub(super) fn list(&self) -> Vec<CallInfo> {
        self.jobs.iter().map(|job| job.info()).collect()
    }

    /// A job, after it has ended or after this time.
    pub(super) fn show(&self, number: u64, patience: Duration) -> Result<CallInfo, ApiError> {
        let job = self.find(number)?;
        let waits = |progress: &mut JobProgress| progress.ended.is_none();
        drop(job.over.wait_timeout_while(job.progress(), patience, waits));
        Ok(job.info())
    }

    pub(super) fn tail(&self, number: u64) -> Result<OutputTail, ApiError> {
        let job = self.find(number)?;
        let (output, truncated) = {
            let progress = job.progress();
            (progress.output.clone(), progress.dropped > 0)
        };
        Ok(OutputTail { output, truncated, info: job.info() })
    }

    pub(super) fn signal(&self, number: u64, signal: CallSignal) -> Result<(), ApiError> {
        self.find(number)?.signals.send(signal_of(signal));
        Ok(())
    }

    /// Ends all jobs; leaving the scope waits for their end.
    pub(super) fn end(&self) {
        self.jobs.iter().for_each(|job| job.signals.send(Signal::KILL));
    }

    fn find(&self, number: u64) -> Result<&Arc<BackgroundJob>, ApiError> {
        let found = self.jobs.iter().find(|job| job.number == number);
        found.ok_or_else(|| ApiError::new(ErrorCode::NotFound, format!("there is no job `job-{number}`")))
    }
}

/// Runs a job on its own thread, from start to end.
fn performed(
    job: &BackgroundJob,
    runtime: &Runtime,
    again: CliPolicySource,
    request: JobRequest,
) -> Result<CallInfo, ApiError> {
    let failed = |why: String| ApiError::new(ErrorCode::FailedPrecondition, why);
    let JobRequest { spec, exec, description, .. } = request;
    let mut session = match runtime.session(spec) {
        Ok(Ok(session)) => session,
        Ok(Err(refusal)) => return Err(failed(refusal.message)),
        Err(error) => return Err(failed(error::chain(&error))),
    };
    session.set_policy_source(again);
    session.set_claim(description);
    // Close-on-exec: a concurrently started program must not inherit an end, or the output would never end.
    let (out, into) = match rustix::pipe::pipe_with(PipeFlags::CLOEXEC) {
        Ok(pipe) => pipe,
        Err(error) => return Err(failed(error.to_string())),
    };
    let settled = std::thread::scope(|scope| {
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
    let mut info = CallInfo { details: details(&settled), ..job.running() };
    end_call(&mut info, settled, None, None);
    Ok(info)
}

fn follow(job: &BackgroundJob, mut from: File) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        job.printed(bytes.get(..count).unwrap_or_default());
    }
}
