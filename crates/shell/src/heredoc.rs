//! Here-documents.

use super::reader::{ParseResult, ShellReader, ends_word};
use super::word::{QuoteContext, WordBuilder};

const MAX_PENDING: usize = 1000;

/// What ends a here-document.
#[derive(Debug)]
pub(super) struct HeredocDelimiter {
    line: Vec<u8>,
    indent: HeredocIndent,
    body: HeredocBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeredocIndent {
    Kept,
    /// `<<-`: tabs before a line do not count.
    Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeredocBody {
    /// The delimiter is quoted: nothing in the body is special.
    Literal,
    Expanded,
}

impl<'t> ShellReader<'t, '_> {
    /// From after `<<` on: announces a here-document.
    pub(super) fn announce(&mut self, indent: HeredocIndent) -> ParseResult<()> {
        self.blanks();
        let start = self.at;
        let draft = self.delimiter()?;
        self.no_parenthesis()?;
        if start == self.at || draft.bytes.is_empty() || draft.bytes.contains(&b'\n') {
            return Err(self.stop("a here-document with an odd delimiter"));
        }
        if draft.bytes.iter().all(u8::is_ascii_digit) && matches!(self.peek(), Some(b'<' | b'>')) {
            self.gap("a number between redirections");
        }
        let body = if draft.quoted { HeredocBody::Literal } else { HeredocBody::Expanded };
        if self.pending.len() >= MAX_PENDING {
            return Err(self.stop("more than 1000 here-documents in a line"));
        }
        self.tally.documents = self.tally.documents.saturating_add(1);
        self.pending.push(HeredocDelimiter { line: draft.bytes, indent, body });
        Ok(())
    }

    /// A word in which nothing is expanded. Only what every shell takes for the same delimiter is read.
    fn delimiter(&mut self) -> ParseResult<WordBuilder> {
        let mut draft = WordBuilder::default();
        while let Some(byte) = self.peek().filter(|byte| !ends_word(Some(*byte))) {
            match byte {
                b'\'' => self.single_quoted(&mut draft)?,
                b'"' => self.double_quoted_delimiter(&mut draft)?,
                b'\\' if self.peek_at(1).is_some_and(is_plain) => {
                    draft.quote(self.peek_at(1).unwrap_or_default());
                    self.skip(2);
                }
                _ if is_plain(byte) => {
                    draft.bytes.push(byte);
                    self.skip(1);
                }
                _ => return Err(self.stop("a here-document with an odd delimiter")),
            }
        }
        Ok(draft)
    }

    fn double_quoted_delimiter(&mut self, draft: &mut WordBuilder) -> ParseResult<()> {
        self.skip(1);
        draft.quoted = true;
        while let Some(byte) = self.peek().filter(|byte| *byte != b'"') {
            if matches!(byte, b'$' | b'`' | b'\\') {
                return Err(self.stop("a here-document with an odd delimiter"));
            }
            draft.quote(byte);
            self.skip(1);
        }
        if self.peek().is_none() {
            return Err(self.stop("an unterminated quote"));
        }
        self.skip(1);
        Ok(())
    }

    /// The body, from the start of a line to after the line that ends it.
    pub(super) fn here_document(&mut self, delimiter: &HeredocDelimiter) -> ParseResult<()> {
        let start = self.at;
        let mut joined = false;
        loop {
            let line = self.line();
            if line.is_empty() && self.at >= self.text.len() {
                return Err(self.stop("a here-document without its end"));
            }
            if delimiter.ends(line) {
                if joined {
                    self.gap("a here-document whose end is a continued line");
                }
                break;
            }
            joined = self.check_line(line, delimiter);
            self.skip(line.len().saturating_add(1));
        }
        let (body, end) = (self.slice(start, self.at), self.line().len());
        self.skip(end.saturating_add(1));
        match delimiter.body {
            HeredocBody::Literal => Ok(()),
            HeredocBody::Expanded => self.nested(|reader| reader.part(body, start).here_text()),
        }
    }

    fn line(&self) -> &'t [u8] {
        self.rest().split(|byte| *byte == b'\n').next().unwrap_or_default()
    }

    /// Lines that one shell takes for the end and another does not. Says whether the next line continues this one.
    fn check_line(&mut self, line: &[u8], delimiter: &HeredocDelimiter) -> bool {
        let line = delimiter.dedent(line);
        if self.surroundings.substitution && line.starts_with(&delimiter.line) {
            self.gap("a here-document in a substitution whose end is not alone on its line");
        }
        let backslashes = line.iter().rev().take_while(|byte| **byte == b'\\').count();
        let continued = delimiter.body == HeredocBody::Expanded && !backslashes.is_multiple_of(2);
        if continued && delimiter.line.starts_with(line.strip_suffix(b"\\").unwrap_or(line)) {
            self.gap("a here-document whose end is a continued line");
        }
        continued
    }

    /// A body in which `$` and backticks are special.
    fn here_text(&mut self) -> ParseResult<()> {
        let mut unused = WordBuilder::default();
        loop {
            match self.peek() {
                None => return Ok(()),
                Some(b'\\') => self.skip(2),
                Some(b'$') => self.expansion(QuoteContext::Double, &mut unused)?,
                Some(b'`') => self.backticks(QuoteContext::Double, &mut unused)?,
                Some(_) => self.skip(1),
            }
        }
    }
}

impl HeredocDelimiter {
    fn ends(&self, line: &[u8]) -> bool {
        self.dedent(line) == self.line
    }

    fn dedent<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        let tabs = line.iter().take_while(|byte| **byte == b'\t').count();
        match self.indent {
            HeredocIndent::Kept => line,
            HeredocIndent::Dropped => line.get(tabs..).unwrap_or_default(),
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.,:@%/+!".contains(&byte)
}
