//! What a shell replaces when it runs: `$…`, backticks, arithmetic.
//!
//! The result is never known here; what counts is where it ends, what it runs, and whether the shells agree on both.

use std::borrow::Cow;

use super::grammar::{is_name, is_name_byte};
use super::reader::{ParseResult, ShellReader};
use super::word::{QuoteContext, WordBuilder};
use super::{Assignment, ShellWord, SimpleCommand};

const VARIABLE: &str = "a variable";
pub(super) const STATUS: &str = "an exit status";
const COMMAND: &str = "a command substitution";
const ARITHMETIC: &str = "arithmetic";

impl<'t> ShellReader<'t, '_> {
    /// From a `$` on.
    pub(super) fn expansion(&mut self, quoting: QuoteContext, draft: &mut WordBuilder) -> ParseResult<()> {
        match self.peek_at(1) {
            Some(b'(') if self.peek_at(2) == Some(b'(') => {
                draft.expand(ARITHMETIC);
                self.skip(3);
                self.nested(Self::arithmetic)
            }
            Some(b'(') => {
                draft.expand(COMMAND);
                self.skip(2);
                self.substituted_list()
            }
            Some(b'{') => {
                draft.expand(VARIABLE);
                self.nested(|reader| reader.braced(quoting))
            }
            Some(b'\'') if quoting == QuoteContext::None => self.ansi_quoted(draft),
            Some(b'"') if quoting == QuoteContext::None => {
                draft.expand("a translated string");
                self.skip(1);
                self.double_quoted(draft)
            }
            Some(byte) => self.simple_parameter(byte, draft),
            None => self.plain_dollar(draft),
        }
    }

    fn plain_dollar(&mut self, draft: &mut WordBuilder) -> ParseResult<()> {
        draft.quote(b'$');
        self.skip(1);
        Ok(())
    }

    /// `$name`, `$1`, `$?`, or a `$` that is only that.
    fn simple_parameter(&mut self, next: u8, draft: &mut WordBuilder) -> ParseResult<()> {
        let length = match next {
            b'?' => return self.special_parameter(STATUS, draft),
            b'@' | b'*' | b'#' | b'-' | b'$' | b'!' | b'0'..=b'9' => {
                return self.special_parameter(VARIABLE, draft);
            }
            _ if is_name_byte(next) => {
                let name = self.rest().iter().skip(1);
                name.take_while(|byte| is_name_byte(**byte)).count()
            }
            b'[' | b'=' | b'^' | b'~' | b'+' | b':' | 0x80.. => {
                self.gap("a `$` that only some shells expand");
                return self.plain_dollar(draft);
            }
            b'\\' if self.peek_at(2) == Some(b'\n') => {
                self.gap("a line continued after a `$`");
                return self.plain_dollar(draft);
            }
            _ => return self.plain_dollar(draft),
        };
        self.skip(length.saturating_add(1));
        draft.expand(VARIABLE);
        self.after_parameter();
        Ok(())
    }

    fn special_parameter(&mut self, why: &'static str, draft: &mut WordBuilder) -> ParseResult<()> {
        self.skip(2);
        draft.expand(why);
        self.after_parameter();
        Ok(())
    }

    /// In zsh `$name[…]` is an element, and the index is evaluated.
    fn after_parameter(&mut self) {
        if self.peek() == Some(b'[') {
            self.gap("an index after a variable, which zsh evaluates");
        }
        if self.rest().starts_with(b"\\\n") {
            self.gap("a line continued after a variable");
        }
    }

    /// `$'…'`: an escaped string, but not in dash.
    fn ansi_quoted(&mut self, draft: &mut WordBuilder) -> ParseResult<()> {
        draft.expand("`$'…'`, which dash does not know");
        self.skip(2);
        loop {
            match self.peek() {
                None => return Err(self.stop("an unterminated quote")),
                Some(b'\'') => break,
                Some(b'\\') if self.peek_at(1) == Some(b'\'') => {
                    self.gap("an escaped quote in `$'…'`");
                    self.skip(1);
                }
                Some(b'\\') if self.peek_at(1) == Some(b'\\') => self.skip(1),
                Some(b'\n') => self.quoted_newline()?,
                Some(_) => {}
            }
            self.skip(1);
        }
        self.skip(1);
        Ok(())
    }

    /// `` `…` ``: the first backtick without a backslash ends it; then one level of backslashes goes.
    pub(super) fn backticks(&mut self, quoting: QuoteContext, draft: &mut WordBuilder) -> ParseResult<()> {
        draft.expand(COMMAND);
        let start = self.at.saturating_add(1);
        let length = self.backticked_length(start)?;
        let inside = self.slice(start, start.saturating_add(length));
        if self.surroundings.announced || !self.pending.is_empty() {
            let newline = inside.iter().position(|byte| *byte == b'\n');
            if newline.is_some() {
                self.quoted_newline()?;
            }
        }
        if quoting == QuoteContext::Double && inside.windows(2).any(|pair| pair == b"\\\"") {
            self.gap("an escaped quote in backticks in quotes");
        }
        self.deeper(|reader| match unescaped(inside) {
            Cow::Borrowed(text) => reader.part(text, start).script(),
            Cow::Owned(text) => {
                // Zsh removes them while it looks ahead, and loses what is before them: the `>` in `a>\$x`.
                reader.gap("an escape in backticks");
                reader.copy(&text, start).script()
            }
        })?;
        self.at = start.saturating_add(length).saturating_add(1);
        Ok(())
    }

    fn backticked_length(&mut self, start: usize) -> ParseResult<usize> {
        let mut at = start;
        loop {
            match self.byte(at) {
                None => return Err(self.stop("an unterminated backtick")),
                Some(b'`') => return Ok(at.saturating_sub(start)),
                Some(b'\\') => at = at.saturating_add(2),
                Some(_) => at = at.saturating_add(1),
            }
        }
    }

    /// `${…}`.
    fn braced(&mut self, quoting: QuoteContext) -> ParseResult<()> {
        let start = self.at;
        self.skip(2);
        if self.peek() == Some(b'#') && self.peek_at(1) != Some(b'}') {
            self.skip(1);
            return self.length_of(quoting);
        }
        let name = self.parameter_name();
        match self.operator_after(name) {
            ExpansionOperator::End => {}
            ExpansionOperator::Assign => {
                let index = self.reserve()?;
                self.operand(quoting)?;
                let value = ShellWord::Dynamic { why: "a default value" };
                let assignments = vec![Assignment { name: name.to_vec(), value }];
                self.fill(index, SimpleCommand { assignments, ..SimpleCommand::default() }, start);
                return self.after_braced();
            }
            ExpansionOperator::Word => self.operand(quoting)?,
            ExpansionOperator::Offset => self.offset_operand(quoting)?,
            ExpansionOperator::Unknown => {
                self.gap("a form of `${…}` that is not common to all shells");
                self.operand(quoting)?;
            }
        }
        self.after_braced()
    }

    /// Over the closing brace.
    fn after_braced(&mut self) -> ParseResult<()> {
        self.skip(1);
        Ok(())
    }

    fn length_of(&mut self, quoting: QuoteContext) -> ParseResult<()> {
        let name = self.parameter_name();
        let operator = self.operator_after(name);
        if operator != ExpansionOperator::End {
            self.gap("a form of `${…}` that is not common to all shells");
            self.operand(quoting)?;
        }
        self.after_braced()
    }

    /// A name, digits, or one special character; empty where there is none of these.
    fn parameter_name(&mut self) -> &'t [u8] {
        let start = self.at;
        let length = self.rest().iter().take_while(|byte| is_name_byte(**byte)).count();
        match self.peek() {
            Some(b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => self.skip(1),
            _ => self.skip(length),
        }
        self.slice(start, self.at)
    }

    /// Over the operator behind a parameter.
    fn operator_after(&mut self, name: &[u8]) -> ExpansionOperator {
        let position = !name.is_empty() && name.iter().all(u8::is_ascii_digit);
        let known = is_name(name) || position || matches!(name, b"@" | b"*");
        if is_name(name) {
            self.element();
        }
        let (length, operator) = match (self.peek(), self.peek_at(1)) {
            (Some(b'}'), _) if !name.is_empty() => (0, ExpansionOperator::End),
            _ if !known => (0, ExpansionOperator::Unknown),
            (Some(b':'), Some(b'-' | b'?' | b'+')) => (2, ExpansionOperator::Word),
            (Some(b':'), Some(b'=')) if is_name(name) => (2, ExpansionOperator::Assign),
            (Some(b':'), _) => (1, ExpansionOperator::Offset),
            (Some(b'='), _) if is_name(name) => (1, ExpansionOperator::Assign),
            (Some(b'-' | b'?' | b'+' | b'#' | b'%' | b'/' | b'^' | b','), _) => (1, ExpansionOperator::Word),
            _ => (0, ExpansionOperator::Unknown),
        };
        self.skip(length);
        operator
    }

    /// `[@]`, `[*]` or `[1]`. Any other index is evaluated and may run code: it stays, and is unknown.
    fn element(&mut self) {
        let digits = self.rest().iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
        let length = if matches!(self.peek_at(1), Some(b'@' | b'*')) { 1 } else { digits };
        if self.peek() == Some(b'[') && length > 0 && self.peek_at(length.saturating_add(1)) == Some(b']') {
            self.skip(length.saturating_add(2));
        }
    }

    /// `${name:1:2}`. Anything but numbers is evaluated and may run code.
    fn offset_operand(&mut self, quoting: QuoteContext) -> ParseResult<()> {
        let numbers = |byte: &&u8| byte.is_ascii_digit() || matches!(byte, b' ' | b'-' | b':');
        let length = self.rest().iter().take_while(numbers).count();
        self.skip(length);
        if self.peek() != Some(b'}') || length == 0 {
            self.gap("an offset that is evaluated");
        }
        self.operand(quoting)
    }

    /// The word of `${name:-word}`: up to the closing brace.
    fn operand(&mut self, quoting: QuoteContext) -> ParseResult<()> {
        let mut unused = WordBuilder::default();
        loop {
            match self.peek() {
                None => return Err(self.stop("an unterminated `${`")),
                Some(b'}') => return Ok(()),
                Some(b'$') => self.expansion(quoting, &mut unused)?,
                Some(b'`') => self.backticks(quoting, &mut unused)?,
                Some(quote @ (b'\'' | b'"')) => self.quoted_operand(quote, quoting)?,
                Some(byte) => self.operand_byte(byte)?,
            }
        }
    }

    fn quoted_operand(&mut self, quote: u8, quoting: QuoteContext) -> ParseResult<()> {
        let mut unused = WordBuilder::default();
        if quoting == QuoteContext::Double {
            self.gap("quotes inside `${…}` inside quotes");
        }
        match (quote, quoting) {
            (b'\'', QuoteContext::None) => self.single_quoted(&mut unused),
            (b'"', _) => self.double_quoted(&mut unused),
            _ => {
                self.skip(1);
                Ok(())
            }
        }
    }

    fn operand_byte(&mut self, byte: u8) -> ParseResult<()> {
        match byte {
            b'\\' => {
                if matches!(self.peek_at(1), Some(b'{' | b'}' | b'\'' | b'"' | b'$' | b'`' | b'\n')) {
                    self.gap("a backslash inside `${…}`");
                }
                self.skip(1);
            }
            b'{' | b'(' => self.gap("a bracket inside `${…}`"),
            b'\n' => self.quoted_newline()?,
            _ => {}
        }
        self.skip(1);
        Ok(())
    }

    /// `((…))`: arithmetic in bash and zsh, two subshells in dash.
    pub(super) fn arithmetic_command(&mut self) -> ParseResult<()> {
        self.gap("`((`, which dash reads as subshells");
        self.skip(2);
        self.nested(Self::arithmetic)
    }

    /// To after `))`. Only numbers are harmless: the value of a variable is evaluated in turn, and `a[$(…)]` in it runs.
    fn arithmetic(&mut self) -> ParseResult<()> {
        let mut unused = WordBuilder::default();
        let mut open = 0_usize;
        loop {
            match self.peek() {
                None => return Err(self.stop("arithmetic that does not end")),
                Some(b')') if open == 0 => break,
                Some(b')') => open = open.saturating_sub(1),
                Some(b'(') => open = open.saturating_add(1),
                Some(b'\n') => self.quoted_newline()?,
                Some(byte) if is_harmless_in_arithmetic(byte) => {}
                Some(byte) => {
                    self.gap("arithmetic with more than numbers");
                    match byte {
                        b'$' => self.expansion(QuoteContext::Double, &mut unused)?,
                        b'`' => self.backticks(QuoteContext::Double, &mut unused)?,
                        _ => self.skip(1),
                    }
                    continue;
                }
            }
            self.skip(1);
        }
        if self.peek_at(1) != Some(b')') {
            return Err(self.stop("arithmetic that does not end"));
        }
        self.skip(2);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpansionOperator {
    /// `}`.
    End,
    /// `-`, `#`, `/` … and a word.
    Word,
    /// `=`, `:=`.
    Assign,
    /// `:1:2`.
    Offset,
    Unknown,
}

fn is_harmless_in_arithmetic(byte: u8) -> bool {
    byte.is_ascii_digit() || b" \t+-*/%<>=!&|^~?:,".contains(&byte)
}

/// The inside of backticks without one level of backslashes.
fn unescaped(inside: &[u8]) -> Cow<'_, [u8]> {
    let mut text = Vec::new();
    let mut bytes = inside.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = bytes.next_if(|next| byte == b'\\' && matches!(next, b'$' | b'`' | b'\\'));
        text.push(escaped.unwrap_or(byte));
    }
    if text.len() == inside.len() { Cow::Borrowed(inside) } else { Cow::Owned(text) }
}
