//! How much somebody may have written down by asking: the ledger only grows, and nobody's requests are to fill the disk.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ringfence_types::{Principal, SessionId};

/// Refusals of one credential or agent that are written down: so many at once, and so many in a minute.
const REFUSALS: Rate = Rate { most: 1024.0, per_minute: 10.0 };
/// Of one kind, a method and the rule against it, one in ten minutes is written down in any case: nobody hides an attempt behind
/// many others.
const OF_A_KIND: Rate = Rate { most: 1.0, per_minute: 0.1 };
/// Bytes of the reports of one agent.
const REPORTS: Rate = Rate { most: 4.0 * 1024.0 * 1024.0, per_minute: 1024.0 * 1024.0 };
/// What a report takes besides its text.
const AROUND: f64 = 1024.0;
/// Of how many is remembered what they have left. Beyond it whoever was longest away begins anew.
const MOST: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Rate {
    most: f64,
    per_minute: f64,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    amount: f64,
    at: Instant,
}

/// What becomes of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    Written,
    /// The last one for a while, which says so.
    Last,
    LeftOut,
}

#[derive(Debug, Default)]
pub(crate) struct Quotas {
    refusals: Mutex<HashMap<Principal, Left>>,
    kinds: Mutex<HashMap<(Principal, String), Left>>,
    reports: Mutex<HashMap<SessionId, Left>>,
}

impl Quotas {
    pub(crate) fn refusal(&self, who: &Principal, kind: String) -> Noted {
        let now = Instant::now();
        let is_news = take(&self.kinds, (&(who.clone(), kind), OF_A_KIND), (1.0, now)).is_some();
        match take(&self.refusals, (who, REFUSALS), (1.0, now)) {
            None if is_news => Noted::Written,
            None => Noted::LeftOut,
            Some(left) if left < 1.0 => Noted::Last,
            Some(_) => Noted::Written,
        }
    }

    /// Whether an agent may report so many bytes now.
    pub(crate) fn report(&self, session: &SessionId, bytes: u32) -> bool {
        take(&self.reports, (session, REPORTS), (f64::from(bytes) + AROUND, Instant::now())).is_some()
    }
}

/// What is left after so much was taken, if there was as much.
fn take<K: Clone + Eq + std::hash::Hash>(
    all: &Mutex<HashMap<K, Left>>,
    (key, rate): (&K, Rate),
    (amount, now): (f64, Instant),
) -> Option<f64> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    let before = all.get(key).copied().unwrap_or(Left { amount: rate.most, at: now });
    let grown = now.saturating_duration_since(before.at).as_secs_f64() * rate.per_minute / 60.0;
    let has = (before.amount + grown).min(rate.most);
    let left = if has >= amount { has - amount } else { has };
    let _before = all.insert(key.clone(), Left { amount: left, at: now });
    if all.len() > MOST {
        let oldest = all.iter().min_by_key(|(_, left)| left.at).map(|(key, _)| key.clone());
        oldest.and_then(|oldest| all.remove(&oldest));
    }
    (has >= amount).then_some(left)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_are_written_down_and_then_some_each_minute() {
        let (all, start) = (Mutex::default(), Instant::now());
        let taken = |who: &str, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            std::iter::from_fn(|| take(&all, (&who.to_owned(), REFUSALS), (1.0, now))).count()
        };
        assert_eq!(taken("one", 0), 1024);
        assert_eq!((taken("one", 59), taken("one", 60)), (9, 1));
        assert_eq!(taken("another", 60), 1024, "everybody for themselves");
        assert_eq!(taken("one", 1_000_000), 1024, "and not beyond");
    }

    #[test]
    fn the_last_one_says_so() {
        let quotas = Quotas::default();
        let refused = |kind: &str| quotas.refusal(&Principal::System, kind.to_owned());
        let noted: Vec<Noted> = (0..1026).map(|_| refused("one")).collect();
        assert_eq!(noted.iter().filter(|noted| **noted == Noted::Written).count(), 1023);
        assert_eq!(noted[1022..], [Noted::Written, Noted::Last, Noted::LeftOut, Noted::LeftOut]);
        assert_eq!([refused("another"), refused("another")], [Noted::Written, Noted::LeftOut]);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let (all, start) = (Mutex::default(), Instant::now());
        for number in 0..MOST + 10 {
            let now = start + Duration::from_millis(number as u64);
            take(&all, (&number, REFUSALS), (1.0, now));
        }
        let all = all.into_inner().unwrap();
        assert!(all.len() == MOST && !all.contains_key(&9) && all.contains_key(&10));
    }
}
