//! Private keys in their armour (PEM, OpenSSH, PGP, PuTTY …): one finding from the first dash to the last, also where line breaks
//! are written as `\n` and where the end is cut off.

use std::ops::Range;

use memchr::memmem;

/// Longer than any key that people have; what follows is something else.
const MOST: usize = 1 << 16;
const HEADER: usize = 64;
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// The shortest line of a key whose end is not in sight; less may be the text of a program that looks for keys.
const SHORTEST_LINE: usize = 16;

/// `hit` is the `PRIVATE KEY` of the header.
pub(super) fn find(bytes: &[u8], hit: Range<usize>) -> Option<Range<usize>> {
    let start = begin(bytes, hit.start)?;
    let header = bytes.get(hit.end..)?;
    let header_end = hit.end + memmem::find(header.get(..header.len().min(16))?, DASHES)? + DASHES.len();
    let body = bytes.get(header_end..)?;
    let body = body.get(..body.len().min(MOST))?;
    let length = body_length(body);
    let rest = body.get(length..)?;
    let end = if rest.starts_with(END) { end_of(body, length) } else { cut_body(body)? };
    let letters = body.get(..end)?.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
    (starts_line(body) && letters > 0).then_some(start..header_end + end)
}

/// How much of a body without footer is one: to the end of the input, or as far as there are lines of letters.
fn cut_body(body: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let rest = body.get(end..)?;
        let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
        let blanks =
            if blanks == 0 && (rest.starts_with(b"\\n") || rest.starts_with(b"\\r")) { 2 } else { blanks };
        let line = rest.get(blanks..)?;
        let letters = line
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
            .count();
        let is_last =
            blanks > 0 && line.get(letters..).is_some_and(|rest| rest.is_empty() || is_cut_footer(rest));
        if is_last {
            return Some(body.len());
        }
        if blanks == 0 || letters < SHORTEST_LINE {
            return (end > 0).then_some(end);
        }
        end += blanks + letters;
    }
}

/// The beginning of a footer that ends with the input.
fn is_cut_footer(rest: &[u8]) -> bool {
    let line: &[u8] = rest.strip_prefix(b"\n").or_else(|| rest.strip_prefix(b"\\n")).unwrap_or(rest);
    END.starts_with(line) || (line.starts_with(END) && line.len() < HEADER && !line.contains(&b'\n'))
}

/// How much of `bytes` still belongs to a key that began before them.
pub(crate) fn continues(bytes: &[u8]) -> usize {
    end_of(bytes, body_length(bytes))
}

/// The `-----BEGIN ` before, on the same line.
fn begin(bytes: &[u8], at: usize) -> Option<usize> {
    let from = at.saturating_sub(HEADER);
    let before = bytes.get(from..at)?;
    let begin = memmem::rfind(before, b"BEGIN ")?;
    let words = before.get(begin..)?;
    let is_header =
        words.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b' ');
    // Four dashes and a blank are how SSH2 writes it.
    let dashes = before.get(..begin)?.iter().rev().take_while(|byte| matches!(byte, b'-' | b' ')).count();
    (is_header && dashes >= 4).then_some(from + begin - dashes.min(5))
}

/// Line breaks, real or written out, begin a body; a quote after the header does not.
fn starts_line(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\r").unwrap_or(body);
    let body = if body.starts_with(b"\\") { body.get(1..).unwrap_or_default() } else { body };
    let body = body.strip_prefix(b"\\").unwrap_or(body);
    matches!(body.first(), Some(b'\n' | b'n' | b'r' | b' ' | b'\t'))
        || body.first().is_some_and(u8::is_ascii_alphanumeric)
}

/// Up to the footer, or to what cannot be in a body.
fn body_length(bytes: &[u8]) -> usize {
    let footer = memmem::find(bytes, DASHES).unwrap_or(bytes.len());
    let body = bytes.get(..footer).unwrap_or_default();
    body.iter().position(|byte| !is_body(*byte)).unwrap_or(footer)
}

/// Base64, the headers of encrypted keys, and how either is quoted in other texts.
fn is_body(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'+' | b'/'
                | b'='
                | b'\n'
                | b'\r'
                | b'\t'
                | b' '
                | b':'
                | b','
                | b'-'
                | b'_'
                | b'.'
                | b'\\'
                | b'"'
                | b'\''
                | b'>'
                | b'|'
                | b'#'
                | b'*'
                | b'('
                | b')'
                | b'<'
                | b'@'
                | b';'
        )
}

/// With the footer where there is one.
fn end_of(bytes: &[u8], length: usize) -> usize {
    let rest = bytes.get(length..).unwrap_or_default();
    let Some(behind) = rest.strip_prefix(END) else { return length };
    let line = behind.get(..behind.len().min(HEADER)).unwrap_or_default();
    memmem::find(line, DASHES)
        .map_or(length + END.len() + line.len(), |at| length + END.len() + at + DASHES.len())
}
