//! The approval prompt laid out for a screen, with its choices. No I/O here.
//!
//! INVARIANT: every line with text of an agent begins with a prefix of Ringfence, and nothing is omitted.

use std::time::Duration;

use ringfence_ledger::{ApprovalRequest, ReasonRequirement};
use ringfence_types::{Decision, QuotedText, Risk};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::explain::TextStyle;

/// Longer commands require a typed word as the answer.
const LINES: usize = 100;

/// Everything a person is shown before answering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApprovalScreen<'a> {
    pub(super) request: &'a ApprovalRequest,
    pub(super) left: Duration,
    pub(super) explains: ExplainSupport,
}

/// Whether the parts can be shown with their rules: only by the process that evaluated them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExplainSupport {
    Yes,
    No,
}

/// How an answer must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfirmationMode {
    /// One key.
    Key,
    /// A typed word: the risk is high, or the text is long.
    Word,
}

/// The prompt and its choices.
#[derive(Debug)]
pub(super) struct ScreenPage {
    pub(super) text: String,
    /// Printed last, before the answer.
    pub(super) choices: String,
    pub(super) manner: ConfirmationMode,
}

impl<'a> ApprovalScreen<'a> {
    pub(crate) fn new(request: &'a ApprovalRequest, left: Duration, explains: ExplainSupport) -> Self {
        Self { request, left, explains }
    }

    /// The prompt for a stream without an answer.
    pub(crate) fn render(&self, width: usize, style: TextStyle) -> String {
        let mut sheet = WrappedText::new(width, style);
        sheet.prose(&self.request.prompt.sentence);
        sheet.gap();
        sheet.verbatim(&self.request.prompt.blocks);
        self.fields(&mut sheet);
        sheet.text
    }

    pub(super) fn page(&self, width: usize, style: TextStyle) -> ScreenPage {
        let mut sheet = WrappedText::new(width, style);
        sheet.line(&style.strong("ringfence asks"));
        sheet.prose(&self.request.prompt.sentence);
        sheet.gap();
        let lines = sheet.verbatim(&self.request.prompt.blocks);
        self.fields(&mut sheet);
        sheet.gap();
        let careful = self.request.risk >= Risk::High || lines > LINES;
        let manner = if careful { ConfirmationMode::Word } else { ConfirmationMode::Key };
        match manner {
            ConfirmationMode::Key => sheet.field("", "Enter, Ctrl-C and end of input deny"),
            ConfirmationMode::Word => words(&mut sheet),
        }
        ScreenPage { text: sheet.text, choices: self.choices(manner, style), manner }
    }

    /// The rules that `always here` could store, to choose from.
    pub(super) fn grades(&self, width: usize, style: TextStyle) -> String {
        let mut sheet = WrappedText::new(width, style);
        let grades = self.request.prompt.fields.iter().filter(|(label, _)| label == "always here");
        let mut label = "always here";
        for (_, text) in grades {
            sheet.field(label, text);
            label = "";
        }
        sheet.text
    }

    /// Whether an answer needs a reason.
    pub(super) fn wants_reason(&self) -> bool {
        self.request.reason_requirement == ReasonRequirement::Required
    }

    fn fields(&self, sheet: &mut WrappedText) {
        let mut last = "";
        for (label, text) in &self.request.prompt.fields {
            let shown = if label == last { "" } else { label.as_str() };
            let text = match (label.as_str(), self.request.risk) {
                // Colour has no width, so only whole texts are coloured.
                ("risk", Risk::High | Risk::Critical) => sheet.style.decision(Decision::Deny, text),
                _ => text.clone(),
            };
            sheet.field(shown, &text);
            last = label;
        }
        sheet.field("time left", &span(self.left));
    }

    fn choices(&self, manner: ConfirmationMode, style: TextStyle) -> String {
        let key = |key: &str, rest: &str| format!("{}{rest}", style.strong(&format!("[{key}]")));
        let mut keys = match manner {
            ConfirmationMode::Word => {
                vec![format!("type {} to approve, anything else denies", style.strong("yes"))]
            }
            ConfirmationMode::Key => vec![key("o", "nce")],
        };
        if manner == ConfirmationMode::Key {
            keys.extend(self.offers_session().then(|| key("s", "ession")));
            keys.extend((!self.request.grant_offers.is_empty()).then(|| key("a", "lways here")));
            keys.push(key("d", "eny"));
            keys.extend((self.explains == ExplainSupport::Yes).then(|| key("e", "xplain")));
        } else if self.explains == ExplainSupport::Yes {
            keys.push("(`explain` shows more)".to_owned());
        }
        format!("{} > ", keys.join("  "))
    }

    pub(super) fn offers_session(&self) -> bool {
        self.request.risk < Risk::High && self.request.quorum.approve == 1
    }
}

fn words(sheet: &mut WrappedText) {
    sheet.field("yes", "the whole word and Enter: allows this call once");
    sheet.field("no", "anything else, Ctrl-C, the end of input");
}

pub(crate) fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 120 => format!("{} minutes {} seconds", seconds / 60, seconds % 60),
        1 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    }
}

/// Text wrapped for a terminal.
struct WrappedText {
    width: usize,
    style: TextStyle,
    text: String,
}

/// Columns of a label, with the space after it.
const LABEL: usize = 13;
/// Ringfence's longest single word.
const NARROWEST: usize = 14;
/// Below this width labels get their own lines.
const NARROW: usize = 48;

impl WrappedText {
    fn new(width: usize, style: TextStyle) -> Self {
        Self { width: width.clamp(NARROWEST, 200), style, text: String::new() }
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A sentence may contain text of an agent: its continuation lines get a bar.
    fn prose(&mut self, text: &str) {
        let text = self.style.spelled(text.to_owned());
        let mut bar = "";
        for line in wrapped(&text, self.width - 2) {
            self.line(&format!("{bar}{line}"));
            bar = self.style.pick("┆ ", ": ");
        }
    }

    fn field(&mut self, label: &str, text: &str) {
        let text = self.style.spelled(text.to_owned());
        let narrow = self.width < NARROW;
        let indent = if narrow { 2 } else { LABEL };
        if narrow && !label.is_empty() {
            self.line(label);
        }
        for (index, line) in wrapped(&text, self.width - indent).iter().enumerate() {
            let label = if index == 0 && !narrow { label } else { "" };
            self.line(&format!("{label:<indent$}{line}"));
        }
    }

    /// Puts each line behind a bar that no text can forge. Returns the number of lines.
    fn verbatim(&mut self, blocks: &[QuotedText]) -> usize {
        let mut lines = 0;
        for block in blocks {
            block.title.iter().for_each(|title| self.prose(title));
            for text in &block.lines {
                let text = self.style.spelled(text.clone());
                let mut bar = self.style.pick("│ ", "| ");
                for piece in chopped(&text, self.width - 2) {
                    lines += 1;
                    self.line(&format!("{bar}{piece}"));
                    // Marks a continuation, not a line break of the text.
                    bar = self.style.pick("┆ ", ": ");
                }
            }
        }
        lines
    }
}

/// Wraps between words if possible. Colour has no width here, so only whole texts are coloured.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        if used > 0 && used + word.trim_end().width() > width {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let columns = c.width().unwrap_or(0);
            if used + columns > width && c != ' ' {
                lines.push(String::new());
                used = 0;
            }
            used += columns;
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
        }
    }
    lines
}

/// Cuts at the width, at any character, so that every space is kept. At least one piece.
pub(super) fn chopped(text: &str, width: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (at, c) in text.char_indices() {
        let columns = c.width().unwrap_or(0);
        if used + columns > width {
            pieces.push(text.get(start..at).unwrap_or_default());
            (start, used) = (at, 0);
        }
        used += columns;
    }
    pieces.push(text.get(start..).unwrap_or_default());
    pieces
}

#[cfg(test)]
pub(in crate::approval) mod tests;
