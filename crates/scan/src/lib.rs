//! Finds secrets by their shape and takes them out, before the bytes are written down.
//!
//! What it covers: the arguments of calls on their way into the ledger. What it does not do yet: streams, decoded
//! forms (base64, hex, URL encoding), and the exact values of secrets that Ringfence itself holds.
//!
//! A clean input costs a search for a few fixed strings. A rule's regular expression is compiled when its fixed
//! string first turns up.

mod argv;
mod rules;

use std::ops::Range;

pub use argv::redact_argv;

/// Where a secret was, in the bytes as they came in. Never the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub rule: &'static str,
    pub start: usize,
    pub end: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redacted {
    /// The input with `[redacted:RULE]` in place of each finding.
    pub clean: Vec<u8>,
    pub findings: Vec<Finding>,
}

pub fn redact(input: &[u8]) -> Redacted {
    let findings = merge(rules::search(input));
    Redacted { clean: replace(input, &findings), findings }
}

/// Sorted and without overlap: where two rules met, the earlier start names the whole.
fn merge(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| (finding.start, std::cmp::Reverse(finding.end)));
    let mut merged: Vec<Finding> = Vec::with_capacity(findings.len());
    for finding in findings {
        match merged.last_mut() {
            Some(last) if finding.start < last.end => last.end = last.end.max(finding.end),
            _ => merged.push(finding),
        }
    }
    merged
}

fn replace(input: &[u8], findings: &[Finding]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(input.len());
    let mut done = 0;
    for finding in findings {
        clean.extend_from_slice(part(input, done..finding.start));
        clean.extend_from_slice(mark(finding.rule).as_bytes());
        done = finding.end;
    }
    clean.extend_from_slice(part(input, done..input.len()));
    clean
}

fn mark(rule: &str) -> String {
    format!("[redacted:{rule}]")
}

fn part(input: &[u8], range: Range<usize>) -> &[u8] {
    input.get(range).unwrap_or_default()
}

#[cfg(test)]
mod tests;
