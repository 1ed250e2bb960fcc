//! What was typed after `ringfence token`, `device` and `operator`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringfence_types::Scope;
use ringfence_types::units::Duration;

#[derive(Debug, Subcommand)]
#[command(after_help = "\
A token is shown once, on standard output; what is kept is a digest of it. Whoever owns the state directory can always make
one, also when every other is lost.

Examples:
  ringfence token create ci --scope run --workspace ~/src/app --expires 30d
  ringfence token create console --scope read,approve
  ringfence token list
  ringfence token revoke 3fa1")]
pub(crate) enum TokenCommand {
    /// Make a token
    Create(Box<TokenCreate>),
    /// Every token, without its secret
    List {
        /// Also what was revoked or has expired
        #[arg(long)]
        all: bool,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Everything about one token but its secret
    Show {
        /// Its id; a unique beginning is enough
        id: String,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// End a token, and all that were made with it
    Revoke {
        /// Its id; a unique beginning is enough
        id: String,
    },
    /// Replace the secret of a token; the old one ends, everything else stays
    Rotate {
        /// Its id; a unique beginning is enough
        id: String,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreate {
    /// What it is for, in your words
    pub(crate) label: String,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
    /// After which it ends: 12h, 30d
    #[arg(long, value_name = "TIME", default_value = "90d")]
    pub(crate) expires: Duration,
    /// It ends only when it is revoked
    #[arg(long, conflicts_with = "expires")]
    pub(crate) no_expiry: bool,
    /// The operator that it is for; without it you
    #[arg(long, value_name = "NAME")]
    pub(crate) operator: Option<String>,
    /// One JSON object on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RightsArgs {
    /// What it may do: read, run, approve, pair, admin. None contains another
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_delimiter = ',')]
    pub(crate) scopes: Vec<Scope>,
    /// Only in this workspace and below it; without it in all
    #[arg(long = "workspace", value_name = "DIR")]
    pub(crate) workspaces: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
A device keeps a key, shows that it has it, and is let in by an operator who types the code that the device shows. Its token
lives for an hour; the key gets the next one, for 90 days.

Examples:
  ringfence device pair phone --scope read,approve --out phone.json     (shows a code, waits)
  ringfence device approve 3fa1b-09c2d                                  (in another terminal)
  ringfence device refresh phone.json")]
pub(crate) enum DeviceCommand {
    /// Ask to be let in as a device, and wait until an operator has answered
    Pair {
        /// What the device is called
        label: String,
        #[command(flatten)]
        rights: RightsArgs,
        /// New file for the key of the device; only you can read it
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Devices, and requests that wait for an operator
    List {
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Let a device in
    Approve {
        /// As the device shows it
        code: String,
        /// Only these of the scopes that it asks for
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
        scopes: Vec<Scope>,
    },
    /// Say no to a request
    Refuse {
        /// As the device shows it
        code: String,
    },
    /// The next token of a device
    Refresh {
        /// What `device pair` wrote
        file: PathBuf,
    },
    /// End a device
    Revoke {
        /// Its id; a unique beginning is enough
        id: String,
    },
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
A password is read from a prompt, or from standard input where that is no terminal; never from the command line.

Examples:
  ringfence operator add ann --scope read,approve
  ringfence operator passwd ann
  pass show ringfence/ann | ringfence operator passwd ann")]
pub(crate) enum OperatorCommand {
    /// A new operator
    Add {
        /// a-z, 0-9 and . _ - @
        name: String,
        #[command(flatten)]
        rights: RightsArgs,
        #[arg(hide = true)]
        typed: Vec<OsString>,
    },
    /// Another password; browsers that are signed in with the old one are signed out
    Passwd {
        name: String,
        #[arg(hide = true)]
        typed: Vec<OsString>,
    },
    /// Every operator
    List {
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
    /// Remove an operator, and revoke all that is theirs
    Rm { name: String },
}
