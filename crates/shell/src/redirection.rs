//! Redirections and process substitution.

use super::grammar::is_name;
use super::heredoc::HeredocIndent;
use super::reader::{ParseResult, ShellReader, ends_word};
use super::word::WordBuilder;
use super::{CommandInput, Redirection, RedirectionMode, RedirectionTarget, ShellWord, SimpleCommand};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedirectionOperator {
    HereString,
    HereDocument(HeredocIndent),
    /// `<&`.
    CopyInput,
    /// `>&`.
    CopyOutput,
    File(RedirectionMode),
    /// `&>`, `&>>`: dash takes the `&` for the end of the command.
    Both,
}

/// The longest first.
const OPERATORS: &[(&[u8], RedirectionOperator)] = &[
    (b"<<<", RedirectionOperator::HereString),
    (b"<<-", RedirectionOperator::HereDocument(HeredocIndent::Dropped)),
    (b"<<", RedirectionOperator::HereDocument(HeredocIndent::Kept)),
    (b"<&", RedirectionOperator::CopyInput),
    (b"<>", RedirectionOperator::File(RedirectionMode::ReadWrite)),
    (b"<", RedirectionOperator::File(RedirectionMode::Read)),
    (b">>", RedirectionOperator::File(RedirectionMode::Write)),
    (b">&", RedirectionOperator::CopyOutput),
    (b">|", RedirectionOperator::File(RedirectionMode::Write)),
    (b">", RedirectionOperator::File(RedirectionMode::Write)),
    (b"&>>", RedirectionOperator::Both),
    (b"&>", RedirectionOperator::Both),
];

/// Whether what was read splits the command for dash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DashSplit {
    No,
    InDash,
}

impl ShellReader<'_, '_> {
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

    pub(super) fn redirection(&mut self, simple: &mut SimpleCommand) -> ParseResult<DashSplit> {
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
        // `0>&3` makes the input what 3 stands for.
        if descriptor == b"0" || redirection.direction != RedirectionMode::Write && descriptor.is_empty() {
            simple.input = CommandInput::Redirected;
        }
        simple.redirections.push(redirection);
        Ok(if *operator == RedirectionOperator::Both { DashSplit::InDash } else { DashSplit::No })
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

    fn redirected(&mut self, operator: RedirectionOperator) -> ParseResult<Redirection> {
        let (target, direction) = match operator {
            RedirectionOperator::HereDocument(indent) => {
                self.announce(indent)?;
                (RedirectionTarget::Text, RedirectionMode::Read)
            }
            RedirectionOperator::HereString => {
                self.target()?;
                (RedirectionTarget::Text, RedirectionMode::Read)
            }
            RedirectionOperator::CopyInput => {
                let target = self.copied()?;
                if target != RedirectionTarget::Descriptor {
                    self.gap("`<&` with something that is not a number");
                }
                (target, RedirectionMode::Read)
            }
            RedirectionOperator::CopyOutput => (self.copied()?, RedirectionMode::Write),
            RedirectionOperator::File(direction) => (RedirectionTarget::File(self.target()?), direction),
            RedirectionOperator::Both => (RedirectionTarget::File(self.target()?), RedirectionMode::Write),
        };
        Ok(Redirection { target, direction })
    }

    fn target(&mut self) -> ParseResult<ShellWord> {
        let draft = self.target_draft()?;
        Ok(self.settle(draft))
    }

    fn target_draft(&mut self) -> ParseResult<WordBuilder> {
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
    fn copied(&mut self) -> ParseResult<RedirectionTarget> {
        let draft = self.target_draft()?;
        let plain = draft.as_plain().unwrap_or_default();
        if plain == b"-" || (!plain.is_empty() && plain.iter().all(u8::is_ascii_digit)) {
            return Ok(RedirectionTarget::Descriptor);
        }
        if draft.bytes.first() == Some(&b'-') {
            self.gap("`>&-` with a word behind it");
        }
        let simple = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./-".contains(byte);
        if !draft.as_plain().is_some_and(|word| word.iter().all(simple)) {
            self.gap("an odd word behind `>&`, which bash expands twice");
        }
        Ok(RedirectionTarget::File(self.settle(draft)))
    }

    /// `<(…)` or `>(…)` as a word.
    pub(super) fn process_substitution(&mut self) -> ParseResult<WordBuilder> {
        self.skip(2);
        self.substituted_list()?;
        if !ends_word(self.peek()) {
            self.gap("a process substitution inside a word");
        }
        let mut draft = WordBuilder::default();
        draft.expand("a process substitution");
        Ok(draft)
    }

    /// `{name}` before a redirection: bash and zsh choose a descriptor, zsh also over blanks, dash has a word.
    pub(super) fn names_descriptor(&mut self, draft: &WordBuilder) -> bool {
        let inside = draft.as_plain().and_then(|word| word.strip_prefix(b"{")?.strip_suffix(b"}"));
        if !inside.is_some_and(is_name) {
            return false;
        }
        self.blanks();
        self.at_redirection()
    }

    /// The redirections behind a compound command, as a command of their own; `first` is the first command inside.
    pub(super) fn redirect_compound(&mut self, first: usize) -> ParseResult<()> {
        self.blanks();
        let start = self.at;
        let mut simple = SimpleCommand::default();
        while self.at_redirection() {
            if self.redirection(&mut simple)? == DashSplit::InDash {
                self.gap("`&>` behind a compound command, which dash reads as `&`");
            }
            self.blanks();
        }
        if simple.redirections.is_empty() {
            return Ok(());
        }
        if simple.input == CommandInput::Redirected {
            let inside = self.output.script.commands.iter_mut().skip(first);
            for command in inside.filter(|command| command.input == CommandInput::Inherited) {
                command.input = CommandInput::Redirected;
            }
        }
        self.emit(simple, start)
    }
}
