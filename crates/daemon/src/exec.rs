//! Running a command in a session: with its output as a whole, kept for later, or as it comes.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use ringfence_api::{ApiError, CallInfo, CallState, Chunk, Data, Exec, TerminalSize};
use ringfence_runtime::identity::TokenText;
use ringfence_runtime::{AgentSession, Ended, Interrupt, Io, Pty, Settled, Source, Target};
use ringfence_types::{Bytes, Call, Exec as Command, MadeBy, StandardInput};
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;

use crate::call::{Inlets, LiveCall};
use crate::desk::Desk;
use crate::failure::{internal, malformed};
use crate::outbox::Outbox;
use crate::output::Stream;
use crate::session::Live;
use crate::telemetry::{Context, Telemetry, ToolCall, ToolSpan};

/// By which what runs in a session knows its token.
pub(crate) const TOKEN_VARIABLE: &str = "RINGFENCE_SESSION_TOKEN";

/// What is read at once of what a command prints.
const PIECE: usize = 16 * 1024;

/// Where the output of a call goes while it runs.
pub(crate) enum Sink {
    /// Into the call, as much as it keeps.
    Keep,
    /// To somebody who takes it piece by piece. While they do not, the command waits.
    Send(Outbox),
}

impl Sink {
    fn over(&self) {
        match self {
            Self::Keep => {}
            Self::Send(outbox) => outbox.over(),
        }
    }
}

/// A command that was asked for, with everything it is connected by.
pub(crate) struct Wired {
    pub(crate) call: Arc<LiveCall>,
    exec: Exec,
    by: Option<MadeBy>,
    /// For what it runs, instead of the session's.
    own: Option<TokenText>,
    stdin: Stdin,
    /// The ends of pipes that the fence gets, and those that are read here.
    outlets: Outlets,
    span: Option<Arc<ToolSpan>>,
    open: Option<Open>,
}

/// A call that is under way. Whatever happens to whoever has this, it does not stay so.
struct Open(Arc<LiveCall>);

impl Drop for Open {
    fn drop(&mut self) {
        if !self.0.is_over() {
            let _info = self.0.end(|info| {
                (info.state, info.failure) =
                    (CallState::Failed, Some("it was not begun, or broke off".to_owned()));
            });
        }
    }
}

enum Stdin {
    Bytes(Vec<u8>),
    Pipe(OwnedFd),
    Terminal(OwnedFd),
}

enum Outlets {
    Buffers,
    Pipes { stdout: Pipe, stderr: Pipe },
    Terminal { master: OwnedFd, slave: OwnedFd },
}

/// Both ends.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    fn new() -> rustix::io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { read, write })
    }
}

/// How the output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Pieces,
}

impl Wired {
    pub(crate) fn new(live: &Live, mut exec: Exec, form: Form) -> Result<Self, ApiError> {
        if exec.argv.is_empty() {
            return Err(malformed("the command is empty"));
        }
        let broken = |error: rustix::io::Errno| internal(&std::io::Error::from(error));
        let bytes = exec.stdin.take().map(Data::bytes).transpose()?.unwrap_or_default();
        let (stdin, outlets, inlets) = match (exec.terminal, exec.interactive, form) {
            (Some(size), _, _) => terminal(size).map_err(broken)?,
            (None, interactive, form) => {
                let outlets = match form {
                    Form::Whole => Outlets::Buffers,
                    Form::Pieces => Outlets::Pipes {
                        stdout: Pipe::new().map_err(broken)?,
                        stderr: Pipe::new().map_err(broken)?,
                    },
                };
                if interactive {
                    let Pipe { read, write } = Pipe::new().map_err(broken)?;
                    rustix::io::ioctl_fionbio(&write, true).map_err(broken)?;
                    (Stdin::Pipe(read), outlets, Inlets { input: Some(write), terminal: None })
                } else {
                    (Stdin::Bytes(bytes.clone()), outlets, Inlets::default())
                }
            }
        };
        let call = live.call(live.bound.clean_argv(&exec.argv).join(" "), inlets)?;
        let open = Some(Open(Arc::clone(&call)));
        if exec.interactive || exec.terminal.is_some() {
            call.write(&bytes, crate::call::Closing::No)?;
        }
        Ok(Self { call, exec, by: None, own: None, stdin, outlets, span: None, open })
    }

    /// By whom. What an agent runs has the token that the agent showed: one that was handed on is never made more by running
    /// something.
    pub(crate) fn made_by(self, by: &MadeBy, own: Option<&TokenText>) -> Self {
        Self { by: Some(by.clone()), own: own.cloned(), ..self }
    }

    /// Under the span of whoever asked for it.
    pub(crate) fn traced(mut self, telemetry: &Telemetry, parent: Option<Context>) -> Self {
        let (session, number) = (self.exec.session.clone(), self.call.number);
        self.span = telemetry.tool(ToolCall { tool: "exec".to_owned(), session, number }, parent);
        self
    }

    /// Runs it to its end. Whatever comes of it is in the call when this returns.
    pub(crate) fn run(mut self, live: &Live, sink: Sink) -> CallInfo {
        let (call, _open) = (Arc::clone(&self.call), self.open.take());
        let mut lane = live.bound.lane();
        lane.set_approver(Desk { cancelled: Arc::clone(&call.cancelled) });
        lane.set_stated_reason(self.exec.reason.clone());
        if let Some(by) = &self.by {
            live.is_run_by(by);
            lane.set_made_by(by.clone());
        }
        if let Some(own) = &self.own {
            lane.set_variable(TOKEN_VARIABLE, &own.reveal());
        }
        let span = self.span.clone();
        if let Some(span) = &span {
            lane.set_observer(Arc::clone(span) as _);
        }
        // A policy that cannot be had is answered by the call itself.
        let _unchanged = lane.renew();
        if let Some(milliseconds) = self.exec.timeout_ms {
            lane.set_wall_limit(milliseconds);
        }
        let command = command((live, &lane), &self.exec);
        let (settled, stdout, stderr) = self.perform(&mut lane, command, &sink);
        span.iter().for_each(|span| span.ended(&settled));
        let info = call.end(|info| told(info, settled, stdout, stderr));
        live.touch();
        if let Sink::Send(sender) = sink {
            let ended = Chunk::Ended { seq: u64::MAX, call: Box::new(info.clone()) };
            // Whoever has gone away needs no end.
            let _gone = sender.send(ended);
        }
        info
    }

    fn perform(
        self,
        lane: &mut AgentSession<'_>,
        command: Call,
        sink: &Sink,
    ) -> (Settled, Option<Data>, Option<Data>) {
        let Self { call, stdin, outlets, .. } = self;
        let bells = call.bells();
        let interrupts = bells.interrupts();
        match outlets {
            Outlets::Buffers => {
                let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
                let targets = (Target::Buffer(&mut stdout), Target::Buffer(&mut stderr));
                let settled = lane.call(command, io(&stdin, targets, &interrupts));
                (settled, Some(stdout.into()), Some(stderr.into()))
            }
            Outlets::Pipes { stdout, stderr } => {
                let readers = [(Stream::Stdout, stdout.read), (Stream::Stderr, stderr.read)];
                let writers = (stdout.write, stderr.write);
                let settled = thread::scope(|scope| {
                    let reader = Builder::new().spawn_scoped(scope, || pass_on(&call, readers, sink));
                    if let Err(error) = reader {
                        return no_thread(&error);
                    }
                    let targets = (Target::Fd(writers.0.as_fd()), Target::Fd(writers.1.as_fd()));
                    let settled = lane.call(command, io(&stdin, targets, &interrupts));
                    // The reader is done when nobody can write any more, and waits for nobody.
                    sink.over();
                    drop(writers);
                    settled
                });
                (settled, None, None)
            }
            Outlets::Terminal { master, slave } => {
                let over = AtomicBool::new(false);
                let settled = thread::scope(|scope| {
                    let reader = Builder::new()
                        .spawn_scoped(scope, || pass_on_terminal(&call, &master, (sink, &over)));
                    if let Err(error) = reader {
                        return no_thread(&error);
                    }
                    let targets = (Target::Terminal(slave.as_fd()), Target::Terminal(slave.as_fd()));
                    let settled = lane.call(command, io(&stdin, targets, &interrupts));
                    sink.over();
                    over.store(true, Ordering::SeqCst);
                    settled
                });
                (settled, None, None)
            }
        }
    }
}

/// Nobody would read what it prints, so that it is not begun.
fn no_thread(error: &std::io::Error) -> Settled {
    Settled {
        transaction: None,
        ended: Ended::Failed { what: format!("there is no thread for it: {error}"), hint: None },
        posture: None,
        network: None,
        note: None,
        leaks: Vec::new(),
        held: Vec::new(),
        unrecorded: None,
    }
}

fn io<'a>(stdin: &'a Stdin, targets: (Target<'a>, Target<'a>), interrupts: &'a [Interrupt<'a>]) -> Io<'a> {
    let stdin = match stdin {
        Stdin::Bytes(bytes) if bytes.is_empty() => Source::Empty,
        Stdin::Bytes(bytes) => Source::Bytes(bytes),
        Stdin::Pipe(fd) => Source::Fd(fd.as_fd()),
        Stdin::Terminal(fd) => Source::Terminal(fd.as_fd()),
    };
    let (stdout, stderr) = targets;
    Io { stdin, stdout, stderr, interrupts, timeout: None, output_bytes: 0 }
}

/// As the pipeline wants it. Variables of the session are asked for like those of the call: policy judges both.
fn command((live, lane): (&Live, &AgentSession<'_>), exec: &Exec) -> Call {
    let mut env = live.environment.clone();
    env.extend(exec.environment.clone());
    Call::Exec(Command {
        argv: exec.argv.iter().map(|argument| Bytes::from(argument.as_str())).collect(),
        cwd: Bytes::from(cwd(live, exec.cwd.as_deref())),
        env: env
            .iter()
            .map(|(name, value)| (Bytes::from(name.as_str()), Bytes::from(value.as_str())))
            .collect(),
        net: lane.policy().net,
        stdin: StandardInput::None,
    })
}

fn cwd(live: &Live, wanted: Option<&Path>) -> PathBuf {
    let root = &live.bound.workspace().path;
    wanted.map_or_else(|| root.clone(), |wanted| root.join(wanted))
}

fn terminal(size: TerminalSize) -> rustix::io::Result<(Stdin, Outlets, Inlets)> {
    let Pty { master, slave } = Pty::open(size.rows, size.columns)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
    let inlets = Inlets { input: Some(copy(&master)?), terminal: Some(copy(&master)?) };
    let outlets = Outlets::Terminal { master, slave: copy(&slave)? };
    Ok((Stdin::Terminal(slave), outlets, inlets))
}

/// Reads both pipes until nobody writes to them any more.
fn pass_on(call: &LiveCall, pipes: [(Stream, OwnedFd); 2], sink: &Sink) {
    let mut open: Vec<(Stream, OwnedFd)> = pipes.into_iter().collect();
    let mut bytes = vec![0_u8; PIECE];
    while !open.is_empty() {
        let mut fds: Vec<PollFd<'_>> = open.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)).collect();
        if rustix::event::poll(&mut fds, None).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        open.retain(|(stream, fd)| {
            if !ready.next().unwrap_or(false) {
                return true;
            }
            match rustix::io::read(fd, &mut bytes) {
                Ok(0) | Err(_) => false,
                Ok(length) => {
                    deliver(call, (*stream, bytes.get(..length).unwrap_or_default()), sink);
                    true
                }
            }
        });
    }
}

/// Reads our terminal until the call is over and nothing is left in it.
fn pass_on_terminal(call: &LiveCall, master: &OwnedFd, (sink, over): (&Sink, &AtomicBool)) {
    const ROUND: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut bytes = vec![0_u8; PIECE];
    loop {
        let last = over.load(Ordering::SeqCst);
        let mut fds = [PollFd::new(master, PollFlags::IN)];
        let _ready = rustix::event::poll(&mut fds, Some(&ROUND));
        match rustix::io::read(master, &mut bytes) {
            Ok(length) if length > 0 => {
                deliver(call, (Stream::Stdout, bytes.get(..length).unwrap_or_default()), sink);
            }
            _ if last => return,
            _ => {}
        }
    }
}

fn deliver(call: &LiveCall, (stream, bytes): (Stream, &[u8]), sink: &Sink) {
    match sink {
        Sink::Keep => call.output.push(stream, bytes),
        Sink::Send(sender) => {
            let data = Data::from(bytes.to_vec());
            let chunk = match stream {
                Stream::Stdout => Chunk::Stdout { seq: 0, data },
                Stream::Stderr => Chunk::Stderr { seq: 0, data },
            };
            if !sender.send(chunk) {
                // Nobody wants it any more.
                call.cancel();
            }
        }
    }
}

fn told(info: &mut CallInfo, settled: Settled, stdout: Option<Data>, stderr: Option<Data>) {
    info.transaction = settled.transaction.map(|id| id.to_string());
    info.posture = settled.posture;
    info.note = settled.note;
    info.leaks = settled.leaks.len() as u64;
    info.unrecorded = settled.unrecorded;
    match settled.ended {
        Ended::Executed(outcome) => {
            info.state = CallState::Done;
            info.exit_code = Some(outcome.exit.code());
            info.outcome = Some(outcome);
            (info.stdout, info.stderr) = (stdout, stderr);
        }
        Ended::Touched(_) => info.state = CallState::Done,
        Ended::Refused(refusal) => {
            info.state = CallState::Refused;
            info.refusal = Some(refusal);
        }
        Ended::Failed { what, hint } => {
            info.state = CallState::Failed;
            (info.failure, info.hint) = (Some(what), hint);
        }
    }
}
