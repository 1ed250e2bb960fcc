//! The TLS certificate of a listener: the operator's own, or one that is generated once and kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringfence_policy::{DaemonSettings, TlsSettings};
use ringfence_types::ByteString;
use ringfence_web::{Certificate, CertificateError, PemPair};

use crate::secrets::PrivateDirError;
use crate::secrets::private_dir::{make_private, read, replace};

/// A certificate chain fits; a file given by mistake does not.
const MOST: u64 = 256 * 1024;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadTlsError {
    #[error("the private key cannot be used")]
    Key(#[from] PrivateDirError),
    #[error("certificate `{}` cannot be read", ByteString::from(path.as_path()).display())]
    Certificate { path: PathBuf, source: io::Error },
    #[error("there is no private key `{}`", ByteString::from(path.as_path()).display())]
    NoKey { path: PathBuf },
    #[error("`{}`", ByteString::from(path.as_path()).display())]
    Unusable { path: PathBuf, source: CertificateError },
    #[error(transparent)]
    Make(CertificateError),
}

impl LoadTlsError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Key(error) => error.hint(),
            Self::Certificate { .. } | Self::NoKey { .. } | Self::Unusable { .. } => Some(
                "look at `certificate` and `key` of `[daemon]`, or write `tls = \"generated\"`".to_owned(),
            ),
            Self::Make(_) => Some("`hosts` of `[daemon]` are the names in the certificate".to_owned()),
        }
    }
}

/// `None`: without TLS.
pub fn certificate(settings: &DaemonSettings, state_dir: &Path) -> Result<Option<Certificate>, LoadTlsError> {
    match &settings.tls {
        TlsSettings::Off => Ok(None),
        TlsSettings::Files { certificate, key } => own(certificate, key).map(Some),
        TlsSettings::Generated => {
            let directory = state_dir.join("tls");
            make_private(&directory)?;
            generated(settings, &directory, |path, both| Ok(replace(path, both)?)).map(Some)
        }
    }
}

/// Like [`certificate`] for a configuration check: a generated certificate is not stored.
pub fn trial(settings: &DaemonSettings, state_dir: &Path) -> Result<Option<Certificate>, LoadTlsError> {
    match &settings.tls {
        TlsSettings::Generated => generated(settings, &state_dir.join("tls"), |_, _| Ok(())).map(Some),
        TlsSettings::Off | TlsSettings::Files { .. } => certificate(settings, state_dir),
    }
}

fn own(certificate: &Path, key: &Path) -> Result<Certificate, LoadTlsError> {
    let chain = fs::read(certificate)
        .map_err(|source| LoadTlsError::Certificate { path: certificate.to_owned(), source })?;
    let secret = read(key, MOST)?.ok_or_else(|| LoadTlsError::NoKey { path: key.to_owned() })?;
    Certificate::parse(&chain, &secret)
        .map_err(|source| LoadTlsError::Unusable { path: certificate.to_owned(), source })
}

/// Precedes the certificate in the file: the names it was made for.
const MADE_FOR: &str = "# for ";

/// Generated once for its names, so that a compared fingerprint stays valid. Certificate and key share one
/// file, so that they always match.
fn generated(
    settings: &DaemonSettings,
    directory: &Path,
    keep: impl FnOnce(&Path, &[u8]) -> Result<(), LoadTlsError>,
) -> Result<Certificate, LoadTlsError> {
    let path = directory.join("daemon.pem");
    let made_for = format!("{MADE_FOR}{}\n", names(settings).join(" "));
    if let Some(kept) = read(&path, MOST)?.filter(|kept| kept.starts_with(made_for.as_bytes())) {
        return Certificate::parse(&kept, &kept).map_err(|source| LoadTlsError::Unusable { path, source });
    }
    let PemPair { certificate, key } =
        Certificate::make(&names(settings), SystemTime::now()).map_err(LoadTlsError::Make)?;
    let both = zeroize::Zeroizing::new(format!("{made_for}{certificate}{}", key.as_str()));
    keep(&path, both.as_bytes())?;
    Certificate::parse(both.as_bytes(), both.as_bytes()).map_err(LoadTlsError::Make)
}

fn names(settings: &DaemonSettings) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let address = settings.listen.map(|bind| bind.address().ip().to_canonical());
    names.extend(address.filter(|ip| !ip.is_unspecified() && !ip.is_loopback()).map(|ip| ip.to_string()));
    let without_port =
        |host: &String| host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name).to_owned();
    names.extend(settings.hosts.iter().filter(|host| !host.starts_with('[')).map(without_port));
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn settings(tls: TlsSettings) -> DaemonSettings {
        DaemonSettings { tls, hosts: vec!["box.example:7420".to_owned()], ..DaemonSettings::default() }
    }

    /// S003-22.
    #[test]
    fn s003_22_a_generated_certificate_is_made_once_and_its_key_is_private() {
        let state = tempfile::tempdir().unwrap();
        let load = || certificate(&settings(TlsSettings::Generated), state.path()).unwrap().unwrap();
        assert_eq!(load().fingerprint(), load().fingerprint());
        let file = state.path().join("tls/daemon.pem");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let error = certificate(&settings(TlsSettings::Generated), state.path()).unwrap_err();
        assert!(error.hint().unwrap().contains("chmod 600"), "{error}");
        assert!(certificate(&settings(TlsSettings::Off), state.path()).unwrap().is_none());
    }

    /// A host added to `hosts` is in the certificate after the next start.
    #[test]
    fn a_generated_certificate_follows_its_names() {
        let state = tempfile::tempdir().unwrap();
        let load = |hosts: &[&str]| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let settings = DaemonSettings { hosts, ..settings(TlsSettings::Generated) };
            certificate(&settings, state.path()).unwrap().unwrap().fingerprint().to_owned()
        };
        let one = load(&["a.example"]);
        assert_eq!(load(&["a.example:7420"]), one, "the port is no part of it");
        let both = load(&["a.example", "b.example"]);
        assert_ne!(both, one);
        assert_eq!(load(&["b.example", "a.example"]), both);
    }

    #[test]
    fn files_of_the_operator_are_used_when_they_fit_and_the_key_is_private() {
        let place = tempfile::tempdir().unwrap();
        let PemPair { certificate: text, key } =
            Certificate::make(&["a.example".to_owned()], SystemTime::now()).unwrap();
        let [chain, secret] = ["c.pem", "k.pem"].map(|name| place.path().join(name));
        fs::write(&chain, text).unwrap();
        fs::write(&secret, key.as_bytes()).unwrap();
        let tls = TlsSettings::Files { certificate: chain.clone(), key: secret.clone() };
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(certificate(&settings(tls.clone()), place.path()), Err(LoadTlsError::Key(_))));
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(certificate(&settings(tls.clone()), place.path()).unwrap().is_some());
        fs::write(&chain, "").unwrap();
        assert!(matches!(certificate(&settings(tls), place.path()), Err(LoadTlsError::Unusable { .. })));
    }
}
