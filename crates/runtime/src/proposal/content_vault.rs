//! The contents of proposals, encrypted at rest. The ledger has their digests; a copy of this directory is worthless
//! without the key. [ADR 17](../../../../docs/adr/0017-encrypted-proposals.md) describes the attacker.
//!
//! ```text
//!  proposals/key              32 random bytes, 0600, made on first use
//!  proposals/contents/tx_…/   one directory for each proposal, 0700; its age is the age of the contents
//!      0.base  0.result       of the first file of the patch, and so on, 0600
//! ```
//!
//! A file is a version byte, a random nonce of 24 bytes, and XChaCha20-Poly1305 of the content. The associated data is
//! the transaction, the side and the path, so that no content can replace another.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use ringfence_scan::FingerprintSalt;
use ringfence_types::{ByteString, PatchedFile, TransactionId, hex};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Retention of contents.
pub(crate) const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

const VERSION: u8 = 1;
const NONCE: usize = 24;
const KEY: usize = 32;

/// Plain bytes, wiped on drop.
pub(crate) type SecretContent = Zeroizing<Vec<u8>>;

#[derive(Debug)]
pub(crate) struct ContentVault {
    directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSide {
    Base,
    Result,
}

impl FileSide {
    fn word(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Result => "result",
        }
    }

    fn digest(self, file: &PatchedFile) -> Option<&str> {
        match self {
            Self::Base => file.base.as_deref(),
            Self::Result => file.result.as_deref(),
        }
    }
}

/// Why a content cannot be read or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContentVaultError {
    #[error("the contents of this proposal are gone")]
    Gone,
    #[error("the contents of this proposal are older than 30 days")]
    Expired,
    #[error("the content of `{}` was changed or belongs elsewhere", path.display())]
    Tampered { path: ByteString },
    #[error("the key of the proposals is missing or is no key: `{}`", ByteString::from(path.as_path()).display())]
    NoKey { path: PathBuf },
    #[error("`{}` is not private: it must be yours and closed to others", ByteString::from(path.as_path()).display())]
    NotPrivate { path: PathBuf },
    #[error("cannot keep or read the contents of a proposal at `{}`", ByteString::from(path.as_path()).display())]
    Io { path: PathBuf, source: io::Error },
    #[error("random bytes cannot be had")]
    Random(#[source] io::Error),
    #[error("the content cannot be encrypted")]
    Encrypt,
}

impl ContentVaultError {
    /// The next step for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Gone | Self::Expired | Self::Tampered { .. } => {
                Some("discard it, and let it be proposed again")
            }
            Self::NoKey { .. } => Some(
                "without its key nothing that was proposed can be read: discard it, and propose it again",
            ),
            Self::NotPrivate { .. } => Some("run `chmod go-rwx` on it, if no other user has changed it"),
            Self::Io { .. } => Some("free some space, or check that the state directory is writable"),
            Self::Random(_) | Self::Encrypt => None,
        }
    }
}

impl ContentVault {
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self { directory: state_dir.join("proposals") }
    }

    /// The directory of a proposal's contents.
    pub(crate) fn contents(&self, transaction: &TransactionId) -> PathBuf {
        self.directory_of(OsStr::new(transaction.as_str()))
    }

    pub(crate) fn directory_of(&self, transaction: &OsStr) -> PathBuf {
        self.directory.join("contents").join(transaction)
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.directory.join("journals")
    }

    /// Stores both sides of every file durably. After an error nothing is stored.
    pub(crate) fn keep(
        &self,
        transaction: &TransactionId,
        files: &[(PatchedFile, FileVersions)],
    ) -> Result<(), ContentVaultError> {
        let directory = self.contents(transaction);
        let kept = self.private_directory(&directory).and_then(|()| {
            let cipher = XChaCha20Poly1305::new((&*self.key(MissingKeyPolicy::Make)?).into());
            for (number, (file, sides)) in files.iter().enumerate() {
                for (side, content) in [(FileSide::Base, &sides.base), (FileSide::Result, &sides.result)] {
                    let Some(content) = content else { continue };
                    let sealed = seal(&cipher, &associated(transaction, side, &file.path), content)?;
                    write_private(&place(&directory, number, side), &sealed)?;
                }
            }
            sync(&directory).and_then(|()| sync(directory.parent().unwrap_or(&directory)))
        });
        if kept.is_err() {
            // Incomplete contents are useless; a leftover is purged by age.
            let _left = fs::remove_dir_all(&directory);
        }
        kept
    }

    /// One side of file `number` of the patch, if it exists, verified against the digest in the ledger.
    pub(crate) fn open(
        &self,
        transaction: &TransactionId,
        number: usize,
        file: &PatchedFile,
        side: FileSide,
    ) -> Result<Option<SecretContent>, ContentVaultError> {
        let Some(digest) = side.digest(file) else { return Ok(None) };
        let directory = self.contents(transaction);
        check_age(&directory)?;
        let path = place(&directory, number, side);
        let sealed = match fs::read(&path) {
            Ok(sealed) => sealed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ContentVaultError::Gone),
            Err(source) => return Err(ContentVaultError::Io { path, source }),
        };
        let cipher = XChaCha20Poly1305::new((&*self.key(MissingKeyPolicy::Refuse)?).into());
        let tampered = || ContentVaultError::Tampered { path: file.path.clone() };
        let content =
            unseal(&cipher, &associated(transaction, side, &file.path), sealed).ok_or_else(tampered)?;
        if sha256(&content) == digest { Ok(Some(content)) } else { Err(tampered()) }
    }

    /// Deletes the contents of a proposal.
    pub(crate) fn forget(&self, transaction: &TransactionId) -> Result<(), ContentVaultError> {
        let path = self.contents(transaction);
        match fs::remove_dir_all(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(ContentVaultError::Io { path, source }),
        }
    }

    /// Deletes expired contents, except those that another process works on.
    pub(crate) fn purge(&self) {
        let Ok(entries) = fs::read_dir(self.directory.join("contents")) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let Err(ContentVaultError::Expired) = check_age(&path) else { continue };
            if File::open(&path).is_ok_and(|lock| lock.try_lock().is_ok()) {
                // A later start retries.
                let _left = fs::remove_dir_all(&path);
            }
        }
    }

    /// The salt for fingerprints of findings. Without the key an attacker cannot test guessed values.
    pub(crate) fn salt(&self, missing: MissingKeyPolicy) -> Result<FingerprintSalt, ContentVaultError> {
        let key = self.key(missing)?;
        let salt =
            Sha256::new().chain_update(b"ringfence finding v1\0").chain_update(key.as_slice()).finalize();
        Ok(FingerprintSalt::new(salt.to_vec()))
    }

    pub(crate) fn private_directory(&self, path: &Path) -> Result<(), ContentVaultError> {
        let failed = |source| ContentVaultError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        check_private(&self.directory)?;
        check_private(path)
    }

    fn key(&self, missing: MissingKeyPolicy) -> Result<Zeroizing<[u8; KEY]>, ContentVaultError> {
        let path = self.directory.join("key");
        match read_key(&path) {
            // Another process may have made the key since the check: then that key is read.
            Err(ContentVaultError::NoKey { .. }) if missing == MissingKeyPolicy::Make => {
                if !path.exists() {
                    self.make_key(&path)?;
                }
                read_key(&path)
            }
            read => read,
        }
    }

    /// Of two concurrent first uses, one creates the name and both read its key.
    fn make_key(&self, path: &Path) -> Result<(), ContentVaultError> {
        self.private_directory(&self.directory)?;
        let failed = |source| ContentVaultError::Io { path: path.to_owned(), source };
        let mut key = Zeroizing::new([0_u8; KEY]);
        random(key.as_mut_slice())?;
        let mut suffix = [0_u8; 8];
        random(&mut suffix)?;
        let fresh = self.directory.join(format!("key.{}.new", hex(suffix)));
        write_private(&fresh, key.as_slice())?;
        let linked = fs::hard_link(&fresh, path);
        fs::remove_file(&fresh).map_err(failed)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => sync(&self.directory),
        }
    }
}

/// The content of a file before and after; `None`: no file.
#[derive(Debug, Default)]
pub(crate) struct FileVersions {
    pub(crate) base: Option<SecretContent>,
    pub(crate) result: Option<SecretContent>,
}

/// What to do without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingKeyPolicy {
    Make,
    Refuse,
}

fn read_key(path: &Path) -> Result<Zeroizing<[u8; KEY]>, ContentVaultError> {
    let no_key = || ContentVaultError::NoKey { path: path.to_owned() };
    let mut file =
        match File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_key()),
            Err(source) => return Err(ContentVaultError::Io { path: path.to_owned(), source }),
        };
    check_private(path)?;
    let mut key = Zeroizing::new([0_u8; KEY]);
    let whole = file.read_exact(key.as_mut_slice()).is_ok() && matches!(file.read(&mut [0]), Ok(0));
    if whole { Ok(key) } else { Err(no_key()) }
}

fn seal(cipher: &XChaCha20Poly1305, associated: &[u8], content: &[u8]) -> Result<Vec<u8>, ContentVaultError> {
    let mut nonce = [0_u8; NONCE];
    random(&mut nonce)?;
    // Reserves space for the tag, so that growing leaves no copy of the plain bytes.
    let mut buffer = Zeroizing::new(Vec::with_capacity(content.len() + 16));
    buffer.extend_from_slice(content);
    cipher
        .encrypt_in_place(&XNonce::from(nonce), associated, &mut *buffer)
        .map_err(|_opaque| ContentVaultError::Encrypt)?;
    Ok([&[VERSION], nonce.as_slice(), &buffer].concat())
}

fn unseal(cipher: &XChaCha20Poly1305, associated: &[u8], sealed: Vec<u8>) -> Option<SecretContent> {
    let (version, rest) = sealed.split_first()?;
    let (nonce, ciphertext) = rest.split_first_chunk::<NONCE>()?;
    if *version != VERSION {
        return None;
    }
    let mut content = Zeroizing::new(ciphertext.to_vec());
    cipher.decrypt_in_place(&XNonce::from(*nonce), associated, &mut *content).ok()?;
    Some(content)
}

fn associated(transaction: &TransactionId, side: FileSide, path: &ByteString) -> Vec<u8> {
    [
        b"ringfence proposal v1\0",
        transaction.as_str().as_bytes(),
        b"\0",
        side.word().as_bytes(),
        b"\0",
        path.as_slice(),
    ]
    .concat()
}

fn place(directory: &Path, number: usize, side: FileSide) -> PathBuf {
    directory.join(format!("{number}.{}", side.word()))
}

fn check_age(directory: &Path) -> Result<(), ContentVaultError> {
    let found = match fs::symlink_metadata(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ContentVaultError::Gone),
        Err(source) => return Err(ContentVaultError::Io { path: directory.to_owned(), source }),
    };
    let age = found.modified().ok().and_then(|made| SystemTime::now().duration_since(made).ok());
    // Setting the clock back makes it younger, never older.
    if age.is_some_and(|age| age > KEPT) { Err(ContentVaultError::Expired) } else { Ok(()) }
}

fn check_private(path: &Path) -> Result<(), ContentVaultError> {
    let found = fs::symlink_metadata(path)
        .map_err(|source| ContentVaultError::Io { path: path.to_owned(), source })?;
    let ours = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if ours && !found.is_symlink() {
        Ok(())
    } else {
        Err(ContentVaultError::NotPrivate { path: path.to_owned() })
    }
}

pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), ContentVaultError> {
    let written = File::options().write(true).create_new(true).mode(0o600).open(path).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.map_err(|source| ContentVaultError::Io { path: path.to_owned(), source })
}

pub(crate) fn sync(directory: &Path) -> Result<(), ContentVaultError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|source| ContentVaultError::Io { path: directory.to_owned(), source })
}

pub(crate) fn random(bytes: &mut [u8]) -> Result<(), ContentVaultError> {
    getrandom::fill(bytes).map_err(|error| ContentVaultError::Random(io::Error::other(error)))
}

pub(crate) fn sha256(content: &[u8]) -> String {
    hex(Sha256::digest(content))
}

#[cfg(test)]
mod tests;
