//! Secrets in host names. Resolving a name discloses it to foreign name servers, so every name is scanned
//! before use.

use std::borrow::Cow;

use ringfence_authz::LeakPolicy;
use ringfence_ledger::RecordedFinding;
use ringfence_scan::{Confidence, LazyScanner, SHORTEST_SECRET};
use ringfence_types::{LeakAction, PolicyLayer, Refusal, RefusalCode, RuleName};
use zeroize::Zeroizing;

use super::{LeakScanner, SinkActions};
use crate::secrets::SecretSet;

/// Host names are compared in lower case.
pub(super) fn scanner(secrets: &SecretSet) -> LazyScanner {
    let lower: Vec<(String, Zeroizing<Vec<u8>>)> = secrets
        .values()
        .filter(|(_, value)| value.as_slice().len() >= SHORTEST_SECRET)
        .map(|(meta, value)| {
            (meta.name.as_str().to_owned(), Zeroizing::new(value.as_slice().to_ascii_lowercase()))
        })
        .collect();
    let values = lower.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    // INVARIANT: short values were filtered out, and the scanner refuses nothing else.
    LazyScanner::new(values, || None).unwrap_or_default()
}

/// A secret in a host name, redacted.
#[derive(Clone, Debug)]
pub(crate) struct InName {
    pub(crate) finding: RecordedFinding,
    pub(crate) confidence: Confidence,
}

impl LeakScanner {
    /// The secret that forbids the use of this name: any stored secret, and a secret shape if policy blocks
    /// it.
    pub(crate) fn in_name(&self, name: &str, leaks: &LeakPolicy) -> Option<InName> {
        if let Some(found) = self.stored_in_name(name) {
            let finding = self.finding(&found, "name of a host".to_owned());
            return Some(InName { finding, confidence: Confidence::Exact });
        }
        let actions = SinkActions::arguments(leaks);
        let shapes = self.0.scanner.search(name.as_bytes()).findings;
        let found = shapes.into_iter().find(|found| {
            self.action(found, actions, "").is_some_and(|action| action >= LeakAction::Block)
        })?;
        let finding = self.finding(&found, "name of a host".to_owned());
        Some(InName { finding, confidence: found.confidence })
    }

    /// The redacted name. A stored secret spread over several labels redacts the whole name.
    pub(crate) fn name(&self, name: &str) -> String {
        let clean = self.text(name);
        let clean = String::from_utf8_lossy(&self.0.names.redact(clean.as_bytes()).clean).into_owned();
        match self.stored_in_name(name) {
            Some(found) if clean == name => format!("[redacted:{}]", found.rule),
            _ => clean,
        }
    }

    /// Redacts a text that may repeat `name`.
    pub(crate) fn text_about(&self, text: &str, name: &str) -> String {
        let text = if name.is_empty() {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(text.replace(name, &self.name(name)))
        };
        self.text(&text)
    }

    pub(crate) fn refusal_about(&self, refusal: &Refusal, name: &str) -> Refusal {
        let hint = refusal.hint.as_deref().map(|hint| self.text_about(hint, name));
        Refusal { message: self.text_about(&refusal.message, name), hint, ..refusal.clone() }
    }

    /// Also finds a secret that is split over labels by dots.
    fn stored_in_name(&self, name: &str) -> Option<ringfence_scan::Finding> {
        let lower = name.to_ascii_lowercase();
        let joined = lower.replace('.', "");
        let texts = [
            (&self.0.scanner, name),
            (&self.0.names, &lower),
            (&self.0.names, &joined),
            (&self.0.scanner, &joined),
        ];
        texts.into_iter().find_map(|(scanner, text)| {
            let found = scanner.search(text.as_bytes()).findings;
            found.into_iter().find(|found| found.confidence == Confidence::Exact)
        })
    }
}

/// The refusal to resolve or dial a name with a secret. It does not repeat the name.
pub(crate) fn in_name_refusal(found: &InName) -> Refusal {
    let (what, hint) = match found.confidence {
        Confidence::Exact => ("a stored secret", "leave the secret out of the name"),
        _ => (
            "something that looks like a secret",
            "leave it out of the name, or let an operator allow this finding in allowlist.toml",
        ),
    };
    Refusal {
        code: RefusalCode::Secret,
        layer: PolicyLayer::Floor,
        rule: RuleName::of_scanner(&found.finding.rule),
        message: format!(
            "the name of the host has {what} in it ({}), so it was neither resolved nor connected to",
            found.finding.rule
        ),
        hint: Some(hint.to_owned()),
    }
}
