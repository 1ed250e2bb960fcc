//! The leak scanner: finds secrets in bytes and redacts them before the bytes are shown, sent or recorded.
//!
//! Two engines share one pass: the exact values of registered secrets in every form, and rules about the shapes of credentials,
//! which are data (`rules/`). Both decode URL encoding, base64, hex, escapes, gzip, UTF-16, terminal sequences and wrapped lines,
//! three encodings deep.
//!
//! A [`Scanner`] is built once. A [`ScanStream`] takes chunks and returns clean bytes and [`Finding`]s; the result does not depend
//! on the chunk boundaries. Memory and time per byte are bounded for every input.
//!
//! What it is not: it opens no file, and does not decide what happens to a finding.

mod allowlist;
mod argv;
mod decode;
mod disguise;
mod finding;
mod keywords;
mod lazy;
mod matcher;
mod parallel_windows;
mod partial_secret;
mod registered_secrets;
mod repeat;
pub mod rules;
mod scanner;
mod stream;
mod window;

pub use allowlist::{Allowlist, AllowlistEntry, AllowlistError};
pub use argv::redact_argv;
pub use finding::{Confidence, Encoding, EncodingLayers, Finding, FingerprintSalt, SecretFingerprint};
pub use lazy::{LazyScanner, LazyStream};
pub use registered_secrets::{RegisteredSecretError, SHORTEST_SECRET};
pub use scanner::{RedactedOutput, Scanner, ScannerBuilder, SearchReport};
pub use stream::{FindingAction, PauseLength, ScanOutput, ScanStream};

/// Below this an input is searched without building anything.
const SHORT: usize = 4096;

/// Redacts `input` by the built-in rules.
///
/// A short input without keywords and encodings needs no scanner: command lines pass here before the first command of a process
/// runs.
pub fn redact(input: &[u8]) -> RedactedOutput {
    if !may_match(input) {
        return RedactedOutput { clean: input.to_vec(), findings: Vec::new(), refused: 0 };
    }
    Scanner::built_in().redact(input)
}

/// Whether a rule may match.
pub(crate) fn may_match(input: &[u8]) -> bool {
    if input.len() > SHORT {
        return true;
    }
    let lower = input.to_ascii_lowercase();
    rules::KEYWORDS.iter().any(|keyword| contains(&lower, keyword.as_bytes()))
        || decode::has_candidates(input)
}

/// WHY NOT `memmem` or an automaton: command lines are short, and building a searcher costs more than the search.
fn contains(lower: &[u8], needle: &[u8]) -> bool {
    let Some(first) = needle.first() else { return true };
    memchr::memchr_iter(*first, lower).any(|at| lower.get(at..).is_some_and(|rest| rest.starts_with(needle)))
}

#[cfg(test)]
mod tests;
