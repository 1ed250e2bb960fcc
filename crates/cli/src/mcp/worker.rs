//! The thread that owns the session.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use ringfence_mcp::BuiltIn;
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::Flags;
use ringfence_runtime::{AgentSession, Interrupt, Runtime};
use rmcp::model::CallToolResult;
use rustix::pipe::PipeFlags;
use serde_json::Value;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use super::elicit::{Client, Way};
use super::jobs::Jobs;
use super::perform::Desk;
use crate::approval::{Need, authenticate};
use crate::args::Mcp;
use crate::asked::{self, Again, Governed};
use crate::commands::open_runtime;
use crate::environment::Environment;
use crate::error;

/// One call of a client.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) tool: BuiltIn,
    pub(super) arguments: Value,
    pub(super) cancel: Arc<Cancel>,
    pub(super) answer: oneshot::Sender<CallToolResult>,
    /// How the client could ask its user about it.
    pub(super) way: Way,
}

/// Ends a call: first by the signal that also ends the wait for a person, then by one that nothing survives.
#[derive(Debug)]
pub(super) struct Cancel {
    said: AtomicBool,
    term: (OwnedFd, OwnedFd),
    kill: (OwnedFd, OwnedFd),
}

impl Cancel {
    pub(super) fn new() -> io::Result<Self> {
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        Ok(Self { said: AtomicBool::new(false), term: pipe()?, kill: pipe()? })
    }

    pub(super) fn cancel(&self) {
        self.said.store(true, Ordering::SeqCst);
        for (_, end) in [&self.term, &self.kill] {
            // A call that is over reads nothing.
            let _over = rustix::io::write(end, b"x");
        }
    }

    fn is_cancelled(&self) -> bool {
        self.said.load(Ordering::SeqCst)
    }

    pub(super) fn interrupts(&self) -> [Interrupt<'_>; 2] {
        let signal = |signal: rustix::process::Signal| signal.as_raw();
        [
            Interrupt { signal: signal(rustix::process::Signal::TERM), fd: self.term.0.as_fd() },
            Interrupt { signal: signal(rustix::process::Signal::KILL), fd: self.kill.0.as_fd() },
        ]
    }
}

/// A session on a thread of its own.
#[derive(Debug)]
pub(super) struct Worker {
    calls: mpsc::UnboundedSender<Job>,
    thread: JoinHandle<ExitCode>,
}

impl Worker {
    /// Whatever is wrong with policy, ledger or workspace is said before a client is answered.
    pub(super) fn start(arguments: &Mcp, handle: &Handle) -> Result<Self, ExitCode> {
        let environment = Environment::read();
        let runtime = open_runtime(&environment, Attendance::Unattended)?;
        let flags = Flags {
            net: arguments.network.net,
            hosts: asked::hosts(&arguments.network)?,
            ..Flags::default()
        };
        let again =
            Again { place: arguments.place.clone(), flags, environment, setup: runtime.setup().clone() };
        let asker = Asker { again, handle: handle.clone() };
        let elicit = arguments.elicit;
        let (calls, jobs) = mpsc::unbounded_channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name("session".to_owned()).spawn(move || {
            match asker.again.governed(&runtime) {
                Ok(governed) => asker.serve(&runtime, &governed, (jobs, elicit, ready)),
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

    pub(super) fn split(self) -> (mpsc::UnboundedSender<Job>, JoinHandle<ExitCode>) {
        (self.calls, self.thread)
    }
}

type Calls = (mpsc::UnboundedReceiver<Job>, bool, std::sync::mpsc::Sender<Result<(), ExitCode>>);

struct Asker {
    again: Again,
    handle: Handle,
}

impl Asker {
    fn serve(&self, runtime: &Runtime, governed: &Governed, (mut jobs, elicit, ready): Calls) -> ExitCode {
        let opened = match runtime.session(governed.asked()) {
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
        session.set_flow_policy_source(again.clone());
        session.set_policy_source(again.clone());
        let way = Arc::new(Mutex::new(Way::None));
        // Nobody inside a session answers its questions, through whatever client.
        if let (true, Ok(operator)) = (elicit, authenticate(&again.environment, Need::Nothing)) {
            let client = Client::new(operator, Arc::clone(&way), self.handle.clone());
            session.set_flow_approver(client.clone());
            session.set_approver(client);
        }
        session.keep_containers();
        let _waits = ready.send(Ok(()));
        let ended = thread::scope(|scope| {
            let background = Jobs::new(scope, runtime, again.clone());
            let mut desk = Desk { session, runtime, governed, background };
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

/// The next call. While none comes, what has rested long enough goes.
fn next(jobs: &mut mpsc::UnboundedReceiver<Job>, session: &mut AgentSession<'_>) -> Option<Job> {
    while let Some(due) = session.rest() {
        // A clock of its own: the one of the protocol may be shut down while a call is made.
        let Ok(clock) = Builder::new_current_thread().enable_time().build() else { break };
        if let Ok(job) = clock.block_on(async { tokio::time::timeout(due, jobs.recv()).await }) {
            return job;
        }
    }
    jobs.blocking_recv()
}

/// One call after the other, until the client is gone.
fn work(desk: &mut Desk<'_, '_>, jobs: &mut mpsc::UnboundedReceiver<Job>, way: &Mutex<Way>) {
    while let Some(job) = next(jobs, &mut desk.session) {
        if job.cancel.is_cancelled() {
            // It waited behind another one, and nobody wants it any more: nothing is begun.
            continue;
        }
        if let Ok(mut way) = way.lock() {
            *way = job.way;
        }
        let result = desk.perform(job.tool, &job.arguments, &job.cancel.interrupts());
        // A client that has gone away in between needs no answer.
        let _gone = job.answer.send(result);
    }
}
