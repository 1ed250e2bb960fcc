use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::UnknownWord;
use crate::workspace::words;

words! {
    /// What an engine starts a container with.
    OciRuntime("runtime") {
        Crun = "crun",
        Runc = "runc",
        /// gVisor: a kernel of its own between the container and the host's.
        Runsc = "runsc",
    }
}

/// What the operator calls an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageName(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of an image is up to 64 of a-z, 0-9, `.`, `_` and `-`, and begins with a letter or digit")]
pub struct NotAnImageName;

impl ImageName {
    /// As a regular expression, for schemas.
    pub const PATTERN: &str = "^[a-z0-9][a-z0-9._-]{0,63}$";

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageName {
    type Err = NotAnImageName;

    fn from_str(text: &str) -> Result<Self, NotAnImageName> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let begins = text.bytes().next().is_some_and(plain);
        let goes_on = text.bytes().all(|byte| plain(byte) || b"._-".contains(&byte));
        if begins && goes_on && text.len() <= 64 { Ok(Self(text.to_owned())) } else { Err(NotAnImageName) }
    }
}

impl TryFrom<String> for ImageName {
    type Error = NotAnImageName;

    fn try_from(text: String) -> Result<Self, NotAnImageName> {
        text.parse()
    }
}

impl From<ImageName> for String {
    fn from(name: ImageName) -> Self {
        name.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for name in ["dev", "0", "rust-1.95_x"] {
            assert!(name.parse::<ImageName>().is_ok(), "{name}");
        }
        for name in ["", "-x", "A", "a b", "a/b", "a:b", "../x", "ü", &"a".repeat(65)] {
            assert_eq!(name.parse::<ImageName>(), Err(NotAnImageName), "{name}");
        }
    }
}
