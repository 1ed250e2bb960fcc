//! Leaks: secrets found in calls, in command output, in content written for an agent, and in all records and
//! messages.
//!
//! One [`LeakScanner`] per session knows the values of all stored secrets and the shapes of others. Policy
//! (`[leaks]`) decides what happens to a finding. Redaction from records is not optional.

mod call;
mod names;
mod output;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::civil::Date;
use ringfence_authz::{LeakPolicy, LeakSinks};
use ringfence_ledger::RecordedFinding;
use ringfence_scan::{Allowlist, AllowlistError, Confidence, LazyScanner, RedactedOutput, SHORTEST_SECRET};
use ringfence_types::{LeakAction, Refusal};
use serde::Serialize;

use crate::finding_salt::StateSalt;
use crate::policy_files::{PolicyFileError, read_operator};
use crate::secrets::{SecretInfo, SecretSet, SecretStore};
use crate::session::HostSetup;

pub(crate) use call::{CallContent, judge, judge_introduced};
pub(crate) use names::in_name_refusal;
pub(crate) use output::OutputFilter;

/// The operator's allowlist of findings, in the configuration directory.
const ALLOWLIST: &str = "allowlist.toml";
/// Limit of listed findings; more help no reader.
const MOST: usize = 100;
/// Rule of a finding where a limit stopped the scan.
const LIMIT: &str = "scan.limit";
const LEFT_OUT: &str = "[left out: the store of secrets cannot be read]";

/// Why the leak scanner cannot be loaded; the session is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeakError {
    #[error("the allowlist of findings cannot be used")]
    File(#[from] PolicyFileError),
    #[error("the allowlist of findings cannot be used")]
    Allowlist(#[from] AllowlistError),
}

impl LeakError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(error) => Some(error.hint()),
            Self::Allowlist(_) => {
                Some(format!("correct `{ALLOWLIST}` beside `config.toml`, or move it away"))
            }
        }
    }
}

/// The leak scanner of a session. Cheap to clone; its parts are built when the first text looks like a
/// secret.
#[derive(Clone, Debug)]
pub(crate) struct LeakScanner(Arc<LeakKnowledge>);

#[derive(Debug)]
struct LeakKnowledge {
    scanner: LazyScanner,
    /// The stored values in lower case, for scanning host names.
    names: LazyScanner,
    /// Fingerprints of stored values, by rule name.
    fingerprints: BTreeMap<String, String>,
    allowed: Option<AllowlistState>,
}

#[derive(Debug)]
struct AllowlistState {
    list: Allowlist,
    today: Date,
}

/// Findings with the same action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeakSummary {
    pub action: LeakAction,
    pub findings: Vec<RecordedFinding>,
    /// Number of further findings.
    pub omitted: u64,
}

impl LeakScanner {
    /// With the operator's allowlist, if it exists.
    pub(crate) fn of_session(
        secrets: &SecretSet,
        setup: &HostSetup,
        workspace: &Path,
    ) -> Result<Self, LeakError> {
        let path = setup.config_dir.join(ALLOWLIST);
        let allowed = match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            _ => {
                let list = Allowlist::parse(&read_operator(&path, &[workspace.to_owned()])?.text)?;
                Some(AllowlistState { list, today: jiff::Zoned::now().date() })
            }
        };
        Ok(Self::new(secrets, &setup.state_dir, allowed))
    }

    /// For texts outside any session.
    pub(crate) fn of_state(secrets: &SecretSet, state_dir: &Path) -> Self {
        Self::new(secrets, state_dir, None)
    }

    fn new(secrets: &SecretSet, state_dir: &Path, allowed: Option<AllowlistState>) -> Self {
        let salt = allowed.as_ref().map(|allowed| allowed.list.salt().clone());
        let state_dir = state_dir.to_owned();
        let salt =
            move || salt.clone().or_else(|| StateSalt::load(&state_dir).ok().map(|salt| salt.of_scanner()));
        let long = secrets.values().filter(|(_, value)| value.as_slice().len() >= SHORTEST_SECRET);
        let values = long.map(|(meta, value)| (meta.name.as_str(), value.as_slice()));
        // INVARIANT: short values were filtered out, and the scanner refuses nothing else.
        let scanner = LazyScanner::new(values, salt).unwrap_or_default();
        let names = names::scanner(secrets);
        let print = |(meta, _): (&SecretInfo, _)| (meta.rule(), meta.fingerprint.clone());
        let fingerprints = secrets.values().map(print).collect();
        Self(Arc::new(LeakKnowledge { scanner, names, fingerprints, allowed }))
    }

    pub(crate) fn scanner(&self) -> &LazyScanner {
        &self.0.scanner
    }

    /// The redacted text, for records and display.
    pub(crate) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.redact(text.as_bytes()).clean).into_owned()
    }

    /// Redacts for display. Text that only resembles a key stays, because it may be part of what runs.
    pub(crate) fn redact(&self, bytes: &[u8]) -> RedactedOutput {
        self.0.scanner.redact_for_people(bytes)
    }

    /// Like [`Self::redact`], for a command line.
    pub(crate) fn redact_argv(
        &self,
        argv: &[&[u8]],
    ) -> (Vec<Vec<u8>>, Vec<(usize, ringfence_scan::Finding)>) {
        self.0.scanner.redact_argv_for_people(argv)
    }

    pub(crate) fn refusal(&self, refusal: &Refusal) -> Refusal {
        let hint = refusal.hint.as_deref().map(|hint| self.text(hint));
        Refusal { message: self.text(&refusal.message), hint, ..refusal.clone() }
    }

    /// The finding as recorded in the ledger.
    pub(crate) fn finding(&self, found: &ringfence_scan::Finding, place: String) -> RecordedFinding {
        let stored = self.0.fingerprints.get(&*found.rule).cloned();
        let salted = || found.fingerprint.map(|print| print.to_string()).unwrap_or_default();
        RecordedFinding {
            rule: found.rule.to_string(),
            location: place,
            fingerprint: stored.unwrap_or_else(salted),
            encoding: (!found.layers.is_plain()).then(|| found.layers.to_string()),
        }
    }

    /// The action for a finding; `None` if the operator allowlisted it. A stored secret cannot be
    /// allowlisted.
    fn action(
        &self,
        found: &ringfence_scan::Finding,
        actions: SinkActions,
        path: &str,
    ) -> Option<LeakAction> {
        if found.confidence == Confidence::Exact {
            return Some(actions.stored);
        }
        let allows = |allowed: &AllowlistState| allowed.list.allows(found, path, allowed.today).is_some();
        (!self.0.allowed.as_ref().is_some_and(allows)).then_some(actions.shapes)
    }
}

/// Redacts texts outside any session.
#[derive(Clone, Debug)]
pub(crate) struct TextRedactor(Option<LeakScanner>);

impl TextRedactor {
    /// If the secrets cannot be read, every text is dropped: any word of it may be a secret.
    pub(crate) fn of(state_dir: &Path) -> Self {
        let secrets = SecretStore::new(state_dir).read().ok();
        Self(secrets.map(|secrets| LeakScanner::of_state(&secrets, state_dir)))
    }

    pub(crate) fn text(&self, text: &str) -> String {
        self.0.as_ref().map_or_else(|| LEFT_OUT.to_owned(), |leaks| leaks.text(text))
    }

    pub(crate) fn refusal(&self, refusal: &Refusal) -> Refusal {
        match &self.0 {
            Some(leaks) => leaks.refusal(refusal),
            None => Refusal { message: LEFT_OUT.to_owned(), hint: None, ..refusal.clone() },
        }
    }
}

/// The actions for findings at one sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkActions {
    stored: LeakAction,
    shapes: LeakAction,
}

impl SinkActions {
    pub(crate) fn output(leaks: &LeakPolicy) -> Self {
        Self::at(leaks, |sinks| sinks.output)
    }

    /// Sent content cannot be recalled, and redacting a file would corrupt it, so a finding at least blocks
    /// (C-15).
    pub(crate) fn sent(leaks: &LeakPolicy) -> Self {
        let Self { stored, shapes } = Self::output(leaks);
        Self { stored: stored.max(LeakAction::Block), shapes: shapes.max(LeakAction::Block) }
    }

    fn arguments(leaks: &LeakPolicy) -> Self {
        Self::at(leaks, |sinks| sinks.arguments)
    }

    pub(crate) fn files(leaks: &LeakPolicy) -> Self {
        Self::at(leaks, |sinks| sinks.files)
    }

    /// By the rule name alone.
    fn by_rule(self, rule: &str) -> LeakAction {
        if rule.starts_with("secret/") { self.stored } else { self.shapes }
    }

    fn at(leaks: &LeakPolicy, sink: fn(&LeakSinks) -> LeakAction) -> Self {
        Self { stored: sink(&leaks.stored_secrets), shapes: sink(&leaks.patterns) }
    }
}

/// Findings grouped by action, each group up to the limit.
#[derive(Debug, Default)]
pub(crate) struct FindingTally(BTreeMap<LeakAction, (Vec<RecordedFinding>, u64)>);

impl FindingTally {
    fn add(&mut self, action: LeakAction, finding: impl FnOnce() -> RecordedFinding) {
        let (findings, more) = self.0.entry(action).or_default();
        if findings.len() < MOST {
            findings.push(finding());
        } else {
            *more += 1;
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (action, (findings, more)) in other.0 {
            let (own, rest) = self.0.entry(action).or_default();
            let room = MOST.saturating_sub(own.len());
            *rest += more + findings.len().saturating_sub(room) as u64;
            own.extend(findings.into_iter().take(room));
        }
    }

    pub(crate) fn leaked(self) -> Vec<LeakSummary> {
        let leaked = |(action, (findings, more))| LeakSummary { action, findings, omitted: more };
        self.0.into_iter().map(leaked).collect()
    }
}

#[cfg(test)]
mod tests;
