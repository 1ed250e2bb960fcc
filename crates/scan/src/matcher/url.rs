//! Passwords and tokens in the authority of a URL.

use std::ops::Range;

use crate::rules::{MatchFilter, is_placeholder, is_reference};

/// Longer authorities are none.
const MOST: usize = 512;
const SHORTEST_TOKEN: usize = 20;
/// What documentation writes.
const EXAMPLES: &[&[u8]] = &[
    b"password",
    b"pass",
    b"passwd",
    b"pwd",
    b"secret",
    b"p@ssw0rd",
    b"bar",
    b"user",
    b"username",
    b"token",
    b"mypassword",
];

/// Behind `://`, before the last `@` of the authority.
fn user_info(bytes: &[u8], hit: Range<usize>) -> Option<Range<usize>> {
    let has_scheme =
        hit.start.checked_sub(1).and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric);
    let rest = bytes.get(hit.end..)?;
    let ends = |byte: &u8| {
        byte.is_ascii_whitespace()
            || matches!(byte, b'/' | b'?' | b'#' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\')
    };
    let length = rest.iter().take(MOST).position(ends).unwrap_or(rest.len().min(MOST));
    let at = rest.get(..length)?.iter().rposition(|byte| *byte == b'@')?;
    // `user:pass@` is followed by a host.
    let host = rest
        .get(at + 1)
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'[' | b'$' | b'{' | b'_'));
    let is_marked = rest.starts_with(b"[redacted:");
    (has_scheme && host && !is_marked).then_some(hit.end..hit.end + at)
}

pub(super) fn password(bytes: &[u8], hit: Range<usize>) -> Option<Range<usize>> {
    let info = user_info(bytes, hit)?;
    let text = bytes.get(info.clone())?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (user, password) = (text.get(..colon)?, text.get(colon + 1..)?);
    let known = EXAMPLES.iter().any(|word| password.eq_ignore_ascii_case(word));
    let templated = matches!(password.first(), Some(b'{' | b'[' | b'('));
    let quiet = password.len() < 2
        || is_reference(password)
        || is_placeholder(password)
        || known
        || templated
        || user == password;
    (!quiet).then_some(info.start + colon + 1..info.end)
}

pub(super) fn token(bytes: &[u8], hit: Range<usize>) -> Option<Range<usize>> {
    let info = user_info(bytes, hit)?;
    let text = bytes.get(info.clone())?;
    let is_token = text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    // The key in the address that errors are reported to is public.
    let host = bytes.get(info.end..)?;
    if memchr::memmem::find(host.get(..host.len().min(64))?, b"sentry").is_some() {
        return None;
    }
    let gate = MatchFilter { entropy: 3.0, mixed: true, random: false };
    (text.len() >= SHORTEST_TOKEN && is_token && gate.admits(text)).then_some(info)
}
