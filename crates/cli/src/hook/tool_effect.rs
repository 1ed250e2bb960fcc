//! Classifies an agent's tool call by name and input.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringfence_authz::tools::BUILT_IN;
use serde_json::Value;

use super::patch;
use super::request::HookRequest;
use crate::args::AgentKind;

/// The effect of a tool call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToolEffect {
    Shell(String),
    Read(Vec<PathBuf>),
    Write(Vec<PathBuf>),
    List(Vec<PathBuf>),
    /// Shows the content of many files, including hidden ones.
    Search(Vec<PathBuf>),
    Fetch(String),
    /// No effect on the machine, or one that is evaluated when it happens.
    Own,
    /// Runs its own commands on the host, before any hook sees them.
    Hosted,
    /// An unknown tool, executed by another program.
    Foreign,
    /// A known tool with invalid input.
    Malformed(&'static str),
}

/// What the input of a tool describes.
#[derive(Clone, Copy)]
enum ToolInputKind {
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

type ToolTable = &'static [(&'static str, ToolInputKind)];

const CLAUDE_CODE: ToolTable = &[
    ("Bash", ToolInputKind::Shell),
    ("Monitor", ToolInputKind::Shell),
    ("Read", ToolInputKind::Read),
    ("Write", ToolInputKind::Write),
    ("Edit", ToolInputKind::Write),
    ("MultiEdit", ToolInputKind::Write),
    ("NotebookEdit", ToolInputKind::Write),
    ("LS", ToolInputKind::List),
    ("Glob", ToolInputKind::Glob),
    ("Grep", ToolInputKind::Search),
    ("WebFetch", ToolInputKind::Fetch),
    ("Agent", ToolInputKind::Own),
    ("Task", ToolInputKind::Own),
    ("TaskCreate", ToolInputKind::Own),
    ("TaskGet", ToolInputKind::Own),
    ("TaskList", ToolInputKind::Own),
    ("TaskOutput", ToolInputKind::Own),
    ("TaskStop", ToolInputKind::Own),
    ("TaskUpdate", ToolInputKind::Own),
    ("TodoWrite", ToolInputKind::Own),
    ("ToolSearch", ToolInputKind::Own),
    ("Skill", ToolInputKind::Hosted),
    ("ListAgents", ToolInputKind::Own),
    ("ReportFindings", ToolInputKind::Own),
    ("AskUserQuestion", ToolInputKind::Own),
    ("EnterPlanMode", ToolInputKind::Own),
    ("ExitPlanMode", ToolInputKind::Own),
    ("BashOutput", ToolInputKind::Own),
    ("KillShell", ToolInputKind::Own),
];

const CODEX: ToolTable = &[("Bash", ToolInputKind::Shell), ("apply_patch", ToolInputKind::Patch)];

const GEMINI: ToolTable = &[
    ("run_shell_command", ToolInputKind::Shell),
    ("read_file", ToolInputKind::Read),
    ("write_file", ToolInputKind::Write),
    ("replace", ToolInputKind::Write),
    ("list_directory", ToolInputKind::List),
    ("glob", ToolInputKind::Glob),
    ("search_file_content", ToolInputKind::Search),
    ("grep_search", ToolInputKind::Search),
    ("write_todos", ToolInputKind::Own),
];

const CURSOR: ToolTable = &[
    ("Shell", ToolInputKind::Shell),
    ("Read", ToolInputKind::Read),
    ("Write", ToolInputKind::Write),
    ("Delete", ToolInputKind::Write),
    ("Grep", ToolInputKind::Search),
    ("Task", ToolInputKind::Own),
];

const GOOSE: ToolTable = &[
    ("developer__shell", ToolInputKind::Shell),
    ("shell", ToolInputKind::Shell),
    ("developer__text_editor", ToolInputKind::Write),
    ("write", ToolInputKind::Write),
    ("edit", ToolInputKind::Write),
    ("read", ToolInputKind::Read),
    ("tree", ToolInputKind::List),
];

const OPENCODE: ToolTable = &[
    ("bash", ToolInputKind::Shell),
    ("read", ToolInputKind::Read),
    ("write", ToolInputKind::Write),
    ("edit", ToolInputKind::Write),
    ("patch", ToolInputKind::Patch),
    ("apply_patch", ToolInputKind::Patch),
    ("list", ToolInputKind::List),
    ("glob", ToolInputKind::Glob),
    ("grep", ToolInputKind::Search),
    ("webfetch", ToolInputKind::Fetch),
    ("task", ToolInputKind::Own),
    ("todowrite", ToolInputKind::Own),
    ("todoread", ToolInputKind::Own),
    ("skill", ToolInputKind::Hosted),
    ("question", ToolInputKind::Own),
];

fn tools(agent: AgentKind) -> ToolTable {
    match agent {
        AgentKind::ClaudeCode => CLAUDE_CODE,
        AgentKind::Codex => CODEX,
        AgentKind::Gemini => GEMINI,
        AgentKind::Cursor => CURSOR,
        AgentKind::Goose => GOOSE,
        AgentKind::Opencode => OPENCODE,
    }
}

/// Tools of `ringfence mcp`, which evaluates each call itself.
fn is_ours(tool: &str) -> bool {
    const PROMPT: &str = "permission_prompt";
    let own = |prefix: &&str| {
        tool.strip_prefix(prefix).is_some_and(|name| name == PROMPT || BUILT_IN.contains(&name))
    };
    ["mcp__ringfence__", "mcp_ringfence_", "ringfence__", "ringfence_"].iter().any(own)
}

pub(super) fn of(request: &HookRequest) -> ToolEffect {
    if is_ours(&request.tool) {
        return ToolEffect::Own;
    }
    let Some((_, kind)) = tools(request.agent).iter().find(|(name, _)| *name == request.tool) else {
        return ToolEffect::Foreign;
    };
    let text = |key| request.text(key).filter(|text| !text.contains('\0')).map(str::to_owned);
    match kind {
        ToolInputKind::Own => ToolEffect::Own,
        ToolInputKind::Hosted => ToolEffect::Hosted,
        ToolInputKind::Shell => {
            text("command").map_or(ToolEffect::Malformed("command"), |command| shell(request, command))
        }
        ToolInputKind::Fetch => text("url").map_or(ToolEffect::Malformed("url"), ToolEffect::Fetch),
        ToolInputKind::Patch => patched(request).map_or(ToolEffect::Malformed("a patch"), ToolEffect::Write),
        ToolInputKind::Read => some_paths(request).map_or(ToolEffect::Malformed(FILE), ToolEffect::Read),
        ToolInputKind::Write if is_searched_for(request) => ToolEffect::Malformed(EXISTING),
        ToolInputKind::Write => some_paths(request).map_or(ToolEffect::Malformed(FILE), ToolEffect::Write),
        ToolInputKind::List => {
            paths_or_here(request).map_or(ToolEffect::Malformed(DIRECTORY), ToolEffect::List)
        }
        ToolInputKind::Glob => globbed(request).map_or(ToolEffect::Malformed(PATTERN), ToolEffect::List),
        ToolInputKind::Search => {
            paths_or_here(request).map_or(ToolEffect::Malformed(DIRECTORY), ToolEffect::Search)
        }
    }
}

const FILE: &str = "the path of a file";
const EXISTING: &str = "absolute path, or path of a file that exists";
const DIRECTORY: &str = "path of a directory that can be judged";
const PATTERN: &str = "pattern that can be judged";

const PATH_KEYS: [&str; 7] =
    ["file_path", "notebook_path", "absolute_path", "filePath", "path", "dir_path", "target_file"];

/// Whether an agent may name a file under this key.
pub(super) fn is_path_key(key: &str) -> bool {
    PATH_KEYS.contains(&key)
}

/// Every named path, under any key, because only the agent knows which one it uses.
fn paths(request: &HookRequest) -> Option<Vec<PathBuf>> {
    let named = PATH_KEYS.iter().filter_map(|key| request.input.get(*key));
    named.map(|value| value.as_str().and_then(|path| request.path(path))).collect()
}

/// Gemini CLI edits any file of the workspace whose name ends so, where there is none at a relative path.
fn is_searched_for(request: &HookRequest) -> bool {
    let named = PATH_KEYS.iter().filter_map(|key| request.text(key));
    let mut missing = named.filter(|path| Path::new(path).is_relative() && !request.cwd.join(path).exists());
    request.agent == AgentKind::Gemini && request.tool == "replace" && missing.next().is_some()
}

fn some_paths(request: &HookRequest) -> Option<Vec<PathBuf>> {
    paths(request).filter(|paths| !paths.is_empty())
}

fn paths_or_here(request: &HookRequest) -> Option<Vec<PathBuf>> {
    paths(request).map(|paths| if paths.is_empty() { vec![request.cwd.clone()] } else { paths })
}

/// The base directories of a pattern, and the literal directories it leads to. A pattern with `..` is
/// refused.
fn globbed(request: &HookRequest) -> Option<Vec<PathBuf>> {
    let mut places = paths_or_here(request)?;
    let Some(pattern) = request.input.get("pattern") else { return Some(places) };
    let pattern = pattern.as_str().filter(|pattern| !pattern.contains('\0') && !pattern.contains(".."))?;
    let literal: PathBuf = Path::new(pattern).iter().take_while(|part| is_literal(part)).collect();
    let whole = literal.iter().count() == Path::new(pattern).iter().count();
    // An alternative may be absolute: `{a,/etc}/*`.
    if !whole && (pattern.contains("{/") || pattern.contains(",/") || pattern.contains('~')) {
        return None;
    }
    request.path(literal.to_str().filter(|text| !text.is_empty()).unwrap_or("."))?;
    // The deepest existing directory on the literal path.
    let led = |place: &PathBuf| place.join(&literal).ancestors().find(|at| at.is_dir()).map(Path::to_owned);
    let led: Vec<PathBuf> = places.iter().filter_map(led).collect();
    places.extend(led);
    places.dedup();
    Some(places)
}

fn is_literal(part: &OsStr) -> bool {
    !part.to_string_lossy().contains(['*', '?', '[', ']', '{', '}', '(', ')', '!', '@', '+', '\\'])
}

/// The fence has no `apply_patch`, and Codex needs none: it applies a patch itself.
fn shell(request: &HookRequest, command: String) -> ToolEffect {
    let patch = if request.agent == AgentKind::Codex { patch::of_command(&command) } else { None };
    match patch {
        Some(patch) => {
            patch::files(request, &[patch]).map_or(ToolEffect::Malformed("a patch"), ToolEffect::Write)
        }
        None => ToolEffect::Shell(command),
    }
}

/// The files of a patch.
fn patched(request: &HookRequest) -> Option<Vec<PathBuf>> {
    // All of them, because only the agent knows which one it uses.
    let given = ["command", "patchText", "input"].iter().filter_map(|key| request.input.get(*key));
    let texts: Vec<&str> = given.map(Value::as_str).collect::<Option<_>>()?;
    patch::files(request, &texts)
}
