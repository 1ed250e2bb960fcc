//! Holding the streams of a foreground command still while a person is asked something at the same terminal: what is typed
//! is the answer and not input of the command, and nothing that the command prints is taken for the question.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

/// A relay that does not come round in this time is not writing either: it waits for a descriptor.
const PATIENCE: Duration = Duration::from_secs(2);

/// Shared by the approver that asks and the relays of the session.
#[derive(Clone, Debug, Default)]
pub struct RelayPause(Arc<PauseShared>);

#[derive(Debug, Default)]
struct PauseShared {
    state: Mutex<PauseState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PauseState {
    asked: usize,
    /// Commands whose streams are relayed.
    attended: HashMap<u64, RelayHandle>,
    last: u64,
}

/// Each relay has an eventfd of its own: the first relay to read a shared one would reset it, and the others would wait
/// for ever.
#[derive(Debug)]
struct RelayHandle {
    wakeup: Arc<OwnedFd>,
    still: bool,
}

/// While this lives, nothing is relayed.
#[derive(Debug)]
pub struct PauseGuard(RelayPause);

impl RelayPause {
    /// Returns when nothing is relayed any more.
    pub fn take(&self) -> PauseGuard {
        let mut state = self.state();
        state.asked += 1;
        state.ring();
        let moving = |state: &mut PauseState| state.attended.values().any(|relayed| !relayed.still);
        let _still = self.0.changed.wait_timeout_while(state, PATIENCE, moving);
        PauseGuard(self.clone())
    }

    pub(super) fn attend(&self) -> io::Result<AttachedRelay> {
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut state = self.state();
        state.last += 1;
        let id = state.last;
        let _new = state.attended.insert(id, RelayHandle { wakeup: Arc::clone(&wakeup), still: false });
        drop(state);
        Ok(AttachedRelay { hold: self.clone(), id, wakeup })
    }

    fn state(&self) -> MutexGuard<'_, PauseState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PauseState {
    fn ring(&self) {
        for relayed in self.attended.values() {
            // KERNEL: a write to an eventfd fails only when its counter is full, and then it is readable already.
            let _full = rustix::io::write(&*relayed.wakeup, &1_u64.to_ne_bytes());
        }
    }
}

impl Drop for PauseGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.asked -= 1;
        state.ring();
    }
}

/// A command is relayed.
pub(super) struct AttachedRelay {
    hold: RelayPause,
    id: u64,
    wakeup: Arc<OwnedFd>,
}

impl AttachedRelay {
    pub(super) fn wakeup(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// Asked by the relay in each round: whether it is to be still.
    pub(super) fn holds(&self) -> bool {
        let mut state = self.hold.state();
        let mut rung = [0; 8];
        // Not rung is no error, and a wakeup that is broken rings all the time.
        let _empty = rustix::io::read(&*self.wakeup, &mut rung);
        let still = state.asked > 0;
        if let Some(relayed) = state.attended.get_mut(&self.id) {
            relayed.still = still;
        }
        self.hold.0.changed.notify_all();
        still
    }
}

impl Drop for AttachedRelay {
    fn drop(&mut self) {
        let _over = self.hold.state().attended.remove(&self.id);
        self.hold.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::readable;

    #[test]
    fn whoever_asks_waits_for_the_relay_and_only_where_there_is_one() {
        let hold = RelayPause::default();
        drop(hold.take());
        let attended = hold.attend().unwrap();
        let asker = {
            let hold = hold.clone();
            std::thread::spawn(move || hold.take())
        };
        while !attended.holds() {
            std::thread::yield_now();
        }
        let still = asker.join().unwrap();
        assert!(attended.holds());
        drop(still);
        assert!(!attended.holds());
        drop(attended);
        assert!(hold.state().attended.is_empty());
    }

    #[test]
    fn of_two_commands_both_stand_still_and_both_go_on() {
        let hold = RelayPause::default();
        let relays = [hold.attend().unwrap(), hold.attend().unwrap()];
        let asker = {
            let hold = hold.clone();
            std::thread::spawn(move || hold.take())
        };
        while !relays[0].holds() {
            std::thread::yield_now();
        }
        assert_eq!(
            readable(relays[1].wakeup()),
            Ok(true),
            "the first has not reset the descriptor of the second"
        );
        assert!(relays[1].holds());
        let still = asker.join().unwrap();
        let rings = || relays.each_ref().map(|relay| readable(relay.wakeup()).unwrap());
        assert_eq!(rings(), [false, false], "nobody is woken while they are asked");
        drop(still);
        assert_eq!(rings(), [true, true]);
        assert!(!relays[0].holds());
        assert_eq!(rings(), [false, true]);
        assert!(!relays[1].holds());
    }
}
