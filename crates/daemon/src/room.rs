//! How much of what happens is in memory on its way to those who listen: a little for each, and no more than so much for all of
//! them, whoever does not read.
//!
//! Whoever listens has a [`Seat`]. Before anything is fetched for them they need [`Room`], which is given back when the last byte
//! of it has gone. Where there is none left for all, each still gets one event at a time, when they have taken the one before:
//! those who read are not held up by those who do not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Under way to one of them. Weights are bytes of JSON.
const OWN: u32 = 2 * AT_ONCE;
/// Fetched for one of them at once.
const AT_ONCE: u32 = 64 * 1024;
/// Under way to all of them.
const ALL: usize = 16 * 1024 * 1024;
/// How many of them there are at once.
const SEATS: usize = 4096;

/// For everybody who listens.
#[derive(Debug)]
pub(crate) struct Hall {
    seats: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

impl Default for Hall {
    fn default() -> Self {
        Self { seats: Arc::new(Semaphore::new(SEATS)), all: Arc::new(Semaphore::new(ALL)) }
    }
}

impl Hall {
    /// `None`: there are too many already.
    pub(crate) fn seat(&self) -> Option<Seat> {
        let seat = Arc::clone(&self.seats).try_acquire_owned().ok()?;
        let own = Arc::new(Semaphore::new(OWN as usize));
        Some(Seat { own, all: Arc::clone(&self.all), _seat: seat })
    }
}

/// For one of them.
#[derive(Debug)]
pub(crate) struct Seat {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
    _seat: OwnedSemaphorePermit,
}

impl Seat {
    /// `None`: they have not read what they have for so long.
    pub(crate) async fn room(&self, patience: Duration) -> Option<Room> {
        let own = timeout(patience, Arc::clone(&self.own).acquire_many_owned(AT_ONCE)).await.ok()?.ok()?;
        if let Ok(all) = Arc::clone(&self.all).try_acquire_many_owned(AT_ONCE) {
            return Some(Room { most: AT_ONCE as usize, own, all: Some(all), _more: None });
        }
        drop(own);
        // All of it is there when nothing is under way.
        let own = timeout(patience, Arc::clone(&self.own).acquire_many_owned(OWN)).await.ok()?.ok()?;
        Some(Room { most: 1, own, all: None, _more: None })
    }

    /// What was fetched weighs this much, and the rest of the room is for others. One event may be heavier than there was room for:
    /// it waits until there is, behind those that came before. `None`: for too long.
    pub(crate) async fn filled(&self, room: Room, weight: usize, patience: Duration) -> Option<Arc<Room>> {
        let Room { most, mut own, mut all, .. } = room;
        let heavier = u32::try_from(weight.saturating_sub(own.num_permits()).min(ALL)).ok()?;
        let more = match heavier {
            0 => None,
            heavier => {
                let more = Arc::clone(&self.all).acquire_many_owned(heavier);
                Some(timeout(patience, more).await.ok()?.ok()?)
            }
        };
        shrink(&mut own, weight);
        if let Some(all) = &mut all {
            shrink(all, weight);
        }
        Some(Arc::new(Room { most, own, all, _more: more }))
    }
}

/// For what is under way to one of them.
#[derive(Debug)]
pub(crate) struct Room {
    /// So much may be fetched, or one event.
    pub(crate) most: usize,
    own: OwnedSemaphorePermit,
    all: Option<OwnedSemaphorePermit>,
    _more: Option<OwnedSemaphorePermit>,
}

fn shrink(permit: &mut OwnedSemaphorePermit, weight: usize) {
    let rest = permit.num_permits().saturating_sub(weight);
    drop(permit.split(rest));
}

/// Bytes that take up room until the last of them has gone.
pub(crate) fn roomy<R: Send + Sync + 'static>(bytes: Bytes, room: Option<Arc<R>>) -> Bytes {
    match room {
        Some(room) => Bytes::from_owner(Roomy { bytes, _room: room }),
        None => bytes,
    }
}

struct Roomy<R> {
    bytes: Bytes,
    _room: Arc<R>,
}

impl<R> AsRef<[u8]> for Roomy<R> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    async fn filled(seat: &Seat, weight: usize) -> Option<Arc<Room>> {
        let room = seat.room(SHORT).await?;
        seat.filled(room, weight, SHORT).await
    }

    #[tokio::test]
    async fn nobody_has_more_under_way_than_their_own() {
        let hall = Hall::default();
        let seat = hall.seat().unwrap();
        let small = filled(&seat, 100).await.unwrap();
        let large = filled(&seat, AT_ONCE as usize).await.unwrap();
        assert!(seat.room(SHORT).await.is_none());
        let other = hall.seat().unwrap();
        assert!(other.room(SHORT).await.is_some(), "others are not held up");
        let bytes = roomy(Bytes::from_static(b"text"), Some(large));
        let part = bytes.slice(1..2);
        drop(bytes);
        assert!(seat.room(SHORT).await.is_none(), "a part of it is still on its way");
        drop(part);
        assert!(seat.room(SHORT).await.is_some());
        drop(small);
    }

    #[tokio::test]
    async fn when_all_is_taken_whoever_reads_gets_one_at_a_time() {
        let hall = Hall::default();
        let mut held = Vec::new();
        while hall.all.available_permits() >= AT_ONCE as usize {
            let seat = hall.seat().unwrap();
            let room = filled(&seat, AT_ONCE as usize).await.unwrap();
            held.push((seat, room));
        }
        assert_eq!(held.len(), ALL / AT_ONCE as usize);
        let reads = hall.seat().unwrap();
        let room = reads.room(SHORT).await.unwrap();
        assert_eq!(room.most, 1);
        let under_way = reads.filled(room, 1000, SHORT).await.unwrap();
        assert!(reads.room(SHORT).await.is_none(), "not before the one before was read");
        drop(under_way);
        assert!(reads.room(SHORT).await.is_some());
        assert!(filled(&reads, 1024 * 1024).await.is_none(), "what is heavy waits for those who do not read");
        drop(held);
        assert_eq!(reads.room(SHORT).await.unwrap().most, AT_ONCE as usize);
        let heavy = filled(&reads, 1024 * 1024).await.unwrap();
        assert!(hall.all.available_permits() <= ALL - 1024 * 1024 + AT_ONCE as usize);
        drop(heavy);
        assert_eq!(hall.all.available_permits(), ALL);
    }

    #[tokio::test]
    async fn there_are_so_many_seats() {
        let hall = Hall::default();
        let taken: Vec<_> = (0..SEATS).map(|_| hall.seat().unwrap()).collect();
        assert!(hall.seat().is_none());
        drop(taken);
        assert!(hall.seat().is_some());
    }
}
