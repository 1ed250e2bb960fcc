//! Where a ledger is kept: a file of this machine, or a database that several nodes share.

use std::path::{Path, PathBuf};

use crate::ledger::Ledger;
use crate::postgres::error::ConnectError;
use crate::postgres::node::Node;
use crate::reader::LedgerReader;
use crate::settings::Settings;
use crate::sqlite::open::OpenError;

#[derive(Clone, Debug)]
pub enum Location {
    File(PathBuf),
    Node(Node),
}

impl Location {
    /// In `state_dir`, unless the settings name a server. A node has its name and its key there.
    pub fn of(state_dir: &Path, settings: &Settings) -> Result<Self, OpenError> {
        match &settings.server {
            None => Ok(Self::File(state_dir.join("ledger.db"))),
            Some(server) => Ok(Self::Node(Node::in_directory(&server.url, state_dir, &server.node)?)),
        }
    }

    /// To append. Begins a ledger if there is none.
    pub fn open(&self, settings: Settings) -> Result<Ledger, OpenError> {
        let _span = tracing::debug_span!("open ledger").entered();
        match self {
            Self::File(path) => Ledger::open_with(path, settings),
            Self::Node(node) => Ledger::connect(node, settings),
        }
    }

    /// To look at. Begins nothing; `None`: nothing was recorded yet.
    pub fn read(&self) -> Result<Option<LedgerReader>, OpenError> {
        let reader = match self {
            Self::File(path) => Ledger::open_read(path),
            Self::Node(node) => Ledger::connect_read(node),
        };
        match reader {
            Err(OpenError::Missing { .. }) => Ok(None),
            Err(OpenError::Connect(error)) if matches!(*error, ConnectError::NoChain { .. }) => Ok(None),
            other => other.map(Some),
        }
    }
}
