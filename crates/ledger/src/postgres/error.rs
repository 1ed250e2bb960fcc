//! What can go wrong between here and the server, and what it means.

use std::error::Error as _;
use std::path::PathBuf;

use ringfence_types::Bytes;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::key::KeyError;
use crate::postgres::address::AddressError;
use crate::postgres::password::PasswordError;
use crate::sqlite::open::{ACKNOWLEDGE, OpenError};
use crate::store::{Fault, StoreError};
use crate::verify::VerifyError;

/// Why there is no ledger on this server.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("no password for the store")]
    Password(#[source] Fault, Option<String>),
    #[error("cannot read the certificate authorities in `{}`", Bytes::from(path.as_path()).display())]
    Authorities { path: PathBuf, source: Fault },
    #[error("cannot reach the store {address}")]
    Unreachable { address: String, source: Fault },
    #[error("the store {address} takes no more connections")]
    Crowded { address: String, source: Fault },
    #[error("the store {address} does not let this user in")]
    NotLetIn { address: String, source: Fault },
    #[error("the server has no database of this name: {address}")]
    NoDatabase { address: String, source: Fault },
    #[error("the server is PostgreSQL {found}; 15 or newer is needed")]
    TooOld { found: String },
    #[error("the server runs with `{setting} = {value}` and can lose what it has acknowledged")]
    NotDurable { setting: &'static str, value: String },
    #[error("the database is encoded in {found}")]
    Encoding { found: String },
    #[error("the server is a standby or read-only")]
    ReadOnly,
    #[error("there is no ledger in the database, and this user may not make one")]
    NoSchema { source: Option<Fault> },
    #[error("the database has ledger schema {found}; this program knows up to {known}")]
    Newer { found: i32, known: i32 },
    #[error("the tables of the ledger are not what they should be")]
    WrongSchema { source: Fault },
    #[error("this user may not use the ledger in the database")]
    Denied { source: Fault },
    #[error("there is no chain of node `{}` in the database", Bytes::from(node.as_str()).display())]
    NoChain { node: String },
    #[error("`{}` is no name for a node", Bytes::from(node.as_str()).display())]
    NodeName { node: String },
    #[error("this state directory belongs to node `{}`, not to `{}`", Bytes::from(kept.as_str()).display(), Bytes::from(given.as_str()).display())]
    OtherNode { kept: String, given: String },
    #[error("another machine keeps its ledger under the node name `{}`", Bytes::from(node.as_str()).display())]
    NameTaken { node: String },
    #[error("the chain of node `{}` was set aside, and none continues it", Bytes::from(node.as_str()).display())]
    SetAside { node: String },
    #[error("chain {chain} of node `{}` is not in the database any more", Bytes::from(node.as_str()).display())]
    Gone { node: String, chain: String },
    #[error("the chain of node `{}` is whole: there is nothing to acknowledge", Bytes::from(node.as_str()).display())]
    Whole { node: String },
    #[error("no chain `{}` of another node was set aside", Bytes::from(chain.as_str()).display())]
    NotAside { chain: String },
    #[error("cannot keep the name and the key of a node in `{}`", Bytes::from(path.as_path()).display())]
    Directory { path: PathBuf, source: Fault },
    #[error("the key of this node does not work")]
    Key(#[source] Fault, Option<String>),
    #[error("cannot encode the beginning of a chain")]
    Encode(#[source] Fault),
    #[error("no random bytes for a new chain: {0}")]
    Random(getrandom::Error),
    #[error("cannot start the client of the store")]
    Runtime(#[source] Fault),
    #[error("the store failed")]
    Store(#[source] StoreError),
}

impl From<ConnectError> for OpenError {
    fn from(error: ConnectError) -> Self {
        Self::Connect(Box::new(error))
    }
}

impl From<ConnectError> for VerifyError {
    fn from(error: ConnectError) -> Self {
        Self::Open(error.into())
    }
}

impl ConnectError {
    /// The one thing that would change the answer.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Address(error) => return error.hint().map(str::to_owned),
            Self::Password(_, hint) | Self::Key(_, hint) => return hint.clone(),
            Self::Unreachable { .. } => "check that the server runs and that host and port are right",
            Self::Crowded { .. } => "raise `max_connections`, or end what holds them",
            Self::NotLetIn { .. } => "check the role, its password (`?passfile=FILE`) and `pg_hba.conf`",
            Self::NoDatabase { .. } => "make it: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
            Self::TooOld { .. } => "upgrade the server",
            Self::NotDurable { .. } => "set it to `on` in postgresql.conf and restart the server",
            Self::Encoding { .. } => "use a database with ENCODING 'UTF8'",
            Self::ReadOnly => "connect to the primary",
            Self::NoSchema { .. } => {
                "connect once as the owner of the database, or: GRANT CREATE ON DATABASE … TO …"
            }
            Self::Newer { .. } => "use the version of ringfence that wrote it, or a newer one",
            Self::WrongSchema { .. } => {
                "restore the schema `ringfence` from a backup, or use another database"
            }
            Self::Denied { .. } => "docs/postgres.md has the rights a role needs; its owner grants them",
            Self::NoChain { .. } => "the first append of this node begins one",
            Self::NodeName { .. } => "use 1 to 64 letters, digits, `.`, `_` and `-`",
            Self::OtherNode { .. } => "use the name it has, or another state directory",
            Self::NameTaken { .. } => {
                "give this machine a name of its own: `node = \"NAME\"` in ledger.toml. If it is the same machine, put its state directory (`node`, `node.key`, `node.chain`) back from a backup"
            }
            Self::SetAside { .. } => ACKNOWLEDGE,
            Self::Gone { .. } => {
                "restore the database, or give this machine another name: a state directory of its own and `node = \"NAME\"` in ledger.toml"
            }
            Self::NotAside { .. } => "`ringfence ledger verify` names the chains",
            Self::Whole { .. } => return None,
            Self::Directory { .. } => "check that the directory is writable and the disk is not full",
            Self::Authorities { .. } => "give a PEM file with `sslrootcert=FILE`",
            Self::Store(error) => return error.hint().map(str::to_owned),
            Self::Encode(_) | Self::Random(_) | Self::Runtime(_) => return None,
        };
        Some(hint.to_owned())
    }

    pub(crate) fn password(error: PasswordError) -> Self {
        let hint = error.hint();
        Self::Password(Fault::new(error), hint)
    }

    pub(crate) fn key(error: KeyError) -> Self {
        let hint = error.hint();
        Self::Key(Fault::new(error), hint)
    }

    /// Whether another try, a little later, may go better.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Crowded { .. })
    }

    /// The same for somebody who was in the middle of something.
    pub(crate) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::ReadOnly => StoreError::ReadOnly(Fault::new(self)),
            Self::Denied { .. } | Self::NotLetIn { .. } => StoreError::Denied(Fault::new(self)),
            Self::Crowded { .. } => StoreError::Busy(Fault::new(self)),
            Self::Unreachable { .. } => StoreError::Unreachable(Fault::new(self)),
            _ => StoreError::Failed(Fault::new(self)),
        }
    }
}

/// One thing that did not work on a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("the server does not answer")]
    Silent,
    #[error("the connection was lost")]
    Lost(#[source] Error),
    /// Only the code and the message: a detail may repeat what was in a row.
    #[error("the server says {}: {message}", code.code())]
    Said { code: SqlState, message: String, constraint: Option<String> },
    #[error("the client does not understand the server")]
    Client(#[source] Error),
    #[error(transparent)]
    Connect(ConnectError),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        if let Some(said) = error.as_db_error() {
            return Self::Said {
                code: said.code().clone(),
                message: said.message().to_owned(),
                constraint: said.constraint().map(str::to_owned),
            };
        }
        let is_io = error.source().is_some_and(|source| source.is::<std::io::Error>());
        if error.is_closed() || is_io { Self::Lost(error) } else { Self::Client(error) }
    }
}

impl Trouble {
    /// Whether the connection is of no use any more, so that nobody knows what became of the last statement.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Silent | Self::Lost(_) | Self::Client(_) => true,
            Self::Said { code, .. } => is_shutdown(code) || code.code().starts_with("08"),
            Self::Connect(_) => false,
        }
    }

    /// Whether the server gave up on this one to let another pass.
    pub(crate) fn is_turn(&self) -> bool {
        matches!(self, Self::Said { code, .. }
            if *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE)
    }

    pub(crate) fn breaks(&self, constraint_name: &str) -> bool {
        matches!(self, Self::Said { code, constraint: Some(constraint), .. }
            if *code == SqlState::UNIQUE_VIOLATION && constraint == constraint_name)
    }

    pub(crate) fn into_store(self) -> StoreError {
        let code = match self {
            Self::Connect(error) => return error.into_store(),
            Self::Silent | Self::Lost(_) => return StoreError::Unreachable(Fault::new(self)),
            Self::Client(_) => return StoreError::Failed(Fault::new(self)),
            Self::Said { ref code, .. } => code.clone(),
        };
        match code {
            SqlState::DISK_FULL => StoreError::Full(Fault::new(self)),
            SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::ReadOnly(Fault::new(self)),
            SqlState::INSUFFICIENT_PRIVILEGE => StoreError::Denied(Fault::new(self)),
            SqlState::QUERY_CANCELED
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::OUT_OF_MEMORY
            | SqlState::TOO_MANY_CONNECTIONS => StoreError::Busy(Fault::new(self)),
            SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::INVALID_SCHEMA_NAME => {
                StoreError::Failed(Fault::new(ConnectError::WrongSchema { source: Fault::new(self) }))
            }
            code if is_shutdown(&code) => StoreError::Unreachable(Fault::new(self)),
            _ => StoreError::Failed(Fault::new(self)),
        }
    }

    /// What it means for somebody who wants to get in.
    pub(crate) fn into_connect(self, address: String) -> ConnectError {
        let code = match self {
            Self::Connect(error) => return error,
            Self::Client(ref error) if wants_password(error) => {
                return ConnectError::NotLetIn { address, source: Fault::new(self) };
            }
            Self::Silent | Self::Lost(_) | Self::Client(_) => {
                return ConnectError::Unreachable { address, source: Fault::new(self) };
            }
            Self::Said { ref code, .. } => code.clone(),
        };
        let source = Fault::new(self);
        match code {
            SqlState::TOO_MANY_CONNECTIONS => ConnectError::Crowded { address, source },
            SqlState::INVALID_CATALOG_NAME => ConnectError::NoDatabase { address, source },
            SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                ConnectError::NotLetIn { address, source }
            }
            SqlState::INSUFFICIENT_PRIVILEGE => ConnectError::Denied { source },
            SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::INVALID_SCHEMA_NAME => {
                ConnectError::WrongSchema { source }
            }
            SqlState::READ_ONLY_SQL_TRANSACTION => ConnectError::ReadOnly,
            code if is_shutdown(&code) => ConnectError::Unreachable { address, source },
            _ => ConnectError::Store(StoreError::Failed(source)),
        }
    }
}

/// The client has no kind for it: the server wants a password and there is none.
fn wants_password(error: &Error) -> bool {
    error.source().is_some_and(|source| source.to_string().contains("password"))
}

fn is_shutdown(code: &SqlState) -> bool {
    [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code)
}
