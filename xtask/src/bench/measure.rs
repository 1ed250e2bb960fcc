//! Taking turns and taking times.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// Something whose cost is measured.
pub(super) struct Contender {
    pub(super) name: String,
    pub(super) probe: Probe,
}

pub(super) enum Probe {
    /// From before the start of a process to after its end.
    Process(Invocation),
    /// A process that prints one duration in nanoseconds per line.
    Reports(Invocation),
    /// Two appended records, each made durable, in a file of this directory.
    TwoFsyncs(PathBuf),
}

/// A command, kept as data because it is started many times.
#[derive(Clone)]
pub(super) struct Invocation {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) directory: PathBuf,
    pub(super) environment: Vec<(String, String)>,
}

impl Invocation {
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.directory)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }
}

/// The times of one contender.
pub(super) struct Times {
    pub(super) name: String,
    sorted: Vec<Duration>,
}

impl Times {
    fn new(name: &str, mut samples: Vec<Duration>) -> Self {
        samples.sort();
        Self { name: name.into(), sorted: samples }
    }

    pub(super) fn count(&self) -> usize {
        self.sorted.len()
    }

    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(super) fn p99(&self) -> f64 {
        self.quantile(0.99)
    }

    /// Milliseconds.
    fn quantile(&self, q: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let at = (last as f64 * q).round() as usize;
        self.sorted.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    }
}

/// Every contender once per round, each round starting with the next one, so that no one always follows another.
pub(super) fn interleave(contenders: &[Contender], rounds: usize) -> Result<Vec<Times>> {
    let mut samples: Vec<Vec<Duration>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        for turn in 0..contenders.len() {
            let at = (turn + round) % contenders.len();
            let taken =
                sample(&contenders[at]).map_err(|error| format!("{}: {error}", contenders[at].name))?;
            // The first round fills caches.
            if round > 0 {
                samples[at].extend(taken);
            }
        }
    }
    Ok(contenders
        .iter()
        .zip(samples)
        .map(|(contender, samples)| Times::new(&contender.name, samples))
        .collect())
}

fn sample(contender: &Contender) -> Result<Vec<Duration>> {
    match &contender.probe {
        Probe::Process(invocation) => Ok(vec![time_process(invocation)?]),
        Probe::Reports(invocation) => read_reports(invocation),
        Probe::TwoFsyncs(directory) => Ok(vec![two_fsyncs(directory)?]),
    }
}

fn time_process(invocation: &Invocation) -> Result<Duration> {
    let mut command = invocation.command();
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{command:?}: {status}").into()) }
}

fn read_reports(invocation: &Invocation) -> Result<Vec<Duration>> {
    let mut command = invocation.command();
    let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let times: Vec<Duration> = text
        .lines()
        .map(|line| line.trim().parse().map(Duration::from_nanos))
        .collect::<std::result::Result<_, _>>()?;
    if times.is_empty() { Err(format!("{command:?} reported nothing").into()) } else { Ok(times) }
}

fn two_fsyncs(directory: &Path) -> Result<Duration> {
    let mut file = OpenOptions::new().create(true).append(true).open(directory.join("fsync"))?;
    let record = [b'x'; 4096];
    let start = Instant::now();
    for _ in 0..2 {
        file.write_all(&record)?;
        file.sync_all()?;
    }
    Ok(start.elapsed())
}

/// The times of the contender with this name.
pub(super) fn named<'a>(times: &'a [Times], name: &str) -> Result<&'a Times> {
    times.iter().find(|times| times.name == name).ok_or_else(|| format!("no contender `{name}`").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Invocation {
        Invocation {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            directory: "/".into(),
            environment: Vec::new(),
        }
    }

    fn reports(name: &str, script: &str) -> Contender {
        Contender { name: name.into(), probe: Probe::Reports(shell(script)) }
    }

    #[test]
    fn medians_are_of_what_was_reported() {
        let contenders =
            [reports("a", "printf '1000000\\n3000000\\n2000000\\n'"), reports("b", "echo 5000000")];
        let times = interleave(&contenders, 2).unwrap();
        assert_eq!((times[0].median(), times[0].count()), (2.0, 6));
        assert_eq!((times[1].median(), times[1].p99()), (5.0, 5.0));
    }

    #[test]
    fn a_contender_that_fails_is_an_error() {
        assert!(interleave(&[reports("empty", "true")], 1).is_err());
        assert!(interleave(&[reports("text", "echo fast")], 1).is_err());
        let failing = Contender { name: "f".into(), probe: Probe::Process(shell("exit 3")) };
        assert!(interleave(&[failing], 1).is_err());
    }
}
