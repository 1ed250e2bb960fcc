//! The thread that owns the session.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use ringfence_authz::env::ApproverPresence;
use ringfence_mcp::BuiltinTool;
use ringfence_policy::StartupFlags;
use ringfence_runtime::{AgentSession, Runtime, SignalPipes};
use rmcp::model::CallToolResult;
use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use super::elicit::{ElicitChannel, McpPeer};
use super::jobs::BackgroundJobs;
use super::run_tool::ToolRunner;
use crate::approval::{OperatorRequirement, authenticate};
use crate::args::McpArgs;
use crate::commands::open_runtime;
use crate::environment::Environment;
use crate::error;
use crate::policy_resolution::{self, CliPolicySource, ResolvedPolicy, SpecChanges};

/// One call of a client.
#[derive(Debug)]
pub(super) struct WorkerJob {
    pub(super) tool: BuiltinTool,
    pub(super) arguments: Value,
    pub(super) cancel: Arc<CallCanceller>,
    pub(super) answer: oneshot::Sender<CallToolResult>,
    /// How the client can ask its user about it.
    pub(super) way: ElicitChannel,
}

/// Cancels a call: first by the signal that also ends the wait for an approval, then by `KILL`.
#[derive(Debug)]
pub(super) struct CallCanceller {
    said: AtomicBool,
    signals: SignalPipes,
}

impl CallCanceller {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { said: AtomicBool::new(false), signals: SignalPipes::new()? })
    }

    pub(super) fn cancel(&self) {
        self.said.store(true, Ordering::SeqCst);
        self.signals.send(Signal::TERM);
        self.signals.send(Signal::KILL);
    }

    fn is_cancelled(&self) -> bool {
        self.said.load(Ordering::SeqCst)
    }
}

/// A session on its own thread.
#[derive(Debug)]
pub(super) struct SessionWorker {
    calls: mpsc::UnboundedSender<WorkerJob>,
    thread: JoinHandle<ExitCode>,
}

impl SessionWorker {
    /// Reports errors of policy, ledger or workspace before it answers a client.
    pub(super) fn start(arguments: &McpArgs, handle: &Handle) -> Result<Self, ExitCode> {
        let environment = Environment::read();
        let runtime = open_runtime(&environment, ApproverPresence::Unattended)?;
        let flags = StartupFlags {
            net: arguments.network.net,
            hosts: policy_resolution::hosts(&arguments.network)?,
            ..StartupFlags::default()
        };
        let again = CliPolicySource {
            place: arguments.place.clone(),
            flags,
            environment,
            setup: runtime.setup().clone(),
            changes: SpecChanges::None,
        };
        let asker = ElicitApprover { again, handle: handle.clone() };
        let elicit = arguments.elicit;
        let (calls, jobs) = mpsc::unbounded_channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("session".to_owned()).spawn(move || {
            match asker.again.resolve(&runtime) {
                Ok(governed) => asker.serve(&runtime, &governed, WorkerInbox { jobs, elicit, ready }),
                Err(code) => {
                    let _unheard = ready.send(Err(code));
                    code
                }
            }
        });
        let thread = thread.map_err(|error| error::failed(&error, None))?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Self { calls, thread }),
            Ok(Err(code)) => Err(code),
            Err(_) => Err(error::failed_text("the session did not start", None)),
        }
    }

    pub(super) fn split(self) -> (mpsc::UnboundedSender<WorkerJob>, JoinHandle<ExitCode>) {
        (self.calls, self.thread)
    }
}

/// What the thread of the session receives, and the channel that it reports its start on.
struct WorkerInbox {
    jobs: mpsc::UnboundedReceiver<WorkerJob>,
    elicit: bool,
    ready: std::sync::mpsc::Sender<Result<(), ExitCode>>,
}

struct ElicitApprover {
    again: CliPolicySource,
    handle: Handle,
}

impl ElicitApprover {
    fn serve(&self, runtime: &Runtime, governed: &ResolvedPolicy, inbox: WorkerInbox) -> ExitCode {
        let WorkerInbox { mut jobs, elicit, ready } = inbox;
        let opened = match runtime.session(governed.session_spec()) {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(refusal)) => Err(error::refused(&refusal)),
            Err(error) => Err(error::failed(&error, error.hint().as_deref())),
        };
        let mut session: AgentSession<'_> = match opened {
            Ok(session) => session,
            Err(code) => {
                let _unheard = ready.send(Err(code));
                return code;
            }
        };
        let again = &self.again;
        session.set_policy_source(again.clone());
        let way = Arc::new(Mutex::new(ElicitChannel::None));
        // A process inside a session must not answer the session's approvals, through any client.
        if let (true, Ok(operator)) = (elicit, authenticate(&again.environment, OperatorRequirement::Nothing))
        {
            let client = McpPeer::new(operator, Arc::clone(&way), self.handle.clone());
            session.set_flow_approver(client.clone());
            session.set_approver(client);
        }
        session.keep_containers();
        let _waits = ready.send(Ok(()));
        let ended = thread::scope(|scope| {
            let background = BackgroundJobs::new(scope, runtime, again.clone());
            let mut desk = ToolRunner { session, runtime, governed, background };
            work(&mut desk, &mut jobs, &way);
            desk.background.end();
            desk.session.end()
        });
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => error::failed(&error, None),
        }
    }
}

/// The next call. While none arrives, idle containers are removed.
fn next(jobs: &mut mpsc::UnboundedReceiver<WorkerJob>, session: &mut AgentSession<'_>) -> Option<WorkerJob> {
    while let Some(due) = session.rest() {
        // Its own timer: the protocol's runtime may shut down during a call.
        let Ok(clock) = Builder::new_current_thread().enable_time().build() else { break };
        if let Ok(job) = clock.block_on(async { tokio::time::timeout(due, jobs.recv()).await }) {
            return job;
        }
    }
    jobs.blocking_recv()
}

/// Runs calls in order until the client disconnects.
fn work(
    desk: &mut ToolRunner<'_, '_>,
    jobs: &mut mpsc::UnboundedReceiver<WorkerJob>,
    way: &Mutex<ElicitChannel>,
) {
    while let Some(job) = next(jobs, &mut desk.session) {
        if job.cancel.is_cancelled() {
            // Cancelled while queued.
            continue;
        }
        if let Ok(mut way) = way.lock() {
            *way = job.way;
        }
        let result = desk.perform(job.tool, &job.arguments, &job.cancel.signals.interrupts());
        // A disconnected client needs no answer.
        let _gone = job.answer.send(result);
    }
}
