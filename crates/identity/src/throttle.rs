//! Throttling of failed authentication, with delays that double. Its memory is bounded.
//!
//! Wrong tokens count by source and delay only further wrong tokens. Passwords count separately:
//! - by source and name: guesses at one account from one source
//! - by source: guesses at many accounts
//! - by name: guesses at one account from many sources
//!
//! The last two also delay honest users, so their delays are short. The last one exempts sources from which the account
//! has logged in before. Tokens do not count by id: a secret of 256 bits cannot be guessed, and a public id must not
//! lock out its holder.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Failures without a delay, because people mistype.
const FREE_SOURCE: u32 = 5;
const FREE_ACCOUNT: u32 = 10;
const FREE_PASSWORDS: u32 = 20;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST_SOURCE: Duration = Duration::from_secs(15 * 60);
/// Short, so that an attacker cannot lock out an operator.
const LONGEST_ACCOUNT: Duration = Duration::from_secs(60);
const FORGOTTEN: Duration = Duration::from_secs(30 * 60);
const MOST: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ThrottleKey {
    /// Tokens from one source.
    Source(String),
    /// Passwords from one source.
    Passwords(String),
    /// Passwords of one name from one source.
    Guesses { source: String, account: String },
    /// Passwords of one name.
    Account(String),
}

impl ThrottleKey {
    fn free(&self) -> u32 {
        match self {
            Self::Source(_) | Self::Guesses { .. } => FREE_SOURCE,
            Self::Passwords(_) => FREE_PASSWORDS,
            Self::Account(_) => FREE_ACCOUNT,
        }
    }

    fn longest(&self) -> Duration {
        match self {
            Self::Source(_) | Self::Guesses { .. } => LONGEST_SOURCE,
            Self::Passwords(_) | Self::Account(_) => LONGEST_ACCOUNT,
        }
    }
}

/// How long the source of a login is remembered.
const FAMILIAR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Sources each account has logged in from. They are exempt from the account-wide throttle, so an attacker elsewhere
/// cannot lock the account.
#[derive(Debug, Default)]
pub(crate) struct KnownSources(HashMap<(String, String), Duration>);

impl KnownSources {
    pub(crate) fn came(&mut self, source: &str, account: &str, now: Duration) {
        let _before = self.0.insert((source.to_owned(), account.to_owned()), now);
        if self.0.len() > MOST {
            let oldest = self.0.iter().min_by_key(|(_, then)| **then).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
    }

    pub(crate) fn knows(&self, source: &str, account: &str, now: Duration) -> bool {
        let then = self.0.get(&(source.to_owned(), account.to_owned()));
        then.is_some_and(|then| now.saturating_sub(*then) < FAMILIAR)
    }
}

#[derive(Clone, Copy, Debug)]
struct FailureCount {
    count: u32,
    last: Duration,
    until: Duration,
    /// Attempts refused during the current delay.
    unseen: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Throttle {
    known: HashMap<ThrottleKey, FailureCount>,
}

/// A current delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThrottleDelay {
    pub(crate) left: Duration,
    /// True for the first attempt in this delay. Later ones belong to the same event and are not recorded.
    pub(crate) first: bool,
}

impl Throttle {
    /// The longest current delay of `keys`, if there is one.
    pub(crate) fn check(&mut self, keys: &[ThrottleKey], now: Duration) -> Option<ThrottleDelay> {
        let mut longest: Option<ThrottleDelay> = None;
        for key in keys {
            let Some(failures) = self.known.get_mut(key).filter(|failures| failures.until > now) else {
                continue;
            };
            let wait =
                ThrottleDelay { left: failures.until.saturating_sub(now), first: failures.unseen == 0 };
            failures.unseen = failures.unseen.saturating_add(1);
            longest = Some(longest.filter(|other| other.left >= wait.left).unwrap_or(wait));
        }
        longest
    }

    pub(crate) fn failed(&mut self, keys: &[ThrottleKey], now: Duration) {
        for key in keys {
            self.make_room(key, now);
            let failures = self.known.entry(key.clone()).or_insert(FailureCount {
                count: 0,
                last: now,
                until: now,
                unseen: 0,
            });
            if now.saturating_sub(failures.last) > FORGOTTEN {
                failures.count = 0;
            }
            failures.count = failures.count.saturating_add(1);
            failures.last = now;
            failures.unseen = 0;
            failures.until = now.saturating_add(delay(key, failures.count));
        }
    }

    /// Resets the counts of an account after a login. The counts of the source stay: it could log in with its own
    /// password and guess another.
    pub(crate) fn succeeded(&mut self, keys: &[ThrottleKey]) {
        for key in keys {
            self.known.remove(key);
        }
    }

    fn make_room(&mut self, key: &ThrottleKey, now: Duration) {
        if self.known.len() < MOST || self.known.contains_key(key) {
            return;
        }
        self.known.retain(|_, failures| now.saturating_sub(failures.last) <= FORGOTTEN);
        if self.known.len() < MOST {
            return;
        }
        // Evicts the entry with the fewest and oldest failures.
        let least = self.known.iter().min_by_key(|(_, failures)| (failures.count, failures.last));
        if let Some(key) = least.map(|(key, _)| key.clone()) {
            self.known.remove(&key);
        }
    }
}

fn delay(key: &ThrottleKey, count: u32) -> Duration {
    match count.checked_sub(key.free()) {
        None | Some(0) => Duration::ZERO,
        Some(more) => FIRST.saturating_mul(2_u32.saturating_pow((more - 1).min(20))).min(key.longest()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str) -> ThrottleKey {
        ThrottleKey::Source(name.to_owned())
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn waits_double_up_to_a_bound_and_are_forgotten() {
        let mut throttle = Throttle::default();
        let key = [source("a")];
        let mut waits = Vec::new();
        for _ in 0..18 {
            throttle.failed(&key, at(0));
            waits.push(throttle.check(&key, at(0)).map_or(0, |wait| wait.left.as_secs()));
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]);
        assert_eq!(throttle.check(&[source("b")], at(0)), None, "another source has nothing to do with it");
        assert_eq!(throttle.check(&key, at(900)), None);
        throttle.failed(&key, at(30 * 60));
        assert!(throttle.check(&key, at(30 * 60)).is_some(), "not yet forgotten");
        throttle.failed(&key, at(10_000));
        assert_eq!(throttle.check(&key, at(10_000)), None, "forgotten");
    }

    #[test]
    fn an_account_is_not_kept_out_for_long() {
        let mut throttle = Throttle::default();
        let key = ThrottleKey::Account("ann".to_owned());
        for _ in 0..1000 {
            throttle.failed(std::slice::from_ref(&key), at(0));
        }
        assert_eq!(throttle.check(std::slice::from_ref(&key), at(0)).unwrap().left, at(60));
        throttle.succeeded(std::slice::from_ref(&key));
        assert_eq!(throttle.check(std::slice::from_ref(&key), at(0)), None);
    }

    #[test]
    fn a_place_is_familiar_for_one_name_and_for_a_while() {
        let mut familiar = KnownSources::default();
        familiar.came("here", "ann", at(0));
        let knows = |source, account, seconds| familiar.knows(source, account, at(seconds));
        assert!(knows("here", "ann", 0) && knows("here", "ann", 29 * 24 * 3600));
        assert!(
            !knows("here", "bob", 0) && !knows("there", "ann", 0) && !knows("here", "ann", 30 * 24 * 3600)
        );
        for number in 0..MOST {
            familiar.came(&number.to_string(), "ann", at(1));
        }
        assert!(familiar.0.len() == MOST && !familiar.knows("here", "ann", at(1)));
    }

    #[test]
    fn attempts_while_waiting_are_one_event() {
        let mut throttle = Throttle::default();
        let key = [source("a")];
        for _ in 0..6 {
            throttle.failed(&key, at(0));
        }
        let firsts: Vec<bool> = (0..3).map(|_| throttle.check(&key, at(0)).unwrap().first).collect();
        assert_eq!(firsts, [true, false, false]);
    }

    #[test]
    fn memory_is_bounded_and_who_waits_longest_is_kept() {
        let mut throttle = Throttle::default();
        let guesser = [source("guesser")];
        for _ in 0..10 {
            throttle.failed(&guesser, at(0));
        }
        for other in 0..3 * MOST {
            throttle.failed(&[source(&format!("other{other}"))], at(1));
        }
        assert_eq!(throttle.known.len(), MOST);
        assert!(throttle.check(&guesser, at(1)).is_some());
    }
}
