//! `Content-Encoding`, so that what is inside can be looked at.

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// So much is decoded at a time: a bomb becomes at most a thousand times this before it is noticed.
const STEP: usize = 1 << 10;
/// Most that a body may become, per byte, and in any case.
const MOST_PER_BYTE: u64 = 200;
const MOST_AT_LEAST: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Deflate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodingError {
    #[error("its content encoding is not one that can be read here (gzip, deflate)")]
    Unknown,
    #[error("its compressed content is malformed")]
    Malformed,
    #[error("its compressed content becomes too large")]
    Bomb,
}

impl Coding {
    /// How a body is encoded. Two encodings, one on the other, are one too many.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, CodingError> {
        let mut coding = Self::Identity;
        for value in headers.get_all(CONTENT_ENCODING) {
            let text = value.to_str().ok().ok_or(CodingError::Unknown)?;
            for word in text.split(',').map(|word| word.trim().to_ascii_lowercase()) {
                let next = match word.as_str() {
                    // The framing of S3: chunks with signatures between them. Their content is plain.
                    "" | "identity" | "aws-chunked" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    _ => return Err(CodingError::Unknown),
                };
                if coding != Self::Identity {
                    return Err(CodingError::Unknown);
                }
                coding = next;
            }
        }
        Ok(coding)
    }
}

/// Gives what encoded bytes say, piece by piece.
#[derive(Debug)]
pub(crate) struct Decoder {
    kind: Kind,
    read: u64,
    made: u64,
}

#[derive(Debug)]
enum Kind {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    /// `deflate` means zlib, but some send it bare: the first byte tells.
    Unknown,
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Bare(Box<DeflateDecoder<Vec<u8>>>),
}

impl Decoder {
    pub(crate) fn new(coding: Coding) -> Self {
        let kind = match coding {
            Coding::Identity => Kind::Identity,
            Coding::Gzip => Kind::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            Coding::Deflate => Kind::Unknown,
        };
        Self { kind, read: 0, made: 0 }
    }

    /// Decodes `input` and hands out what it says.
    pub(crate) fn feed(&mut self, input: &[u8], mut give: impl FnMut(&[u8])) -> Result<(), CodingError> {
        if matches!(self.kind, Kind::Identity) {
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

    /// The end: what was cut off in the middle is malformed.
    pub(crate) fn finish(mut self, mut give: impl FnMut(&[u8])) -> Result<(), CodingError> {
        let ended = match &mut self.kind {
            _ if self.read == 0 => return Ok(()),
            Kind::Identity | Kind::Unknown => return Ok(()),
            Kind::Gzip(decoder) => decoder.try_finish().map(|()| std::mem::take(decoder.get_mut())),
            Kind::Zlib(decoder) => decoder.try_finish().map(|()| std::mem::take(decoder.get_mut())),
            Kind::Bare(decoder) => decoder.try_finish().map(|()| std::mem::take(decoder.get_mut())),
        };
        let rest = ended.ok().ok_or(CodingError::Malformed)?;
        self.count(rest.len())?;
        give(&rest);
        Ok(())
    }

    fn step(&mut self, step: &[u8]) -> Result<Vec<u8>, CodingError> {
        if let (Kind::Unknown, Some(first)) = (&self.kind, step.first()) {
            self.kind = match first & 0x0f {
                8 => Kind::Zlib(Box::new(ZlibDecoder::new(Vec::new()))),
                _ => Kind::Bare(Box::new(DeflateDecoder::new(Vec::new()))),
            };
        }
        let written = match &mut self.kind {
            Kind::Identity | Kind::Unknown => Ok(step.to_vec()),
            Kind::Gzip(decoder) => write(step, decoder.as_mut()).map(|()| std::mem::take(decoder.get_mut())),
            Kind::Zlib(decoder) => write(step, decoder.as_mut()).map(|()| std::mem::take(decoder.get_mut())),
            Kind::Bare(decoder) => write(step, decoder.as_mut()).map(|()| std::mem::take(decoder.get_mut())),
        };
        written.ok().ok_or(CodingError::Malformed)
    }

    fn count(&mut self, made: usize) -> Result<(), CodingError> {
        self.made += made as u64;
        let most = self.read.saturating_mul(MOST_PER_BYTE).max(MOST_AT_LEAST);
        if self.made > most { Err(CodingError::Bomb) } else { Ok(()) }
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

    fn decoded(coding: Coding, input: &[u8], step: usize) -> Result<Vec<u8>, CodingError> {
        let mut decoder = Decoder::new(coding);
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
            (vec![], Ok(Coding::Identity)),
            (vec!["identity"], Ok(Coding::Identity)),
            (vec!["GZIP"], Ok(Coding::Gzip)),
            (vec!["aws-chunked,gzip"], Ok(Coding::Gzip)),
            (vec!["deflate"], Ok(Coding::Deflate)),
            (vec!["br"], Err(CodingError::Unknown)),
            (vec!["zstd"], Err(CodingError::Unknown)),
            (vec!["gzip, gzip"], Err(CodingError::Unknown)),
            (vec!["gzip", "deflate"], Err(CodingError::Unknown)),
        ] {
            assert_eq!(Coding::of(&headers(&values)), expected, "{values:?}");
        }
    }

    #[test]
    fn deflate_is_read_with_and_without_its_wrapping() {
        let text = b"some text, some text, some text".repeat(20);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(&text).unwrap();
        assert_eq!(decoded(Coding::Deflate, &zlib.finish().unwrap(), 7), Ok(text.clone()));
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
        bare.write_all(&text).unwrap();
        assert_eq!(decoded(Coding::Deflate, &bare.finish().unwrap(), 7), Ok(text));
    }

    #[test]
    fn cut_and_garbled_content_is_malformed() {
        let whole = gzip(&b"x1y2z3".repeat(1000));
        assert_eq!(decoded(Coding::Gzip, &whole[..whole.len() - 9], 64), Err(CodingError::Malformed));
        assert_eq!(decoded(Coding::Gzip, b"not gzip at all", 64), Err(CodingError::Malformed));
        let garbage = [whole, b"garbage".to_vec()].concat();
        assert_eq!(decoded(Coding::Gzip, &garbage, 64), Err(CodingError::Malformed));
        assert_eq!(decoded(Coding::Gzip, b"", 64), Ok(Vec::new()));
    }

    #[test]
    fn a_bomb_is_noticed() {
        let bomb = gzip(&vec![0; 32 << 20]);
        assert_eq!(decoded(Coding::Gzip, &bomb, 1 << 16), Err(CodingError::Bomb));
    }

    proptest! {
        #[test]
        fn gzip_is_read_however_it_is_cut(bytes in prop::collection::vec(any::<u8>(), 0..2000), step in 1_usize..300) {
            prop_assert_eq!(decoded(Coding::Gzip, &gzip(&bytes), step), Ok(bytes));
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..500), step in 1_usize..50) {
            let _gzip = decoded(Coding::Gzip, &bytes, step);
            let _deflate = decoded(Coding::Deflate, &bytes, step);
        }
    }
}
