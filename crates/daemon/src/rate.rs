//! How often somebody may ask, on however many connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ringfence_types::SessionId;

use crate::authenticate::Entrance;
use crate::peer::Peer;
use crate::sources::source_of;

/// Requests of somebody on this machine: so many at once, and so many in a second.
const LOCAL: (u32, u32) = (2000, 2000);
/// Of those from one source over TCP.
const REMOTE: (u32, u32) = (2000, 500);
/// What is remembered. There are fewer connections from as many places.
const MOST: usize = 4096;

/// Those who have one bucket together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    Owner,
    /// Somebody else at the socket of the operators. What is in a fence and has the number of the owner takes nothing from the owner.
    User(u32),
    Session(SessionId),
    Source(IpAddr),
}

impl Asker {
    pub(crate) fn of(entrance: &Entrance, peer: Option<Peer>) -> Self {
        match (entrance, peer) {
            (Entrance::Door(session), _) => Self::Session(session.clone()),
            (Entrance::Network(address), _) => Self::Source(source_of(*address)),
            (Entrance::Management, Some(peer)) if peer.is_owner() => Self::Owner,
            (Entrance::Management, peer) => Self::User(peer.map_or(u32::MAX, |peer| peer.uid)),
        }
    }

    fn bucket(&self) -> Bucket {
        let (burst, rate) = if matches!(self, Self::Source(_)) { REMOTE } else { LOCAL };
        Bucket::new(burst, rate)
    }
}

/// The buckets of everybody who asks.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<HashMap<Asker, Arc<Bucket>>>);

impl Rates {
    /// The one that somebody has already, also if they have gone and come again.
    pub(crate) fn of(&self, asker: Asker) -> Arc<Bucket> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(&asker) {
            make_room(&mut known);
        }
        let bucket = asker.bucket();
        Arc::clone(known.entry(asker).or_insert_with(|| Arc::new(bucket)))
    }
}

/// A full bucket is as good as a new one. Where that is not enough, those whose holders are gone are forgotten; as many as are left have
/// a connection each.
fn make_room(known: &mut HashMap<Asker, Arc<Bucket>>) {
    let now = Instant::now();
    known.retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.is_full_at(now));
    if known.len() >= MOST {
        known.retain(|_, bucket| Arc::strong_count(bucket) > 1);
    }
}

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

    fn is_full_at(&self, now: Instant) -> bool {
        let (left, before) = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        left + now.saturating_duration_since(before).as_secs_f64() * self.per_second >= self.capacity
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
    fn source(number: u32) -> Asker {
        Asker::Source(IpAddr::from(number.to_be_bytes()))
    }

    fn empty(bucket: &Bucket) {
        // Nothing comes into it before then.
        *bucket.state.lock().unwrap() = (0.0, Instant::now() + Duration::from_secs(3600));
    }

    #[test]
    fn whoever_comes_again_has_what_they_left() {
        let rates = Rates::default();
        empty(&rates.of(source(1)));
        assert!(!rates.of(source(1)).take(), "on another connection");
        assert!(rates.of(source(2)).take(), "somebody else");
        empty(&rates.of(Asker::User(0)));
        assert!(rates.of(Asker::Owner).take(), "what only has the same number is somebody else");
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_who_is_there_is_remembered() {
        let rates = Rates::default();
        let there = rates.of(source(0));
        empty(&there);
        for number in 1..u32::try_from(2 * MOST).unwrap() {
            empty(&rates.of(source(number)));
        }
        assert!(rates.0.lock().unwrap().len() <= MOST);
        assert!(!rates.of(source(0)).take());
        // Those who have asked little are forgotten before those who have asked too much.
        let rates = Rates::default();
        empty(&rates.of(source(0)));
        (1..u32::try_from(2 * MOST).unwrap()).for_each(|number| drop(rates.of(source(number))));
        assert!(rates.0.lock().unwrap().len() <= MOST && !rates.of(source(0)).take());
    }
}
