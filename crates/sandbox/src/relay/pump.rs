//! One direction of bytes: read when there is room, write when there is a taker, never wait.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use ringfence_types::StreamSummary;
use rustix::event::PollFlags;
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};
use sha2::{Digest as _, Sha256};

use super::filter::{FilterAction, FilteredStream, StreamFilter};
use super::{OutputTarget, StdinSource};

/// A pipe that is ready takes at least this much without blocking (`PIPE_BUF`).
const ATOMIC: usize = 4096;
const CHUNK: usize = 64 * 1024;
/// `/dev/null`: major 1, minor 3.
const NULL_DEVICE: u64 = 0x103;

#[derive(Default)]
struct PendingBytes {
    bytes: Vec<u8>,
    from: usize,
}

impl PendingBytes {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.from >= self.bytes.len()
    }

    fn advance(&mut self, by: usize) {
        self.from += by;
        if self.is_empty() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.from = 0;
    }
}

/// From the caller into the command.
pub(super) struct StdinPump<'a> {
    source: Option<BorrowedFd<'a>>,
    sink: Option<OwnedFd>,
    pending: PendingBytes,
    /// End of input on a terminal is a character, not a close.
    terminal: bool,
}

impl<'a> StdinPump<'a> {
    pub(super) fn new(source: StdinSource<'a>, sink: Option<OwnedFd>) -> Self {
        let mut inward = Self { source: None, sink, pending: PendingBytes::default(), terminal: false };
        match source {
            StdinSource::Empty => {}
            StdinSource::Bytes(bytes) => inward.pending.bytes = bytes.to_vec(),
            StdinSource::Fd(fd) => inward.source = Some(fd),
            StdinSource::Begun { first, rest } => {
                inward.pending.bytes = first.to_vec();
                inward.source = Some(rest);
            }
            StdinSource::Terminal(fd) => (inward.source, inward.terminal) = (Some(fd), true),
        }
        inward.close_when_done();
        inward
    }

    /// The terminal's master end: input goes there, if the command reads from a terminal.
    pub(super) fn adopt(&mut self, master: OwnedFd) {
        if self.terminal {
            self.sink = Some(master);
        }
    }

    pub(super) fn terminal(&self) -> Option<BorrowedFd<'_>> {
        self.sink.as_ref().filter(|_| self.terminal).map(AsFd::as_fd)
    }

    pub(super) fn close(&mut self) {
        self.source = None;
        self.pending.clear();
        if !self.terminal {
            self.sink = None;
        }
    }

    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let sink = self.sink.as_ref()?;
        if !self.pending.is_empty() {
            return Some((sink.as_fd(), PollFlags::OUT));
        }
        self.source.map(|source| (source, PollFlags::IN))
    }

    pub(super) fn turn(&mut self) {
        if self.sink.is_none() {
            return;
        }
        if self.pending.is_empty() {
            self.fill();
        }
        self.drain();
        self.close_when_done();
    }

    fn fill(&mut self) {
        let Some(source) = self.source else { return };
        if !super::readable(source).unwrap_or(true) {
            return;
        }
        let mut buffer = [0_u8; CHUNK];
        match rustix::io::read(source, &mut buffer) {
            Ok(0) => self.source = None,
            Ok(length) => self.pending.bytes.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.source = None,
        }
    }

    fn drain(&mut self) {
        let Some(sink) = &self.sink else { return };
        while !self.pending.is_empty() {
            match rustix::io::write(sink, self.pending.rest()) {
                Ok(length) => self.pending.advance(length),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // The command does not read any more.
                Err(_) => return self.close(),
            }
        }
    }

    fn close_when_done(&mut self) {
        if self.source.is_none() && self.pending.is_empty() && !self.terminal {
            self.sink = None;
        }
    }
}

/// From the command to the caller.
pub(super) struct OutputPump<'a> {
    name: &'static str,
    source: Option<OwnedFd>,
    target: OutputTarget<'a>,
    filter: Option<FilteredStream<'a>>,
    /// What was read last.
    buffer: Vec<u8>,
    /// What the filter gives, empty between turns.
    clean: Vec<u8>,
    pending: PendingBytes,
    cap: u64,
    summary: StreamSummary,
    digest: Sha256,
    /// No process is left that could write more.
    no_more: bool,
    /// Why bytes could not be delivered, other than that the reader is gone.
    lost: Option<Errno>,
    writing: WriteMode,
}

/// How the caller's descriptor is written to without waiting for its reader. Other processes may share the open file, so
/// it is not made non-blocking.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// Everything at once: no reader can block the write.
    Whole,
    /// Everything at once, with `RWF_NOWAIT`. Not for files: on some file systems such a write never succeeds.
    Told,
    /// A small part at a time, when the descriptor is ready.
    Parts,
}

impl WriteMode {
    fn to(target: &OutputTarget<'_>) -> Self {
        let OutputTarget::Fd(fd) = target else { return Self::Parts };
        let Ok(stat) = rustix::fs::fstat(fd) else { return Self::Parts };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::Whole,
            FileType::CharacterDevice if stat.st_rdev == NULL_DEVICE => Self::Whole,
            FileType::Fifo | FileType::Socket => Self::Told,
            _ => Self::Parts,
        }
    }

    fn write(&mut self, fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
        if *self == Self::Told {
            // Where the descriptor stands.
            let here = u64::MAX;
            match rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], here, ReadWriteFlags::NOWAIT) {
                // Before Linux 6.4, and where system calls are filtered.
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::PERM) => *self = Self::Parts,
                answer => return answer,
            }
        }
        let part = if *self == Self::Whole { None } else { bytes.get(..ATOMIC) };
        rustix::io::write(fd, part.unwrap_or(bytes))
    }
}

impl<'a> OutputPump<'a> {
    pub(super) fn new(
        name: &'static str,
        source: Option<OwnedFd>,
        target: OutputTarget<'a>,
        cap: u64,
    ) -> Self {
        let writing = WriteMode::to(&target);
        Self {
            name,
            source,
            target,
            filter: None,
            buffer: Vec::new(),
            clean: Vec::new(),
            pending: PendingBytes::default(),
            cap,
            summary: StreamSummary::default(),
            digest: Sha256::new(),
            no_more: false,
            lost: None,
            writing,
        }
    }

    pub(super) fn filter_by(&mut self, filter: &'a mut dyn StreamFilter) {
        self.filter = Some(FilteredStream::new(filter));
    }

    pub(super) fn must_kill(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.flow() == FilterAction::Kill)
    }

    /// When the filter has to be asked again, though nothing came.
    pub(super) fn due(&self) -> Option<Instant> {
        self.filter.as_ref().filter(|_| self.pending.is_empty())?.due()
    }

    /// Takes the terminal's master end, if this stream is a terminal.
    pub(super) fn adopt(&mut self, master: OwnedFd) -> bool {
        let terminal = matches!(self.target, OutputTarget::Terminal(_));
        if terminal {
            self.source = Some(master);
        }
        terminal
    }

    pub(super) fn lost(&self) -> Option<Errno> {
        self.lost
    }

    pub(super) fn expect_no_more(&mut self) {
        self.no_more = true;
    }

    pub(super) fn is_done(&self) -> bool {
        self.source.is_none() && self.pending.is_empty()
    }

    pub(super) fn summary(mut self) -> StreamSummary {
        self.summary.sha256 = ringfence_types::hex(self.digest.finalize());
        self.summary
    }

    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match (&self.target, self.pending.is_empty()) {
            (OutputTarget::Fd(fd) | OutputTarget::Terminal(fd), false) => Some((*fd, PollFlags::OUT)),
            _ => self.source.as_ref().map(|source| (source.as_fd(), PollFlags::IN)),
        }
    }

    pub(super) fn turn(&mut self) {
        if self.pending.is_empty() {
            self.fill();
        }
        if self.pending.is_empty() && self.due().is_some() {
            self.pass(|filter, clean| filter.tick(Instant::now(), clean));
        }
        self.deliver();
    }

    fn fill(&mut self) {
        let Some(source) = &self.source else { return };
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.is_empty() {
            // Zeros from the kernel: what is not read into costs nothing.
            buffer = vec![0; super::ROOM];
        }
        let read = rustix::io::read(source, &mut buffer);
        match read {
            Ok(0) => self.end(),
            Ok(length) => self.take(buffer.get(..length).unwrap_or_default()),
            Err(Errno::AGAIN) if self.no_more => self.end(),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A terminal whose last user is gone answers EIO.
            Err(_) => self.end(),
        }
        self.buffer = buffer;
    }

    fn end(&mut self) {
        self.source = None;
        self.pass(FilteredStream::finish);
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.filter.is_none() {
            return self.accept(bytes);
        }
        self.pass(|filter, clean| filter.push(bytes, clean));
    }

    /// Accepts what the filter gives.
    fn pass(&mut self, step: impl FnOnce(&mut FilteredStream<'a>, &mut Vec<u8>)) {
        let Some(filter) = &mut self.filter else { return };
        let mut clean = std::mem::take(&mut self.clean);
        step(filter, &mut clean);
        self.accept_whole(&mut clean);
        clean.clear();
        self.clean = clean;
    }

    /// As [`OutputPump::accept`], without a copy where all of it fits.
    fn accept_whole(&mut self, bytes: &mut Vec<u8>) {
        let after = self.summary.bytes + bytes.len() as u64;
        if after > self.cap || !self.pending.is_empty() {
            return self.accept(bytes);
        }
        self.digest.update(&bytes);
        self.summary.bytes = after;
        std::mem::swap(&mut self.pending.bytes, bytes);
    }

    fn accept(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.cap.saturating_sub(self.summary.bytes)).unwrap_or(usize::MAX);
        let (kept, dropped) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.digest.update(kept);
        self.summary.bytes += kept.len() as u64;
        self.pending.bytes.extend_from_slice(kept);
        if !dropped.is_empty() && self.summary.dropped == 0 {
            let mark = format!("\n[ringfence: {} truncated after {} bytes]\n", self.name, self.summary.bytes);
            self.pending.bytes.extend_from_slice(mark.as_bytes());
        }
        self.summary.dropped += dropped.len() as u64;
    }

    fn deliver(&mut self) {
        match &mut self.target {
            OutputTarget::Discard => self.pending.clear(),
            OutputTarget::Buffer(buffer) => {
                buffer.extend_from_slice(self.pending.rest());
                self.pending.clear();
            }
            OutputTarget::Fd(fd) | OutputTarget::Terminal(fd) => {
                let fd = *fd;
                self.write_while_ready(fd);
            }
        }
    }

    fn write_while_ready(&mut self, fd: BorrowedFd<'_>) {
        while !self.pending.is_empty() && writable(fd) {
            match self.writing.write(fd, self.pending.rest()) {
                Ok(length) => self.pending.advance(length),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // The command is told the same way, by its own pipe.
                Err(errno) => {
                    self.lost = (errno != Errno::PIPE).then_some(errno);
                    self.pending.clear();
                    self.source = None;
                }
            }
        }
    }
}

fn writable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

    use super::*;

    fn outward(target: OutputTarget<'_>) -> OutputPump<'_> {
        let mut outward = OutputPump::new("stdout", None, target, u64::MAX);
        outward.accept(&vec![b'x'; 1 << 20]);
        outward
    }

    #[test]
    fn a_pipe_that_nobody_reads_takes_what_fits_and_holds_up_nobody() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let room = fcntl_setpipe_size(&write, 64 << 10).unwrap();
        let mut outward = outward(OutputTarget::Fd(write.as_fd()));
        outward.deliver();
        assert_eq!(outward.pending.rest().len(), (1 << 20) - room);
        // One page is free, and nothing more.
        assert_eq!(rustix::io::read(&read, &mut [0; ATOMIC]), Ok(ATOMIC));
        outward.deliver();
        assert_eq!(outward.pending.rest().len(), (1 << 20) - room - ATOMIC);
    }

    #[test]
    fn what_cannot_be_told_not_to_wait_gets_small_parts() {
        let (_read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let room = fcntl_setpipe_size(&write, 64 << 10).unwrap();
        let mut outward = outward(OutputTarget::Fd(write.as_fd()));
        outward.writing = WriteMode::Parts;
        outward.deliver();
        assert_eq!(outward.pending.rest().len(), (1 << 20) - room);
    }

    #[test]
    fn a_file_takes_all_at_once() {
        let file = tempfile::tempfile().unwrap();
        let mut outward = outward(OutputTarget::Fd(file.as_fd()));
        outward.deliver();
        assert!(outward.writing == WriteMode::Whole && outward.pending.is_empty());
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    }
}
