//! `ringfence tx`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Place;

#[derive(Debug, Subcommand)]
#[command(after_help = "\
An agent under profile `review` writes nothing. It hands its changes in, and you decide:
  git diff | ringfence tx propose --profile review --title 'fix the parser'
  ringfence tx list
  ringfence tx diff tx_1f
  ringfence tx apply tx_1f        all of it or nothing, if the files are still what it was made for
  ringfence tx discard tx_1f")]
pub(crate) enum TxCommand {
    /// Hand changes in without making them: a unified diff, or a whole file with `--file`, on standard input
    Propose(Box<Propose>),
    /// What was proposed and is open
    List {
        /// What was applied, refused or discarded as well
        #[arg(long)]
        all: bool,
        /// Only what is for this workspace
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// One proposal: its files, what was found in it, who made it, what became of it
    Show {
        /// The proposal; a unique beginning is enough
        id: String,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// One proposal as a unified diff against the files it was made for
    Diff {
        /// The proposal; a unique beginning is enough
        id: String,
        /// The exact bytes; everything else than plain text is escaped otherwise
        #[arg(long)]
        raw: bool,
    },
    /// Make the changes: all of them, or none
    #[command(after_help = "\
Nothing is merged and nothing is searched for: every file must be exactly what the proposal was made for, and becomes
exactly what it says. Protected paths are refused, secrets that come in are asked about. If it is cut off, the next
`ringfence` finishes or undoes it.

Exit code: 0 applied; 126 refused, or the files are not what they were (it stays open); 125 Ringfence failed.")]
    Apply {
        #[command(flatten)]
        place: Place,
        /// The proposal; a unique beginning is enough
        id: String,
    },
    /// Close a proposal that will not be applied, and forget its contents
    Discard {
        /// The proposal; a unique beginning is enough
        id: String,
        /// Why, for the record
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
The workspace is read and not written. What may not be written is refused now, and again when it is applied. The diff must
fit the files as they are, to the byte. Prints the id of the proposal.

Examples:
  git diff --no-renames | ringfence tx propose --profile review --title 'fix the parser'
  diff -u old/main.c main.c | sed 's,old/,,' | ringfence tx propose
  ringfence tx propose --file src/new.rs < new.rs")]
pub(crate) struct Propose {
    #[command(flatten)]
    pub(crate) place: Place,
    /// What it is about, for whoever looks at it
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Standard input is the whole of this file instead of a diff
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
