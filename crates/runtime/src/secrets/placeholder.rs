//! What stands for a provider's key inside a sandbox: worthless there, and known to the session that made it.

use std::fmt;

use ringfence_types::hex;
use sha2::{Digest as _, Sha256};

use super::entry::Meta;

/// `rf_placeholder_<id of the secret>_<random>`: made anew for each session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placeholder(String);

impl Placeholder {
    pub(crate) fn mint(meta: &Meta) -> Result<Self, getrandom::Error> {
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

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
