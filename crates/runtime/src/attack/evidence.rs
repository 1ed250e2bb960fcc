use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use ringfence_types::Exit;

/// Lines by which an attempt speaks to the battery begin with this.
const MARK: &str = "ringfence-attempt:";

/// The attempt's side: what it managed to do, line by line, so that a kill loses nothing said before.
pub(super) struct Log<'a> {
    out: &'a mut dyn Write,
}

impl<'a> Log<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out }
    }

    pub(super) fn started(&mut self) {
        self.line("started");
    }

    /// Notes one step; gives its value on.
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

    /// Says that the attempt could not even be made, so that nothing follows from its failure.
    pub(super) fn broken(&mut self, why: &str) {
        self.line(&format!("broken {why}"));
    }

    /// Prints what was read, as a thief would send it home.
    pub(super) fn loot(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
        let _ = self.out.write_all(b"\n");
        let _ = self.out.flush();
    }

    /// A step that reads, and its loot.
    pub(super) fn read<B: AsRef<[u8]>, E: Into<io::Error>>(&mut self, what: &str, result: Result<B, E>) {
        if let Some(bytes) = self.step(what, result) {
            self.loot(bytes.as_ref());
        }
    }

    // A full pipe or a closed one must not stop an attempt; what it could not say it did not achieve.
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
pub(super) struct Evidence {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) exit: Exit,
    pub(super) started: bool,
    pub(super) broken: Option<String>,
    pub(super) steps: Vec<Step>,
    /// When the call was over.
    pub(super) ended: SystemTime,
    /// The longest that this process stood still meanwhile, which is also what watches time limits.
    pub(super) stalled: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) what: String,
    /// `None`: it worked.
    pub(super) errno: Option<i32>,
}

impl Evidence {
    pub(super) fn new(stdout: Vec<u8>, stderr: Vec<u8>, exit: Exit) -> Self {
        let ended = SystemTime::now();
        let text = String::from_utf8_lossy(&stdout);
        let said = || text.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::trim_start);
        let started = said().any(|line| line == "started");
        let broken = said().find_map(|line| line.strip_prefix("broken ")).map(str::to_owned);
        let steps = said().filter_map(Step::parse).collect();
        Self { stdout, stderr, exit, started, broken, steps, ended, stalled: Duration::ZERO }
    }

    pub(super) fn shows(&self, needle: &str) -> bool {
        contains(&self.stdout, needle) || contains(&self.stderr, needle)
    }

    /// Whether any step failed this way.
    pub(super) fn met(&self, errno: rustix::io::Errno) -> bool {
        self.steps.iter().any(|step| step.errno == Some(errno.raw_os_error()))
    }

    /// One line that tells a person what was seen.
    pub(super) fn summary(&self) -> String {
        let steps: Vec<String> = self.steps.iter().take(4).map(Step::summary).collect();
        let stderr = String::from_utf8_lossy(&self.stderr);
        let last = stderr.lines().last().unwrap_or_default();
        format!("{:?}; {}; {last}", self.exit, steps.join(", "))
    }
}

impl Step {
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
        let mut log = Log::new(&mut out);
        log.started();
        log.step("open it", Ok::<(), Errno>(()));
        log.step("close it", Err::<(), Errno>(Errno::PERM));
        log.loot(b"treasure");
        log.broken("no tools");
        let evidence = Evidence::new(out, Vec::new(), Exit::Code { code: 0 });
        assert!(evidence.started && evidence.shows("treasure") && evidence.met(Errno::PERM));
        assert_eq!(evidence.steps.len(), 2);
        assert_eq!(evidence.broken.as_deref(), Some("no tools"));
        assert_eq!(evidence.steps[0], Step { what: "open it".into(), errno: None });
    }

    #[test]
    fn silence_is_not_a_start() {
        assert!(!Evidence::new(b"hello".to_vec(), Vec::new(), Exit::TimedOut).started);
    }
}
