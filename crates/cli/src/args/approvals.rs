//! Arguments of `ringfence approvals` and `ringfence grants`.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use ringfence_types::units::HumanDuration;

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List pending approvals
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show one approval
    Show {
        /// The id or a unique prefix
        id: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Approve a request, after showing it
    Approve(Box<ApproveArgs>),
    /// Deny a request
    Deny {
        /// The id or a unique prefix
        id: String,
        /// The reason, for the record
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Wait for approval requests and answer them here
    Watch {
        /// Print one JSON object per request and answer, without asking
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// List active grants and how many past requests each would have answered
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Revoke grants
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Approving needs a terminal. It shows the request, and one key confirms it; a risky request needs a whole word.

Examples:
  ringfence approvals approve 3fa1
  ringfence approvals approve 3fa1 --session
  ringfence approvals approve 3fa1 --always=2 --expires 7d --uses 20
  ringfence approvals approve 3fa1 --replace -- git push --dry-run")]
pub(crate) struct ApproveArgs {
    /// The id or a unique prefix
    pub(crate) id: String,
    /// Allow this call once (the default)
    #[arg(long, conflicts_with_all = ["session", "always"])]
    pub(crate) once: bool,
    /// Allow the same action for the rest of the session
    #[arg(long, conflicts_with = "always")]
    pub(crate) session: bool,
    /// Store the Nth offered grant [default: the first]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub(crate) always: Option<usize>,
    /// Lifetime of the grant: 12h, 7d
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<HumanDuration>,
    /// Number of uses of the grant
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) uses: Option<u32>,
    /// The reason, for the record
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Run CMD instead, once; policy evaluates it as any other command
    #[arg(long, requires = "replacement", conflicts_with_all = ["session", "always"])]
    pub(crate) replace: bool,
    /// The replacement, with --replace
    #[arg(last = true, value_name = "CMD", requires = "replace")]
    pub(crate) replacement: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The id of a grant or a unique prefix
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) grant: Option<String>,
    /// Revoke all grants
    #[arg(long)]
    pub(crate) all: bool,
    /// The reason, for the record
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}
