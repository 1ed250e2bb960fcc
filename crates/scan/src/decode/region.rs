//! Regions: text around nearby marks, decoded together with its context.

use std::ops::Range;

/// Distance from a mark within which the rest of a secret, or its name, may be.
const REACH: usize = 1024;

/// Joins marks whose surroundings touch.
#[derive(Default)]
pub(super) struct Regions {
    open: Option<Range<usize>>,
    done: Vec<Range<usize>>,
}

impl Regions {
    pub(super) fn mark(&mut self, at: usize) {
        let around = at.saturating_sub(REACH)..at + REACH;
        match &mut self.open {
            Some(open) if around.start <= open.end => open.end = around.end,
            _ => self.done.extend(self.open.replace(around)),
        }
    }

    pub(super) fn finish(mut self, length: usize) -> impl Iterator<Item = Range<usize>> {
        self.done.extend(self.open.take());
        self.done.into_iter().map(move |region| region.start..region.end.min(length))
    }
}
