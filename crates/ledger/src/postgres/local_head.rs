//! Local memory of a node: which chain is its own, and the last head that it signed. The administrator of the database cannot
//! change this file, so an exchanged or truncated chain is detected at the next start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use ringfence_types::ChainId;
use serde::{Deserialize, Serialize};

use crate::chain::ChainHead;
use crate::event::Checkpoint;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocalHead {
    pub(crate) chain: ChainId,
    pub(crate) head: ChainHead,
}

impl LocalHead {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        let head = ChainHead { seq: checkpoint.last, hash: checkpoint.head.clone() };
        Self { chain: checkpoint.chain.clone(), head }
    }

    /// `None`: nothing was kept yet.
    pub(crate) fn load(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        }
    }

    /// [`LocalHead::keep`], unless another process of this node has stored a later head of the same chain.
    pub(crate) fn keep_newer(&self, path: &Path) -> io::Result<()> {
        match Self::load(path) {
            Ok(Some(kept)) if kept.chain == self.chain && kept.head.seq > self.head.seq => Ok(()),
            _ => self.keep(path),
        }
    }

    /// Replaces the stored value atomically.
    pub(crate) fn keep(&self, path: &Path) -> io::Result<()> {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let draft = path.with_added_extension(format!("{:016x}.new", u64::from_le_bytes(random)));
        let kept = self.write(&draft).and_then(|()| fs::rename(&draft, path));
        if kept.is_err() {
            // That it could not be kept is the error to report.
            let _removed = fs::remove_file(&draft);
        }
        kept?;
        File::open(path.parent().unwrap_or(path))?.sync_all()
    }

    fn write(&self, draft: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()
    }
}
