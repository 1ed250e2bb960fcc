//! What was typed after `ringfence approvals`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use ringfence_types::units::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// The questions that wait for an answer
    List {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// One question, whole
    Show {
        /// Its id; a unique beginning is enough
        id: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Say yes to a question, after it was shown
    Approve(Box<Approve>),
    /// Say no to a question
    Deny {
        /// Its id; a unique beginning is enough
        id: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Wait for questions and answer them here
    Watch {
        /// One JSON object per line for each question and answer, without asking
        #[arg(long)]
        json: bool,
    },
    /// The stored answers that hold, and what they would have saved
    Grants {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Take stored answers back
    Revoke(Revoke),
}

#[derive(Debug, Args)]
#[command(after_help = "\
A yes takes a person at a terminal: the question is shown there, and one key confirms it (a whole word for what is risky).

Examples:
  ringfence approvals approve 3fa1
  ringfence approvals approve 3fa1 --session
  ringfence approvals approve 3fa1 --always=2 --expires 7d --uses 20
  ringfence approvals approve 3fa1 -- git push --dry-run     (this instead of what was asked)")]
pub(crate) struct Approve {
    /// Its id; a unique beginning is enough
    pub(crate) id: String,
    /// This time only (the default)
    #[arg(long, conflicts_with_all = ["session", "always"])]
    pub(crate) once: bool,
    /// The same for the rest of the session
    #[arg(long, conflicts_with = "always")]
    pub(crate) session: bool,
    /// Store the rule that the question offers, the Nth where there are several
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub(crate) always: Option<usize>,
    /// How long a stored answer holds: 12h, 7d
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<Duration>,
    /// How often a stored answer can be used
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) uses: Option<u32>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// What may run instead, once; it is judged like anything else
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["session", "always"])]
    pub(crate) instead: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The id of a stored answer; a unique beginning is enough
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) grant: Option<String>,
    /// All of them
    #[arg(long)]
    pub(crate) all: bool,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}
