//! The key that vouches for a chain: an Ed25519 key in a file beside it, for the owner's eyes only.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use ringfence_types::{Bytes, ChainId};
use zeroize::Zeroizing;

use crate::chain::{Hex, unhex};

const READABLE_BY_OTHERS: u32 = 0o077;

/// More than a key file has.
const LONGEST: u64 = 256;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
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
    #[error("no random bytes for a new key: {0}")]
    Random(getrandom::Error),
}

impl KeyError {
    /// The one thing that would change the answer.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { .. } | Self::NotAKey { .. } | Self::Other { .. } => Some(
                "put the key back from a backup, or `ringfence ledger acknowledge --reason WHY` begins a new chain"
                    .to_owned(),
            ),
            Self::Exposed { path, .. } => Some(format!(
                "whoever could read it can sign in your name: chmod 600 '{}', then `ringfence ledger rotate-key`",
                shown(path)
            )),
            Self::NotOurs { owner, .. } => Some(format!("run as user {owner}")),
            Self::Storage { .. } => Some("check that the directory is writable and the disk is not full".to_owned()),
            Self::Random(_) => None,
        }
    }
}

/// Can sign. The secret half is wiped from memory when this goes.
pub(crate) struct Key {
    signing: SigningKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.public())
    }
}

impl Key {
    /// The public half, 64 hexadecimal digits.
    pub(crate) fn public(&self) -> String {
        Hex::encode(self.signing.verifying_key().to_bytes()).to_string()
    }

    /// 128 hexadecimal digits.
    pub(crate) fn sign(&self, statement: &[u8]) -> String {
        let bytes = self.signing.sign(statement).to_bytes();
        ringfence_types::hex(bytes)
    }

    fn random() -> Result<Self, KeyError> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(secret.as_mut_slice()).map_err(KeyError::Random)?;
        Ok(Self { signing: SigningKey::from_bytes(&secret) })
    }

    pub(crate) fn load(path: &Path) -> Result<Self, KeyError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => KeyError::Missing { path: path.to_owned() },
            _ => KeyError::Storage { path: path.to_owned(), source },
        };
        let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(nofollow).open(path).map_err(failed)?;
        check(path, &file.metadata().map_err(failed)?)?;
        let mut text = Zeroizing::new(String::with_capacity(LONGEST as usize));
        file.take(LONGEST).read_to_string(&mut text).map_err(failed)?;
        let not_a_key = || KeyError::NotAKey { path: path.to_owned() };
        let secret = Zeroizing::new(unhex::<32>(text.trim_end()).ok_or_else(not_a_key)?);
        Ok(Self { signing: SigningKey::from_bytes(&secret) })
    }

    /// The key at `path`; makes one if there is none. Of several processes that do this at once, one wins and all use its
    /// key.
    pub(crate) fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match Self::load(path) {
            Err(KeyError::Missing { .. }) => {
                Self::random()?.store(path, Existing::Stays)?;
                Self::load(path)
            }
            other => other,
        }
    }

    /// A new key, durable under `path`, whatever was there.
    pub(crate) fn create_over(path: &Path) -> Result<Self, KeyError> {
        let key = Self::random()?;
        key.store(path, Existing::GoesAway)?;
        Ok(key)
    }

    /// Appears under its name only when it is whole.
    fn store(&self, path: &Path, existing: Existing) -> Result<(), KeyError> {
        let failed = |source| KeyError::Storage { path: path.to_owned(), source };
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(KeyError::Random)?;
        let draft = path.with_added_extension(format!("{:016x}.new", u64::from_le_bytes(random)));
        let written = self.write(&draft).and_then(|()| publish(&draft, path, existing));
        // Only there if something failed, and that is the error to report.
        let _removed = fs::remove_file(&draft);
        written.map_err(failed)
    }

    fn write(&self, draft: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        let secret = Zeroizing::new(self.signing.to_bytes());
        let mut text = Zeroizing::new(Hex::encode(*secret).0.to_vec());
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()
    }
}

#[derive(Clone, Copy)]
enum Existing {
    Stays,
    GoesAway,
}

fn publish(draft: &Path, path: &Path, existing: Existing) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let flags = match existing {
        Existing::Stays => RenameFlags::NOREPLACE,
        Existing::GoesAway => RenameFlags::empty(),
    };
    match renameat_with(CWD, draft, CWD, path, flags) {
        Err(rustix::io::Errno::EXIST) => {}
        other => other?,
    }
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Puts the key that a rotation has left under its next name in its place.
pub(crate) fn promote(next: &Path, path: &Path) -> Result<(), KeyError> {
    publish(next, path, Existing::GoesAway)
        .map_err(|source| KeyError::Storage { path: path.to_owned(), source })
}

fn check(path: &Path, found: &fs::Metadata) -> Result<(), KeyError> {
    let path = path.to_owned();
    if !found.is_file() {
        return Err(KeyError::NotAKey { path });
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(KeyError::NotOurs { path, owner: found.uid() });
    }
    if found.mode() & READABLE_BY_OTHERS != 0 {
        return Err(KeyError::Exposed { path, mode: found.mode() & 0o7777 });
    }
    Ok(())
}

/// Whether `signature` is that of `public` for `statement`. Whatever is no key or no signature is not.
pub(crate) fn is_signed(public: &str, statement: &[u8], signature: &str) -> bool {
    let check = || {
        let key = VerifyingKey::from_bytes(&unhex(public)?).ok()?;
        key.verify_strict(statement, &Signature::from_bytes(&unhex(signature)?)).ok()
    };
    check().is_some()
}

/// What both keys sign when one hands over to the other.
pub(crate) fn hand_over(chain: &ChainId, old: &str, new: &str) -> Vec<u8> {
    statement(b"ringfence key v1\0", &[chain.as_str(), old, new])
}

/// Bytes to sign: a domain, and fields with their length first.
pub(crate) fn statement(domain: &[u8], fields: &[&str]) -> Vec<u8> {
    let mut bytes = domain.to_vec();
    for field in fields {
        bytes.extend(format!("{}:", field.len()).bytes());
        bytes.extend(field.bytes());
    }
    bytes
}

fn shown(path: &Path) -> String {
    Bytes::from(path).display()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_key_is_made_once_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.key");
        assert!(matches!(Key::load(&path), Err(KeyError::Missing { .. })));
        let keys: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| Key::load_or_create(&path).unwrap().public())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no draft is left behind");
        assert_ne!(Key::create_over(&path).unwrap().public(), keys[0]);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.key");
        Key::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Key::load(&path), Err(KeyError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = directory.path().join("link.key");
        symlink(&path, &link).unwrap();
        assert!(Key::load(&link).is_err());
        fs::write(&path, "not a key").unwrap();
        assert!(matches!(Key::load(&path), Err(KeyError::NotAKey { .. })));
    }

    #[test]
    fn a_signature_is_of_one_key_and_one_statement() {
        let [one, two] = [Key::random().unwrap(), Key::random().unwrap()];
        let signature = one.sign(b"yes");
        assert!(is_signed(&one.public(), b"yes", &signature));
        assert!(!is_signed(&one.public(), b"no", &signature));
        assert!(!is_signed(&two.public(), b"yes", &signature));
        assert!(!is_signed("", b"yes", &signature));
        assert!(!is_signed(&one.public(), b"yes", "00"));
    }
}
