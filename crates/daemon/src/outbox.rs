//! The output of a command on its way to somebody who takes it piece by piece. While they do not, the command waits. What it
//! left behind when it ended is kept for them, which is no more than pipes hold: it is over, whether they read or not.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_api::Chunk;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Pieces that are under way while the command runs.
const UNDER_WAY: usize = 4;
/// How long somebody may take nothing of what is left. It is little, and people read slowly.
pub(crate) const LEFT: Duration = Duration::from_secs(120);

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

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    Taken,
    /// Nobody is there any more.
    Gone,
    /// It is over, and they have taken nothing for all that time.
    Left,
}

/// Passes on a piece: until it `is_over`, to somebody who may take as long as they like, and then to somebody who has as long as `left`.
pub(crate) async fn passed<T>(
    pieces: &Sender<T>,
    piece: T,
    is_over: impl Fn() -> bool,
    left: Duration,
) -> Passed {
    let sent = pieces.send(piece);
    tokio::pin!(sent);
    loop {
        // From when it was: what they did not take before is no fault of theirs.
        let was_over = is_over();
        match timeout(left, sent.as_mut()).await {
            Ok(Ok(())) => return Passed::Taken,
            Ok(Err(_gone)) => return Passed::Gone,
            Err(_late) if was_over => return Passed::Left,
            Err(_late) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use tokio::sync::mpsc;

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

    #[tokio::test]
    async fn who_reads_has_as_long_as_they_like_and_then_as_long_as_is_left() {
        const SHORT: Duration = Duration::from_millis(50);
        let (sender, mut pieces) = mpsc::channel(1);
        let over = AtomicBool::new(false);
        let pass = |number: u64| passed(&sender, number, || over.load(Ordering::SeqCst), SHORT);
        assert_eq!(pass(0).await, Passed::Taken);
        let mut waits = std::pin::pin!(pass(1));
        assert!(
            timeout(4 * SHORT, waits.as_mut()).await.is_err(),
            "it is not over, and so there is no hurry"
        );
        over.store(true, Ordering::SeqCst);
        assert_eq!(pieces.recv().await, Some(0));
        assert_eq!(waits.await, Passed::Taken);
        assert_eq!(pass(2).await, Passed::Left);
        drop(pieces);
        assert_eq!(pass(3).await, Passed::Gone);
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
