//! A value on its way in: checked, and wiped wherever it was.

use std::fmt;

use zeroize::Zeroizing;

/// The most bytes a secret may have: a chain of certificates with its key fits, a file that was meant otherwise does not.
pub const MAX_VALUE: usize = 64 * 1024;

/// The value of a secret. Never shown, wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Zeroizing<Vec<u8>>);

/// Whether what was read ended with a newline that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Whole,
    NewlineLeftOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    #[error("the value is empty")]
    Empty,
    #[error("the value contains a NUL byte")]
    Nul,
    #[error("the value is longer than {MAX_VALUE} bytes")]
    TooLong,
}

impl Value {
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Result<Self, ValueError> {
        match bytes.len() {
            0 => Err(ValueError::Empty),
            length if length > MAX_VALUE => Err(ValueError::TooLong),
            _ if bytes.contains(&0) => Err(ValueError::Nul),
            _ => Ok(Self(bytes)),
        }
    }

    /// From a stream, where programs end what they print with a newline: exactly one is left out.
    pub fn of_stream(mut bytes: Zeroizing<Vec<u8>>) -> Result<(Self, Line), ValueError> {
        let line = if bytes.last() == Some(&b'\n') {
            bytes.pop();
            Line::NewlineLeftOut
        } else {
            Line::Whole
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

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: &[u8]) -> Result<(Vec<u8>, Line), ValueError> {
        Value::of_stream(Zeroizing::new(bytes.to_vec()))
            .map(|(value, line)| (value.as_slice().to_vec(), line))
    }

    #[test]
    fn exactly_one_newline_at_the_end_is_left_out() {
        assert_eq!(stream(b"a\n"), Ok((b"a".to_vec(), Line::NewlineLeftOut)));
        assert_eq!(stream(b"a\n\n"), Ok((b"a\n".to_vec(), Line::NewlineLeftOut)));
        assert_eq!(stream(b"a\r"), Ok((b"a\r".to_vec(), Line::Whole)));
        assert_eq!(stream(b"\xff"), Ok((b"\xff".to_vec(), Line::Whole)));
    }

    #[test]
    fn what_cannot_be_a_value_is_refused() {
        assert_eq!(stream(b""), Err(ValueError::Empty));
        assert_eq!(stream(b"\n"), Err(ValueError::Empty));
        assert_eq!(stream(b"a\0b"), Err(ValueError::Nul));
        assert_eq!(stream(&vec![b'x'; MAX_VALUE + 1]), Err(ValueError::TooLong));
        assert!(stream(&vec![b'x'; MAX_VALUE]).is_ok());
    }

    #[test]
    fn a_value_is_not_in_its_debug_output() {
        let value = Value::new(Zeroizing::new(b"hunter2".to_vec())).unwrap();
        assert_eq!(format!("{value:?}"), "Value(…)");
    }
}
