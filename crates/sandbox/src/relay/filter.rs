//! Filters between the output of a command and its reader. The caller decides what a filter looks for.

use std::fmt;
use std::time::{Duration, Instant};

/// Decides about one output stream, byte by byte and in order.
pub trait StreamFilter: fmt::Debug {
    /// Takes what the command wrote and adds what may be delivered to `out`.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> FilterAction;
    /// Called when the command has written nothing for a while: its reader may be waiting for what is held back.
    fn pause(&mut self, quiet: IdleSpan, out: &mut Vec<u8>) -> FilterAction;
    /// Nothing more comes.
    fn finish(&mut self, out: &mut Vec<u8>) -> FilterAction;
}

/// How an output stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterAction {
    On,
    /// Nothing more of it is delivered. The command goes on.
    Shut,
    /// Nothing more of it is delivered, and the command is killed with everything it started.
    Kill,
}

/// How long nothing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleSpan {
    /// A few milliseconds, or it comes in drops.
    Briefly,
    /// So long that a person would notice.
    Long,
}

/// One for each output stream.
#[derive(Debug)]
pub struct StreamFilters<'a> {
    pub stdout: &'a mut dyn StreamFilter,
    pub stderr: &'a mut dyn StreamFilter,
}

/// After the last byte.
const BRIEFLY: Duration = Duration::from_millis(2);
/// After the first byte that was not settled: what comes in drops must not wait for a pause.
const AT_LAST: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_millis(40);

/// A filter with its clock.
#[derive(Debug)]
pub(super) struct FilteredStream<'a> {
    filter: &'a mut dyn StreamFilter,
    held: HoldTimer,
    flow: FilterAction,
}

#[derive(Clone, Copy, Debug)]
enum HoldTimer {
    Nothing,
    Fresh { first: Instant, last: Instant },
    Settled { last: Instant },
}

impl<'a> FilteredStream<'a> {
    pub(super) fn new(filter: &'a mut dyn StreamFilter) -> Self {
        Self { filter, held: HoldTimer::Nothing, flow: FilterAction::On }
    }

    pub(super) fn flow(&self) -> FilterAction {
        self.flow
    }

    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.flow == FilterAction::On {
            self.flow = self.filter.push(bytes, out);
            self.note(Instant::now());
        }
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.flow == FilterAction::On {
            self.flow = self.filter.finish(out);
        }
        self.held = HoldTimer::Nothing;
    }

    /// When to call [`FilteredStream::tick`].
    pub(super) fn due(&self) -> Option<Instant> {
        match self.held {
            _ if self.flow != FilterAction::On => None,
            HoldTimer::Nothing => None,
            HoldTimer::Fresh { first, last } => Some((last + BRIEFLY).min(first + AT_LAST)),
            HoldTimer::Settled { last } => Some(last + LONG),
        }
    }

    pub(super) fn tick(&mut self, now: Instant, out: &mut Vec<u8>) {
        if self.due().is_none_or(|due| now < due) {
            return;
        }
        let (quiet, held) = match self.held {
            HoldTimer::Fresh { last, .. } => (IdleSpan::Briefly, HoldTimer::Settled { last }),
            HoldTimer::Settled { .. } | HoldTimer::Nothing => (IdleSpan::Long, HoldTimer::Nothing),
        };
        self.flow = self.filter.pause(quiet, out);
        self.held = held;
    }

    fn note(&mut self, now: Instant) {
        let first = match self.held {
            HoldTimer::Fresh { first, .. } => first,
            HoldTimer::Nothing | HoldTimer::Settled { .. } => now,
        };
        self.held = HoldTimer::Fresh { first, last: now };
    }
}
