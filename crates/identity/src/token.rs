//! `rf_<kind>_<id>_<secret>`: what a client shows.

use std::fmt;
use std::str::FromStr as _;

use ringfence_types::CredentialKind;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::record::CredentialId;

const PREFIX: &str = "rf";
const SECRET: usize = 32;
/// Longer than any token: what is longer is not looked at.
const LONGEST: usize = 160;

/// A whole token. Not shown by `Debug`, wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    pub(crate) kind: CredentialKind,
    pub(crate) id: CredentialId,
    secret: Zeroizing<String>,
}

impl TokenText {
    /// A new secret for `id`, from the kernel's random source.
    pub(crate) fn random(kind: CredentialKind, id: CredentialId) -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0_u8; SECRET]);
        getrandom::fill(bytes.as_mut_slice())?;
        Ok(Self { kind, id, secret: Zeroizing::new(hex(bytes.as_slice())) })
    }

    /// `None`: it is none of ours.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let parts: Vec<&str> = text.split('_').collect();
        let [PREFIX, kind, id, secret] = parts.as_slice() else { return None };
        let whole = secret.len() == SECRET * 2 && is_hex(secret);
        Some(Self {
            kind: CredentialKind::from_str(kind).ok()?,
            id: CredentialId::parse(id)?,
            secret: whole.then(|| Zeroizing::new((*secret).to_owned()))?,
        })
    }

    /// The one time that it is shown.
    pub fn reveal(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}_{}_{}_{}", self.kind, self.id, self.secret.as_str()))
    }

    pub fn id(&self) -> &CredentialId {
        &self.id
    }

    /// What is kept of it. The secret is random, so that one round of a fast digest is enough.
    pub(crate) fn digest(&self) -> String {
        hex(&Sha256::digest(self.reveal().as_bytes()))
    }

    /// Takes the same time wherever they differ.
    pub(crate) fn matches(&self, digest: &str) -> bool {
        self.digest().as_bytes().ct_eq(digest.as_bytes()).into()
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}_{}_{}_…", self.kind, self.id)
    }
}

/// What a page sends back with each change, so that another site cannot: it follows from the cookie, which that site cannot
/// read.
pub fn csrf_of(cookie: &TokenText) -> Zeroizing<String> {
    let mut hash = Sha256::new();
    hash.update(b"ringfence csrf v1\0");
    hash.update(cookie.secret.as_bytes());
    Zeroizing::new(hex(&hash.finalize()))
}

pub(crate) fn same(shown: &str, known: &str) -> bool {
    shown.as_bytes().ct_eq(known.as_bytes()).into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !is_hex(text) {
        return None;
    }
    let digits = text.as_bytes().chunks_exact(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}
