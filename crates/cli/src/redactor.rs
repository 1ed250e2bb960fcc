//! Redacts messages of this program: stored secret values in every encoding, and text shaped like a
//! credential.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_runtime::secrets::{SecretSet, SecretStore, SecretStoreError};
use ringfence_scan::{LazyScanner, SHORTEST_SECRET};

use crate::environment::Environment;
use crate::host;

/// The redactor with the secrets of this process's user.
#[derive(Debug)]
pub(crate) struct CliRedactor {
    scanner: LazyScanner,
    /// Why the secrets could not be read.
    unread: Option<SecretStoreError>,
}

const NOT_SHOWN: &str = "[not shown: the stored secrets cannot be read]";

static REDACTOR: OnceLock<CliRedactor> = OnceLock::new();
static BUILDING: AtomicBool = AtomicBool::new(false);

impl CliRedactor {
    /// The redactor of this process, built on first use.
    pub(crate) fn own() -> &'static Self {
        REDACTOR.get_or_init(|| {
            BUILDING.store(true, Ordering::Relaxed);
            let redactor = Self::read(&Environment::read());
            BUILDING.store(false, Ordering::Relaxed);
            redactor
        })
    }

    /// The redactor, unless it is being built: a panic during that must not wait for it.
    pub(crate) fn ready() -> Option<&'static Self> {
        REDACTOR.get().or_else(|| (!BUILDING.load(Ordering::Relaxed)).then(Self::own))
    }

    fn read(environment: &Environment) -> Self {
        let Ok(state_dir) = host::state_dir(environment) else { return Self::knowing(&SecretSet::default()) };
        // If a file is in place of the state directory, there is no store.
        let is_in_the_way = match state_dir.metadata() {
            Ok(there) => !there.is_dir(),
            Err(error) => error.kind() == std::io::ErrorKind::NotADirectory,
        };
        if is_in_the_way {
            return Self::knowing(&SecretSet::default());
        }
        match SecretStore::new(&state_dir).read() {
            Ok(secrets) => Self::knowing(&secrets),
            Err(error) => Self { scanner: LazyScanner::default(), unread: Some(error) },
        }
    }

    fn knowing(secrets: &SecretSet) -> Self {
        let long = secrets.values().filter(|(_, value)| value.as_slice().len() >= SHORTEST_SECRET);
        let values = long.map(|(meta, value)| (meta.name.as_str(), value.as_slice()));
        // INVARIANT: short values were filtered out, and the scanner refuses nothing else.
        Self { scanner: LazyScanner::new(values, || None).unwrap_or_default(), unread: None }
    }

    pub(crate) fn unread(&self) -> Option<&SecretStoreError> {
        self.unread.as_ref()
    }

    /// The redacted `text`. If the secrets cannot be read, only the reason for that.
    pub(crate) fn clean(&self, text: &str) -> String {
        match &self.unread {
            Some(error) => about(error, text),
            None => String::from_utf8_lossy(&self.scanner.redact(text.as_bytes()).clean).into_owned(),
        }
    }
}

/// The part of `text` about the store itself: any other word may be an unknown secret.
fn about(error: &SecretStoreError, text: &str) -> String {
    let end = if text.ends_with('\n') { "\n" } else { "" };
    let lead =
        ["ringfence: ", "  hint: "].into_iter().find(|lead| text.starts_with(lead)).unwrap_or_default();
    let own = [Some(crate::error::chain(error)), error.hint()].into_iter().flatten();
    let said = own.filter(|words| text.contains(words.as_str())).max_by_key(String::len);
    format!("{lead}{}{end}", said.as_deref().unwrap_or(NOT_SHOWN))
}

#[cfg(test)]
impl CliRedactor {
    /// A redactor without secrets, because of this error.
    pub(crate) fn without(error: SecretStoreError) -> Self {
        Self { scanner: LazyScanner::default(), unread: Some(error) }
    }

    /// A redactor for a single value.
    pub(crate) fn of(name: &str, value: &[u8]) -> Self {
        Self { scanner: LazyScanner::new([(name, value)], || None).unwrap(), unread: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_compared_is_not_said() {
        let [store, key] = ["/s/store", "/s/key"].map(std::path::PathBuf::from);
        let error = SecretStoreError::NoKey { store, key };
        let (why, hint) = (crate::error::chain(&error), error.hint().unwrap());
        let redactor = CliRedactor::without(error);
        let value = ["correct", "horse", "battery"].join("-");
        for (text, said) in [
            (format!("ringfence: no such option `{value}`\n"), format!("ringfence: {NOT_SHOWN}\n")),
            (value.clone(), NOT_SHOWN.to_owned()),
            (format!("ringfence: `{value}`: {why}\n"), format!("ringfence: {why}\n")),
            (format!("  hint: {hint}\n"), format!("  hint: {hint}\n")),
        ] {
            assert_eq!(redactor.clean(&text), said);
        }
    }
}
