//! The pattern of a rule, as it is written in a policy file.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandPattern {
    /// `git push --force`: the program, then subcommands in order, then options that must be present in any order and
    /// spelling. More arguments may follow.
    Words(Vec<String>),
    /// These arguments and no others.
    Exact(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandPatternError {
    #[error("a command pattern names no program")]
    Empty,
    #[error("a word of the command pattern `{0}` is empty")]
    EmptyWord(String),
    #[error("the command pattern `{0}` begins with an option instead of a program")]
    NoProgram(String),
    #[error(
        "`{word}` in the command pattern `{pattern}` is not plain text: variables, wildcards and operators mean nothing in it"
    )]
    Dynamic { pattern: String, word: String },
    #[error(
        "the list of allowed subcommands of `{0}` is empty, which allows nothing; leave it out to allow all"
    )]
    NothingAllowed(String),
}

impl CommandPattern {
    /// The words of one line, cut at blanks: `git push --force`.
    pub fn words(line: &str) -> Result<Self, CommandPatternError> {
        let pattern = Self::Words(line.split_whitespace().map(str::to_owned).collect());
        pattern.check()?;
        Ok(pattern)
    }

    /// Whether it can ever match what its author means by it.
    pub fn check(&self) -> Result<(), CommandPatternError> {
        let Some(program) = self.program() else { return Err(CommandPatternError::Empty) };
        if program.is_empty() {
            return Err(CommandPatternError::Empty);
        }
        if program.starts_with('-') {
            return Err(CommandPatternError::NoProgram(self.to_string()));
        }
        let dynamic = |word: &str| word.contains(['$', '`', '*', '?', ';', '|', '<', '>', '&', '\n', '\0']);
        match self {
            Self::Words(words) if words.iter().any(String::is_empty) => {
                Err(CommandPatternError::EmptyWord(self.to_string()))
            }
            Self::Words(words) => match words.iter().find(|word| dynamic(word)) {
                Some(word) => {
                    Err(CommandPatternError::Dynamic { pattern: self.to_string(), word: word.clone() })
                }
                None => Ok(()),
            },
            Self::Exact(_) if dynamic(program) => {
                Err(CommandPatternError::Dynamic { pattern: self.to_string(), word: program.to_owned() })
            }
            Self::Exact(_) => Ok(()),
        }
    }

    pub fn program(&self) -> Option<&str> {
        self.all().first().map(String::as_str)
    }

    fn all(&self) -> &[String] {
        match self {
            Self::Words(words) | Self::Exact(words) => words,
        }
    }

    pub(in crate::command) fn is_exact(&self) -> bool {
        matches!(self, Self::Exact(_))
    }

    /// Whether it says more than which program.
    pub(in crate::command) fn is_named(&self) -> bool {
        self.is_exact() || self.positional().next().is_some()
    }

    /// Whether it names a file as the program, not only a name.
    pub(in crate::command) fn names_file(&self) -> bool {
        self.program().is_some_and(|program| program.contains('/'))
    }

    pub(in crate::command) fn names_option(&self, option: &[u8]) -> bool {
        self.all().iter().skip(1).any(|word| word.split('=').next().unwrap_or(word).as_bytes() == option)
    }

    /// Words after the program that are no options.
    pub(super) fn positional(&self) -> impl Iterator<Item = &str> {
        self.all().iter().skip(1).map(String::as_str).filter(|word| !is_option(word))
    }

    pub(super) fn options(&self) -> impl Iterator<Item = &str> {
        self.all().iter().skip(1).map(String::as_str).filter(|word| is_option(word))
    }

    pub(super) fn arguments(&self) -> &[String] {
        self.all().get(1..).unwrap_or_default()
    }
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ringfence_types::ByteString::from(self.all().join(" ").as_str()).display())
    }
}

fn is_option(word: &str) -> bool {
    word.starts_with('-') && word.len() > 1
}
