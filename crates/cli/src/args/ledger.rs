//! `ringfence ledger …`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand, ValueEnum};
use ringfence_ledger::{Kind, RetentionClass, Timestamp};
use ringfence_types::{ByteString, units};

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Ringfence records every decision and every effect, before it happens. Records form a hash chain: `verify` finds a
changed, missing or moved record. Checkpoints are signed heads of the chain. A checkpoint that you keep elsewhere shows
whether records were truncated or the whole chain was replaced.

  ringfence ledger tail -f                        follow new records
  ringfence ledger show tx_4f2a                   all records of one transaction
  ringfence ledger verify                         verify the chain
  ringfence ledger checkpoint --out head.json     sign the chain; keep the result elsewhere
  ringfence ledger verify --checkpoint head.json  verify that the chain contains the checkpoint")]
pub(crate) enum LedgerCommand {
    /// Show the newest records
    #[command(after_help = "\
Examples:
  ringfence ledger tail -n 50
  ringfence ledger tail -f --kind call-refused --kind call-settled
  ringfence ledger tail --session ses_81c0 --since 2h")]
    Tail {
        /// Wait for new records and print them
        #[arg(short = 'f', long)]
        follow: bool,
        /// Number of records
        #[arg(short = 'n', long, default_value_t = 20)]
        count: u32,
        #[command(flatten)]
        wanted: RecordFilterArgs,
        /// Only records since this time: a time, a date, or an age (30m, 2h, 7d)
        #[arg(long, value_name = "TIME")]
        since: Option<TimeArg>,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show a record, or all records of a transaction, session or grant
    Show {
        /// A sequence number or an id or a unique prefix
        id: String,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Verify the chain, its signatures and the order of every transaction
    #[command(after_help = "\
Exit code: 0 valid, 1 broken (names the first flaw), 125 it could not be checked.

Alone, `verify` finds every change inside the chain, but not that its end is missing or that all of it was replaced.
For that, pass what you kept elsewhere:
  ringfence ledger verify --head 812:5f0c…            a head that `verify` printed
  ringfence ledger verify --checkpoint head.json      a signed checkpoint, or an anchor file
  ringfence ledger verify --key 9b1d…                 the public key that must have signed
  ringfence ledger verify --proof proof.json --key 9b1d…   one record, without any ledger")]
    Verify(Box<VerifyArgs>),
    /// Print inclusion proofs, which can be verified with the public key alone
    #[command(
        after_help = "One JSON object per record; `ringfence ledger verify --proof FILE --key KEY` checks it."
    )]
    Prove {
        /// A sequence number or an id or a unique prefix
        id: String,
    },
    /// Export records to standard output
    #[command(after_help = "\
Examples:
  ringfence ledger export --format jsonl --since 2026-11-01 >ledger.jsonl
  ringfence ledger export --format ocsf --kind call-intended --kind call-refused
  ringfence ledger export --format cef --since 1h | logger")]
    Export {
        /// jsonl: JSON lines; ocsf: Open Cybersecurity Schema Framework; cef: Common Event Format
        #[arg(long, value_enum)]
        format: ExportFormat,
        #[command(flatten)]
        wanted: RecordFilterArgs,
        /// Only records since this time: a time, a date, or an age (30m, 2h, 7d)
        #[arg(long, value_name = "TIME")]
        since: Option<TimeArg>,
        /// Only records before this time
        #[arg(long, value_name = "TIME")]
        until: Option<TimeArg>,
    },
    /// Count records by kind; show signed and open records
    Stats {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove the content of old records; the chain stays verifiable
    #[command(after_help = "\
Open transactions, pending approvals, active grants and records about the ledger itself are kept. Ringfence signs the
chain first and records the pruning.

Classes: activity (calls and effects), consent (approvals, grants, policy). Some regulations require a year or more.

  ringfence ledger prune --older-than 90d --dry-run
  ringfence ledger prune --older-than 400d --class activity")]
    Prune {
        /// Minimum age: 90d, 12h
        #[arg(long, value_name = "AGE")]
        older_than: AgeArg,
        /// Only these classes [default: all that can be pruned]
        #[arg(long = "class", value_name = "CLASS", value_parser = PossibleValuesParser::new(["activity", "consent"]).map(|word| class(&word)))]
        classes: Vec<RetentionClass>,
        /// Print the number of records and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Sign the chain up to now
    Checkpoint {
        /// Write the checkpoint to this file; keep it where the writers of the ledger cannot change it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Replace the signing key; the old key signs the change
    RotateKey {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Archive a broken chain and start a new one
    #[command(after_help = "\
A broken chain takes no records, so nothing is executed. First run `ringfence ledger verify`, which names the flaw. The
broken files stay next to the ledger. The new chain records their name, you and your reason.")]
    Restart {
        /// The reason, for the record
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Accept the chain of another node that was archived without a signature of its key
    #[command(after_help = "For a database that several nodes share (docs/postgres.md).")]
    Acknowledge {
        /// The chain
        chain: String,
        /// The reason, for the record
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// An earlier head (SEQ:HASH); finds records that were truncated since
    #[arg(long, value_name = "SEQ:HASH")]
    pub(crate) head: Option<String>,
    /// A checkpoint that was kept elsewhere, or an anchor file (its last line counts)
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// The public key that must have signed (64 hexadecimal digits)
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) key: Option<String>,
    /// Verify inclusion proofs instead of a ledger
    #[arg(long, value_name = "FILE", conflicts_with_all = ["head", "checkpoint", "file"])]
    pub(crate) proof: Option<PathBuf>,
    /// Another ledger file
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which records.
#[derive(Debug, Args)]
pub(crate) struct RecordFilterArgs {
    /// Only records of this kind; repeatable
    #[arg(long = "kind", value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::ALL.iter().map(|kind| kind.word())).try_map(|word| Kind::of_word(&word).ok_or(UnknownEventKind)))]
    pub(crate) kinds: Vec<Kind>,
    /// Only records of this session (id or a unique prefix)
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("unknown kind of record")]
struct UnknownEventKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Jsonl,
    Ocsf,
    Cef,
}

/// An age: what `units` knows, and days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AgeArg(pub(crate) std::time::Duration);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an age like 30m, 12h or 90d", ByteString::from(.0.as_str()).display())]
pub(crate) struct AgeArgError(String);

impl FromStr for AgeArg {
    type Err = AgeArgError;

    fn from_str(text: &str) -> Result<Self, AgeArgError> {
        let wrong = || AgeArgError(text.to_owned());
        let milliseconds = match text.strip_suffix('d') {
            Some(days) => {
                days.parse::<u64>().ok().and_then(|days| days.checked_mul(86_400_000)).ok_or_else(wrong)?
            }
            None => text.parse::<units::HumanDuration>().map_err(|_other| wrong())?.0,
        };
        Ok(Self(std::time::Duration::from_millis(milliseconds)))
    }
}

impl AgeArg {
    /// That long ago.
    pub(crate) fn ago(self) -> Timestamp {
        Timestamp::now().checked_sub(self.0).unwrap_or(Timestamp::MIN)
    }
}

/// A point in time, however it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeArg(pub(crate) Timestamp);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a time like 2026-11-15T08:00:00Z, a date like 2026-11-15 (UTC), or an age like 2h or 7d",
    ByteString::from(.0.as_str()).display()
)]
pub(crate) struct TimeArgError(String);

impl FromStr for TimeArg {
    type Err = TimeArgError;

    fn from_str(text: &str) -> Result<Self, TimeArgError> {
        if let Ok(span) = text.parse::<AgeArg>() {
            return Ok(Self(span.ago()));
        }
        let whole = text.parse().or_else(|_date| format!("{text}T00:00:00Z").parse());
        whole.map(Self).map_err(|_neither| TimeArgError(text.to_owned()))
    }
}

fn class(word: &str) -> RetentionClass {
    if word == "consent" { RetentionClass::Consent } else { RetentionClass::Activity }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a public key is 64 hexadecimal digits, as `ringfence ledger verify` prints it")]
struct InvalidPublicKey;

fn key(text: &str) -> Result<String, InvalidPublicKey> {
    let is_key = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key.then(|| text.to_ascii_lowercase()).ok_or(InvalidPublicKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_moments() {
        assert_eq!("90d".parse::<AgeArg>().unwrap().0.as_secs(), 90 * 86_400);
        assert_eq!("12h".parse::<AgeArg>().unwrap().0.as_secs(), 12 * 3600);
        for bad in ["", "d", "-1d", "99999999999999999999d", "soon", "1w"] {
            assert!(bad.parse::<AgeArg>().is_err(), "{bad}");
            assert!(bad.parse::<TimeArg>().is_err(), "{bad}");
        }
        let midnight = "2026-11-15T00:00:00Z".parse::<Timestamp>().unwrap();
        assert_eq!("2026-11-15".parse(), Ok(TimeArg(midnight)));
        assert_eq!("2026-11-15T01:00:00+01:00".parse(), Ok(TimeArg(midnight)));
        let TimeArg(ago) = "1h".parse().unwrap();
        assert!((3599..=3601).contains(&(Timestamp::now().as_second() - ago.as_second())));
        assert_eq!("1000000000d".parse::<AgeArg>().unwrap().ago(), Timestamp::MIN);
    }
}
