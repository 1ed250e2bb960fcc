//! The certificate of a listener: supplied by the operator, or self-signed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Lifetime of a self-signed certificate. Browsers reject longer ones.
const LIFE: Duration = Duration::from_secs(397 * 24 * 60 * 60);
/// Tolerance for clocks that differ.
const BEFORE: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    #[error("there is no certificate in it")]
    NoCertificate,
    #[error("there is no private key in it")]
    NoKey,
    #[error("certificate and key do not fit, or cannot be used: {0}")]
    Unusable(rustls::Error),
    #[error("a certificate cannot be made: {0}")]
    Make(rcgen::Error),
}

/// A certificate and its key as text.
pub struct PemPair {
    pub certificate: String,
    pub key: Zeroizing<String>,
}

impl std::fmt::Debug for PemPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pem").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The certificate of a listener.
#[derive(Clone, Debug)]
pub struct Certificate {
    config: Arc<ServerConfig>,
    fingerprint: String,
}

impl Certificate {
    /// Parses a chain and a key in PEM.
    pub fn parse(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|_pem| CertificateError::NoCertificate)?;
        let first = chain.first().ok_or(CertificateError::NoCertificate)?;
        let fingerprint = Sha256::digest(first).iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_pem| CertificateError::NoKey)?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(CertificateError::Unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), fingerprint: fingerprint.join(":") })
    }

    /// Creates a self-signed certificate for `names` (hosts and addresses). Clients compare its fingerprint.
    pub fn make(names: &[String], now: SystemTime) -> Result<PemPair, CertificateError> {
        let mut params = CertificateParams::new(names.to_vec()).map_err(CertificateError::Make)?;
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, "ringfence");
        params.distinguished_name = name;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let begins = now.checked_sub(BEFORE).unwrap_or(now);
        params.not_before = begins.into();
        params.not_after = (begins + LIFE).into();
        let key = KeyPair::generate().map_err(CertificateError::Make)?;
        let certificate = params.self_signed(&key).map_err(CertificateError::Make)?;
        Ok(PemPair { certificate: certificate.pem(), key: Zeroizing::new(key.serialize_pem()) })
    }

    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` writes it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> PemPair {
        Certificate::make(&["localhost".to_owned(), "127.0.0.1".to_owned()], SystemTime::now()).unwrap()
    }

    /// S003-22.
    #[test]
    fn s003_22_a_certificate_that_was_made_can_be_used_and_its_key_is_not_shown() {
        let pem = made();
        let certificate = Certificate::parse(pem.certificate.as_bytes(), pem.key.as_bytes()).unwrap();
        assert_eq!(certificate.fingerprint().len(), 32 * 3 - 1);
        assert!(!format!("{pem:?}").contains("PRIVATE KEY"));
        assert_ne!(made().certificate, pem.certificate);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let (one, two) = (made(), made());
        let parse =
            |chain: &str, key: &str| Certificate::parse(chain.as_bytes(), key.as_bytes()).unwrap_err();
        assert!(matches!(parse(&one.certificate, &two.key), CertificateError::Unusable(_)));
        assert!(matches!(parse("", &one.key), CertificateError::NoCertificate));
        assert!(matches!(parse(&one.certificate, &one.certificate), CertificateError::NoKey));
        assert!(matches!(parse(&one.key, &one.key), CertificateError::NoCertificate));
    }
}
