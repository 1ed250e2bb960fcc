use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ApiError, ErrorCode};

/// With what fills it up at the end.
const BASE64: &str = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// Bytes in JSON: text where they are UTF-8, base64 where they are not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Data {
    Text(String),
    Base64 {
        #[schemars(extend("contentEncoding" = "base64", "pattern" = BASE64))]
        base64: String,
    },
}

impl Data {
    pub fn bytes(self) -> Result<Vec<u8>, ApiError> {
        match self {
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Base64 { base64 } => STANDARD
                .decode(base64)
                .map_err(|error| ApiError::new(ErrorCode::Malformed, format!("this is not base64: {error}"))),
        }
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64 { base64: STANDARD.encode(error.as_bytes()) },
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_went() {
        for bytes in [b"text".to_vec(), vec![0, 159, 146, 150], Vec::new()] {
            let written = serde_json::to_string(&Data::from(bytes.clone())).unwrap();
            let read: Data = serde_json::from_str(&written).unwrap();
            assert_eq!(read.bytes().unwrap(), bytes);
        }
    }
}
