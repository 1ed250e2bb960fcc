//! A question on a screen: the card, and how it can be answered. No I/O here.
//!
//! INVARIANT: every line that holds text of an agent begins with something of ours, and nothing is left out without a
//! count.

use std::time::Duration;

use ringfence_runtime::ledger::{ApprovalRequest, ReasonRule};
use ringfence_types::{Block, Decision, Risk};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::explain::Style;

/// Lines of the command that are shown before `view` is needed.
const LINES: usize = 100;

/// All that a person is told before answering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt<'a> {
    pub(super) request: &'a ApprovalRequest,
    pub(super) left: Duration,
    pub(super) explains: Explains,
}

/// Whether every part can be shown with its rule: only by the process that judged them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Explains {
    Yes,
    No,
}

/// What an answer has to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// One key.
    Key,
    /// A whole word, typed: too much is at stake, or not everything was shown.
    Word,
}

/// The question, and how it can be answered.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) text: String,
    /// What is printed last, before the answer.
    pub(super) choices: String,
    pub(super) manner: Manner,
    /// Bytes of the command that `view` would add.
    pub(super) hidden: usize,
}

impl<'a> Prompt<'a> {
    pub(crate) fn new(request: &'a ApprovalRequest, left: Duration, explains: Explains) -> Self {
        Self { request, left, explains }
    }

    /// The card for a stream on which nobody answers.
    pub(crate) fn card(&self, width: usize, style: Style) -> String {
        let mut sheet = Sheet::new(width, style);
        sheet.prose(&self.request.card.sentence);
        sheet.gap();
        sheet.verbatim(&self.request.card.blocks, usize::MAX);
        self.fields(&mut sheet);
        sheet.text
    }

    pub(super) fn page(&self, width: usize, style: Style) -> Page {
        let mut sheet = Sheet::new(width, style);
        sheet.line(&style.strong("ringfence asks"));
        sheet.prose(&self.request.card.sentence);
        sheet.gap();
        let hidden = sheet.verbatim(&self.request.card.blocks, LINES);
        self.fields(&mut sheet);
        sheet.gap();
        let careful = self.request.risk >= Risk::High || hidden > 0;
        let manner = if careful { Manner::Word } else { Manner::Key };
        match manner {
            Manner::Key => sheet.field("", "Enter, Ctrl-C and the end of input are a no"),
            Manner::Word => self.words(&mut sheet, hidden),
        }
        Page { text: sheet.text, choices: self.choices(manner, hidden, style), manner, hidden }
    }

    /// Everything that would run or be written, whole.
    pub(super) fn whole(&self, width: usize, style: Style) -> String {
        let mut sheet = Sheet::new(width, style);
        sheet.verbatim(&self.request.card.blocks, usize::MAX);
        sheet.text
    }

    /// What `always here` would store, to choose from.
    pub(super) fn grades(&self, width: usize, style: Style) -> String {
        let mut sheet = Sheet::new(width, style);
        let grades = self.request.card.fields.iter().filter(|(label, _)| label == "always here");
        let mut label = "always here";
        for (_, text) in grades {
            sheet.field(label, text);
            label = "";
        }
        sheet.text
    }

    /// Whether an answer has to say why.
    pub(super) fn wants_reason(&self) -> bool {
        self.request.reason_rule == ReasonRule::Required
    }

    fn fields(&self, sheet: &mut Sheet) {
        let mut last = "";
        for (label, text) in &self.request.card.fields {
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

    fn words(&self, sheet: &mut Sheet, hidden: usize) {
        if hidden > 0 {
            sheet.field("view", "shows all of it: not everything is on the screen");
        }
        sheet.field("yes", "the whole word and Enter: allows it this time");
        sheet.field("no", "anything else, Ctrl-C, the end of input");
    }

    fn choices(&self, manner: Manner, hidden: usize, style: Style) -> String {
        let key = |key: &str, rest: &str| format!("{}{rest}", style.strong(&format!("[{key}]")));
        let mut more: Vec<&str> = Vec::new();
        more.extend((self.explains == Explains::Yes).then_some("`explain`"));
        more.extend((hidden > 0).then_some("`view`"));
        let mut keys = match manner {
            Manner::Word => vec![format!("type {}, or anything else for no", style.strong("yes"))],
            Manner::Key => vec![key("o", "nce")],
        };
        if manner == Manner::Key {
            keys.extend(self.offers_session().then(|| key("s", "ession")));
            keys.extend((!self.request.offers.is_empty()).then(|| key("a", "lways here")));
            keys.push(key("d", "eny"));
            keys.extend((self.explains == Explains::Yes).then(|| key("e", "xplain")));
        } else if !more.is_empty() {
            keys.push(format!(
                "({} {} more)",
                more.join(" and "),
                if more.len() == 1 { "shows" } else { "show" }
            ));
        }
        format!("{} > ", keys.join("  "))
    }

    pub(super) fn offers_session(&self) -> bool {
        self.request.risk < Risk::High && self.request.quorum.approve == 1
    }
}

pub(crate) fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 120 => format!("{} minutes {} seconds", seconds / 60, seconds % 60),
        1 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    }
}

/// Text that fits a terminal.
struct Sheet {
    width: usize,
    style: Style,
    text: String,
}

/// Columns of a label, with the space after it.
const LABEL: usize = 13;
/// Below this, labels have lines of their own.
const NARROW: usize = 48;

impl Sheet {
    fn new(width: usize, style: Style) -> Self {
        Self { width: width.clamp(20, 200), style, text: String::new() }
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn prose(&mut self, text: &str) {
        let text = self.style.spelled(text.to_owned());
        for line in wrapped(&text, self.width) {
            self.line(&line);
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

    /// At most `limit` lines, each behind a bar that no text can forge. How many bytes were left out.
    fn verbatim(&mut self, blocks: &[Block], limit: usize) -> usize {
        let (mut left, mut hidden) = (limit, 0);
        for block in blocks {
            if let Some(title) = block.title.as_ref().filter(|_| left > 0) {
                self.prose(title);
            }
            for text in &block.lines {
                let text = self.style.spelled(text.clone());
                let mut bar = self.style.pick("│ ", "| ");
                for piece in chopped(&text, self.width - 2) {
                    if left == 0 {
                        hidden += piece.len();
                        continue;
                    }
                    left -= 1;
                    self.line(&format!("{bar}{piece}"));
                    // The line goes on: no line break here.
                    bar = self.style.pick("┆ ", ": ");
                }
            }
        }
        if hidden > 0 {
            self.line(
                &self.style.strong(&format!("... {hidden} more bytes are not shown; `view` shows them")),
            );
        }
        hidden
    }
}

/// Broken between words where that is possible. Colour has no width here, so only whole texts are coloured.
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

/// Cut at the width, wherever that is, so that every space is where it was. At least one piece.
fn chopped(text: &str, width: usize) -> Vec<&str> {
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
pub(super) mod tests;
