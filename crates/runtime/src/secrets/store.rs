//! The secret store: one encrypted file, read and replaced as a whole, with one writer at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringfence_ledger::Timestamp;
use ringfence_policy::sha256;
use ringfence_types::ByteString;

use super::encryption::{self, SealError, StoreKey};
use super::entry::{NewSecret, SecretError, SecretInfo, SecretName, SecretScope};
use super::private_dir::{self, PrivateDirError};
use super::value::SecretValue;
use crate::leaks::LeakScanner;
use crate::operator_file::OperatorFileUpdate;

/// Limit of secrets in a store.
const MAX_SECRETS: usize = 1000;
const MAX_FILE: u64 = 16 << 20;

/// The paths of an operator's store. Creating this opens no file.
#[derive(Clone, Debug)]
pub struct SecretStore {
    directory: PathBuf,
    key_directory: PathBuf,
}

/// The content of the store at the time of the read.
#[derive(Debug, Default)]
pub struct SecretSet {
    entries: Vec<(SecretInfo, SecretValue)>,
}

/// A prepared change of the store. It holds the lock against other changes. The store is unchanged until
/// [`StoreChange::make`], so that the ledger has the record first.
#[derive(Debug)]
#[must_use = "the store is unchanged until the change is made"]
pub struct StoreChange {
    file: PathBuf,
    /// `sha256:…` of the store before.
    before: String,
    sealed: Vec<u8>,
    secrets: SecretSet,
    changed: Vec<SecretInfo>,
    _lock: File,
}

impl StoreChange {
    /// The secrets that are added, replaced or removed.
    pub fn changed(&self) -> &[SecretInfo] {
        &self.changed
    }

    /// The store before the change.
    pub fn before(&self) -> OperatorFileUpdate {
        OperatorFileUpdate { file: self.file.clone(), sha256: self.before.clone() }
    }

    /// The store after the change.
    pub fn after(&self) -> OperatorFileUpdate {
        OperatorFileUpdate { file: self.file.clone(), sha256: sha256(&self.sealed) }
    }

    /// `text` without the values of the changed store, which the ledger does not know yet.
    pub fn redact(&self, state_dir: &Path, text: &str) -> String {
        LeakScanner::of_state(&self.secrets, state_dir).text(text)
    }

    pub fn make(self) -> Result<(), SecretChangeError> {
        Ok(private_dir::replace(&self.file, &self.sealed).map_err(SecretStoreError::from)?)
    }
}

/// Why the store could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretStoreError {
    #[error("the store of secrets cannot be used")]
    Place(#[from] PrivateDirError),
    #[error("there is a store of secrets `{}`, but not its key `{}`", shown(store), shown(key))]
    NoKey { store: PathBuf, key: PathBuf },
    #[error("the store of secrets `{}` cannot be opened", shown(path))]
    Seal { path: PathBuf, source: SealError },
}

/// Why the store is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretChangeError {
    #[error(transparent)]
    Store(#[from] SecretStoreError),
    #[error("cannot wait for other changes of the store of secrets")]
    Lock(#[source] io::Error),
    #[error("the secret `{name}` cannot be kept")]
    Entry { name: SecretName, source: SecretError },
    #[error("there is a secret `{name}` already ({scope})")]
    Exists { name: SecretName, scope: SecretScope },
    #[error("there is no secret `{name}`{}", nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default())]
    Unknown { name: SecretName, nearest: Option<SecretName> },
    #[error("there are several secrets `{name}`: {scopes}")]
    Ambiguous { name: SecretName, scopes: String },
    #[error("there are {MAX_SECRETS} secrets already, or they are too large together")]
    Full,
}

impl SecretStoreError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Place(error) => error.hint(),
            Self::NoKey { .. } => Some(
                "restore the key from where it was kept; without it nothing opens the store: move the store away and \
                 set the secrets anew"
                    .to_owned(),
            ),
            Self::Seal { source: SealError::Key | SealError::KeyFile, .. } => {
                Some("restore store and key of the same time, or move both away and set the secrets anew".to_owned())
            }
            Self::Seal { .. } => None,
        }
    }
}

impl SecretChangeError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Exists { name, .. } => Some(format!(
                "`ringfence secret rotate {name}` replaces its value, `ringfence secret rm {name}` removes it"
            )),
            Self::Unknown { .. } => Some("`ringfence secret list` shows all".to_owned()),
            Self::Ambiguous { .. } => Some("say which with --workspace and --agent".to_owned()),
            Self::Lock(_) | Self::Entry { .. } | Self::Full => None,
        }
    }
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

impl SecretStore {
    /// The store below `state_dir`, which must exist.
    pub fn new(state_dir: &Path) -> Self {
        Self { directory: state_dir.join("secrets"), key_directory: state_dir.join("secrets-key") }
    }

    /// Directories that must stay out of reach of every command. They are made now, because a directory that
    /// appears later could not be covered.
    pub(crate) fn places(&self) -> [&Path; 2] {
        let places = [self.directory.as_path(), self.key_directory.as_path()];
        for place in places {
            // If this fails, a command cannot make it either.
            let _made = private_dir::make_private(place);
        }
        places
    }

    /// Reads all secrets. A missing store is empty and is not created.
    pub fn read(&self) -> Result<SecretSet, SecretStoreError> {
        self.read_with_key().map(|found| found.map(|(_, secrets)| secrets).unwrap_or_default())
    }

    /// Prepares to add all of these or none.
    pub fn add(&self, new: Vec<NewSecret>) -> Result<StoreChange, SecretChangeError> {
        self.change(|key, secrets| {
            let mut added = Vec::new();
            for secret in new {
                let name = secret.name.clone();
                if secrets.exactly(&name, &secret.scope).is_some() {
                    return Err(SecretChangeError::Exists { name, scope: secret.scope });
                }
                let fingerprint = key.fingerprint(secret.value.as_slice());
                let (meta, value) = secret
                    .judged(fingerprint, Timestamp::now())
                    .map_err(|source| SecretChangeError::Entry { name, source })?;
                added.push(meta.clone());
                secrets.entries.push((meta, value));
            }
            Ok(added)
        })
    }

    /// Prepares to replace the value of a secret. Its metadata stays.
    pub fn rotate(
        &self,
        name: &SecretName,
        scope: &SecretScope,
        value: SecretValue,
    ) -> Result<StoreChange, SecretChangeError> {
        self.change(|key, secrets| {
            let at = secrets.position(name, scope)?;
            let Some((meta, old)) = secrets.entries.get_mut(at) else { return Ok(Vec::new()) };
            meta.fingerprint = key.fingerprint(value.as_slice());
            meta.bytes = value.as_slice().len() as u64;
            meta.changed = Timestamp::now();
            *old = value;
            meta.still_fits().map_err(|source| SecretChangeError::Entry { name: name.clone(), source })?;
            Ok(vec![meta.clone()])
        })
    }

    /// Prepares to remove a secret.
    pub fn remove(&self, name: &SecretName, scope: &SecretScope) -> Result<StoreChange, SecretChangeError> {
        self.change(|_, secrets| {
            let at = secrets.position(name, scope)?;
            Ok(vec![secrets.entries.remove(at).0])
        })
    }

    /// A stamp that changes when the content may have changed. `None`: there is no store.
    pub(crate) fn edition(&self) -> Option<[i64; 6]> {
        let file = std::fs::metadata(self.file()).ok()?;
        let [inode, size] = [file.ino(), file.size()].map(u64::cast_signed);
        Some([inode, size, file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()])
    }

    fn file(&self) -> PathBuf {
        self.directory.join("store")
    }

    fn key_file(&self) -> PathBuf {
        self.key_directory.join("key")
    }

    fn read_with_key(&self) -> Result<Option<(StoreKey, SecretSet)>, SecretStoreError> {
        if !private_dir::check_directory(&self.directory)? {
            return Ok(None);
        }
        let path = self.file();
        let Some(sealed) = private_dir::read(&path, MAX_FILE)? else { return Ok(None) };
        let Some(key) = self.read_key()? else {
            return Err(SecretStoreError::NoKey { store: path, key: self.key_file() });
        };
        let entries =
            encryption::unseal(&key, sealed).map_err(|source| SecretStoreError::Seal { path, source })?;
        Ok(Some((key, SecretSet { entries })))
    }

    fn read_key(&self) -> Result<Option<StoreKey>, SecretStoreError> {
        if !private_dir::check_directory(&self.key_directory)? {
            return Ok(None);
        }
        let path = self.key_file();
        let Some(bytes) = private_dir::read(&path, encryption::KEY as u64)? else { return Ok(None) };
        StoreKey::parse(&bytes).map(Some).map_err(|source| SecretStoreError::Seal { path, source })
    }

    /// Reads the store under a lock and changes the copy. Readers need no lock: the replacement is atomic, and
    /// the key is durable before it.
    fn change(
        &self,
        edit: impl FnOnce(&StoreKey, &mut SecretSet) -> Result<Vec<SecretInfo>, SecretChangeError>,
    ) -> Result<StoreChange, SecretChangeError> {
        private_dir::make_private(&self.directory).map_err(SecretStoreError::from)?;
        let lock = File::open(&self.directory).map_err(SecretChangeError::Lock)?;
        lock.lock().map_err(SecretChangeError::Lock)?;
        let (key, mut secrets) = match self.read_with_key()? {
            Some(found) => found,
            None => (self.first_key()?, SecretSet::default()),
        };
        let before = private_dir::read(&self.file(), MAX_FILE).map_err(SecretStoreError::from)?;
        let changed = edit(&key, &mut secrets)?;
        if secrets.entries.len() > MAX_SECRETS {
            return Err(SecretChangeError::Full);
        }
        let path = self.file();
        let sealed = encryption::seal(&key, &secrets.entries)
            .map_err(|source| SecretStoreError::Seal { path: path.clone(), source })?;
        if sealed.len() as u64 > MAX_FILE {
            return Err(SecretChangeError::Full);
        }
        let before = sha256(before.as_deref().map_or(&[], Vec::as_slice));
        Ok(StoreChange { file: path, before, sealed, secrets, changed, _lock: lock })
    }

    /// A key left by an interrupted first write is used again.
    fn first_key(&self) -> Result<StoreKey, SecretStoreError> {
        private_dir::make_private(&self.key_directory)?;
        if let Some(key) = self.read_key()? {
            return Ok(key);
        }
        let path = self.key_file();
        let key =
            StoreKey::random().map_err(|source| SecretStoreError::Seal { path: path.clone(), source })?;
        private_dir::replace(&path, key.as_slice())?;
        Ok(key)
    }
}

impl SecretSet {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn list(&self) -> impl Iterator<Item = &SecretInfo> {
        self.entries.iter().map(|(meta, _)| meta)
    }

    /// Every value with its metadata. Values are wiped on drop.
    pub fn values(&self) -> impl Iterator<Item = (&SecretInfo, &SecretValue)> {
        self.entries.iter().map(|(meta, value)| (meta, value))
    }

    /// The secret with this name in `scope`, or the only one if no scope is given.
    pub fn find(&self, name: &SecretName, scope: &SecretScope) -> Result<&SecretInfo, SecretChangeError> {
        let at = self.position(name, scope)?;
        self.list().nth(at).ok_or_else(|| self.unknown(name))
    }

    pub(super) fn unknown(&self, name: &SecretName) -> SecretChangeError {
        SecretChangeError::Unknown { name: name.clone(), nearest: self.nearest(name.as_str()) }
    }

    pub(super) fn nearest(&self, name: &str) -> Option<SecretName> {
        let nearest = ringfence_types::nearest(name, self.list().map(|meta| meta.name.as_str()))?;
        nearest.parse().ok()
    }

    fn exactly(&self, name: &SecretName, scope: &SecretScope) -> Option<usize> {
        self.list().position(|meta| meta.name == *name && meta.scope == *scope)
    }

    fn position(&self, name: &SecretName, scope: &SecretScope) -> Result<usize, SecretChangeError> {
        if let Some(at) = self.exactly(name, scope) {
            return Ok(at);
        }
        let mut same = self.list().enumerate().filter(|(_, meta)| meta.name == *name);
        match (same.next(), same.next()) {
            (Some((at, _)), None) if *scope == SecretScope::default() => Ok(at),
            (Some(_), Some(_)) if *scope == SecretScope::default() => {
                let scopes: Vec<String> = self
                    .list()
                    .filter(|meta| meta.name == *name)
                    .map(|meta| meta.scope.to_string())
                    .collect();
                Err(SecretChangeError::Ambiguous { name: name.clone(), scopes: scopes.join("; ") })
            }
            _ => Err(self.unknown(name)),
        }
    }
}

#[cfg(test)]
mod tests;
