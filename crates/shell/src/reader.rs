//! A place in the text, and what has been found up to it.

use super::heredoc::HeredocDelimiter;
use super::{CommandInput, ParseGap, Script, SimpleCommand};

/// Constructs in constructs. Also the bound of this parser's own recursion.
const MAX_NESTING: u8 = 64;
const MAX_COMMANDS: usize = 4_000;
const MAX_WORDS: usize = 100_000;
/// The most that is kept of the text of one command, and of all commands together.
const MAX_TEXT: usize = 4 * 1024;
const MAX_TEXTS: usize = 1024 * 1024;
const SHORT_TEXT: usize = 64;

/// Reading cannot go on: a gap says why.
#[derive(Debug)]
pub(super) struct ParseStop;

pub(super) type ParseResult<T> = Result<T, ParseStop>;

/// What was found so far, shared by the readers of one script.
#[derive(Debug)]
pub(super) struct ParseOutput {
    pub(super) script: Script,
    pub(super) characters: CharacterSet,
    words: usize,
    texts: usize,
}

/// What a text consists of: beyond ASCII, the character set decides how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CharacterSet {
    Ascii,
    Any,
}

impl ParseOutput {
    pub(super) fn new(text: &[u8]) -> Self {
        let characters = if text.is_ascii() { CharacterSet::Ascii } else { CharacterSet::Any };
        Self { script: Script::default(), characters, words: 0, texts: 0 }
    }

    /// The first of each kind is kept.
    pub(super) fn gap(&mut self, at: usize, why: &'static str) {
        if !self.script.gaps.iter().any(|gap| gap.why == why) {
            self.script.gaps.push(ParseGap { at, why });
        }
    }
}

/// Reads one stretch of text: the script, the inside of backticks, the body of a here-document.
#[derive(Debug)]
pub(super) struct ShellReader<'t, 'o> {
    pub(super) text: &'t [u8],
    pub(super) at: usize,
    pub(super) output: &'o mut ParseOutput,
    pub(super) depth: u8,
    pub(super) nesting: u8,
    /// Where the stretch is in the script.
    place: InputOffset,
    /// Here-documents whose bodies start after the next newline.
    pub(super) pending: Vec<HeredocDelimiter>,
    pub(super) surroundings: ListContext,
    pub(super) tally: ParseMark,
}

/// What has been read so far, to compare before and after.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ParseMark {
    /// Here-documents.
    pub(super) documents: usize,
    /// Commands behind others in a list, and compound commands.
    pub(super) structures: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputOffset {
    /// It starts at this offset.
    From(usize),
    /// It is a copy without escapes of something at this offset.
    CopyOf(usize),
}

/// What is around the list that is being read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListContext {
    /// It is inside `$(…)`, backticks or `<(…)`: some shells look for the end before they read what is inside.
    pub(super) substitution: bool,
    /// A here-document was announced before it and has not come yet.
    pub(super) announced: bool,
    /// The standard input of the command whose words are read: what is substituted in them reads it, too.
    pub(super) input: CommandInput,
}

impl<'t, 'o> ShellReader<'t, 'o> {
    pub(super) fn new(text: &'t [u8], output: &'o mut ParseOutput) -> Self {
        Self {
            text,
            at: 0,
            output,
            depth: 0,
            nesting: 0,
            place: InputOffset::From(0),
            pending: Vec::new(),
            surroundings: ListContext::default(),
            tally: ParseMark::default(),
        }
    }

    /// A reader of a part of this text, from `start` on.
    pub(super) fn part<'p>(&'p mut self, part: &'p [u8], start: usize) -> ShellReader<'p, 'p> {
        let place = match self.place {
            InputOffset::From(base) => InputOffset::From(base.saturating_add(start)),
            copy => copy,
        };
        self.stretch(part, place)
    }

    /// A reader of text that was made from what is at `start`.
    pub(super) fn copy<'p>(&'p mut self, text: &'p [u8], start: usize) -> ShellReader<'p, 'p> {
        let place = InputOffset::CopyOf(self.offset(start));
        self.stretch(text, place)
    }

    fn stretch<'p>(&'p mut self, text: &'p [u8], place: InputOffset) -> ShellReader<'p, 'p> {
        ShellReader {
            text,
            at: 0,
            depth: self.depth,
            nesting: self.nesting,
            place,
            output: self.output,
            pending: Vec::new(),
            surroundings: ListContext {
                substitution: true,
                announced: false,
                input: self.surroundings.input,
            },
            tally: ParseMark::default(),
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.byte(self.at)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.byte(self.at.saturating_add(ahead))
    }

    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.text.get(at).copied()
    }

    pub(super) fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn slice(&self, start: usize, end: usize) -> &'t [u8] {
        self.text.get(start..end).unwrap_or_default()
    }

    pub(super) fn skip(&mut self, count: usize) {
        self.at = self.at.saturating_add(count).min(self.text.len());
    }

    /// Notes something that makes the script a miss, and goes on.
    pub(super) fn gap(&mut self, why: &'static str) {
        let at = self.offset(self.at);
        self.output.gap(at, why);
    }

    /// Notes why reading ends here.
    pub(super) fn stop(&mut self, why: &'static str) -> ParseStop {
        self.gap(why);
        ParseStop
    }

    fn offset(&self, at: usize) -> usize {
        match self.place {
            InputOffset::From(base) => base.saturating_add(at),
            InputOffset::CopyOf(base) => base,
        }
    }

    /// Reads something inside something.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.nesting >= MAX_NESTING {
            return Err(self.stop("nested deeper than 64"));
        }
        self.nesting = self.nesting.saturating_add(1);
        let result = read(self);
        self.nesting = self.nesting.saturating_sub(1);
        result
    }

    /// Reads what runs in a place of its own: a subshell, a substitution, a function.
    pub(super) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        self.depth = self.depth.saturating_add(1);
        let result = self.nested(read);
        self.depth = self.depth.saturating_sub(1);
        result
    }

    /// Spaces, tabs and continued lines.
    pub(super) fn blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.skip(1),
                Some(b'\\') if self.peek_at(1) == Some(b'\n') => self.continuations(),
                _ => return,
            }
        }
    }

    /// Shells join lines before, while or after they look for operators.
    fn continuations(&mut self) {
        let before = self.at.checked_sub(1).and_then(|at| self.byte(at));
        while self.rest().starts_with(b"\\\n") {
            self.skip(2);
        }
        let after = self.peek();
        if (before.is_some_and(is_operator) && after.is_some_and(is_operator)) || after == Some(b'#') {
            self.gap("a line continued inside an operator");
        }
    }

    /// Blanks, comments and newlines.
    pub(super) fn linebreaks(&mut self) -> ParseResult<()> {
        loop {
            self.blanks();
            match self.peek() {
                Some(b'#') => self.comment(),
                Some(b'\n') => self.newline()?,
                _ => return Ok(()),
            }
        }
    }

    /// To the end of the line, which stays.
    pub(super) fn comment(&mut self) {
        let start = self.at;
        let length = self.rest().iter().position(|byte| *byte == b'\n');
        self.skip(length.unwrap_or(self.text.len()));
        let odd = |byte: &u8| matches!(byte, b'\'' | b'"' | b'`' | b'(' | b')' | b'\\' | b'$');
        if self.surroundings.substitution && self.slice(start, self.at).iter().any(odd) {
            self.gap("a comment in a substitution");
        }
    }

    /// Over a newline and the bodies of the here-documents that were announced before it.
    pub(super) fn newline(&mut self) -> ParseResult<()> {
        self.line_may_end()?;
        self.skip(1);
        for delimiter in std::mem::take(&mut self.pending) {
            self.here_document(&delimiter)?;
        }
        Ok(())
    }

    /// Shells disagree about where the body of a here-document starts if the line ends inside something.
    pub(super) fn line_may_end(&mut self) -> ParseResult<()> {
        if self.surroundings.announced {
            return Err(self.stop("a line that ends inside something before an announced here-document"));
        }
        Ok(())
    }

    /// The same for a newline inside quotes.
    pub(super) fn quoted_newline(&mut self) -> ParseResult<()> {
        self.line_may_end()?;
        if self.pending.is_empty() {
            return Ok(());
        }
        Err(self.stop("a line that ends inside something before an announced here-document"))
    }

    /// A place for a command in the order of the text, filled when it has been read.
    pub(super) fn reserve(&mut self) -> ParseResult<usize> {
        let commands = &mut self.output.script.commands;
        if commands.len() >= MAX_COMMANDS {
            return Err(self.stop("more than 4000 commands"));
        }
        commands.push(SimpleCommand::default());
        Ok(commands.len().saturating_sub(1))
    }

    pub(super) fn count_word(&mut self) -> ParseResult<()> {
        self.output.words = self.output.words.saturating_add(1);
        if self.output.words > MAX_WORDS { Err(self.stop("more than 100000 words")) } else { Ok(()) }
    }

    /// The text from `start` to here, for people.
    pub(super) fn quote(&mut self, start: usize) -> String {
        let most = if self.output.texts > MAX_TEXTS { SHORT_TEXT } else { MAX_TEXT };
        let text = self.slice(start, self.at).trim_ascii_end();
        self.output.texts = self.output.texts.saturating_add(text.len().min(most));
        match text.get(..most) {
            Some(head) if text.len() > most => format!("{}…", String::from_utf8_lossy(head)),
            _ => String::from_utf8_lossy(text).into_owned(),
        }
    }
}

pub(super) fn is_operator(byte: u8) -> bool {
    matches!(byte, b'&' | b'|' | b';' | b'<' | b'>' | b'(' | b')')
}

/// Whether a word ends before this byte. The end of the text ends every word.
pub(super) fn ends_word(byte: Option<u8>) -> bool {
    byte.is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\n') || is_operator(byte))
}
