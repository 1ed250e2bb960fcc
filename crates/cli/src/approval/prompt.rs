//! A question as text: what would happen, why it is asked, and what each answer means. No I/O here.
//!
//! INVARIANT: every line that holds text of an agent begins with something of ours, every character of it is escaped, and
//! nothing is left out without a count.

use std::time::Duration;

use ringfence_runtime::authz::{Action, Aspect, Candidate, Judgement, Part, Question};
use ringfence_types::{Bytes, Call, Decision, Exec, FileCall, NetMode, Risk};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::explain::{Style, basis, shown};

/// Lines of the command that are shown before `view` is needed.
const LINES: usize = 100;
/// Entries of a list (files, hosts, reasons); the rest is counted.
const ENTRIES: usize = 10;

/// All that a person is told before answering.
#[derive(Debug)]
pub(super) struct Prompt<'a> {
    pub(super) action: &'a Action,
    pub(super) judgement: &'a Judgement,
    pub(super) candidates: Vec<Candidate>,
    /// What the agent says about it: an allegation, shown as one.
    pub(super) stated: Option<&'a str>,
    pub(super) patience: Duration,
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
    pub(super) fn of(question: &'a Question, patience: Duration) -> Self {
        Self {
            action: question.action(),
            judgement: question.judgement(),
            candidates: question.candidates(),
            stated: None,
            patience,
        }
    }

    /// The candidates that are offered: none where the answer has to be a word.
    pub(super) fn offered(&self) -> &[Candidate] {
        if self.judgement.risk() >= Risk::High { &[] } else { &self.candidates }
    }

    pub(super) fn page(&self, width: usize, style: Style) -> Page {
        let mut sheet = Sheet::new(width, style);
        sheet.line(&style.strong("ringfence asks"));
        sheet.prose(&sentence(self.action.call()));
        sheet.gap();
        let hidden = sheet.verbatim(&self.content(), LINES);
        self.facts(&mut sheet);
        self.reasons(&mut sheet);
        sheet.field("id", &self.id());
        let careful = self.judgement.risk() >= Risk::High || hidden > 0;
        let manner = if careful { Manner::Word } else { Manner::Key };
        sheet.gap();
        match manner {
            Manner::Key => self.keys(&mut sheet),
            Manner::Word => self.words(&mut sheet, hidden),
        }
        Page { text: sheet.text, choices: self.choices(manner, hidden, style), manner, hidden }
    }

    /// Everything that would run or be written, whole.
    pub(super) fn whole(&self, width: usize, style: Style) -> String {
        let mut sheet = Sheet::new(width, style);
        sheet.verbatim(&self.content(), usize::MAX);
        sheet.text
    }

    /// What `always here` would store, to choose from.
    pub(super) fn grades(&self, width: usize, style: Style) -> String {
        let mut sheet = Sheet::new(width, style);
        self.always(&mut sheet);
        sheet.text
    }

    fn id(&self) -> String {
        self.action.fingerprint().as_str().chars().take(12).collect()
    }

    fn content(&self) -> Vec<Block> {
        match self.action.call() {
            Call::Exec(exec) => command(exec),
            Call::File(file) => {
                vec![Block { title: None, lines: vec![Bytes::from(path_of(file)).display()] }]
            }
            Call::Apply(patch) => {
                let lines = patch.files.iter().map(|file| file.path.display()).collect();
                vec![Block { title: None, lines }]
            }
        }
    }

    fn facts(&self, sheet: &mut Sheet) {
        match self.action.call() {
            Call::Exec(exec) => self.exec_facts(sheet, exec),
            Call::File(FileCall::Write { bytes, sha256, .. }) => {
                sheet.field("content", &format!("{bytes} bytes, sha256 {}", shown(sha256)));
            }
            Call::File(_) | Call::Apply(_) => {}
        }
        for (label, aspect) in [("writes", Aspect::Write), ("reads", Aspect::Read), ("hosts", Aspect::Host)] {
            let parts = self.judgement.parts().iter().filter(|part| part.aspect == aspect);
            sheet.list(label, &parts.map(|part| shown(&part.subject)).collect::<Vec<_>>());
        }
        let foreign = foreign(self.action.call());
        if !foreign.is_empty() {
            sheet.field("letters", &format!("not ASCII, and maybe not what they look like: {foreign}"));
        }
        if let Some(stated) = self.stated {
            sheet.field("claim", &format!("the agent says (untrusted): {}", shown(stated)));
        }
    }

    fn exec_facts(&self, sheet: &mut Sheet, exec: &Exec) {
        sheet.field("in", &exec.cwd.display());
        let programs = self.judgement.parts().iter().filter_map(|part| part.program.as_deref());
        sheet.list("program", &programs.map(|path| Bytes::from(path).display()).collect::<Vec<_>>());
        let variables = exec.env.iter().map(|(name, value)| format!("{}={}", name.display(), value.quoted()));
        sheet.list("with", &variables.map(|variable| shown(&variable)).collect::<Vec<_>>());
        let network = match exec.net {
            NetMode::None => "none",
            NetMode::Filtered => "the hosts that the policy names",
            NetMode::Full => "everything that this machine reaches",
        };
        sheet.field("network", network);
    }

    /// Why it is asked, and how bad it would be.
    fn reasons(&self, sheet: &mut Sheet) {
        let asked: Vec<&Part> = self.asked().collect();
        let reason = |part: &&Part| match asked.as_slice() {
            [_] => basis(part),
            _ => format!("{}: {}", shown(&part.subject), basis(part)),
        };
        sheet.list("because", &asked.iter().map(reason).collect::<Vec<_>>());
        let risk = self.judgement.risk();
        let riskiest = self.judgement.parts().iter().find(|part| part.risk == risk);
        let why = riskiest.map(|part| format!(": {}", shown(why(part)))).unwrap_or_default();
        let word = match risk {
            Risk::Low | Risk::Medium => risk.to_string(),
            Risk::High | Risk::Critical => sheet.style.decision(Decision::Deny, risk.word()),
        };
        sheet.field("risk", &format!("{word}{why}"));
    }

    fn asked(&self) -> impl Iterator<Item = &'a Part> + use<'a> {
        self.judgement.parts().iter().filter(|part| part.decision == Decision::Ask)
    }

    fn keys(&self, sheet: &mut Sheet) {
        sheet.field("once", "allows it this time");
        let session = format!("{}, until this session ends; stores {}", self.same(), self.id());
        sheet.field("session", &session);
        if self.offered().is_empty() {
            sheet.field("always", "not offered: no rule should stand for this");
        } else {
            self.always(sheet);
        }
        sheet.field(
            "deny",
            &format!("{}; the same is then not asked again in this session", self.silence("Enter")),
        );
    }

    fn words(&self, sheet: &mut Sheet, hidden: usize) {
        if hidden > 0 {
            sheet.field("view", "shows all of it: not everything is on the screen");
        }
        sheet.field("yes", "the whole word and Enter: allows it this time");
        sheet.field("no", &self.silence("anything else"));
    }

    fn silence(&self, first: &str) -> String {
        format!("{first}, Ctrl-C, end of input, or no answer in {}", span(self.patience))
    }

    /// What counts as the same action: all that the fingerprint is made of.
    fn same(&self) -> &'static str {
        match self.action.call() {
            Call::Exec(_) => "the same arguments, directory, variables, network and roots",
            Call::File(FileCall::Write { .. }) => "the same file with the same content",
            Call::File(_) => "the same operation on the same path",
            Call::Apply(_) => "the same changes to the same files",
        }
    }

    fn always(&self, sheet: &mut Sheet) {
        let offered = self.offered();
        for (index, candidate) in offered.iter().enumerate() {
            let label = if index == 0 { "always here" } else { "" };
            let number = if offered.len() > 1 { format!("{}. ", index + 1) } else { String::new() };
            sheet.field(label, &format!("{number}{}", candidate.permits));
            let stored: Vec<&str> = candidate.stored.lines().collect();
            sheet.field("", &format!("stores {}", Bytes::from(stored.join(" ").as_str()).display()));
        }
    }

    fn choices(&self, manner: Manner, hidden: usize, style: Style) -> String {
        let key = |key: &str, rest: &str| format!("{}{rest}", style.strong(&format!("[{key}]")));
        let mut keys = match manner {
            Manner::Word => vec![format!("type {}, or anything else for no", style.strong("yes"))],
            Manner::Key => vec![key("o", "nce"), key("s", "ession")],
        };
        if manner == Manner::Key && !self.offered().is_empty() {
            keys.push(key("a", "lways here"));
        }
        match manner {
            Manner::Key => keys.extend([key("d", "eny"), key("e", "xplain")]),
            Manner::Word if hidden > 0 => keys.push("(`explain` and `view` show more)".to_owned()),
            Manner::Word => keys.push("(`explain` shows more)".to_owned()),
        }
        format!("{} > ", keys.join("  "))
    }
}

fn sentence(call: &Call) -> String {
    let name = |bytes: &Bytes| shown(&bytes.display());
    match call {
        Call::Exec(exec) => {
            let program = exec.argv.first().map(name).unwrap_or_default();
            let arguments = exec.argv.len().saturating_sub(1);
            let more = match arguments {
                0 => String::new(),
                1 => " with 1 argument".to_owned(),
                _ => format!(" with {arguments} arguments"),
            };
            format!("May `{program}` run{more}?")
        }
        Call::File(FileCall::Read { path }) => format!("May the file `{}` be read?", name(path)),
        Call::File(FileCall::Write { path, .. }) => format!("May the file `{}` be written?", name(path)),
        Call::File(FileCall::List { path }) => format!("May the directory `{}` be listed?", name(path)),
        Call::File(FileCall::Symlink { path, target }) => {
            format!("May `{}` become a link to `{}`?", name(path), name(target))
        }
        Call::Apply(patch) => format!("May {} files be changed as proposed?", patch.files.len()),
    }
}

fn path_of(file: &FileCall) -> Vec<u8> {
    match file {
        FileCall::Symlink { path, target } => [path.as_slice(), b" -> ", target.as_slice()].concat(),
        other => other.path().as_slice().to_vec(),
    }
}

fn why(part: &Part) -> &str {
    if part.reason.is_empty() { &part.rule } else { &part.reason }
}

/// Text of an agent, already escaped, line by line.
struct Block {
    title: Option<String>,
    lines: Vec<String>,
}

/// The command line, and below it each argument that has lines of its own.
fn command(exec: &Exec) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut words = Vec::new();
    for (index, argument) in exec.argv.iter().enumerate() {
        let lines: Vec<&[u8]> = argument.as_slice().split(|byte| *byte == b'\n').collect();
        if lines.len() == 1 {
            words.push(argument.quoted());
            continue;
        }
        words.push(format!("<argument {index}, below>"));
        let title = format!("argument {index}: {} bytes in {} lines", argument.as_slice().len(), lines.len());
        blocks.push(Block { title: Some(title), lines: lines.into_iter().map(script_line).collect() });
    }
    blocks.insert(0, Block { title: None, lines: vec![words.join(" ")] });
    blocks
}

/// A tab is space here: as an escape it would hide the script that it indents.
fn script_line(line: &[u8]) -> String {
    let pieces = line.split(|byte| *byte == b'\t').map(|piece| Bytes::from(piece).display());
    pieces.collect::<Vec<_>>().join("    ")
}

/// Letters that are not ASCII, by number: some look like others, some are read from right to left.
fn foreign(call: &Call) -> String {
    let mut seen: Vec<char> = Vec::new();
    let texts: Vec<&Bytes> = match call {
        Call::Exec(exec) => exec.argv.iter().collect(),
        Call::File(file) => vec![file.path()],
        Call::Apply(patch) => patch.files.iter().map(|file| &file.path).collect(),
    };
    for chunk in texts.iter().flat_map(|text| text.as_slice().utf8_chunks()) {
        for c in chunk.valid().chars().filter(|c| !c.is_ascii()) {
            if !seen.contains(&c) && seen.len() <= ENTRIES {
                seen.push(c);
            }
        }
    }
    let more = if seen.len() > ENTRIES { " and more" } else { "" };
    let named = seen.iter().take(ENTRIES).map(|c| {
        let shown = Bytes::from(c.to_string().as_str()).display();
        format!("`{shown}` U+{:04X}", u32::from(*c))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    format!("{named}{more}")
}

fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 120 && seconds % 60 == 0 => format!("{} minutes", seconds / 60),
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

    /// One field with several lines; without any, none.
    fn list(&mut self, label: &str, entries: &[String]) {
        let mut listed: Vec<&String> = Vec::new();
        let mut more = 0;
        for entry in entries {
            match listed.len() {
                _ if listed.contains(&entry) => {}
                ENTRIES => more += 1,
                _ => listed.push(entry),
            }
        }
        for (index, entry) in listed.iter().enumerate() {
            self.field(if index == 0 { label } else { "" }, entry);
        }
        if more > 0 {
            self.field("", &format!("and {more} more"));
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
mod tests;
