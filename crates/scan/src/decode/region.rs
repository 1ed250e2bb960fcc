//! Text around marks that are close to each other: what is decoded as one, with its surroundings as context.

use std::ops::Range;

/// How far from a mark the rest of a secret, or what names it, may be.
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
