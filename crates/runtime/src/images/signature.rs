//! The signature of an image, as cosign makes it, checked with a key that is here: nobody is asked over a network.
//!
//! cosign signs a small JSON text that names the digest of the image's manifest. A signature is ECDSA over P-256 with SHA-256.

use std::io;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use ringfence_authz::policy::sha256;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

/// What says that somebody with this key vouches for an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The public key, DER in base64.
    key: String,
    /// The text that was signed, in base64: it names the digest.
    payload: String,
    /// In base64.
    signature: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
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

impl SignatureError {
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
struct Downloaded {
    base64_signature: String,
    payload: String,
}

/// What cosign signs, as far as it matters here.
#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Signed,
    r#type: String,
}

#[derive(Deserialize)]
struct Signed {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Everything that comes before the point of a P-256 key: the only encoding there is of it.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

impl Signature {
    /// Finds the signature in `file` that `key` made for an image with one of these manifest digests.
    pub fn check(file: &PathBuf, key: &PathBuf, digests: &[String]) -> Result<Self, SignatureError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|source| SignatureError::Read { path: path.clone(), source })
        };
        let pem = read(key)?;
        let der = SubjectPublicKeyInfoDer::from_pem_slice(&pem).ok();
        let der = der.filter(|der| der.starts_with(&P256)).ok_or_else(|| SignatureError::Key(key.clone()))?;
        let text = read(file)?;
        let lines: Result<Vec<Downloaded>, _> =
            serde_json::Deserializer::from_slice(&text).into_iter().collect();
        let lines = lines.ok().filter(|lines| !lines.is_empty());
        let lines = lines.ok_or_else(|| SignatureError::Format(file.clone()))?;
        let mut signed = None;
        for line in lines {
            let signature =
                Self { key: STANDARD.encode(&der), payload: line.payload, signature: line.base64_signature };
            let Ok(Verified { digest, .. }) = signature.verify() else { continue };
            if digests.contains(&digest) {
                return Ok(signature);
            }
            signed = Some(digest);
        }
        match signed {
            Some(signed) => Err(SignatureError::Other { signed, has: digests.join(", ") }),
            None => Err(SignatureError::Foreign(file.clone())),
        }
    }

    /// Whether it is what it says, and who says what.
    pub fn verify(&self) -> Result<Verified, SignatureError> {
        let decode = |text: &str| STANDARD.decode(text).map_err(|_not_base64| SignatureError::Broken);
        let (key, payload, signature) =
            (decode(&self.key)?, decode(&self.payload)?, decode(self.signature.trim())?);
        let point = key.strip_prefix(&P256).ok_or(SignatureError::Broken)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
            .verify(&payload, &signature)
            .map_err(|_unspecified| SignatureError::Broken)?;
        let payload: Payload =
            serde_json::from_slice(&payload).map_err(|_no_payload| SignatureError::Broken)?;
        if payload.critical.r#type != "cosign container image signature" {
            return Err(SignatureError::Broken);
        }
        Ok(Verified { key: sha256(&key), digest: payload.critical.image.digest })
    }
}

/// Who vouches for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// `sha256:…` of the key, as `[container] signed_by` names it.
    pub key: String,
    /// Of the manifest.
    pub digest: String,
}
