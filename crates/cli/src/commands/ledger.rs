//! `ringfence ledger`: reads, verifies and maintains the ledger.

mod audit_read;
mod export;
mod maintain;
mod prove;
mod show;
mod stats;
mod tail;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_ledger::{
    Ledger, LedgerLocation, LedgerOpenError, LedgerReadError, LedgerReader, LedgerSettings,
    LedgerSettingsError, RecordOrPruned, summary,
};
use ringfence_types::ByteString;

use crate::approval::{self, OperatorRequirement};
use crate::args::LedgerCommand;
use crate::environment::Environment;
use crate::error;
use crate::host::{self, NoStateDir};
use crate::output::OutputFormat;

pub(crate) fn run(command: LedgerCommand) -> ExitCode {
    if changes(&command)
        && let Err(code) =
            approval::require(&Environment::read(), OperatorRequirement::Nothing, "change the ledger")
    {
        return code;
    }
    let place = match LedgerSource::find() {
        Ok(place) => place,
        Err(error) => return error::failed(&error, error.hint().as_deref()),
    };
    let done = match command {
        LedgerCommand::Tail { follow, count, wanted, since, json } => {
            let asked = tail::TailOptions { count, wanted, since: since.map(|moment| moment.0) };
            tail::run(
                &place,
                &asked,
                json.into(),
                if follow { tail::FollowMode::Follow } else { tail::FollowMode::Stop },
            )
        }
        LedgerCommand::Show { id, json } => show::run(&place, &id, json.into()),
        LedgerCommand::Verify(asked) => verify::run(&place, &asked),
        LedgerCommand::Prove { id } => prove::run(&place, &id),
        LedgerCommand::Export { format, wanted, since, until } => {
            export::run(&place, format, &export::ExportOptions { wanted, since, until })
        }
        LedgerCommand::Stats { json } => stats::run(&place, json.into()),
        LedgerCommand::Prune { older_than, classes, dry_run, json } => {
            let effect = if dry_run { maintain::ApplyMode::Tell } else { maintain::ApplyMode::Do };
            maintain::prune(&place, older_than, classes, effect, json.into())
        }
        LedgerCommand::Checkpoint { out, json } => maintain::checkpoint(&place, out.as_deref(), json.into()),
        LedgerCommand::RotateKey { json } => maintain::rotate_key(&place, json.into()),
        LedgerCommand::Restart { reason, json } => maintain::restart(&place, &reason, json.into()),
        LedgerCommand::Acknowledge { chain, reason, json } => {
            maintain::acknowledge(&place, &chain, &reason, json.into())
        }
    };
    done.unwrap_or_else(|error| error::failed(&error, error.hint().as_deref()))
}

/// Whether the command changes the ledger and so needs an operator.
fn changes(command: &LedgerCommand) -> bool {
    match command {
        LedgerCommand::Prune { dry_run, .. } => !dry_run,
        LedgerCommand::Checkpoint { .. }
        | LedgerCommand::RotateKey { .. }
        | LedgerCommand::Restart { .. }
        | LedgerCommand::Acknowledge { .. } => true,
        LedgerCommand::Tail { .. }
        | LedgerCommand::Show { .. }
        | LedgerCommand::Verify(_)
        | LedgerCommand::Prove { .. }
        | LedgerCommand::Export { .. }
        | LedgerCommand::Stats { .. } => false,
    }
}

/// The location and settings of the ledger.
struct LedgerSource {
    location: LedgerLocation,
    settings: LedgerSettings,
}

impl LedgerSource {
    fn find() -> Result<Self, LedgerCommandError> {
        let environment = Environment::read();
        let state = host::state_dir(&environment)?;
        let config = environment.config_dir.clone().map(|config| config.join("ringfence"));
        let settings = LedgerSettings::load(&config.unwrap_or_else(|| state.clone()).join("ledger.toml"))?;
        Ok(Self { location: LedgerLocation::of(&state, &settings)?, settings })
    }

    fn reader(&self) -> Result<LedgerReader, LedgerOpenError> {
        self.location.read()?.ok_or_else(|| self.missing())
    }

    /// Opens an existing ledger only: reading must not create one.
    fn ledger(&self) -> Result<Ledger, LedgerOpenError> {
        self.reader()?;
        self.location.open(self.settings.clone())
    }

    fn missing(&self) -> LedgerOpenError {
        let path = match &self.location {
            LedgerLocation::File(path) => path.clone(),
            LedgerLocation::Node(node) => PathBuf::from(node.address().to_string()),
        };
        LedgerOpenError::Missing { path }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum LedgerCommandError {
    #[error(transparent)]
    NoStateDir(#[from] NoStateDir),
    #[error(transparent)]
    Settings(#[from] LedgerSettingsError),
    #[error(transparent)]
    Open(#[from] LedgerOpenError),
    #[error(transparent)]
    Read(#[from] LedgerReadError),
    #[error(transparent)]
    Append(#[from] ringfence_ledger::AppendError),
    #[error(transparent)]
    Prune(#[from] ringfence_ledger::PruneError),
    #[error(transparent)]
    Head(#[from] ringfence_ledger::ChainHeadSyntax),
    #[error("cannot read `{}`", ByteString::from(path.as_path()).display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot write `{}`", ByteString::from(path.as_path()).display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("`{}` holds no {what}", ByteString::from(path.as_path()).display())]
    Content { path: PathBuf, what: &'static str, source: serde_json::Error },
    #[error("`{}` is empty: nothing was proved", ByteString::from(path.as_path()).display())]
    NoProof { path: PathBuf },
    #[error("a reason is needed")]
    NoReason,
    #[error("`--chain` is for a database that several nodes share; a file has one chain")]
    OneChain,
}

impl LedgerCommandError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Open(LedgerOpenError::Missing { .. }) => {
                Some("nothing was recorded yet; `ringfence run -- CMD` makes the first records".to_owned())
            }
            Self::Open(error) => error.hint(),
            Self::Settings(error) => Some(error.hint()),
            Self::Read(error) => error.hint().map(str::to_owned),
            Self::Append(error) => error.hint().map(str::to_owned),
            Self::Content { what: "checkpoint", .. } => {
                Some("`ringfence ledger checkpoint --out FILE` writes one".to_owned())
            }
            Self::Content { .. } | Self::NoProof { .. } => {
                Some("`ringfence ledger prove ID >FILE` writes one".to_owned())
            }
            Self::NoReason => Some("state what happened and why the chain may be restarted".to_owned()),
            _ => None,
        }
    }
}

/// A record in one line. Text of an agent is escaped.
fn line(listed: &RecordOrPruned) -> String {
    match listed {
        RecordOrPruned::Whole(record) => {
            let kind = record.event.kind().word();
            let ids: Vec<&str> = record.event.ids().collect();
            let id = ids.first().copied().unwrap_or_default();
            format!("{:>6}  {}  {kind:<24} {} {}", record.seq, record.time, shown(id), summary(&record.event))
        }
        RecordOrPruned::Pruned(pruned) => {
            let id = pruned.ids.first().map(String::as_str).unwrap_or_default();
            format!(
                "{:>6}  {}  {:<24} {} (pruned)",
                pruned.seq,
                shown(&pruned.time),
                shown(&pruned.kind),
                shown(id)
            )
        }
    }
}

fn shown(text: &str) -> String {
    ByteString::from(text).display()
}
