//! Errors between this process and the server, and their meaning.

use std::error::Error as _;
use std::path::PathBuf;

use ringfence_types::ByteString;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::key::LedgerKeyError;
use crate::postgres::address::PostgresAddressError;
use crate::postgres::pgpass::PgpassError;
use crate::sqlite::open::{ACKNOWLEDGE, LedgerOpenError};
use crate::store::{ChainStoreError, StoreFault};
use crate::verify::VerifyError;

/// Reason why the ledger on this server cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    #[error(transparent)]
    Address(#[from] PostgresAddressError),
    #[error("no password for the store")]
    Password(#[source] StoreFault, Option<String>),
    #[error("cannot read the certificate authorities in `{}`", ByteString::from(path.as_path()).display())]
    Authorities { path: PathBuf, source: StoreFault },
    #[error("cannot reach the store {address}")]
    Unreachable { address: String, source: StoreFault },
    #[error("the store {address} takes no more connections")]
    Crowded { address: String, source: StoreFault },
    #[error("the store {address} refuses this user")]
    NotLetIn { address: String, source: StoreFault },
    #[error("the server has no database of this name: {address}")]
    NoDatabase { address: String, source: StoreFault },
    #[error("the server is PostgreSQL {found}; 15 or newer is needed")]
    TooOld { found: String },
    #[error("the server runs with `{setting} = {value}` and can lose what it has acknowledged")]
    NotDurable { setting: &'static str, value: String },
    #[error("the database is encoded in {found}")]
    Encoding { found: String },
    #[error("the server is a standby or read-only")]
    ReadOnly,
    #[error("there is no ledger in the database, and this user may not make one")]
    NoSchema { source: Option<StoreFault> },
    #[error("the database has ledger schema {found}; this program knows up to {known}")]
    Newer { found: i32, known: i32 },
    #[error("the tables of the ledger are not what they should be")]
    WrongSchema { source: StoreFault },
    #[error("this user may not use the ledger in the database")]
    Denied { source: StoreFault },
    #[error("there is no chain of node `{}` in the database", ByteString::from(node.as_str()).display())]
    NoChain { node: String },
    #[error("`{}` is no name for a node", ByteString::from(node.as_str()).display())]
    NodeName { node: String },
    #[error("this state directory belongs to node `{}`, not to `{}`", ByteString::from(kept.as_str()).display(), ByteString::from(given.as_str()).display())]
    OtherNode { kept: String, given: String },
    #[error("another machine keeps its ledger under the node name `{}`", ByteString::from(node.as_str()).display())]
    NameTaken { node: String },
    #[error("the chain of node `{}` was set aside, and none continues it", ByteString::from(node.as_str()).display())]
    SetAside { node: String },
    #[error("chain {chain} of node `{}` is not in the database any more", ByteString::from(node.as_str()).display())]
    Gone { node: String, chain: String },
    #[error("the chain of node `{}` is valid: there is nothing to restart", ByteString::from(node.as_str()).display())]
    Whole { node: String },
    #[error("no chain `{}` of another node was set aside", ByteString::from(chain.as_str()).display())]
    NotAside { chain: String },
    #[error("cannot keep the name and the key of a node in `{}`", ByteString::from(path.as_path()).display())]
    Directory { path: PathBuf, source: StoreFault },
    #[error("the key of this node does not work")]
    Key(#[source] StoreFault, Option<String>),
    #[error("cannot encode the beginning of a chain")]
    Encode(#[source] StoreFault),
    #[error("no random bytes for a new chain: {0}")]
    Random(getrandom::Error),
    #[error("cannot start the client of the store")]
    Runtime(#[source] StoreFault),
    #[error("the store failed")]
    Store(#[source] ChainStoreError),
}

impl From<ConnectError> for LedgerOpenError {
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
    /// The next step for the operator.
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

    pub(crate) fn password(error: PgpassError) -> Self {
        let hint = error.hint();
        Self::Password(StoreFault::new(error), hint)
    }

    pub(crate) fn key(error: LedgerKeyError) -> Self {
        let hint = error.hint();
        Self::Key(StoreFault::new(error), hint)
    }

    /// Whether a later attempt may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Crowded { .. })
    }

    /// The same error during an operation.
    pub(crate) fn into_store(self) -> ChainStoreError {
        match self {
            Self::Store(error) => error,
            Self::ReadOnly => ChainStoreError::ReadOnly(StoreFault::new(self)),
            Self::Denied { .. } | Self::NotLetIn { .. } => ChainStoreError::Denied(StoreFault::new(self)),
            Self::Crowded { .. } => ChainStoreError::Busy(StoreFault::new(self)),
            Self::Unreachable { .. } => ChainStoreError::Unreachable(StoreFault::new(self)),
            _ => ChainStoreError::Failed(StoreFault::new(self)),
        }
    }
}

/// An error of one operation on a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionFault {
    #[error("the server does not answer")]
    Silent,
    #[error("the connection was lost")]
    Lost(#[source] Error),
    /// Only code and message: the detail may quote a row.
    #[error("the server says {}: {message}", code.code())]
    Said { code: SqlState, message: String, constraint: Option<String> },
    #[error("the client does not understand the server")]
    Client(#[source] Error),
    #[error(transparent)]
    Connect(ConnectError),
}

impl From<Error> for ConnectionFault {
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

impl ConnectionFault {
    /// Whether the connection is lost, so that the fate of the last statement is unknown.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Silent | Self::Lost(_) | Self::Client(_) => true,
            Self::Said { code, .. } => is_shutdown(code) || code.code().starts_with("08"),
            Self::Connect(_) => false,
        }
    }

    /// Whether the server aborted this transaction in favour of another (deadlock or serialization).
    pub(crate) fn is_turn(&self) -> bool {
        matches!(self, Self::Said { code, .. }
            if *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE)
    }

    pub(crate) fn breaks(&self, constraint_name: &str) -> bool {
        matches!(self, Self::Said { code, constraint: Some(constraint), .. }
            if *code == SqlState::UNIQUE_VIOLATION && constraint == constraint_name)
    }

    pub(crate) fn into_store(self) -> ChainStoreError {
        let code = match self {
            Self::Connect(error) => return error.into_store(),
            Self::Silent | Self::Lost(_) => return ChainStoreError::Unreachable(StoreFault::new(self)),
            Self::Client(_) => return ChainStoreError::Failed(StoreFault::new(self)),
            Self::Said { ref code, .. } => code.clone(),
        };
        match code {
            SqlState::DISK_FULL => ChainStoreError::Full(StoreFault::new(self)),
            SqlState::READ_ONLY_SQL_TRANSACTION => ChainStoreError::ReadOnly(StoreFault::new(self)),
            SqlState::INSUFFICIENT_PRIVILEGE => ChainStoreError::Denied(StoreFault::new(self)),
            SqlState::QUERY_CANCELED
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::OUT_OF_MEMORY
            | SqlState::TOO_MANY_CONNECTIONS => ChainStoreError::Busy(StoreFault::new(self)),
            SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::INVALID_SCHEMA_NAME => {
                ChainStoreError::Failed(StoreFault::new(ConnectError::WrongSchema {
                    source: StoreFault::new(self),
                }))
            }
            code if is_shutdown(&code) => ChainStoreError::Unreachable(StoreFault::new(self)),
            _ => ChainStoreError::Failed(StoreFault::new(self)),
        }
    }

    /// The same error while connecting.
    pub(crate) fn into_connect(self, address: String) -> ConnectError {
        let code = match self {
            Self::Connect(error) => return error,
            Self::Client(ref error) if wants_password(error) => {
                return ConnectError::NotLetIn { address, source: StoreFault::new(self) };
            }
            Self::Silent | Self::Lost(_) | Self::Client(_) => {
                return ConnectError::Unreachable { address, source: StoreFault::new(self) };
            }
            Self::Said { ref code, .. } => code.clone(),
        };
        let source = StoreFault::new(self);
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
            _ => ConnectError::Store(ChainStoreError::Failed(source)),
        }
    }
}

/// The client library has no error kind for a missing password.
fn wants_password(error: &Error) -> bool {
    error.source().is_some_and(|source| source.to_string().contains("password"))
}

fn is_shutdown(code: &SqlState) -> bool {
    [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code)
}
