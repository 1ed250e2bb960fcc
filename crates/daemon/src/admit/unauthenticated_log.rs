//! Deduplication of records about unauthenticated requests.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests from the same network refused by the same rule within this time are one event.
const SAME: Duration = Duration::from_secs(10 * 60);
/// Remembered entries. The oldest is evicted, so a flood from many networks does not hide the next one.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct UnauthenticatedLog(Mutex<HashMap<(String, String), Instant>>);

impl UnauthenticatedLog {
    /// Whether this network and rule were not recorded recently.
    pub(crate) fn is_new(&self, network: &str, rule: Option<&str>) -> bool {
        self.is_new_at(Instant::now(), network, rule)
    }

    fn is_new_at(&self, now: Instant, network: &str, rule: Option<&str>) -> bool {
        let key = (network.to_owned(), rule.unwrap_or_default().to_owned());
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.get(&key).is_some_and(|then| now.saturating_duration_since(*then) < SAME) {
            return false;
        }
        let _before = seen.insert(key, now);
        if seen.len() > MOST {
            let oldest = seen.iter().min_by_key(|(_, then)| **then).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| seen.remove(&oldest));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_strangers_do_not_hide_the_next() {
        let (strangers, start) = (UnauthenticatedLog::default(), Instant::now());
        let at = |second: u64| start + Duration::from_secs(second);
        assert!(strangers.is_new_at(start, "the first", None));
        assert!(
            !strangers.is_new_at(at(1), "the first", None)
                && strangers.is_new_at(at(1), "the first", Some("another"))
        );
        for number in 0..2 * MOST {
            assert!(strangers.is_new_at(at(2), &number.to_string(), None), "{number}");
        }
        assert!(
            strangers.is_new_at(at(3), "the next", None) && !strangers.is_new_at(at(3), "the next", None)
        );
        assert_eq!(strangers.0.lock().unwrap().len(), MOST);
        assert!(strangers.is_new_at(at(3) + SAME, "the next", None), "once in a while");
    }
}
