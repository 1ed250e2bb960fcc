//! What "always" could mean for a question: rules from narrow to wide, each with the set it permits, in words.
//!
//! INVARIANT: a candidate answers the whole question. Where one asked part cannot be covered by a rule (a path, a variable,
//! something dynamic, a rule that says `ask`), storing the others would only look like an answer, so there is none.
//!
//! INVARIANT: only a program of [`WIDER`] gets a rule that permits more than the arguments that were shown.

use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, Call, Decision, PolicyLayer, Risk, RuleFamily};

use crate::command::{CommandPattern, CommandRule, RuleConditions, SessionTerms};
use crate::hosts;
use crate::judgement::{Judgement, JudgementPart, PartGiven, PartKind, RuleSource};

/// One thing that "always" could store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantCandidate {
    pub scope: CandidateScope,
    /// One for each command that was asked about, in their order. None for a host.
    pub rules: Vec<CommandRule>,
    /// Exactly what it would permit, for the person who answers.
    pub permits: String,
    /// The same as text of a policy file of the operator: what is shown is what is stored.
    pub stored: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CandidateScope {
    /// These arguments and no others.
    Exact,
    /// These first words, in this directory and below it.
    Here,
    /// These first words, anywhere in the workspace.
    Prefix,
}

/// Where the action would happen. Both are absolute.
#[derive(Clone, Copy, Debug)]
pub struct ActionLocation<'a> {
    pub workspace: &'a Path,
    pub cwd: &'a Path,
}

/// Narrow first. Empty where nothing should be stored.
pub fn candidates(
    judgement: &Judgement,
    place: ActionLocation<'_>,
    given: &RuleConditions,
) -> Vec<GrantCandidate> {
    let asked = judgement.decision() == Decision::Ask && judgement.risk() < Risk::Critical;
    let Some(subjects) = asked.then(|| subjects(judgement)).flatten() else { return Vec::new() };
    let Some(home) = CandidateAnchor::of(place, &subjects, given) else { return Vec::new() };
    let mut candidates = vec![candidate(CandidateScope::Exact, &subjects, &home)];
    if judgement.risk() < Risk::High && subjects.iter().any(|subject| subject.prefix.is_some()) {
        candidates.extend(home.below.as_ref().map(|_| candidate(CandidateScope::Here, &subjects, &home)));
        candidates.push(candidate(CandidateScope::Prefix, &subjects, &home));
    }
    candidates
}

/// The host of a flow or a page, at its port, from anything in the workspace. `None` where a rule about it says something already.
pub(crate) fn host_candidate(judgement: &Judgement, call: &Call, workspace: &Path) -> Option<GrantCandidate> {
    let part =
        judgement.decisive().filter(|part| part.decision == Decision::Ask && part.risk < Risk::High)?;
    let host = hosts::sought(call).filter(|_| hosts::is_unknown(&part.rule))?;
    let workspace = readable_word(&ByteString::from(workspace))?;
    Some(GrantCandidate {
        scope: CandidateScope::Exact,
        rules: Vec::new(),
        permits: format!("every connection to `{host}` from this workspace"),
        stored: format!("[[workspaces.{}.host]]\nallow = [{}]\n", toml(&workspace), toml(&host.to_string())),
    })
}

/// A rule too long to be read to its end is not consent.
const MOST_COMMANDS: usize = 5;
const MOST_BYTES: usize = 1000;

/// One command that was asked about and that a rule can be about.
#[derive(Debug, PartialEq, Eq)]
struct SuggestionSubject {
    argv: Vec<String>,
    /// How many of the first words a wider rule would keep.
    prefix: Option<usize>,
    /// The file that holds what would run: it can be another one elsewhere and later.
    script: Option<String>,
}

/// Where a rule would hold, in names that a policy file can hold.
struct CandidateAnchor {
    workspace: String,
    /// The working directory, where it is below the workspace; relative to it.
    below: Option<String>,
    given: RuleConditions,
}

impl CandidateAnchor {
    fn of(place: ActionLocation<'_>, subjects: &[SuggestionSubject], given: &RuleConditions) -> Option<Self> {
        let variables = given.variables.iter().flatten();
        if variables.map(String::len).sum::<usize>() > MOST_BYTES {
            return None;
        }
        let named = |path: &Path| readable_word(&ByteString::from(path));
        let workspace = named(place.workspace)?;
        let below = place.cwd.strip_prefix(place.workspace).ok().map(named);
        // What is bound to its directory has none outside.
        let bound = subjects.iter().any(|subject| subject.script.is_some());
        match below {
            None | Some(None) if bound => None,
            below => Some(Self {
                workspace,
                below: below.flatten().filter(|below| !below.is_empty()),
                given: given.clone(),
            }),
        }
    }
}

fn subjects(judgement: &Judgement) -> Option<Vec<SuggestionSubject>> {
    let mut subjects: Vec<SuggestionSubject> = Vec::new();
    for part in judgement.parts().iter().filter(|part| part.decision == Decision::Ask) {
        let subject = subject(part)?;
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
        if subjects.len() > MOST_COMMANDS {
            return None;
        }
    }
    (!subjects.is_empty()).then_some(subjects)
}

fn subject(part: &JudgementPart) -> Option<SuggestionSubject> {
    // A rule that says `ask` beats one that says `allow`: storing the second would change nothing.
    if part.aspect != PartKind::Command || part.origin.is_some() {
        return None;
    }
    // A rule says what the call is given; what a script or a wrapper gives to one command, it cannot say.
    if part.given == PartGiven::Other {
        return None;
    }
    let argv = readable(&part.argv)?;
    let script = match content(&argv) {
        DecidingInput::Shown => None,
        DecidingInput::File(script) => Some(script),
        DecidingInput::Unsaid => return None,
    };
    let steered = RuleFamily::Option.contains(&part.rule);
    let prefix = prefix(&argv).filter(|_| script.is_none() && !steered);
    Some(SuggestionSubject { argv, prefix, script })
}

/// The words of a rule, where a person who reads the rule sees what it is.
fn readable(argv: &[ByteString]) -> Option<Vec<String>> {
    let short = argv.iter().map(|word| word.as_slice().len()).sum::<usize>() <= MOST_BYTES;
    let words = argv.iter().map(readable_word).collect::<Option<Vec<_>>>();
    words.filter(|words| short && !words.is_empty())
}

fn readable_word(word: &ByteString) -> Option<String> {
    let text = std::str::from_utf8(word.as_slice()).ok()?;
    (word.display() == text).then(|| text.to_owned())
}

/// What decides what the command does.
#[derive(Debug, PartialEq, Eq)]
enum DecidingInput {
    /// Its arguments.
    Shown,
    /// A file that they name.
    File(String),
    /// Something that a rule should not stand for: inline code, standard input, another machine, another user.
    Unsaid,
}

fn content(argv: &[String]) -> DecidingInput {
    let [program, rest @ ..] = argv else { return DecidingInput::Unsaid };
    if is_one_of(NEVER, program) || (is_one_of(&["git"], program) && reaches_out(rest)) {
        return DecidingInput::Unsaid;
    }
    if is_one_of(INTERPRETERS, program) {
        return interpreted(program, rest);
    }
    if is_one_of(WRAPPERS, program) {
        return wrapped(rest);
    }
    let elsewhere = program.contains('/') && !SYSTEM.iter().any(|system| program.starts_with(system));
    if elsewhere { DecidingInput::File(program.clone()) } else { DecidingInput::Shown }
}

/// The arguments of a command that may name the file it executes, the likeliest first: the program itself where it is
/// called by a path of its own, or the script of an interpreter. Empty where the command line has the code, or names none.
pub fn executed_words(argv: &[ByteString]) -> Vec<&ByteString> {
    let Some((program, arguments)) = argv.split_first() else { return Vec::new() };
    let name = String::from_utf8_lossy(program.as_slice());
    if !is_one_of(INTERPRETERS, &name) {
        let is_own = name.contains('/') && !SYSTEM.iter().any(|system| name.starts_with(system));
        return if is_own { vec![program] } else { Vec::new() };
    }
    let code = if is_one_of(SHELLS, &name) { SHELL_CODE } else { CODE };
    let carries = |word: &ByteString| {
        let word = String::from_utf8_lossy(word.as_slice());
        code.iter().any(|option| word == *option || option.starts_with("--") && word.starts_with(option))
    };
    let options = arguments.iter().take_while(|word| word.as_slice().starts_with(b"-"));
    if options.clone().any(carries) {
        return Vec::new();
    }
    let is_first = options.count() == 0;
    let words = arguments.iter().filter(|word| !word.as_slice().starts_with(b"-"));
    // Behind an option a word may be its value: only what looks like a file is one.
    let is_file = |(at, word): &(usize, &ByteString)| {
        is_first && *at == 0 || word.as_slice().iter().any(|byte| matches!(byte, b'.' | b'/'))
    };
    words.enumerate().filter(is_file).map(|(_, word)| word).collect()
}

/// Options of interpreters behind which the code itself or the name of a module stands, and those that only print.
const CODE: &[&str] =
    &["-c", "-e", "-E", "-m", "-p", "-r", "-V", "-h", "--eval", "--print", "--version", "--help"];

const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "rbash", "sh", "yash", "zsh"];

/// The same of shells, where `-e` is something else.
const SHELL_CODE: &[&str] = &["-c", "-s", "--version", "--help"];

/// Directories that no workspace writes to.
const SYSTEM: [&str; 3] = ["/usr/", "/bin/", "/sbin/"];

/// Whether the subcommand of git talks to another repository.
fn reaches_out(arguments: &[String]) -> bool {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" => drop(words.next()),
            option if option.starts_with('-') => {}
            subcommand => return GIT_NETWORK.contains(&subcommand),
        }
    }
    false
}

/// A script file or a module by name. Whatever comes before it could be code.
fn interpreted(program: &str, arguments: &[String]) -> DecidingInput {
    match arguments {
        [flag, module, ..] if flag == "-m" && is_one_of(&["python", "pypy"], program) => {
            DecidingInput::File(module.clone())
        }
        [word, ..] if word.starts_with(['-', '+']) || ["eval", "repl", ""].contains(&word.as_str()) => {
            DecidingInput::Unsaid
        }
        [verb, script, ..] if verb == "run" && !script.starts_with('-') => {
            DecidingInput::File(script.clone())
        }
        [script, ..] => DecidingInput::File(script.clone()),
        [] => DecidingInput::Unsaid,
    }
}

/// The strictest of what could be the command inside: which word that is, only the wrapper knows.
fn wrapped(arguments: &[String]) -> DecidingInput {
    let mut found = DecidingInput::Shown;
    for (index, word) in arguments.iter().enumerate() {
        let inline = ["-c", "--call", "--eval", "-e"].contains(&word.as_str());
        if inline || is_one_of(NEVER, word) {
            return DecidingInput::Unsaid;
        }
        if is_one_of(INTERPRETERS, word) {
            match interpreted(word, arguments.get(index + 1..).unwrap_or_default()) {
                DecidingInput::Unsaid => return DecidingInput::Unsaid,
                inner => found = inner,
            }
        }
    }
    found
}

/// By its name, with or without a version: `/usr/bin/python3.11` is `python`.
fn is_one_of(names: &[&str], program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    names.contains(&name) || names.contains(&bare)
}

fn prefix(argv: &[String]) -> Option<usize> {
    let (program, rest) = argv.split_first()?;
    let (_, subcommands) = WIDER.iter().find(|(name, _)| name == program)?;
    match (subcommands, rest.first()) {
        ([], _) => Some(1),
        (subcommands, Some(word)) if subcommands.contains(&word.as_str()) => Some(2),
        _ => None,
    }
}

fn candidate(
    scope: CandidateScope,
    subjects: &[SuggestionSubject],
    home: &CandidateAnchor,
) -> GrantCandidate {
    let rules: Vec<CommandRule> = subjects.iter().map(|subject| rule(scope, subject, home)).collect();
    let permits: Vec<String> =
        rules.iter().zip(subjects).map(|(rule, subject)| permits(rule, subject)).collect();
    let stored = rules.iter().map(|rule| stored(rule, &home.workspace)).collect();
    GrantCandidate { scope, rules, permits: permits.join("; and "), stored }
}

fn rule(scope: CandidateScope, subject: &SuggestionSubject, home: &CandidateAnchor) -> CommandRule {
    let pattern = match (scope, subject.prefix) {
        (CandidateScope::Here | CandidateScope::Prefix, Some(words)) => {
            CommandPattern::Words(subject.argv.iter().take(words).cloned().collect())
        }
        _ => CommandPattern::Exact(subject.argv.clone()),
    };
    let bound = scope == CandidateScope::Here || subject.script.is_some();
    CommandRule {
        pattern,
        decision: Decision::Allow,
        here: home.below.as_ref().filter(|_| bound).map(PathBuf::from),
        given: home.given.clone(),
        source: RuleSource { layer: PolicyLayer::Operator, origin: None, reason: None },
    }
}

/// One table of the section of a workspace.
fn stored(rule: &CommandRule, workspace: &str) -> String {
    let (words, exact) = match &rule.pattern {
        CommandPattern::Exact(words) => (words, "exact = true\n"),
        CommandPattern::Words(words) => (words, ""),
    };
    let words: Vec<String> = words.iter().map(|word| toml(word)).collect();
    let here = rule.here.as_ref().and_then(|here| here.to_str());
    let here = here.map(|here| format!("within = {}\n", toml(here))).unwrap_or_default();
    let workspace = toml(workspace);
    let given = stored_given(&rule.given);
    format!("[[workspaces.{workspace}.command]]\nallow = [[{}]]\n{exact}{here}{given}", words.join(", "))
}

/// What a stored answer does not say was not given.
fn stored_given(given: &RuleConditions) -> String {
    let variables: Vec<String> = given.variables.iter().flatten().map(|text| toml(text)).collect();
    let variables = match variables.as_slice() {
        [] => String::new(),
        _ => format!("variables = [{}]\n", variables.join(", ")),
    };
    let nothing = RuleConditions::nothing();
    let stdin = given.stdin.as_ref().filter(|_| given.stdin != nothing.stdin);
    let stdin = stdin.map(|word| format!("stdin = {}\n", toml(word))).unwrap_or_default();
    format!("{variables}{stdin}{}", stored_session(given))
}

fn stored_session(given: &RuleConditions) -> String {
    let words = given.session.as_ref().and_then(SessionTerms::words).unwrap_or_default();
    let words: Vec<String> = words.iter().map(|word| toml(word)).collect();
    if words.is_empty() { String::new() } else { format!("with = [{}]\n", words.join(", ")) }
}

/// A basic string. Nothing but these two needs an escape: the text has no control characters.
fn toml(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn permits(rule: &CommandRule, subject: &SuggestionSubject) -> String {
    let where_to = match &rule.here {
        Some(here) => format!("in `{}` and below", ByteString::from(here.as_path()).display()),
        None => "in any directory of this workspace".to_owned(),
    };
    let script = subject.script.as_ref();
    let later = script.map(|script| format!(", whatever `{script}` contains by then")).unwrap_or_default();
    let given = permitted_given(&rule.given);
    match &rule.pattern {
        CommandPattern::Exact(words) => format!("exactly `{}`, {where_to}{later}{given}", line(words)),
        CommandPattern::Words(words) => {
            format!(
                "every command that begins with `{}`, with any further arguments, {where_to}{given}",
                line(words)
            )
        }
    }
}

fn permitted_given(given: &RuleConditions) -> String {
    let variables = match given.variables.as_deref() {
        None | Some([]) => String::new(),
        Some(variables) => format!(", with the variables {} and no others", line(variables)),
    };
    let stdin = match given.stdin.as_deref() {
        None | Some("none") => "",
        Some("terminal") => ", at a terminal or without input",
        Some(_) => ", with the same standard input",
    };
    let words = given.session.as_ref().and_then(SessionTerms::words).unwrap_or_default();
    let session = match words.as_slice() {
        [] => String::new(),
        words => format!(", in a session with no more than {}", line(words)),
    };
    format!("{variables}{stdin}{session}")
}

fn line(words: &[String]) -> String {
    words.iter().map(|word| ByteString::from(word.as_str()).quoted()).collect::<Vec<_>>().join(" ")
}

/// Programs of which the first words are worth a rule. What may follow chooses among files of the workspace, and each
/// path is judged on its own. The test runners run what the workspace contains whether or not more arguments follow.
const WIDER: &[(&str, &[&str])] = &[
    ("black", &[]),
    ("cargo", &["build", "check", "clippy", "doc", "fmt", "test"]),
    ("cp", &[]),
    (
        "git",
        &[
            "add",
            "checkout",
            "cherry-pick",
            "commit",
            "merge",
            "mv",
            "restore",
            "revert",
            "stash",
            "switch",
            "tag",
        ],
    ),
    ("gofmt", &[]),
    ("mkdir", &[]),
    ("mv", &[]),
    ("mypy", &[]),
    ("pytest", &[]),
    ("ruff", &["check", "format"]),
    ("rustfmt", &[]),
    ("touch", &[]),
    ("tsc", &[]),
];

/// Without a version at the end.
const INTERPRETERS: &[&str] = &[
    "ash",
    "bash",
    "bun",
    "csh",
    "dash",
    "deno",
    "elixir",
    "elvish",
    "escript",
    "expect",
    "fish",
    "groovy",
    "guile",
    "ipython",
    "julia",
    "kotlin",
    "ksh",
    "lua",
    "luajit",
    "mksh",
    "node",
    "nodejs",
    "nu",
    "osascript",
    "perl",
    "php",
    "powershell",
    "pwsh",
    "pypy",
    "python",
    "racket",
    "rbash",
    "rscript",
    "ruby",
    "runghc",
    "sbcl",
    "scala",
    "sh",
    "tclsh",
    "tcsh",
    "ts-node",
    "tsx",
    "wish",
    "xonsh",
    "yash",
    "zsh",
];

/// They run what their arguments say, or fetch and run it.
const WRAPPERS: &[&str] = &[
    "asdf",
    "bundle",
    "bunx",
    "chroot",
    "chrt",
    "command",
    "conda",
    "direnv",
    "env",
    "exec",
    "find",
    "flock",
    "hatch",
    "ionice",
    "mise",
    "nice",
    "nix",
    "nohup",
    "npm",
    "npx",
    "nsenter",
    "pdm",
    "pipenv",
    "pipx",
    "pnpm",
    "poetry",
    "rye",
    "script",
    "setsid",
    "stdbuf",
    "strace",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "tmux",
    "unshare",
    "uv",
    "uvx",
    "watch",
    "xvfb-run",
    "yarn",
];

/// Other users, other machines, code from the command line or from standard input.
const NEVER: &[&str] = &[
    ".", "aria2c", "awk", "aws", "az", "busybox", "curl", "dig", "doas", "docker", "eval", "ftp", "gawk",
    "gcloud", "gh", "glab", "host", "http", "https", "kubectl", "lftp", "mawk", "nawk", "nc", "ncat",
    "netcat", "nslookup", "parallel", "ping", "pkexec", "podman", "rsync", "run0", "scp", "sftp", "socat",
    "source", "ssh", "su", "sudo", "telnet", "toybox", "trap", "wget", "whois", "xargs", "xh",
];

const GIT_NETWORK: &[&str] = &[
    "clone",
    "fetch",
    "fetch-pack",
    "http-fetch",
    "http-push",
    "imap-send",
    "ls-remote",
    "p4",
    "pull",
    "push",
    "remote",
    "remote-http",
    "remote-https",
    "send-email",
    "send-pack",
    "submodule",
    "svn",
];

#[cfg(test)]
mod tests;
