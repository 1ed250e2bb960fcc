//! Gzip, recognised by its first three bytes. The output is limited, because of decompression bombs.

use std::io::Read as _;

use flate2::bufread::GzDecoder;

use super::{DecodeBudget, DecodedPiece, PieceOrigin};
use crate::finding::Encoding;

const MAGIC_START: u8 = 0x1f;
const MAGIC: &[u8] = &[MAGIC_START, 0x8b, 0x08];
/// The magic in base64.
pub(super) const IN_BASE64: &[u8] = b"H4sI";
/// Maximum output of one compressed text.
pub(super) const MOST: usize = 4 << 20;
/// Fixed cost of an attempt, which limits their number per window.
const ATTEMPT: usize = 1 << 10;

pub(super) struct GzipResult {
    pub(super) bytes: Vec<u8>,
    /// Bytes of the input that were consumed.
    pub(super) consumed: usize,
}

/// Compressed data that is not encoded.
pub(super) fn raw(bytes: &[u8], pieces: &mut Vec<DecodedPiece>, allowance: &mut DecodeBudget) {
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
            let places = PieceOrigin::Whole(start..from.min(bytes.len()));
            pieces.push(DecodedPiece { bytes: inflated.bytes, places, encodings: &[Encoding::Gzip] });
        }
    }
}

/// Decompresses as much as possible: truncated data still yields its start.
pub(super) fn inflate(compressed: &[u8], allowance: &mut DecodeBudget) -> Option<GzipResult> {
    if allowance.left() == 0 {
        allowance.take(1);
        return None;
    }
    let most = MOST.min(allowance.left());
    let (mut bytes, mut rest) = (Vec::new(), compressed);
    // One member after another. Data after the last member is not part of it.
    while rest.starts_with(MAGIC) && bytes.len() < most {
        if let Some(behind) = behind_endless_name(rest) {
            rest = behind;
            break;
        }
        let mut decoder = GzDecoder::new(rest);
        let room = (most - bytes.len()) as u64;
        // Truncated data ends in an error; the output before it counts.
        let is_whole = decoder.by_ref().take(room).read_to_end(&mut bytes).is_ok();
        rest = decoder.into_inner();
        if !is_whole {
            break;
        }
    }
    if bytes.len() == MOST {
        allowance.refused += 1;
    }
    // A header may cover the whole input and yield nothing, so the input counts too.
    let consumed = compressed.len() - rest.len();
    allowance.spend(ATTEMPT + consumed + bytes.len());
    (!bytes.is_empty()).then_some(GzipResult { bytes, consumed })
}

/// The rest after a header whose name or comment does not end within the limit of the decoder. The decoder would search the end
/// byte by byte, and in text such data only looks like gzip.
fn behind_endless_name(member: &[u8]) -> Option<&[u8]> {
    const FIXED: usize = 10;
    const EXTRA: u8 = 1 << 2;
    const NAME_OR_COMMENT: u8 = 1 << 3 | 1 << 4;
    const RESERVED: u8 = 0b1110_0000;
    /// Limit of flate2 for a name.
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
