//! Text that imitates a private key.
//!
//! The scan of outgoing data is generous: everything between the marker lines of a key counts as a key. For the text of an approval
//! this is unsafe, because a program between such lines would be hidden from the approver. Here only text that parses as a key is
//! redacted, and everything else is shown.

use crate::argv::ArgRedactor;
use crate::finding::{Finding, SecretFingerprint, mark};
use crate::lazy::LazyScanner;
use crate::scanner::RedactedOutput;

const RULE: &str = "private-key";
const DASHES: &[u8] = b"-----";
const END: &[u8] = b"-----END ";
/// Nesting depth of imitated keys. Deeper ones are redacted with a notice.
const DEEPEST: usize = 4;

/// Redacts text for people.
pub(crate) struct ForPeople<'s>(pub(crate) &'s LazyScanner);

impl ArgRedactor for ForPeople<'_> {
    fn may_match(&self, input: &[u8]) -> bool {
        ArgRedactor::may_match(self.0, input)
    }

    fn redact(&self, input: &[u8]) -> RedactedOutput {
        self.shown(input, DEEPEST)
    }

    fn fingerprint(&self, value: &[u8]) -> Option<SecretFingerprint> {
        ArgRedactor::fingerprint(self.0, value)
    }
}

impl ForPeople<'_> {
    fn shown(&self, input: &[u8], depth: usize) -> RedactedOutput {
        let redacted = self.0.redact(input);
        let pretends = |finding: &Finding| {
            &*finding.rule == RULE
                && finding.layers.is_plain()
                && !is_key(input.get(finding.start..finding.end).unwrap_or_default())
        };
        if depth == 0 || !redacted.findings.iter().any(pretends) {
            return redacted;
        }
        let (mut clean, mut findings, mut at) = (Vec::new(), Vec::new(), 0);
        let mut all = redacted.findings;
        all.sort_by_key(|finding| finding.start);
        for finding in all {
            if finding.start < at {
                continue;
            }
            clean.extend_from_slice(input.get(at..finding.start).unwrap_or_default());
            let text = input.get(finding.start..finding.end).unwrap_or_default();
            at = finding.end;
            if !pretends(&finding) {
                clean.extend_from_slice(mark(&finding.rule).as_bytes());
                findings.push(finding);
                continue;
            }
            // Without its first line, nothing in the text is a key because of that line.
            let (head, body) = text.split_at(header(text));
            let inner = self.shown(body, depth - 1);
            clean.extend_from_slice(head);
            clean.extend_from_slice(&inner.clean);
            let offset = finding.start + head.len();
            findings.extend(inner.findings.into_iter().map(|inner| Finding {
                start: inner.start + offset,
                end: inner.end + offset,
                ..inner
            }));
        }
        clean.extend_from_slice(input.get(at..).unwrap_or_default());
        RedactedOutput { clean, findings, refused: redacted.refused }
    }
}

/// Length of the line that says that a key begins.
fn header(text: &[u8]) -> usize {
    let named = memchr::memmem::find(text, b"PRIVATE KEY").unwrap_or_default();
    let rest = text.get(named..).unwrap_or_default();
    memchr::memmem::find(rest, DASHES).map_or(text.len(), |at| named + at + DASHES.len())
}

/// Whether this is an armoured key: strict base64 of a plausible length that parses as a key.
fn is_key(text: &[u8]) -> bool {
    let (head, rest) = text.split_at(header(text));
    let footer = memchr::memmem::find(rest, END);
    let body = rest.get(..footer.unwrap_or(rest.len())).unwrap_or_default();
    let Some(body) = Body::read(body) else { return false };
    let is_pgp = memchr::memmem::find(head, b"PGP").is_some();
    let Some(decoded) = body.decoded(if is_pgp { Sum::Allowed } else { Sum::None }) else { return false };
    match decoded.as_slice() {
        // A truncated key has no valid length.
        bytes if footer.is_none() => is_der_start(bytes) || bytes.starts_with(OPENSSH),
        bytes if is_pgp => bytes.len() >= SHORTEST && is_secret_packet(bytes),
        // In the legacy format an encrypted key is random data in whole blocks.
        bytes if body.encrypted => bytes.len() >= SHORTEST && bytes.len().is_multiple_of(8) && body.is_even,
        bytes => {
            bytes.len() >= SHORTEST
                && (is_der(bytes) || bytes.starts_with(OPENSSH) || bytes.starts_with(SSH2))
        }
    }
}

/// In bytes: an Ed25519 key in PKCS#8 has 48.
const SHORTEST: usize = 32;
const LONGEST: usize = 16 << 10;
const OPENSSH: &[u8] = b"openssh-key-v1\0";
const SSH2: &[u8] = &[0x3f, 0x6f, 0xf9, 0xeb];

struct Body {
    letters: Vec<u8>,
    encrypted: bool,
    /// All lines but the last have the same length.
    is_even: bool,
}

/// Whether a checksum may follow the Base64.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    Allowed,
    None,
}

impl Body {
    /// Reads lines of base64 and key headers, also quoted. `None`: there is other text.
    fn read(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let text = text.replace("\\r", "\n").replace("\\n", "\n");
        let (mut letters, mut lengths, mut encrypted) = (Vec::new(), Vec::new(), false);
        for line in text.lines().map(unquoted).filter(|line| !line.is_empty()) {
            match key_header(line) {
                Some(Header::Encrypted) => encrypted = true,
                Some(Header::Comment) => {}
                None => {
                    for word in line.split_ascii_whitespace() {
                        letters.extend_from_slice(word.as_bytes());
                        lengths.push(word.len());
                    }
                }
            }
        }
        lengths.pop();
        let is_even = lengths.windows(2).all(|pair| pair.first() == pair.last());
        (letters.len() <= LONGEST * 4 / 3).then_some(Self { letters, encrypted, is_even })
    }

    fn decoded(&self, sum: Sum) -> Option<Vec<u8>> {
        let letters = self.letters.as_slice();
        let letters = match letters.split_last_chunk::<5>() {
            Some((rest, [b'=', check @ ..])) if sum == Sum::Allowed && check.iter().all(is_letter) => rest,
            _ => letters,
        };
        let padding = letters.iter().rev().take_while(|byte| **byte == b'=').count();
        let plain = letters.get(..letters.len() - padding)?;
        let strict = padding <= 2 && plain.iter().all(is_letter);
        strict.then(|| crate::decode::base64_letters(plain))
    }
}

fn is_letter(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

/// Removes quoting, comment and list marks around a line.
fn unquoted(line: &str) -> &str {
    let around = |c: char| c.is_ascii_whitespace() || "\"',\\>|#*".contains(c);
    let line = line.trim_matches(around);
    line.strip_suffix("\" +").or_else(|| line.strip_suffix("' +")).unwrap_or(line).trim_matches(around)
}

enum Header {
    Encrypted,
    Comment,
}

/// Free text in a header could be a program, so only known harmless words are accepted.
fn key_header(line: &str) -> Option<Header> {
    let (name, value) = line.split_once(": ")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || " .,-".contains(c);
    let short = value.len() <= 80 && value.chars().all(plain);
    match name {
        "Proc-Type" if value == "4,ENCRYPTED" => Some(Header::Encrypted),
        "DEK-Info" if short && !value.contains(' ') => Some(Header::Encrypted),
        "Version" | "Comment" | "Charset" | "Hash" if short => Some(Header::Comment),
        "Version" => {
            let bare = value.strip_suffix(" (GNU/Linux)").or_else(|| value.strip_suffix(" (MingW32)"))?;
            (bare.len() <= 40 && bare.chars().all(plain)).then_some(Header::Comment)
        }
        _ => None,
    }
}

/// A DER sequence of its declared length that begins with a number or a sequence, as keys do.
fn is_der(bytes: &[u8]) -> bool {
    let Some((length, content)) = der_length(bytes) else { return false };
    length == content.len() && matches!(content.first(), Some(0x02 | 0x30))
}

fn is_der_start(bytes: &[u8]) -> bool {
    let Some((length, content)) = der_length(bytes) else { return false };
    length >= content.len() && length >= SHORTEST && matches!(content.first(), Some(0x02 | 0x30))
}

fn der_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [0x30, 0x81, length, rest @ ..] => Some((usize::from(*length), rest)),
        [0x30, 0x82, high, low, rest @ ..] => Some((usize::from(*high) << 8 | usize::from(*low), rest)),
        [0x30, length @ 0..=0x7f, rest @ ..] => Some((usize::from(*length), rest)),
        _ => None,
    }
}

/// The first packet of OpenPGP is a secret key.
fn is_secret_packet(bytes: &[u8]) -> bool {
    const SECRET_KEY: u8 = 5;
    match bytes.first() {
        Some(first) if first & 0xc0 == 0xc0 => first & 0x3f == SECRET_KEY,
        Some(first) if first & 0x80 != 0 => first >> 2 & 0x0f == SECRET_KEY,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    fn shown(text: &str) -> String {
        String::from_utf8(LazyScanner::default().redact_for_people(text.as_bytes()).clean).unwrap()
    }

    fn armoured(kind: &str, bytes: &[u8]) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----", lines.join("\n"))
    }

    fn der(length: u16) -> Vec<u8> {
        let [high, low] = length.to_be_bytes();
        let mut bytes = vec![0x30, 0x82, high, low, 0x02];
        bytes.extend((1..usize::from(length)).map(|n| u8::try_from(n % 251).unwrap()));
        bytes
    }

    #[test]
    fn a_program_between_the_lines_of_a_key_is_shown() {
        for program in [
            "import shutil\nshutil.rmtree('x')",
            "/w/app/evilprogram12",
            "abcdefghijklmnopqrstuvwxyzabcdef=1",
            "Comment: __import__('shutil').rmtree('x')",
            "MIIabc\nrm -rf x",
        ] {
            let text = format!("-----BEGIN PRIVATE KEY-----\n{program}\n-----END PRIVATE KEY-----");
            assert_eq!(shown(&text), text);
        }
        let line = ": -----BEGIN PRIVATE KEY----- x;rm -rf y;: -----END PRIVATE KEY-----";
        assert_eq!(shown(line), line);
        let cut = "-----BEGIN PRIVATE KEY-----\nrmdirabcdefghijklmnop";
        assert_eq!(shown(cut), cut);
    }

    #[test]
    fn keys_are_not_shown_however_they_are_quoted() {
        let rsa = armoured("RSA PRIVATE KEY", &der(1190));
        let openssh = armoured("OPENSSH PRIVATE KEY", &[OPENSSH, &[7; 100]].concat());
        let pgp = armoured("PGP PRIVATE KEY BLOCK", &[&[0x95, 0x01, 0x10][..], &[9; 120]].concat());
        let old = armoured("RSA PRIVATE KEY", &[3; 640]).replacen(
            "KEY-----\n",
            "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n",
            1,
        );
        for key in [rsa.clone(), openssh, pgp, old, rsa.replace('\n', "\\n"), rsa.replace('\n', " ")] {
            assert_eq!(shown(&format!("a {key} b")), "a [redacted:private-key] b", "{key}");
        }
        let cut = rsa.get(..rsa.len() - 300).unwrap();
        assert_eq!(shown(&format!("a {cut}")), "a [redacted:private-key]");
    }

    #[test]
    fn a_secret_between_such_lines_is_still_one() {
        let key = armoured("RSA PRIVATE KEY", &der(1190));
        let text = format!("-----BEGIN PRIVATE KEY-----\nx\n{key}\nrm -rf y\n-----END PRIVATE KEY-----");
        let shown = shown(&text);
        assert!(shown.contains("rm -rf y") && shown.contains("[redacted:private-key]"), "{shown}");
        let arguments: [&[u8]; 3] =
            [b"-----BEGIN PRIVATE KEY-----", b"\nrm -rf y\n", b"-----END PRIVATE KEY-----"];
        let (argv, found) = LazyScanner::default().redact_argv_for_people(&arguments);
        assert!(found.is_empty() && argv == arguments, "{argv:?}");
    }

    #[test]
    fn pretended_keys_in_one_another_end() {
        let deep = format!("{}rm -rf x", "-----BEGIN PRIVATE KEY-----\nx\n".repeat(500));
        assert!(shown(&deep).len() <= deep.len());
    }
}
