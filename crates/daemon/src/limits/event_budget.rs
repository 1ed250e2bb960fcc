//! Memory budget for events on their way to subscribers: a small share for each, and a bound for all of them together.
//!
//! A [`Subscriber`] acquires an [`EventPermit`] before the daemon fetches events for it, and releases it when the last
//! byte is sent. When the shared budget is exhausted, each subscriber still gets one event at a time. A subscriber that
//! does not read therefore cannot stall the others.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::budget::{Budget, Permit};

/// Budget of one subscriber, in bytes of JSON.
const OWN: usize = 2 * AT_ONCE;
/// Budget of one fetch.
const AT_ONCE: usize = 64 * 1024;
/// Budget of all subscribers together.
const ALL: usize = 16 * 1024 * 1024;
/// Subscribers at once.
const SEATS: usize = 4096;

/// The budget of all subscribers.
#[derive(Debug)]
pub(crate) struct EventBudget {
    seats: Budget,
    all: Budget,
}

impl Default for EventBudget {
    fn default() -> Self {
        Self { seats: Budget::new(SEATS), all: Budget::new(ALL) }
    }
}

impl EventBudget {
    /// `None`: there are too many subscribers.
    pub(crate) fn seat(&self) -> Option<Subscriber> {
        let seat = self.seats.try_acquire(1)?;
        Some(Subscriber { own: Budget::new(OWN), all: self.all.clone(), _seat: seat })
    }
}

/// One client that receives events, with its own budget.
#[derive(Debug)]
pub(crate) struct Subscriber {
    own: Budget,
    all: Budget,
    _seat: Permit,
}

impl Subscriber {
    /// `None`: the subscriber has not read its events within `patience`.
    pub(crate) async fn room(&self, patience: Duration) -> Option<EventPermit> {
        let mut held = Permit::acquire(vec![self.own.claim(AT_ONCE)], patience).await?;
        if let Some(all) = self.all.try_acquire(AT_ONCE) {
            held.extend(all);
            return Some(EventPermit { most: AT_ONCE, own: AT_ONCE, held });
        }
        drop(held);
        // The whole own budget is free only when no event is on its way to this subscriber.
        let held = Permit::acquire(vec![self.own.claim(OWN)], patience).await?;
        Some(EventPermit { most: 1, own: OWN, held })
    }

    /// Shrinks a permit to the weight of the fetched events. A single event may be heavier than its permit: it waits
    /// for the difference. `None`: it waited longer than `patience`.
    pub(crate) async fn reserve(
        &self,
        room: EventPermit,
        weight: usize,
        patience: Duration,
    ) -> Option<Arc<EventPermit>> {
        let EventPermit { most, own, mut held } = room;
        let heavier = weight.saturating_sub(own);
        let more = match heavier {
            0 => Permit::default(),
            heavier => Permit::acquire(vec![self.all.claim(heavier)], patience).await?,
        };
        held.shrink(weight);
        held.extend(more);
        Some(Arc::new(EventPermit { most, own, held }))
    }
}

/// Budget held by events on their way to one subscriber.
#[derive(Debug)]
pub(crate) struct EventPermit {
    /// Bytes that may be fetched. One event is always allowed.
    pub(crate) most: usize,
    /// Bytes of the subscriber's own budget.
    own: usize,
    held: Permit,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::limits::budget::within_budget;

    const SHORT: Duration = Duration::from_millis(20);

    async fn reserve(seat: &Subscriber, weight: usize) -> Option<Arc<EventPermit>> {
        let room = seat.room(SHORT).await?;
        seat.reserve(room, weight, SHORT).await
    }

    #[tokio::test]
    async fn nobody_has_more_under_way_than_their_own() {
        let hall = EventBudget::default();
        let seat = hall.seat().unwrap();
        let small = reserve(&seat, 100).await.unwrap();
        let large = reserve(&seat, AT_ONCE).await.unwrap();
        assert!(seat.room(SHORT).await.is_none());
        let other = hall.seat().unwrap();
        assert!(other.room(SHORT).await.is_some(), "others are not held up");
        let bytes = within_budget(Bytes::from_static(b"text"), Some(large));
        let part = bytes.slice(1..2);
        drop(bytes);
        assert!(seat.room(SHORT).await.is_none(), "a part of it is still on its way");
        drop(part);
        assert!(seat.room(SHORT).await.is_some());
        drop(small);
    }

    #[tokio::test]
    async fn when_all_is_taken_whoever_reads_gets_one_at_a_time() {
        let hall = EventBudget::default();
        let mut held = Vec::new();
        while hall.all.free() >= AT_ONCE {
            let seat = hall.seat().unwrap();
            let room = reserve(&seat, AT_ONCE).await.unwrap();
            held.push((seat, room));
        }
        assert_eq!(held.len(), ALL / AT_ONCE);
        let reads = hall.seat().unwrap();
        let room = reads.room(SHORT).await.unwrap();
        assert_eq!(room.most, 1);
        let under_way = reads.reserve(room, 1000, SHORT).await.unwrap();
        assert!(reads.room(SHORT).await.is_none(), "not before the one before was read");
        drop(under_way);
        assert!(reads.room(SHORT).await.is_some());
        assert!(
            reserve(&reads, 1024 * 1024).await.is_none(),
            "what is heavy waits for those who do not read"
        );
        drop(held);
        assert_eq!(reads.room(SHORT).await.unwrap().most, AT_ONCE);
        let heavy = reserve(&reads, 1024 * 1024).await.unwrap();
        assert!(hall.all.free() <= ALL - 1024 * 1024 + AT_ONCE);
        drop(heavy);
        assert_eq!(hall.all.free(), ALL);
    }

    #[tokio::test]
    async fn there_are_so_many_seats() {
        let hall = EventBudget::default();
        let taken: Vec<_> = (0..SEATS).map(|_| hall.seat().unwrap()).collect();
        assert!(hall.seat().is_none());
        drop(taken);
        assert!(hall.seat().is_some());
    }
}
