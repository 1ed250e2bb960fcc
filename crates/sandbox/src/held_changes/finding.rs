//! One thing that would make a program of the host execute what came from inside.

use ringfence_types::RuleId;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::survey::RootHandle;

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

    pub(super) fn bytes(self) -> [u8; 16] {
        self.0
    }
}

/// Findings that were there before anything ran: the host's own.
pub(super) type AcceptedPrints = BTreeSet<Print>;

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
    pub(super) fn path(&self, grounds: &[RootHandle]) -> PathBuf {
        let root = grounds.get(self.ground).map(|ground| ground.path.as_path()).unwrap_or(Path::new(""));
        root.join(&self.directory).join(&self.name)
    }

    /// What it takes in memory besides itself.
    pub(super) fn bytes(&self) -> usize {
        let setting = match &self.kind {
            FindingKind::Setting { name } => name.len(),
            FindingKind::Entry(_) | FindingKind::Closed => 0,
        };
        self.directory.as_os_str().len() + self.name.len() + setting
    }

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
    MergeStrategy,
    ApplyOptions,
    /// Options of a merge strategy.
    StrategyOptions,
    /// Text that older versions of git give to a shell.
    ShellText,
    /// Text where a prompt expects a number.
    Prompt,
    /// An option where git has written down a branch.
    StateOption,
    /// Refs that a rebase moves at its end.
    RebaseRefs,
    /// A ref that stands for a file that is no ref.
    SymbolicRef,
    /// Where a linked worktree is said to be.
    WorktreeLocation,
    Shortcut,
    /// A link in the directory of a version control system.
    InnerLink,
    /// A pipe or a device in the directory of a version control system.
    Pipe,
    /// An index whose paths git would not have put there.
    Index,
    /// A list of conflicts like that.
    Conflicts,
    /// A list of git's own files that names others.
    Names,
    /// A checkout in a git directory.
    InnerCheckout,
    /// A file that is trusted and has another name too.
    HardLink,
}

impl FindingKind {
    /// Whether an entry is found for the place it is in, whatever its name is.
    pub(super) fn is_of_place(&self) -> bool {
        matches!(self, Self::Entry(Reason::InnerLink | Reason::Pipe | Reason::HardLink))
    }

    pub(super) fn rule(&self) -> RuleId {
        match self {
            Self::Setting { .. } | Self::Entry(Reason::UnreadableConfig) => RuleId::HeldGitConfig,
            Self::Entry(Reason::Hook) => RuleId::HeldGitHook,
            Self::Entry(
                Reason::CommonDir
                | Reason::GitFile
                | Reason::GitLink
                | Reason::InnerCheckout
                | Reason::Shortcut
                | Reason::SymbolicRef
                | Reason::WorktreeLocation,
            ) => RuleId::HeldGitPointer,
            Self::Entry(Reason::Index | Reason::Conflicts | Reason::Names) => RuleId::HeldGitPath,
            Self::Entry(Reason::LegacyRemote | Reason::Alternates) => RuleId::HeldGitRemote,
            Self::Entry(Reason::Attributes) => RuleId::HeldGitAttributes,
            Self::Entry(
                Reason::RebaseCommand
                | Reason::MergeStrategy
                | Reason::ApplyOptions
                | Reason::StrategyOptions
                | Reason::StateOption
                | Reason::Prompt
                | Reason::RebaseRefs
                | Reason::ShellText,
            ) => RuleId::HeldGitRebase,
            Self::Entry(Reason::Link | Reason::InnerLink | Reason::Pipe | Reason::HardLink) => {
                RuleId::HeldLink
            }
            Self::Entry(Reason::OtherSystem | Reason::SubversionHook) => RuleId::HeldVersionControl,
            Self::Closed => RuleId::HeldClosedDirectory,
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
            Self::Entry(Reason::Alternates) => "it leads to objects outside the workspace",
            Self::Entry(Reason::Attributes) => {
                "it chooses which programs of your git configuration run on which files"
            }
            Self::Entry(Reason::Link) => {
                "the link leads to a place that only commands write, or that is closed to them"
            }
            Self::Entry(Reason::OtherSystem) => "version control would execute or obey what it says",
            Self::Entry(Reason::SubversionHook) => "Subversion would execute this hook",
            Self::Entry(Reason::RebaseCommand) => "`git rebase --continue` would execute commands in it",
            Self::Entry(Reason::MergeStrategy) => {
                "it names a program that git would merge with when it goes on"
            }
            Self::Entry(Reason::ApplyOptions) => {
                "with its options `git am` would write outside of the checkout when it goes on"
            }
            Self::Entry(Reason::StrategyOptions) => {
                "with its options a merge would write any file when `git rebase` goes on"
            }
            Self::Entry(Reason::ShellText) => "older versions of git would execute it in a shell",
            Self::Entry(Reason::Prompt) => "a shell whose prompt shows the state of git would execute it",
            Self::Entry(Reason::StateOption) => {
                "git would take it for an option when the operation ends, and read a file that it names"
            }
            Self::Entry(Reason::RebaseRefs) => {
                "`git rebase --continue` would write files of the git directory that are no refs"
            }
            Self::Entry(Reason::SymbolicRef) => {
                "git would write through it to a file of the git directory that is no ref"
            }
            Self::Entry(Reason::WorktreeLocation) => {
                "`git worktree repair` would write a `.git` file where it says, outside the workspace"
            }
            Self::Entry(Reason::Shortcut) => {
                "the link takes a part of a git directory out of what is looked through"
            }
            Self::Entry(Reason::InnerLink) => {
                "version control would read or write another file through this link in its directory"
            }
            Self::Entry(Reason::Pipe) => "version control would wait at this pipe or device in its directory",
            Self::Entry(Reason::Index) => {
                "its paths lead into a git directory or out of the checkout, and git would write there"
            }
            Self::Entry(Reason::Conflicts) => {
                "git would replace or copy files with these names, which are not for commands to change"
            }
            Self::Entry(Reason::Names) => "it names files elsewhere, which git would read or remove",
            Self::Entry(Reason::InnerCheckout) => "git would check files out into a git directory",
            Self::Entry(Reason::HardLink) => {
                "a program of the host could change it through its second name; it is a file of its own now"
            }
            Self::Closed => "the directory could not be listed; it was made readable to be looked at",
        };
        text.to_owned()
    }
}
