use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::arena::Victim;

/// An idle process of the host with secrets in its memory, environment and open files.
#[derive(Debug)]
pub(crate) struct VictimProcess {
    child: Mutex<Child>,
    pub(super) described: Victim,
}

pub(crate) const VICTIM: &str = "victim";
pub(crate) const VICTIM_VARIABLE: &str = "VICTIM_TOKEN";

impl VictimProcess {
    /// Its command line contains a secret too; its working directory is outside the workspace.
    pub(super) fn start(program: &Path, root: &Path, token: &str) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(["__attempt", VICTIM, &super::secret("victim-argument", token)])
            .env_clear()
            .env(VICTIM_VARIABLE, super::secret("victim", token))
            .current_dir(root.join("outside"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        match described(&mut child) {
            Ok(described) => Ok(Self { child: Mutex::new(child), described }),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    /// Whether it died; waits a moment for a signal to arrive.
    pub(crate) fn died(&self) -> bool {
        let end = Instant::now() + Duration::from_millis(60);
        loop {
            let Ok(mut child) = self.child.lock() else { return false };
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return true;
            }
            drop(child);
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn described(child: &mut Child) -> io::Result<Victim> {
    let mut line = String::new();
    let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    BufReader::new(stdout).read_line(&mut line)?;
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<usize>().ok());
    let mut next = || numbers.next().ok_or(io::ErrorKind::InvalidData);
    let (address, len, fd) = (next()?, next()?, next()?);
    let small = |number: usize| i32::try_from(number).or(Err(io::ErrorKind::InvalidData));
    let pid = i32::try_from(child.id()).or(Err(io::ErrorKind::InvalidData))?;
    Ok(Victim { pid, address, len, fd: small(fd)? })
}

impl Drop for VictimProcess {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            end(child);
        }
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
