//! The rules as data: fixed strings that must be present, the shape, and what the secret must have to count.

use std::sync::OnceLock;

use memchr::{memchr, memchr_iter};
use regex::bytes::{Regex, RegexBuilder};

use crate::Finding;

pub(crate) struct Rule {
    name: &'static str,
    /// One of these is in every match, in lower case.
    needles: &'static [&'static str],
    /// So is this byte: an ordinary URL must not cost a regular expression.
    byte: Option<u8>,
    /// The secret is group 1 where there is one, else the whole match.
    shape: &'static str,
    gate: Gate,
    compiled: OnceLock<Option<Regex>>,
}

/// What tells a secret from a word of the same shape.
#[derive(Clone, Copy)]
enum Gate {
    Shape,
    /// Letters and digits: a random string has both, a word or a number has not.
    Mixed,
    /// Anything that is not a reference to a value kept elsewhere (`$TOKEN`, `<token>`).
    Value,
}

static RULES: [Rule; 31] = [
    rule("private-key", &["private key"], PRIVATE_KEY, Gate::Shape),
    rule("anthropic-key", &["sk-ant-"], r"\bsk-ant-[A-Za-z0-9_-]{20,}", Gate::Mixed),
    rule("openrouter-key", &["sk-or-"], r"\bsk-or-[A-Za-z0-9_-]{20,}", Gate::Mixed),
    rule(
        "openai-key",
        &["sk-proj-", "sk-svcacct-", "sk-admin-"],
        r"\bsk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}",
        Gate::Mixed,
    ),
    rule("openai-key", &["sk-"], r"\bsk-[A-Za-z0-9]{20,}\b", Gate::Mixed),
    rule(
        "github-token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
        r"\bgh[pousr]_[A-Za-z0-9]{20,}",
        Gate::Shape,
    ),
    rule("github-token", &["github_pat_"], r"\bgithub_pat_[A-Za-z0-9_]{20,}", Gate::Shape),
    rule("aws-key-id", &["akia", "asia", "abia"], r"\b(?:AKIA|ASIA|ABIA)[0-9A-Z]{16}\b", Gate::Shape),
    rule(
        "aws-secret-key",
        &["secret_access_key", "secretaccesskey", "aws_secret_key"],
        r#"(?i)(?:secret_?access_?key|aws_secret_key)["']?\s*[:=]\s*["']?([A-Za-z0-9/+]{40})\b"#,
        Gate::Shape,
    ),
    rule("gitlab-token", &["glpat-"], r"\bglpat-[A-Za-z0-9_-]{20,}", Gate::Shape),
    rule("slack-token", &["xox"], r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}", Gate::Mixed),
    rule("slack-token", &["xapp-"], r"\bxapp-[0-9]-[A-Z0-9]+-[0-9]+-[a-f0-9]{16,}", Gate::Shape),
    rule("npm-token", &["npm_"], r"\bnpm_[A-Za-z0-9]{36}\b", Gate::Mixed),
    rule("pypi-token", &["pypi-age"], r"\bpypi-AgE[A-Za-z0-9_-]{50,}", Gate::Shape),
    rule("huggingface-token", &["hf_"], r"\bhf_[A-Za-z0-9]{30,}\b", Gate::Shape),
    rule("google-key", &["aiza"], r"\bAIza[0-9A-Za-z_-]{35}", Gate::Shape),
    rule("google-token", &["ya29."], r"\bya29\.[0-9A-Za-z_-]{20,}", Gate::Shape),
    rule("stripe-key", &["k_live_", "k_test_"], r"\b[sr]k_(?:live|test)_[0-9A-Za-z]{16,}", Gate::Mixed),
    rule("docker-token", &["dckr_pat_"], r"\bdckr_pat_[A-Za-z0-9_-]{20,}", Gate::Shape),
    rule("digitalocean-token", &["_v1_"], r"\bdo[opr]_v1_[a-f0-9]{64}\b", Gate::Shape),
    rule("sendgrid-key", &["sg."], r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}", Gate::Mixed),
    rule("telegram-token", &[":aa"], r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b", Gate::Shape),
    rule("age-key", &["age-secret-key-"], r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}", Gate::Shape),
    rule("jwt", &["eyj"], r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", Gate::Shape),
    rule("bearer-token", &["bearer"], r"(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{16,})", Gate::Mixed),
    rule(
        "authorization",
        &["authorization"],
        r"(?i)\bauthorization:\s*(?:basic|token)\s+([^\s\x22']{8,})",
        Gate::Value,
    ),
    rule("url-password", &["://"], r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#:@]*:([^\s/?#]+)@", Gate::Value)
        .with(b'@'),
    rule("url-token", &["://"], r"[A-Za-z][A-Za-z0-9+.-]*://([A-Za-z0-9_-]{20,})@", Gate::Mixed).with(b'@'),
    // Inside a script that is one argument: `sh -c "tool --password=…"`.
    rule(
        "option",
        SECRET_WORDS,
        r#"(?i)--[a-z0-9_-]*(?:passw(?:or)?d|passphrase|token|secret|api[_-]?key|access[_-]?key)=["']?([^\s"']+)"#,
        Gate::Value,
    )
    .with(b'='),
    rule(
        "option",
        SECRET_WORDS,
        r#"(?i)--[a-z0-9_-]*(?:passw(?:or)?d|passphrase|token|secret|api[_-]?key|access[_-]?key)\s+["']?([^\s"']{6,})"#,
        Gate::Mixed,
    )
    .with(b'-'),
    rule(
        "assignment",
        SECRET_WORDS,
        r#"(?i)(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)["']?\s*[:=]\s*["']?([A-Za-z0-9_./+=~!@#%^*-]{12,})"#,
        Gate::Mixed,
    ),
];

const SECRET_WORDS: &[&str] = &[
    "passw",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "access-key",
    "accesskey",
];

/// To the end of the input where the end of the block was cut off.
const PRIVATE_KEY: &str = r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)";

/// The shortest input that can hold a secret.
const SHORTEST: usize = 8;

/// Everything that any rule finds, unsorted, with overlaps.
pub(crate) fn search(input: &[u8]) -> Vec<Finding> {
    if input.len() < SHORTEST {
        return Vec::new();
    }
    let lower = input.to_ascii_lowercase();
    RULES.iter().filter(|rule| rule.may_match(&lower)).flat_map(|rule| rule.findings(input)).collect()
}

/// Whether any rule has to look closer.
pub(crate) fn may_match(input: &[u8]) -> bool {
    let lower = input.to_ascii_lowercase();
    RULES.iter().any(|rule| rule.may_match(&lower))
}

/// A value that stands for a secret, without being one.
pub(crate) fn is_reference(value: &[u8]) -> bool {
    let marks = |start: &[u8]| value.starts_with(start);
    value.is_empty()
        || marks(b"$")
        || marks(b"<")
        || marks(b"{{")
        || marks(b"%")
        || marks(b"[redacted:")
        || value.iter().all(|byte| *byte == b'*' || *byte == b'x' || *byte == b'.')
}

impl Rule {
    const fn with(mut self, byte: u8) -> Self {
        self.byte = Some(byte);
        self
    }

    fn may_match(&self, lower: &[u8]) -> bool {
        self.byte.is_none_or(|byte| memchr(byte, lower).is_some())
            && self.needles.iter().any(|needle| contains(lower, needle.as_bytes()))
    }

    fn findings(&'static self, input: &[u8]) -> Vec<Finding> {
        let Some(regex) = self.compiled.get_or_init(|| compile(self.shape)) else {
            // A rule that cannot be compiled must not let anything through: the tests compile every one.
            return vec![Finding { rule: self.name, start: 0, end: input.len() }];
        };
        let secrets = regex.captures_iter(input).filter_map(|found| found.get(1).or_else(|| found.get(0)));
        secrets
            .filter(|secret| self.gate.admits(secret.as_bytes()))
            .map(|secret| Finding { rule: self.name, start: secret.start(), end: secret.end() })
            .collect()
    }
}

/// WHY NOT `memmem` or an automaton: command lines are short, and building a searcher costs more than the search.
fn contains(lower: &[u8], needle: &[u8]) -> bool {
    let Some(first) = needle.first() else { return true };
    memchr_iter(*first, lower).any(|at| lower.get(at..).is_some_and(|rest| rest.starts_with(needle)))
}

impl Gate {
    fn admits(self, value: &[u8]) -> bool {
        match self {
            Self::Shape => true,
            Self::Value => !is_reference(value),
            Self::Mixed => {
                value.iter().any(u8::is_ascii_digit)
                    && value.iter().any(u8::is_ascii_alphabetic)
                    && !is_reference(value)
            }
        }
    }
}

const fn rule(name: &'static str, needles: &'static [&'static str], shape: &'static str, gate: Gate) -> Rule {
    Rule { name, needles, byte: None, shape, gate, compiled: OnceLock::new() }
}

fn compile(shape: &str) -> Option<Regex> {
    RegexBuilder::new(shape).unicode(false).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles_and_has_lower_case_needles() {
        for rule in &RULES {
            assert!(compile(rule.shape).is_some(), "{}", rule.name);
            for needle in rule.needles {
                assert_eq!(*needle, needle.to_ascii_lowercase(), "{}", rule.name);
            }
        }
    }
}
