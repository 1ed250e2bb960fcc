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

    /// `text` without what must not be said.
    pub(crate) fn clean(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.scanner.redact(text.as_bytes()).clean).into_owned()
    }
}

#[cfg(test)]
impl Redactor {
    /// One that knows a single value.
    pub(crate) fn of(name: &str, value: &[u8]) -> Self {
        Self { scanner: LazyScanner::new([(name, value)], || None).unwrap(), unread: None }
    }
}
