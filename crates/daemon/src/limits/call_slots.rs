//! Call slots: how many calls of all sessions run at once.

use std::sync::{Arc, Mutex, PoisonError};

use ringfence_api::ApiError;

use crate::errors::exhausted;
use crate::limits::budget::{Budget, Permit};

/// One of this many parts of the slots is reserved for sessions without a running call. Calls of other sessions may
/// wait for an approval for a long time.
const PARTS: usize = 8;

/// Slots for calls of all sessions. A call waits for a person, a disk, a server or a command, and holds a thread
/// meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct CallSlots {
    all: Budget,
    reserve: usize,
    /// Held from the count of free slots to the acquisition of one.
    counting: Arc<Mutex<()>>,
}

/// The calls of one session, counted against the shared slots.
#[derive(Debug)]
pub(crate) struct SessionCallSlots {
    of_all: CallSlots,
    own: Budget,
}

impl CallSlots {
    pub(crate) fn new(most: usize) -> Self {
        Self { all: Budget::new(most), reserve: most / PARTS, counting: Arc::default() }
    }

    pub(crate) fn of_a_session(&self) -> SessionCallSlots {
        SessionCallSlots { of_all: self.clone(), own: Budget::new(self.all.total()) }
    }

    /// Whether no call runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.all.used() == 0
    }
}

impl SessionCallSlots {
    /// Never waits: without a free slot the call is refused at once.
    pub(crate) fn acquire(&self) -> Result<Permit, ApiError> {
        let CallSlots { all, reserve, counting } = &self.of_all;
        let _one_at_a_time = counting.lock().unwrap_or_else(PoisonError::into_inner);
        let reserve = if self.own.used() == 0 { 0 } else { *reserve };
        let slot = all.try_acquire(1).filter(|_| all.free() >= reserve);
        let (Some(mut slot), Some(own)) = (slot, self.own.try_acquire(1)) else {
            return Err(exhausted(format!("{} calls are under way", all.used())));
        };
        slot.extend(own);
        Ok(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_has_none_gets_a_place_when_others_have_taken_all_they_can() {
        let all = CallSlots::new(2 * PARTS);
        let [greedy, another, third] = [(); 3].map(|()| all.of_a_session());
        let mut held: Vec<Permit> = std::iter::from_fn(|| greedy.acquire().ok()).collect();
        assert_eq!(held.len(), 2 * PARTS - 2);
        held.push(another.acquire().unwrap());
        assert!(another.acquire().is_err(), "it has one");
        held.push(third.acquire().unwrap());
        assert!(all.of_a_session().acquire().is_err(), "there are no more than there are");
        drop(held);
        assert!(all.is_idle() && greedy.acquire().is_ok());
        let one = CallSlots::new(1);
        assert!(one.of_a_session().acquire().is_ok(), "of few all are for everybody");
    }
}
