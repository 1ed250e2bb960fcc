//! Verifies the cosign signature of an image offline, with a local key.
//!
//! cosign signs a small JSON text that names the digest of the image's manifest. A signature is ECDSA over
//! P-256 with SHA-256.

use std::io;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use ringfence_policy::sha256;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

/// Proof that the holder of this key signed an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSignature {
    /// The public key, DER in base64.
    key: String,
    /// The signed text in base64; it names the digest.
    payload: String,
    /// In base64.
    signature: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageSignatureError {
    #[error("`{}` cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is no public key for ECDSA over P-256 in PEM", .0.display())]
    Key(PathBuf),
    #[error("`{}` is not what `cosign download signature` writes", .0.display())]
    Format(PathBuf),
    #[error("no signature in `{}` was made with that key", .0.display())]
    Foreign(PathBuf),
    #[error("the signature is for {signed}, and the image is {}", if .has.is_empty() { "without a digest of its manifest" } else { .has })]
    Other { signed: String, has: String },
    #[error("what is on the list is not a signature of its key")]
    Broken,
}

impl ImageSignatureError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Format(_) => Some("`cosign download signature IMAGE > FILE` writes one".to_owned()),
            Self::Key(_) => Some("`cosign public-key --key cosign.key` writes one".to_owned()),
            Self::Other { has, .. } if has.is_empty() => {
                Some("the engine knows that digest of what it has pulled or loaded".to_owned())
            }
            _ => None,
        }
    }
}

/// A line of `cosign download signature`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CosignBundle {
    base64_signature: String,
    payload: String,
}

/// The relevant part of the signed text.
#[derive(Deserialize)]
struct CosignPayload {
    critical: CosignCritical,
}

#[derive(Deserialize)]
struct CosignCritical {
    image: CosignImage,
    r#type: String,
}

#[derive(Deserialize)]
struct CosignImage {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// The DER prefix of a P-256 key, which has only this encoding.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

impl ImageSignature {
    /// Finds the signature in `file` by `key` for one of these manifest digests.
    pub fn check(file: &PathBuf, key: &PathBuf, digests: &[String]) -> Result<Self, ImageSignatureError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| ImageSignatureError::Read { path: path.clone(), source })
        };
        let pem = read(key)?;
        let der = SubjectPublicKeyInfoDer::from_pem_slice(&pem).ok();
        let der =
            der.filter(|der| der.starts_with(&P256)).ok_or_else(|| ImageSignatureError::Key(key.clone()))?;
        let text = read(file)?;
        let lines: Result<Vec<CosignBundle>, _> =
            serde_json::Deserializer::from_slice(&text).into_iter().collect();
        let lines = lines.ok().filter(|lines| !lines.is_empty());
        let lines = lines.ok_or_else(|| ImageSignatureError::Format(file.clone()))?;
        let mut signed = None;
        for line in lines {
            let signature =
                Self { key: STANDARD.encode(&der), payload: line.payload, signature: line.base64_signature };
            let Ok(VerifiedSigner { digest, .. }) = signature.verify() else { continue };
            if digests.contains(&digest) {
                return Ok(signature);
            }
            signed = Some(digest);
        }
        match signed {
            Some(signed) => Err(ImageSignatureError::Other { signed, has: digests.join(", ") }),
            None => Err(ImageSignatureError::Foreign(file.clone())),
        }
    }

    /// Verifies the signature and returns the key and the digest.
    pub fn verify(&self) -> Result<VerifiedSigner, ImageSignatureError> {
        let decode = |text: &str| STANDARD.decode(text).map_err(|_not_base64| ImageSignatureError::Broken);
        let (key, payload, signature) =
            (decode(&self.key)?, decode(&self.payload)?, decode(self.signature.trim())?);
        let point = key.strip_prefix(&P256).ok_or(ImageSignatureError::Broken)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
            .verify(&payload, &signature)
            .map_err(|_unspecified| ImageSignatureError::Broken)?;
        let payload: CosignPayload =
            serde_json::from_slice(&payload).map_err(|_no_payload| ImageSignatureError::Broken)?;
        if payload.critical.r#type != "cosign container image signature" {
            return Err(ImageSignatureError::Broken);
        }
        Ok(VerifiedSigner { key: sha256(&key), digest: payload.critical.image.digest })
    }
}

/// A verified key and the digest it signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedSigner {
    /// `sha256:…` of the key, as in `[container] trusted_keys`.
    pub key: String,
    /// Digest of the manifest.
    pub digest: String,
}
