//! Certificate authority of one session. Clients inside trust it, and its key never leaves this process.
//!
//! The authority has one key and all leaves share another; both exist only as long as the session. A leaf is issued for the host of
//! a flow at its first use, never for a name that a client chooses.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use ringfence_types::Host;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Longer than any session. Clients reject certificates after it.
const CA_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const LEAF_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Start of validity before now, for clients that round times.
const BACKDATED: Duration = DAY;
/// A leaf is renewed after this, long before it expires.
const LEAF_USE: Duration = DAY;
/// Cached leaves. Evicted ones are issued again.
const MOST_LEAVES: usize = 512;
/// Maximum length of a common name. Longer names are in the alternative names only.
const LONGEST_COMMON_NAME: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum CaError {
    #[error("the certificate authority of the session: {0}")]
    Made(#[from] rcgen::Error),
    #[error("a certificate for `{0}` cannot be used: {1}")]
    Leaf(String, rustls::Error),
    #[error("`{0}` is not a host that a certificate can be made for")]
    Host(String),
}

pub struct SessionCa {
    issuer: Issuer<'static, KeyPair>,
    leaf_key: KeyPair,
    pem: String,
    provider: Arc<CryptoProvider>,
    leaves: Mutex<HashMap<Host, LeafCertificate>>,
}

struct LeafCertificate {
    config: Arc<ServerConfig>,
    made: Instant,
}

impl SessionCa {
    pub fn new() -> Result<Self, CaError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Ringfence session CA");
        let now = SystemTime::now();
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + CA_LIFE).into();
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            leaf_key: KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            pem,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            leaves: Mutex::new(HashMap::new()),
        })
    }

    /// The certificate, for the bundle inside.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// TLS configuration for clients that connect to `host`.
    pub(crate) fn server(&self, host: &Host) -> Result<Arc<ServerConfig>, CaError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = leaves.get(host).filter(|leaf| leaf.made.elapsed() < LEAF_USE) {
            return Ok(leaf.config.clone());
        }
        let config = Arc::new(self.make(host)?);
        if leaves.len() >= MOST_LEAVES {
            leaves.clear();
        }
        leaves.insert(host.clone(), LeafCertificate { config: config.clone(), made: Instant::now() });
        Ok(config)
    }

    fn make(&self, host: &Host) -> Result<ServerConfig, CaError> {
        let certificate = self.leaf(host)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let wrong = |error| CaError::Leaf(host.to_string(), error);
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .map_err(wrong)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn leaf(&self, host: &Host) -> Result<CertificateDer<'static>, CaError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.subject_alt_names = vec![alternative_name(host)?];
        let name = host.to_string();
        if name.len() <= LONGEST_COMMON_NAME {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let now = SystemTime::now();
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + LEAF_LIFE).into();
        Ok(params.signed_by(&self.leaf_key, &self.issuer)?.der().clone())
    }
}

fn alternative_name(host: &Host) -> Result<SanType, CaError> {
    match host {
        Host::Name(name) => {
            let name = name.clone().try_into();
            name.map(SanType::DnsName).map_err(CaError::Made)
        }
        Host::V4(address) => Ok(SanType::IpAddress((*address).into())),
        Host::V6(address) => Ok(SanType::IpAddress((*address).into())),
        Host::Below(_) => Err(CaError::Host(host.to_string())),
    }
}

impl fmt::Debug for SessionCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ca(…)")
    }
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::*;

    use super::*;

    fn name(text: &str) -> Host {
        ringfence_types::HostPattern::parse(text).unwrap().host().clone()
    }

    #[test]
    fn a_leaf_is_for_one_host_and_is_signed_by_the_authority() {
        let ca = SessionCa::new().unwrap();
        let (_, pem) = parse_x509_pem(ca.pem().as_bytes()).unwrap();
        let authority = pem.parse_x509().unwrap();
        assert!(authority.is_ca() && authority.validity().is_valid());
        for host in ["api.example.org", "127.0.0.1", "[::1]"] {
            let der = ca.leaf(&name(host)).unwrap();
            let (_, leaf) = X509Certificate::from_der(&der).unwrap();
            assert_eq!(leaf.issuer(), authority.subject());
            assert!(!leaf.is_ca() && leaf.validity().is_valid());
            let names = leaf.subject_alternative_name().unwrap().unwrap().value;
            assert_eq!(names.general_names.len(), 1, "{host}");
        }
    }

    #[test]
    fn the_validity_is_short() {
        let ca = SessionCa::new().unwrap();
        let (_, pem) = parse_x509_pem(ca.pem().as_bytes()).unwrap();
        let authority = pem.parse_x509().unwrap();
        let der = ca.leaf(&name("api.example.org")).unwrap();
        let (_, leaf) = X509Certificate::from_der(&der).unwrap();
        for (certificate, days) in [(&authority, 31), (&leaf, 8)] {
            let validity = certificate.validity();
            let seconds = validity.not_after.timestamp() - validity.not_before.timestamp();
            assert!(seconds <= days * 24 * 60 * 60);
        }
        assert!(leaf.validity().not_after < authority.validity().not_after);
    }

    #[test]
    fn leaves_are_kept_up_to_a_number() {
        let ca = SessionCa::new().unwrap();
        let first = ca.server(&name("h.example")).unwrap();
        assert!(Arc::ptr_eq(&first, &ca.server(&name("h.example")).unwrap()));
        for at in 0..MOST_LEAVES + 3 {
            ca.server(&name(&format!("h{at}.example"))).unwrap();
        }
        assert!(ca.leaves.lock().unwrap().len() <= MOST_LEAVES);
    }

    #[test]
    fn a_wildcard_gets_no_certificate() {
        let ca = SessionCa::new().unwrap();
        assert!(matches!(ca.server(&Host::Below("example.org".into())), Err(CaError::Host(_))));
    }

    #[test]
    fn a_long_name_has_a_certificate() {
        let ca = SessionCa::new().unwrap();
        let long = format!("{}.{}.example", "a".repeat(60), "b".repeat(60));
        assert!(ca.server(&name(&long)).is_ok());
    }
}
