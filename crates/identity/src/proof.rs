//! Device proofs: signed challenges that show possession of a key.

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

use crate::record::CredentialId;
use crate::token::{hex, unhex};
use zeroize::Zeroizing;

/// The purpose of a signature. A signature for one purpose is invalid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofPurpose {
    /// To request pairing.
    Pair,
    /// To claim the token that an operator approved.
    Claim,
    /// To refresh the token.
    Refresh,
}

impl ProofPurpose {
    fn word(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Claim => "claim",
            Self::Refresh => "refresh",
        }
    }
}

/// A nonce to sign, valid once and briefly.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Challenge {
    /// The pairing or the device.
    pub subject: CredentialId,
    pub nonce: String,
}

/// An Ed25519 signature over [`signed_text`], 128 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct DeviceSignature(pub String);

/// The bytes to sign. No field can be read as another: each has its own line, and none contains a line break.
pub fn signed_text(purpose: ProofPurpose, challenge: &Challenge) -> Vec<u8> {
    format!("ringfence device v1\n{}\n{}\n{}\n", purpose.word(), challenge.subject, challenge.nonce)
        .into_bytes()
}

pub(crate) fn is_signed(
    key: &str,
    purpose: ProofPurpose,
    challenge: &Challenge,
    signature: &DeviceSignature,
) -> bool {
    let Some(key) = key_of(key) else { return false };
    let Some(bytes) = unhex(&signature.0).and_then(|bytes| <[u8; 64]>::try_from(bytes).ok()) else {
        return false;
    };
    // Strict: rejects weak keys and malleable signatures.
    key.verify_strict(&signed_text(purpose, challenge), &ed25519_dalek::Signature::from_bytes(&bytes)).is_ok()
}

/// Parses a public key in hexadecimal, and rejects weak keys.
pub(crate) fn key_of(text: &str) -> Option<VerifyingKey> {
    let bytes = <[u8; 32]>::try_from(unhex(text)?).ok()?;
    VerifyingKey::from_bytes(&bytes).ok().filter(|key| !key.is_weak())
}

/// The pairing code a person compares on both sides: 40 bits of the key's digest.
pub fn code_of(key: &str) -> String {
    let digest = hex(Sha256::digest([b"ringfence pairing code v1\0", key.as_bytes()].concat()).as_slice());
    let group = |from: usize| digest.get(from..from + 5).unwrap_or_default().to_owned();
    format!("{}-{}", group(0), group(5))
}

/// The private key of a device. `Debug` does not show it, and it is wiped when dropped.
pub struct DeviceKey(SigningKey);

impl DeviceKey {
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut seed = Zeroizing::new([0_u8; 32]);
        getrandom::fill(seed.as_mut_slice())?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// Parses the text of [`DeviceKey::secret`].
    pub fn parse(text: &str) -> Option<Self> {
        let seed = Zeroizing::new(<[u8; 32]>::try_from(unhex(text)?).ok()?);
        Some(Self(SigningKey::from_bytes(&seed)))
    }

    pub fn secret(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(Zeroizing::new(self.0.to_bytes()).as_slice()))
    }

    /// The public key, which the daemon stores.
    pub fn public(&self) -> String {
        hex(self.0.verifying_key().as_bytes())
    }

    pub fn sign(&self, purpose: ProofPurpose, challenge: &Challenge) -> DeviceSignature {
        DeviceSignature(hex(self.0.sign(&signed_text(purpose, challenge)).to_bytes()))
    }
}

impl std::fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceKey({})", code_of(&self.public()))
    }
}
