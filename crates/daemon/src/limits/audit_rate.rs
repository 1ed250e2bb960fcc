//! Audit rate limit: how many refusals and agent reports reach the ledger. The ledger only grows, so requests must not
//! be able to fill the disk.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use ringfence_types::{Principal, SessionId};

use crate::limits::rate_clock::{RateClock, at_least_one};

/// Recorded refusals of one principal.
const REFUSALS: Quota = Quota::per_minute(at_least_one(10)).allow_burst(at_least_one(1024));
/// Recorded refusals of one kind (method and rule). The first in ten minutes is always recorded, so a flood of other
/// refusals cannot hide an attempt.
const OF_A_KIND: Quota = Quota::per_hour(at_least_one(6)).allow_burst(NonZeroU32::MIN);
/// Bytes of the reports of one agent.
const REPORTS: Quota = Quota::per_minute(at_least_one(1 << 20)).allow_burst(at_least_one(4 << 20));
/// Fixed cost of a report besides its text, in bytes.
const AROUND: u32 = 1024;
/// Keys of each limiter.
const MOST: usize = 4096;

/// Whether a refusal is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditOutcome {
    Written,
    /// Recorded, with a note that the next refusals are not.
    Last,
    LeftOut,
}

#[derive(Debug)]
pub(crate) struct AuditRateLimiter {
    refusals: KeyedRate<Principal>,
    kinds: KeyedRate<(Principal, String)>,
    reports: KeyedRate<SessionId>,
}

impl AuditRateLimiter {
    pub(crate) fn new(clock: &RateClock) -> Self {
        Self {
            refusals: KeyedRate::new(REFUSALS, clock),
            kinds: KeyedRate::new(OF_A_KIND, clock),
            reports: KeyedRate::new(REPORTS, clock),
        }
    }

    pub(crate) fn refusal(&self, who: &Principal, kind: String) -> AuditOutcome {
        let is_news = self.kinds.take(&(who.clone(), kind), 1).is_some();
        match self.refusals.take(who, 1) {
            None if is_news => AuditOutcome::Written,
            None => AuditOutcome::LeftOut,
            Some(left) if left.remaining_burst_capacity() == 0 => AuditOutcome::Last,
            Some(_) => AuditOutcome::Written,
        }
    }

    /// Charges a report to its session. False if the allowance is used up.
    pub(crate) fn report(&self, session: &SessionId, bytes: u32) -> bool {
        self.reports.take(session, bytes.saturating_add(AROUND)).is_some()
    }
}

type Limiter<K> = RateLimiter<K, HashMapStateStore<K>, RateClock, StateInformationMiddleware>;

/// A rate for each of a bounded number of keys.
#[derive(Debug)]
struct KeyedRate<K: Eq + Hash + Clone> {
    quota: Quota,
    limiter: Mutex<Limiter<K>>,
}

impl<K: Eq + Hash + Clone> KeyedRate<K> {
    fn new(quota: Quota, clock: &RateClock) -> Self {
        Self { quota, limiter: Mutex::new(limiter(quota, clock)) }
    }

    /// Takes `amount` from the allowance of `key`. `None` if the allowance is too small.
    fn take(&self, key: &K, amount: u32) -> Option<StateSnapshot> {
        let mut all = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.retain_recent();
        }
        if all.len() >= MOST {
            // Some records too many are better than unbounded memory.
            *all = limiter(self.quota, all.clock());
        }
        all.check_key_n(key, at_least_one(amount)).ok()?.ok()
    }
}

fn limiter<K: Eq + Hash + Clone>(quota: Quota, clock: &RateClock) -> Limiter<K> {
    RateLimiter::new(quota, HashMapStateStore::default(), clock.clone())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_are_written_down_and_then_some_each_minute() {
        let clock = RateClock::default();
        let all = KeyedRate::new(REFUSALS, &clock);
        let taken = |who: &str| std::iter::from_fn(|| all.take(&who.to_owned(), 1)).count();
        assert_eq!(taken("one"), 1024);
        clock.advance(Duration::from_secs(59));
        assert_eq!(taken("one"), 9);
        clock.advance(Duration::from_secs(1));
        assert_eq!((taken("one"), taken("another")), (1, 1024), "everybody for themselves");
        clock.advance(Duration::from_secs(1_000_000));
        assert_eq!(taken("one"), 1024, "and not beyond");
    }

    #[test]
    fn the_last_one_says_so() {
        let quotas = AuditRateLimiter::new(&RateClock::default());
        let refused = |kind: &str| quotas.refusal(&Principal::System, kind.to_owned());
        let noted: Vec<AuditOutcome> = (0..1026).map(|_| refused("one")).collect();
        assert_eq!(noted.iter().filter(|noted| **noted == AuditOutcome::Written).count(), 1023);
        assert_eq!(
            noted[1022..],
            [AuditOutcome::Written, AuditOutcome::Last, AuditOutcome::LeftOut, AuditOutcome::LeftOut]
        );
        assert_eq!([refused("another"), refused("another")], [AuditOutcome::Written, AuditOutcome::LeftOut]);
    }

    #[test]
    fn a_report_is_charged_by_its_bytes() {
        let (clock, session) = (RateClock::default(), SessionId::random().unwrap());
        let quotas = AuditRateLimiter::new(&clock);
        let reported = || std::iter::from_fn(|| quotas.report(&session, 15 * 1024).then_some(())).count();
        assert_eq!(reported(), 256, "4 MiB at once");
        clock.advance(Duration::from_secs(60));
        assert_eq!(reported(), 64, "then 1 MiB each minute");
        assert!(!quotas.report(&session, u32::MAX), "what is longer than all of it never fits");
    }

    #[test]
    fn the_number_of_keys_is_bounded_and_full_allowances_go_first() {
        let clock = RateClock::default();
        let all = KeyedRate::new(REFUSALS, &clock);
        let len = || all.limiter.lock().unwrap().len();
        assert_eq!(std::iter::from_fn(|| all.take(&0, 1)).count(), 1024);
        let fill = |keys: std::ops::Range<usize>| keys.filter_map(|key| all.take(&key, 1)).count();
        assert_eq!(fill(1..MOST), MOST - 1);
        clock.advance(Duration::from_secs(13));
        let _new = all.take(&MOST, 1);
        assert_eq!(len(), 2, "those with a full allowance are gone");
        assert_eq!(std::iter::from_fn(|| all.take(&0, 1)).count(), 2, "the other is remembered");
        assert!(fill(1..2 * MOST) > MOST && len() <= MOST);
    }
}
