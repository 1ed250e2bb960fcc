//! The output of a command on its way to somebody who takes it piece by piece. While they do not, the command waits. What it
//! left behind when it ended is kept for them, which is no more than pipes hold: it is over, whether they read or not.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ringfence_api::Chunk;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Pieces that are under way while the command runs.
const UNDER_WAY: usize = 4;

#[derive(Debug, Default)]
struct Flow {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    under_way: usize,
    is_over: bool,
    is_unwanted: bool,
}

impl Flow {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }
}

/// For whoever has output.
#[derive(Debug)]
pub(crate) struct Outbox {
    pieces: UnboundedSender<Chunk>,
    flow: Arc<Flow>,
}

/// For whoever wants it.
#[derive(Debug)]
pub(crate) struct Inbox {
    pieces: UnboundedReceiver<Chunk>,
    flow: Arc<Flow>,
}

pub(crate) fn outbox() -> (Outbox, Inbox) {
    let (sender, receiver) = unbounded_channel();
    let flow = Arc::new(Flow::default());
    (Outbox { pieces: sender, flow: Arc::clone(&flow) }, Inbox { pieces: receiver, flow })
}

impl Outbox {
    /// Waits for whoever takes it. Whether anybody does.
    pub(crate) fn send(&self, chunk: Chunk) -> bool {
        let waits = |state: &mut State| state.under_way >= UNDER_WAY && !state.is_over && !state.is_unwanted;
        let state = self.flow.changed.wait_while(self.flow.state(), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.under_way += 1;
        !state.is_unwanted && self.pieces.send(chunk).is_ok()
    }

    /// Nothing runs any more: whoever has output waits for nobody.
    pub(crate) fn over(&self) {
        self.flow.change(|state| state.is_over = true);
    }
}

impl Inbox {
    pub(crate) async fn next(&mut self) -> Option<Chunk> {
        let chunk = self.pieces.recv().await?;
        self.flow.change(|state| state.under_way = state.under_way.saturating_sub(1));
        Some(chunk)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.flow.state().is_over
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.flow.change(|state| state.is_unwanted = true);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn piece(number: u64) -> Chunk {
        Chunk::Lost { seq: number }
    }

    #[tokio::test]
    async fn the_command_waits_for_whoever_reads_and_what_is_over_for_nobody() {
        let (out, mut inbox) = outbox();
        thread::scope(|scope| {
            let sends = scope.spawn(|| (0..50).all(|number| out.send(piece(number))));
            while out.flow.state().under_way < UNDER_WAY {
                thread::yield_now();
            }
            assert!(!sends.is_finished());
            out.over();
            assert!(sends.join().unwrap(), "nothing is lost");
        });
        assert!(inbox.is_over());
        drop(out);
        for number in 0..50 {
            assert!(matches!(inbox.next().await, Some(Chunk::Lost { seq }) if seq == number));
        }
        assert!(inbox.next().await.is_none());
    }

    #[test]
    fn whoever_goes_away_holds_nobody_up() {
        let (out, inbox) = outbox();
        thread::scope(|scope| {
            let sends = scope.spawn(|| (0..50).all(|number| out.send(piece(number))));
            drop(inbox);
            assert!(!sends.join().unwrap());
        });
    }
}
