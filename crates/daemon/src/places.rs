//! How many calls are under way at once, of everybody together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence_api::ApiError;

use crate::failure::exhausted;

/// The last of this many parts of all places is for sessions that have none: questions of others may wait for a long time.
const PARTS: usize = 8;

/// Places for calls. Each call waits for a person, a disk, a server or a command, and has a thread while it does.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// Those of one session, of the same places.
#[derive(Debug)]
pub(crate) struct OwnPlaces {
    of_all: Places,
    taken: Arc<AtomicUsize>,
}

/// One of the calls that are under way at once.
#[derive(Debug)]
pub(crate) struct Place([Arc<AtomicUsize>; 2]);

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    pub(crate) fn of_a_session(&self) -> OwnPlaces {
        OwnPlaces { of_all: self.clone(), taken: Arc::default() }
    }

    pub(crate) fn are_free(&self) -> bool {
        self.taken.load(Ordering::SeqCst) == 0
    }
}

impl OwnPlaces {
    /// Nobody waits for a place: whoever gets none is told so.
    pub(crate) fn take(&self) -> Result<Place, ApiError> {
        let place = Place([Arc::clone(&self.of_all.taken), Arc::clone(&self.taken)]);
        let [before, own] = place.0.each_ref().map(|taken| taken.fetch_add(1, Ordering::SeqCst));
        let most = self.of_all.most;
        let free = if own == 0 { most } else { most - most / PARTS };
        if before >= free {
            return Err(exhausted(format!("{before} calls are under way")));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for taken in &self.0 {
            let _before = taken.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_has_none_gets_a_place_when_others_have_taken_all_they_can() {
        let all = Places::new(2 * PARTS);
        let [greedy, another, third] = [(); 3].map(|()| all.of_a_session());
        let mut held: Vec<Place> = std::iter::from_fn(|| greedy.take().ok()).collect();
        assert_eq!(held.len(), 2 * PARTS - 2);
        held.push(another.take().unwrap());
        assert!(another.take().is_err(), "it has one");
        held.push(third.take().unwrap());
        assert!(all.of_a_session().take().is_err(), "there are no more than there are");
        drop(held);
        assert!(all.are_free() && greedy.take().is_ok());
        let one = Places::new(1);
        assert!(one.of_a_session().take().is_ok(), "of few all are for everybody");
    }
}
