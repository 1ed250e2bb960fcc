//! Holding the streams of a foreground command still while a person is asked something at the same terminal: what is typed
//! is the answer and not input of the command, and nothing that the command prints is taken for the question.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

/// A relay that does not come round in this time is not writing either: it waits for a descriptor.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shared by whoever asks and the relay of the session.
#[derive(Clone, Debug)]
pub struct Hold(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    asked: usize,
    /// Commands whose streams are relayed.
    attended: usize,
    still: bool,
}

/// While this lives, nothing is relayed.
#[derive(Debug)]
pub struct Stillness(Hold);

impl Hold {
    pub(crate) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), bell })))
    }

    /// Returns when nothing is relayed any more.
    pub fn take(&self) -> Stillness {
        let mut state = self.state();
        state.asked += 1;
        self.ring();
        let moving = |state: &mut State| state.attended > 0 && !state.still;
        let _still = self.0.changed.wait_timeout_while(state, PATIENCE, moving);
        Stillness(self.clone())
    }

    pub(super) fn attend(&self) -> Attended {
        self.state().attended += 1;
        Attended(self.clone())
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }

    /// Asked by the relay in each round: whether it is to be still.
    pub(super) fn holds(&self) -> bool {
        let mut state = self.state();
        let mut rung = [0; 8];
        // Not rung is no error, and a bell that is broken rings all the time.
        let _empty = rustix::io::read(&self.0.bell, &mut rung);
        state.still = state.asked > 0;
        self.0.changed.notify_all();
        state.still
    }

    fn ring(&self) {
        // One that rings already does not ring louder.
        let _full = rustix::io::write(&self.0.bell, &1_u64.to_ne_bytes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stillness {
    fn drop(&mut self) {
        self.0.state().asked -= 1;
        self.0.ring();
    }
}

/// A command is relayed.
pub(super) struct Attended(Hold);

impl Drop for Attended {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.attended -= 1;
        state.still &= state.attended > 0;
        drop(state);
        self.0.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_waits_for_the_relay_and_only_where_there_is_one() {
        let hold = Hold::new().unwrap();
        drop(hold.take());
        let attended = hold.attend();
        let asker = {
            let hold = hold.clone();
            std::thread::spawn(move || hold.take())
        };
        while !hold.holds() {
            std::thread::yield_now();
        }
        let still = asker.join().unwrap();
        assert!(hold.holds());
        drop(still);
        assert!(!hold.holds());
        drop(attended);
        assert_eq!(hold.state().attended, 0);
    }
}
