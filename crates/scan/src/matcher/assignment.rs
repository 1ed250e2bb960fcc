//! Values of names that mean a secret: `DB_PASSWORD=…`, `"api_key": "…"`, `--token …`.
//!
//! Such names are in every program. So the value must not look like a word, and code (calls, paths, references) is skipped.

use std::ops::Range;

use crate::rules::{is_placeholder, is_reference, is_uuid, looks_random};

/// Longer names are sentences.
const LONGEST_NAME: usize = 48;
const LONGEST_VALUE: usize = 512;
const SHORTEST_VALUE: usize = 12;
const SHORTEST_PASSWORD: usize = 8;
const SHORTEST_OPTION: usize = 6;

/// Allowed text between the keyword and the end of the name. Others (`token_count`, `secretName`) mean something else.
const SUFFIXES: &[&[u8]] = &[
    b"",
    b"key",
    b"keybase",
    b"value",
    b"string",
    b"hex",
    b"base64",
    b"b64",
    b"token",
    b"1",
    b"2",
    b"prod",
    b"production",
    b"dev",
    b"live",
    b"test",
    b"staging",
    b"default",
    b"phrase",
    b"ord",
    b"d",
    b"word",
    b"accesskey",
    b"access",
];

/// `hit` is the keyword in the name.
pub(super) fn assigned(bytes: &[u8], hit: Range<usize>) -> Option<Range<usize>> {
    let name = name_end(bytes, hit.clone())?;
    let value = value_start(bytes, name)?;
    if names_something_else(bytes, &hit) {
        return None;
    }
    let found = match value.quote {
        Some(quote) => quoted(bytes, value.start, quote)?,
        None => bare(bytes, value.start)?,
    };
    let kind = AssignmentKind::of(bytes.get(hit)?);
    let text = bytes.get(found.clone())?;
    let is_type = kind == AssignmentKind::Token && value.quote.is_none() && is_type(bytes, name, text);
    let is_code = is_type || is_code(bytes, &found);
    (kind.admits(text, value.quote) && !is_code).then_some(found)
}

/// `--password=SECRET`, `--token SECRET` inside a text.
pub(super) fn option(bytes: &[u8], hit: Range<usize>) -> Option<Range<usize>> {
    let start = option_start(bytes, hit.start)?;
    let end = hit.end + option_letters(bytes, hit.end);
    let name = bytes.get(start..end)?;
    if name.len() > LONGEST_NAME || !has_secret_end(name) || names_something_else(bytes, &hit) {
        return None;
    }
    let separator = bytes.get(end)?;
    let rest = bytes.get(end + 1..)?;
    let blanks = if *separator == b'=' { 0 } else { rest.iter().take_while(|byte| **byte == b' ').count() };
    let quote = rest.get(blanks).filter(|byte| matches!(byte, b'"' | b'\'')).copied();
    let from = end + 1 + blanks + usize::from(quote.is_some());
    let length =
        bytes.get(from..)?.iter().take(LONGEST_VALUE).take_while(|byte| ends_option(**byte, quote)).count();
    let found = from..from + length;
    let value = bytes.get(found.clone())?;
    let fits = match separator {
        b'=' => !is_reference(value),
        b' ' => value.len() >= SHORTEST_OPTION && is_mixed(value) && !is_reference(value) && !is_uuid(value),
        _ => false,
    };
    (fits && !is_placeholder(value)).then_some(found)
}

fn ends_option(byte: u8, quote: Option<u8>) -> bool {
    match quote {
        Some(quote) => byte != quote && byte != b'\n',
        None => !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\'' | b'`'),
    }
}

/// The first dash of `--db-` before the keyword.
fn option_start(bytes: &[u8], at: usize) -> Option<usize> {
    let from = at.saturating_sub(LONGEST_NAME);
    let before = bytes.get(from..at)?;
    let letters = before.iter().rev().take_while(|byte| is_name(**byte) || **byte == b'-').count();
    let name = before.get(before.len() - letters..)?;
    (name.starts_with(b"--") && !name.starts_with(b"--no-")).then_some(at - letters)
}

fn option_letters(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.iter().take(LONGEST_NAME).take_while(|byte| is_name(**byte) || **byte == b'-').count()
}

/// `--token-file` names a file.
fn has_secret_end(name: &[u8]) -> bool {
    let name: Vec<u8> =
        name.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect();
    crate::argv::SECRET_OPTIONS.iter().any(|option| name.ends_with(option.as_bytes()))
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Tokens that are no credentials: list positions and requests.
const HARMLESS: &[&[u8]] = &[
    b"next",
    b"page",
    b"continuation",
    b"sync",
    b"lock",
    b"request",
    b"idempotency",
    b"change",
    b"cancellation",
    b"pagination",
    b"cursor",
    b"resume",
];

/// `nextToken`, and the last but one part of `arn:…:secret:name`.
fn names_something_else(bytes: &[u8], hit: &Range<usize>) -> bool {
    let before = bytes.get(hit.start.saturating_sub(LONGEST_NAME)..hit.start).unwrap_or_default();
    let words = before.strip_suffix(b"_").or_else(|| before.strip_suffix(b"-")).unwrap_or(before);
    let ends_with = |word: &&[u8]| {
        let from = words.len().checked_sub(word.len());
        from.and_then(|from| words.get(from..)).is_some_and(|end| end.eq_ignore_ascii_case(word))
    };
    before.ends_with(b":") || HARMLESS.iter().any(ends_with)
}

/// Where the name ends whose keyword was hit, if what follows the keyword still names a secret.
fn name_end(bytes: &[u8], hit: Range<usize>) -> Option<usize> {
    let rest = bytes.get(hit.end..)?;
    let length = rest.iter().take(LONGEST_NAME).take_while(|byte| is_name(**byte) || **byte == b'-').count();
    let suffix = rest.get(..length)?;
    (suffix.is_empty() || is_known_suffix(suffix)).then_some(hit.end + length)
}

/// Whatever its case, and with or without `_` and `-` between its words.
fn is_known_suffix(suffix: &[u8]) -> bool {
    let letters = || suffix.iter().filter(|byte| !matches!(byte, b'_' | b'-')).map(u8::to_ascii_lowercase);
    SUFFIXES.iter().any(|known| letters().eq(known.iter().copied()))
}

struct AssignedValue {
    start: usize,
    quote: Option<u8>,
}

/// Behind the sign that assigns.
fn value_start(bytes: &[u8], name: usize) -> Option<AssignedValue> {
    let mut at = name;
    // The quote of a key, with the backslash of a string in a string.
    at += skip(bytes, at, 2, |byte| matches!(byte, b'\\' | b'"' | b'\'' | b'`' | b']'));
    at += skip(bytes, at, 8, |byte| matches!(byte, b' ' | b'\t'));
    at += assignment_sign(bytes.get(at..)?)?;
    at += skip(bytes, at, 8, |byte| matches!(byte, b' ' | b'\t'));
    let slash = skip(bytes, at, 1, |byte| byte == b'\\');
    let quote = bytes.get(at + slash).filter(|byte| matches!(byte, b'"' | b'\'' | b'`')).copied();
    let start = if quote.is_some() { at + slash + 1 } else { at };
    Some(AssignedValue { start, quote })
}

/// `=`, `:`, `:=`, `=>`; not `==`, `::` or `!=`.
fn assignment_sign(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'=', b'=' | b'~', ..] | [b':', b':', ..] => None,
        [b':', b'=', ..] | [b'=', b'>', ..] => Some(2),
        [b':' | b'=', ..] => Some(1),
        _ => None,
    }
}

fn skip(bytes: &[u8], from: usize, most: usize, is: impl Fn(u8) -> bool) -> usize {
    bytes.get(from..).unwrap_or_default().iter().take(most).take_while(|byte| is(**byte)).count()
}

fn quoted(bytes: &[u8], start: usize, quote: u8) -> Option<Range<usize>> {
    let rest = bytes.get(start..)?;
    let length = rest.iter().take(LONGEST_VALUE).position(|byte| *byte == quote || *byte == b'\n')?;
    // A string inside a string ends with a backslash before its quote.
    let value = rest.get(..length)?;
    let value = value.strip_suffix(b"\\").unwrap_or(value);
    (rest.get(length) == Some(&quote)).then_some(start..start + value.len())
}

fn bare(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let length = skip(bytes, start, LONGEST_VALUE, is_value);
    (length > 0).then_some(start..start + length)
}

fn is_value(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'_' | b'.' | b'/' | b'+' | b'=' | b'~' | b'!' | b'@' | b'#' | b'%' | b'^' | b'*' | b'-'
        )
}

/// A call, an index or a field.
fn is_code(bytes: &[u8], value: &Range<usize>) -> bool {
    matches!(bytes.get(value.end), Some(b'(' | b'[' | b'{' | b'<'))
}

/// `key: ed25519.PrivateKey`: words after a colon, whatever numbers are in them.
fn is_type(bytes: &[u8], name: usize, value: &[u8]) -> bool {
    let is_word = value.split(|byte| !byte.is_ascii_lowercase()).any(|word| word.len() >= 5);
    let turns =
        value.iter().zip(value.iter().skip(1)).filter(|(a, b)| a.is_ascii_digit() != b.is_ascii_digit());
    bytes.get(name) == Some(&b':')
        && is_word
        && turns.count() <= 3
        && value.iter().all(|byte| is_name(*byte) || *byte == b'.')
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AssignmentKind {
    /// Chosen by a person; may be short.
    Password,
    /// Generated by a machine.
    Token,
}

impl AssignmentKind {
    fn of(keyword: &[u8]) -> Self {
        let is_password = keyword.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'p'))
            && !keyword.to_ascii_lowercase().starts_with(b"private");
        if is_password { Self::Password } else { Self::Token }
    }

    fn admits(self, value: &[u8], quote: Option<u8>) -> bool {
        if is_reference(value) || is_placeholder(value) || is_path(value) {
            return false;
        }
        match self {
            Self::Token => value.len() >= SHORTEST_VALUE && !value.contains(&b' ') && looks_random(value),
            Self::Password if quote.is_some() => value.len() >= SHORTEST_PASSWORD && is_chosen(value),
            Self::Password => value.len() >= SHORTEST_PASSWORD && is_chosen(value) && !is_identifier(value),
        }
    }
}

fn is_mixed(value: &[u8]) -> bool {
    value.iter().any(u8::is_ascii_digit) && value.iter().any(u8::is_ascii_alphabetic)
}

/// Letters, digits and no blank: what a person takes for a password, and no sentence or identifier.
fn is_chosen(value: &[u8]) -> bool {
    let symbol = value
        .iter()
        .any(|byte| byte.is_ascii_punctuation() && !matches!(byte, b'_' | b'-' | b'.' | b'/' | b':' | b','));
    let clean = value.iter().all(|byte| {
        byte.is_ascii_graphic() && !matches!(byte, b'(' | b')' | b'{' | b'}' | b'<' | b'>' | b'[' | b']')
    });
    clean && (looks_random(value) || is_mixed(value) && (symbol || ends_in_digits(value)))
}

/// `hunter22`, as opposed to `field_2`.
fn ends_in_digits(value: &[u8]) -> bool {
    let letters = value.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let digits = value.get(letters..).unwrap_or_default();
    letters >= 4 && digits.len() >= 2 && digits.iter().all(u8::is_ascii_digit)
}

/// `config.db.password2`, `PASSWORD_FIELD_1`.
fn is_identifier(value: &[u8]) -> bool {
    let is_plain = value.iter().all(|byte| is_name(*byte) || *byte == b'.');
    is_plain && (value.contains(&b'.') || value.contains(&b'_')) && !looks_random(value)
}

/// Files and addresses.
fn is_path(value: &[u8]) -> bool {
    let starts = |start: &[u8]| value.starts_with(start);
    starts(b"/") && value.iter().filter(|byte| **byte == b'/').count() > 1
        || starts(b"./")
        || starts(b"../")
        || starts(b"~/")
        || memchr::memmem::find(value, b"://").is_some()
}
