//! Who was turned away unknown, and whether that was written down lately.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The same from the same place within this is one event.
const SAME: Duration = Duration::from_secs(10 * 60);
/// What is remembered. Beyond it nothing new is written down before something is forgotten: the ledger is not for strangers.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<HashMap<(String, String), Instant>>);

impl Strangers {
    /// Whether this is the first time in a while.
    pub(crate) fn is_new(&self, source: &str, rule: Option<&str>) -> bool {
        let now = Instant::now();
        let key = (source.to_owned(), rule.unwrap_or_default().to_owned());
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, then| now.saturating_duration_since(*then) < SAME);
        if seen.contains_key(&key) || seen.len() >= MOST {
            return false;
        }
        let _before = seen.insert(key, now);
        true
    }
}
