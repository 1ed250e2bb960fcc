//! What was typed after `ringfence config`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the file and report every error with its place and fix
    Check {
        /// The file to check [default: $XDG_CONFIG_HOME/ringfence/config.toml]
        file: Option<PathBuf>,
    },
    /// Show the settings for approvals and the daemon, without secrets (`ringfence policy show` shows the policy)
    Show {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}
