//! Takes secrets out of what this program says about itself: stored values in every form in which they may appear, and
//! whatever has the shape of a credential.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_runtime::secrets::{SecretStore, Secrets, StoreError};
use ringfence_scan::{LazyScanner, SHORTEST_SECRET};

use crate::environment::Environment;
use crate::host;

/// What is known of the secrets of whoever runs this process.
#[derive(Debug)]
pub(crate) struct Redactor {
    scanner: LazyScanner,
    /// Why it does not know them.
    unread: Option<StoreError>,
}

const NOT_SHOWN: &str = "[not shown: the stored secrets cannot be read]";

static REDACTOR: OnceLock<Redactor> = OnceLock::new();
static BUILDING: AtomicBool = AtomicBool::new(false);

impl Redactor {
    /// The one of this process, made when something is said for the first time.
    pub(crate) fn own() -> &'static Self {
        REDACTOR.get_or_init(|| {
            BUILDING.store(true, Ordering::Relaxed);
            let redactor = Self::read(&Environment::read());
            BUILDING.store(false, Ordering::Relaxed);
            redactor
        })
    }

    /// The one of this process, unless it is being made: whoever breaks then must not wait for it.
    pub(crate) fn ready() -> Option<&'static Self> {
        REDACTOR.get().or_else(|| (!BUILDING.load(Ordering::Relaxed)).then(Self::own))
    }

    fn read(environment: &Environment) -> Self {
        let Ok(state_dir) = host::state_dir(environment) else { return Self::knowing(&Secrets::default()) };
        // Where a file is in the way of the state there is no store either.
        let is_in_the_way = match state_dir.metadata() {
            Ok(there) => !there.is_dir(),
            Err(error) => error.kind() == std::io::ErrorKind::NotADirectory,
        };
        if is_in_the_way {
            return Self::knowing(&Secrets::default());
        }
        match SecretStore::new(&state_dir).read() {
            Ok(secrets) => Self::knowing(&secrets),
            Err(error) => Self { scanner: LazyScanner::default(), unread: Some(error) },
        }
    }

    fn knowing(secrets: &Secrets) -> Self {
        let long = secrets.values().filter(|(_, value)| value.as_slice().len() >= SHORTEST_SECRET);
        let values = long.map(|(meta, value)| (meta.name.as_str(), value.as_slice()));
        // INVARIANT: short values were left out, and nothing else is refused.
        Self { scanner: LazyScanner::new(values, || None).unwrap_or_default(), unread: None }
    }

    pub(crate) fn unread(&self) -> Option<&StoreError> {
        self.unread.as_ref()
    }

    /// `text` without what must not be said. While the secrets cannot be read, nothing is said but why.
    pub(crate) fn clean(&self, text: &str) -> String {
        match &self.unread {
            Some(error) => about(error, text),
            None => String::from_utf8_lossy(&self.scanner.redact(text.as_bytes()).clean).into_owned(),
        }
    }
}

/// What of `text` is about the store itself: any other word may be a value that nobody can compare it with.
fn about(error: &StoreError, text: &str) -> String {
    let end = if text.ends_with('\n') { "\n" } else { "" };
    let lead =
        ["ringfence: ", "  hint: "].into_iter().find(|lead| text.starts_with(lead)).unwrap_or_default();
    let own = [Some(crate::error::chain(error)), error.hint()].into_iter().flatten();
    let said = own.filter(|words| text.contains(words.as_str())).max_by_key(String::len);
    format!("{lead}{}{end}", said.as_deref().unwrap_or(NOT_SHOWN))
}

#[cfg(test)]
impl Redactor {
    /// One that could not read them.
    pub(crate) fn without(error: StoreError) -> Self {
        Self { scanner: LazyScanner::default(), unread: Some(error) }
    }

    /// One that knows a single value.
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
        let error = StoreError::NoKey { store, key };
        let (why, hint) = (crate::error::chain(&error), error.hint().unwrap());
        let redactor = Redactor::without(error);
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
