//! Checksums inside of credentials. A right one makes a finding certain; a wrong one proves nothing, because a single
//! changed letter must not hide a secret.

use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Checksum {
    /// CRC-32 of what is between prefix and checksum, six digits in base 62: GitHub and npm.
    Github,
    /// CRC-16 at the end of base32: Stellar.
    Stellar,
}

const GITHUB_DIGITS: usize = 6;
const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE32: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

impl Checksum {
    pub(crate) fn is_right(self, value: &[u8]) -> bool {
        match self {
            Self::Github => {
                let split = value.len().saturating_sub(GITHUB_DIGITS);
                value.split_at_checked(split).is_some_and(|(token, sum)| github_sum(token) == sum)
            }
            Self::Stellar => {
                let bytes = from_base32(value);
                let split = bytes.len().saturating_sub(2);
                bytes.split_at_checked(split).is_some_and(|(key, sum)| crc16(key).to_le_bytes() == sum)
            }
        }
    }
}

/// Of a token without its last six characters.
pub(super) fn github_sum(token: &[u8]) -> Vec<u8> {
    let payload = token
        .iter()
        .position(|byte| *byte == b'_')
        .map_or(token, |at| token.get(at + 1..).unwrap_or_default());
    let mut value = crc32fast::hash(payload);
    let mut digits = Vec::with_capacity(GITHUB_DIGITS);
    for _ in 0..GITHUB_DIGITS {
        digits.extend(BASE62.get(value as usize % BASE62.len()));
        value /= BASE62.len() as u32;
    }
    digits.reverse();
    digits
}

/// The last four characters for a key of 52: 33 bytes, of which 32 characters and a bit are given.
pub(super) fn stellar_end(start: &[u8]) -> Vec<u8> {
    // 52 characters are 260 bits; the key is 264, so the last four of its bits are free and become zero.
    let mut bits: Vec<u8> = start.iter().flat_map(|letter| five_bits(*letter)).collect();
    bits.resize(33 * 8, 0);
    let key: Vec<u8> = bits.chunks(8).map(packed).collect();
    let sum = crc16(&key).to_le_bytes();
    bits.extend(sum.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)));
    let letters = bits.chunks(5).map(|five| packed(five) as usize).filter_map(|at| BASE32.get(at).copied());
    letters.skip(start.len()).collect()
}

fn from_base32(letters: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> = letters.iter().flat_map(|letter| five_bits(*letter)).collect();
    bits.chunks_exact(8).map(packed).collect()
}

fn five_bits(letter: u8) -> impl Iterator<Item = u8> {
    let value = BASE32.iter().position(|known| *known == letter).unwrap_or_default() as u8;
    (0..5).rev().map(move |bit| value >> bit & 1)
}

fn packed(bits: &[u8]) -> u8 {
    bits.iter().fold(0, |value, bit| value << 1 | bit)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_github() {
        let token = [b"ghp_".as_slice(), &[b'a'; 30]].concat();
        let whole = [token.clone(), github_sum(&token)].concat();
        assert!(Checksum::Github.is_right(&whole));
        let mut wrong = whole;
        wrong[10] = b'b';
        assert!(!Checksum::Github.is_right(&wrong));
    }

    #[test]
    fn crc16_is_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }
}
