//! The store interface: JSON rows by table and id, read and changed in transactions.

use std::fmt::Debug;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityStoreError {
    #[error("cannot keep identities at `{}`", ringfence_types::ByteString::from(path.as_path()).display())]
    Place { path: PathBuf, source: std::io::Error },
    #[error("`{}` is not private: {why}", ringfence_types::ByteString::from(path.as_path()).display())]
    NotPrivate { path: PathBuf, why: &'static str },
    #[error("`{}` is not a store of identities", ringfence_types::ByteString::from(path.as_path()).display())]
    Strange { path: PathBuf },
    #[error("the store of identities has format {found}; this program knows up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("the store of identities cannot be used")]
    Sqlite(#[from] rusqlite::Error),
    #[error("a record of the identity store is invalid")]
    Record(#[from] serde_json::Error),
    #[error("another thread panicked while it held the identity store")]
    Poisoned,
}

impl IdentityStoreError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotPrivate { path, .. } => Some(format!(
                "check `{0}` and who could have changed it; then `chmod go-rwx {0}`",
                ringfence_types::ByteString::from(path.as_path()).display()
            )),
            Self::Place { .. } | Self::Sqlite(_) => {
                Some("check that the state directory is writable and the disk is not full".to_owned())
            }
            Self::Newer { .. } => {
                Some("use the version of ringfence that wrote it, or a newer one".to_owned())
            }
            Self::Strange { .. } => {
                Some("move the file away; tokens and operators have to be made again".to_owned())
            }
            Self::Record(_) | Self::Poisoned => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordTable {
    Operator,
    Credential,
    Pairing,
    Challenge,
    /// The store's own metadata.
    Own,
}

impl RecordTable {
    pub fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Credential => "credential",
            Self::Pairing => "pairing",
            Self::Challenge => "challenge",
            Self::Own => "own",
        }
    }
}

/// Rows inside one transaction.
pub trait RecordRows {
    fn get(&self, table: RecordTable, id: &str) -> Result<Option<String>, IdentityStoreError>;
    fn all(&self, table: RecordTable) -> Result<Vec<String>, IdentityStoreError>;
    fn count(&self, table: RecordTable) -> Result<usize, IdentityStoreError>;
    fn put(&mut self, table: RecordTable, id: &str, body: &str) -> Result<(), IdentityStoreError>;
    fn remove(&mut self, table: RecordTable, id: &str) -> Result<(), IdentityStoreError>;
}

/// Commit or rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEnd {
    Keep,
    Undo,
}

/// A transactional store. Each transaction sees one consistent state, and changes are serialized. Reads wait neither
/// for changes nor for waiting writers.
pub trait IdentityStore: Send + Sync + Debug {
    fn read(&self, look: &mut dyn FnMut(&dyn RecordRows)) -> Result<(), IdentityStoreError>;
    /// Durable when it returns `Ok`, otherwise unchanged.
    fn change(
        &self,
        edit: &mut dyn FnMut(&mut dyn RecordRows) -> TransactionEnd,
    ) -> Result<(), IdentityStoreError>;
    /// The same, but does nothing if another change is in progress.
    fn change_if_free(
        &self,
        edit: &mut dyn FnMut(&mut dyn RecordRows) -> TransactionEnd,
    ) -> Result<(), IdentityStoreError>;
    /// Whether another process has blocked changes for longer than a change takes.
    fn is_held(&self) -> Result<bool, IdentityStoreError>;
}

pub(crate) fn get<T: DeserializeOwned>(
    rows: &(impl RecordRows + ?Sized),
    table: RecordTable,
    id: &str,
) -> Result<Option<T>, IdentityStoreError> {
    rows.get(table, id)?.map(|body| serde_json::from_str(&body)).transpose().map_err(IdentityStoreError::from)
}

pub(crate) fn all<T: DeserializeOwned>(
    rows: &(impl RecordRows + ?Sized),
    table: RecordTable,
) -> Result<Vec<T>, IdentityStoreError> {
    let bodies = rows.all(table)?;
    bodies.iter().map(|body| serde_json::from_str(body).map_err(IdentityStoreError::from)).collect()
}

pub(crate) fn put<T: Serialize>(
    rows: &mut dyn RecordRows,
    table: RecordTable,
    id: &str,
    record: &T,
) -> Result<(), IdentityStoreError> {
    rows.put(table, id, &serde_json::to_string(record)?)
}
