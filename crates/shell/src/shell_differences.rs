//! What looks harmless word by word, and is not in one of the shells.
//!
//! Three families: words that a builtin evaluates as arithmetic (there `a[$(…)]` runs a command, and the value of a
//! variable is evaluated in turn), variables that steer the shell itself, and names that are grammar in zsh only.

use super::expansion::STATUS;
use super::reader::CharacterSet;
use super::{Assignment, ShellWord, SimpleCommand};

/// Why a command does more than its words say.
pub(super) fn pitfall(simple: &SimpleCommand, characters: CharacterSet) -> Option<&'static str> {
    let assigned = simple.assignments.iter().find_map(|assignment| assigned(assignment, characters));
    assigned.or_else(|| called(&simple.words))
}

/// Whether running it in a process of its own would make a difference to what follows.
pub(super) fn changes_the_shell(simple: &SimpleCommand) -> bool {
    let Some(ShellWord::Literal(name)) = simple.words.first() else { return true };
    has(SHELL_CHANGERS, name)
}

/// Whether it changes the directory of its shell.
pub(super) fn moves(simple: &SimpleCommand) -> bool {
    called_builtin(&simple.words).is_some_and(|(name, _)| has("cd chdir popd pushd", name))
}

/// Whether the next word behind these is the name of a variable, or a name and a value.
pub(super) fn takes_names(words: &[ShellWord]) -> bool {
    called_builtin(words).is_some_and(|(name, _)| has(DECLARERS, name) || has(SETTERS, name))
}

/// Whether a value that is known only when it runs may do harm in this variable.
pub(super) fn evaluates(name: &[u8]) -> bool {
    has(INTEGERS, name) || has(SWITCHES, name)
}

const SHELL_CHANGERS: &str = ". alias builtin cd chdir command declare emulate eval exec exit export hash local popd pushd \
    read readonly return set setopt shift shopt source trap typeset ulimit umask unalias unset unsetopt";

/// Integers of bash or zsh: what is assigned to them is evaluated.
const INTEGERS: &str = "ARGC BASHPID COLUMNS EGID ERRNO EUID FUNCNEST GID HISTCMD HISTSIZE KEYTIMEOUT LINENO LINES LISTMAX \
    LOGCHECK MAILCHECK OPTIND PPID RANDOM REPORTMEMORY REPORTTIME SAVEHIST SECONDS SHLVL SRANDOM TMOUT TRY_BLOCK_ERROR \
    TRY_BLOCK_INTERRUPT TTYIDLE UID ZLE_RPROMPT_INDENT ZSH_SUBSHELL status";

/// Variables in which bash or zsh keeps aliases, functions, paths or the way it reads.
const SWITCHES: &str = "BASH_ALIASES BASH_CMDS BASH_COMPAT HISTCHARS MODULE_PATH NULLCMD POSIXLY_CORRECT PROMPT4 PS4 READNULLCMD \
    aliases argv cdpath commands dirstack dis_aliases dis_functions dis_galiases dis_saliases fpath functions galiases histchars module_path \
    nameddirs options path saliases";

const CHARACTER_SETS: &str = "LANG LC_ALL LC_CTYPE";

/// Builtins that take numbers, which are expressions in zsh.
const COUNTERS: &str = "break bye continue exit let logout return shift";

/// Builtins that take names and values of variables. An index is evaluated, and `declare -a x='($(…))'` is an array.
const DECLARERS: &str = "declare export local private readonly typeset";

/// Builtins that take names of variables.
const SETTERS: &str = "getopts mapfile print read readarray set unset vared";

fn assigned(assignment: &Assignment, characters: CharacterSet) -> Option<&'static str> {
    let name = assignment.name.as_slice();
    if has(SWITCHES, name) {
        return Some("a variable that steers the shell");
    }
    if has(INTEGERS, name) && !is_number(&assignment.value) {
        return Some("a variable whose value is evaluated");
    }
    if has(CHARACTER_SETS, name) && characters == CharacterSet::Any {
        return Some("a change of the character set before other characters");
    }
    may_run(&assignment.value).then_some("a value that runs a command where it is evaluated")
}

fn called(words: &[ShellWord]) -> Option<&'static str> {
    let (name, arguments) = called_builtin(words)?;
    let evaluated = match name {
        b"-" | b"foreach" | b"nocorrect" | b"noglob" | b"repeat" => {
            return Some("a word that is grammar in zsh");
        }
        b"alias" if !arguments.is_empty() => return Some("an alias changes what is read after it"),
        b"[[" if arguments.last().and_then(literal) != Some(b"]]") => return Some("`[[` without its end"),
        b"printf" => return printed(arguments),
        b"[" | b"[[" | b"test" => {
            arguments.iter().any(may_run)
                || (0..arguments.len()).any(|at| is_operand_evaluated(arguments, at))
        }
        _ if has(COUNTERS, name) => !arguments.iter().all(is_number),
        _ if has(DECLARERS, name) => arguments.iter().any(|word| sets_oddly(word) || is_odd_option(word)),
        _ if has(SETTERS, name) => arguments.iter().any(sets_oddly),
        b"float" | b"integer" => true,
        _ => false,
    };
    evaluated.then_some("an argument that is evaluated")
}

/// The name and the arguments, behind the words that only say that it is to be a builtin.
fn called_builtin(words: &[ShellWord]) -> Option<(&[u8], &[ShellWord])> {
    let wrapper = |word: &&ShellWord| {
        let word = literal(word).unwrap_or_default();
        matches!(word, b"builtin" | b"command") || word.starts_with(b"-") && word != b"-"
    };
    let wrapped = matches!(literal(words.first()?)?, b"builtin" | b"command");
    let skipped = if wrapped { words.iter().take_while(wrapper).count() } else { 0 };
    let (name, arguments) = words.get(skipped..)?.split_first()?;
    Some((literal(name)?, arguments))
}

/// `printf -v name` sets a variable; numbers are expressions in zsh.
fn printed(arguments: &[ShellWord]) -> Option<&'static str> {
    let end = arguments.first().is_some_and(|word| literal(word) == Some(b"--"));
    let (format, values) = arguments.get(usize::from(end)..)?.split_first()?;
    let Some(format) = literal(format) else {
        return Some("a format of `printf` that is known only when it runs");
    };
    if format.starts_with(b"-") {
        return Some("an option of `printf`");
    }
    if prints_text_only(format) || values.iter().all(is_number) {
        return None;
    }
    Some("a number for `printf` that zsh evaluates")
}

/// Every conversion is `%s`, `%b`, `%c`, `%q` or `%%`, without a width that is an argument.
fn prints_text_only(format: &[u8]) -> bool {
    let mut bytes = format.iter();
    while bytes.any(|byte| *byte == b'%') {
        let mut kinds =
            bytes.by_ref().skip_while(|byte| matches!(byte, b'-' | b'+' | b' ' | b'#' | b'.' | b'0'..=b'9'));
        if !matches!(kinds.next(), Some(b's' | b'b' | b'c' | b'q' | b'%')) {
            return false;
        }
    }
    true
}

/// Whether there is an operator at `at` with an operand that may run something.
fn is_operand_evaluated(arguments: &[ShellWord], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| arguments.get(at));
    let after = arguments.get(at.saturating_add(1));
    match arguments.get(at).and_then(literal) {
        Some(b"-eq" | b"-ne" | b"-lt" | b"-le" | b"-gt" | b"-ge") => {
            [before, after].into_iter().flatten().any(|operand| !is_number(operand))
        }
        Some(b"-t") => after.is_some_and(|operand| !is_number(operand)),
        Some(b"-v") => after.is_some_and(|operand| may_set(operand) || literal(operand).is_none()),
        _ => false,
    }
}

fn has(list: &str, name: &[u8]) -> bool {
    list.split_ascii_whitespace().any(|known| known.as_bytes() == name)
}

fn literal(word: &ShellWord) -> Option<&[u8]> {
    match word {
        ShellWord::Literal(bytes) => Some(bytes),
        _ => None,
    }
}

fn is_number(word: &ShellWord) -> bool {
    match word {
        ShellWord::Literal(bytes) => is_integer(bytes),
        ShellWord::Dynamic { why } => *why == STATUS,
        _ => false,
    }
}

fn is_integer(bytes: &[u8]) -> bool {
    let digits = bytes.strip_prefix(b"-").or_else(|| bytes.strip_prefix(b"+")).unwrap_or(bytes);
    digits.iter().all(u8::is_ascii_digit)
}

/// An option that makes a value more than text: a number, a reference, a field.
fn is_odd_option(word: &ShellWord) -> bool {
    match literal(word) {
        Some([b'-' | b'+', letters @ ..]) => !letters.iter().all(|letter| b"-xrgpulaAf".contains(letter)),
        _ => false,
    }
}

/// The name of a variable, or a name and a value, that does more than keep a text.
fn sets_oddly(word: &ShellWord) -> bool {
    let Some(bytes) = literal(word) else { return false };
    let mut halves = bytes.splitn(2, |byte| *byte == b'=');
    let name = halves.next().unwrap_or_default();
    let evaluated = has(INTEGERS, name) && !halves.next().is_some_and(is_integer);
    may_set(word) || evaluated || has(SWITCHES, name.strip_suffix(b"+").unwrap_or(name))
}

/// A name with an index, or the elements of an array.
fn may_set(word: &ShellWord) -> bool {
    let bytes = literal(word).unwrap_or_default();
    bytes.iter().any(|byte| matches!(byte, b'[' | b'(' | b'`'))
}

/// An index with something in it that runs: `a[$(…)]`.
fn may_run(word: &ShellWord) -> bool {
    let word = literal(word).unwrap_or_default();
    word.contains(&b'[') && word.iter().any(|byte| matches!(byte, b'$' | b'`'))
}
