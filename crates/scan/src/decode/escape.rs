//! Escapes (`%67`, `\u0067`, `\x67`, `\/`) and terminal control sequences, decoded with their surroundings.

use memchr::memchr3_iter;

use super::region::Regions;
use super::{DecodeBudget, DecodedPiece, PieceOrigin, StripState, hex};
use crate::finding::Encoding;

const ESCAPE: u8 = 0x1b;
/// Base64 letters around an escape that make it part of base64.
const AROUND: usize = 4;

pub(super) fn pieces(
    bytes: &[u8],
    joined: StripState,
    pieces: &mut Vec<DecodedPiece>,
    allowance: &mut DecodeBudget,
) {
    let [mut url, mut escaped, mut ansi] = [const { None::<Regions> }; 3];
    for at in memchr3_iter(b'%', b'\\', ESCAPE, bytes) {
        let rest = bytes.get(at..).unwrap_or_default();
        let regions = match rest.first() {
            Some(b'%') if percent(rest).is_some() => &mut url,
            Some(b'\\') if is_worth_it(bytes, at) => &mut escaped,
            Some(&ESCAPE) if joined == StripState::No && is_sequence(rest) => &mut ansi,
            _ => continue,
        };
        regions.get_or_insert_default().mark(at);
    }
    let kinds: [(_, &[Encoding], _); 3] = [
        (url, &[Encoding::Url], percent as EscapeReader),
        (escaped, &[Encoding::Escaped], backslash),
        (ansi, &[Encoding::Ansi], terminal),
    ];
    for (regions, encodings, reader) in kinds {
        for region in regions.into_iter().flat_map(|regions| regions.finish(bytes.len())) {
            if allowance.take(region.len()) {
                let text = bytes.get(region.clone()).unwrap_or_default();
                let (bytes, places) = translated(text, region.start, reader);
                pieces.push(DecodedPiece { bytes, places: PieceOrigin::Each(places), encodings });
            }
        }
    }
}

/// Reads one escape: the byte it stands for, if any, and its length.
type EscapeReader = fn(&[u8]) -> Option<(Option<u8>, usize)>;

fn translated(text: &[u8], base: usize, read: EscapeReader) -> (Vec<u8>, Vec<(u32, u32)>) {
    let (mut bytes, mut places) = (Vec::with_capacity(text.len()), Vec::with_capacity(text.len()));
    let mut at = 0;
    while let Some(first) = text.get(at) {
        let is_mark = matches!(first, b'%' | b'\\' | &ESCAPE);
        let escape = if is_mark { read(text.get(at..).unwrap_or_default()) } else { None };
        let (byte, length) = escape.unwrap_or((Some(*first), 1));
        if let Some(byte) = byte {
            bytes.push(byte);
            places.push(((base + at) as u32, (base + at + length) as u32));
        }
        at += length;
    }
    (bytes, places)
}

/// Readings of text that may end in the middle of an escape: one for each kind of escape, without an unfinished one at the end.
/// Returns the source of each byte too.
pub(crate) fn readings(text: &[u8]) -> Vec<(Vec<u8>, Vec<usize>)> {
    let readers: [(u8, EscapeReader); 3] = [(b'%', percent), (b'\\', backslash), (ESCAPE, terminal)];
    let present = readers.iter().filter(|(mark, _)| memchr::memchr(*mark, text).is_some());
    let mut readings: Vec<(Vec<u8>, Vec<usize>)> = present
        .map(|(mark, read)| {
            let last = memchr::memrchr(*mark, text).unwrap_or(text.len());
            let is_cut = read(text.get(last..).unwrap_or_default()).is_none();
            let whole = if is_cut { text.get(..last).unwrap_or_default() } else { text };
            let (bytes, places) = translated(whole, 0, *read);
            (bytes, places.into_iter().map(|(from, _)| from as usize).collect())
        })
        .collect();
    if memchr::memchr(0, text).is_some() {
        // UTF-16.
        readings.push(
            text.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, byte)| (*byte, at)).unzip(),
        );
    }
    readings
}

fn percent(text: &[u8]) -> Option<(Option<u8>, usize)> {
    let byte = hex::byte(text.strip_prefix(b"%")?.get(..2)?)?;
    Some((Some(byte), 3))
}

/// ASCII only: credentials contain no other characters.
fn backslash(text: &[u8]) -> Option<(Option<u8>, usize)> {
    let rest = text.strip_prefix(b"\\")?;
    let plain = |byte: u8| Some((Some(byte), 2));
    match rest.first()? {
        b'u' => {
            let digits = rest.get(1..5)?.strip_prefix(b"00")?;
            Some((Some(hex::byte(digits)?), 6))
        }
        b'x' => Some((Some(hex::byte(rest.get(1..3)?)?), 4)),
        b'n' => plain(b'\n'),
        b'r' => plain(b'\r'),
        b't' => plain(b'\t'),
        mark @ (b'/' | b'\\' | b'"' | b'\'') => plain(*mark),
        b'0'..=b'1' => octal(rest),
        _ => None,
    }
}

fn octal(digits: &[u8]) -> Option<(Option<u8>, usize)> {
    let digits = digits.get(..3)?;
    let value =
        digits.iter().try_fold(0_u32, |value, digit| Some(value * 8 + char::from(*digit).to_digit(8)?))?;
    Some((u8::try_from(value).ok(), 4))
}

/// Escapes that hide letters. Common ones (`\n`, `\"`) count only inside possible base64, because every JSON file is full of
/// them.
fn is_worth_it(bytes: &[u8], at: usize) -> bool {
    let rest = bytes.get(at + 1..).unwrap_or_default();
    match rest.first() {
        Some(b'u') => {
            rest.starts_with(b"u00") && rest.get(3).is_some_and(|digit| (b'2'..=b'7').contains(digit))
        }
        Some(b'x') => rest.get(1).is_some_and(|digit| (b'2'..=b'7').contains(digit)),
        Some(b'0' | b'1') => octal(rest).is_some(),
        Some(b'/' | b'n' | b'r') => {
            let before = at.checked_sub(AROUND).and_then(|from| bytes.get(from..at));
            let after = rest.get(1..).map(|after| after.strip_prefix(b"\\n").unwrap_or(after));
            let letters = |part: Option<&[u8]>| {
                part.is_some_and(|part| {
                    part.len() >= AROUND
                        && part.iter().take(AROUND).all(|byte| super::is_encoded_letter(*byte))
                })
            };
            letters(before) && letters(after)
        }
        _ => false,
    }
}

/// In binary data an escape byte has no meaning.
fn is_sequence(rest: &[u8]) -> bool {
    matches!(rest.get(1), Some(b'[' | b']' | b'(' | b')'))
}

/// CSI and OSC sequences and two-byte escapes are removed.
fn terminal(text: &[u8]) -> Option<(Option<u8>, usize)> {
    let rest = text.strip_prefix(&[ESCAPE])?;
    let length = match rest.first()? {
        b'[' => 2 + rest.iter().skip(1).take(64).position(|byte| (0x40..=0x7e).contains(byte))? + 1,
        b']' => 2 + rest.iter().skip(1).take(1024).position(|byte| *byte == 7 || *byte == ESCAPE)? + 1,
        b'(' | b')' => 3,
        _ => 2,
    };
    Some((None, length.min(text.len())))
}
