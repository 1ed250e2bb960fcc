//! Arguments of `ringfence token`, `device` and `operator`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringfence_types::Scope;
use ringfence_types::units::HumanDuration;

#[derive(Debug, Subcommand)]
#[command(after_help = "\
A token is printed once; Ringfence stores only its digest. The owner of the state directory can always create another.

Examples:
  ringfence token create ci --scope run --workspace ~/src/app --expires 30d
  ringfence token create console --scope read,approve
  ringfence token list
  ringfence token revoke 3fa1")]
pub(crate) enum TokenCommand {
    /// Create a token
    Create(Box<TokenCreate>),
    /// List tokens, without secrets
    List {
        /// Also revoked and expired tokens
        #[arg(long)]
        all: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show a token, without its secret
    Show {
        /// The id or a unique prefix
        id: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token and all tokens created with it
    Revoke {
        /// The id or a unique prefix
        id: String,
    },
    /// Replace the secret of a token; the old secret becomes invalid
    Rotate {
        /// The id or a unique prefix
        id: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreate {
    /// Label for people
    pub(crate) label: String,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
    /// Lifetime: 12h, 30d
    #[arg(long, value_name = "TIME", default_value = "90d")]
    pub(crate) expires: HumanDuration,
    /// No expiry; the token ends when it is revoked
    #[arg(long, conflicts_with = "expires")]
    pub(crate) no_expiry: bool,
    /// The operator that owns it [default: you]
    #[arg(long, value_name = "NAME")]
    pub(crate) operator: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RightsArgs {
    /// Scopes: read, run, approve, pair, admin; none includes another
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    pub(crate) scopes: Vec<Scope>,
    /// Only this workspace and directories below it [default: all workspaces]
    #[arg(long = "workspace", value_name = "DIR")]
    pub(crate) workspaces: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
A device has its own key. An operator pairs it by typing the code that the device shows. Its token is valid for one hour;
the key gets new tokens for 90 days.

Examples:
  ringfence device pair phone --scope read,approve --out phone.json     (shows a code, waits)
  ringfence device approve 3fa1b-09c2d                                  (in another terminal)
  ringfence device refresh phone.json")]
pub(crate) enum DeviceCommand {
    /// Request pairing and wait for an operator
    Pair {
        /// Label of the device
        label: String,
        #[command(flatten)]
        rights: RightsArgs,
        /// New file for the key of the device, readable by you only
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// List devices and pending pairings
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Approve a pairing
    Approve {
        /// The code that the device shows
        code: String,
        /// Only these of the requested scopes
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
        scopes: Vec<Scope>,
    },
    /// Refuse a pairing
    Refuse {
        /// The code that the device shows
        code: String,
    },
    /// Print the next token of a device
    Refresh {
        /// The file of `device pair`
        file: PathBuf,
    },
    /// Revoke a device
    Revoke {
        /// The id or a unique prefix
        id: String,
    },
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Passwords are read from a prompt, or from standard input if it is not a terminal; never from the command line.

Examples:
  ringfence operator add ann --scope read,approve
  ringfence operator set-password ann
  pass show ringfence/ann | ringfence operator set-password ann")]
pub(crate) enum OperatorCommand {
    /// Add an operator
    Add {
        /// a-z, 0-9 and . _ - @
        name: String,
        #[command(flatten)]
        rights: RightsArgs,
        #[arg(hide = true)]
        typed: Vec<OsString>,
    },
    /// Set the password of an operator; web sessions of the operator end
    SetPassword {
        name: String,
        #[arg(hide = true)]
        typed: Vec<OsString>,
    },
    /// List operators
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove an operator and revoke all credentials of that operator
    Rm { name: String },
}
