//! Words: quotes and what is left of them.

use super::ShellWord;
use super::expansion::STATUS;
use super::grammar::{is_name, is_name_byte};
use super::reader::{ParseResult, ShellReader, ends_word};

/// A word while it is read: its bytes without quotes, and what was special about them.
#[derive(Debug, Default)]
pub(super) struct WordBuilder {
    pub(super) bytes: Vec<u8>,
    /// Why it is known only when it runs.
    pub(super) dynamic: Option<&'static str>,
    /// Part of it is quoted or escaped.
    pub(super) quoted: bool,
    /// A line is continued in the middle of it.
    joined: bool,
    /// The first wildcard: where in `bytes`, and the pattern with quoted wildcards escaped.
    wild: Option<(usize, Vec<u8>)>,
    tilde: TildeState,
    braces: BraceState,
    /// Where in `bytes` the first `=` is, if nothing before it is quoted or expanded.
    equals: Option<usize>,
    assigns: AssignmentPrefix,
    leading_equals: bool,
    /// After the first `=` there is something that zsh expands in the value of an assignment.
    value_expands: bool,
    /// The last byte is written as it is.
    plain_end: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TildeState {
    #[default]
    None,
    /// `~` or `~/…` at the start.
    Home,
    /// Another use at the start, such as `~user`.
    Other,
}

/// What is before the first `=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AssignmentPrefix {
    /// Not a name.
    #[default]
    No,
    /// `name=`.
    Plainly,
    /// `name+=`, `1=`, `é=`: in some shells an assignment, in others a command.
    Oddly,
}

#[derive(Debug, Default)]
struct BraceState {
    open: usize,
    /// An unquoted brace was seen.
    any: bool,
    /// `a,b` or `a..b` inside.
    expands: bool,
    unbalanced: bool,
}

impl WordBuilder {
    /// A byte that is quoted or escaped.
    pub(super) fn quote(&mut self, byte: u8) {
        self.quoted = true;
        self.push(byte);
        if self.tilde == TildeState::Home && self.bytes.len() == 2 {
            self.tilde = TildeState::Other;
        }
        if let Some((_, pattern)) = &mut self.wild {
            escape(pattern, byte);
        }
        self.plain_end = false;
    }

    /// A byte that stands in the text as it is.
    fn plain(&mut self, byte: u8) {
        match byte {
            b'~' => self.plain_tilde(),
            b'=' => self.plain_equals(),
            b'{' | b'}' => self.brace(byte),
            b'*' | b'?' | b'[' if self.wild.is_none() => self.start_pattern(),
            _ => {}
        }
        self.push(byte);
        if self.tilde == TildeState::Home && self.bytes.len() == 2 && byte != b'/' {
            self.tilde = TildeState::Other;
        }
        if let Some((_, pattern)) = &mut self.wild {
            pattern.push(byte);
        }
        self.plain_end = true;
    }

    fn push(&mut self, byte: u8) {
        let ellipsis = byte == b'.' && self.bytes.last() == Some(&b'.');
        if self.braces.open > 0 && (byte == b',' || ellipsis) {
            self.braces.expands = true;
        }
        self.bytes.push(byte);
    }

    /// Something that is known only when it runs.
    pub(super) fn expand(&mut self, why: &'static str) {
        if self.dynamic.is_none_or(|known| known == STATUS) {
            self.dynamic = Some(why);
        }
        self.plain_end = false;
    }

    fn starts(&self) -> bool {
        self.bytes.is_empty() && !self.quoted && self.dynamic.is_none()
    }

    fn plain_tilde(&mut self) {
        if self.bytes.is_empty() {
            // Behind empty quotes only zsh expands it.
            self.tilde = if self.starts() { TildeState::Home } else { TildeState::Other };
        } else if self.after_separator() && self.assigns != AssignmentPrefix::No {
            self.expand("a tilde prefix");
        }
    }

    fn plain_equals(&mut self) {
        if self.after_separator() {
            self.value_expands = true;
        }
        self.leading_equals |= self.bytes.is_empty();
        if self.equals.is_none() && !self.quoted && self.dynamic.is_none() {
            self.equals = Some(self.bytes.len());
            self.assigns = AssignmentPrefix::before_equals(&self.bytes);
        }
    }

    /// Behind the first `=` or a later `:`, where a path in the value of an assignment starts.
    fn after_separator(&self) -> bool {
        self.equals.is_some() && self.plain_end && matches!(self.bytes.last(), Some(b'=' | b':'))
    }

    fn brace(&mut self, byte: u8) {
        self.braces.any = true;
        if byte == b'{' {
            self.braces.open = self.braces.open.saturating_add(1);
        } else if self.braces.open > 0 {
            self.braces.open = self.braces.open.saturating_sub(1);
        } else {
            self.braces.unbalanced = true;
        }
    }

    fn start_pattern(&mut self) {
        let mut pattern = Vec::new();
        self.bytes.iter().for_each(|byte| escape(&mut pattern, *byte));
        self.wild = Some((self.bytes.len(), pattern));
    }

    /// The whole word as it is in the text, where nothing in it is quoted or expanded.
    pub(super) fn as_plain(&self) -> Option<&[u8]> {
        (!self.quoted && self.dynamic.is_none()).then_some(self.bytes.as_slice())
    }

    pub(super) fn assigns(&self) -> AssignmentPrefix {
        self.assigns
    }

    /// What is before the first `=`, where that is a name.
    pub(super) fn assigned_name(&self) -> Option<&[u8]> {
        let before = self.bytes.get(..self.equals?)?;
        match self.assigns {
            AssignmentPrefix::No => None,
            AssignmentPrefix::Plainly => Some(before),
            AssignmentPrefix::Oddly => Some(before.strip_suffix(b"+").unwrap_or(before)),
        }
    }

    /// `name[`, unquoted: the start of an assignment to an element in bash and zsh.
    pub(super) fn is_element(&self) -> bool {
        self.wild.as_ref().is_some_and(|(at, pattern)| {
            pattern.get(*at) == Some(&b'[') && self.bytes.get(..*at).is_some_and(is_name)
        })
    }

    /// Ends with the first `=`: what follows is the whole value.
    pub(super) fn ends_with_equals(&self) -> bool {
        self.equals.is_some_and(|at| at.saturating_add(1) == self.bytes.len()) && self.plain_end
    }

    /// What is after the first `=`: nothing is a pattern there.
    pub(super) fn value(&self) -> ShellWord {
        let value = self.equals.and_then(|at| self.bytes.get(at.saturating_add(1)..)).unwrap_or_default();
        if let Some(why) = self.dynamic {
            return dynamic(why, value);
        }
        if self.value_expands {
            return ShellWord::Dynamic { why: "a leading `=`" };
        }
        if self.braces.expands || self.braces.unbalanced || self.braces.open > 0 {
            return ShellWord::Dynamic { why: "a brace expansion" };
        }
        ShellWord::Literal(value.to_vec())
    }

    /// Whether a continued line could have hidden what is special about the word from some shell.
    fn hides_something(&self) -> bool {
        let special = self.wild.is_some() || self.tilde != TildeState::None || self.braces.any;
        self.joined && (special || self.equals.is_some() || super::keyword::is_reserved(&self.bytes))
    }

    fn into_word(self) -> ShellWord {
        if let Some(why) = self.dynamic {
            return dynamic(why, &self.bytes);
        }
        if self.braces.expands || self.braces.unbalanced || self.braces.open > 0 {
            return ShellWord::Dynamic { why: "a brace expansion" };
        }
        if self.leading_equals && self.bytes != b"=" {
            return ShellWord::Dynamic { why: "a leading `=`" };
        }
        match (self.tilde, self.wild) {
            (TildeState::Home, None) => ShellWord::Home(self.bytes.get(1..).unwrap_or_default().to_vec()),
            (TildeState::Home | TildeState::Other, _) => ShellWord::Dynamic { why: "a tilde prefix" },
            (TildeState::None, Some((at, pattern))) if !matches!(self.bytes.as_slice(), b"[" | b"[[") => {
                ShellWord::Glob { prefix: self.bytes.get(..at).unwrap_or_default().to_vec(), pattern }
            }
            (TildeState::None, _) => ShellWord::Literal(self.bytes),
        }
    }
}

/// An exit status alone is a number; with anything around it, it is not.
fn dynamic(why: &'static str, around: &[u8]) -> ShellWord {
    let why = if why == STATUS && !around.is_empty() { "text with an exit status" } else { why };
    ShellWord::Dynamic { why }
}

impl AssignmentPrefix {
    fn before_equals(bytes: &[u8]) -> Self {
        let name = bytes.strip_suffix(b"+").unwrap_or(bytes);
        let odd = |byte: &u8| is_name_byte(*byte) || *byte == b'.' || !byte.is_ascii();
        match bytes {
            _ if is_name(bytes) => Self::Plainly,
            _ if !name.is_empty() && name.iter().all(odd) => Self::Oddly,
            _ => Self::No,
        }
    }
}

fn escape(pattern: &mut Vec<u8>, byte: u8) {
    if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\') {
        pattern.push(b'\\');
    }
    pattern.push(byte);
}

/// Where an expansion stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuoteContext {
    None,
    /// In double quotes or in the body of a here-document.
    Double,
}

impl ShellReader<'_, '_> {
    /// The word that starts here: up to a blank, a newline or an operator.
    pub(super) fn word(&mut self) -> ParseResult<WordBuilder> {
        let mut draft = WordBuilder::default();
        while let Some(byte) = self.peek().filter(|byte| !ends_word(Some(*byte))) {
            match byte {
                b'\\' => self.backslash(&mut draft)?,
                b'\'' => self.single_quoted(&mut draft)?,
                b'"' => self.double_quoted(&mut draft)?,
                b'$' => self.expansion(QuoteContext::None, &mut draft)?,
                b'`' => self.backticks(QuoteContext::None, &mut draft)?,
                _ => {
                    self.skip(1);
                    draft.plain(byte);
                }
            }
        }
        Ok(draft)
    }

    /// The word that a draft has become.
    pub(super) fn settle(&mut self, draft: WordBuilder) -> ShellWord {
        self.check_joined(&draft);
        if draft.braces.unbalanced || draft.braces.open > 0 {
            self.gap("a brace without its other half");
        }
        draft.into_word()
    }

    pub(super) fn check_joined(&mut self, draft: &WordBuilder) {
        if draft.hides_something() {
            self.gap("a line continued inside a word");
        }
    }

    fn backslash(&mut self, draft: &mut WordBuilder) -> ParseResult<()> {
        match self.peek_at(1) {
            None => return Err(self.stop("a backslash at the end")),
            Some(b'\n') => draft.joined = true,
            Some(byte) => draft.quote(byte),
        }
        self.skip(2);
        Ok(())
    }

    pub(super) fn single_quoted(&mut self, draft: &mut WordBuilder) -> ParseResult<()> {
        self.skip(1);
        draft.quoted = true;
        loop {
            match self.peek() {
                None => return Err(self.stop("an unterminated quote")),
                Some(b'\'') => break,
                Some(b'\n') => self.quoted_newline()?,
                Some(_) => {}
            }
            draft.quote(self.peek().unwrap_or_default());
            self.skip(1);
        }
        self.skip(1);
        Ok(())
    }

    pub(super) fn double_quoted(&mut self, draft: &mut WordBuilder) -> ParseResult<()> {
        self.skip(1);
        draft.quoted = true;
        self.nested(|reader| {
            while reader.peek() != Some(b'"') {
                reader.in_double_quotes(draft)?;
            }
            reader.skip(1);
            Ok(())
        })
    }

    fn in_double_quotes(&mut self, draft: &mut WordBuilder) -> ParseResult<()> {
        match (self.peek(), self.peek_at(1)) {
            (None, _) => return Err(self.stop("an unterminated quote")),
            (Some(b'$'), _) => return self.expansion(QuoteContext::Double, draft),
            (Some(b'`'), _) => return self.backticks(QuoteContext::Double, draft),
            (Some(b'\\'), Some(b'\n')) => self.skip(1),
            (Some(b'\\'), Some(byte @ (b'$' | b'`' | b'"' | b'\\'))) => {
                draft.quote(byte);
                self.skip(1);
            }
            (Some(b'\n'), _) => {
                self.quoted_newline()?;
                draft.quote(b'\n');
            }
            (Some(byte), _) => draft.quote(byte),
        }
        self.skip(1);
        Ok(())
    }
}
