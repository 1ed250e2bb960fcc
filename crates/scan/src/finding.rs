//! Findings: location and kind of a secret, never its value.

use std::fmt::{self, Display, Formatter, Write as _};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// A secret in the input, by its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The id of a rule, or `secret/NAME` for the exact value of a registered secret.
    pub rule: Arc<str>,
    pub start: usize,
    pub end: usize,
    pub layers: EncodingLayers,
    pub confidence: Confidence,
    /// Fingerprint of the decoded value, so that one secret has one fingerprint in every encoding. Needs a salt.
    pub fingerprint: Option<SecretFingerprint>,
}

/// Confidence of a finding, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Text beside it calls it a secret.
    Context,
    /// It has the shape of a kind of credential.
    Shape,
    /// Its checksum is valid.
    Checksum,
    /// It is the value of a registered secret.
    Exact,
}

impl Confidence {
    pub fn name(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Shape => "shape",
            Self::Checksum => "checksum",
            Self::Exact => "exact",
        }
    }
}

/// One step between the bytes and the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Url,
    Base64,
    Hex,
    /// JSON, C and shell escapes: `\u0067`, `\x67`, `\/`.
    Escaped,
    Gzip,
    Utf16,
    Reversed,
    /// Terminal control sequences in between.
    Ansi,
    /// Line breaks in between.
    Lines,
}

impl Encoding {
    pub fn name(self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Base64 => "base64",
            Self::Hex => "hex",
            Self::Escaped => "escaped",
            Self::Gzip => "gzip",
            Self::Utf16 => "utf16",
            Self::Reversed => "reversed",
            Self::Ansi => "ansi",
            Self::Lines => "lines",
        }
    }
}

/// The encodings around a secret, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodingLayers([Option<Encoding>; MOST_LAYERS]);

/// Three encodings, each with removed separators before it, and one form of an exact value.
const MOST_LAYERS: usize = 8;

impl EncodingLayers {
    pub fn iter(&self) -> impl Iterator<Item = Encoding> + '_ {
        self.0.iter().flatten().copied()
    }

    pub fn is_plain(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(crate) fn inside(mut self, encoding: Encoding) -> Self {
        if let Some(free) = self.0.iter_mut().find(|place| place.is_none()) {
            *free = Some(encoding);
        }
        self
    }
}

/// `plain`, or `base64/gzip`.
impl Display for EncodingLayers {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_plain() {
            return f.write_str("plain");
        }
        for (at, encoding) in self.iter().enumerate() {
            if at > 0 {
                f.write_char('/')?;
            }
            f.write_str(encoding.name())?;
        }
        Ok(())
    }
}

/// Makes fingerprints of different installations incomparable, and prevents guessing a short secret from its fingerprint without
/// the salt.
#[derive(Clone)]
pub struct FingerprintSalt(Vec<u8>);

impl FingerprintSalt {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn fingerprint(&self, value: &[u8]) -> SecretFingerprint {
        let mut hash = Sha256::new();
        hash.update((self.0.len() as u64).to_be_bytes());
        hash.update(&self.0);
        hash.update(value);
        let mut short = [0; FINGERPRINT];
        short.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
        SecretFingerprint(short)
    }
}

impl fmt::Debug for FingerprintSalt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(…)")
    }
}

/// Long enough to distinguish secrets, too short to reveal one.
const FINGERPRINT: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretFingerprint([u8; FINGERPRINT]);

impl Display for SecretFingerprint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SecretFingerprint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Finding {
    /// Whether `whole` is the same finding with more bytes.
    pub(crate) fn is_part_of(&self, whole: &Finding) -> bool {
        self.rule == whole.rule && whole.start < self.end && self.start < whole.end
    }
}

/// Sorts findings and merges overlaps. The most certain one, then the first, gives the name.
pub(crate) fn merge(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| (finding.start, std::cmp::Reverse(finding.end)));
    let mut merged: Vec<Finding> = Vec::with_capacity(findings.len());
    for finding in findings {
        match merged.last_mut() {
            Some(last) if finding.start < last.end => join(last, finding),
            _ => merged.push(finding),
        }
    }
    merged
}

fn join(last: &mut Finding, next: Finding) {
    let (start, end) = (last.start, last.end.max(next.end));
    // A value encoded once is also found after decodings that do not change it.
    let depth = |finding: &Finding| finding.layers.iter().count();
    let surer = next.confidence > last.confidence
        || (next.confidence == last.confidence && depth(&next) < depth(last));
    if surer {
        *last = next;
    }
    (last.start, last.end) = (start, end);
}

pub(crate) fn mark(rule: &str) -> String {
    format!("[redacted:{rule}]")
}
