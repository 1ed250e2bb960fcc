//! Simple commands.

use super::keyword::is_reserved;
use super::reader::{ParseResult, ParseStop, ShellReader, ends_word};
use super::redirection::DashSplit;
use super::shell_differences::{changes_the_shell, evaluates, takes_names};
use super::word::{AssignmentPrefix, WordBuilder};
use super::{Assignment, CommandInput, ShellWord, SimpleCommand};

/// A simple command while it is read.
struct SimpleCommandBuilder {
    simple: SimpleCommand,
    index: usize,
    start: usize,
    splits: DashSplit,
}

impl SimpleCommandBuilder {
    fn is_empty(&self) -> bool {
        let simple = &self.simple;
        simple.words.is_empty() && simple.assignments.is_empty() && simple.redirections.is_empty()
    }
}

/// What comes after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextToken {
    More,
    End,
    /// It was the name of a function.
    Function,
}

impl ShellReader<'_, '_> {
    /// `A=1 cmd arg > file`.
    pub(super) fn simple(&mut self, input: CommandInput) -> ParseResult<()> {
        let index = self.reserve()?;
        let simple = SimpleCommand { input, ..SimpleCommand::default() };
        let mut parts = SimpleCommandBuilder { simple, index, start: self.at, splits: DashSplit::No };
        let read = self.parts(&mut parts);
        if let Ok(NextToken::Function) = read {
            self.output.script.commands.pop();
            return self.function();
        }
        if read.is_err() && parts.is_empty() {
            return self.unread(parts);
        }
        // What was read before a stop is shown, too.
        self.check_parts(&parts);
        self.fill(parts.index, parts.simple, parts.start);
        read.map(|_| ())
    }

    /// Nothing stands for a command that was not even begun; a first word that was begun may be anything.
    fn unread(&mut self, mut parts: SimpleCommandBuilder) -> ParseResult<()> {
        if parts.index.saturating_add(1) == self.output.script.commands.len() {
            self.output.script.commands.pop();
        } else {
            parts.simple.words.push(ShellWord::Dynamic { why: "a word without its end" });
            self.fill(parts.index, parts.simple, parts.start);
        }
        Err(ParseStop)
    }

    fn parts(&mut self, parts: &mut SimpleCommandBuilder) -> ParseResult<NextToken> {
        loop {
            self.blanks();
            match self.part_of_command(parts)? {
                NextToken::More => {}
                NextToken::End if self.at == parts.start => {
                    return Err(self.stop("not the grammar of a shell"));
                }
                next => return Ok(next),
            }
        }
    }

    fn part_of_command(&mut self, parts: &mut SimpleCommandBuilder) -> ParseResult<NextToken> {
        if self.at_redirection() {
            if self.redirection(&mut parts.simple)? == DashSplit::InDash {
                parts.splits = DashSplit::InDash;
            }
            return Ok(NextToken::More);
        }
        match self.peek() {
            None | Some(b'\n' | b';' | b'&' | b'|' | b')' | b'#') => Ok(NextToken::End),
            Some(b'<' | b'>') => {
                let draft = self.process_substitution()?;
                self.add_word(draft, parts)?;
                Ok(NextToken::More)
            }
            Some(b'(') => self.parenthesis(parts),
            Some(_) => self.add(parts),
        }
    }

    /// `name ()` is a function; anything else with a parenthesis in it is a pattern of zsh, or an error.
    fn parenthesis(&mut self, parts: &SimpleCommandBuilder) -> ParseResult<NextToken> {
        let simple = &parts.simple;
        let alone = simple.assignments.is_empty() && simple.redirections.is_empty();
        match simple.words.as_slice() {
            [ShellWord::Literal(_)] if alone => Ok(NextToken::Function),
            _ => Err(self.stop("a parenthesis inside a command")),
        }
    }

    fn add(&mut self, parts: &mut SimpleCommandBuilder) -> ParseResult<NextToken> {
        let draft = self.word()?;
        if self.peek() == Some(b'(') {
            if draft.ends_with_equals() && draft.assigns() != AssignmentPrefix::No {
                return self.add_array(&draft, parts);
            }
            if !parts.simple.words.is_empty() {
                return Err(self.stop("a parenthesis inside a word"));
            }
        } else {
            self.no_parenthesis()?;
        }
        if parts.simple.words.is_empty() {
            self.check_first(&draft, parts);
            if let Some(assignment) = self.assignment(&draft) {
                parts.simple.assignments.push(assignment);
                self.count_word()?;
                return Ok(NextToken::More);
            }
        }
        self.add_word(draft, parts)?;
        Ok(NextToken::More)
    }

    fn add_array(&mut self, draft: &WordBuilder, parts: &mut SimpleCommandBuilder) -> ParseResult<NextToken> {
        self.array()?;
        if !ends_word(self.peek()) {
            self.gap("an array with something behind it");
        }
        if !parts.simple.words.is_empty() {
            self.gap("an array that is not assigned");
        }
        if let Some(mut assignment) = self.assignment(draft) {
            assignment.value = ShellWord::Dynamic { why: "an array" };
            parts.simple.assignments.push(assignment);
        }
        Ok(NextToken::More)
    }

    fn assignment(&mut self, draft: &WordBuilder) -> Option<Assignment> {
        let name = draft.assigned_name()?.to_vec();
        self.check_joined(draft);
        if draft.assigns() == AssignmentPrefix::Oddly {
            self.gap("an assignment in some shells, a command in others");
        }
        Some(Assignment { name, value: draft.value() })
    }

    /// A word where the name of a command or an assignment may stand.
    fn check_first(&mut self, draft: &WordBuilder, parts: &SimpleCommandBuilder) {
        if draft.is_element() {
            self.gap("an assignment to an element, whose index is evaluated");
        }
        let Some(word) = draft.as_plain() else { return };
        if word.len() > 1 && matches!(word.first(), Some(b'{' | b'}')) {
            self.gap("a brace that zsh takes for the start or the end of a group");
        }
        let prefixed = !parts.simple.assignments.is_empty() || !parts.simple.redirections.is_empty();
        if prefixed && is_reserved(word) {
            self.gap("a reserved word behind an assignment or a redirection");
        }
    }

    fn add_word(&mut self, draft: WordBuilder, parts: &mut SimpleCommandBuilder) -> ParseResult<()> {
        if self.names_descriptor(&draft) {
            self.gap("a name before a redirection, which dash reads as a word");
        }
        if parts.splits == DashSplit::InDash {
            self.gap("a word behind `&>`, which dash reads as a command");
        }
        if draft.as_plain() == Some(b"}") {
            self.gap("a brace that closes a group in zsh");
        }
        if draft.as_plain().is_some_and(|word| word.iter().all(u8::is_ascii_digit)) && self.at_redirection() {
            // It is none for every shell: there is a continued line or an `&` between them.
            self.gap("a number that may be a descriptor");
        }
        let known = draft.assigned_name().is_some_and(|name| !evaluates(name));
        if draft.dynamic.is_some() && !known && takes_names(&parts.simple.words) {
            self.gap("a variable whose name is known only when it runs");
        }
        self.count_word()?;
        // Operators: zsh does not look for a program called `=` there, or stops.
        let operator = is_test(&parts.simple.words) && matches!(draft.as_plain(), Some(b"==" | b"=~"));
        let word = if operator { ShellWord::Literal(draft.bytes) } else { self.settle(draft) };
        parts.simple.words.push(word);
        Ok(())
    }

    fn check_parts(&mut self, parts: &SimpleCommandBuilder) {
        let simple = &parts.simple;
        if simple.words.is_empty() && !simple.redirections.is_empty() {
            self.gap("a redirection without a command, for which zsh runs `cat`");
        }
        if parts.splits == DashSplit::InDash && changes_the_shell(simple) {
            self.gap("`&>` behind a command that changes the shell: in dash it runs on its own");
        }
    }
}

fn is_test(words: &[ShellWord]) -> bool {
    matches!(words.first(), Some(ShellWord::Literal(name)) if matches!(name.as_slice(), b"[" | b"[[" | b"test"))
}
