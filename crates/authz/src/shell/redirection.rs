//! Redirections and process substitution.

use super::grammar::is_name;
use super::here::Indent;
use super::reader::{Read, Reader, ends_word};
use super::word::Draft;
use super::{Direction, Input, Redirection, Simple, Target, Word};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    HereString,
    HereDocument(Indent),
    /// `<&`.
    CopyInput,
    /// `>&`.
    CopyOutput,
    File(Direction),
    /// `&>`, `&>>`: dash takes the `&` for the end of the command.
    Both,
}

/// The longest first.
const OPERATORS: &[(&[u8], Operator)] = &[
    (b"<<<", Operator::HereString),
    (b"<<-", Operator::HereDocument(Indent::Dropped)),
    (b"<<", Operator::HereDocument(Indent::Kept)),
    (b"<&", Operator::CopyInput),
    (b"<>", Operator::File(Direction::ReadWrite)),
    (b"<", Operator::File(Direction::Read)),
    (b">>", Operator::File(Direction::Write)),
    (b">&", Operator::CopyOutput),
    (b">|", Operator::File(Direction::Write)),
    (b">", Operator::File(Direction::Write)),
    (b"&>>", Operator::Both),
    (b"&>", Operator::Both),
];

/// Whether what was read splits the command for dash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Splits {
    No,
    InDash,
}

impl Reader<'_, '_> {
    /// Whether a redirection starts here, with or without the number of a descriptor.
    pub(super) fn at_redirection(&self) -> bool {
        let digits = self.digits();
        match self.peek_at(digits) {
            Some(b'<' | b'>') => digits > 0 || self.peek_at(1) != Some(b'('),
            Some(b'&') => digits == 0 && self.peek_at(1) == Some(b'>'),
            _ => false,
        }
    }

    fn digits(&self) -> usize {
        self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count()
    }

    pub(super) fn redirection(&mut self, simple: &mut Simple) -> Read<Splits> {
        let digits = self.digits();
        if digits > 1 {
            self.gap("a descriptor above 9, which only bash knows");
        }
        let descriptor = self.slice(self.at, self.at.saturating_add(digits));
        self.skip(digits);
        self.numeric_pattern();
        let Some((sign, operator)) = OPERATORS.iter().find(|(sign, _)| self.rest().starts_with(sign)) else {
            return Err(self.stop("not a redirection"));
        };
        self.skip(sign.len());
        if matches!(self.peek(), Some(b'!' | b'|' | b'(' | b'&')) {
            self.gap("a redirection that only zsh knows");
        }
        let redirection = self.redirected(*operator)?;
        if redirection.direction != Direction::Write && matches!(descriptor, b"" | b"0") {
            simple.input = Input::Redirected;
        }
        simple.redirections.push(redirection);
        Ok(if *operator == Operator::Both { Splits::InDash } else { Splits::No })
    }

    /// In zsh `<1-5>` is a pattern.
    fn numeric_pattern(&mut self) {
        let byte = |byte: &&u8| byte.is_ascii_digit() || **byte == b'-';
        let length = self.rest().iter().skip(1).take_while(byte).count();
        let closed = self.peek_at(length.saturating_add(1)) == Some(b'>');
        let dash = self.rest().iter().skip(1).take(length).any(|byte| *byte == b'-');
        if self.peek() == Some(b'<') && closed && dash {
            self.gap("`<1-5>`, which is a pattern in zsh");
        }
    }

    fn redirected(&mut self, operator: Operator) -> Read<Redirection> {
        let (target, direction) = match operator {
            Operator::HereDocument(indent) => {
                self.announce(indent)?;
                (Target::Text, Direction::Read)
            }
            Operator::HereString => {
                self.target()?;
                (Target::Text, Direction::Read)
            }
            Operator::CopyInput => {
                let target = self.copied()?;
                if target != Target::Descriptor {
                    self.gap("`<&` with something that is not a number");
                }
                (target, Direction::Read)
            }
            Operator::CopyOutput => (self.copied()?, Direction::Write),
            Operator::File(direction) => (Target::File(self.target()?), direction),
            Operator::Both => (Target::File(self.target()?), Direction::Write),
        };
        Ok(Redirection { target, direction })
    }

    fn target(&mut self) -> Read<Word> {
        let draft = self.target_draft()?;
        Ok(self.settle(draft))
    }

    fn target_draft(&mut self) -> Read<Draft> {
        self.blanks();
        if self.rest().starts_with(b"<(") || self.rest().starts_with(b">(") {
            return self.process_substitution();
        }
        if ends_word(self.peek()) {
            return Err(self.stop("a redirection without a target"));
        }
        let draft = self.word()?;
        self.count_word()?;
        self.no_parenthesis()?;
        let number = draft.bytes.iter().all(u8::is_ascii_digit);
        if number && matches!(self.peek(), Some(b'<' | b'>')) {
            self.gap("a number between redirections");
        }
        Ok(draft)
    }

    /// What follows `>&` and `<&`: a descriptor, or in some shells a file.
    fn copied(&mut self) -> Read<Target> {
        let draft = self.target_draft()?;
        let plain = draft.as_plain().unwrap_or_default();
        if plain == b"-" || (!plain.is_empty() && plain.iter().all(u8::is_ascii_digit)) {
            return Ok(Target::Descriptor);
        }
        if draft.bytes.first() == Some(&b'-') {
            self.gap("`>&-` with a word behind it");
        }
        let simple = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./-".contains(byte);
        if !draft.as_plain().is_some_and(|word| word.iter().all(simple)) {
            self.gap("an odd word behind `>&`, which bash expands twice");
        }
        Ok(Target::File(self.settle(draft)))
    }

    /// `<(…)` or `>(…)` as a word.
    pub(super) fn process_substitution(&mut self) -> Read<Draft> {
        self.skip(2);
        self.substituted_list()?;
        if !ends_word(self.peek()) {
            self.gap("a process substitution inside a word");
        }
        let mut draft = Draft::default();
        draft.expand("a process substitution");
        Ok(draft)
    }

    /// `{name}` before a redirection: bash and zsh choose a descriptor, zsh also over blanks, dash has a word.
    pub(super) fn names_descriptor(&mut self, draft: &Draft) -> bool {
        let inside = draft.as_plain().and_then(|word| word.strip_prefix(b"{")?.strip_suffix(b"}"));
        if !inside.is_some_and(is_name) {
            return false;
        }
        self.blanks();
        self.at_redirection()
    }

    /// The redirections behind a compound command, as a command of their own; `first` is the first command inside.
    pub(super) fn redirect_compound(&mut self, first: usize) -> Read<()> {
        self.blanks();
        let start = self.at;
        let mut simple = Simple::default();
        while self.at_redirection() {
            if self.redirection(&mut simple)? == Splits::InDash {
                self.gap("`&>` behind a compound command, which dash reads as `&`");
            }
            self.blanks();
        }
        if simple.redirections.is_empty() {
            return Ok(());
        }
        if simple.input == Input::Redirected {
            let inside = self.output.script.commands.iter_mut().skip(first);
            for command in inside.filter(|command| command.input == Input::Inherited) {
                command.input = Input::Redirected;
            }
        }
        self.emit(simple, start)
    }
}
