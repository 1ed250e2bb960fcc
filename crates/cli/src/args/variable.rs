//! `NAME=VALUE`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use ringfence_types::Bytes;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not NAME=VALUE")]
pub(crate) struct VariableError(String);

/// A variable for a command; whether the name is allowed is policy, not syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable(pub(crate) Bytes, pub(crate) Bytes);

impl TryFrom<OsString> for Variable {
    type Error = VariableError;

    fn try_from(text: OsString) -> Result<Self, VariableError> {
        let bytes = text.as_bytes();
        let wrong = || VariableError(Bytes::from(bytes).display());
        let at = bytes.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        let (name, value) = bytes.split_at(at);
        Ok(Self(Bytes::from(name), Bytes::from(value.get(1..).unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables() {
        let Variable(name, value) = OsString::from("A=b=c").try_into().unwrap();
        assert_eq!((name.as_slice(), value.as_slice()), (&b"A"[..], &b"b=c"[..]));
        assert!(Variable::try_from(OsString::from("A")).is_err());
    }
}
