//! Decides which parts of a call the approval prompt shows.
//!
//! INVARIANT: every hidden part is named with its length and digest, and makes the risk critical. A person
//! must not approve unseen content as routine.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ringfence_types::{
    ByteString, Call, ExecCall, FileCall, LandedEntry, LandedState, QuotedText, Risk, SecretReach, SecretUse,
    StandardInput, ToolCall, hex,
};
use sha2::{Digest as _, Sha256};

use super::PromptRedactor;
use crate::pipeline::TakenOut;

/// Limit of bytes of a call in one prompt.
const MOST: usize = 48 << 10;
/// Limit of bytes of standard input or file content.
const MOST_CONTENT: usize = 16 << 10;
/// Number of redacted secrets that are named.
const NAMED: usize = 20;
/// Number of hidden parts that are named.
const HIDDEN: usize = 60;
/// Letters that are named; of more it is said how many there are.
const LETTERS: usize = 20;

/// A call in the form the prompt may show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptCall<'a> {
    /// The redacted call.
    pub(crate) call: &'a Call,
    /// The content that the call would write.
    pub(crate) written: Option<WrittenContent<'a>>,
    pub(crate) taken_out: &'a [TakenOut],
    /// Number of candidate paths that the answer is not bound to.
    pub(crate) unbound: usize,
    /// Files that the command changes before it executes them.
    pub(crate) rewritten: &'a BTreeSet<PathBuf>,
    /// Files that the command executes and that do not exist.
    pub(crate) absent: &'a BTreeSet<PathBuf>,
    /// What the session of the call was given.
    pub(crate) secrets: &'a [SecretUse],
    /// What the agent says about it.
    pub(crate) stated: Option<&'a str>,
}

/// The content that a call would write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WrittenContent<'a> {
    /// The content of a file.
    Content(Excerpt<'a>),
    /// The changes of a proposal or a landing.
    Changes(Excerpt<'a>),
    /// The content cannot be read, for this reason.
    Unknown(&'a str),
}

/// The beginning of a content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Excerpt<'a> {
    /// Redacted, so it may be shorter than the original beginning.
    pub(crate) head: &'a [u8],
    /// Length of the whole original.
    pub(crate) bytes: u64,
    pub(crate) sha256: &'a str,
}

/// The shown text of a call, and the risk that the rules do not account for.
#[derive(Debug)]
pub(crate) struct PromptContent {
    pub(crate) blocks: Vec<QuotedText>,
    /// Descriptions of the hidden parts, one per line.
    pub(crate) hidden: Vec<String>,
    /// The least risk because of the hidden parts, and the reason.
    pub(crate) lift: Option<(Risk, &'static str)>,
    /// Non-ASCII letters by code point; empty if there are none.
    pub(crate) letters: String,
    /// Files whose content the answer is not bound to when they are executed, each with the reason.
    pub(crate) unbound_content: Vec<(String, &'static str)>,
}

impl PromptContent {
    pub(crate) fn of(seen: &PromptCall<'_>, redactor: &PromptRedactor<'_>) -> Self {
        let mut sight =
            PromptContentBuilder { redactor, blocks: Vec::new(), hidden: Vec::new(), unnamed: 0, room: MOST };
        sight.taken_out(seen.taken_out);
        match seen.call {
            Call::Exec(exec) => sight.exec(exec),
            Call::File(file) => sight.file(file, seen.written),
            Call::Apply(patch) => {
                sight.block(None, patch.files.iter().map(|file| file.path.display()).collect());
                sight.written(seen.written);
            }
            Call::Land(landing) => {
                sight.block(None, landing.entries.iter().map(landed).collect());
                sight.written(seen.written);
            }
            Call::Tool(tool) => {
                sight.block(None, vec![ringfence_ledger::of_call(seen.call)]);
                sight.tool(tool);
            }
            Call::Flow(_) | Call::Fetch(_) => sight.block(None, vec![ringfence_ledger::of_call(seen.call)]),
        }
        if seen.unbound > 0 {
            sight.hide(format!(
                "{} places where a file could be that it names: the answer is not bound to what is there",
                seen.unbound
            ));
        }
        sight.count_unnamed();
        let lift = lift(seen, &sight.hidden);
        let shown = |path: &PathBuf| ByteString::from(path.as_path()).display();
        let because = |paths: &BTreeSet<PathBuf>, why| {
            paths.iter().map(|path| (shown(path), why)).collect::<Vec<(String, &'static str)>>()
        };
        let unbound_content = [
            because(seen.rewritten, "the command changes it first"),
            because(seen.absent, "it does not exist yet"),
        ]
        .concat();
        Self { blocks: sight.blocks, hidden: sight.hidden, lift, letters: foreign(seen), unbound_content }
    }

    pub(crate) fn risk(&self, judged: Risk) -> Risk {
        self.lift.map_or(judged, |(risk, _)| risk.max(judged))
    }
}

/// `create /w/run.sh (file 755)`.
fn landed(entry: &LandedEntry) -> String {
    let path = entry.path.display();
    let named = |state: &LandedState| format!("{} {:o}", state.kind, state.mode);
    match (&entry.before, &entry.after) {
        (None, Some(after)) => format!("create {path} ({})", named(after)),
        (Some(before), None) => format!("delete {path} ({})", named(before)),
        (Some(before), Some(after)) if named(before) == named(after) => format!("modify {path}"),
        (Some(before), Some(after)) => format!("modify {path} ({} becomes {})", named(before), named(after)),
        (None, None) => path,
    }
}

/// How bad it is by what no rule looks at, and why.
fn lift(seen: &PromptCall<'_>, hidden: &[String]) -> Option<(Risk, &'static str)> {
    let inside = seen.secrets.iter().any(|secret| secret.reach == SecretReach::Inside);
    match seen.call {
        _ if !hidden.is_empty() => Some((Risk::Critical, "a part of it is not shown")),
        Call::Exec(_) if inside => Some((Risk::High, "it can read a secret")),
        Call::Exec(ExecCall { stdin: StandardInput::Stream, .. }) => {
            Some((Risk::High, "its standard input is not known yet"))
        }
        Call::Exec(_) if !seen.rewritten.is_empty() => {
            Some((Risk::High, "it executes a file that it changes first"))
        }
        Call::Exec(_) if !seen.absent.is_empty() => {
            Some((Risk::High, "it executes a file that does not exist yet"))
        }
        _ => None,
    }
}

struct PromptContentBuilder<'a> {
    redactor: &'a PromptRedactor<'a>,
    blocks: Vec<QuotedText>,
    hidden: Vec<String>,
    /// Number of hidden parts without a description.
    unnamed: usize,
    room: usize,
}

impl PromptContentBuilder<'_> {
    fn hide(&mut self, what: String) {
        match self.hidden.len() {
            HIDDEN.. => self.unnamed += 1,
            _ => self.hidden.push(what),
        }
    }

    fn count_unnamed(&mut self) {
        if self.unnamed > 0 {
            self.hidden.push(format!("and {} more places like these", self.unnamed));
        }
    }

    fn taken_out(&mut self, taken: &[TakenOut]) {
        for one in taken.iter().take(NAMED) {
            let print = if one.fingerprint.is_empty() { "" } else { ", known as " };
            self.hide(format!(
                "{}: {} bytes that are taken for a secret ({}{print}{})",
                ByteString::from(one.place.as_str()).display(),
                one.bytes,
                ByteString::from(one.rule.as_str()).display(),
                one.fingerprint
            ));
        }
        let more = taken.len().saturating_sub(NAMED);
        if more > 0 {
            self.hide(format!("and {more} more that are taken for secrets"));
        }
    }

    /// Shows the command line, then each multi-line argument, the variables and the standard input.
    fn exec(&mut self, exec: &ExecCall) {
        let mut words = Vec::new();
        let mut long = Vec::new();
        for (index, argument) in exec.argv.iter().enumerate() {
            let lines: Vec<&[u8]> = argument.as_slice().split(|byte| *byte == b'\n').collect();
            if lines.len() == 1 {
                words.push(argument.quoted());
                continue;
            }
            words.push(format!("<argument {index}, below>"));
            let bytes = argument.as_slice().len();
            let digest = hex(Sha256::digest(argument.as_slice()));
            let title = format!("argument {index}: {bytes} bytes in {} lines, sha256 {digest}", lines.len());
            long.push((title, lines.into_iter().map(script_line).collect()));
        }
        self.block(None, vec![words.join(" ")]);
        self.variables(&exec.env);
        for (title, lines) in long {
            self.block(Some(title), lines);
        }
        if let StandardInput::Bytes { bytes, sha256, head } = &exec.stdin {
            let title = format!("standard input: {bytes} bytes, sha256 {sha256}");
            self.content(title, Excerpt { head: head.as_slice(), bytes: *bytes, sha256 });
        }
    }

    /// Shows all variables, first those that change what programs do.
    fn variables(&mut self, variables: &[(ByteString, ByteString)]) {
        if variables.is_empty() {
            return;
        }
        let steers = |name: &ByteString| ringfence_authz::env::is_steering(name);
        let (steering, others): (Vec<_>, Vec<_>) = variables.iter().partition(|(name, _)| steers(name));
        let line =
            |(name, value): &&(ByteString, ByteString)| format!("{}={}", name.display(), value.quoted());
        if !steering.is_empty() {
            let title = format!("variables that programs take orders from: {}", steering.len());
            self.block(Some(title), steering.iter().map(line).collect());
        }
        if !others.is_empty() {
            let title = format!("variables: {}", others.len());
            self.block(Some(title), others.iter().map(line).collect());
        }
    }

    fn file(&mut self, file: &FileCall, written: Option<WrittenContent<'_>>) {
        self.block(None, vec![ByteString::from(path_of(file)).display()]);
        self.written(written);
    }

    fn written(&mut self, written: Option<WrittenContent<'_>>) {
        match written {
            None => {}
            Some(WrittenContent::Content(excerpt)) => self.content("content".to_owned(), excerpt),
            Some(WrittenContent::Changes(excerpt)) => {
                let title =
                    format!("changes: {} bytes as a unified diff, sha256 {}", excerpt.bytes, excerpt.sha256);
                self.content(title, excerpt);
            }
            Some(WrittenContent::Unknown(why)) => {
                self.hide(format!(
                    "what would be written cannot be read: {}",
                    ByteString::from(why).display()
                ));
            }
        }
    }

    fn tool(&mut self, tool: &ToolCall) {
        if ToolCall::shortened(&tool.input) != tool.input {
            let head = tool.input.as_bytes();
            // The input is complete except for redacted secrets.
            let excerpt = Excerpt { head, bytes: head.len() as u64, sha256: &tool.sha256 };
            self.content("input".to_owned(), excerpt);
        }
    }

    fn content(&mut self, title: String, excerpt: Excerpt<'_>) {
        let Excerpt { head, bytes, sha256 } = excerpt;
        let shown = head.get(..MOST_CONTENT).unwrap_or(head);
        // Redaction shortens the head, so its length does not say whether content follows it.
        if shown.len() < head.len() || bytes > StandardInput::HEAD as u64 {
            let what = title.split(':').next().unwrap_or_default();
            self.hide(format!(
                "{what}: only the first {} of {bytes} bytes are shown; sha256 of all: {sha256}",
                shown.len()
            ));
        }
        let lines = shown.split(|byte| *byte == b'\n').map(script_line).collect();
        self.block(Some(title), lines);
    }

    /// Adds lines while space is left and counts the omitted ones. Empty lines cost space too.
    fn block(&mut self, title: Option<String>, lines: Vec<String>) {
        let mut shown = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        let title = title.map(|title| format!("{title}{}", legend(&lines)));
        self.room = self.room.saturating_sub(title.as_ref().map_or(0, String::len));
        for line in lines.iter().map(|line| with_visible_end(line)) {
            let clean = self.redactor.clean(&line);
            if clean != line {
                let digest = hex(Sha256::digest(clean.as_bytes()));
                self.hide(format!(
                    "a line of {} bytes: something in it is taken for a secret (without it: sha256 {digest})",
                    line.len()
                ));
            }
            if !left_out.is_empty() || clean.len() >= self.room {
                left_out.push(clean);
                continue;
            }
            self.room -= clean.len() + 1;
            shown.push(clean);
        }
        let nothing = shown.is_empty() && self.room == 0;
        if let Some(first) = left_out.first() {
            let end = first.floor_char_boundary(self.room);
            shown.push(format!("{}...", first.get(..end).unwrap_or_default()));
            self.room = 0;
            let rest = left_out.join("\n");
            let digest = hex(Sha256::digest(rest.as_bytes()));
            let bytes = rest.len() - end;
            self.hide(format!(
                "{bytes} bytes of the command are not shown; with its last line sha256 {digest}"
            ));
        }
        if !nothing {
            self.blocks.push(QuotedText { title, lines: shown });
        }
    }
}

/// Non-ASCII letters: some imitate others, and some change the reading direction.
fn foreign(seen: &PromptCall<'_>) -> String {
    let mut found: Vec<char> = Vec::new();
    let mut texts: Vec<&[u8]> = match seen.call {
        Call::Exec(exec) => exec_texts(exec),
        Call::File(FileCall::Move { path, to }) => vec![path.as_slice(), to.as_slice()],
        Call::File(FileCall::Symlink { path, target }) => vec![path.as_slice(), target.as_slice()],
        Call::File(file) => vec![file.path().as_slice()],
        Call::Apply(patch) => patch.files.iter().map(|file| file.path.as_slice()).collect(),
        Call::Land(landing) => landing.entries.iter().map(|entry| entry.path.as_slice()).collect(),
        Call::Tool(tool) => vec![tool.name.as_bytes(), tool.input.as_bytes()],
        // Host and URL are ASCII by validation.
        Call::Flow(_) | Call::Fetch(_) => Vec::new(),
    };
    if let Some(WrittenContent::Content(excerpt) | WrittenContent::Changes(excerpt)) = seen.written {
        texts.push(excerpt.head);
    }
    texts.extend(seen.stated.map(str::as_bytes));
    let mut known: BTreeSet<char> = BTreeSet::new();
    for chunk in texts.iter().flat_map(|text| text.utf8_chunks()) {
        let others = chunk.valid().chars().filter(|c| !c.is_ascii());
        found.extend(others.filter(|c| known.insert(*c)));
    }
    found.sort_by_key(|c| likeness(*c));
    let more = match found.len().saturating_sub(LETTERS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = found.iter().take(LETTERS).map(|c| {
        let shown = ByteString::from(c.to_string().as_str()).display();
        format!("`{shown}` U+{:04X}", u32::from(*c))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    format!("{named}{more}")
}

/// Those that are most easily taken for an ASCII letter first: they must not be the ones that are only counted.
fn likeness(c: char) -> u8 {
    match c {
        // Greek, Cyrillic, Armenian, Cherokee, Lisu, Coptic, letter-like symbols, full width, mathematical letters, dashes and slashes.
        '\u{370}'..='\u{58f}'
        | '\u{13a0}'..='\u{13ff}'
        | '\u{1c80}'..='\u{1c8f}'
        | '\u{1f00}'..='\u{1fff}' => 0,
        '\u{2010}'..='\u{205f}'
        | '\u{2100}'..='\u{218f}'
        | '\u{2212}'..='\u{223c}'
        | '\u{2c80}'..='\u{2dff}' => 0,
        '\u{a4d0}'..='\u{a4ff}'
        | '\u{a640}'..='\u{a69f}'
        | '\u{ab70}'..='\u{abbf}'
        | '\u{ff00}'..='\u{ffef}' => 0,
        '\u{1d400}'..='\u{1d7ff}' | '\u{250}'..='\u{2ff}' => 0,
        // Letters with accents, and scripts that look like nothing in ASCII.
        '\u{c0}'..='\u{24f}' | '\u{3040}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' => 2,
        _ => 1,
    }
}

/// All text of a command that an agent wrote.
fn exec_texts(exec: &ExecCall) -> Vec<&[u8]> {
    let variables = exec.env.iter().flat_map(|(name, value)| [name, value]);
    let mut texts: Vec<&[u8]> =
        exec.argv.iter().chain(variables).chain([&exec.cwd]).map(ByteString::as_slice).collect();
    if let StandardInput::Bytes { head, .. } = &exec.stdin {
        texts.push(head.as_slice());
    }
    texts
}

fn path_of(file: &FileCall) -> Vec<u8> {
    match file {
        FileCall::Symlink { path, target } => [path.as_slice(), b" -> ", target.as_slice()].concat(),
        FileCall::Move { path, to } => [path.as_slice(), b" to ", to.as_slice()].concat(),
        other => other.path().as_slice().to_vec(),
    }
}

/// One line of a text. Two different lines never look the same: a tab and spaces at the end have marks, and a backslash that
/// could be taken for the beginning of an escape is doubled.
pub(super) fn script_line(line: &[u8]) -> String {
    let spaces = line.iter().rev().take_while(|byte| **byte == b' ').count();
    let (text, end) = line.split_at(line.len() - spaces);
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\t' | b'\\' | 0x80..)) {
        let (plain, tail) = rest.split_at(at);
        shown.push_str(&ByteString::from(plain).display());
        rest = special(tail, &mut shown);
    }
    shown.push_str(&ByteString::from(rest).display());
    shown.extend(end.iter().map(|_| SPACE));
    shown
}

/// Shows what a line has at a tab, a backslash or text that is not ASCII. What comes after it.
fn special<'l>(tail: &'l [u8], shown: &mut String) -> &'l [u8] {
    let (first, behind) = tail.split_at(1.min(tail.len()));
    match (first, behind) {
        (b"\t", _) => shown.extend([TAB, ' ', ' ', ' ']),
        (b"\\", [b'r' | b'u' | b'x' | b'\\', ..]) => shown.push_str("\\\\"),
        (b"\\", _) => shown.push('\\'),
        _ => {
            let end = tail.iter().position(u8::is_ascii).unwrap_or(tail.len());
            let (foreign, behind) = tail.split_at(end);
            let escape = |mark: char| mark.escape_unicode().to_string();
            let text = ByteString::from(foreign).display();
            shown.push_str(&text.replace(TAB, &escape(TAB)).replace(SPACE, &escape(SPACE)));
            return behind;
        }
    }
    behind
}

/// The mark of a tab.
const TAB: char = '\u{21e5}';
/// The mark of a space at the end of a line, which no screen shows.
const SPACE: char = '\u{b7}';

/// With marks for the spaces at its end.
fn with_visible_end(line: &str) -> String {
    let text = line.trim_end_matches(' ');
    let marks = std::iter::repeat_n(SPACE, line.len() - text.len());
    text.chars().chain(marks).collect()
}

/// What the marks in these lines mean.
fn legend(lines: &[String]) -> &'static str {
    let has = |mark: char| lines.iter().any(|line| line.contains(mark));
    match (has(TAB), has(SPACE)) {
        (true, true) => " (\u{21e5} is a tab, \u{b7} a space at the end of a line)",
        (true, false) => " (\u{21e5} is a tab)",
        (false, true) => " (\u{b7} is a space at the end of a line)",
        (false, false) => "",
    }
}
