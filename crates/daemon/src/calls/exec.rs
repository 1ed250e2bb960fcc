//! Runs a command in a session, with its output as a whole, buffered, or streamed.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};

use ringfence_api::{ApiError, CallInfo, CallState, ExecRequest, OutputChunk, TerminalSize, TextOrBase64};
use ringfence_runtime::identity::TokenText;
use ringfence_runtime::session_api::end_call;
use ringfence_runtime::{
    AgentSession, CallEnd, CommandIo, OutputTarget, Pty, Settled, SignalForward, StdinSource,
};
use ringfence_types::{ByteString, Call, CallOrigin, ExecCall as Command, StandardInput};
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;

use crate::calls::ledger_approver::LedgerApprover;
use crate::calls::live_call::{CallInputs, LiveCall};
use crate::calls::output_buffer::StreamTag;
use crate::calls::output_channel::OutputSender;
use crate::errors::{internal, malformed};
use crate::observe::telemetry::{Telemetry, ToolCallInfo, ToolSpan, TraceContext};
use crate::sessions::live_session::LiveSession;

/// The variable that has the session token inside.
pub(crate) const TOKEN_VARIABLE: &str = "RINGFENCE_SESSION_TOKEN";

/// Bytes per read of command output.
const PIECE: usize = 16 * 1024;

/// Where the output of a call goes while it runs.
pub(crate) enum OutputSink {
    /// Into the call's output buffer.
    Keep,
    /// To a client, in chunks. The command blocks while the client does not read.
    Send(OutputSender),
}

impl OutputSink {
    fn over(&self) {
        match self {
            Self::Keep => {}
            Self::Send(outbox) => outbox.close(),
        }
    }
}

/// A requested command with its pipes or terminal.
pub(crate) struct PreparedExec {
    pub(crate) call: Arc<LiveCall>,
    exec: ExecRequest,
    by: Option<CallOrigin>,
    /// The token for the command, instead of the session's.
    own: Option<TokenText>,
    stdin: ExecStdin,
    /// The pipe ends for the fence, and those that the daemon reads.
    outlets: OutputTargets,
    span: Option<Arc<ToolSpan>>,
    open: Option<CallGuard>,
}

/// Marks the call as failed if its owner is dropped before the call ends.
struct CallGuard(Arc<LiveCall>);

impl Drop for CallGuard {
    fn drop(&mut self) {
        if !self.0.is_over() {
            let _info = self.0.end(|info| {
                (info.state, info.failure) =
                    (CallState::Failed, Some("the call did not start, or was interrupted".to_owned()));
            });
        }
    }
}

enum ExecStdin {
    Bytes(Vec<u8>),
    Pipe(OwnedFd),
    Terminal(OwnedFd),
}

enum OutputTargets {
    Buffers,
    Pipes { stdout: PipePair, stderr: PipePair },
    Terminal { master: OwnedFd, slave: OwnedFd },
}

struct PipePair {
    read: OwnedFd,
    write: OwnedFd,
}

impl PipePair {
    fn new() -> rustix::io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { read, write })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputForm {
    Whole,
    Pieces,
}

impl PreparedExec {
    pub(crate) fn new(live: &LiveSession, mut exec: ExecRequest, form: OutputForm) -> Result<Self, ApiError> {
        if exec.argv.is_empty() {
            return Err(malformed("the command is empty"));
        }
        let broken = |error: rustix::io::Errno| internal(&std::io::Error::from(error));
        let bytes = exec.stdin.take().map(TextOrBase64::bytes).transpose()?.unwrap_or_default();
        let (stdin, outlets, inlets) = match (exec.terminal, exec.interactive, form) {
            (Some(size), _, _) => terminal(size).map_err(broken)?,
            (None, interactive, form) => {
                let outlets = match form {
                    OutputForm::Whole => OutputTargets::Buffers,
                    OutputForm::Pieces => OutputTargets::Pipes {
                        stdout: PipePair::new().map_err(broken)?,
                        stderr: PipePair::new().map_err(broken)?,
                    },
                };
                if interactive {
                    let PipePair { read, write } = PipePair::new().map_err(broken)?;
                    rustix::io::ioctl_fionbio(&write, true).map_err(broken)?;
                    (ExecStdin::Pipe(read), outlets, CallInputs { input: Some(write), terminal: None })
                } else {
                    (ExecStdin::Bytes(bytes.clone()), outlets, CallInputs::default())
                }
            }
        };
        let call = live.call(live.bound.clean_argv(&exec.argv).join(" "), inlets)?;
        let open = Some(CallGuard(Arc::clone(&call)));
        if exec.interactive || exec.terminal.is_some() {
            call.write(&bytes, crate::calls::live_call::InputClose::No)?;
        }
        Ok(Self { call, exec, by: None, own: None, stdin, outlets, span: None, open })
    }

    /// Sets the origin. A command of an agent gets the agent's own token: running a command must not restore rights
    /// that attenuation removed.
    pub(crate) fn made_by(self, by: &CallOrigin, own: Option<&TokenText>) -> Self {
        Self { by: Some(by.clone()), own: own.cloned(), ..self }
    }

    /// Sets the parent span.
    pub(crate) fn traced(mut self, telemetry: &Telemetry, parent: Option<TraceContext>) -> Self {
        let (session, number) = (self.exec.session.clone(), self.call.number);
        self.span = telemetry.tool(ToolCallInfo { tool: "exec".to_owned(), session, number }, parent);
        self
    }

    /// Runs the command to its end. The result is in the call when this returns.
    pub(crate) fn run(mut self, live: &LiveSession, sink: OutputSink) -> CallInfo {
        let (call, _open) = (Arc::clone(&self.call), self.open.take());
        let mut lane = live.bound.call_handle();
        lane.set_approver(LedgerApprover { cancelled: Arc::clone(&call.cancelled) });
        lane.set_claim(self.exec.reason.clone());
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
        // A failed policy reload is refused by the call itself.
        let _unchanged = lane.renew();
        if let Some(milliseconds) = self.exec.timeout_ms {
            lane.set_wall_limit(milliseconds);
        }
        let command = command(live, &lane, &self.exec);
        let (settled, stdout, stderr) = self.perform(&mut lane, command, &sink);
        span.iter().for_each(|span| span.ended(&settled));
        let info = call.end(|info| end_call(info, settled, stdout, stderr));
        live.touch();
        if let OutputSink::Send(sender) = sink {
            let ended = OutputChunk::Ended { seq: u64::MAX, call: Box::new(info.clone()) };
            // Fails only if the client has disconnected.
            let _gone = sender.send(ended);
        }
        info
    }

    fn perform(
        self,
        lane: &mut AgentSession<'_>,
        command: Call,
        sink: &OutputSink,
    ) -> (Settled, Option<Vec<u8>>, Option<Vec<u8>>) {
        let Self { call, stdin, outlets, .. } = self;
        let bells = call.bells();
        let interrupts = bells.interrupts();
        match outlets {
            OutputTargets::Buffers => {
                let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
                let (out, err) = (OutputTarget::Buffer(&mut stdout), OutputTarget::Buffer(&mut stderr));
                let settled = lane.call(command, io(&stdin, out, err, &interrupts));
                (settled, Some(stdout), Some(stderr))
            }
            OutputTargets::Pipes { stdout, stderr } => {
                let readers = [(StreamTag::Stdout, stdout.read), (StreamTag::Stderr, stderr.read)];
                let writers = (stdout.write, stderr.write);
                let settled = thread::scope(|scope| {
                    let reader = Builder::new().spawn_scoped(scope, || pass_on(&call, readers, sink));
                    if let Err(error) = reader {
                        return no_thread(&error);
                    }
                    let [out, err] = [&writers.0, &writers.1].map(|fd| OutputTarget::Fd(fd.as_fd()));
                    let settled = lane.call(command, io(&stdin, out, err, &interrupts));
                    // The reader ends when all write ends are closed, and no longer waits for the client.
                    sink.over();
                    drop(writers);
                    settled
                });
                (settled, None, None)
            }
            OutputTargets::Terminal { master, slave } => {
                let over = AtomicBool::new(false);
                let settled = thread::scope(|scope| {
                    let reader =
                        Builder::new().spawn_scoped(scope, || pass_on_terminal(&call, &master, sink, &over));
                    if let Err(error) = reader {
                        return no_thread(&error);
                    }
                    let [out, err] = [&slave, &slave].map(|fd| OutputTarget::Terminal(fd.as_fd()));
                    let settled = lane.call(command, io(&stdin, out, err, &interrupts));
                    sink.over();
                    over.store(true, Ordering::SeqCst);
                    settled
                });
                (settled, None, None)
            }
        }
    }
}

/// Without a reader thread the output has no reader: do not start the command.
fn no_thread(error: &std::io::Error) -> Settled {
    Settled {
        transaction: None,
        ended: CallEnd::Failed { what: format!("there is no thread for it: {error}"), hint: None },
        posture: None,
        network: None,
        notice: None,
        leaks: Vec::new(),
        held: Vec::new(),
        record_error: None,
    }
}

fn io<'a>(
    stdin: &'a ExecStdin,
    stdout: OutputTarget<'a>,
    stderr: OutputTarget<'a>,
    interrupts: &'a [SignalForward<'a>],
) -> CommandIo<'a> {
    let stdin = match stdin {
        ExecStdin::Bytes(bytes) if bytes.is_empty() => StdinSource::Empty,
        ExecStdin::Bytes(bytes) => StdinSource::Bytes(bytes),
        ExecStdin::Pipe(fd) => StdinSource::Fd(fd.as_fd()),
        ExecStdin::Terminal(fd) => StdinSource::Terminal(fd.as_fd()),
    };
    CommandIo { stdin, stdout, stderr, interrupts, timeout: None, output_bytes: 0 }
}

/// The call for the pipeline. Variables of the session are judged by policy like those of the call.
fn command(live: &LiveSession, lane: &AgentSession<'_>, exec: &ExecRequest) -> Call {
    let mut env = live.environment.clone();
    env.extend(exec.environment.clone());
    Call::Exec(Command {
        argv: exec.argv.iter().map(|argument| ByteString::from(argument.as_str())).collect(),
        cwd: ByteString::from(cwd(live, exec.cwd.as_deref())),
        env: env
            .iter()
            .map(|(name, value)| (ByteString::from(name.as_str()), ByteString::from(value.as_str())))
            .collect(),
        ceiling: exec.ceiling.clone().map(Box::new),
        net: lane.policy().net,
        stdin: StandardInput::None,
    })
}

fn cwd(live: &LiveSession, wanted: Option<&Path>) -> PathBuf {
    let root = &live.bound.workspace().path;
    wanted.map_or_else(|| root.clone(), |wanted| root.join(wanted))
}

fn terminal(size: TerminalSize) -> rustix::io::Result<(ExecStdin, OutputTargets, CallInputs)> {
    let Pty { master, slave } = Pty::open(size.rows, size.columns)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 0);
    let inlets = CallInputs { input: Some(copy(&master)?), terminal: Some(copy(&master)?) };
    let outlets = OutputTargets::Terminal { master, slave: copy(&slave)? };
    Ok((ExecStdin::Terminal(slave), outlets, inlets))
}

/// Reads both pipes until their write ends are closed.
fn pass_on(call: &LiveCall, pipes: [(StreamTag, OwnedFd); 2], sink: &OutputSink) {
    let mut open: Vec<(StreamTag, OwnedFd)> = pipes.into_iter().collect();
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
                    deliver(call, *stream, bytes.get(..length).unwrap_or_default(), sink);
                    true
                }
            }
        });
    }
}

/// Reads the terminal until the call has ended and the terminal is empty.
fn pass_on_terminal(call: &LiveCall, master: &OwnedFd, sink: &OutputSink, over: &AtomicBool) {
    const ROUND: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut bytes = vec![0_u8; PIECE];
    loop {
        let last = over.load(Ordering::SeqCst);
        let mut fds = [PollFd::new(master, PollFlags::IN)];
        let _ready = rustix::event::poll(&mut fds, Some(&ROUND));
        match rustix::io::read(master, &mut bytes) {
            Ok(length) if length > 0 => {
                deliver(call, StreamTag::Stdout, bytes.get(..length).unwrap_or_default(), sink);
            }
            _ if last => return,
            _ => {}
        }
    }
}

fn deliver(call: &LiveCall, stream: StreamTag, bytes: &[u8], sink: &OutputSink) {
    match sink {
        OutputSink::Keep => call.output.push(stream, bytes),
        OutputSink::Send(sender) => {
            let data = TextOrBase64::from(bytes.to_vec());
            let chunk = match stream {
                StreamTag::Stdout => OutputChunk::Stdout { seq: 0, data },
                StreamTag::Stderr => OutputChunk::Stderr { seq: 0, data },
            };
            if !sender.send(chunk) {
                // The client has disconnected.
                call.cancel();
            }
        }
    }
}
