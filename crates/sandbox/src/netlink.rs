//! Netlink messages as bytes: a header, a part of fixed size, attributes; each begins at a multiple of four.
//!
//! The launcher sends them as they are. Numbers of headers are in the order of the machine, those of netfilter in that
//! of the network.

use libc::{NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST};

const HEADER: usize = 16;

/// A request that the kernel answers, also when it succeeds.
pub(crate) fn request(kind: u16, flags: i32, fixed: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    message(kind, NLM_F_REQUEST | NLM_F_ACK | flags, fixed, attributes)
}

/// A request that is answered only when it fails.
pub(crate) fn marker(kind: u16, fixed: &[u8]) -> Vec<u8> {
    message(kind, NLM_F_REQUEST, fixed, &[])
}

fn message(kind: u16, flags: i32, fixed: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
    let body = [fixed.to_vec(), attributes.concat()].concat();
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let flags = u16::try_from(flags).unwrap_or_default();
    let (sequence, port) = (0_u32, 0_u32);
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&port.to_ne_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(4));
    bytes.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

pub(crate) fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), b"\0"].concat())
}

/// A number in the order of the network.
pub(crate) fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

pub(crate) fn nest(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | u16::try_from(NLA_F_NESTED).unwrap_or_default(), &attributes.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_their_length_is_without_the_padding() {
        assert_eq!(attribute(7, b"abcde"), *b"\x09\0\x07\0abcde\0\0\0");
        assert_eq!(text(1, "nat"), *b"\x08\0\x01\0nat\0");
        assert_eq!(number(2, 0x0102_0304), *b"\x08\0\x02\0\x01\x02\x03\x04");
        assert_eq!(nest(4, &[number(1, 3)]), *b"\x0c\0\x04\x80\x08\0\x01\0\0\0\0\x03");
    }

    #[test]
    fn a_message_says_how_long_it_is_and_asks_for_an_answer() {
        let message = request(20, 0x400, &[9; 8], &[number(1, 2)]);
        assert_eq!(message[..16], *b"\x20\0\0\0\x14\0\x05\x04\0\0\0\0\0\0\0\0");
        assert_eq!(message.len(), 32);
        assert_eq!(marker(16, &[0; 4])[..8], *b"\x14\0\0\0\x10\0\x01\0");
    }
}
