//! Entries that say the same thing twice, or two things about the same.

use std::collections::HashMap;

use super::super::problem::FileProblems;
use super::super::source_text::TextSpan;
use super::super::toml_reader::shorten;

/// What was said so far, by what it is about.
#[derive(Debug, Default)]
pub(super) struct DuplicateCheck {
    entries: HashMap<String, (&'static str, TextSpan)>,
}

/// One thing that an entry says.
pub(super) struct EntryClaim<'a> {
    /// `deny`, `allow` …
    pub(super) key: &'static str,
    /// Equal for entries about the same.
    pub(super) about: String,
    /// The same, for people.
    pub(super) shown: &'a str,
    pub(super) span: TextSpan,
}

impl DuplicateCheck {
    /// Notes what was said, and whether nothing was before about the same.
    pub(super) fn add(&mut self, said: EntryClaim<'_>, problems: &mut FileProblems<'_>) -> bool {
        let EntryClaim { key, about, shown, span } = said;
        let Some((before, place)) = self.entries.get(&about) else {
            self.entries.insert(about, (key, span));
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
