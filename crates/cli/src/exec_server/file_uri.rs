//! `file:` URIs, with which Codex names paths of this machine.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// An absolute path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct FileUri(PathBuf);

#[derive(Debug, thiserror::Error)]
pub(super) enum FileUriError {
    #[error("a place is an address that begins with `file:///`")]
    NotAFile,
    #[error("`%` is followed by two digits of a byte that is not 0")]
    Escape,
}

impl TryFrom<String> for FileUri {
    type Error = FileUriError;

    fn try_from(text: String) -> Result<Self, FileUriError> {
        let path = text.strip_prefix("file://").filter(|path| path.starts_with('/'));
        let mut rest = path.ok_or(FileUriError::NotAFile)?.bytes();
        let mut bytes = Vec::new();
        while let Some(byte) = rest.next() {
            match byte {
                b'%' => bytes.push(escaped(rest.next(), rest.next()).ok_or(FileUriError::Escape)?),
                0 | b'?' | b'#' => return Err(FileUriError::NotAFile),
                other => bytes.push(other),
            }
        }
        Ok(Self(PathBuf::from(OsString::from_vec(bytes))))
    }
}

fn escaped(high: Option<u8>, low: Option<u8>) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = digit(high?)? * 16 + digit(low?)?;
    (byte != 0).then_some(byte)
}

impl FileUri {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

pub(super) fn address(path: &Path) -> String {
    let mut text = String::from("file://");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {
                text.push(char::from(*byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_its_path_are_the_same() {
        for path in ["/", "/a b/ä%20/#?", "/w/.git"] {
            let place = FileUri::try_from(address(Path::new(path))).unwrap();
            assert_eq!(place.path(), Path::new(path));
        }
        let bytes = Path::new(std::ffi::OsStr::from_bytes(b"/\xff"));
        assert_eq!(FileUri::try_from(address(bytes)).unwrap().path(), bytes);
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in [
            "/a",
            "file://host/a",
            "file:a",
            "http:///a",
            "file:///a%",
            "file:///a%0",
            "file:///%00",
            "file:///%zz",
            "file:///a?b",
        ] {
            assert!(FileUri::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
