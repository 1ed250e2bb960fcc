//! Container images and OCI runtimes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::UnknownKeyword;
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

/// The digest of an image's configuration, which names its layers by digest: the same id is the same content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageId(String);

/// Not the digest of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an image id is `sha256:` and 64 hexadecimal digits in lower case")]
pub struct NotAnImageId;

impl ImageId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageId {
    type Err = NotAnImageId;

    fn from_str(text: &str) -> Result<Self, NotAnImageId> {
        // Podman leaves the algorithm out where Docker writes it.
        let digest = text.strip_prefix("sha256:").unwrap_or(text);
        let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digest.len() == 64 && digest.bytes().all(hexadecimal) {
            Ok(Self(format!("sha256:{digest}")))
        } else {
            Err(NotAnImageId)
        }
    }
}

impl TryFrom<String> for ImageId {
    type Error = NotAnImageId;

    fn try_from(text: String) -> Result<Self, NotAnImageId> {
        text.parse()
    }
}

impl From<ImageId> for String {
    fn from(id: ImageId) -> Self {
        id.0
    }
}

impl fmt::Display for ImageId {
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

    #[test]
    fn an_image_is_named_by_a_whole_digest() {
        let digest = "a1".repeat(32);
        assert_eq!(digest.parse::<ImageId>(), Ok(ImageId(format!("sha256:{digest}"))));
        assert_eq!(
            format!("sha256:{digest}").parse::<ImageId>().unwrap().as_str(),
            format!("sha256:{digest}")
        );
        for wrong in
            ["", "sha256:", "latest", "sha256:00", &digest.to_uppercase(), &format!("sha512:{digest}")]
        {
            assert_eq!(wrong.parse::<ImageId>(), Err(NotAnImageId), "{wrong}");
        }
    }
}
