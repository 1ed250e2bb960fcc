//! `ringfence ledger`: reading, verifying and keeping the record.

mod export;
mod keep;
mod noted;
mod prove;
mod show;
mod stats;
mod tail;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_runtime::ledger::{
    Ledger, LedgerReader, Listed, Location, OpenError, ReadError, Settings, SettingsError, summary,
};
use ringfence_types::Bytes;

use crate::approval::{self, Need};
use crate::args::LedgerCommand;
use crate::environment::Environment;
use crate::error;
use crate::host::{self, NoStateDir};

pub(crate) fn run(command: LedgerCommand) -> ExitCode {
    if changes(&command)
        && let Err(code) = approval::require(&Environment::read(), Need::Nothing, "change the ledger")
    {
        return code;
    }
    let place = match Place::find() {
        Ok(place) => place,
        Err(error) => return error::failed(&error, error.hint().as_deref()),
    };
    let done = match command {
        LedgerCommand::Tail { follow, count, wanted, since, json } => {
            let asked = tail::Asked { count, wanted, since: since.map(|moment| moment.0) };
            tail::run(&place, &asked, json.into(), if follow { tail::Then::Follow } else { tail::Then::Stop })
        }
        LedgerCommand::Show { id, json } => show::run(&place, &id, json.into()),
        LedgerCommand::Verify(asked) => verify::run(&place, &asked),
        LedgerCommand::Prove { id } => prove::run(&place, &id),
        LedgerCommand::Export { format, wanted, since, until } => {
            export::run(&place, format, &export::Asked { wanted, since, until })
        }
        LedgerCommand::Stats { json } => stats::run(&place, json.into()),
        LedgerCommand::Prune { older_than, classes, dry_run, json } => {
            let effect = if dry_run { keep::Effect::Tell } else { keep::Effect::Do };
            keep::prune(&place, older_than, (classes, effect), json.into())
        }
        LedgerCommand::Checkpoint { out, json } => keep::checkpoint(&place, out.as_deref(), json.into()),
        LedgerCommand::RotateKey { json } => keep::rotate_key(&place, json.into()),
        LedgerCommand::Acknowledge { chain, reason, json } => {
            keep::acknowledge(&place, chain.as_deref(), &reason, json.into())
        }
    };
    done.unwrap_or_else(|error| error::failed(&error, error.hint().as_deref()))
}

/// Whether it does something to the ledger that only an operator does.
fn changes(command: &LedgerCommand) -> bool {
    match command {
        LedgerCommand::Prune { dry_run, .. } => !dry_run,
        LedgerCommand::Checkpoint { .. }
        | LedgerCommand::RotateKey { .. }
        | LedgerCommand::Acknowledge { .. } => true,
        LedgerCommand::Tail { .. }
        | LedgerCommand::Show { .. }
        | LedgerCommand::Verify(_)
        | LedgerCommand::Prove { .. }
        | LedgerCommand::Export { .. }
        | LedgerCommand::Stats { .. } => false,
    }
}

/// Where the ledger is and how it is kept.
struct Place {
    location: Location,
    settings: Settings,
}

impl Place {
    fn find() -> Result<Self, LedgerError> {
        let environment = Environment::read();
        let state = host::state_dir(&environment)?;
        let config = environment.config_dir.clone().map(|config| config.join("ringfence"));
        let settings = Settings::load(&config.unwrap_or_else(|| state.clone()).join("ledger.toml"))?;
        Ok(Self { location: Location::of(&state, &settings)?, settings })
    }

    fn reader(&self) -> Result<LedgerReader, OpenError> {
        self.location.read()?.ok_or_else(|| self.missing())
    }

    /// Only where there is one: nothing that reads makes a ledger.
    fn ledger(&self) -> Result<Ledger, OpenError> {
        self.reader()?;
        self.location.open(self.settings.clone())
    }

    fn missing(&self) -> OpenError {
        let path = match &self.location {
            Location::File(path) => path.clone(),
            Location::Node(node) => PathBuf::from(node.address().to_string()),
        };
        OpenError::Missing { path }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

impl From<bool> for Form {
    /// By the flag `--json`.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
enum LedgerError {
    #[error(transparent)]
    NoStateDir(#[from] NoStateDir),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Append(#[from] ringfence_runtime::ledger::AppendError),
    #[error(transparent)]
    Prune(#[from] ringfence_runtime::ledger::PruneError),
    #[error(transparent)]
    Head(#[from] ringfence_runtime::ledger::HeadSyntax),
    #[error("cannot read `{}`", Bytes::from(path.as_path()).display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot write `{}`", Bytes::from(path.as_path()).display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("`{}` holds no {what}", Bytes::from(path.as_path()).display())]
    Content { path: PathBuf, what: &'static str, source: serde_json::Error },
    #[error("a reason is needed")]
    NoReason,
    #[error("`--chain` is for a database that several nodes share; a file has one chain")]
    OneChain,
}

impl LedgerError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Open(OpenError::Missing { .. }) => {
                Some("nothing was recorded yet; `ringfence run -- CMD` makes the first records".to_owned())
            }
            Self::Open(error) => error.hint(),
            Self::Settings(error) => Some(error.hint()),
            Self::Read(error) => error.hint().map(str::to_owned),
            Self::Append(error) => error.hint().map(str::to_owned),
            Self::Content { what: "checkpoint", .. } => {
                Some("`ringfence ledger checkpoint --out FILE` writes one".to_owned())
            }
            Self::Content { .. } => Some("`ringfence ledger prove ID >FILE` writes one".to_owned()),
            Self::NoReason => Some("say what happened and why it may go on".to_owned()),
            _ => None,
        }
    }
}

/// A record in one line. Everything in it that an agent wrote is escaped.
fn line(listed: &Listed) -> String {
    match listed {
        Listed::Whole(record) => {
            let kind = record.event.kind().word();
            let ids: Vec<&str> = record.event.ids().collect();
            let id = ids.first().copied().unwrap_or_default();
            format!("{:>6}  {}  {kind:<18} {} {}", record.seq, record.time, shown(id), summary(&record.event))
        }
        Listed::Pruned(pruned) => {
            let id = pruned.ids.first().map(String::as_str).unwrap_or_default();
            format!(
                "{:>6}  {}  {:<18} {} (pruned)",
                pruned.seq,
                shown(&pruned.time),
                shown(&pruned.kind),
                shown(id)
            )
        }
    }
}

fn shown(text: &str) -> String {
    Bytes::from(text).display()
}
