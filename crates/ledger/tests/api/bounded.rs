//! Nothing is waited for forever: what does not end is killed, and that is a failure.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// What a program says, from its start to its end.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    collected(spawned.unwrap())
}

/// The same of one that has been started.
#[track_caller]
pub(crate) fn collected(child: Child) -> Output {
    let pid = Pid::from_child(&child);
    let (sender, ended) = channel();
    let _waiting = thread::spawn(move || sender.send(child.wait_with_output()));
    match ended.recv_timeout(PATIENCE) {
        Ok(output) => output.unwrap(),
        Err(_) => {
            kill_process(pid, Signal::KILL).unwrap();
            panic!("process {pid:?} hung for {PATIENCE:?}");
        }
    }
}

#[track_caller]
pub(crate) fn ended(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    panic!("process {} hung for {PATIENCE:?}", child.id());
}

/// A pipe that is not read forever when nothing comes.
pub(crate) struct Patient<S>(pub(crate) S);

impl<S: AsFd + Read> Read for Patient<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let mut wanted = [PollFd::new(&self.0, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut wanted, Some(&patience)))? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing came for {PATIENCE:?}")));
        }
        self.0.read(buffer)
    }
}
