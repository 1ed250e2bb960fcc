use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ringfence_types::{ExitReason, Limits, NetMode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A fence that runs commands and is tested by the battery.
pub trait FenceUnderTest: Sync {
    /// The network modes in which network attempts run.
    fn networks(&self) -> &'static [NetMode];

    fn run(&self, request: &FenceRequest<'_>) -> io::Result<FenceResponse>;
}

/// One command, as a caller of the fence would request it.
#[derive(Clone, Copy, Debug)]
pub struct FenceRequest<'a> {
    /// The only writable root; also where the command starts.
    pub workspace: &'a Path,
    /// The first word is an absolute path inside the workspace, or `/bin/sh`.
    pub argv: &'a [OsString],
    /// Stands for the environment of the calling process: the fence must filter it like the real one.
    pub caller_env: &'a [(OsString, OsString)],
    pub limits: &'a Limits,
    pub net: NetMode,
    /// A scratch directory of this run, outside the workspace.
    pub scratch: &'a Path,
}

#[derive(Debug)]
pub enum FenceResponse {
    Ran(FenceOutput),
    /// The fence refused, for this reason.
    Refused(String),
}

#[derive(Debug)]
pub struct FenceOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: ExitReason,
}

/// No fence: how controls run. It enforces nothing, not even limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFence;

impl FenceUnderTest for NoFence {
    fn networks(&self) -> &'static [NetMode] {
        &[NetMode::Full]
    }

    // WHY NOT pipes: an attempt may leave a process behind that holds them open.
    fn run(&self, request: &FenceRequest<'_>) -> io::Result<FenceResponse> {
        let (stdout, stderr) = (request.scratch.join("stdout"), request.scratch.join("stderr"));
        let mut child = command(request)?
            .stdin(Stdio::null())
            .stdout(File::create(&stdout)?)
            .stderr(File::create(&stderr)?)
            .spawn()?;
        let exit = wait(&mut child, PATIENCE)?;
        Ok(FenceResponse::Ran(FenceOutput {
            stdout: std::fs::read(stdout)?,
            stderr: std::fs::read(stderr)?,
            exit,
        }))
    }
}

/// Limit for a control that hangs; none should.
const PATIENCE: Duration = Duration::from_secs(90);

fn command(request: &FenceRequest<'_>) -> io::Result<Command> {
    let (program, args) = request.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(args).current_dir(request.workspace);
    command.envs(request.caller_env.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

fn wait(child: &mut Child, patience: Duration) -> io::Result<ExitReason> {
    if ends_within(child, patience)? {
        return Ok(exit_of(child.wait()?));
    }
    child.kill()?;
    child.wait()?;
    Ok(ExitReason::TimedOut)
}

fn ends_within(child: &Child, patience: Duration) -> io::Result<bool> {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)).ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other? > 0),
        }
    }
}

fn exit_of(status: ExitStatus) -> ExitReason {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitReason::Code { code },
        (None, signal) => ExitReason::Signal { signal: signal.unwrap_or(0) },
    }
}
