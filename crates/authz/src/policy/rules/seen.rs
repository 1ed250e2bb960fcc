//! Entries that say the same thing twice, or two things about the same.

use std::collections::HashMap;

use super::super::problem::Problems;
use super::super::read::shorten;
use super::super::text::Span;

/// What was said so far, by what it is about.
#[derive(Debug, Default)]
pub(super) struct Seen {
    entries: HashMap<String, (&'static str, Span)>,
}

impl Seen {
    /// Notes that `key` (`deny`, `allow` …) was said about `what`, and whether nothing was before.
    pub(super) fn add(
        &mut self,
        key: &'static str,
        what: String,
        shown: &str,
        span: Span,
        problems: &mut Problems<'_>,
    ) -> bool {
        let Some((before, place)) = self.entries.get(&what) else {
            self.entries.insert(what, (key, span));
            return true;
        };
        let place = problems.source().origin(*place);
        let shown = shorten(shown);
        let (line, column) = (place.line, place.column);
        let message = if *before == key {
            format!("`{shown}` is already in `{key}` at {line}:{column}")
        } else {
            format!("`{shown}` is in `{key}` here and in `{before}` at {line}:{column}")
        };
        problems.add(span, message, "keep one of them");
        false
    }
}
