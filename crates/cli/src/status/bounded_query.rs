//! Runs a program with a timeout, so that `status` does not wait forever.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// Far longer than an answer takes on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The program's output. After the timeout the program and all its children are killed.
pub(super) fn answer(command: &mut Command, input: &[u8]) -> io::Result<Output> {
    within(PATIENCE, command, input)
}

fn within(patience: Duration, command: &mut Command, input: &[u8]) -> io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let group = Pid::from_child(&child);
    if let Some(mut stdin) = child.stdin.take() {
        // Small enough for an empty pipe. If the program does not read, its exit code tells.
        let _unread = stdin.write_all(input);
    }
    let (sender, answered) = channel();
    let _waiting = thread::spawn(move || sender.send(child.wait_with_output()));
    answered.recv_timeout(patience).unwrap_or_else(|_silent| {
        let _gone = kill_process_group(group, Signal::KILL);
        let told = format!("it did not answer for {} seconds", patience.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, told))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(patience: Duration, script: &str) -> io::Result<Output> {
        within(patience, Command::new("sh").args(["-c", script]), b"question")
    }

    #[test]
    fn who_answers_is_heard() {
        let said = asked(PATIENCE, "cat; echo no >&2; exit 2").unwrap();
        assert_eq!(
            (said.status.code(), &said.stdout[..], &said.stderr[..]),
            (Some(2), &b"question"[..], &b"no\n"[..])
        );
    }

    #[test]
    fn who_does_not_answer_is_ended_with_all_it_started() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("pid");
        // The shell exits at once; its child keeps the output open.
        let script = format!("sleep 1000 & echo $! >{0}.new; mv {0}.new {0}", file.display());
        let begun = |milliseconds: u64| {
            let error = asked(Duration::from_millis(milliseconds), &script).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            std::fs::read_to_string(&file).ok()
        };
        // On a busy machine the timeout may come before the start.
        let pid = [300, 3_000, 30_000].into_iter().find_map(begun).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        // The process that adopts the child may take time to reap it.
        let is_over = || state().map_or(true, |stat| stat.rsplit(')').next().unwrap().starts_with(" Z"));
        let start = std::time::Instant::now();
        while !is_over() {
            assert!(start.elapsed() < Duration::from_secs(60), "it is still there");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
