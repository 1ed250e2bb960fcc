//! The leader of one call: a child subreaper that starts the command, forwards signals to it, and when it has
//! ended kills whatever it left behind, daemons included, before it says so.
//!
//! It is a fork of PID 1, sealed like it. What runs inside may kill it (it has the same user); PID 1 then ends the
//! whole sandbox, because nobody is left who knows what belonged to the call.

use core::ffi::CStr;

use ringfence_launch::command::{Command, TERMINAL_ERR, TERMINAL_IN, TERMINAL_OUT};
use ringfence_launch::plan::Plan;
use ringfence_launch::wire::Message;

use crate::sys::{self, ALL_SIGNALS, Attribute, Ended, Errno, Forked};
use crate::{CONTROL, descendants, seal};

/// From PID 1 to a leader: kill everything of the call. A signal that nobody forwards, and not a real-time one: those
/// need room in a queue that the command can fill.
pub(crate) const KILL: i32 = libc::SIGSTKFLT;

pub(crate) struct Request<'a> {
    pub(crate) id: u64,
    pub(crate) length: usize,
    /// The command's memfd, then one descriptor for each standard stream that is not the terminal.
    pub(crate) fds: &'a [i32],
    pub(crate) plan: &'a Plan<'static>,
    pub(crate) own_namespace: bool,
}

pub(crate) fn say(message: &Message) {
    // A supervisor that does not listen any more closes the socket, and that ends the sandbox.
    let _unheard = sys::send(CONTROL, &message.encode(), None);
}

pub(crate) fn lead(request: &Request<'_>) -> ! {
    let ended = start(request).and_then(|command| Ok((command, attend(command)?)));
    let exited = match ended {
        Ok((_, ended)) => Message::Exited {
            id: request.id,
            status: ended.status as u64,
            user_us: ended.user_us,
            system_us: ended.system_us,
            max_rss_kib: ended.max_rss_kib,
            tmp_full: u64::from(request.own_namespace && sys::is_full(c"/tmp")),
        },
        Err(Errno(errno)) => {
            say(&Message::NotExecuted { id: request.id, errno: errno as u64 });
            Message::Exited {
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
        // Something keeps forking away from us: only the end of the sandbox is sure to end it.
        Err(_) => sys::exit(1),
    }
}

fn start(request: &Request<'_>) -> Result<i32, Errno> {
    sys::prctl(Attribute::SetSubreaper, 1)?;
    match sys::fork()? {
        Forked::Parent(pid) => {
            // The leader holds no end of the command's pipes, or their readers would wait for it.
            for fd in request.fds {
                sys::close(*fd);
            }
            Ok(pid)
        }
        Forked::Child => {
            let Err(Errno(errno)) = become_command(request);
            say(&Message::NotExecuted { id: request.id, errno: errno as u64 });
            sys::exit(127)
        }
    }
}

/// Waits for the command; forwards what PID 1 sends, ignores what anybody else does.
fn attend(command: i32) -> Result<Ended, Errno> {
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
            signal if from_init => {
                // The command may be gone already; the next turn of the loop reaps it.
                let _gone_already = sys::kill(-command, signal);
            }
            _ => {}
        }
    }
}

fn parent() -> i32 {
    sys::parent_pid()
}

fn reap_until(command: i32) -> Result<Option<Ended>, Errno> {
    loop {
        match sys::reap()? {
            Some(ended) if ended.pid == command => return Ok(Some(ended)),
            Some(_) => {}
            None => return Ok(None),
        }
    }
}

/// In the command's own process: everything between fork and exec.
fn become_command(request: &Request<'_>) -> Result<core::convert::Infallible, Errno> {
    let (memory, streams) = request.fds.split_first().ok_or(Errno(libc::EPROTO))?;
    let bytes = sys::map(*memory, request.length)?;
    let command = Command::parse(bytes).map_err(|_malformed| Errno(libc::EBADMSG))?;
    let (arguments, environment) = vectors(&command)?;
    sys::set_session()?;
    let streams = connect(request.id, &command, streams)?;
    if !request.own_namespace {
        seal::scope_signals(request.plan)?;
    }
    sys::change_directory(command.cwd)?;
    let control = install(streams)?;
    sys::default_signals();
    sys::block_signals(0)?;
    let failure = search(&command, arguments, environment);
    // Nothing was executed: the socket goes back to where failures are told.
    sys::dup3(control, CONTROL)?;
    Err(failure)
}

/// The NULL-terminated arrays that execve wants, pointing into the command's bytes.
fn vectors(command: &Command<'_>) -> Result<(&'static [usize], &'static [usize]), Errno> {
    let (argc, envc) = (command.argc as usize, command.envc as usize);
    let words = sys::allocate_words(argc + envc + 2)?;
    let (arguments, environment) = words.split_at_mut(argc + 1);
    let mut strings = command.strings.clone();
    for slot in arguments.iter_mut().take(argc).chain(environment.iter_mut().take(envc)) {
        *slot = strings.string().map_err(|_malformed| Errno(libc::EBADMSG))?.as_ptr() as usize;
    }
    Ok((arguments, environment))
}

/// The three standard streams: what was passed, or the terminal where it was asked for.
fn connect(id: u64, command: &Command<'_>, passed: &[i32]) -> Result<[i32; 3], Errno> {
    let mut passed = passed.iter();
    let mut terminal = -1;
    if command.flags != 0 {
        let (master, slave) = sys::open_terminal(command.rows as u16, command.columns as u16)?;
        sys::send(CONTROL, &Message::Terminal { id }.encode(), Some(master))?;
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

/// Puts the streams at 0, 1, 2 and closes all else but the control socket, which moves (it is 0 until now) and is
/// closed by the kernel when the command is executed.
fn install(streams: [i32; 3]) -> Result<i32, Errno> {
    let mut safe = [-1; 3];
    for (slot, fd) in safe.iter_mut().zip(streams) {
        *slot = sys::duplicate_above(fd, 3)?;
    }
    let control = sys::duplicate_above(CONTROL, 3)?;
    // From here on a failure has no socket to be told on: exit code 127 says it, and none of these can fail for
    // descriptors that the kernel has just handed out.
    for (number, fd) in safe.into_iter().enumerate() {
        sys::dup3(fd, number as i32)?;
    }
    sys::close_range(3, control as u32 - 1)?;
    sys::close_range(control as u32 + 1, u32::MAX)?;
    Ok(control)
}

/// execvp(3) without the shell fallback: a name without a slash is looked up in the command's own PATH.
fn search(command: &Command<'_>, arguments: &'static [usize], environment: &'static [usize]) -> Errno {
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

fn path_of<'a>(command: &Command<'a>) -> &'a [u8] {
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

/// Only absolute directories: an empty or relative entry would mean "wherever the command stands".
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
