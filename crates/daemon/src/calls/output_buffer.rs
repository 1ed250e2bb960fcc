//! Bounded buffer of a call's output for later reads.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_api::{OutputChunk, TextOrBase64};
use tokio::sync::Notify;

/// Bytes per call.
const MOST: usize = 1024 * 1024;
/// Runs of one stream that are kept.
const MOST_RUNS: usize = 16 * 1024;
/// Limits of one read: bytes, and chunks, because each chunk has an overhead.
const STEP: usize = 16 * 1024;
const STEP_CHUNKS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamTag {
    Stdout,
    Stderr,
}

/// The last megabyte of both streams, in order of arrival. Positions count bytes from one, so a reader that continues
/// after a position misses nothing, however the output is split.
#[derive(Debug, Default)]
pub(crate) struct OutputBuffer {
    kept: Mutex<BufferState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct BufferState {
    bytes: VecDeque<u8>,
    /// Lengths of the runs of each stream, in order.
    runs: VecDeque<StreamRun>,
    /// Position of the last byte.
    last: u64,
    over: bool,
}

#[derive(Clone, Copy, Debug)]
struct StreamRun {
    stream: StreamTag,
    length: usize,
}

impl BufferState {
    /// Position of the last dropped byte.
    fn lost(&self) -> u64 {
        self.last - self.bytes.len() as u64
    }

    fn add(&mut self, stream: StreamTag, bytes: &[u8]) {
        self.last += bytes.len() as u64;
        let bytes = bytes.get(bytes.len().saturating_sub(MOST)..).unwrap_or_default();
        self.forget((self.bytes.len() + bytes.len()).saturating_sub(MOST));
        match self.runs.back_mut() {
            Some(run) if run.stream == stream => run.length += bytes.len(),
            _ => self.runs.push_back(StreamRun { stream, length: bytes.len() }),
        }
        self.bytes.extend(bytes);
        if self.runs.len() > MOST_RUNS {
            self.forget(self.runs.front().map_or(0, |run| run.length));
        }
    }

    fn forget(&mut self, mut count: usize) {
        drop(self.bytes.drain(..count.min(self.bytes.len())));
        while count > 0
            && let Some(run) = self.runs.front_mut()
        {
            let some = run.length.min(count);
            (run.length, count) = (run.length - some, count - some);
            if run.length == 0 {
                let _empty = self.runs.pop_front();
            }
        }
    }

    /// Copies `length` bytes after the first `skipped`.
    fn copied(&self, skipped: usize, length: usize) -> Vec<u8> {
        self.bytes.iter().skip(skipped).take(length).copied().collect()
    }
}

impl OutputBuffer {
    pub(crate) fn push(&self, stream: StreamTag, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.kept().add(stream, bytes);
        self.changed.notify_waiters();
    }

    /// Marks the output as complete.
    pub(crate) fn close(&self) {
        self.kept().over = true;
        self.changed.notify_waiters();
    }

    /// Bytes in the buffer.
    pub(crate) fn size(&self) -> usize {
        self.kept().bytes.len()
    }

    /// Drops the content to free memory for newer calls.
    pub(crate) fn forget(&self) {
        let mut kept = self.kept();
        (kept.bytes, kept.runs) = (VecDeque::new(), VecDeque::new());
    }

    /// The next part after position `after`, and whether the output is complete with it.
    pub(crate) fn after(&self, after: u64) -> (Vec<OutputChunk>, bool) {
        let kept = self.kept();
        let (mut at, mut chunks) = (after, Vec::new());
        if after < kept.lost() {
            at = kept.lost();
            chunks.push(OutputChunk::Dropped { seq: at });
        }
        let mut begin = kept.lost();
        let mut room = STEP;
        for run in &kept.runs {
            if room == 0 || chunks.len() >= STEP_CHUNKS {
                break;
            }
            let end = begin + run.length as u64;
            if end > at {
                let skipped = usize::try_from(at - kept.lost()).unwrap_or(usize::MAX);
                let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(room);
                let mut data = kept.copied(skipped, wanted);
                if at + (wanted as u64) < end {
                    data.truncate(whole_characters(&data));
                }
                (at, room) = (at + data.len() as u64, room - wanted);
                chunks.push(chunk(run.stream, at, data));
            }
            begin = end;
        }
        (chunks, kept.over && at >= kept.last)
    }

    /// The last `most` bytes, and whether there were more.
    pub(crate) fn tail(&self, most: usize) -> (Vec<u8>, bool) {
        let kept = self.kept();
        let tail = kept.copied(kept.bytes.len().saturating_sub(most), most);
        let is_part = (tail.len() as u64) < kept.last;
        (tail, is_part)
    }

    /// Returns when there is output after position `after`, or the output is complete.
    pub(crate) async fn changed(&self, after: u64) {
        let waiting = self.changed.notified();
        tokio::pin!(waiting);
        // Registered before the check, so that a change in between is not missed.
        let _registered = waiting.as_mut().enable();
        let nothing_new = {
            let kept = self.kept();
            kept.last <= after && !kept.over
        };
        if nothing_new {
            waiting.await;
        }
    }

    fn kept(&self) -> MutexGuard<'_, BufferState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn chunk(stream: StreamTag, seq: u64, data: Vec<u8>) -> OutputChunk {
    let data = TextOrBase64::from(data);
    match stream {
        StreamTag::Stdout => OutputChunk::Stdout { seq, data },
        StreamTag::Stderr => OutputChunk::Stderr { seq, data },
    }
}

/// Avoids a cut inside a UTF-8 character, which would turn text into base64.
fn whole_characters(bytes: &[u8]) -> usize {
    let begins = |byte: &u8| byte & 0b1100_0000 != 0b1000_0000;
    let last = bytes.iter().rev().take(4).position(begins).map(|back| bytes.len() - 1 - back);
    match last {
        Some(last) if std::str::from_utf8(bytes.get(last..).unwrap_or_default()).is_err() && last > 0 => last,
        _ => bytes.len(),
    }
}

pub(crate) fn seq(chunk: &OutputChunk) -> u64 {
    match chunk {
        OutputChunk::Stdout { seq, .. }
        | OutputChunk::Stderr { seq, .. }
        | OutputChunk::Dropped { seq }
        | OutputChunk::Ended { seq, .. } => *seq,
        OutputChunk::Closed { .. } => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads everything after a position step by step: both streams, and whether bytes were lost.
    fn read(output: &OutputBuffer, mut after: u64) -> (Vec<u8>, Vec<u8>, bool) {
        let (mut stdout, mut stderr, mut lost) = (Vec::new(), Vec::new(), false);
        loop {
            let (chunks, _) = output.after(after);
            let before = stdout.len() + stderr.len();
            for chunk in &chunks {
                after = seq(chunk);
                match chunk.clone() {
                    OutputChunk::Stdout { data, .. } => stdout.extend(data.bytes().unwrap()),
                    OutputChunk::Stderr { data, .. } => stderr.extend(data.bytes().unwrap()),
                    OutputChunk::Dropped { .. } => lost = true,
                    other => panic!("{other:?}"),
                }
            }
            let step = stdout.len() + stderr.len() - before;
            assert!(step <= STEP && chunks.len() <= STEP_CHUNKS, "{step} bytes in {} chunks", chunks.len());
            if chunks.is_empty() {
                return (stdout, stderr, lost);
            }
        }
    }

    #[test]
    fn no_more_than_a_megabyte_is_kept_and_what_is_lost_is_told() {
        let output = OutputBuffer::default();
        (0..40).for_each(|_| output.push(StreamTag::Stdout, &[b'x'; 64 * 1024]));
        output.push(StreamTag::Stderr, b"end");
        let (chunks, over) = output.after(0);
        assert!(matches!(chunks.first(), Some(OutputChunk::Dropped { .. })) && !over);
        let (stdout, stderr, lost) = read(&output, 0);
        assert_eq!((stdout.len() + stderr.len(), lost), (MOST, true));
        let last = 40 * 64 * 1024;
        assert_eq!(read(&output, last), (Vec::new(), b"end".to_vec(), false));
        output.close();
        assert!(output.after(last).1 && output.after(last + 3).1);
        assert!(!output.after(0).1, "there is more");
        assert!(output.after(u64::MAX).0.is_empty() && output.after(u64::MAX).1);
    }

    #[test]
    fn a_million_pieces_take_up_what_they_are() {
        for alternates in [false, true] {
            let output = OutputBuffer::default();
            for number in 0..1_500_000 {
                let is_aside = alternates && number % 2 == 0;
                output.push(if is_aside { StreamTag::Stderr } else { StreamTag::Stdout }, b"x");
            }
            let kept = output.kept();
            let size = kept.bytes.capacity() + kept.runs.capacity() * size_of::<StreamRun>();
            assert!(size < 4 * 1024 * 1024, "{size}");
            assert_eq!(kept.bytes.len(), kept.runs.iter().map(|run| run.length).sum::<usize>());
            assert!(kept.bytes.len() >= MOST_RUNS);
        }
    }

    #[test]
    fn a_step_has_few_chunks_and_nothing_is_left_out() {
        const EACH: usize = 8_000;
        let output = OutputBuffer::default();
        for _ in 0..EACH {
            output.push(StreamTag::Stdout, b"o");
            output.push(StreamTag::Stderr, b"e");
        }
        output.close();
        let (chunks, over) = output.after(0);
        assert!((1..=STEP_CHUNKS).contains(&chunks.len()) && !over, "{}", chunks.len());
        assert_eq!(read(&output, 0), (vec![b'o'; EACH], vec![b'e'; EACH], false));
        (0..MOST_RUNS).for_each(|_| output.push(StreamTag::Stdout, b"o"));
        (0..MOST_RUNS / 2).for_each(|_| {
            output.push(StreamTag::Stderr, b"e");
            output.push(StreamTag::Stdout, b"o");
        });
        let (chunks, _) = output.after(0);
        assert!(matches!(chunks.first(), Some(OutputChunk::Dropped { .. })) && chunks.len() <= STEP_CHUNKS);
        let (stdout, stderr, lost) = read(&output, 0);
        assert_eq!((stdout.len() + stderr.len(), lost), (output.size(), true));
    }

    #[test]
    fn whoever_goes_on_after_any_byte_misses_nothing() {
        let output = OutputBuffer::default();
        let text = "äöü€ ".repeat(30_000);
        output.push(StreamTag::Stdout, text.as_bytes());
        output.push(StreamTag::Stderr, b"aside");
        output.push(StreamTag::Stdout, b"on");
        let (chunks, _) = output.after(0);
        let sizes: Vec<usize> = chunks
            .iter()
            .map(|chunk| match chunk {
                OutputChunk::Stdout { data: TextOrBase64::Text(text), .. } => text.len(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(sizes.iter().sum::<usize>() <= STEP && sizes.len() == 1);
        assert_eq!(read(&output, 0), ([text.as_bytes(), b"on"].concat(), b"aside".to_vec(), false));
        let at = text.len() as u64;
        assert_eq!(read(&output, at + 2), (b"on".to_vec(), b"ide".to_vec(), false));
        assert_eq!(output.tail(4), (b"deon".to_vec(), true));
        output.forget();
        assert_eq!((output.size(), read(&output, 0).2), (0, true));
    }
}
