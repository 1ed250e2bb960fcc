//! Decoding of `Content-Encoding`, so that the scanner sees the content of a body.

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Bytes decoded in one step. A decompression bomb grows to at most about a thousand times this before the size check.
const STEP: usize = 1 << 10;
/// Largest decoded size: per encoded byte, and in total.
const MOST_PER_BYTE: u64 = 200;
const MOST_AT_LEAST: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentEncoding {
    Identity,
    Gzip,
    Deflate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ContentEncodingError {
    #[error("its content encoding is not one that can be read here (gzip, deflate)")]
    Unknown,
    #[error("its compressed content is malformed")]
    Malformed,
    #[error("its compressed content becomes too large")]
    Bomb,
}

impl ContentEncoding {
    /// Reads the encoding of a body. Stacked encodings are refused.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, ContentEncodingError> {
        let mut coding = Self::Identity;
        for value in headers.get_all(CONTENT_ENCODING) {
            let text = value.to_str().ok().ok_or(ContentEncodingError::Unknown)?;
            for word in text.split(',').map(|word| word.trim().to_ascii_lowercase()) {
                let next = match word.as_str() {
                    // The framing of S3: chunks with signatures between them. Their content is plain.
                    "" | "identity" | "aws-chunked" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    _ => return Err(ContentEncodingError::Unknown),
                };
                if coding != Self::Identity {
                    return Err(ContentEncodingError::Unknown);
                }
                coding = next;
            }
        }
        Ok(coding)
    }
}

/// Decodes a body chunk by chunk.
#[derive(Debug)]
pub(crate) struct ContentDecoder {
    kind: DecoderKind,
    read: u64,
    made: u64,
}

#[derive(Debug)]
enum DecoderKind {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    /// `deflate` means zlib, but some servers send raw deflate data. The first byte tells which.
    Unknown,
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Bare(Box<DeflateDecoder<Vec<u8>>>),
}

impl ContentDecoder {
    pub(crate) fn new(coding: ContentEncoding) -> Self {
        let kind = match coding {
            ContentEncoding::Identity => DecoderKind::Identity,
            ContentEncoding::Gzip => DecoderKind::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            ContentEncoding::Deflate => DecoderKind::Unknown,
        };
        Self { kind, read: 0, made: 0 }
    }

    /// Decodes `input` and hands out what it says.
    pub(crate) fn feed(
        &mut self,
        input: &[u8],
        mut give: impl FnMut(&[u8]),
    ) -> Result<(), ContentEncodingError> {
        if matches!(self.kind, DecoderKind::Identity) {
            give(input);
            return Ok(());
        }
        for step in input.chunks(STEP) {
            self.read += step.len() as u64;
            let decoded = self.step(step)?;
            self.count(decoded.len())?;
            give(&decoded);
        }
        Ok(())
    }

    /// Ends the stream. Truncated data is malformed.
    pub(crate) fn finish(mut self, mut give: impl FnMut(&[u8])) -> Result<(), ContentEncodingError> {
        let ended = match &mut self.kind {
            _ if self.read == 0 => return Ok(()),
            DecoderKind::Identity | DecoderKind::Unknown => return Ok(()),
            DecoderKind::Gzip(decoder) => decoder.try_finish().map(|()| std::mem::take(decoder.get_mut())),
            DecoderKind::Zlib(decoder) => decoder.try_finish().map(|()| std::mem::take(decoder.get_mut())),
            DecoderKind::Bare(decoder) => decoder.try_finish().map(|()| std::mem::take(decoder.get_mut())),
        };
        let rest = ended.ok().ok_or(ContentEncodingError::Malformed)?;
        self.count(rest.len())?;
        give(&rest);
        Ok(())
    }

    fn step(&mut self, step: &[u8]) -> Result<Vec<u8>, ContentEncodingError> {
        if let (DecoderKind::Unknown, Some(first)) = (&self.kind, step.first()) {
            self.kind = match first & 0x0f {
                8 => DecoderKind::Zlib(Box::new(ZlibDecoder::new(Vec::new()))),
                _ => DecoderKind::Bare(Box::new(DeflateDecoder::new(Vec::new()))),
            };
        }
        let written = match &mut self.kind {
            DecoderKind::Identity | DecoderKind::Unknown => Ok(step.to_vec()),
            DecoderKind::Gzip(decoder) => {
                write(step, decoder.as_mut()).map(|()| std::mem::take(decoder.get_mut()))
            }
            DecoderKind::Zlib(decoder) => {
                write(step, decoder.as_mut()).map(|()| std::mem::take(decoder.get_mut()))
            }
            DecoderKind::Bare(decoder) => {
                write(step, decoder.as_mut()).map(|()| std::mem::take(decoder.get_mut()))
            }
        };
        written.ok().ok_or(ContentEncodingError::Malformed)
    }

    fn count(&mut self, made: usize) -> Result<(), ContentEncodingError> {
        self.made += made as u64;
        let most = self.read.saturating_mul(MOST_PER_BYTE).max(MOST_AT_LEAST);
        if self.made > most { Err(ContentEncodingError::Bomb) } else { Ok(()) }
    }
}

fn write(step: &[u8], decoder: &mut impl std::io::Write) -> std::io::Result<()> {
    decoder.write_all(step)?;
    decoder.flush()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    fn decoded(coding: ContentEncoding, input: &[u8], step: usize) -> Result<Vec<u8>, ContentEncodingError> {
        let mut decoder = ContentDecoder::new(coding);
        let mut all = Vec::new();
        for part in input.chunks(step) {
            decoder.feed(part, |bytes| all.extend_from_slice(bytes))?;
        }
        decoder.finish(|bytes| all.extend_from_slice(bytes))?;
        Ok(all)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (CONTENT_ENCODING, value.parse().unwrap())).collect()
    }

    #[test]
    fn encodings_are_known_or_refused() {
        for (values, expected) in [
            (vec![], Ok(ContentEncoding::Identity)),
            (vec!["identity"], Ok(ContentEncoding::Identity)),
            (vec!["GZIP"], Ok(ContentEncoding::Gzip)),
            (vec!["aws-chunked,gzip"], Ok(ContentEncoding::Gzip)),
            (vec!["deflate"], Ok(ContentEncoding::Deflate)),
            (vec!["br"], Err(ContentEncodingError::Unknown)),
            (vec!["zstd"], Err(ContentEncodingError::Unknown)),
            (vec!["gzip, gzip"], Err(ContentEncodingError::Unknown)),
            (vec!["gzip", "deflate"], Err(ContentEncodingError::Unknown)),
        ] {
            assert_eq!(ContentEncoding::of(&headers(&values)), expected, "{values:?}");
        }
    }

    #[test]
    fn deflate_is_read_with_and_without_its_wrapping() {
        let text = b"some text, some text, some text".repeat(20);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&text).unwrap();
        assert_eq!(decoded(ContentEncoding::Deflate, &zlib.finish().unwrap(), 7), Ok(text.clone()));
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
        bare.write_all(&text).unwrap();
        assert_eq!(decoded(ContentEncoding::Deflate, &bare.finish().unwrap(), 7), Ok(text));
    }

    #[test]
    fn cut_and_garbled_content_is_malformed() {
        let whole = gzip(&b"x1y2z3".repeat(1000));
        assert_eq!(
            decoded(ContentEncoding::Gzip, &whole[..whole.len() - 9], 64),
            Err(ContentEncodingError::Malformed)
        );
        assert_eq!(
            decoded(ContentEncoding::Gzip, b"not gzip at all", 64),
            Err(ContentEncodingError::Malformed)
        );
        let garbage = [whole, b"garbage".to_vec()].concat();
        assert_eq!(decoded(ContentEncoding::Gzip, &garbage, 64), Err(ContentEncodingError::Malformed));
        assert_eq!(decoded(ContentEncoding::Gzip, b"", 64), Ok(Vec::new()));
    }

    #[test]
    fn a_bomb_is_noticed() {
        let bomb = gzip(&vec![0; 32 << 20]);
        assert_eq!(decoded(ContentEncoding::Gzip, &bomb, 1 << 16), Err(ContentEncodingError::Bomb));
    }

    proptest! {
        #[test]
        fn gzip_is_read_however_it_is_cut(bytes in prop::collection::vec(any::<u8>(), 0..2000), step in 1_usize..300) {
            prop_assert_eq!(decoded(ContentEncoding::Gzip, &gzip(&bytes), step), Ok(bytes));
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..500), step in 1_usize..50) {
            let _gzip = decoded(ContentEncoding::Gzip, &bytes, step);
            let _deflate = decoded(ContentEncoding::Deflate, &bytes, step);
        }
    }
}
