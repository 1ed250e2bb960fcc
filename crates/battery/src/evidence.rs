use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use ringfence_types::ExitReason;

/// Prefix of an attempt's report lines.
const MARK: &str = "ringfence-attempt:";

/// The attempt's side: reports each step at once, so that a kill loses no earlier line.
pub(super) struct AttemptLog<'a> {
    out: &'a mut dyn Write,
}

impl<'a> AttemptLog<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out }
    }

    pub(super) fn started(&mut self) {
        self.line("started");
    }

    /// Reports one step and passes its value on.
    pub(super) fn step<T, E: Into<io::Error>>(&mut self, what: &str, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => {
                self.line(&format!("did {what}"));
                Some(value)
            }
            Err(error) => {
                let errno = error.into().raw_os_error().unwrap_or(0);
                self.line(&format!("errno {errno} {what}"));
                None
            }
        }
    }

    /// Reports that the attempt could not be made, so that its failure proves nothing.
    pub(super) fn broken(&mut self, why: &str) {
        self.line(&format!("broken {why}"));
    }

    /// Prints the bytes it read, as a thief would send them home.
    pub(super) fn loot(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
        let _ = self.out.write_all(b"\n");
        let _ = self.out.flush();
    }

    /// A step that reads and prints.
    pub(super) fn read<B: AsRef<[u8]>, E: Into<io::Error>>(&mut self, what: &str, result: Result<B, E>) {
        if let Some(bytes) = self.step(what, result) {
            self.loot(bytes.as_ref());
        }
    }

    // A full or closed pipe must not stop an attempt; an unreported step counts as not achieved.
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{MARK} {text}");
        let _ = self.out.flush();
    }
}

pub(super) fn start_line() -> String {
    format!("{MARK} started")
}

/// The battery's side: what one run left behind apart from the world.
#[derive(Debug)]
pub(super) struct TrialEvidence {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) exit: ExitReason,
    pub(super) started: bool,
    pub(super) broken: Option<String>,
    pub(super) steps: Vec<AttemptStep>,
    /// When the call ended.
    pub(super) ended: SystemTime,
    /// The longest stall of this process during the run; this process also enforces time limits.
    pub(super) stalled: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttemptStep {
    pub(super) what: String,
    /// `None`: the step succeeded.
    pub(super) errno: Option<i32>,
}

impl TrialEvidence {
    pub(super) fn new(stdout: Vec<u8>, stderr: Vec<u8>, exit: ExitReason) -> Self {
        let ended = SystemTime::now();
        let text = String::from_utf8_lossy(&stdout);
        let said = || text.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::trim_start);
        let started = said().any(|line| line == "started");
        let broken = said().find_map(|line| line.strip_prefix("broken ")).map(str::to_owned);
        let steps = said().filter_map(AttemptStep::parse).collect();
        Self { stdout, stderr, exit, started, broken, steps, ended, stalled: Duration::ZERO }
    }

    pub(super) fn shows(&self, needle: &str) -> bool {
        contains(&self.stdout, needle) || contains(&self.stderr, needle)
    }

    /// Whether any step failed this way.
    pub(super) fn met(&self, errno: rustix::io::Errno) -> bool {
        self.steps.iter().any(|step| step.errno == Some(errno.raw_os_error()))
    }

    /// One line for people about what was seen.
    pub(super) fn summary(&self) -> String {
        let steps: Vec<String> = self.steps.iter().take(4).map(AttemptStep::summary).collect();
        let stderr = String::from_utf8_lossy(&self.stderr);
        let last = stderr.lines().last().unwrap_or_default();
        format!("{:?}; {}; {last}", self.exit, steps.join(", "))
    }
}

impl AttemptStep {
    fn parse(line: &str) -> Option<Self> {
        if let Some(what) = line.strip_prefix("did ") {
            return Some(Self { what: what.to_owned(), errno: None });
        }
        let (errno, what) = line.strip_prefix("errno ")?.split_once(' ')?;
        Some(Self { what: what.to_owned(), errno: Some(errno.parse().ok()?) })
    }

    fn summary(&self) -> String {
        match self.errno {
            None => format!("{}: done", self.what),
            Some(errno) => format!("{}: {}", self.what, io::Error::from_raw_os_error(errno)),
        }
    }
}

fn contains(bytes: &[u8], needle: &str) -> bool {
    bytes.windows(needle.len().max(1)).any(|window| window == needle.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn what_an_attempt_says_is_read_back() {
        let mut out = Vec::new();
        let mut log = AttemptLog::new(&mut out);
        log.started();
        log.step("open it", Ok::<(), Errno>(()));
        log.step("close it", Err::<(), Errno>(Errno::PERM));
        log.loot(b"treasure");
        log.broken("no tools");
        let evidence = TrialEvidence::new(out, Vec::new(), ExitReason::Code { code: 0 });
        assert!(evidence.started && evidence.shows("treasure") && evidence.met(Errno::PERM));
        assert_eq!(evidence.steps.len(), 2);
        assert_eq!(evidence.broken.as_deref(), Some("no tools"));
        assert_eq!(evidence.steps[0], AttemptStep { what: "open it".into(), errno: None });
    }

    #[test]
    fn silence_is_not_a_start() {
        assert!(!TrialEvidence::new(b"hello".to_vec(), Vec::new(), ExitReason::TimedOut).started);
    }
}
