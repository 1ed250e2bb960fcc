//! Allowlist of reviewed findings: by fingerprint or by path, each with a reason and an expiry date.
//!
//! ```toml
//! version = 1
//! salt = "6b1f…"                    # what fingerprints are made with; any text, kept for good
//!
//! [[allow]]
//! fingerprint = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
//! reason = "revoked on the day it leaked"
//! expires = "2027-01-31"
//!
//! [[allow]]
//! path = "tests/fixtures/**"
//! rule = "private-key"              # optional
//! reason = "generated for the tests"
//! expires = "2027-12-31"
//! ```

use globset::{GlobBuilder, GlobMatcher};
use jiff::civil::Date;
use serde::Deserialize;
use thiserror::Error;

use crate::finding::{Finding, FingerprintSalt};

#[derive(Debug, Error)]
pub enum AllowlistError {
    #[error("not an allowlist")]
    Syntax(#[source] Box<toml::de::Error>),
    #[error("version {0} is not known; this is version 1")]
    Version(u32),
    #[error("`salt` is shorter than 8 bytes")]
    Salt,
    #[error("entry {entry}: {problem}")]
    Entry { entry: usize, problem: AllowlistProblem },
}

#[derive(Debug, Error)]
pub enum AllowlistProblem {
    #[error("`fingerprint` or `path` is needed")]
    Nothing,
    #[error("`reason` is empty")]
    Reason,
    #[error("`expires` is no date such as 2027-01-31: {0}")]
    Expires(jiff::Error),
    #[error("`path` is no pattern: {0}")]
    Path(globset::Error),
    #[error("`fingerprint` is not 32 hex digits")]
    Fingerprint,
}

const VERSION: u32 = 1;
const SHORTEST_SALT: usize = 8;

#[derive(Debug)]
pub struct Allowlist {
    salt: FingerprintSalt,
    entries: Vec<AllowlistEntry>,
}

/// One entry. All of its conditions must hold.
#[derive(Debug)]
pub struct AllowlistEntry {
    fingerprint: Option<String>,
    path: Option<GlobMatcher>,
    rule: Option<String>,
    pub reason: String,
    pub expires: Date,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowlistFile {
    version: u32,
    salt: String,
    #[serde(default)]
    allow: Vec<AllowlistRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowlistRow {
    fingerprint: Option<String>,
    path: Option<String>,
    rule: Option<String>,
    reason: String,
    expires: String,
}

impl Allowlist {
    pub fn parse(text: &str) -> Result<Self, AllowlistError> {
        let file: AllowlistFile =
            toml::from_str(text).map_err(|error| AllowlistError::Syntax(Box::new(error)))?;
        if file.version != VERSION {
            return Err(AllowlistError::Version(file.version));
        }
        if file.salt.len() < SHORTEST_SALT {
            return Err(AllowlistError::Salt);
        }
        let entry = |(at, entry)| {
            allowance(entry).map_err(|problem| AllowlistError::Entry { entry: at + 1, problem })
        };
        let entries = file.allow.into_iter().enumerate().map(entry).collect::<Result<_, _>>()?;
        Ok(Self { salt: FingerprintSalt::new(file.salt), entries })
    }

    /// Salt that a scanner must use, so that its fingerprints match the entries.
    pub fn salt(&self) -> &FingerprintSalt {
        &self.salt
    }

    /// The entry that allows `finding` in the file `path` (relative, with `/`) on the day `today`.
    pub fn allows(&self, finding: &Finding, path: &str, today: Date) -> Option<&AllowlistEntry> {
        self.entries.iter().find(|entry| entry.expires >= today && entry.covers(finding, path))
    }

    /// Expired entries.
    pub fn expired(&self, today: Date) -> impl Iterator<Item = &AllowlistEntry> {
        self.entries.iter().filter(move |entry| entry.expires < today)
    }
}

impl AllowlistEntry {
    fn covers(&self, finding: &Finding, path: &str) -> bool {
        let by_fingerprint = self
            .fingerprint
            .as_ref()
            .is_none_or(|known| finding.fingerprint.is_some_and(|found| found.to_string() == *known));
        let by_path = self.path.as_ref().is_none_or(|pattern| pattern.is_match(path));
        by_fingerprint && by_path && self.rule.as_ref().is_none_or(|rule| **rule == *finding.rule)
    }
}

fn allowance(entry: AllowlistRow) -> Result<AllowlistEntry, AllowlistProblem> {
    if entry.fingerprint.is_none() && entry.path.is_none() {
        return Err(AllowlistProblem::Nothing);
    }
    if entry.reason.trim().is_empty() {
        return Err(AllowlistProblem::Reason);
    }
    let expires = entry.expires.parse().map_err(AllowlistProblem::Expires)?;
    let glob = |path: &String| GlobBuilder::new(path).literal_separator(true).build();
    let path = entry.path.as_ref().map(glob).transpose().map_err(AllowlistProblem::Path)?;
    let is_fingerprint =
        |text: &String| text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if entry.fingerprint.as_ref().is_some_and(|text| !is_fingerprint(text)) {
        return Err(AllowlistProblem::Fingerprint);
    }
    Ok(AllowlistEntry {
        fingerprint: entry.fingerprint,
        path: path.map(|path| path.compile_matcher()),
        rule: entry.rule,
        reason: entry.reason,
        expires,
    })
}
