//! Exponential backoff of exports.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// Longest wait that a collector may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(60);
/// A batch is dropped after this much waiting.
const PATIENCE: Duration = Duration::from_secs(150);

/// The attempts to send one batch.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    attempts: u32,
    waited: Duration,
}

impl Backoff {
    /// The wait before the next attempt. `None`: give up. `asked` is the collector's `Retry-After`, `random` is jitter
    /// against synchronized retries.
    pub(super) fn next(&mut self, asked: Option<Duration>, random: u8) -> Option<Duration> {
        let own = FIRST.saturating_mul(1 << self.attempts.min(16)).min(LONGEST);
        // Jitter of up to a fifth.
        let own = own + own.mul_f64(f64::from(random) / 255.0 / 5.0);
        let wait = asked.map_or(own, |asked| asked.clamp(own, LONGEST_ASKED));
        self.attempts += 1;
        self.waited += wait;
        (self.waited <= PATIENCE).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_end() {
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        while let Some(wait) = backoff.next(None, 0) {
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
    }

    #[test]
    fn a_collector_is_obeyed_within_reason() {
        let asked = |seconds| Backoff::default().next(Some(Duration::from_secs(seconds)), 0);
        assert_eq!(asked(0), Some(FIRST), "not at once, whatever it says");
        assert_eq!(asked(7), Some(Duration::from_secs(7)));
        assert_eq!(asked(u64::MAX), Some(LONGEST_ASKED));
    }

    #[test]
    fn chance_adds_up_to_a_fifth() {
        assert_eq!(Backoff::default().next(None, 255), Some(Duration::from_millis(600)));
    }
}
