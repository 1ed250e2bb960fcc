//! Byte strings: arguments, paths and variables, which need not be UTF-8.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::escape;

/// Bytes from or for the kernel: an argument, a path, a variable.
///
/// They need not be UTF-8. In JSON they are a string if they are UTF-8 and `{"base64": "…"}` otherwise, so nothing is lost.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteString(Vec<u8>);

impl ByteString {
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
    }

    /// Text that is safe on a terminal or in a log line: invisible characters, control sequences and invalid UTF-8 become visible
    /// escapes.
    pub fn display(&self) -> String {
        escape::escaped(&self.0)
    }

    /// One word of a command line: safe like [`ByteString::display`], and unambiguous.
    pub fn quoted(&self) -> String {
        escape::quoted(&self.0)
    }
}

impl std::fmt::Debug for ByteString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.display())
    }
}

impl From<&[u8]> for ByteString {
    fn from(value: &[u8]) -> Self {
        Self(value.to_vec())
    }
}

impl From<Vec<u8>> for ByteString {
    fn from(value: Vec<u8>) -> Self {
        Self(value)
    }
}

impl From<&str> for ByteString {
    fn from(value: &str) -> Self {
        Self(value.as_bytes().to_vec())
    }
}

impl From<OsString> for ByteString {
    fn from(value: OsString) -> Self {
        Self(value.into_vec())
    }
}

impl From<&OsStr> for ByteString {
    fn from(value: &OsStr) -> Self {
        Self(value.as_bytes().to_vec())
    }
}

impl From<PathBuf> for ByteString {
    fn from(value: PathBuf) -> Self {
        Self(value.into_os_string().into_vec())
    }
}

impl From<&Path> for ByteString {
    fn from(value: &Path) -> Self {
        Self(value.as_os_str().as_bytes().to_vec())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncodedBytes {
    base64: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ByteStringRepr {
    Text(String),
    Encoded(EncodedBytes),
}

impl Serialize for ByteString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => EncodedBytes { base64: STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ByteString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match ByteStringRepr::deserialize(deserializer)? {
            ByteStringRepr::Text(text) => Ok(Self(text.into_bytes())),
            ByteStringRepr::Encoded(encoded) => {
                STANDARD.decode(encoded.base64).map(Self).map_err(de::Error::custom)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_byte() {
        for raw in [&b"plain"[..], b"new\nline", b"\xff\xfe\x00", b""] {
            let bytes = ByteString::from(raw);
            let json = serde_json::to_string(&bytes).unwrap();
            assert_eq!(serde_json::from_str::<ByteString>(&json).unwrap(), bytes, "{json}");
        }
    }

    #[test]
    fn display_shows_what_a_terminal_would_hide() {
        let shown = ByteString::from(&b"a\x1b[2J\n\xff\xe2\x80\xaeb"[..]).display();
        assert_eq!(shown, "a\\u{1b}[2J\\n\\xff\\u{202e}b");
    }
}
