//! Secrets on their way out: found in what a call is made of, in what a command prints, in what is written for an agent, and
//! in everything that is written down about it.
//!
//! One [`LeakScanner`] per session knows the values of all stored secrets and the shapes of others. What becomes of a
//! finding is policy (`[leaks]`); that nothing of it is written down is not.

mod call;
mod names;
mod output;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::civil::Date;
use ringfence_authz::policy::{Leaks, Sinks};
use ringfence_ledger::Finding;
use ringfence_scan::{Allowlist, AllowlistError, Confidence, LazyScanner, Redacted, SHORTEST_SECRET};
use ringfence_types::{LeakAction, Refusal};

use crate::policy_files::{PolicyFileError, read_operator};
use crate::salt::Salt;
use crate::secrets::{Meta, SecretStore, Secrets};
use crate::session::Setup;

pub(crate) use call::{Content, judge, judge_introduced};
pub(crate) use names::in_name_refusal;
pub(crate) use output::OutputFilter;

/// Findings of the operator's that count for nothing, in the directory of the configuration.
const ALLOWLIST: &str = "allowlist.toml";
/// More than a person would look at.
const MOST: usize = 100;
/// Where a limit stopped the search.
const LIMIT: &str = "scan.limit";
const LEFT_OUT: &str = "[left out: the store of secrets cannot be read]";

/// Why secrets could not be looked for, so that nothing is done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeakError {
    #[error("the allowlist of findings cannot be used")]
    File(#[from] PolicyFileError),
    #[error("the allowlist of findings cannot be used")]
    Allowlist(#[from] AllowlistError),
}

impl LeakError {
    /// The one thing that would change it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(error) => Some(error.hint()),
            Self::Allowlist(_) => {
                Some(format!("correct `{ALLOWLIST}` beside `config.toml`, or move it away"))
            }
        }
    }
}

/// What a session knows of secrets, to find them. Cheap to clone, and built when something first looks like one.
#[derive(Clone, Debug)]
pub(crate) struct LeakScanner(Arc<Known>);

#[derive(Debug)]
struct Known {
    scanner: LazyScanner,
    /// The stored values in lower case, as they stand in the name of a host.
    names: LazyScanner,
    /// What the store calls each value, by the name of its rule.
    fingerprints: BTreeMap<String, String>,
    allowed: Option<Allowed>,
}

#[derive(Debug)]
struct Allowed {
    list: Allowlist,
    today: Date,
}

/// What was found on its way out, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaked {
    pub action: LeakAction,
    pub findings: Vec<Finding>,
    /// How many there were besides.
    pub more: u64,
}

impl LeakScanner {
    /// With the operator's allowlist, if there is one.
    pub(crate) fn of_session(secrets: &Secrets, setup: &Setup, workspace: &Path) -> Result<Self, LeakError> {
        let path = setup.config_dir.join(ALLOWLIST);
        let allowed = match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            _ => {
                let list = Allowlist::parse(&read_operator(&path, &[workspace.to_owned()])?.text)?;
                Some(Allowed { list, today: jiff::Zoned::now().date() })
            }
        };
        Ok(Self::new(secrets, &setup.state_dir, allowed))
    }

    /// For texts that no session is about.
    pub(crate) fn of_state(secrets: &Secrets, state_dir: &Path) -> Self {
        Self::new(secrets, state_dir, None)
    }

    fn new(secrets: &Secrets, state_dir: &Path, allowed: Option<Allowed>) -> Self {
        let salt = allowed.as_ref().map(|allowed| allowed.list.salt().clone());
        let state_dir = state_dir.to_owned();
        let salt = move || salt.clone().or_else(|| Salt::load(&state_dir).ok().map(|salt| salt.of_scanner()));
        let long = secrets.values().filter(|(_, value)| value.as_slice().len() >= SHORTEST_SECRET);
        let values = long.map(|(meta, value)| (meta.name.as_str(), value.as_slice()));
        // INVARIANT: short values were left out, and nothing else is refused.
        let scanner = LazyScanner::new(values, salt).unwrap_or_default();
        let names = names::scanner(secrets);
        let print = |(meta, _): (&Meta, _)| (meta.rule(), meta.fingerprint.clone());
        let fingerprints = secrets.values().map(print).collect();
        Self(Arc::new(Known { scanner, names, fingerprints, allowed }))
    }

    pub(crate) fn scanner(&self) -> &LazyScanner {
        &self.0.scanner
    }

    /// Text as it may be written down and shown.
    pub(crate) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.redact(text.as_bytes()).clean).into_owned()
    }

    /// For people: text that only pretends to be a key stays, because it may be what runs.
    pub(crate) fn redact(&self, bytes: &[u8]) -> Redacted {
        self.0.scanner.redact_for_people(bytes)
    }

    /// As [`Self::redact`], for a command line.
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

    /// As the ledger keeps it.
    pub(crate) fn finding(&self, found: &ringfence_scan::Finding, place: String) -> Finding {
        let stored = self.0.fingerprints.get(&*found.rule).cloned();
        let salted = || found.fingerprint.map(|print| print.to_string()).unwrap_or_default();
        Finding {
            rule: found.rule.to_string(),
            place,
            fingerprint: stored.unwrap_or_else(salted),
            encoding: (!found.layers.is_plain()).then(|| found.layers.to_string()),
        }
    }

    /// What becomes of a finding; `None` where the operator has allowed it. What is stored cannot be allowed.
    fn action(
        &self,
        found: &ringfence_scan::Finding,
        (actions, path): (Actions, &str),
    ) -> Option<LeakAction> {
        if found.confidence == Confidence::Exact {
            return Some(actions.stored);
        }
        let allows = |allowed: &Allowed| allowed.list.allows(found, path, allowed.today).is_some();
        (!self.0.allowed.as_ref().is_some_and(allows)).then_some(actions.shapes)
    }
}

/// For texts that no session is about.
#[derive(Clone, Debug)]
pub(crate) struct Cleaner(Option<LeakScanner>);

impl Cleaner {
    /// Where the secrets cannot be read nothing of a text is kept: any word of it may be one.
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

/// What becomes of findings at one sink.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actions {
    stored: LeakAction,
    shapes: LeakAction,
}

impl Actions {
    pub(crate) fn output(leaks: &Leaks) -> Self {
        Self::at(leaks, |sinks| sinks.output)
    }

    /// Out of the hands of whoever could take it back: a file with a hole in it is no use there, and one with a secret in it
    /// does harm (C-15).
    pub(crate) fn sent(leaks: &Leaks) -> Self {
        let Self { stored, shapes } = Self::output(leaks);
        Self { stored: stored.max(LeakAction::Block), shapes: shapes.max(LeakAction::Block) }
    }

    fn arguments(leaks: &Leaks) -> Self {
        Self::at(leaks, |sinks| sinks.arguments)
    }

    pub(crate) fn files(leaks: &Leaks) -> Self {
        Self::at(leaks, |sinks| sinks.files)
    }

    /// Where only the name of what was found is known.
    fn by_rule(self, rule: &str) -> LeakAction {
        if rule.starts_with("secret/") { self.stored } else { self.shapes }
    }

    fn at(leaks: &Leaks, sink: fn(&Sinks) -> LeakAction) -> Self {
        Self { stored: sink(&leaks.stored), shapes: sink(&leaks.shapes) }
    }
}

/// Findings by what became of them, as many of each as a person would look at.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<LeakAction, (Vec<Finding>, u64)>);

impl Tally {
    fn add(&mut self, action: LeakAction, finding: impl FnOnce() -> Finding) {
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

    pub(crate) fn leaked(self) -> Vec<Leaked> {
        let leaked = |(action, (findings, more))| Leaked { action, findings, more };
        self.0.into_iter().map(leaked).collect()
    }
}

#[cfg(test)]
mod tests;
