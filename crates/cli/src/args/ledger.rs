//! `ringfence ledger …`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand, ValueEnum};
use ringfence_runtime::ledger::{Class, Kind, Timestamp};
use ringfence_types::{Bytes, units};

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Every decision and every effect is a record, written before it happens. Records form a chain: a changed, missing or
moved one is found by `verify`. Now and then the chain is signed; a signed checkpoint kept elsewhere shows whether
records were cut off the end or everything was replaced.

  ringfence ledger tail -f                        watch what happens
  ringfence ledger show tx_4f2a                   everything about one transaction
  ringfence ledger verify                         is the record whole?
  ringfence ledger checkpoint --out head.json     sign it, and keep the result elsewhere
  ringfence ledger verify --checkpoint head.json  is it still what was signed?")]
pub(crate) enum LedgerCommand {
    /// The newest records
    #[command(after_help = "\
Examples:
  ringfence ledger tail -n 50
  ringfence ledger tail -f --kind refused --kind settled
  ringfence ledger tail --session ses_81c0 --since 2h")]
    Tail {
        /// Wait for more and show it as it comes
        #[arg(short = 'f', long)]
        follow: bool,
        /// How many
        #[arg(short = 'n', long, default_value_t = 20)]
        count: u32,
        #[command(flatten)]
        wanted: Wanted,
        /// Only from then on: a time, a date, or how long ago (30m, 2h, 7d)
        #[arg(long, value_name = "TIME")]
        since: Option<Moment>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Everything about one record, transaction, session or grant
    Show {
        /// A sequence number or an id; a unique beginning is enough
        id: String,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Check the whole chain, its signatures, and the life of every transaction
    #[command(after_help = "\
Exit code: 0 it is whole, 1 it is not (the first flaw is named), 125 it cannot be checked.

Without anything from elsewhere `verify` sees every change inside the chain, but not that its end is missing or that
all of it was written anew. For that, give it what you noted earlier:
  ringfence ledger verify --head 812:5f0c…            a head that `verify` printed
  ringfence ledger verify --checkpoint head.json      a signed checkpoint, or an anchor file
  ringfence ledger verify --key 9b1d…                 the public key that must have signed
  ringfence ledger verify --proof proof.json --key 9b1d…   one record, without any ledger")]
    Verify(Box<Verify>),
    /// Prove that records are in the chain, for somebody who has only the public key
    #[command(
        after_help = "One JSON object per record; `ringfence ledger verify --proof FILE --key KEY` checks it."
    )]
    Prove {
        /// A sequence number or an id; a unique beginning is enough
        id: String,
    },
    /// Write records for another system to standard output
    #[command(after_help = "\
Examples:
  ringfence ledger export --format jsonl --since 2026-11-01 >ledger.jsonl
  ringfence ledger export --format ocsf --kind intent --kind refused
  ringfence ledger export --format cef --since 1h | logger")]
    Export {
        /// jsonl: as they are; ocsf: Open Cybersecurity Schema Framework; cef: Common Event Format
        #[arg(long, value_enum)]
        format: ExportFormat,
        #[command(flatten)]
        wanted: Wanted,
        /// Only from then on: a time, a date, or how long ago (30m, 2h, 7d)
        #[arg(long, value_name = "TIME")]
        since: Option<Moment>,
        /// Only before that
        #[arg(long, value_name = "TIME")]
        until: Option<Moment>,
    },
    /// How many records of which kind, how far they are signed, what is open
    Stats {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove what old records say; that they were there stays provable
    #[command(after_help = "\
What is open, pending or still in force is kept, and so is what the ledger says of itself. Everything is signed first,
and the pruning is a record, too.

Classes: activity (what was done), consent (questions, answers, grants, policy). Some rules ask for a year or more.

  ringfence ledger prune --older-than 90d --dry-run
  ringfence ledger prune --older-than 400d --class activity")]
    Prune {
        /// How old: 90d, 12h
        #[arg(long, value_name = "AGE")]
        older_than: Span,
        /// Only these classes; without it all that can be pruned
        #[arg(long = "class", value_name = "CLASS", value_parser = PossibleValuesParser::new(["activity", "consent"]).map(|word| class(&word)))]
        classes: Vec<Class>,
        /// Say how many it would be, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Sign everything up to now
    Checkpoint {
        /// Write the checkpoint to this file, for a place out of reach of whoever can write the ledger
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Let another key vouch from here on; the old one signs the hand-over
    RotateKey {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Set a broken chain aside, whole, and begin a new one that says so
    #[command(after_help = "\
A broken chain takes no records, so nothing is executed. Look first: `ringfence ledger verify` names the flaw. The
broken files are kept beside the ledger, and the new chain names them, you and your reason. In a database that several
nodes share, `--chain` accepts the chain of another node that was set aside without a signature of its key.")]
    Acknowledge {
        /// A chain of another node in the same database that was set aside
        #[arg(long, value_name = "CHAIN")]
        chain: Option<String>,
        /// Why it may go on
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// A head that was noted earlier (SEQ:HASH): shows whether records were cut off since
    #[arg(long, value_name = "SEQ:HASH")]
    pub(crate) head: Option<String>,
    /// A checkpoint that was kept elsewhere; of an anchor file the last line
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// The public key that must have signed, 64 hexadecimal digits
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) key: Option<String>,
    /// Check proofs instead of a ledger
    #[arg(long, value_name = "FILE", conflicts_with_all = ["head", "checkpoint", "file"])]
    pub(crate) proof: Option<PathBuf>,
    /// Another ledger file
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which records.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// Only this kind; may be given several times
    #[arg(long = "kind", value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::ALL.iter().map(|kind| kind.word())).try_map(|word| Kind::of_word(&word).ok_or(NoKind)))]
    pub(crate) kinds: Vec<Kind>,
    /// Only of this session; a unique beginning is enough
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("there is no such kind of record")]
struct NoKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Jsonl,
    Ocsf,
    Cef,
}

/// An age: what `units` knows, and days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) std::time::Duration);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an age like 30m, 12h or 90d", Bytes::from(.0.as_str()).display())]
pub(crate) struct SpanError(String);

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let wrong = || SpanError(text.to_owned());
        let milliseconds = match text.strip_suffix('d') {
            Some(days) => {
                days.parse::<u64>().ok().and_then(|days| days.checked_mul(86_400_000)).ok_or_else(wrong)?
            }
            None => text.parse::<units::Duration>().map_err(|_other| wrong())?.0,
        };
        Ok(Self(std::time::Duration::from_millis(milliseconds)))
    }
}

impl Span {
    /// That long ago.
    pub(crate) fn ago(self) -> Timestamp {
        Timestamp::now().checked_sub(self.0).unwrap_or(Timestamp::MIN)
    }
}

/// A point in time, however it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) Timestamp);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a time like 2026-11-15T08:00:00Z, a date like 2026-11-15 (UTC), or an age like 2h or 7d",
    Bytes::from(.0.as_str()).display()
)]
pub(crate) struct MomentError(String);

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        if let Ok(span) = text.parse::<Span>() {
            return Ok(Self(span.ago()));
        }
        let whole = text.parse().or_else(|_date| format!("{text}T00:00:00Z").parse());
        whole.map(Self).map_err(|_neither| MomentError(text.to_owned()))
    }
}

fn class(word: &str) -> Class {
    if word == "consent" { Class::Consent } else { Class::Activity }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a public key is 64 hexadecimal digits, as `ringfence ledger verify` prints it")]
struct NoKey;

fn key(text: &str) -> Result<String, NoKey> {
    let is_key = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key.then(|| text.to_ascii_lowercase()).ok_or(NoKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_moments() {
        assert_eq!("90d".parse::<Span>().unwrap().0.as_secs(), 90 * 86_400);
        assert_eq!("12h".parse::<Span>().unwrap().0.as_secs(), 12 * 3600);
        for bad in ["", "d", "-1d", "99999999999999999999d", "soon", "1w"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
        let midnight = "2026-11-15T00:00:00Z".parse::<Timestamp>().unwrap();
        assert_eq!("2026-11-15".parse(), Ok(Moment(midnight)));
        assert_eq!("2026-11-15T01:00:00+01:00".parse(), Ok(Moment(midnight)));
        let Moment(ago) = "1h".parse().unwrap();
        assert!((3599..=3601).contains(&(Timestamp::now().as_second() - ago.as_second())));
        assert_eq!("1000000000d".parse::<Span>().unwrap().ago(), Timestamp::MIN);
    }
}
