//! Nothing in these tests waits forever: whoever waits too long fails, and says what for.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Longer than any test takes there.
pub(crate) const LIFETIME: Duration = Duration::from_secs(280);

/// Waits until `condition` holds; a generous bound, not a measurement.
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(comes_true(condition), "still not so after {PATIENCE:?}: {what}");
}

/// The same for whoever may not panic: says whether it is so.
pub(crate) fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The end of a process that ends by itself or was told to. It is killed when it does not. Where the test has failed already
/// that is not told: the first failure is the one to read.
#[track_caller]
pub(crate) fn ended(what: &str, child: &mut Child) -> ExitStatus {
    let is_over = comes_true(|| child.try_wait().unwrap().is_some());
    let seen = if is_over { String::new() } else { command_line(child.id()) };
    if !is_over {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    assert!(is_over || thread::panicking(), "still there after {PATIENCE:?}: {what} ({seen})");
    status
}

/// Kills it, in case it has not ended.
pub(crate) fn end(child: &mut Child) {
    let _over = child.kill();
    let _gone = child.wait();
}

pub(crate) fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("{pid}: {}", String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end())
}

/// What a thread has made, which ends by itself.
#[track_caller]
pub(crate) fn joined<T>(what: &str, thread: thread::JoinHandle<T>) -> T {
    eventually(what, || thread.is_finished());
    thread.join().unwrap()
}

/// The next thing that somebody sends, or nothing when nobody is left who could.
#[track_caller]
pub(crate) fn received<T>(what: &str, from: &Receiver<T>) -> Option<T> {
    match from.recv_timeout(PATIENCE) {
        Ok(thing) => Some(thing),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("still not so after {PATIENCE:?}: {what}"),
    }
}

/// A pipe or a connection that is not listened to forever when nothing comes.
#[derive(Debug)]
pub(crate) struct Patient<S>(pub(crate) S);

impl<S: AsFd + Read> Read for Patient<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        wait_for(&self.0, PollFlags::IN)?;
        self.0.read(buffer)
    }
}

impl<S: AsFd + Write> Write for Patient<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        wait_for(&self.0, PollFlags::OUT)?;
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn wait_for(stream: &impl AsFd, flags: PollFlags) -> io::Result<()> {
    let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let mut wanted = [PollFd::new(stream, flags)];
    match rustix::io::retry_on_intr(|| poll(&mut wanted, Some(&patience)))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, format!("nobody was there for {PATIENCE:?}"))),
        _ => Ok(()),
    }
}

/// Everything that comes from a stream, while something else is waited for.
pub(crate) struct Drain {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
    /// Its name in the directories of descriptors of those who have it open.
    name: String,
}

impl Drain {
    pub(crate) fn of(mut stream: impl AsFd + Read + Send + 'static) -> Self {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", raw(&stream)));
        let name = name.map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned());
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                kept.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Self { bytes, reader, name }
    }

    pub(crate) fn so_far(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    /// All of it, when nobody can write to it any more; otherwise who still could.
    pub(crate) fn all(self) -> Result<Vec<u8>, String> {
        if !comes_true(|| self.reader.is_finished()) {
            return Err(format!("what it wrote to is still held after {PATIENCE:?}: {}", self.holders()));
        }
        Ok(std::mem::take(&mut *self.bytes.lock().unwrap()))
    }

    fn holders(&self) -> String {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let others = pids.filter(|pid| *pid != std::process::id() && has_open(*pid, &self.name));
        others.map(command_line).collect::<Vec<_>>().join("; ")
    }
}

fn raw(stream: &impl AsFd) -> i32 {
    use std::os::fd::AsRawFd as _;
    stream.as_fd().as_raw_fd()
}

fn has_open(pid: u32, name: &str) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.flat_map(|file| std::fs::read_link(file.path())).any(|link| link.to_string_lossy() == name)
}

/// Who is ended at which time, and of which test it is.
struct Overdue {
    process: OwnedFd,
    what: String,
    at: Instant,
}

/// A server whose answers a test waits for in a way that has no bound of its own is killed when it outlives every test: whoever
/// waits then sees its end.
pub(crate) fn mortal(child: &Child) {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let test = thread::current().name().unwrap_or_default().to_owned();
    let what = format!("{test}: {}", command_line(child.id()));
    UNDERTAKER.lock().unwrap().send(Overdue { process, what, at: Instant::now() + LIFETIME }).unwrap();
}

static UNDERTAKER: LazyLock<Mutex<Sender<Overdue>>> = LazyLock::new(|| {
    let (sender, all) = channel::<Overdue>();
    // Not by a macro: what those print is kept for the test that was the first to come here.
    let tell = |overdue: Overdue| {
        let told = format!("killed after {LIFETIME:?}, which no test takes: {}\n", overdue.what);
        let _told = io::stderr().write_all(told.as_bytes());
    };
    // They come in the order in which they are due.
    let _for_all_tests = thread::spawn(move || all.iter().filter(buried).for_each(tell));
    Mutex::new(sender)
});

/// Waits for its end, and whether that had to be made.
fn buried(overdue: &Overdue) -> bool {
    let left = overdue.at.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: 0 };
    let mut gone = [PollFd::new(&overdue.process, PollFlags::IN)];
    let is_late = matches!(rustix::io::retry_on_intr(|| poll(&mut gone, Some(&left))), Ok(0));
    is_late && pidfd_send_signal(&overdue.process, Signal::KILL).is_ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_pipe_that_somebody_holds_is_told_with_its_holder() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo said; sleep 98.6 & echo $!"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let drain = Drain::of(child.stdout.take().unwrap());
        assert!(ended("the shell", &mut child).success());
        eventually("both lines", || drain.so_far().iter().filter(|byte| **byte == b'\n').count() == 2);
        let text = String::from_utf8(drain.so_far()).unwrap();
        let (said, pid) = text.split_once('\n').unwrap();
        assert_eq!((said, drain.reader.is_finished()), ("said", false));
        let holder = || drain.holders().contains("sleep 98.6");
        eventually("it is held", holder);
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        assert_eq!(drain.all().unwrap(), text.as_bytes());
    }

    #[test]
    fn who_is_overdue_is_killed_and_nobody_else() {
        let [mut late, mut early] = [(); 2].map(|()| Command::new("sleep").arg("98.5").spawn().unwrap());
        let overdue = |child: &Child, left: Duration| Overdue {
            process: pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap(),
            what: "of a test".to_owned(),
            at: Instant::now() + left,
        };
        assert!(buried(&overdue(&late, Duration::ZERO)));
        assert!(!ended("who is overdue", &mut late).success());
        let watched = overdue(&early, PATIENCE);
        assert!(early.try_wait().unwrap().is_none());
        end(&mut early);
        assert!(!buried(&watched));
    }
}
