use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::visible;

/// Bytes the kernel handed us or will be handed: an argument, a path, a variable.
///
/// They need not be UTF-8. In JSON they are a plain string where they are UTF-8 and
/// `{"base64": "…"}` where they are not, so that nothing is lost and nothing is guessed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
    }

    /// Text that is safe on a terminal or in a log line: whatever is invisible, moves or covers other text, and
    /// invalid UTF-8 become visible escapes.
    pub fn display(&self) -> String {
        visible::escaped(&self.0)
    }

    /// As one word of a command line: safe like [`Bytes::display`], and no two words look the same.
    pub fn quoted(&self) -> String {
        visible::quoted(&self.0)
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.display())
    }
}

impl From<&[u8]> for Bytes {
    fn from(value: &[u8]) -> Self {
        Self(value.to_vec())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(value: Vec<u8>) -> Self {
        Self(value)
    }
}

impl From<&str> for Bytes {
    fn from(value: &str) -> Self {
        Self(value.as_bytes().to_vec())
    }
}

impl From<OsString> for Bytes {
    fn from(value: OsString) -> Self {
        Self(value.into_vec())
    }
}

impl From<&OsStr> for Bytes {
    fn from(value: &OsStr) -> Self {
        Self(value.as_bytes().to_vec())
    }
}

impl From<PathBuf> for Bytes {
    fn from(value: PathBuf) -> Self {
        Self(value.into_os_string().into_vec())
    }
}

impl From<&Path> for Bytes {
    fn from(value: &Path) -> Self {
        Self(value.as_os_str().as_bytes().to_vec())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    base64: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Wire {
    Text(String),
    Encoded(Encoded),
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Encoded { base64: STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Wire::deserialize(deserializer)? {
            Wire::Text(text) => Ok(Self(text.into_bytes())),
            Wire::Encoded(encoded) => STANDARD.decode(encoded.base64).map(Self).map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_byte() {
        for raw in [&b"plain"[..], b"new\nline", b"\xff\xfe\x00", b""] {
            let bytes = Bytes::from(raw);
            let json = serde_json::to_string(&bytes).unwrap();
            assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), bytes, "{json}");
        }
    }

    #[test]
    fn display_shows_what_a_terminal_would_hide() {
        let shown = Bytes::from(&b"a\x1b[2J\n\xff\xe2\x80\xaeb"[..]).display();
        assert_eq!(shown, "a\\u{1b}[2J\\n\\xff\\u{202e}b");
    }
}
