//! Digests of contents, each computed once.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Mutex;

use ringfence_types::{EntryKind, hex};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::beneath::{HeldTree, name_of};
use crate::change::EntryTime;
use crate::stamp::Stamp;

/// INVARIANT: a digest is found again only for the same inode with the same time of its last change, which no program can set.
#[derive(Debug, Default)]
pub(crate) struct DigestCache {
    found: Mutex<HashMap<StampKey, String>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StampKey {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: EntryTime,
}

impl StampKey {
    fn of(stamp: &Stamp) -> Self {
        Self { device: stamp.device, inode: stamp.inode, bytes: stamp.bytes, changed: stamp.changed }
    }
}

impl DigestCache {
    /// `None`: the entry has no content, it cannot be read, or it is gone.
    pub(crate) fn of(&self, tree: &HeldTree, path: &Path, stamp: &Stamp) -> Result<Option<String>, Errno> {
        if !matches!(stamp.kind(), EntryKind::File | EntryKind::Link) {
            return Ok(None);
        }
        let key = StampKey::of(stamp);
        if let Ok(found) = self.found.lock()
            && let Some(digest) = found.get(&key)
        {
            return Ok(Some(digest.clone()));
        }
        let digest = match read(tree, path, stamp) {
            Ok(digest) => digest,
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::INVAL) => {
                return Ok(None);
            }
            Err(errno) => return Err(errno),
        };
        // What changed while it was read is read again next time.
        let after = tree.stat(path)?.map(|stat| Stamp::of(&stat));
        if after.is_some_and(|after| StampKey::of(&after) == key)
            && let Ok(mut found) = self.found.lock()
        {
            found.insert(key, digest.clone());
        }
        Ok(Some(digest))
    }
}

fn read(tree: &HeldTree, path: &Path, stamp: &Stamp) -> Result<String, Errno> {
    if stamp.kind() == EntryKind::Link {
        let target = rustix::fs::readlinkat(tree.parent(path)?, name_of(path)?, Vec::new())?;
        return Ok(digest(target.as_bytes()));
    }
    of_file(&mut File::from(tree.file(path)?))
}

pub(crate) fn of_file(file: &mut File) -> Result<String, Errno> {
    let mut hash = Sha256::new();
    let mut buffer = [0_u8; 32 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(hash.finalize())),
            Ok(count) => hash.update(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}

pub(crate) fn digest(content: &[u8]) -> String {
    hex(Sha256::digest(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_has_another_digest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let tree = HeldTree::private(dir.path()).unwrap();
        let cache = DigestCache::default();
        let of = || {
            let stamp = Stamp::of(&tree.stat(Path::new("file")).unwrap().unwrap());
            cache.of(&tree, Path::new("file"), &stamp).unwrap().unwrap()
        };
        assert_eq!(of(), digest(b"one"));
        assert_eq!(of(), digest(b"one"));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(of(), digest(b"two"));
    }
}
