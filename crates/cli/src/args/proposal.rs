//! `ringfence proposal`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::PolicyArgs;

#[derive(Debug, Subcommand)]
#[command(after_help = "\
An agent with profile `review` writes nothing. It submits its changes as a proposal, and an operator decides:
  git diff | ringfence proposal create --profile review --title 'fix the parser'
  ringfence proposal list
  ringfence proposal diff tx_1f
  ringfence proposal apply tx_1f        all files or none, if they have not changed since
  ringfence proposal discard tx_1f")]
pub(crate) enum ProposalCommand {
    /// Submit changes without applying them: a unified diff, or with `--file` a whole file, on standard input
    Create(Box<ProposalCreateArgs>),
    /// List open proposals
    List {
        /// Also applied, refused and discarded proposals
        #[arg(long)]
        all: bool,
        /// Only proposals for this workspace
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show a proposal: files, findings, author and state
    Show {
        /// The proposal or a unique prefix
        id: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print a proposal as a unified diff against its base files
    Diff {
        /// The proposal or a unique prefix
        id: String,
        /// Print the exact bytes instead of escaping everything but plain text
        #[arg(long)]
        raw: bool,
    },
    /// Apply a proposal: all files or none
    #[command(after_help = "\
Nothing is merged: every file must be exactly the base of the proposal. Protected paths are refused. Added secrets need
an approval. After an interruption the next `ringfence` finishes or reverts the change.

Exit code: 0 applied; 126 refused, or a file has changed since (the proposal stays open); 125 Ringfence failed.")]
    Apply {
        #[command(flatten)]
        place: PolicyArgs,
        /// The proposal or a unique prefix
        id: String,
    },
    /// Discard a proposal and delete its contents
    Discard {
        /// The proposal or a unique prefix
        id: String,
        /// The reason, for the record
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
The workspace is only read. A change that policy denies is refused now, and again when it is applied. The diff must match
the current files exactly. Prints the id of the proposal.

Examples:
  git diff --no-renames | ringfence proposal create --profile review --title 'fix the parser'
  diff -u old/main.c main.c | sed 's,old/,,' | ringfence proposal create
  ringfence proposal create --file src/new.rs < new.rs")]
pub(crate) struct ProposalCreateArgs {
    #[command(flatten)]
    pub(crate) place: PolicyArgs,
    /// Title, for the operator
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Read the new content of this file from standard input instead of a diff
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
