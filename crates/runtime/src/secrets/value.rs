//! Secret values: checked on input, and wiped from memory.

use std::fmt;

use zeroize::Zeroizing;

/// Limit of bytes in a secret. A certificate chain with its key fits; a file given by mistake does not.
pub const MAX_VALUE: usize = 64 * 1024;

/// The value of a secret. Never displayed; wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<Vec<u8>>);

/// Whether a trailing newline was removed from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrailingNewline {
    Whole,
    NewlineLeftOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretValueError {
    #[error("the value is empty")]
    Empty,
    #[error("the value contains a NUL byte")]
    Nul,
    #[error("the value is longer than {MAX_VALUE} bytes")]
    TooLong,
}

impl SecretValue {
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Result<Self, SecretValueError> {
        match bytes.len() {
            0 => Err(SecretValueError::Empty),
            length if length > MAX_VALUE => Err(SecretValueError::TooLong),
            _ if bytes.contains(&0) => Err(SecretValueError::Nul),
            _ => Ok(Self(bytes)),
        }
    }

    /// Reads a value from a stream and removes exactly one trailing newline, which programs append.
    pub fn of_stream(mut bytes: Zeroizing<Vec<u8>>) -> Result<(Self, TrailingNewline), SecretValueError> {
        let line = if bytes.last() == Some(&b'\n') {
            bytes.pop();
            TrailingNewline::NewlineLeftOut
        } else {
            TrailingNewline::Whole
        };
        Self::new(bytes).map(|value| (value, line))
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn copy(&self) -> Zeroizing<Vec<u8>> {
        self.0.clone()
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: &[u8]) -> Result<(Vec<u8>, TrailingNewline), SecretValueError> {
        SecretValue::of_stream(Zeroizing::new(bytes.to_vec()))
            .map(|(value, line)| (value.as_slice().to_vec(), line))
    }

    #[test]
    fn exactly_one_newline_at_the_end_is_left_out() {
        assert_eq!(stream(b"a\n"), Ok((b"a".to_vec(), TrailingNewline::NewlineLeftOut)));
        assert_eq!(stream(b"a\n\n"), Ok((b"a\n".to_vec(), TrailingNewline::NewlineLeftOut)));
        assert_eq!(stream(b"a\r"), Ok((b"a\r".to_vec(), TrailingNewline::Whole)));
        assert_eq!(stream(b"\xff"), Ok((b"\xff".to_vec(), TrailingNewline::Whole)));
    }

    #[test]
    fn what_cannot_be_a_value_is_refused() {
        assert_eq!(stream(b""), Err(SecretValueError::Empty));
        assert_eq!(stream(b"\n"), Err(SecretValueError::Empty));
        assert_eq!(stream(b"a\0b"), Err(SecretValueError::Nul));
        assert_eq!(stream(&vec![b'x'; MAX_VALUE + 1]), Err(SecretValueError::TooLong));
        assert!(stream(&vec![b'x'; MAX_VALUE]).is_ok());
    }

    #[test]
    fn a_value_is_not_in_its_debug_output() {
        let value = SecretValue::new(Zeroizing::new(b"hunter2".to_vec())).unwrap();
        assert_eq!(format!("{value:?}"), "Value(…)");
    }
}
