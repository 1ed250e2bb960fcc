//! What a person who is asked gets to see of a call, and what not.
//!
//! INVARIANT: what is not shown is named with its length and digest, and makes the question a critical one. A person who
//! has not seen something has not approved it as an everyday thing.

use ringfence_types::{Block, Bytes, Call, Exec, FileCall, Risk, StandardInput, hex};
use sha2::{Digest as _, Sha256};

use super::Redactor;
use crate::pipeline::TakenOut;

/// Bytes of a call on one card.
const MOST: usize = 48 << 10;
/// Bytes of standard input or of the content of a file.
const MOST_CONTENT: usize = 16 << 10;
/// Of what is taken out, this many are named.
const NAMED: usize = 20;

/// A call as it may be shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    /// Without secrets.
    pub(crate) call: &'a Call,
    /// How the content of a file would begin, without secrets.
    pub(crate) written: Option<&'a [u8]>,
    pub(crate) taken_out: &'a [TakenOut],
}

/// The text of a call, and what makes it more of a risk than its rules say.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) blocks: Vec<Block>,
    /// What is not shown, each in a line.
    pub(crate) hidden: Vec<String>,
    /// How bad it is by that alone, and why.
    pub(crate) lift: Option<(Risk, &'static str)>,
}

impl Sight {
    pub(crate) fn of(seen: &Seen<'_>, redactor: &Redactor<'_>) -> Self {
        let mut sight = Sketch { redactor, blocks: Vec::new(), hidden: Vec::new(), room: MOST };
        sight.taken_out(seen.taken_out);
        match seen.call {
            Call::Exec(exec) => sight.exec(exec),
            Call::File(file) => sight.file(file, seen.written),
            Call::Apply(patch) => {
                sight.block(None, patch.files.iter().map(|file| file.path.display()).collect());
            }
            Call::Tool(tool) => {
                sight.block(None, vec![ringfence_ledger::of_call(seen.call)]);
                sight.tool(tool.input.as_bytes());
            }
            Call::Flow(_) | Call::Fetch(_) => sight.block(None, vec![ringfence_ledger::of_call(seen.call)]),
        }
        let lift = match (sight.hidden.is_empty(), seen.call) {
            (false, _) => Some((Risk::Critical, "a part of it is not shown")),
            (true, Call::Exec(Exec { stdin: StandardInput::Stream, .. })) => {
                Some((Risk::High, "nobody knows yet what it will read"))
            }
            _ => None,
        };
        Self { blocks: sight.blocks, hidden: sight.hidden, lift }
    }

    pub(crate) fn risk(&self, judged: Risk) -> Risk {
        self.lift.map_or(judged, |(risk, _)| risk.max(judged))
    }
}

struct Sketch<'a> {
    redactor: &'a Redactor<'a>,
    blocks: Vec<Block>,
    hidden: Vec<String>,
    room: usize,
}

impl Sketch<'_> {
    fn taken_out(&mut self, taken: &[TakenOut]) {
        for one in taken.iter().take(NAMED) {
            let print = if one.fingerprint.is_empty() { "" } else { ", known as " };
            self.hidden.push(format!(
                "{}: {} bytes that are taken for a secret ({}{print}{})",
                Bytes::from(one.place.as_str()).display(),
                one.bytes,
                Bytes::from(one.rule.as_str()).display(),
                one.fingerprint
            ));
        }
        let more = taken.len().saturating_sub(NAMED);
        if more > 0 {
            self.hidden.push(format!("and {more} more that are taken for secrets"));
        }
    }

    /// The command line, below it each argument that has lines of its own, its variables and what it reads.
    fn exec(&mut self, exec: &Exec) {
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
            let title = format!("argument {index}: {bytes} bytes in {} lines", lines.len());
            long.push((title, lines.into_iter().map(script_line).collect()));
        }
        self.block(None, vec![words.join(" ")]);
        self.variables(&exec.env);
        for (title, lines) in long {
            self.block(Some(title), lines);
        }
        if let StandardInput::Bytes { bytes, sha256, head } = &exec.stdin {
            let title = format!("standard input: {bytes} bytes, sha256 {sha256}");
            self.content(title, (head.as_slice(), *bytes));
        }
    }

    /// All of them, those that programs take orders from first.
    fn variables(&mut self, variables: &[(Bytes, Bytes)]) {
        if variables.is_empty() {
            return;
        }
        let steers = |name: &Bytes| ringfence_authz::env::is_steering(name);
        let (steering, others): (Vec<_>, Vec<_>) = variables.iter().partition(|(name, _)| steers(name));
        let line = |(name, value): &&(Bytes, Bytes)| format!("{}={}", name.display(), value.quoted());
        if !steering.is_empty() {
            let title = format!("variables that programs take orders from: {}", steering.len());
            self.block(Some(title), steering.iter().map(line).collect());
        }
        if !others.is_empty() {
            let title = format!("variables: {}", others.len());
            self.block(Some(title), others.iter().map(line).collect());
        }
    }

    fn file(&mut self, file: &FileCall, written: Option<&[u8]>) {
        self.block(None, vec![Bytes::from(path_of(file)).display()]);
        if let (FileCall::Write { bytes, .. }, Some(head)) = (file, written) {
            self.content("content".to_owned(), (head, *bytes));
        }
    }

    fn tool(&mut self, input: &[u8]) {
        let shown = ringfence_types::ToolCall::shortened(&String::from_utf8_lossy(input));
        if shown.len() < input.len() {
            self.content("input".to_owned(), (input, input.len() as u64));
        }
    }

    /// `head` is how something of `bytes` bytes begins.
    fn content(&mut self, title: String, (head, bytes): (&[u8], u64)) {
        let shown = head.get(..MOST_CONTENT).unwrap_or(head);
        // What was taken out of it has changed how long it is.
        let cut = shown.len() < head.len() || head.len() >= StandardInput::HEAD;
        if cut {
            self.hidden.push(format!("{title}: only the first {} of {bytes} bytes are shown", shown.len()));
        }
        let lines = shown.split(|byte| *byte == b'\n').map(script_line).collect();
        self.block(Some(title), lines);
    }

    /// Lines until there is no more room. What is left out is counted.
    fn block(&mut self, title: Option<String>, lines: Vec<String>) {
        let mut shown = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        for line in lines {
            let clean = self.redactor.clean(&line);
            if clean != line {
                let digest = hex(Sha256::digest(clean.as_bytes()));
                self.hidden.push(format!(
                    "a line of {} bytes: something in it is taken for a secret (without it: sha256 {digest})",
                    line.len()
                ));
            }
            if !left_out.is_empty() || clean.len() > self.room {
                left_out.push(clean);
                continue;
            }
            self.room -= clean.len();
            shown.push(clean);
        }
        if let Some(first) = left_out.first() {
            let end = first.floor_char_boundary(self.room);
            shown.push(format!("{}...", first.get(..end).unwrap_or_default()));
            self.room = 0;
            let rest = left_out.join("\n");
            let digest = hex(Sha256::digest(rest.as_bytes()));
            let bytes = rest.len() - end;
            self.hidden.push(format!(
                "{bytes} bytes of the command are not shown; with its last line sha256 {digest}"
            ));
        }
        self.blocks.push(Block { title, lines: shown });
    }
}

fn path_of(file: &FileCall) -> Vec<u8> {
    match file {
        FileCall::Symlink { path, target } => [path.as_slice(), b" -> ", target.as_slice()].concat(),
        FileCall::Move { path, to } => [path.as_slice(), b" to ", to.as_slice()].concat(),
        other => other.path().as_slice().to_vec(),
    }
}

/// A tab is space here: as an escape it would hide the script that it indents.
fn script_line(line: &[u8]) -> String {
    let pieces = line.split(|byte| *byte == b'\t').map(|piece| Bytes::from(piece).display());
    pieces.collect::<Vec<_>>().join("    ")
}
