//! `ringfence scan`: finds credentials in files, directories, standard input and git changes.

mod diff;
mod files;
mod line_map;
mod report;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use ringfence_scan::rules::{self, BadExample, RuleError};
use ringfence_scan::{Allowlist, AllowlistError, FingerprintSalt, Scanner};
use ringfence_types::ByteString;
use thiserror::Error;

use crate::args::ScanArgs;
use crate::error;
use crate::output::note;
use report::ScanReporter;

/// At least one finding.
const FOUND: u8 = 1;

#[derive(Debug, Error)]
enum ScanError {
    #[error("cannot read `{}`", ByteString::from(.path.as_path()).display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot read standard input")]
    Input(#[source] io::Error),
    #[error("cannot use the allowlist `{}`", ByteString::from(.path.as_path()).display())]
    Allowlist { path: PathBuf, source: AllowlistError },
    #[error("cannot use the rules in `{}`", ByteString::from(.path.as_path()).display())]
    Rules { path: PathBuf, source: RuleError },
    #[error("the rules in `{}` do not keep their promises", ByteString::from(.path.as_path()).display())]
    Examples { path: PathBuf, source: BadExample },
    #[error("`{}` is not a range of commits", ByteString::from(.0.as_str()).display())]
    Range(String),
    #[error("cannot run git")]
    Git(#[source] io::Error),
    #[error("git failed: {0}")]
    GitSaid(String),
    #[error("no randomness")]
    Random(#[source] getrandom::Error),
}

/// The scanner and allowlist for every file.
struct ScanSettings {
    scanner: Scanner,
    allowlist: Option<Allowlist>,
    today: Date,
}

pub(crate) fn run(scan: ScanArgs) -> ExitCode {
    match scanned(&scan) {
        Ok(code) => code,
        Err(error) => error::failed(&error, hint(&error)),
    }
}

fn scanned(scan: &ScanArgs) -> Result<ExitCode, ScanError> {
    let lens = lens(scan)?;
    let report = ScanReporter::new(scan, &lens);
    if let Some(range) = &scan.git_diff {
        diff::range(range, &lens, &report)?;
    } else if scan.staged {
        diff::staged(&lens, &report)?;
    } else {
        files::scan(scan, &lens, &report);
    }
    Ok(match report.finish() {
        report::ScanVerdict::Failed => ExitCode::from(crate::args::FAILED),
        report::ScanVerdict::Found => ExitCode::from(FOUND),
        report::ScanVerdict::Clean => ExitCode::SUCCESS,
    })
}

fn lens(scan: &ScanArgs) -> Result<ScanSettings, ScanError> {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let allowlist = scan.allowlist.as_deref().map(allowlist).transpose()?;
    if let Some(expired) =
        allowlist.as_ref().map(|list| list.expired(today).count()).filter(|count| *count > 0)
    {
        note!("ringfence: {expired} entries of the allowlist have expired and do not count");
    }
    let salt = match &allowlist {
        Some(list) => list.salt().clone(),
        None => random_salt()?,
    };
    let mut all = rules::built_in().to_vec();
    for path in &scan.rules {
        all.extend(more_rules(path)?);
    }
    Ok(ScanSettings { scanner: Scanner::builder().rules(all).salt(salt).build(), allowlist, today })
}

fn text(path: &Path) -> Result<String, ScanError> {
    fs::read_to_string(path).map_err(|source| ScanError::Read { path: path.to_owned(), source })
}

fn allowlist(path: &Path) -> Result<Allowlist, ScanError> {
    Allowlist::parse(&text(path)?).map_err(|source| ScanError::Allowlist { path: path.to_owned(), source })
}

fn more_rules(path: &Path) -> Result<Vec<Arc<rules::ScanRule>>, ScanError> {
    let parsed =
        rules::parse(&text(path)?).map_err(|source| ScanError::Rules { path: path.to_owned(), source })?;
    let parsed: Vec<_> = parsed.into_iter().map(Arc::new).collect();
    rules::check(&parsed).map_err(|source| ScanError::Examples { path: path.to_owned(), source })?;
    Ok(parsed)
}

/// Without an allowlist no fingerprint needs to outlive the run.
fn random_salt() -> Result<FingerprintSalt, ScanError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(ScanError::Random)?;
    Ok(FingerprintSalt::new(bytes))
}

fn hint(error: &ScanError) -> Option<&'static str> {
    match error {
        ScanError::Range(_) => Some("name commits, such as `main...HEAD`; what is staged is `--staged`"),
        ScanError::Allowlist { .. } | ScanError::Rules { .. } => Some("docs/scan.md describes the format"),
        _ => None,
    }
}
