//! Anchors: copies of checkpoints outside the ledger's trust domain. They detect a rollback of ledger and key together, which
//! leaves a chain that verifies.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_types::ByteString;
use serde::{Deserialize, Serialize};

use crate::event::Checkpoint;

/// Bytes read from the end of an anchor file.
const TAIL: u64 = 256 * 1024;

const STEP: Duration = Duration::from_millis(5);

/// Destination of checkpoints besides the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointAnchor {
    /// A file, ideally on another disk, with one JSON line per checkpoint. Read again at open.
    File(PathBuf),
    /// A program that gets the line on its standard input. It is killed after the timeout.
    Command { argv: Vec<OsString>, timeout: Duration },
}

/// Reason why a checkpoint is in the chain only.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnchorError {
    #[error("cannot write the anchor `{}`", ByteString::from(path.as_path()).display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot run the anchor command `{}`", ByteString::from(program.clone()).display())]
    Start { program: OsString, source: io::Error },
    #[error("the anchor command `{}` failed: {status}", ByteString::from(program.clone()).display())]
    Failed { program: OsString, status: std::process::ExitStatus },
    #[error("the anchor command `{}` took longer than {limit:?}", ByteString::from(program.clone()).display())]
    TooSlow { program: OsString, limit: Duration },
    #[error("cannot encode the checkpoint")]
    Encode(#[source] serde_json::Error),
}

/// One line of an anchor file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnchorLine {
    /// The record that holds the checkpoint.
    pub seq: u64,
    pub checkpoint: Checkpoint,
}

impl CheckpointAnchor {
    pub(crate) fn keep(&self, anchored: &AnchorLine) -> Result<(), AnchorError> {
        let mut line = serde_json::to_vec(anchored).map_err(AnchorError::Encode)?;
        line.push(b'\n');
        match self {
            Self::File(path) => {
                append(path, &line).map_err(|source| AnchorError::File { path: path.clone(), source })
            }
            Self::Command { argv, timeout } => run(argv, *timeout, &line),
        }
    }

    /// The newest checkpoint, of whichever chain: what came before it in the file is over.
    pub(crate) fn newest(&self) -> io::Result<Option<AnchorLine>> {
        let Self::File(path) = self else { return Ok(None) };
        let lines = tail(path)?;
        let mut lines = lines.rsplit(|byte| *byte == b'\n');
        Ok(lines.find_map(|line| serde_json::from_slice(line).ok()))
    }
}

fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let is_new = file.metadata()?.len() == 0;
    file.write_all(line)?;
    file.sync_all()?;
    if is_new { File::open(path.parent().unwrap_or(path))?.sync_all() } else { Ok(()) }
}

/// A missing file counts as empty.
fn tail(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn run(argv: &[OsString], limit: Duration, line: &[u8]) -> Result<(), AnchorError> {
    let program = argv.first().cloned().unwrap_or_default();
    let start = |source| AnchorError::Start { program: program.clone(), source };
    let mut child = Command::new(&program)
        .args(argv.iter().skip(1))
        // Sockets passed to this process by systemd are not passed on.
        .env_remove("LISTEN_FDS")
        .env_remove("LISTEN_PID")
        .env_remove("LISTEN_FDNAMES")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(start)?;
    if let Some(mut input) = child.stdin.take() {
        // A program that does not read its input may still succeed; its exit code decides. The line fits into an empty pipe, so
        // this never blocks.
        let _closed = input.write_all(line);
    }
    let status = wait(&mut child, limit).map_err(start)?;
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(AnchorError::Failed { program, status }),
        None => Err(AnchorError::TooSlow { program, limit }),
    }
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<std::process::ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(STEP);
    }
}
