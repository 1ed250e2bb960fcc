//! What was typed after `ringfence secret`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringfence_runtime::secrets::SecretName;
use ringfence_types::{Delivery, KeyPlace, SecretClass};

#[derive(Debug, Subcommand)]
#[command(after_help = "\
A value is read from a prompt, or from standard input where that is no terminal; never from the command line. No command
shows it again.

Examples:
  ringfence secret set github-token                        (asks for the value)
  pass show gh | ringfence secret set github-token --workspace .
  ringfence secret set OPENAI_API_KEY --class provider --host api.openai.com
  ringfence secret import-env NPM_TOKEN --deliver env
  ringfence run --secret github-token -- sh -c 'gh auth login --with-token < \"$GITHUB_TOKEN_FILE\"'")]
pub(crate) enum SecretCommand {
    /// Keep a new secret
    Set {
        name: SecretName,
        #[command(flatten)]
        kind: Kind,
        #[command(flatten)]
        scope: ScopeArgs,
        /// The variable that says where the file is, or holds the value (without it NAME_FILE or NAME)
        #[arg(long, value_name = "VAR")]
        env_name: Option<String>,
        #[arg(hide = true)]
        typed: Vec<OsString>,
    },
    /// Keep variables of the environment as secrets, all of them or none
    ImportEnv {
        #[command(flatten)]
        kind: Kind,
        #[command(flatten)]
        scope: ScopeArgs,
        /// The variables; each becomes a secret of the same name
        #[arg(required = true, value_name = "VAR")]
        names: Vec<SecretName>,
    },
    /// Replace the value of a secret; everything else about it stays
    Rotate {
        name: SecretName,
        #[command(flatten)]
        scope: ScopeArgs,
        #[arg(hide = true)]
        typed: Vec<OsString>,
    },
    /// Forget a secret
    Rm {
        name: SecretName,
        #[command(flatten)]
        scope: ScopeArgs,
    },
    /// What is kept, without the values
    List {
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Everything about one secret but its value
    ShowMeta {
        name: SecretName,
        #[command(flatten)]
        scope: ScopeArgs,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Kind {
    /// provider: never enters a sandbox; tool: may be given to one
    #[arg(long, value_name = "CLASS", default_value = "tool")]
    pub(crate) class: SecretClass,
    /// How a tool gets it: file (the default), env (every program inside can read it) or proxy-only
    #[arg(long, value_name = "HOW")]
    pub(crate) deliver: Option<Delivery>,
    /// Host that the proxy may send it to
    #[arg(long = "host", value_name = "HOST[:PORT]")]
    pub(crate) hosts: Vec<String>,
    /// Where in a request the proxy puts it, instead of where keys for its host usually are
    #[arg(long = "place", value_name = "header:NAME|query:NAME")]
    pub(crate) places: Vec<KeyPlace>,
}

#[derive(Debug, Args)]
pub(crate) struct ScopeArgs {
    /// Only for this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only for this workspace
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
}
