//! One thing that would make a program of the host execute what came from inside.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What a finding is recognised by later: its place and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Print([u8; 16]);

impl Print {
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let mut print = [0; 16];
        print.iter_mut().zip(digest.finalize()).for_each(|(byte, digest)| *byte = digest);
        Self(print)
    }
}

/// Findings that were there before anything ran: the host's own.
pub(super) type Accepted = BTreeSet<Print>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    /// Of the root.
    pub(super) ground: usize,
    /// From the root.
    pub(super) directory: PathBuf,
    pub(super) name: OsString,
    pub(super) kind: FindingKind,
    pub(super) print: Print,
}

impl Finding {
    pub(super) fn place(&self) -> (usize, PathBuf, OsString) {
        (self.ground, self.directory.clone(), self.name.clone())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FindingKind {
    /// A setting of the configuration `name`.
    Setting { name: String },
    /// `name` as a whole.
    Entry(Reason),
    /// A directory that cannot be listed.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    UnreadableConfig,
    Hook,
    CommonDir,
    GitFile,
    GitLink,
    LegacyRemote,
    Alternates,
    Attributes,
    Link,
    OtherSystem,
    SubversionHook,
    RebaseCommand,
}

impl FindingKind {
    pub(super) fn rule(&self) -> &'static str {
        match self {
            Self::Setting { .. } | Self::Entry(Reason::UnreadableConfig) => "held.git-config",
            Self::Entry(Reason::Hook) => "held.git-hook",
            Self::Entry(Reason::CommonDir | Reason::GitFile | Reason::GitLink) => "held.git-pointer",
            Self::Entry(Reason::LegacyRemote | Reason::Alternates) => "held.git-remote",
            Self::Entry(Reason::Attributes) => "held.git-attributes",
            Self::Entry(Reason::RebaseCommand) => "held.git-rebase",
            Self::Entry(Reason::Link) => "held.link",
            Self::Entry(Reason::OtherSystem | Reason::SubversionHook) => "held.version-control",
            Self::Closed => "held.closed-directory",
        }
    }

    pub(super) fn what(&self) -> String {
        let text = match self {
            Self::Setting { name } => {
                return format!("the setting `{name}` is not one that executes nothing");
            }
            Self::Entry(Reason::UnreadableConfig) => "it is no git configuration that can be read",
            Self::Entry(Reason::Hook) => "git would execute this hook",
            Self::Entry(Reason::CommonDir) => "it sends git to a configuration elsewhere",
            Self::Entry(Reason::GitFile) => {
                "it sends git to a repository outside the workspace or to one that is not its own"
            }
            Self::Entry(Reason::GitLink) => "a `.git` that is a link can lead git anywhere",
            Self::Entry(Reason::LegacyRemote) => "git would fetch and push where it says",
            Self::Entry(Reason::Alternates) => "it leads to objects in a place that only commands write",
            Self::Entry(Reason::Attributes) => {
                "it chooses which programs of your git configuration run on which files"
            }
            Self::Entry(Reason::Link) => {
                "the link leads to a place outside the workspace that only commands write"
            }
            Self::Entry(Reason::OtherSystem) => "version control would execute or obey what it says",
            Self::Entry(Reason::SubversionHook) => "Subversion would execute this hook",
            Self::Entry(Reason::RebaseCommand) => "`git rebase --continue` would execute commands in it",
            Self::Closed => "the directory could not be listed; it was made readable to be looked at",
        };
        text.to_owned()
    }
}
