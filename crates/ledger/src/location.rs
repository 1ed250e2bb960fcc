//! Location of a ledger: a file of this machine, or a database that several nodes share.

use std::path::{Path, PathBuf};

use crate::ledger::Ledger;
use crate::postgres::error::ConnectError;
use crate::postgres::node::LedgerNode;
use crate::reader::LedgerReader;
use crate::settings::LedgerSettings;
use crate::sqlite::open::LedgerOpenError;

#[derive(Clone, Debug)]
pub enum LedgerLocation {
    File(PathBuf),
    Node(LedgerNode),
}

impl LedgerLocation {
    /// A file in `state_dir`, unless the settings name a server. A node keeps its name and key in `state_dir`.
    pub fn of(state_dir: &Path, settings: &LedgerSettings) -> Result<Self, LedgerOpenError> {
        match &settings.server {
            None => Ok(Self::File(state_dir.join("ledger.db"))),
            Some(server) => Ok(Self::Node(LedgerNode::in_directory(&server.url, state_dir, &server.node)?)),
        }
    }

    /// Opens for appending. Creates a ledger if there is none.
    pub fn open(&self, settings: LedgerSettings) -> Result<Ledger, LedgerOpenError> {
        let _span = tracing::debug_span!("open ledger").entered();
        match self {
            Self::File(path) => Ledger::open_with(path, settings),
            Self::Node(node) => Ledger::connect(node, settings),
        }
    }

    /// Opens for reading. Creates nothing; `None`: there is no ledger yet.
    pub fn read(&self) -> Result<Option<LedgerReader>, LedgerOpenError> {
        let reader = match self {
            Self::File(path) => Ledger::open_read(path),
            Self::Node(node) => Ledger::connect_read(node),
        };
        match reader {
            Err(LedgerOpenError::Missing { .. }) => Ok(None),
            Err(LedgerOpenError::Connect(error)) if matches!(*error, ConnectError::NoChain { .. }) => {
                Ok(None)
            }
            other => other.map(Some),
        }
    }
}
