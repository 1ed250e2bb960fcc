//! Gzip, by its first three bytes, up to a limit: a small bomb must not become large.

use std::io::Read as _;

use flate2::bufread::GzDecoder;

use super::{Allowance, Piece, Places};
use crate::finding::Encoding;

const MAGIC_START: u8 = 0x1f;
const MAGIC: &[u8] = &[MAGIC_START, 0x8b, 0x08];
/// The magic in base64.
pub(super) const IN_BASE64: &[u8] = b"H4sI";
/// Most that one compressed text may become.
pub(super) const MOST: usize = 4 << 20;
/// What an attempt costs besides what it reads and gives, so that a window has room for so many only.
const ATTEMPT: usize = 1 << 10;

pub(super) struct Inflated {
    pub(super) bytes: Vec<u8>,
    /// How much of the input it was.
    pub(super) consumed: usize,
}

/// Compressed data that is there as such, not encoded.
pub(super) fn raw(bytes: &[u8], pieces: &mut Vec<Piece>, allowance: &mut Allowance) {
    let mut from = 0;
    while let Some(at) = memchr::memchr(MAGIC_START, bytes.get(from..).unwrap_or_default()) {
        let start = from + at;
        if !bytes.get(start..).is_some_and(|rest| rest.starts_with(MAGIC)) {
            from = start + 1;
            continue;
        }
        let inflated = inflate(bytes.get(start..).unwrap_or_default(), allowance);
        from = start + inflated.as_ref().map_or(MAGIC.len(), |inflated| inflated.consumed.max(MAGIC.len()));
        if let Some(inflated) = inflated {
            let places = Places::Whole(start..from.min(bytes.len()));
            pieces.push(Piece { bytes: inflated.bytes, places, encodings: &[Encoding::Gzip] });
        }
    }
}

/// What could be had: data that is cut off still gives its beginning.
pub(super) fn inflate(compressed: &[u8], allowance: &mut Allowance) -> Option<Inflated> {
    if allowance.left() == 0 {
        allowance.take(1);
        return None;
    }
    let most = MOST.min(allowance.left());
    let (mut bytes, mut rest) = (Vec::new(), compressed);
    // One member after the other, and no look at what follows the last: it is not part of it.
    while rest.starts_with(MAGIC) && bytes.len() < most {
        if let Some(behind) = behind_endless_name(rest) {
            rest = behind;
            break;
        }
        let mut decoder = GzDecoder::new(rest);
        let room = (most - bytes.len()) as u64;
        // An error at the end of cut data is expected; what came before it counts.
        let is_whole = decoder.by_ref().take(room).read_to_end(&mut bytes).is_ok();
        rest = decoder.into_inner();
        if !is_whole {
            break;
        }
    }
    if bytes.len() == MOST {
        allowance.refused += 1;
    }
    // A header may go on to the end of the input and give nothing: what was read counts as well.
    let consumed = compressed.len() - rest.len();
    allowance.spend(ATTEMPT + consumed + bytes.len());
    (!bytes.is_empty()).then_some(Inflated { bytes, consumed })
}

/// What is left where a header has a name or a comment that no decoder reads to its end. It would look for that end byte by
/// byte; in text, what looks like the beginning of compressed data is followed by nothing else.
fn behind_endless_name(member: &[u8]) -> Option<&[u8]> {
    const FIXED: usize = 10;
    const EXTRA: u8 = 1 << 2;
    const NAME_OR_COMMENT: u8 = 1 << 3 | 1 << 4;
    const RESERVED: u8 = 0b1110_0000;
    /// What flate2 reads of a name.
    const LONGEST: usize = 65_536;
    let (fixed, mut text) = member.split_at_checked(FIXED)?;
    let flags = *fixed.get(3)?;
    if flags & NAME_OR_COMMENT == 0 || flags & RESERVED != 0 {
        return None;
    }
    if flags & EXTRA != 0 {
        let (length, rest) = text.split_first_chunk()?;
        text = rest.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    let (name, behind) = text.split_at_checked(LONGEST).unwrap_or((text, &[]));
    memchr::memchr(0, name).is_none().then_some(behind)
}
