//! Text forms of bytes and errors.

use std::error::Error;
use std::fmt::Write as _;

/// Two hexadecimal digits per byte.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    // Allocated at full length: growing would leave copies of a secret in memory.
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// An error with its causes.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex([0, 9, 0xab, 0xff]), "0009abff");
        assert_eq!(hex(b""), "");
    }

    #[test]
    fn a_cause_is_said_after_its_effect() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot write")]
        struct Outer(#[source] std::io::Error);
        assert_eq!(chain(&Outer(std::io::Error::other("no space"))), "cannot write: no space");
    }
}
