//! Token text: `rf_<kind>_<id>_<secret>`.

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
/// Longer text is rejected without parsing.
const LONGEST: usize = 160;

/// A whole token. `Debug` does not show the secret, and it is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    pub(crate) kind: CredentialKind,
    pub(crate) id: CredentialId,
    secret: Zeroizing<String>,
    /// Digest of the CSRF token that the page of a browser sent.
    page: Option<Zeroizing<String>>,
}

impl TokenText {
    /// A new secret for `id`, from the kernel's random source.
    pub(crate) fn random(kind: CredentialKind, id: CredentialId) -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0_u8; SECRET]);
        getrandom::fill(bytes.as_mut_slice())?;
        Ok(Self { kind, id, secret: Zeroizing::new(hex(bytes.as_slice())), page: None })
    }

    /// `None`: the text is no token.
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

    /// The text with its secret, to hand to its holder.
    pub fn reveal(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}_{}_{}_{}", self.kind, self.id, self.secret.as_str()))
    }

    pub fn id(&self) -> &CredentialId {
        &self.id
    }

    /// The stored digest. The secret is random, so one round of a fast hash is enough.
    pub(crate) fn digest(&self) -> String {
        hex(Sha256::digest(self.reveal().as_bytes()))
    }

    /// Compares in constant time.
    pub(crate) fn matches(&self, digest: &str) -> bool {
        self.digest().as_bytes().ct_eq(digest.as_bytes()).into()
    }

    /// Whether the CSRF token matches the stored digest. Always true for other kinds than `web`.
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

/// A new CSRF token, which the page of a browser sends with each request. A browser sends the cookie to every port of
/// the host, so the cookie alone must not be enough and must not imply this token.
pub(crate) fn page_half() -> Result<Zeroizing<String>, getrandom::Error> {
    let mut bytes = Zeroizing::new([0_u8; SECRET]);
    getrandom::fill(bytes.as_mut_slice())?;
    Ok(Zeroizing::new(hex(bytes.as_slice())))
}

/// The stored digest of a CSRF token.
pub(crate) fn page_digest(half: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"ringfence page v2\0");
    hash.update(half.as_bytes());
    hex(hash.finalize())
}

/// The token text of a browser: the cookie and a digest of the CSRF token. A cookie that already has both parts was
/// planted, and is rejected.
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
