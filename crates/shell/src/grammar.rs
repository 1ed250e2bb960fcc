//! Lists, pipes and compound commands.

use super::keyword::Keyword;
use super::reader::{ParseResult, ShellReader, ends_word};
use super::shell_differences::moves;
use super::word::WordBuilder;
use super::{Assignment, CommandInput, ShellWord, SimpleCommand};

impl ShellReader<'_, '_> {
    /// The whole text.
    pub(super) fn script(&mut self) -> ParseResult<()> {
        self.linebreaks()?;
        if self.peek().is_some() {
            self.list(self.surroundings.input)?;
        }
        if self.peek().is_some() {
            return Err(self.stop("not the grammar of a shell"));
        }
        self.nothing_announced()
    }

    fn nothing_announced(&mut self) -> ParseResult<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        Err(self.stop("a here-document without a body"))
    }

    /// Commands up to something that closes the list. At least one.
    pub(super) fn list(&mut self, input: CommandInput) -> ParseResult<()> {
        self.linebreaks()?;
        loop {
            self.and_or(input)?;
            if !self.separator()? {
                return Ok(());
            }
            self.linebreaks()?;
            if self.closes() {
                return Ok(());
            }
            self.tally.structures = self.tally.structures.saturating_add(1);
        }
    }

    fn separator(&mut self) -> ParseResult<bool> {
        self.blanks();
        if self.peek() == Some(b'#') {
            self.comment();
        }
        match (self.peek(), self.peek_at(1)) {
            (Some(b'\n'), _) => self.newline()?,
            (Some(b';'), Some(b';' | b'&' | b'|')) => return Ok(false),
            (Some(b'&'), Some(b'!' | b'|')) => {
                self.gap("`&` with an operator after it, which zsh reads as one");
                self.skip(1);
            }
            (Some(b';' | b'&'), _) => self.skip(1),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn and_or(&mut self, input: CommandInput) -> ParseResult<()> {
        self.pipeline(input)?;
        loop {
            self.blanks();
            if !(self.rest().starts_with(b"&&") || self.rest().starts_with(b"||")) {
                return Ok(());
            }
            self.skip(2);
            self.linebreaks()?;
            self.pipeline(input)?;
        }
    }

    fn pipeline(&mut self, input: CommandInput) -> ParseResult<()> {
        if self.prefixes(input)? == GrammarPrefix::Alone {
            return Ok(());
        }
        self.command(input)?;
        loop {
            self.blanks();
            if self.peek() != Some(b'|') || self.peek_at(1) == Some(b'|') {
                return Ok(());
            }
            self.skip(1);
            if self.peek() == Some(b'&') {
                self.skip(1);
            }
            self.linebreaks()?;
            self.command(CommandInput::Pipe)?;
        }
    }

    /// `!` and `time` before a pipeline.
    fn prefixes(&mut self, input: CommandInput) -> ParseResult<GrammarPrefix> {
        loop {
            match self.keyword() {
                Some(Keyword::Bang) => {
                    self.skip(1);
                    if self.peek() == Some(b'(') {
                        self.gap("`!(`, which is a pattern in some shells");
                    }
                    self.blanks();
                }
                Some(Keyword::Time) => {
                    if self.time(input)? == GrammarPrefix::Alone {
                        return Ok(GrammarPrefix::Alone);
                    }
                }
                _ => return Ok(GrammarPrefix::Before),
            }
        }
    }

    /// A keyword in bash and zsh, a program in dash, where its options are those of the program.
    fn time(&mut self, input: CommandInput) -> ParseResult<GrammarPrefix> {
        let start = self.at;
        self.skip(Keyword::Time.length());
        self.blanks();
        if self.rest().starts_with(b"-p") && ends_word(self.peek_at(2)) {
            self.skip(2);
            self.blanks();
        }
        if self.peek() == Some(b'-') {
            self.gap("an option of `time`, which only some shells know");
        }
        if !matches!(self.peek(), None | Some(b'\n' | b';' | b'&' | b'|' | b')' | b'#')) {
            return Ok(GrammarPrefix::Before);
        }
        let words = vec![ShellWord::Literal(b"time".to_vec())];
        self.emit(SimpleCommand { words, input, ..SimpleCommand::default() }, start)?;
        Ok(GrammarPrefix::Alone)
    }

    fn command(&mut self, input: CommandInput) -> ParseResult<()> {
        let around = std::mem::replace(&mut self.surroundings.input, input);
        let read = self.any_command(input);
        self.surroundings.input = around;
        read
    }

    fn any_command(&mut self, input: CommandInput) -> ParseResult<()> {
        let (start, first) = (self.at, self.output.script.commands.len());
        match self.keyword() {
            _ if self.rest().starts_with(b"((") => self.arithmetic_command()?,
            _ if self.peek() == Some(b'(') => self.subshell(input)?,
            Some(Keyword::Function) => return self.function_keyword(),
            Some(Keyword::Coproc) => return self.coproc(input),
            None | Some(Keyword::In) => return self.simple(input),
            Some(keyword) => {
                self.skip(keyword.length());
                self.nested(|reader| reader.compound(keyword, input, start))?;
                self.check_rounds(keyword, first);
            }
        }
        self.tally.structures = self.tally.structures.saturating_add(1);
        self.redirect_compound(first)
    }

    fn compound(&mut self, keyword: Keyword, input: CommandInput, start: usize) -> ParseResult<()> {
        match keyword {
            Keyword::OpenBrace => {
                self.list(input)?;
                self.expect(Keyword::CloseBrace)
            }
            Keyword::If => self.conditional(input),
            Keyword::While | Keyword::Until => {
                self.list(input)?;
                self.body(input)
            }
            Keyword::For => self.each(input, start),
            Keyword::Select => {
                self.gap("`select`, which dash does not know");
                self.each(input, start)
            }
            Keyword::Case => self.case(input),
            _ => Err(self.stop("a reserved word where a command is expected")),
        }
    }

    /// The second round of a loop starts where the first one ended. What a subshell in it does is forgotten.
    fn check_rounds(&mut self, keyword: Keyword, first: usize) {
        let again = matches!(keyword, Keyword::While | Keyword::Until | Keyword::For | Keyword::Select);
        let inside = self.output.script.commands.get(first..).unwrap_or_default();
        if again && inside.iter().any(|simple| simple.depth == self.depth && moves(simple)) {
            self.gap("a loop that changes its directory, so that every round may run elsewhere");
        }
    }

    fn expect(&mut self, keyword: Keyword) -> ParseResult<()> {
        if self.keyword() != Some(keyword) {
            return Err(self.stop("a reserved word is missing"));
        }
        self.skip(keyword.length());
        Ok(())
    }

    /// `do … done`.
    fn body(&mut self, input: CommandInput) -> ParseResult<()> {
        self.expect(Keyword::Do)?;
        self.list(input)?;
        self.expect(Keyword::Done)
    }

    fn conditional(&mut self, input: CommandInput) -> ParseResult<()> {
        self.list(input)?;
        self.expect(Keyword::Then)?;
        self.list(input)?;
        while self.keyword() == Some(Keyword::Elif) {
            self.expect(Keyword::Elif)?;
            self.list(input)?;
            self.expect(Keyword::Then)?;
            self.list(input)?;
        }
        if self.keyword() == Some(Keyword::Else) {
            self.expect(Keyword::Else)?;
            self.list(input)?;
        }
        self.expect(Keyword::Fi)
    }

    /// `for name in words; do … done`. The variable is an assignment like any other: it may be `PATH`.
    fn each(&mut self, input: CommandInput, start: usize) -> ParseResult<()> {
        self.blanks();
        if self.rest().starts_with(b"((") {
            self.arithmetic_command()?;
        } else {
            let name = self.name()?;
            let index = self.reserve()?;
            let value = self.each_values()?;
            let assignments = vec![Assignment { name, value }];
            self.fill(index, SimpleCommand { assignments, ..SimpleCommand::default() }, start);
        }
        if self.peek() == Some(b';') {
            self.skip(1);
        }
        self.linebreaks()?;
        self.body(input)
    }

    fn name(&mut self) -> ParseResult<Vec<u8>> {
        let length = self.rest().iter().position(|byte| !is_name_byte(*byte)).unwrap_or(self.rest().len());
        let name = self.slice(self.at, self.at.saturating_add(length));
        if !is_name(name) || !ends_word(self.peek_at(length)) {
            return Err(self.stop("a loop without a plain variable"));
        }
        self.skip(length);
        Ok(name.to_vec())
    }

    fn each_values(&mut self) -> ParseResult<ShellWord> {
        self.blanks();
        if self.keyword() != Some(Keyword::In) {
            return Ok(ShellWord::Dynamic { why: "an argument of the script" });
        }
        self.expect(Keyword::In)?;
        let mut only = None;
        let mut count = 0_usize;
        loop {
            self.blanks();
            match self.peek() {
                None | Some(b'\n' | b';' | b'#') => break,
                Some(byte) if super::reader::is_operator(byte) => {
                    return Err(self.stop("an operator between the words of a loop"));
                }
                Some(_) => only = Some(self.plain_word()?),
            }
            count = count.saturating_add(1);
        }
        Ok(only.filter(|_| count == 1).unwrap_or(ShellWord::Dynamic { why: "one of several words" }))
    }

    /// A word that is not part of a command.
    fn plain_word(&mut self) -> ParseResult<ShellWord> {
        let draft = self.word()?;
        self.count_word()?;
        self.no_parenthesis()?;
        Ok(self.settle(draft))
    }

    /// After a word: in zsh a parenthesis makes it a pattern that may run code.
    pub(super) fn no_parenthesis(&mut self) -> ParseResult<()> {
        if self.peek() == Some(b'(') || self.rest().starts_with(b"<(") || self.rest().starts_with(b">(") {
            return Err(self.stop("a parenthesis inside a word"));
        }
        Ok(())
    }

    fn case(&mut self, input: CommandInput) -> ParseResult<()> {
        self.blanks();
        if ends_word(self.peek()) {
            return Err(self.stop("`case` without a word"));
        }
        self.plain_word()?;
        self.linebreaks()?;
        self.expect(Keyword::In)?;
        loop {
            self.linebreaks()?;
            if self.keyword() == Some(Keyword::Esac) {
                return self.expect(Keyword::Esac);
            }
            self.case_item(input)?;
        }
    }

    fn case_item(&mut self, input: CommandInput) -> ParseResult<()> {
        self.patterns()?;
        self.linebreaks()?;
        if !self.closes() {
            self.list(input)?;
        }
        match (self.peek(), self.peek_at(1), self.peek_at(2)) {
            (Some(b';'), Some(b';'), Some(b'&')) => {
                Err(self.stop("an end of a case that only some shells know"))
            }
            (Some(b';'), Some(b';'), _) => {
                self.skip(2);
                Ok(())
            }
            _ if self.keyword() == Some(Keyword::Esac) => Ok(()),
            _ => Err(self.stop("an end of a case that only some shells know")),
        }
    }

    /// `(a|b)`, where the first parenthesis may be missing.
    fn patterns(&mut self) -> ParseResult<()> {
        if self.peek() == Some(b'(') {
            self.skip(1);
        }
        loop {
            self.blanks();
            if ends_word(self.peek()) {
                return Err(self.stop("a case without a pattern"));
            }
            self.plain_word()?;
            self.blanks();
            match self.peek() {
                Some(b'|') => self.skip(1),
                Some(b')') => {
                    self.skip(1);
                    return Ok(());
                }
                _ => return Err(self.stop("a case whose pattern does not end")),
            }
        }
    }

    fn subshell(&mut self, input: CommandInput) -> ParseResult<()> {
        self.skip(1);
        self.linebreaks()?;
        if self.peek() == Some(b')') {
            return Err(self.stop("`()`, which is a function in zsh"));
        }
        self.deeper(|reader| reader.list(input))?;
        self.close_parenthesis()
    }

    pub(super) fn close_parenthesis(&mut self) -> ParseResult<()> {
        if self.peek() != Some(b')') {
            return Err(self.stop("a parenthesis that is not closed"));
        }
        self.skip(1);
        Ok(())
    }

    /// The commands of `$(…)`, `<(…)`: from after the parenthesis to after its end.
    pub(super) fn substituted_list(&mut self) -> ParseResult<()> {
        let (pending, around) = (std::mem::take(&mut self.pending), self.surroundings);
        let before = std::mem::take(&mut self.tally);
        self.surroundings.substitution = true;
        self.surroundings.announced |= !pending.is_empty();
        self.linebreaks()?;
        if self.peek() != Some(b')') {
            self.deeper(|reader| reader.list(reader.surroundings.input))?;
        }
        self.nothing_announced()?;
        self.close_parenthesis()?;
        if self.tally.documents > 0 && self.tally.structures > 0 {
            // Bash 5.2 reads it, prints it and reads that again, and loses a `;` behind the document.
            self.gap("a here-document beside other commands in a substitution");
        }
        (self.pending, self.surroundings, self.tally) = (pending, around, before);
        Ok(())
    }

    /// What a function is called does not tell what it runs: wherever its name stands, the body may run, and a builtin
    /// of that name does not.
    pub(super) fn function(&mut self) -> ParseResult<()> {
        self.gap("a function is defined");
        self.skip(1);
        self.blanks();
        self.close_parenthesis()?;
        self.function_body()
    }

    fn function_keyword(&mut self) -> ParseResult<()> {
        self.gap("a function is defined");
        self.skip(Keyword::Function.length());
        self.blanks();
        if !ends_word(self.peek()) && self.keyword() != Some(Keyword::OpenBrace) {
            self.word()?;
        }
        self.blanks();
        if self.peek() == Some(b'(') {
            return self.function();
        }
        self.function_body()
    }

    fn function_body(&mut self) -> ParseResult<()> {
        self.linebreaks()?;
        self.deeper(|reader| reader.command(CommandInput::Inherited))
    }

    fn coproc(&mut self, input: CommandInput) -> ParseResult<()> {
        self.gap("`coproc`, which dash does not know");
        self.skip(Keyword::Coproc.length());
        self.blanks();
        self.deeper(|reader| reader.command(input))
    }

    /// `name=( … )`: from the parenthesis on.
    pub(super) fn array(&mut self) -> ParseResult<()> {
        self.skip(1);
        self.nested(|reader| {
            loop {
                reader.array_blanks()?;
                match reader.peek() {
                    Some(b')') => return reader.close_parenthesis(),
                    Some(b'[') => reader.gap("an index in an array"),
                    byte if ends_word(byte) => return Err(reader.stop("an array that does not end")),
                    _ => {}
                }
                let draft: WordBuilder = reader.word()?;
                reader.count_word()?;
                reader.no_parenthesis()?;
                reader.settle(draft);
            }
        })
    }

    fn array_blanks(&mut self) -> ParseResult<()> {
        loop {
            self.blanks();
            match self.peek() {
                Some(b'#') => self.comment(),
                Some(b'\n') => {
                    self.quoted_newline()?;
                    self.skip(1);
                }
                _ => return Ok(()),
            }
        }
    }

    /// A command that is known at once.
    pub(super) fn emit(&mut self, simple: SimpleCommand, start: usize) -> ParseResult<()> {
        let index = self.reserve()?;
        self.fill(index, simple, start);
        Ok(())
    }

    /// Puts a command where a place was reserved for it.
    pub(super) fn fill(&mut self, index: usize, mut simple: SimpleCommand, start: usize) {
        simple.text = self.quote(start);
        simple.depth = self.depth;
        if let Some(why) = super::shell_differences::pitfall(&simple, self.output.characters) {
            self.gap(why);
        }
        if let Some(place) = self.output.script.commands.get_mut(index) {
            *place = simple;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrammarPrefix {
    /// A command follows.
    Before,
    /// It was all there is.
    Alone,
}

pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

pub(super) fn is_name(word: &[u8]) -> bool {
    word.first().is_some_and(|byte| !byte.is_ascii_digit()) && word.iter().all(|byte| is_name_byte(*byte))
}
