//! The signing key of a chain: an Ed25519 key in a file beside it that only its owner may read.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use ringfence_types::{ByteString, ChainId};
use zeroize::Zeroizing;

use crate::chain::{HexDigest, unhex};

const READABLE_BY_OTHERS: u32 = 0o077;

/// More than the size of a key file.
const LONGEST: u64 = 256;

/// A rotation takes milliseconds, plus the time an append waits for its store.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerKeyError {
    #[error("the key `{}` is not there", shown(path))]
    Missing { path: PathBuf },
    #[error("the key `{}` can be read by others (mode {mode:04o})", shown(path))]
    Exposed { path: PathBuf, mode: u32 },
    #[error("the key `{}` belongs to user {owner}", shown(path))]
    NotOurs { path: PathBuf, owner: u32 },
    #[error("`{}` is not a key", shown(path))]
    NotAKey { path: PathBuf },
    #[error("`{}` is not the key of this chain", shown(path))]
    Other { path: PathBuf },
    #[error("cannot use the key `{}`", shown(path))]
    Storage { path: PathBuf, source: io::Error },
    #[error("another process has been changing the key `{}` for too long", shown(path))]
    InUse { path: PathBuf },
    #[error("no random bytes for a new key: {0}")]
    Random(getrandom::Error),
}

impl LedgerKeyError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { .. } | Self::NotAKey { .. } | Self::Other { .. } => Some(
                "put the key back from a backup, or `ringfence ledger restart --reason WHY` begins a new chain"
                    .to_owned(),
            ),
            Self::Exposed { path, .. } => Some(format!(
                "a user who could read it can sign in your name: chmod 600 '{}', then `ringfence ledger rotate-key`",
                shown(path)
            )),
            Self::NotOurs { owner, .. } => Some(format!("run as user {owner}")),
            Self::Storage { .. } => Some("check that the directory is writable and the disk is not full".to_owned()),
            Self::InUse { .. } => Some("look for a stopped `ringfence ledger rotate-key` or `restart`".to_owned()),
            Self::Random(_) => None,
        }
    }
}

/// Lock of the process that changes the key. Archiving a ledger takes the same lock, so the key cannot change meanwhile.
#[derive(Debug)]
pub(crate) struct KeyLock {
    _file: File,
}

impl KeyLock {
    pub(crate) fn hold(key: &Path) -> Result<Self, LedgerKeyError> {
        let start = Instant::now();
        loop {
            if let Some(lock) = Self::try_hold(key)? {
                return Ok(lock);
            }
            if start.elapsed() >= LOCK_PATIENCE {
                return Err(LedgerKeyError::InUse { path: key.to_owned() });
            }
            thread::sleep(LOCK_PAUSE);
        }
    }

    /// `None`: another process holds it.
    pub(crate) fn try_hold(key: &Path) -> Result<Option<Self>, LedgerKeyError> {
        use rustix::fs::{FlockOperation, flock};
        let path = key.with_extension("lock");
        let failed = |source| LedgerKeyError::Storage { path: path.clone(), source };
        let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nofollow)
            .open(&path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            locked => locked.map(|()| Some(Self { _file: file })).map_err(|errno| failed(errno.into())),
        }
    }
}

/// Signing key. The secret half is wiped from memory on drop.
pub(crate) struct LedgerKey {
    signing: SigningKey,
}

impl fmt::Debug for LedgerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.public())
    }
}

impl LedgerKey {
    /// The public half, 64 hexadecimal digits.
    pub(crate) fn public(&self) -> String {
        HexDigest::encode(self.signing.verifying_key().to_bytes()).to_string()
    }

    /// 128 hexadecimal digits.
    pub(crate) fn sign(&self, statement: &[u8]) -> String {
        let bytes = self.signing.sign(statement).to_bytes();
        ringfence_types::hex(bytes)
    }

    fn random() -> Result<Self, LedgerKeyError> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(secret.as_mut_slice()).map_err(LedgerKeyError::Random)?;
        Ok(Self { signing: SigningKey::from_bytes(&secret) })
    }

    pub(crate) fn load(path: &Path) -> Result<Self, LedgerKeyError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => LedgerKeyError::Missing { path: path.to_owned() },
            _ => LedgerKeyError::Storage { path: path.to_owned(), source },
        };
        let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(nofollow).open(path).map_err(failed)?;
        check(path, &file.metadata().map_err(failed)?)?;
        let mut text = Zeroizing::new(String::with_capacity(LONGEST as usize));
        file.take(LONGEST).read_to_string(&mut text).map_err(failed)?;
        let not_a_key = || LedgerKeyError::NotAKey { path: path.to_owned() };
        let secret = Zeroizing::new(unhex::<32>(text.trim_end()).ok_or_else(not_a_key)?);
        Ok(Self { signing: SigningKey::from_bytes(&secret) })
    }

    /// Loads the key at `path` or creates one. If several processes do this at once, one wins and all use its key.
    pub(crate) fn load_or_create(path: &Path) -> Result<Self, LedgerKeyError> {
        match Self::load(path) {
            Err(LedgerKeyError::Missing { .. }) => {
                Self::random()?.store(path, ExistingKey::Stays)?;
                Self::load(path)
            }
            other => other,
        }
    }

    /// Creates a key at `path`, durably, replacing any other.
    pub(crate) fn create_over(path: &Path) -> Result<Self, LedgerKeyError> {
        let key = Self::random()?;
        key.store(path, ExistingKey::GoesAway)?;
        Ok(key)
    }

    /// Writes a draft and renames it, so that the key appears whole.
    fn store(&self, path: &Path, existing: ExistingKey) -> Result<(), LedgerKeyError> {
        let failed = |source| LedgerKeyError::Storage { path: path.to_owned(), source };
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(LedgerKeyError::Random)?;
        let draft = path.with_added_extension(format!("{:016x}.new", u64::from_le_bytes(random)));
        let written = self.write(&draft).and_then(|()| publish(&draft, path, existing));
        // Exists only after a failure, and that failure is reported.
        let _removed = fs::remove_file(&draft);
        written.map_err(failed)
    }

    fn write(&self, draft: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        let secret = Zeroizing::new(self.signing.to_bytes());
        let mut text = Zeroizing::new(HexDigest::encode(*secret).0.to_vec());
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()
    }
}

#[derive(Clone, Copy)]
enum ExistingKey {
    Stays,
    GoesAway,
}

fn publish(draft: &Path, path: &Path, existing: ExistingKey) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let flags = match existing {
        ExistingKey::Stays => RenameFlags::NOREPLACE,
        ExistingKey::GoesAway => RenameFlags::empty(),
    };
    match renameat_with(CWD, draft, CWD, path, flags) {
        Err(rustix::io::Errno::EXIST) => {}
        other => other?,
    }
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Renames the key of a rotation to its final name.
pub(crate) fn promote(next: &Path, path: &Path) -> Result<(), LedgerKeyError> {
    publish(next, path, ExistingKey::GoesAway)
        .map_err(|source| LedgerKeyError::Storage { path: path.to_owned(), source })
}

fn check(path: &Path, found: &fs::Metadata) -> Result<(), LedgerKeyError> {
    let path = path.to_owned();
    if !found.is_file() {
        return Err(LedgerKeyError::NotAKey { path });
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(LedgerKeyError::NotOurs { path, owner: found.uid() });
    }
    if found.mode() & READABLE_BY_OTHERS != 0 {
        return Err(LedgerKeyError::Exposed { path, mode: found.mode() & 0o7777 });
    }
    Ok(())
}

/// Verifies a signature. A malformed key or signature is invalid.
pub(crate) fn is_signed(public: &str, statement: &[u8], signature: &str) -> bool {
    let check = || {
        let key = VerifyingKey::from_bytes(&unhex(public)?).ok()?;
        key.verify_strict(statement, &Signature::from_bytes(&unhex(signature)?)).ok()
    };
    check().is_some()
}

/// The statement that both keys sign in a rotation.
pub(crate) fn hand_over(chain: &ChainId, old: &str, new: &str) -> Vec<u8> {
    statement(b"ringfence key v1\0", &[chain.as_str(), old, new])
}

/// Encodes a statement: a domain, and fields with length prefixes.
pub(crate) fn statement(domain: &[u8], fields: &[&str]) -> Vec<u8> {
    let mut bytes = domain.to_vec();
    for field in fields {
        bytes.extend(format!("{}:", field.len()).bytes());
        bytes.extend(field.bytes());
    }
    bytes
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_key_is_made_once_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.key");
        assert!(matches!(LedgerKey::load(&path), Err(LedgerKeyError::Missing { .. })));
        let keys: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| LedgerKey::load_or_create(&path).unwrap().public())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no draft is left behind");
        assert_ne!(LedgerKey::create_over(&path).unwrap().public(), keys[0]);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.key");
        LedgerKey::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(LedgerKey::load(&path), Err(LedgerKeyError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = directory.path().join("link.key");
        symlink(&path, &link).unwrap();
        assert!(LedgerKey::load(&link).is_err());
        fs::write(&path, "not a key").unwrap();
        assert!(matches!(LedgerKey::load(&path), Err(LedgerKeyError::NotAKey { .. })));
    }

    #[test]
    fn a_signature_is_of_one_key_and_one_statement() {
        let [one, two] = [LedgerKey::random().unwrap(), LedgerKey::random().unwrap()];
        let signature = one.sign(b"yes");
        assert!(is_signed(&one.public(), b"yes", &signature));
        assert!(!is_signed(&one.public(), b"no", &signature));
        assert!(!is_signed(&two.public(), b"yes", &signature));
        assert!(!is_signed("", b"yes", &signature));
        assert!(!is_signed(&one.public(), b"yes", "00"));
    }
}
