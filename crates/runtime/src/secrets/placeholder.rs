//! What stands for a provider's key inside a sandbox: worthless there, and known to the session that made it.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::entry::Meta;
use super::input::Value;

/// `rf_placeholder_<id of the secret>_<random>`: made anew for each session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder(String);

impl Placeholder {
    pub(crate) fn mint(meta: &Meta) -> Result<Self, getrandom::Error> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random)?;
        let about = format!("{}\0{}", meta.name, meta.scope);
        let id = Sha256::digest(about.as_bytes());
        Ok(Self(format!("rf_placeholder_{}_{}", hex(id.get(..4).unwrap_or_default()), hex(&random))))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The placeholders of one session. They end with it.
#[derive(Debug, Default)]
pub struct Placeholders {
    known: Vec<(Placeholder, Meta, Value)>,
}

impl Placeholders {
    pub(crate) fn add(&mut self, placeholder: Placeholder, meta: Meta, value: Value) {
        self.known.push((placeholder, meta, value));
    }

    pub fn minted(&self) -> impl Iterator<Item = &Placeholder> {
        self.known.iter().map(|(placeholder, ..)| placeholder)
    }

    /// What `text` stands for in this session.
    pub fn resolve(&self, text: &[u8]) -> Option<(&Meta, &Value)> {
        let known = self.known.iter().find(|(known, ..)| known.as_str().as_bytes() == text)?;
        Some((&known.1, &known.2))
    }
}
