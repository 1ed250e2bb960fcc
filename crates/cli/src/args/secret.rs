//! Arguments of `ringfence secret`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringfence_runtime::secrets::SecretName;
use ringfence_types::{CredentialLocation, Delivery, SecretClass};

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Values are read from a prompt, or from standard input if it is not a terminal; never from the command line. No command
shows a value again.

Examples:
  ringfence secret set github-token                        (asks for the value)
  pass show gh | ringfence secret set github-token --workspace .
  ringfence secret set OPENAI_API_KEY --class provider --host api.openai.com
  ringfence secret import-env NPM_TOKEN --deliver env
  ringfence run --secret github-token -- sh -c 'gh auth login --with-token < \"$GITHUB_TOKEN_FILE\"'")]
pub(crate) enum SecretCommand {
    /// Store a new secret
    Set {
        name: SecretName,
        #[command(flatten)]
        kind: SecretKindArgs,
        #[command(flatten)]
        scope: ScopeArgs,
        /// Variable that names the file or holds the value [default: NAME_FILE or NAME]
        #[arg(long, value_name = "VAR")]
        env_name: Option<String>,
        #[arg(hide = true)]
        typed: Vec<OsString>,
    },
    /// Store environment variables as secrets, all or none
    ImportEnv {
        #[command(flatten)]
        kind: SecretKindArgs,
        #[command(flatten)]
        scope: ScopeArgs,
        /// Variables; each becomes a secret of the same name
        #[arg(required = true, value_name = "VAR")]
        names: Vec<SecretName>,
    },
    /// Replace the value of a secret
    Rotate {
        name: SecretName,
        #[command(flatten)]
        scope: ScopeArgs,
        #[arg(hide = true)]
        typed: Vec<OsString>,
    },
    /// Remove a secret
    Rm {
        name: SecretName,
        #[command(flatten)]
        scope: ScopeArgs,
    },
    /// List secrets, without values
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show a secret, without its value
    Show {
        name: SecretName,
        #[command(flatten)]
        scope: ScopeArgs,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SecretKindArgs {
    /// provider: never enters a sandbox; tool: may enter one
    #[arg(long, value_name = "CLASS", default_value = "tool")]
    pub(crate) class: SecretClass,
    /// Delivery of a tool secret: file (the default), env (every program inside can read it) or proxy-only
    #[arg(long, value_name = "HOW")]
    pub(crate) deliver: Option<Delivery>,
    /// Host to which the proxy may send it
    #[arg(long = "host", value_name = "HOST[:PORT]")]
    pub(crate) hosts: Vec<String>,
    /// Where the proxy puts it in a request [default: the usual location for its host]
    #[arg(long = "credential-location", value_name = "header:NAME|query:NAME")]
    pub(crate) credential_locations: Vec<CredentialLocation>,
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
