//! What a device signs to show that it has its key.

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

use crate::record::CredentialId;
use crate::token::{hex, unhex};
use zeroize::Zeroizing;

/// What a signature is good for. One that was made for something else is worth nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To ask to be let in.
    Pair,
    /// To take the token that an operator has approved.
    Collect,
    /// To get the next token.
    Refresh,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Collect => "collect",
            Self::Refresh => "refresh",
        }
    }
}

/// What has to be signed, once, soon.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Challenge {
    /// The pairing or the device that it is for.
    pub subject: CredentialId,
    /// 64 hexadecimal digits.
    pub nonce: String,
}

/// An Ed25519 signature over [`signed_text`], 128 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Signature(pub String);

/// Exactly these bytes are signed. No field can be read as another: each has its own line, and none has a line break.
pub fn signed_text(purpose: Purpose, challenge: &Challenge) -> Vec<u8> {
    format!("ringfence device v1\n{}\n{}\n{}\n", purpose.word(), challenge.subject, challenge.nonce)
        .into_bytes()
}

pub(crate) fn is_signed(key: &str, purpose: Purpose, challenge: &Challenge, signature: &Signature) -> bool {
    let Some(key) = key_of(key) else { return false };
    let Some(bytes) = unhex(&signature.0).and_then(|bytes| <[u8; 64]>::try_from(bytes).ok()) else {
        return false;
    };
    // Strict: neither weak keys nor a second form of the same signature.
    key.verify_strict(&signed_text(purpose, challenge), &ed25519_dalek::Signature::from_bytes(&bytes)).is_ok()
}

/// A public key in hexadecimal that is one.
pub(crate) fn key_of(text: &str) -> Option<VerifyingKey> {
    let bytes = <[u8; 32]>::try_from(unhex(text)?).ok()?;
    VerifyingKey::from_bytes(&bytes).ok().filter(|key| !key.is_weak())
}

/// What both sides show to a person who compares: 40 bits of the digest of the key.
pub fn code_of(key: &str) -> String {
    let digest = hex(Sha256::digest([b"ringfence pairing code v1\0", key.as_bytes()].concat()).as_slice());
    let group = |from: usize| digest.get(from..from + 5).unwrap_or_default().to_owned();
    format!("{}-{}", group(0), group(5))
}

/// The secret half, on the side of the device. Not shown by `Debug`; the key wipes itself.
pub struct DeviceKey(SigningKey);

impl DeviceKey {
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut seed = Zeroizing::new([0_u8; 32]);
        getrandom::fill(seed.as_mut_slice())?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// From what [`DeviceKey::secret`] gave.
    pub fn parse(text: &str) -> Option<Self> {
        let seed = Zeroizing::new(<[u8; 32]>::try_from(unhex(text)?).ok()?);
        Some(Self(SigningKey::from_bytes(&seed)))
    }

    pub fn secret(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(Zeroizing::new(self.0.to_bytes()).as_slice()))
    }

    /// What the other side keeps.
    pub fn public(&self) -> String {
        hex(self.0.verifying_key().as_bytes())
    }

    pub fn sign(&self, purpose: Purpose, challenge: &Challenge) -> Signature {
        Signature(hex(self.0.sign(&signed_text(purpose, challenge)).to_bytes()))
    }
}

impl std::fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceKey({})", code_of(&self.public()))
    }
}
