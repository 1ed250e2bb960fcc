//! Shell text as the commands it would run. This crate parses and knows nothing else: no policy, no files, no process.
//!
//! One conservative grammar: its answer must hold for bash, dash and zsh. Where they differ, or where the text is beyond
//! this parser, the result has a [`ParseGap`], and a gap is never allowed. Nothing here fails: bad text is a script with a gap.
//!
//! INVARIANT: what any of the three shells runs of a script without a gap, and every file that a redirection opens, is
//! listed, word by word. `tests/shell_oracle` holds it against the shells. What a listed command runs in turn (`eval`,
//! `trap`, `command`, `xargs` …) is not looked at here.

mod expansion;
mod grammar;
mod heredoc;
mod keyword;
mod reader;
mod redirection;
mod shell_differences;
mod simple_command;
#[cfg(test)]
mod tests;
mod word;

use reader::{ParseOutput, ShellReader};

/// Every simple command of a script in every position, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub commands: Vec<SimpleCommand>,
    /// What could not be understood. One gap makes the whole script a miss.
    pub gaps: Vec<ParseGap>,
}

/// One simple command: `A=1 cmd arg > file`. Without words it only assigns or redirects: so do the variable of a loop,
/// `${x:=1}`, and what is behind a compound command (`done > file`). `time` and `!` before it are not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimpleCommand {
    pub words: Vec<ShellWord>,
    pub assignments: Vec<Assignment>,
    pub redirections: Vec<Redirection>,
    /// What its standard input is, where the script says so.
    pub input: CommandInput,
    /// The text it was read from, as written.
    pub text: String,
    /// How many constructs (substitution, subshell, function, `sh -c` body …) it is inside of.
    pub depth: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandInput {
    #[default]
    Inherited,
    /// From the command before it in a pipe.
    Pipe,
    /// From a here-document, a here-string or a file.
    Redirected,
}

/// One word after quote removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellWord {
    /// Exactly these bytes, whatever happens.
    Literal(Vec<u8>),
    /// A pattern that the shell replaces by file names, or leaves as it is. The literal text before the first wildcard
    /// is kept: what it expands to starts with it. In the pattern, wildcards that are quoted have a backslash.
    Glob { prefix: Vec<u8>, pattern: Vec<u8> },
    /// `~` or `~/rest` at the start: the home directory of the user that runs it, then these bytes.
    Home(Vec<u8>),
    /// Known only when it runs: any number of words, or none. `why` names the construct: "a variable", "a command
    /// substitution" … "an exit status" is one number.
    Dynamic { why: &'static str },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub name: Vec<u8>,
    pub value: ShellWord,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    pub target: RedirectionTarget,
    pub direction: RedirectionMode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectionTarget {
    File(ShellWord),
    /// Another descriptor of the same process (`2>&1`, `>&-`): no file is touched.
    Descriptor,
    /// A here-document or here-string; commands in it are listed on their own.
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectionMode {
    Read,
    Write,
    ReadWrite,
}

/// Something that makes the script a miss as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseGap {
    /// Byte offset in the text.
    pub at: usize,
    /// What it is, for people: "an unterminated quote", "nested deeper than 64".
    pub why: &'static str,
}

/// Reads a script. Linear in time, bounded in depth, total.
pub fn parse(text: &[u8]) -> Script {
    let mut output = ParseOutput::new(text);
    if let Some(at) = text.iter().position(|byte| *byte == 0) {
        output.gap(at, "a NUL byte");
    }
    // A stop has left its gap in the output: what was read until then stays.
    let _stopped = ShellReader::new(text, &mut output).script();
    output.script
}
