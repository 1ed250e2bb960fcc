//! Bytes in JSON: text, or base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ApiError, ErrorCode};

/// With padding.
const BASE64: &str = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// Allowed growth of text in JSON: twice its length plus this. A control character takes six bytes.
const ESCAPES: usize = 1024;

/// Bytes in JSON: text where they are UTF-8, base64 where they are not, and where text would become far longer in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum TextOrBase64 {
    Text(String),
    Base64 {
        #[schemars(extend("contentEncoding" = "base64", "pattern" = BASE64))]
        base64: String,
    },
}

impl TextOrBase64 {
    /// Length of this form, at least that of the original.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Base64 { base64 } => base64.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn bytes(self) -> Result<Vec<u8>, ApiError> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Base64 { base64 } => STANDARD.decode(base64).map_err(|error| {
                ApiError::new(ErrorCode::InvalidArgument, format!("this is not base64: {error}"))
            }),
        }
    }
}

impl From<Vec<u8>> for TextOrBase64 {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if escapes(&text) <= text.len() + ESCAPES => Self::Text(text),
            Ok(text) => Self::Base64 { base64: STANDARD.encode(text) },
            Err(error) => Self::Base64 { base64: STANDARD.encode(error.as_bytes()) },
        }
    }
}

/// Additional bytes in JSON.
fn escapes(text: &str) -> usize {
    let more = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.bytes().map(more).sum()
}

impl Default for TextOrBase64 {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_went() {
        let control = vec![1; 100_000];
        for bytes in [b"text".to_vec(), vec![0, 159, 146, 150], Vec::new(), control] {
            let written = serde_json::to_string(&TextOrBase64::from(bytes.clone())).unwrap();
            let read: TextOrBase64 = serde_json::from_str(&written).unwrap();
            assert!(written.len() <= 2 * bytes.len() + 2 * ESCAPES);
            assert_eq!(read.bytes().unwrap(), bytes);
        }
    }

    #[test]
    fn what_becomes_little_longer_stays_text() {
        for text in ["\x1b[0m".repeat(100), "\"\n".repeat(100_000), "\u{7f}".repeat(100_000)] {
            assert_eq!(escapes(&text) + text.len() + 2, serde_json::to_string(&text).unwrap().len());
            assert_eq!(TextOrBase64::from(text.clone().into_bytes()), TextOrBase64::Text(text));
        }
    }
}
