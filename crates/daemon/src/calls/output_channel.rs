//! Streams the output of a command to a client. The command blocks while the client does not read. After the command
//! ended, the rest, at most what its pipes hold, is kept for the client.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_api::OutputChunk;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Chunks in flight while the command runs.
const UNDER_WAY: usize = 4;
/// Longest time without progress on the rest after the command ended. The rest is small, and people read slowly.
pub(crate) const LEFT: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
struct OutputChannel {
    state: Mutex<ChannelState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ChannelState {
    under_way: usize,
    is_over: bool,
    is_unwanted: bool,
}

impl OutputChannel {
    fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut ChannelState)) {
        change(&mut self.state());
        self.changed.notify_all();
    }
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct OutputSender {
    pieces: UnboundedSender<OutputChunk>,
    flow: Arc<OutputChannel>,
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct OutputReceiver {
    pieces: UnboundedReceiver<OutputChunk>,
    flow: Arc<OutputChannel>,
}

pub(crate) fn outbox() -> (OutputSender, OutputReceiver) {
    let (sender, receiver) = unbounded_channel();
    let flow = Arc::new(OutputChannel::default());
    (OutputSender { pieces: sender, flow: Arc::clone(&flow) }, OutputReceiver { pieces: receiver, flow })
}

impl OutputSender {
    /// Waits for the reader. False if the reader is gone.
    pub(crate) fn send(&self, chunk: OutputChunk) -> bool {
        let waits =
            |state: &mut ChannelState| state.under_way >= UNDER_WAY && !state.is_over && !state.is_unwanted;
        let state = self.flow.changed.wait_while(self.flow.state(), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.under_way += 1;
        !state.is_unwanted && self.pieces.send(chunk).is_ok()
    }

    /// The command has ended: the sender no longer waits.
    pub(crate) fn close(&self) {
        self.flow.change(|state| state.is_over = true);
    }
}

impl OutputReceiver {
    pub(crate) async fn next(&mut self) -> Option<OutputChunk> {
        let chunk = self.pieces.recv().await?;
        self.flow.change(|state| state.under_way = state.under_way.saturating_sub(1));
        Some(chunk)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.flow.state().is_over
    }
}

impl Drop for OutputReceiver {
    fn drop(&mut self) {
        self.flow.change(|state| state.is_unwanted = true);
    }
}

/// What happened to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    Taken,
    /// The reader is gone.
    Gone,
    /// The command has ended and the reader made no progress for `left`.
    Left,
}

/// Sends one chunk. While the command runs the reader may block without limit; after it ended, for at most `left`.
pub(crate) async fn sent<T>(
    pieces: &Sender<T>,
    piece: T,
    is_over: impl Fn() -> bool,
    left: Duration,
) -> SendOutcome {
    let sent = pieces.send(piece);
    tokio::pin!(sent);
    loop {
        // The limit only counts from the end of the command.
        let was_over = is_over();
        match timeout(left, sent.as_mut()).await {
            Ok(Ok(())) => return SendOutcome::Taken,
            Ok(Err(_gone)) => return SendOutcome::Gone,
            Err(_late) if was_over => return SendOutcome::Left,
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

    fn piece(number: u64) -> OutputChunk {
        OutputChunk::Dropped { seq: number }
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
            out.close();
            assert!(sends.join().unwrap(), "nothing is lost");
        });
        assert!(inbox.is_over());
        drop(out);
        for number in 0..50 {
            assert!(matches!(inbox.next().await, Some(OutputChunk::Dropped { seq }) if seq == number));
        }
        assert!(inbox.next().await.is_none());
    }

    #[tokio::test]
    async fn who_reads_has_as_long_as_they_like_and_then_as_long_as_is_left() {
        const SHORT: Duration = Duration::from_millis(50);
        let (sender, mut pieces) = mpsc::channel(1);
        let over = AtomicBool::new(false);
        let pass = |number: u64| sent(&sender, number, || over.load(Ordering::SeqCst), SHORT);
        assert_eq!(pass(0).await, SendOutcome::Taken);
        let mut waits = std::pin::pin!(pass(1));
        assert!(
            timeout(4 * SHORT, waits.as_mut()).await.is_err(),
            "it is not over, and so there is no hurry"
        );
        over.store(true, Ordering::SeqCst);
        assert_eq!(pieces.recv().await, Some(0));
        assert_eq!(waits.await, SendOutcome::Taken);
        assert_eq!(pass(2).await, SendOutcome::Left);
        drop(pieces);
        assert_eq!(pass(3).await, SendOutcome::Gone);
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
