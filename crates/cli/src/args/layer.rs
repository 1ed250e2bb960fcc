//! `ringfence try`, `changes`, `commit`, `discard` and `undo`.

use std::path::PathBuf;

use clap::Args;

use super::{PolicyArgs, RunArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
The command sees its own changes; the workspace stays as it is. Also protected files (.git/hooks, .git/config, agent and
editor settings) can be written in the view; they land only after an approval. At a terminal you are asked what to do at
the end. Takes the options of `run`; needs the backend `native`.

Exit code: the command's own; 124 timed out, 125 Ringfence failed, 126 refused, 127 not found, 128+n died by signal n.

Examples:
  ringfence try -- make format
  ringfence try -- npm install
  ringfence changes --patch
  ringfence commit")]
pub(crate) struct TryArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ringfence changes                     the newest layer of this workspace
  ringfence changes tx_1f --patch
  ringfence changes --all --json        every layer")]
pub(crate) struct ChangesArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    /// The layer or a unique prefix [default: the newest of this workspace]
    pub(crate) id: Option<String>,
    /// Print a unified diff; what a terminal would interpret is escaped
    #[arg(long, short)]
    pub(crate) patch: bool,
    /// List the layers of every workspace
    #[arg(long, conflicts_with_all = ["id", "patch"])]
    pub(crate) all: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "patch")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A file that the host has changed meanwhile is left alone, and both versions are kept. Protected and hidden names, and
what looks like a secret, need an approval.

Exit code: 0 everything landed; 126 refused, or a file was left alone; 125 Ringfence failed.

Examples:
  ringfence commit                      everything of the newest layer of this workspace
  ringfence commit tx_1f src docs/a.md
  ringfence commit --except .git/hooks")]
pub(crate) struct CommitArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    /// The layer or a unique prefix [default: the newest of this workspace], then files and directories to land
    /// [default: everything]
    #[arg(value_name = "ID|PATH")]
    pub(crate) words: Vec<PathBuf>,
    /// Leave out this file or directory
    #[arg(long, value_name = "PATH")]
    pub(crate) except: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DiscardArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    /// The layer or a unique prefix [default: the newest of this workspace]
    pub(crate) id: Option<String>,
    /// Remove the layer with all that is in it: what an undo needs, and versions of your files that are kept aside
    #[arg(long, requires = "id")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Files, permissions, links and deletions are as before the landing. If something has changed since, nothing is taken back.
What was taken back waits again, and can be committed again.

Exit code: 0 taken back; 126 refused; 125 Ringfence failed.")]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    /// The layer or a unique prefix [default: the newest that landed in this workspace]
    pub(crate) id: Option<String>,
    /// Also what has changed since; the present version is kept aside
    #[arg(long)]
    pub(crate) force: bool,
}
