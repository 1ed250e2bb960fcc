//! What was typed after `ringfence config`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Is the file what a start would take? Every mistake with its place and what to write instead
    Check {
        /// Another file than `$XDG_CONFIG_HOME/ringfence/config.toml`
        file: Option<PathBuf>,
    },
    /// What it says about questions and the daemon, without secrets (`ringfence policy show` has the policy)
    Show {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}
