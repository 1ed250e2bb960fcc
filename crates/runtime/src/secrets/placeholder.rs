//! Secret placeholders: worthless texts that stand for provider keys inside a sandbox.

use std::fmt;

use ringfence_types::hex;
use sha2::{Digest as _, Sha256};

use super::entry::SecretInfo;

/// `rf_placeholder_<id of the secret>_<random>`, new for each session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretPlaceholder(String);

impl SecretPlaceholder {
    pub(crate) fn mint(meta: &SecretInfo) -> Result<Self, getrandom::Error> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random)?;
        let about = format!("{}\0{}", meta.name, meta.scope);
        let id = Sha256::digest(about.as_bytes());
        Ok(Self(format!("rf_placeholder_{}_{}", hex(id.get(..4).unwrap_or_default()), hex(random))))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretPlaceholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
