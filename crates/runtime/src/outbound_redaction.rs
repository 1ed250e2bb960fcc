//! Redaction of what a daemon sends outside, such as telemetry: no stored secret, and nothing shaped like
//! one.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringfence_scan::{LazyScanner, SHORTEST_SECRET};
use ringfence_types::{ByteString, Host, HostPattern};
use zeroize::Zeroizing;

use crate::secrets::{
    SecretChangeError, SecretName, SecretNameError, SecretScope, SecretSet, SecretStore, SecretStoreError,
};

/// Header values are at most this long.
const LONGEST_VALUE: u64 = 8 * 1024;
/// Limit of retired values that are kept.
const MOST_RETIRED: usize = 2000;
/// Rule name of header values, which are in no store.
const HEADER: &str = "header";
/// Replaces text that could not be scanned.
const NOT_LOOKED_THROUGH: &str = "[not sent: it could not be looked through]";

/// The operator's current secrets, for redacting outbound text.
pub struct OutboundRedactor {
    store: SecretStore,
    seen: Option<KnownSecrets>,
    /// Earlier values: text written while they were current may still have to be sent.
    retired: Vec<(String, Zeroizing<Vec<u8>>)>,
}

struct KnownSecrets {
    edition: Option<[i64; 6]>,
    also: Vec<Zeroizing<Vec<u8>>>,
    secrets: SecretSet,
    scanner: LazyScanner,
}

/// Omits all values.
impl fmt::Debug for OutboundRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Why nothing may be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboundRedactionError {
    /// Without the stored secrets Ringfence cannot redact them.
    #[error("the secrets of the operator cannot be read, so nothing is sent")]
    Store(#[from] SecretStoreError),
    #[error("the secret for a header cannot be found")]
    Secret(#[source] SecretChangeError),
    #[error("the secret for a header has no name that one could have")]
    Name(#[from] SecretNameError),
    #[error("the secret `{name}` is for {hosts}, and not for the collector")]
    Elsewhere { name: SecretName, hosts: String },
    #[error("the value for the header `{name}` has characters that no header has")]
    Unusable { name: String },
    #[error("the value of a header in `{}` cannot be read", ByteString::from(path.as_path()).display())]
    File { path: PathBuf, source: io::Error },
    #[error("the value of a header in `{}` can be read by others", ByteString::from(path.as_path()).display())]
    Open { path: PathBuf },
    #[error("the value of a header in `{}` is empty or too long", ByteString::from(path.as_path()).display())]
    Length { path: PathBuf },
}

impl OutboundRedactionError {
    /// The next step for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Secret(error) => error.hint(),
            Self::Name(_) => Some("write the name of a secret of `ringfence secret list`".to_owned()),
            Self::Elsewhere { .. } => {
                Some("keep a secret of its own for the collector: `ringfence secret set NAME`".to_owned())
            }
            Self::Open { path } => {
                Some(format!("`chmod 600 {}`", ByteString::from(path.as_path()).display()))
            }
            Self::Unusable { .. } => Some("keep it as one line of visible characters".to_owned()),
            Self::File { .. } | Self::Length { .. } => Some("write the value into it".to_owned()),
        }
    }
}

impl OutboundRedactor {
    pub fn new(state_dir: &Path) -> Self {
        Self { store: SecretStore::new(state_dir), seen: None, retired: Vec::new() }
    }

    /// Reads the store again if it changed. `also` are further values that must not leave, from no store.
    pub fn renew(&mut self, also: &[Zeroizing<Vec<u8>>]) -> Result<(), OutboundRedactionError> {
        // Taken before the read, so that a concurrent change is noticed the next time.
        let edition = self.store.edition();
        if self.seen.as_ref().is_some_and(|seen| seen.edition == edition && seen.also == also) {
            return Ok(());
        }
        // If this fails, nothing is sent, because the old values may be outdated.
        if let Some(before) = self.seen.take() {
            self.retire(before);
        }
        let secrets = self.store.read()?;
        let stored = secrets.values().map(|(meta, value)| (meta.name.as_str(), value.as_slice()));
        let others = also.iter().map(|value| (HEADER, value.as_slice()));
        let retired = self.retired.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let all = stored.chain(others).chain(retired);
        let long = all.filter(|(_, value)| value.len() >= SHORTEST_SECRET);
        // INVARIANT: short values were filtered out, and the scanner refuses nothing else.
        let scanner = LazyScanner::new(long, || None).unwrap_or_default();
        self.seen = Some(KnownSecrets { edition, also: also.to_vec(), secrets, scanner });
        Ok(())
    }

    fn retire(&mut self, before: KnownSecrets) {
        let stored = before.secrets.values();
        let stored =
            stored.map(|(meta, value)| (meta.name.to_string(), Zeroizing::new(value.as_slice().to_vec())));
        let others = before.also.iter().map(|value| (HEADER.to_owned(), value.clone()));
        for old in stored.chain(others) {
            self.retired.retain(|known| *known != old);
            self.retired.push(old);
        }
        let most = self.retired.len().saturating_sub(MOST_RETIRED);
        drop(self.retired.drain(..most));
    }

    /// The redacted `text`.
    pub fn clean(&self, text: &str) -> String {
        let Some(seen) = &self.seen else { return NOT_LOOKED_THROUGH.to_owned() };
        let redacted = seen.scanner.redact(text.as_bytes());
        if redacted.refused > 0 {
            return NOT_LOOKED_THROUGH.to_owned();
        }
        String::from_utf8_lossy(&redacted.clean).into_owned()
    }

    /// Whether `bytes` contain a secret.
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.seen.as_ref().is_none_or(|seen| !seen.scanner.redact(bytes).findings.is_empty())
    }

    /// A stored secret's value as of the last renewal, for `host`; `None`: for a local socket.
    pub fn secret(
        &self,
        name: &str,
        host: Option<&Host>,
    ) -> Result<Zeroizing<Vec<u8>>, OutboundRedactionError> {
        let name: SecretName = name.parse()?;
        let none = SecretSet::default();
        let secrets = self.seen.as_ref().map_or(&none, |seen| &seen.secrets);
        let meta = secrets.find(&name, &SecretScope::default()).map_err(OutboundRedactionError::Secret)?;
        // A secret restricted to some hosts is not sent to others, even if a file requests it.
        if !meta.hosts.is_empty() && !host.is_some_and(|host| meta.hosts.iter().any(|own| covers(own, host)))
        {
            return Err(OutboundRedactionError::Elsewhere { name, hosts: meta.hosts.join(", ") });
        }
        let found = secrets.values().find(|(known, _)| *known == meta);
        Ok(found.map(|(_, value)| Zeroizing::new(value.as_slice().to_vec())).unwrap_or_default())
    }
}

fn covers(own: &str, host: &Host) -> bool {
    let own = HostPattern::parse(own);
    own.is_ok_and(|own| match (own.host(), host) {
        (Host::Below(above), Host::Name(name)) => {
            name.strip_suffix(above.as_str()).is_some_and(|below| below.len() > 1 && below.ends_with('.'))
        }
        (own, host) => own == host,
    })
}

/// Reads a value from a private file and strips the line break that editors append.
pub fn private_value(path: &Path) -> Result<Zeroizing<Vec<u8>>, OutboundRedactionError> {
    const OTHERS: u32 = 0o077;
    let wrong = |source| OutboundRedactionError::File { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(wrong)?;
    if metadata.mode() & OTHERS != 0 || !metadata.is_file() {
        return Err(OutboundRedactionError::Open { path: path.to_owned() });
    }
    if metadata.len() > LONGEST_VALUE {
        return Err(OutboundRedactionError::Length { path: path.to_owned() });
    }
    let bytes = Zeroizing::new(fs::read(path).map_err(wrong)?);
    let value = Zeroizing::new(bytes.trim_ascii_end().to_vec());
    if value.is_empty() {
        return Err(OutboundRedactionError::Length { path: path.to_owned() });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn stored(directory: &Path, (name, value): (&str, &str), hosts: &[&str]) {
        use crate::secrets::{NewSecret, SecretValue};
        use ringfence_types::SecretClass;
        let value = SecretValue::new(Zeroizing::new(value.as_bytes().to_vec())).unwrap();
        let new = NewSecret {
            name: name.parse().unwrap(),
            class: SecretClass::Tool,
            scope: SecretScope::default(),
            deliver: None,
            variable: None,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            credential_locations: Vec::new(),
            value,
        };
        SecretStore::new(directory).add(vec![new]).unwrap().make().unwrap();
    }

    #[test]
    fn a_secret_that_is_stored_later_does_not_leave_either() {
        let directory = tempfile::tempdir().unwrap();
        let value = ["correct", "horse", "battery"].join("+");
        let mut outbound = OutboundRedactor::new(directory.path());
        assert_eq!(outbound.clean("x"), NOT_LOOKED_THROUGH, "nothing before it was read");
        outbound.renew(&[]).unwrap();
        assert_eq!(outbound.clean(&value), value, "control");
        stored(directory.path(), ("deploy", &value), &[]);
        outbound.renew(&[]).unwrap();
        assert_eq!(outbound.clean(&format!("a {value} b")), "a [redacted:secret/deploy] b");
        assert_eq!(outbound.secret("deploy", None).unwrap().as_slice(), value.as_bytes());
        assert!(matches!(outbound.secret("deplay", None), Err(OutboundRedactionError::Secret(_))));
        let also = ["this", "is", "the", "header"].join("~");
        outbound.renew(&[Zeroizing::new(also.clone().into_bytes())]).unwrap();
        assert_eq!(outbound.clean(&also), "[redacted:secret/header]");
        let name = "deploy".parse().unwrap();
        SecretStore::new(directory.path()).remove(&name, &SecretScope::default()).unwrap().make().unwrap();
        outbound.renew(&[]).unwrap();
        assert_eq!(
            outbound.clean(&format!("{value} {also}")),
            "[redacted:secret/deploy] [redacted:secret/header]"
        );
    }

    #[test]
    fn a_secret_for_some_hosts_is_for_no_other() {
        let directory = tempfile::tempdir().unwrap();
        stored(directory.path(), ("key", "correct+horse+battery"), &["api.example.com", "*.example.org"]);
        let mut outbound = OutboundRedactor::new(directory.path());
        outbound.renew(&[]).unwrap();
        let to = |name: &str| outbound.secret("key", Some(&Host::Name(name.to_owned())));
        assert!(to("api.example.com").is_ok() && to("a.example.org").is_ok());
        for other in ["example.org", "evil.com", "xapi.example.com"] {
            assert!(matches!(to(other), Err(OutboundRedactionError::Elsewhere { .. })), "{other}");
        }
        assert!(matches!(outbound.secret("key", None), Err(OutboundRedactionError::Elsewhere { .. })));
    }

    #[test]
    fn while_the_store_cannot_be_read_nothing_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let mut outbound = OutboundRedactor::new(directory.path());
        stored(directory.path(), ("deploy", "correct+horse+battery"), &[]);
        outbound.renew(&[]).unwrap();
        fs::remove_file(directory.path().join("secrets-key/key")).unwrap();
        stored_elsewhere(directory.path());
        assert!(matches!(outbound.renew(&[]), Err(OutboundRedactionError::Store(_))));
        assert_eq!(outbound.clean("anything"), NOT_LOOKED_THROUGH);
    }

    /// Replaces the store by a copy.
    fn stored_elsewhere(directory: &Path) {
        let store = directory.join("secrets/store");
        let bytes = fs::read(&store).unwrap();
        fs::remove_file(&store).unwrap();
        fs::write(&store, [bytes.as_slice(), b"x"].concat()).unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn a_file_that_others_can_read_is_no_value() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value");
        fs::write(&path, "abc\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(private_value(&path), Err(OutboundRedactionError::Open { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(private_value(&path).unwrap().as_slice(), b"abc");
        fs::write(&path, "\n").unwrap();
        assert!(matches!(private_value(&path), Err(OutboundRedactionError::Length { .. })));
    }
}
