//! The leader of one call: a child subreaper that starts the command, forwards signals to it, and after its end kills everything it
//! left behind, daemons included, before it reports.
//!
//! It is a fork of PID 1 with the same restrictions. Processes inside have the same user and may kill it. PID 1 then ends the whole
//! sandbox, because no process knows any more what belonged to the call.

use core::ffi::CStr;

use ringfence_launch::command::{TERMINAL, TERMINAL_ERR, TERMINAL_IN, TERMINAL_OUT, WireCommand};
use ringfence_launch::wire::{ControlMessage, leader_name};

use crate::seal::SignalScope;
use crate::sys::{self, ALL_SIGNALS, ChildExit, Errno, ForkResult, PrctlOption};
use crate::{CONTROL, approval, descendants};

/// Signal from PID 1 to a leader: kill everything of the call. Not a forwarded signal, and not a real-time one, whose queue the
/// command could fill.
pub(crate) const KILL: i32 = libc::SIGSTKFLT;

pub(crate) struct LeaderRequest<'a> {
    pub(crate) id: u64,
    pub(crate) length: usize,
    /// The command's memfd, then one descriptor for each standard stream that is not the terminal.
    pub(crate) fds: &'a [i32],
    pub(crate) own_namespace: bool,
    pub(crate) scope: Option<SignalScope>,
    /// PID 1 or what stands in for it.
    pub(crate) init: i32,
}

pub(crate) fn say(message: &ControlMessage) {
    // If the supervisor is gone, the socket closes, and that ends the sandbox.
    let _unheard = sys::send(CONTROL, &message.encode(), None);
}

pub(crate) fn lead(request: &LeaderRequest<'_>) -> ! {
    let ended = start(request).and_then(|command| Ok((command, attend(command, request.init)?)));
    let exited = match ended {
        Ok((_, ended)) => ControlMessage::Exited {
            id: request.id,
            status: ended.status as u64,
            user_us: ended.user_us,
            system_us: ended.system_us,
            max_rss_kib: ended.max_rss_kib,
            tmp_full: u64::from(request.own_namespace && sys::is_full(c"/tmp")),
        },
        Err(Errno(errno)) => {
            say(&ControlMessage::NotExecuted { id: request.id, errno: errno as u64 });
            ControlMessage::Exited {
                id: request.id,
                status: 127 << 8,
                user_us: 0,
                system_us: 0,
                max_rss_kib: 0,
                tmp_full: 0,
            }
        }
    };
    match descendants::kill_own() {
        Ok(()) => {
            say(&exited);
            sys::exit(0)
        }
        // A process keeps forking away: only the end of the sandbox reliably ends it.
        Err(_) => sys::exit(1),
    }
}

fn start(request: &LeaderRequest<'_>) -> Result<i32, Errno> {
    sys::prctl(PrctlOption::SetSubreaper, 1)?;
    sys::set_name(&leader_name(request.id))?;
    // Without a PID namespace a stand-in that is killed together with the supervisor ends nothing.
    sys::prctl(PrctlOption::SetParentDeathSignal, KILL as usize)?;
    if parent() != request.init {
        return Err(Errno(libc::ESRCH));
    }
    match sys::fork()? {
        ForkResult::Parent(pid) => {
            // The leader must not hold the command's pipes, or their readers would never see the end.
            for fd in request.fds {
                sys::close(*fd);
            }
            Ok(pid)
        }
        ForkResult::Child => {
            let Err(Errno(errno)) = become_command(request);
            say(&ControlMessage::NotExecuted { id: request.id, errno: errno as u64 });
            sys::exit(127)
        }
    }
}

/// Waits for the command. Forwards signals from PID 1 and ignores those of other senders.
fn attend(command: i32, init: i32) -> Result<ChildExit, Errno> {
    loop {
        if let Some(ended) = reap_until(command)? {
            return Ok(ended);
        }
        let received = match sys::wait_signal(ALL_SIGNALS) {
            Ok(received) => received,
            Err(Errno(libc::EINTR)) => continue,
            Err(errno) => return Err(errno),
        };
        let from_init = received.sender == parent();
        match received.signal {
            libc::SIGCHLD => {}
            KILL if from_init => descendants::kill_own_now(),
            // PID 1 has died, and the kernel sent this.
            KILL if parent() != init => return Err(Errno(libc::ESRCH)),
            signal if from_init => {
                // The command may have exited; the next iteration reaps it.
                let _gone_already = sys::kill(-command, signal);
            }
            _ => {}
        }
    }
}

fn parent() -> i32 {
    sys::parent_pid()
}

fn reap_until(command: i32) -> Result<Option<ChildExit>, Errno> {
    loop {
        match sys::reap()? {
            Some(ended) if ended.pid == command => return Ok(Some(ended)),
            Some(_) => {}
            None => return Ok(None),
        }
    }
}

/// Runs in the process of the command: everything between fork and exec.
fn become_command(request: &LeaderRequest<'_>) -> Result<core::convert::Infallible, Errno> {
    let (memory, streams) = request.fds.split_first().ok_or(Errno(libc::EPROTO))?;
    let bytes = sys::map(*memory, request.length)?;
    let command = WireCommand::parse(bytes).map_err(|_malformed| Errno(libc::EBADMSG))?;
    let (arguments, environment) = vectors(&command)?;
    sys::set_session()?;
    let (streams, program) = approval::split(&command, streams)?;
    let streams = connect(request.id, &command, streams)?;
    if let Some(scope) = request.scope {
        scope.enter()?;
    }
    sys::change_directory(command.cwd)?;
    let program = program.map(|fd| approval::SealedProgram::open(&command, fd)).transpose()?;
    approval::listen(request.id, &command)?;
    let (control, program) = install(streams, program)?;
    sys::default_signals();
    sys::block_signals(0)?;
    let failure = match (program, command.approved) {
        (Some(program), _) => program.execute(arguments, environment),
        (None, Some(approved)) if !approved.program.is_empty() => {
            sys::execute(approved.program, arguments, environment)
        }
        _ => search(&command, arguments, environment),
    };
    // The exec failed: the socket returns to the descriptor on which failures are reported.
    sys::dup3(control, CONTROL)?;
    Err(failure)
}

/// The NULL-terminated arrays that execve wants, pointing into the command's bytes.
fn vectors(command: &WireCommand<'_>) -> Result<(&'static [usize], &'static [usize]), Errno> {
    let (argc, envc) = (command.argc as usize, command.envc as usize);
    let words = sys::allocate_words(argc + envc + 2)?;
    let (arguments, environment) = words.split_at_mut(argc + 1);
    let mut strings = command.strings.clone();
    for slot in arguments.iter_mut().take(argc).chain(environment.iter_mut().take(envc)) {
        *slot = strings.string().map_err(|_malformed| Errno(libc::EBADMSG))?.as_ptr() as usize;
    }
    Ok((arguments, environment))
}

/// Returns the standard streams: passed descriptors, or the terminal.
fn connect(id: u64, command: &WireCommand<'_>, passed: &[i32]) -> Result<[i32; 3], Errno> {
    let mut passed = passed.iter();
    let mut terminal = -1;
    if command.flags & TERMINAL != 0 {
        let (master, slave) = sys::open_terminal(command.rows as u16, command.columns as u16)?;
        sys::send(CONTROL, &ControlMessage::Terminal { id }.encode(), Some(master))?;
        sys::close(master);
        sys::control_terminal(slave)?;
        terminal = slave;
    }
    let mut streams = [terminal; 3];
    for (slot, flag) in streams.iter_mut().zip([TERMINAL_IN, TERMINAL_OUT, TERMINAL_ERR]) {
        if command.flags & flag == 0 {
            *slot = *passed.next().ok_or(Errno(libc::EPROTO))?;
        }
    }
    Ok(streams)
}

/// Moves the streams to 0, 1 and 2 and closes everything else except the control socket. That socket moves away from 0 and is
/// close-on-exec, as is the approved program.
fn install(
    streams: [i32; 3],
    program: Option<approval::SealedProgram>,
) -> Result<(i32, Option<approval::SealedProgram>), Errno> {
    let mut safe = [-1; 3];
    for (slot, fd) in safe.iter_mut().zip(streams) {
        *slot = sys::duplicate_above(fd, 3)?;
    }
    let control = sys::duplicate_above(CONTROL, 3)?;
    let program = program.map(|program| program.above(control)).transpose()?;
    let last = program.as_ref().map_or(control, |program| program.fd);
    // From here on a failure cannot be reported on the socket; exit code 127 stands for it. None of these calls fails for
    // descriptors that the kernel has just returned.
    for (number, fd) in safe.into_iter().enumerate() {
        sys::dup3(fd, number as i32)?;
    }
    sys::close_range(3, control as u32 - 1)?;
    sys::close_range(control as u32 + 1, (last as u32).saturating_sub(1))?;
    sys::close_range(last as u32 + 1, u32::MAX)?;
    Ok((control, program))
}

/// execvp(3) without the shell fallback: a name without a slash is looked up in the command's own PATH.
fn search(command: &WireCommand<'_>, arguments: &'static [usize], environment: &'static [usize]) -> Errno {
    let mut strings = command.strings.clone();
    let Ok(name) = strings.string() else { return Errno(libc::EBADMSG) };
    if name.to_bytes().contains(&b'/') {
        return sys::execute(name, arguments, environment);
    }
    let mut worst = Errno(libc::ENOENT);
    for directory in path_of(command).split(|byte| *byte == b':') {
        let mut buffer = [0_u8; libc::PATH_MAX as usize];
        let Some(candidate) = join(directory, name, &mut buffer) else { continue };
        match sys::execute(candidate, arguments, environment) {
            Errno(libc::ENOENT | libc::ENOTDIR) => {}
            Errno(libc::EACCES) => worst = Errno(libc::EACCES),
            other => return other,
        }
    }
    worst
}

fn path_of<'a>(command: &WireCommand<'a>) -> &'a [u8] {
    let mut strings = command.strings.clone();
    for index in 0..command.argc + command.envc {
        let Ok(string) = strings.string() else { break };
        if index >= command.argc
            && let Some(path) = string.to_bytes().strip_prefix(b"PATH=")
        {
            return path;
        }
    }
    b"/usr/local/bin:/usr/bin:/bin"
}

/// Absolute directories only: an empty or relative entry would mean the working directory.
fn join<'a>(directory: &[u8], name: &CStr, buffer: &'a mut [u8]) -> Option<&'a CStr> {
    if directory.first() != Some(&b'/') || name.is_empty() {
        return None;
    }
    let parts = directory.iter().chain(b"/").chain(name.to_bytes());
    let length = directory.len() + 1 + name.count_bytes();
    if length >= buffer.len() {
        return None;
    }
    for (slot, byte) in buffer.iter_mut().zip(parts) {
        *slot = *byte;
    }
    CStr::from_bytes_until_nul(buffer).ok()
}
