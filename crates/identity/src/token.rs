//! `rf_<kind>_<id>_<secret>`: what a client shows.

use std::fmt;
use std::str::FromStr as _;

use ringfence_types::CredentialKind;
pub(crate) use ringfence_types::hex;
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
    /// Of a browser: the digest of what its page sent.
    page: Option<Zeroizing<String>>,
}

impl TokenText {
    /// A new secret for `id`, from the kernel's random source.
    pub(crate) fn random(kind: CredentialKind, id: CredentialId) -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0_u8; SECRET]);
        getrandom::fill(bytes.as_mut_slice())?;
        Ok(Self { kind, id, secret: Zeroizing::new(hex(bytes.as_slice())), page: None })
    }

    /// `None`: it is none of ours.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let parts: Vec<&str> = text.split('_').collect();
        let (kind, id, secret, page) = match parts.as_slice() {
            [PREFIX, kind, id, secret] => (kind, id, secret, None),
            [PREFIX, kind @ "web", id, secret, page] => (kind, id, secret, Some(page)),
            _ => return None,
        };
        let part = |text: &&str| {
            let whole = text.len() == SECRET * 2 && is_hex(text);
            whole.then(|| Zeroizing::new((*text).to_owned()))
        };
        Some(Self {
            kind: CredentialKind::from_str(kind).ok()?,
            id: CredentialId::parse(id)?,
            secret: part(secret)?,
            page: page.map(part).map_or(Some(None), |page| page.map(Some))?,
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
        hex(Sha256::digest(self.reveal().as_bytes()))
    }

    /// Takes the same time wherever they differ.
    pub(crate) fn matches(&self, digest: &str) -> bool {
        self.digest().as_bytes().ct_eq(digest.as_bytes()).into()
    }

    /// Whether it came from the page that has the other half of `kept`, where there is one.
    pub(crate) fn is_of_page(&self, kept: Option<&str>) -> bool {
        match (self.kind, &self.page, kept) {
            (CredentialKind::Web, Some(page), Some(kept)) => page.as_bytes().ct_eq(kept.as_bytes()).into(),
            (CredentialKind::Web, _, _) => false,
            _ => true,
        }
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}_{}_{}_…", self.kind, self.id)
    }
}

/// What the page of a browser has beside the cookie and sends with each request. The browser shows the cookie to every port of
/// the host, so that nothing may follow from the cookie alone, this least of all.
pub(crate) fn page_half() -> Result<Zeroizing<String>, getrandom::Error> {
    let mut bytes = Zeroizing::new([0_u8; SECRET]);
    getrandom::fill(bytes.as_mut_slice())?;
    Ok(Zeroizing::new(hex(bytes.as_slice())))
}

/// What is kept of it.
pub(crate) fn page_digest(half: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"ringfence page v2\0");
    hash.update(half.as_bytes());
    hex(hash.finalize())
}

/// What a browser shows, as one text: the cookie, and behind it a digest of what its page sent. A cookie that has both halves
/// was put there by somebody else, and is none.
pub fn of_browser(cookie: &str, half: Option<&str>) -> Zeroizing<String> {
    let is_half = TokenText::parse(cookie).is_some_and(|cookie| cookie.page.is_none());
    Zeroizing::new(match half {
        _ if !is_half => String::new(),
        Some(half) => format!("{cookie}_{}", page_digest(half)),
        None => cookie.to_owned(),
    })
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
