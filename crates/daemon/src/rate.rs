//! How often somebody may ask.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A bucket that fills with time. Whoever finds it empty has to wait.
#[derive(Debug)]
pub(crate) struct Bucket {
    capacity: f64,
    per_second: f64,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    pub(crate) fn new(capacity: u32, per_second: u32) -> Self {
        let capacity = f64::from(capacity);
        Self { capacity, per_second: f64::from(per_second), state: Mutex::new((capacity, Instant::now())) }
    }

    pub(crate) fn take(&self) -> bool {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, before) = *state;
        let grown = now.saturating_duration_since(before).as_secs_f64() * self.per_second;
        let left = (left + grown).min(self.capacity);
        let enough = left >= 1.0;
        *state = (if enough { left - 1.0 } else { left }, now);
        enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_empty_bucket_fills_with_time_and_not_beyond() {
        let bucket = Bucket::new(2, 10);
        let start = Instant::now();
        assert!(bucket.take_at(start) && bucket.take_at(start) && !bucket.take_at(start));
        let later = start + Duration::from_millis(150);
        assert!(bucket.take_at(later) && !bucket.take_at(later));
        let much_later = start + Duration::from_secs(60);
        assert!(bucket.take_at(much_later) && bucket.take_at(much_later) && !bucket.take_at(much_later));
    }
}
