//! `NAME=VALUE`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use ringfence_types::ByteString;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not NAME=VALUE")]
pub(crate) struct EnvArgError(String);

/// A variable for a command; whether the name is allowed is policy, not syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnvArg(pub(crate) ByteString, pub(crate) ByteString);

impl TryFrom<OsString> for EnvArg {
    type Error = EnvArgError;

    fn try_from(text: OsString) -> Result<Self, EnvArgError> {
        let bytes = text.as_bytes();
        let wrong = || EnvArgError(ByteString::from(bytes).display());
        let at = bytes.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        let (name, value) = bytes.split_at(at);
        Ok(Self(ByteString::from(name), ByteString::from(value.get(1..).unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables() {
        let EnvArg(name, value) = OsString::from("A=b=c").try_into().unwrap();
        assert_eq!((name.as_slice(), value.as_slice()), (&b"A"[..], &b"b=c"[..]));
        assert!(EnvArg::try_from(OsString::from("A")).is_err());
    }
}
