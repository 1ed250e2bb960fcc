//! What a tool of an agent does, told by its name and its input.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringfence_runtime::authz::tools::BUILT_IN;
use serde_json::Value;

use super::patch;
use super::request::Request;
use crate::args::Agent;

/// What a tool call would do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Shell(String),
    Read(Vec<PathBuf>),
    Write(Vec<PathBuf>),
    List(Vec<PathBuf>),
    /// Shows the content of many files at once, hidden ones among them.
    Search(Vec<PathBuf>),
    Fetch(String),
    /// Nothing to the machine, or something that is judged when it does.
    Own,
    /// Runs commands of its own on the host, before any hook sees them.
    Hosted,
    /// Something that is not known here: what another program does for the agent.
    Foreign,
    /// The tool is known, and its input is not what it takes.
    Malformed(&'static str),
}

/// What the input of a tool is about.
#[derive(Clone, Copy)]
enum Kind {
    Shell,
    Read,
    Write,
    List,
    Glob,
    Search,
    Fetch,
    Patch,
    Own,
    Hosted,
}

type Tools = &'static [(&'static str, Kind)];

const CLAUDE_CODE: Tools = &[
    ("Bash", Kind::Shell),
    ("Monitor", Kind::Shell),
    ("Read", Kind::Read),
    ("Write", Kind::Write),
    ("Edit", Kind::Write),
    ("MultiEdit", Kind::Write),
    ("NotebookEdit", Kind::Write),
    ("LS", Kind::List),
    ("Glob", Kind::Glob),
    ("Grep", Kind::Search),
    ("WebFetch", Kind::Fetch),
    ("Agent", Kind::Own),
    ("Task", Kind::Own),
    ("TaskCreate", Kind::Own),
    ("TaskGet", Kind::Own),
    ("TaskList", Kind::Own),
    ("TaskOutput", Kind::Own),
    ("TaskStop", Kind::Own),
    ("TaskUpdate", Kind::Own),
    ("TodoWrite", Kind::Own),
    ("ToolSearch", Kind::Own),
    ("Skill", Kind::Hosted),
    ("ListAgents", Kind::Own),
    ("ReportFindings", Kind::Own),
    ("AskUserQuestion", Kind::Own),
    ("EnterPlanMode", Kind::Own),
    ("ExitPlanMode", Kind::Own),
    ("BashOutput", Kind::Own),
    ("KillShell", Kind::Own),
];

const CODEX: Tools = &[("Bash", Kind::Shell), ("apply_patch", Kind::Patch)];

const GEMINI: Tools = &[
    ("run_shell_command", Kind::Shell),
    ("read_file", Kind::Read),
    ("write_file", Kind::Write),
    ("replace", Kind::Write),
    ("list_directory", Kind::List),
    ("glob", Kind::Glob),
    ("search_file_content", Kind::Search),
    ("grep_search", Kind::Search),
    ("write_todos", Kind::Own),
];

const CURSOR: Tools = &[
    ("Shell", Kind::Shell),
    ("Read", Kind::Read),
    ("Write", Kind::Write),
    ("Delete", Kind::Write),
    ("Grep", Kind::Search),
    ("Task", Kind::Own),
];

const GOOSE: Tools = &[
    ("developer__shell", Kind::Shell),
    ("shell", Kind::Shell),
    ("developer__text_editor", Kind::Write),
    ("write", Kind::Write),
    ("edit", Kind::Write),
    ("read", Kind::Read),
    ("tree", Kind::List),
];

const OPENCODE: Tools = &[
    ("bash", Kind::Shell),
    ("read", Kind::Read),
    ("write", Kind::Write),
    ("edit", Kind::Write),
    ("patch", Kind::Patch),
    ("apply_patch", Kind::Patch),
    ("list", Kind::List),
    ("glob", Kind::Glob),
    ("grep", Kind::Search),
    ("webfetch", Kind::Fetch),
    ("task", Kind::Own),
    ("todowrite", Kind::Own),
    ("todoread", Kind::Own),
    ("skill", Kind::Hosted),
    ("question", Kind::Own),
];

fn tools(agent: Agent) -> Tools {
    match agent {
        Agent::ClaudeCode => CLAUDE_CODE,
        Agent::Codex => CODEX,
        Agent::Gemini => GEMINI,
        Agent::Cursor => CURSOR,
        Agent::Goose => GOOSE,
        Agent::Opencode => OPENCODE,
    }
}

/// Tools of `ringfence mcp`, which judges each call itself.
fn is_ours(tool: &str) -> bool {
    const PROMPT: &str = "permission_prompt";
    let own = |prefix: &&str| {
        tool.strip_prefix(prefix).is_some_and(|name| name == PROMPT || BUILT_IN.contains(&name))
    };
    ["mcp__ringfence__", "mcp_ringfence_", "ringfence__", "ringfence_"].iter().any(own)
}

pub(super) fn of(request: &Request) -> Deed {
    if is_ours(&request.tool) {
        return Deed::Own;
    }
    let Some((_, kind)) = tools(request.agent).iter().find(|(name, _)| *name == request.tool) else {
        return Deed::Foreign;
    };
    let text = |key| request.text(key).filter(|text| !text.contains('\0')).map(str::to_owned);
    match kind {
        Kind::Own => Deed::Own,
        Kind::Hosted => Deed::Hosted,
        Kind::Shell => text("command").map_or(Deed::Malformed("command"), |command| shell(request, command)),
        Kind::Fetch => text("url").map_or(Deed::Malformed("url"), Deed::Fetch),
        Kind::Patch => patched(request).map_or(Deed::Malformed("a patch"), Deed::Write),
        Kind::Read => some_paths(request).map_or(Deed::Malformed(FILE), Deed::Read),
        Kind::Write => some_paths(request).map_or(Deed::Malformed(FILE), Deed::Write),
        Kind::List => paths_or_here(request).map_or(Deed::Malformed(DIRECTORY), Deed::List),
        Kind::Glob => globbed(request).map_or(Deed::Malformed(PATTERN), Deed::List),
        Kind::Search => paths_or_here(request).map_or(Deed::Malformed(DIRECTORY), Deed::Search),
    }
}

const FILE: &str = "the path of a file";
const DIRECTORY: &str = "path of a directory that can be judged";
const PATTERN: &str = "pattern that can be judged";

/// Every path that is named, under whatever key: which of them the agent will use is its own affair.
fn paths(request: &Request) -> Option<Vec<PathBuf>> {
    const KEYS: [&str; 7] =
        ["file_path", "notebook_path", "absolute_path", "filePath", "path", "dir_path", "target_file"];
    let named = KEYS.iter().filter_map(|key| request.input.get(*key));
    named.map(|value| value.as_str().and_then(|path| request.path(path))).collect()
}

fn some_paths(request: &Request) -> Option<Vec<PathBuf>> {
    paths(request).filter(|paths| !paths.is_empty())
}

fn paths_or_here(request: &Request) -> Option<Vec<PathBuf>> {
    paths(request).map(|paths| if paths.is_empty() { vec![request.cwd.clone()] } else { paths })
}

/// The directories a pattern starts from, and how far it leads down from each by letter. What steps up is not followed.
fn globbed(request: &Request) -> Option<Vec<PathBuf>> {
    let mut places = paths_or_here(request)?;
    let Some(pattern) = request.input.get("pattern") else { return Some(places) };
    let pattern = pattern.as_str().filter(|pattern| !pattern.contains('\0') && !pattern.contains(".."))?;
    let literal: PathBuf = Path::new(pattern).iter().take_while(|part| is_literal(part)).collect();
    let whole = literal.iter().count() == Path::new(pattern).iter().count();
    // An alternative may begin anew: `{a,/etc}/*`.
    if !whole && (pattern.contains("{/") || pattern.contains(",/") || pattern.contains('~')) {
        return None;
    }
    request.path(literal.to_str().filter(|text| !text.is_empty()).unwrap_or("."))?;
    // The deepest directory that is there: what is below it is named, and nothing else.
    let led = |place: &PathBuf| place.join(&literal).ancestors().find(|at| at.is_dir()).map(Path::to_owned);
    let led: Vec<PathBuf> = places.iter().filter_map(led).collect();
    places.extend(led);
    places.dedup();
    Some(places)
}

fn is_literal(part: &OsStr) -> bool {
    !part.to_string_lossy().contains(['*', '?', '[', ']', '{', '}', '(', ')', '!', '@', '+', '\\'])
}

/// There is no `apply_patch` inside the fence, and Codex needs none: it applies a patch itself.
fn shell(request: &Request, command: String) -> Deed {
    let patch = if request.agent == Agent::Codex { patch::of_command(&command) } else { None };
    match patch {
        Some(patch) => patch::files(request, &[patch]).map_or(Deed::Malformed("a patch"), Deed::Write),
        None => Deed::Shell(command),
    }
}

/// The files of a patch.
fn patched(request: &Request) -> Option<Vec<PathBuf>> {
    // All of them: which one the agent takes is its own affair.
    let given = ["command", "patchText", "input"].iter().filter_map(|key| request.input.get(*key));
    let texts: Vec<&str> = given.map(Value::as_str).collect::<Option<_>>()?;
    patch::files(request, &texts)
}
