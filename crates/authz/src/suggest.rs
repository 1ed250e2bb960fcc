//! What "always" could mean for a question: rules from narrow to wide, each with the set it permits, in words.
//!
//! INVARIANT: a candidate answers the whole question. Where one asked part cannot be covered by a rule (a path, a variable,
//! something dynamic, a rule that says `ask`), storing the others would only look like an answer, so there is none.
//!
//! INVARIANT: only a program of [`WIDER`] gets a rule that permits more than the arguments that were shown.

use std::path::{Path, PathBuf};

use ringfence_types::{Bytes, Decision, Layer, Risk};

use crate::command::{CommandPattern, CommandRule};
use crate::judgement::{Aspect, Judgement, Part, RuleSource};

/// One thing that "always" could store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub scope: Scope,
    /// One for each command that was asked about, in their order. Never empty.
    pub rules: Vec<CommandRule>,
    /// Exactly what it would permit, for the person who answers.
    pub permits: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// These arguments and no others.
    Exact,
    /// These first words, in this directory and below it.
    Here,
    /// These first words, anywhere in the workspace.
    Prefix,
}

/// Where the action would happen. Both are absolute.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub workspace: &'a Path,
    pub cwd: &'a Path,
}

/// Narrow first. Empty where nothing should be stored.
pub fn candidates(judgement: &Judgement, place: Place<'_>) -> Vec<Candidate> {
    let asked = judgement.decision() == Decision::Ask && judgement.risk() < Risk::Critical;
    let Some(subjects) = asked.then(|| subjects(judgement, place)).flatten() else { return Vec::new() };
    let below = place.cwd.strip_prefix(place.workspace).ok().filter(|below| !below.as_os_str().is_empty());
    let mut candidates = vec![candidate(Scope::Exact, &subjects, below)];
    if judgement.risk() < Risk::High && subjects.iter().any(|subject| subject.prefix.is_some()) {
        candidates.extend(below.map(|_| candidate(Scope::Here, &subjects, below)));
        candidates.push(candidate(Scope::Prefix, &subjects, below));
    }
    candidates
}

/// A rule that nobody reads to its end is not consent.
const MOST_COMMANDS: usize = 5;
const MOST_BYTES: usize = 1000;

/// One command that was asked about and that a rule can be about.
#[derive(Debug, PartialEq, Eq)]
struct Subject {
    argv: Vec<String>,
    /// How many of the first words a wider rule would keep.
    prefix: Option<usize>,
    /// The file that holds what would run: it can be another one elsewhere and later.
    script: Option<String>,
}

fn subjects(judgement: &Judgement, place: Place<'_>) -> Option<Vec<Subject>> {
    let mut subjects: Vec<Subject> = Vec::new();
    for part in judgement.parts().iter().filter(|part| part.decision == Decision::Ask) {
        let subject = subject(part).filter(|subject| subject.script.is_none() || place.is_inside())?;
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
        if subjects.len() > MOST_COMMANDS {
            return None;
        }
    }
    (!subjects.is_empty()).then_some(subjects)
}

impl Place<'_> {
    fn is_inside(self) -> bool {
        self.cwd.starts_with(self.workspace)
    }
}

fn subject(part: &Part) -> Option<Subject> {
    // A rule that says `ask` beats one that says `allow`: storing the second would change nothing.
    if part.aspect != Aspect::Command || part.origin.is_some() {
        return None;
    }
    let argv = readable(&part.argv)?;
    let script = match content(&argv) {
        Content::Shown => None,
        Content::File(script) => Some(script),
        Content::Unsaid => return None,
    };
    let steered = part.rule.starts_with("option.");
    let prefix = prefix(&argv).filter(|_| script.is_none() && !steered);
    Some(Subject { argv, prefix, script })
}

/// The words of a rule, where a person who reads the rule sees what it is.
fn readable(argv: &[Bytes]) -> Option<Vec<String>> {
    let short = argv.iter().map(|word| word.as_slice().len()).sum::<usize>() <= MOST_BYTES;
    let word = |word: &Bytes| {
        let text = std::str::from_utf8(word.as_slice()).ok()?;
        (word.display() == text).then(|| text.to_owned())
    };
    argv.iter().map(word).collect::<Option<Vec<_>>>().filter(|words| short && !words.is_empty())
}

/// What decides what the command does.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// Its arguments.
    Shown,
    /// A file that they name.
    File(String),
    /// Something that a rule should not stand for: inline code, standard input, another machine, another user.
    Unsaid,
}

fn content(argv: &[String]) -> Content {
    let [program, rest @ ..] = argv else { return Content::Unsaid };
    if is_one_of(NEVER, program) || (is_one_of(&["git"], program) && reaches_out(rest)) {
        return Content::Unsaid;
    }
    if is_one_of(INTERPRETERS, program) {
        return interpreted(program, rest);
    }
    if is_one_of(WRAPPERS, program) {
        return wrapped(rest);
    }
    let elsewhere = program.contains('/') && !SYSTEM.iter().any(|system| program.starts_with(system));
    if elsewhere { Content::File(program.clone()) } else { Content::Shown }
}

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
fn interpreted(program: &str, arguments: &[String]) -> Content {
    match arguments {
        [flag, module, ..] if flag == "-m" && is_one_of(&["python", "pypy"], program) => {
            Content::File(module.clone())
        }
        [word, ..] if word.starts_with(['-', '+']) || ["eval", "repl", ""].contains(&word.as_str()) => {
            Content::Unsaid
        }
        [verb, script, ..] if verb == "run" && !script.starts_with('-') => Content::File(script.clone()),
        [script, ..] => Content::File(script.clone()),
        [] => Content::Unsaid,
    }
}

/// The strictest of what could be the command inside: which word that is, only the wrapper knows.
fn wrapped(arguments: &[String]) -> Content {
    let mut found = Content::Shown;
    for (index, word) in arguments.iter().enumerate() {
        let inline = ["-c", "--call", "--eval", "-e"].contains(&word.as_str());
        if inline || is_one_of(NEVER, word) {
            return Content::Unsaid;
        }
        if is_one_of(INTERPRETERS, word) {
            match interpreted(word, arguments.get(index + 1..).unwrap_or_default()) {
                Content::Unsaid => return Content::Unsaid,
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

fn candidate(scope: Scope, subjects: &[Subject], below: Option<&Path>) -> Candidate {
    let rules: Vec<CommandRule> = subjects.iter().map(|subject| rule(scope, subject, below)).collect();
    let permits: Vec<String> =
        rules.iter().zip(subjects).map(|(rule, subject)| permits(rule, subject)).collect();
    Candidate { scope, rules, permits: permits.join("; and ") }
}

fn rule(scope: Scope, subject: &Subject, below: Option<&Path>) -> CommandRule {
    let pattern = match (scope, subject.prefix) {
        (Scope::Here | Scope::Prefix, Some(words)) => {
            CommandPattern::Words(subject.argv.iter().take(words).cloned().collect())
        }
        _ => CommandPattern::Exact(subject.argv.clone()),
    };
    let bound = scope == Scope::Here || subject.script.is_some();
    CommandRule {
        pattern,
        decision: Decision::Allow,
        here: below.filter(|_| bound).map(PathBuf::from),
        source: RuleSource {
            layer: Layer::Operator,
            origin: None,
            reason: Some("a person answered `always here`".to_owned()),
        },
    }
}

fn permits(rule: &CommandRule, subject: &Subject) -> String {
    let where_to = match &rule.here {
        Some(here) => format!("in `{}` and below", Bytes::from(here.as_path()).display()),
        None => "in any directory of this workspace".to_owned(),
    };
    let script = subject.script.as_ref();
    let later = script.map(|script| format!(", whatever `{script}` contains by then")).unwrap_or_default();
    match &rule.pattern {
        CommandPattern::Exact(words) => format!("exactly `{}`, {where_to}{later}", line(words)),
        CommandPattern::Words(words) => {
            format!(
                "every command that begins with `{}`, with any further arguments, {where_to}",
                line(words)
            )
        }
    }
}

fn line(words: &[String]) -> String {
    words.iter().map(|word| Bytes::from(word.as_str()).quoted()).collect::<Vec<_>>().join(" ")
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
