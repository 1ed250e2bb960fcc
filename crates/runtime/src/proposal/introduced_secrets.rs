//! Secrets that a change introduces: findings in the result that are not in the base.

use std::collections::BTreeSet;

use ringfence_ledger::RecordedFinding;
use ringfence_scan::{FingerprintSalt, RegisteredSecretError, SHORTEST_SECRET, Scanner, SecretFingerprint};
use ringfence_types::{ByteString, IntroducedSecret};

use crate::secrets::SecretSet;

/// Limit of listed findings; more help no reader.
const MOST: usize = 100;
/// Rule of a file that was not scanned completely.
pub(crate) const LIMIT: &str = "scan.limit";

/// An introduced finding with its fingerprint.
pub(crate) type IntroducedFinding = (IntroducedSecret, Option<SecretFingerprint>);

/// Finds secret shapes and the values of stored secrets.
pub(crate) fn scanner(salt: FingerprintSalt, known: &SecretSet) -> Result<Scanner, RegisteredSecretError> {
    let mut long = known.values().filter(|(_, value)| value.as_slice().len() >= SHORTEST_SECRET);
    let builder = Scanner::builder().salt(salt);
    Ok(long
        .try_fold(builder, |builder, (meta, value)| builder.secret(&meta.name.to_string(), value.as_slice()))?
        .build())
}

/// Findings of `scanner`, which has a salt, in `result`, except values that `base` contains in any encoding.
pub(crate) fn introduced(
    scanner: &Scanner,
    base: Option<&[u8]>,
    result: Option<&[u8]>,
) -> Vec<IntroducedFinding> {
    let Some(result) = result else { return Vec::new() };
    let searched = scanner.search(result);
    // Unscanned content may contain a secret, so the approver is told.
    let limit = (searched.refused > 0).then(|| (IntroducedSecret { rule: LIMIT.to_owned(), line: 1 }, None));
    let found = searched.findings;
    if found.is_empty() {
        return limit.into_iter().collect();
    }
    let known = base.map(|base| scanner.scan(base)).unwrap_or_default();
    let known: BTreeSet<SecretFingerprint> = known.iter().filter_map(|found| found.fingerprint).collect();
    let fresh = found.iter().filter(|found| found.fingerprint.is_none_or(|print| !known.contains(&print)));
    let fresh = fresh.take(MOST).map(|found| {
        let above = result.get(..found.start).unwrap_or_default();
        let line = 1 + above.iter().filter(|byte| **byte == b'\n').count() as u64;
        (IntroducedSecret { rule: found.rule.to_string(), line }, found.fingerprint)
    });
    limit.into_iter().chain(fresh).collect()
}

/// The finding as recorded in the ledger.
pub(crate) fn finding(path: &ByteString, (introduced, print): &IntroducedFinding) -> RecordedFinding {
    RecordedFinding {
        rule: introduced.rule.clone(),
        location: format!("{}:{}", path.display(), introduced.line),
        fingerprint: print.map(|print| print.to_string()).unwrap_or_default(),
        encoding: None,
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    fn token(tail: char) -> String {
        format!("{}{}{tail}", concat!("gh", "p_"), "A1b2".repeat(9))
    }

    fn scanner() -> Scanner {
        Scanner::builder().salt(FingerprintSalt::new(*b"salt")).build()
    }

    #[test]
    fn only_what_was_not_there_is_introduced() {
        let scanner = scanner();
        let (old, new) = (token('x'), token('y'));
        let base = format!("a\nkey = {old}\n");
        let result = format!("key = {old}\nb\nother {new}\n");
        let found = introduced(&scanner, Some(base.as_bytes()), Some(result.as_bytes()));
        let lines: Vec<_> = found.iter().map(|(found, _)| found.line).collect();
        assert_eq!(lines, [3], "{found:?}");
        assert!(found[0].0.rule.contains("github"), "{found:?}");
        assert_eq!(introduced(&scanner, None, Some(result.as_bytes())).len(), 2);
        assert!(introduced(&scanner, Some(result.as_bytes()), Some(base.as_bytes())).is_empty());
        assert!(introduced(&scanner, Some(base.as_bytes()), None).is_empty());
    }

    #[test]
    fn a_key_over_many_lines_and_an_encoded_one_are_found() {
        let scanner = scanner();
        let body = "MIIEowIBAAKCAQEA7bq0".repeat(8);
        let key = format!("-----BEGIN RSA {0}-----\n{body}\n{body}\n-----END RSA {0}-----\n", "PRIVATE KEY");
        let result = format!("x\n{key}");
        let found = introduced(&scanner, Some(b"x\n"), Some(result.as_bytes()));
        assert_eq!(found.first().map(|(found, _)| found.line), Some(2), "{found:?}");
        let encoded = base64::engine::general_purpose::STANDARD.encode(format!("token {}", token('x')));
        let encoded = format!("a\nb\n{encoded}\n");
        assert_eq!(introduced(&scanner, None, Some(encoded.as_bytes())).len(), 1);
    }

    #[test]
    fn what_could_not_be_looked_at_is_asked_about() {
        let hostile = [0x1f, 0x8b, 0x08].repeat(10_000);
        let found = introduced(&scanner(), None, Some(&hostile));
        assert_eq!(found.first().map(|(found, _)| found.rule.as_str()), Some(LIMIT), "{found:?}");
        assert!(introduced(&scanner(), None, Some(b"words")).is_empty());
    }

    #[test]
    fn findings_have_no_value_and_tell_secrets_apart() {
        let (one, two) = (token('x'), token('y'));
        let text = format!("{one}\n{two}\n{one}\n");
        let found = introduced(&scanner(), None, Some(text.as_bytes()));
        let findings: Vec<_> = found.iter().map(|found| finding(&ByteString::from("f"), found)).collect();
        assert_eq!(findings[0].location, "f:1");
        assert_eq!(findings[0].fingerprint, findings[2].fingerprint);
        assert_ne!(findings[0].fingerprint, findings[1].fingerprint);
        assert!(!format!("{findings:?}").contains(&one));
    }
}
