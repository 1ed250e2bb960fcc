//! Where records are kept: rows of JSON by kind and id, read and changed in transactions.

use std::fmt::Debug;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("cannot keep identities at `{}`", ringfence_types::Bytes::from(path.as_path()).display())]
    Place { path: PathBuf, source: std::io::Error },
    #[error("`{}` is not private: {why}", ringfence_types::Bytes::from(path.as_path()).display())]
    NotPrivate { path: PathBuf, why: &'static str },
    #[error("`{}` is not a store of identities", ringfence_types::Bytes::from(path.as_path()).display())]
    Strange { path: PathBuf },
    #[error("the store of identities has format {found}; this program knows up to {known}")]
    Newer { found: i64, known: i64 },
    #[error("the store of identities cannot be used")]
    Sqlite(#[from] rusqlite::Error),
    #[error("a record of identities makes no sense")]
    Record(#[from] serde_json::Error),
    #[error("another thread broke while it held the store of identities")]
    Poisoned,
}

impl StoreError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotPrivate { path, .. } => Some(format!(
                "look at `{0}` and at who could have changed it; `chmod go-rwx {0}` if nobody could",
                ringfence_types::Bytes::from(path.as_path()).display()
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

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    Operator,
    Credential,
    Pairing,
    Challenge,
    /// What the store knows of itself.
    Own,
}

impl Table {
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

/// Rows inside of one transaction.
pub trait Rows {
    fn get(&self, table: Table, id: &str) -> Result<Option<String>, StoreError>;
    fn all(&self, table: Table) -> Result<Vec<String>, StoreError>;
    fn count(&self, table: Table) -> Result<usize, StoreError>;
    fn put(&mut self, table: Table, id: &str, body: &str) -> Result<(), StoreError>;
    fn remove(&mut self, table: Table, id: &str) -> Result<(), StoreError>;
}

/// What becomes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Keep,
    Undo,
}

/// A store with transactions: what is seen in one belongs together, and of two that change one waits for the other. Who only
/// reads does not wait for who changes, nor for who waits to.
pub trait Store: Send + Sync + Debug {
    fn read(&self, look: &mut dyn FnMut(&dyn Rows)) -> Result<(), StoreError>;
    /// On disk when it returns, or as it was.
    fn change(&self, edit: &mut dyn FnMut(&mut dyn Rows) -> End) -> Result<(), StoreError>;
    /// The same where nobody else is about to change it; otherwise nothing is done.
    fn change_if_free(&self, edit: &mut dyn FnMut(&mut dyn Rows) -> End) -> Result<(), StoreError>;
    /// Whether somebody else has kept it from being changed for longer than a change takes.
    fn is_held(&self) -> Result<bool, StoreError>;
}

pub(crate) fn get<T: DeserializeOwned>(
    rows: &(impl Rows + ?Sized),
    table: Table,
    id: &str,
) -> Result<Option<T>, StoreError> {
    rows.get(table, id)?.map(|body| serde_json::from_str(&body)).transpose().map_err(StoreError::from)
}

pub(crate) fn all<T: DeserializeOwned>(
    rows: &(impl Rows + ?Sized),
    table: Table,
) -> Result<Vec<T>, StoreError> {
    let bodies = rows.all(table)?;
    bodies.iter().map(|body| serde_json::from_str(body).map_err(StoreError::from)).collect()
}

pub(crate) fn put<T: Serialize>(
    rows: &mut dyn Rows,
    table: Table,
    id: &str,
    record: &T,
) -> Result<(), StoreError> {
    rows.put(table, id, &serde_json::to_string(record)?)
}
