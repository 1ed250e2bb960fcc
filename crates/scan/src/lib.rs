//! Finds secrets in bytes and takes them out, before the bytes are shown, sent or written down.
//!
//! Two engines share one pass: the exact values of registered secrets, in every form in which they may leave, and rules
//! about the shapes of credentials, which are data (`rules/`). Both look into URL encoding, base64, hex, escapes, gzip, UTF-16,
//! terminal sequences and wrapped lines, three encodings deep.
//!
//! A [`Scanner`] is built once. A [`Stream`] takes chunks and gives clean bytes and [`Finding`]s; the result does not depend
//! on how the input was cut. Memory and time per byte are bounded whatever the input is.
//!
//! It does not decide what happens to a finding.

mod ahead;
mod allowlist;
mod argv;
mod decode;
mod disguise;
mod exact;
mod finding;
mod keywords;
mod layer;
mod lazy;
mod matcher;
mod repeat;
pub mod rules;
mod scanner;
mod stream;
mod tail;

pub use allowlist::{Allowance, Allowlist, AllowlistError};
pub use argv::redact_argv;
pub use exact::{ExactError, SHORTEST_SECRET};
pub use finding::{Confidence, Encoding, Finding, Fingerprint, Layers, Salt};
pub use lazy::{LazyScanner, LazyStream};
pub use scanner::{Builder, Redacted, Scanner, Searched};
pub use stream::{Output, Pause, Stream, Treatment};

/// Below this an input is searched without building anything.
const SHORT: usize = 4096;

/// `input` without what the built-in rules find.
///
/// A short input in which no keyword stands and nothing is encoded costs no more than that: command lines pass here, on
/// their way into the ledger, before the first command of a process runs.
pub fn redact(input: &[u8]) -> Redacted {
    if !may_match(input) {
        return Redacted { clean: input.to_vec(), findings: Vec::new(), refused: 0 };
    }
    Scanner::built_in().redact(input)
}

/// Whether any rule has to look closer.
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
