//! The encrypted file format of the secret store: XChaCha20-Poly1305 over everything, including names.
//!
//! ```text
//!  file       "rfsecrt1" ‖ nonce (24) ‖ ciphertext and tag
//!  plaintext  length of the list (u32) ‖ metadata of each secret (JSON) ‖ the values, concatenated
//! ```
//!
//! WHY one file: names reveal which keys an operator has, and two files could be out of step.
//! WHY values outside the JSON: serde makes copies that are not wiped.

use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{Key as CipherKey, Tag, XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::entry::SecretInfo;
use super::value::SecretValue;

const MAGIC: &[u8; 8] = b"rfsecrt1";
const NONCE: usize = 24;
const TAG: usize = 16;

pub(super) const KEY: usize = 32;

/// Why bytes are not a store, or could not be encrypted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    #[error("it is not a store of secrets, or one of a newer version")]
    Format,
    #[error("the key does not fit it, or it was changed")]
    Key,
    #[error("the key file does not hold a key")]
    KeyFile,
    #[error("its header is invalid")]
    Content,
    #[error("the kernel gives no random bytes")]
    Random(#[from] getrandom::Error),
}

/// The key of the store.
pub(super) struct StoreKey(Zeroizing<[u8; KEY]>);

impl StoreKey {
    pub(super) fn random() -> Result<Self, SealError> {
        let mut key = Zeroizing::new([0; KEY]);
        getrandom::fill(key.as_mut_slice())?;
        Ok(Self(key))
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, SealError> {
        let key = bytes.try_into().map_err(|_length| SealError::KeyFile)?;
        Ok(Self(Zeroizing::new(key)))
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&CipherKey::from(*self.0))
    }

    /// A keyed digest that only tells whether two values are equal. Without the key a short value could be
    /// guessed from it.
    pub(super) fn fingerprint(&self, value: &[u8]) -> String {
        let own = |inner: &[u8]| {
            let mut hash = Sha256::new();
            hash.update(b"ringfence secret fingerprint\0");
            hash.update(self.as_slice());
            hash.update(inner);
            hash.finalize()
        };
        // Two rounds, as in HMAC, against length extension.
        own(&own(value)).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(super) fn seal(key: &StoreKey, entries: &[(SecretInfo, SecretValue)]) -> Result<Vec<u8>, SealError> {
    let mut plain = encode(entries)?;
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce)?;
    let tag = key
        .cipher()
        .encrypt_inout_detached(&XNonce::from(nonce), MAGIC, plain.as_mut_slice().into())
        .map_err(|_too_long| SealError::Content)?;
    Ok([MAGIC.as_slice(), &nonce, &plain, &tag].concat())
}

pub(super) fn unseal(
    key: &StoreKey,
    mut bytes: Zeroizing<Vec<u8>>,
) -> Result<Vec<(SecretInfo, SecretValue)>, SealError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(SealError::Format)?;
    let (nonce, rest) = rest.split_first_chunk::<NONCE>().ok_or(SealError::Format)?;
    let (_, tag) = rest.split_last_chunk::<TAG>().ok_or(SealError::Format)?;
    let (nonce, tag) = (XNonce::from(*nonce), Tag::from(*tag));
    let end = bytes.len() - TAG;
    let text = bytes.get_mut(MAGIC.len() + NONCE..end).ok_or(SealError::Format)?;
    key.cipher()
        .decrypt_inout_detached(&nonce, MAGIC, (&mut *text).into(), &tag)
        .map_err(|_not_ours| SealError::Key)?;
    decode(text)
}

fn encode(entries: &[(SecretInfo, SecretValue)]) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let metas: Vec<&SecretInfo> = entries.iter().map(|(meta, _)| meta).collect();
    let list = serde_json::to_vec(&metas).map_err(|_never| SealError::Content)?;
    let length = u32::try_from(list.len()).map_err(|_too_long| SealError::Content)?;
    let values: usize = entries.iter().map(|(_, value)| value.as_slice().len()).sum();
    let mut plain = Zeroizing::new(Vec::with_capacity(4 + list.len() + values));
    plain.extend_from_slice(&length.to_le_bytes());
    plain.extend_from_slice(&list);
    for (_, value) in entries {
        plain.extend_from_slice(value.as_slice());
    }
    Ok(plain)
}

fn decode(plain: &[u8]) -> Result<Vec<(SecretInfo, SecretValue)>, SealError> {
    let (length, rest) = plain.split_first_chunk::<4>().ok_or(SealError::Content)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_never| SealError::Content)?;
    let (list, mut values) = rest.split_at_checked(length).ok_or(SealError::Content)?;
    let metas: Vec<SecretInfo> = serde_json::from_slice(list).map_err(|_not_ours| SealError::Content)?;
    let mut entries = Vec::with_capacity(metas.len());
    for meta in metas {
        let length = usize::try_from(meta.bytes).map_err(|_never| SealError::Content)?;
        let (value, after) = values.split_at_checked(length).ok_or(SealError::Content)?;
        let value =
            SecretValue::new(Zeroizing::new(value.to_vec())).map_err(|_not_ours| SealError::Content)?;
        entries.push((meta, value));
        values = after;
    }
    if values.is_empty() { Ok(entries) } else { Err(SealError::Content) }
}
