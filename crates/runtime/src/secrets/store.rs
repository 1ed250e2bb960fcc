//! The store: read whole, changed whole, one change at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringfence_ledger::Timestamp;
use ringfence_types::Bytes;
use sha2::{Digest as _, Sha256};

use super::entry::{EntryError, Meta, NewSecret, Scope, SecretName};
use super::input::Value;
use super::place::{self, PlaceError};
use super::sealed::{self, Key, SealError};
use crate::standing::Stored;

/// The most secrets one operator may keep.
const MAX_SECRETS: usize = 1000;
const MAX_FILE: u64 = 16 << 20;

/// Where the secrets of an operator are kept. Holding it costs nothing and opens nothing.
#[derive(Clone, Debug)]
pub struct SecretStore {
    directory: PathBuf,
    key_directory: PathBuf,
}

/// What was in the store when it was read.
#[derive(Debug, Default)]
pub struct Secrets {
    entries: Vec<(Meta, Value)>,
}

/// A change that is on disk, and what it was, for the ledger.
#[derive(Clone, Debug)]
pub struct Changed {
    pub stored: Stored,
    pub metas: Vec<Meta>,
}

/// Why the store could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("the store of secrets cannot be used")]
    Place(#[from] PlaceError),
    #[error("there is a store of secrets `{}`, but not its key `{}`", shown(store), shown(key))]
    NoKey { store: PathBuf, key: PathBuf },
    #[error("the store of secrets `{}` cannot be opened", shown(path))]
    Seal { path: PathBuf, source: SealError },
}

/// Why the store is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot wait for other changes of the store of secrets")]
    Lock(#[source] io::Error),
    #[error("the secret `{name}` cannot be kept")]
    Entry { name: SecretName, source: EntryError },
    #[error("there is a secret `{name}` already ({scope})")]
    Exists { name: SecretName, scope: Scope },
    #[error("there is no secret `{name}`{}", nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default())]
    Unknown { name: SecretName, nearest: Option<SecretName> },
    #[error("there are several secrets `{name}`: {scopes}")]
    Ambiguous { name: SecretName, scopes: String },
    #[error("there are {MAX_SECRETS} secrets already, or they are too large together")]
    Full,
}

impl StoreError {
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

impl ChangeError {
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
    Bytes::from(path).display()
}

impl SecretStore {
    /// The store of the operator whose state is in `state_dir`, which exists.
    pub fn new(state_dir: &Path) -> Self {
        Self { directory: state_dir.join("secrets"), key_directory: state_dir.join("secrets-key") }
    }

    /// What must stay out of reach of everything that runs. It is made where it is not there yet: what appears later
    /// could not be covered any more.
    pub(crate) fn places(&self) -> [&Path; 2] {
        let places = [self.directory.as_path(), self.key_directory.as_path()];
        for place in places {
            // Where it cannot be made now, it cannot be made later either.
            let _made = place::make_private(place);
        }
        places
    }

    /// Everything in it. Where there is no store nothing is done.
    pub fn read(&self) -> Result<Secrets, StoreError> {
        self.read_with_key().map(|found| found.map(|(_, secrets)| secrets).unwrap_or_default())
    }

    /// Adds all of these or none.
    pub fn add(&self, new: Vec<NewSecret>) -> Result<Changed, ChangeError> {
        self.change(|key, secrets| {
            let mut added = Vec::new();
            for secret in new {
                let name = secret.name.clone();
                if secrets.exactly(&name, &secret.scope).is_some() {
                    return Err(ChangeError::Exists { name, scope: secret.scope });
                }
                let fingerprint = key.fingerprint(secret.value.as_slice());
                let (meta, value) = secret
                    .judged(fingerprint, Timestamp::now())
                    .map_err(|source| ChangeError::Entry { name, source })?;
                added.push(meta.clone());
                secrets.entries.push((meta, value));
            }
            Ok(added)
        })
    }

    /// Another value for the same secret; everything else about it stays.
    pub fn rotate(&self, name: &SecretName, scope: &Scope, value: Value) -> Result<Changed, ChangeError> {
        self.change(|key, secrets| {
            let at = secrets.position(name, scope)?;
            let Some((meta, old)) = secrets.entries.get_mut(at) else { return Ok(Vec::new()) };
            meta.fingerprint = key.fingerprint(value.as_slice());
            meta.bytes = value.as_slice().len() as u64;
            meta.changed = Timestamp::now();
            *old = value;
            meta.still_fits().map_err(|source| ChangeError::Entry { name: name.clone(), source })?;
            Ok(vec![meta.clone()])
        })
    }

    pub fn remove(&self, name: &SecretName, scope: &Scope) -> Result<Changed, ChangeError> {
        self.change(|_, secrets| {
            let at = secrets.position(name, scope)?;
            Ok(vec![secrets.entries.remove(at).0])
        })
    }

    /// Other than before when what is in it may be. `None`: there is none.
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

    fn read_with_key(&self) -> Result<Option<(Key, Secrets)>, StoreError> {
        if !place::check_directory(&self.directory)? {
            return Ok(None);
        }
        let path = self.file();
        let Some(sealed) = place::read(&path, MAX_FILE)? else { return Ok(None) };
        let Some(key) = self.read_key()? else {
            return Err(StoreError::NoKey { store: path, key: self.key_file() });
        };
        let entries = sealed::unseal(&key, sealed).map_err(|source| StoreError::Seal { path, source })?;
        Ok(Some((key, Secrets { entries })))
    }

    fn read_key(&self) -> Result<Option<Key>, StoreError> {
        if !place::check_directory(&self.key_directory)? {
            return Ok(None);
        }
        let path = self.key_file();
        let Some(bytes) = place::read(&path, sealed::KEY as u64)? else { return Ok(None) };
        Key::parse(&bytes).map(Some).map_err(|source| StoreError::Seal { path, source })
    }

    /// Reads, changes and replaces, while nobody else does. Readers need no lock: the file is replaced in one step, and
    /// its key is on disk before it.
    fn change(
        &self,
        edit: impl FnOnce(&Key, &mut Secrets) -> Result<Vec<Meta>, ChangeError>,
    ) -> Result<Changed, ChangeError> {
        place::make_private(&self.directory).map_err(StoreError::from)?;
        let lock = File::open(&self.directory).map_err(ChangeError::Lock)?;
        lock.lock().map_err(ChangeError::Lock)?;
        let (key, mut secrets) = match self.read_with_key()? {
            Some(found) => found,
            None => (self.first_key()?, Secrets::default()),
        };
        let metas = edit(&key, &mut secrets)?;
        if secrets.entries.len() > MAX_SECRETS {
            return Err(ChangeError::Full);
        }
        let path = self.file();
        let sealed = sealed::seal(&key, &secrets.entries)
            .map_err(|source| StoreError::Seal { path: path.clone(), source })?;
        if sealed.len() as u64 > MAX_FILE {
            return Err(ChangeError::Full);
        }
        place::replace(&path, &sealed).map_err(StoreError::from)?;
        let sha256 = ringfence_types::hex(Sha256::digest(&sealed));
        Ok(Changed { stored: Stored { file: path, sha256: format!("sha256:{sha256}") }, metas })
    }

    /// A key that was made for a store which then was not written is used for the next.
    fn first_key(&self) -> Result<Key, StoreError> {
        place::make_private(&self.key_directory)?;
        if let Some(key) = self.read_key()? {
            return Ok(key);
        }
        let path = self.key_file();
        let key = Key::random().map_err(|source| StoreError::Seal { path: path.clone(), source })?;
        place::replace(&path, key.as_slice())?;
        Ok(key)
    }
}

impl Secrets {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn list(&self) -> impl Iterator<Item = &Meta> {
        self.entries.iter().map(|(meta, _)| meta)
    }

    /// Every value with what is known of it. They are wiped when the store goes.
    pub fn values(&self) -> impl Iterator<Item = (&Meta, &Value)> {
        self.entries.iter().map(|(meta, value)| (meta, value))
    }

    /// What is meant by a name: the one in `scope`, or where none is said the only one.
    pub fn find(&self, name: &SecretName, scope: &Scope) -> Result<&Meta, ChangeError> {
        let at = self.position(name, scope)?;
        self.list().nth(at).ok_or_else(|| self.unknown(name))
    }

    pub(super) fn unknown(&self, name: &SecretName) -> ChangeError {
        ChangeError::Unknown { name: name.clone(), nearest: self.nearest(name.as_str()) }
    }

    pub(super) fn nearest(&self, name: &str) -> Option<SecretName> {
        let nearest = ringfence_types::nearest(name, self.list().map(|meta| meta.name.as_str()))?;
        nearest.parse().ok()
    }

    fn exactly(&self, name: &SecretName, scope: &Scope) -> Option<usize> {
        self.list().position(|meta| meta.name == *name && meta.scope == *scope)
    }

    fn position(&self, name: &SecretName, scope: &Scope) -> Result<usize, ChangeError> {
        if let Some(at) = self.exactly(name, scope) {
            return Ok(at);
        }
        let mut same = self.list().enumerate().filter(|(_, meta)| meta.name == *name);
        match (same.next(), same.next()) {
            (Some((at, _)), None) if *scope == Scope::default() => Ok(at),
            (Some(_), Some(_)) if *scope == Scope::default() => {
                let scopes: Vec<String> = self
                    .list()
                    .filter(|meta| meta.name == *name)
                    .map(|meta| meta.scope.to_string())
                    .collect();
                Err(ChangeError::Ambiguous { name: name.clone(), scopes: scopes.join("; ") })
            }
            _ => Err(self.unknown(name)),
        }
    }
}

#[cfg(test)]
mod tests;
