//! Landings: changes of a layer on their way into the roots, or back out of them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::workspace::words;
use crate::{ByteString, EntryKind, IntroducedSecret, TransactionId, UnknownKeyword};

/// Changes of a layer that are brought into the roots, or taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// The layer: the transaction of the command that worked on it.
    pub layer: TransactionId,
    pub action: LandingAction,
    /// Sorted by path; no path twice.
    pub entries: Vec<LandedEntry>,
}

words! {
    /// Where the changes of a layer go.
    LandingAction("landing action") {
        /// Into the roots.
        Commit = "commit",
        /// Out of the roots, if nothing has changed since.
        Undo = "undo",
        /// Out of the roots. What has changed since is kept in the layer.
        ForcedUndo = "forced-undo",
    }
}

impl Landing {
    /// The limit of entries in one landing: its record in the ledger has all of them.
    pub const MOST: usize = 100_000;

    /// Bytes that arrive.
    pub fn bytes(&self) -> u64 {
        let states = self.entries.iter().filter_map(|entry| entry.after.as_ref());
        states.fold(0, |sum: u64, state| sum.saturating_add(state.bytes))
    }
}

/// One path before and after. At least one of the states is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandedEntry {
    /// Absolute.
    pub path: ByteString,
    /// `None`: nothing is there.
    pub before: Option<LandedState>,
    /// `None`: it is removed.
    pub after: Option<LandedState>,
    /// Where git would take a directory above for a repository that is not called `.git`: that directory, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<ByteString>,
    /// Findings in the content that arrives which the content before does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<IntroducedSecret>,
}

/// A path of a landing that was left as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlandedEntry {
    pub path: ByteString,
    pub reason: String,
}

/// A file, directory or symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandedState {
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// SHA-256 of the content, or of the target of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    pub bytes: u64,
}
