//! What a call prints, kept for whoever asks: so much and no more.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_api::{Chunk, Data};
use tokio::sync::Notify;

/// Per call.
const MOST: usize = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The last megabyte of both streams, in the order it came.
#[derive(Debug, Default)]
pub(crate) struct Output {
    kept: Mutex<Kept>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    pieces: VecDeque<(u64, Stream, Vec<u8>)>,
    bytes: usize,
    last: u64,
    over: bool,
}

impl Output {
    pub(crate) fn push(&self, stream: Stream, bytes: &[u8]) {
        let mut kept = self.kept();
        kept.last += 1;
        kept.bytes += bytes.len();
        let piece = (kept.last, stream, bytes.to_vec());
        kept.pieces.push_back(piece);
        while kept.bytes > MOST
            && let Some((_, _, oldest)) = kept.pieces.pop_front()
        {
            kept.bytes -= oldest.len();
        }
        drop(kept);
        self.changed.notify_waiters();
    }

    /// Nothing comes any more.
    pub(crate) fn close(&self) {
        self.kept().over = true;
        self.changed.notify_waiters();
    }

    /// What came after piece `after`, and whether that is all there will ever be.
    pub(crate) fn after(&self, after: u64) -> (Vec<Chunk>, bool) {
        let kept = self.kept();
        let mut chunks = Vec::new();
        if let Some((first, _, _)) = kept.pieces.front()
            && *first > after + 1
        {
            chunks.push(Chunk::Lost { seq: first - 1 });
        }
        for (seq, stream, bytes) in kept.pieces.iter().filter(|(seq, _, _)| *seq > after) {
            let (seq, data) = (*seq, Data::from(bytes.clone()));
            chunks.push(match stream {
                Stream::Stdout => Chunk::Stdout { seq, data },
                Stream::Stderr => Chunk::Stderr { seq, data },
            });
        }
        (chunks, kept.over)
    }

    /// Returns when there may be more than there was when this was called.
    pub(crate) async fn changed(&self, after: u64) {
        let waiting = self.changed.notified();
        tokio::pin!(waiting);
        // Registered before looking: what comes in between is not missed.
        let _registered = waiting.as_mut().enable();
        let nothing_new = {
            let kept = self.kept();
            kept.last <= after && !kept.over
        };
        if nothing_new {
            waiting.await;
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn seq(chunk: &Chunk) -> u64 {
    match chunk {
        Chunk::Stdout { seq, .. }
        | Chunk::Stderr { seq, .. }
        | Chunk::Lost { seq }
        | Chunk::Ended { seq, .. } => *seq,
        Chunk::Cut { .. } => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_a_megabyte_is_kept_and_what_is_lost_is_told() {
        let output = Output::default();
        (0..40).for_each(|_| output.push(Stream::Stdout, &[b'x'; 64 * 1024]));
        output.push(Stream::Stderr, b"end");
        let (chunks, over) = output.after(0);
        assert!(matches!(chunks.first(), Some(Chunk::Lost { .. })) && !over);
        assert!(output.kept().bytes <= MOST);
        assert_eq!(output.after(40).0.len(), 1);
        output.close();
        assert!(output.after(41).1);
    }
}
