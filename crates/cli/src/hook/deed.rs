//! What a tool of an agent does, told by its name and its input.

use std::path::PathBuf;

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
    Search,
    Fetch,
    Patch,
    Own,
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
    ("Glob", Kind::List),
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
    ("Skill", Kind::Own),
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
    ("glob", Kind::List),
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
    ("glob", Kind::List),
    ("grep", Kind::Search),
    ("webfetch", Kind::Fetch),
    ("task", Kind::Own),
    ("todowrite", Kind::Own),
    ("todoread", Kind::Own),
    ("skill", Kind::Own),
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
    ["mcp__ringfence__", "mcp_ringfence_", "ringfence__", "ringfence_"]
        .iter()
        .any(|own| tool.starts_with(own))
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
        Kind::Shell => text("command").map_or(Deed::Malformed("command"), Deed::Shell),
        Kind::Fetch => text("url").map_or(Deed::Malformed("url"), Deed::Fetch),
        Kind::Patch => patched(request).map_or(Deed::Malformed("a patch"), Deed::Write),
        Kind::Read => paths(request).map_or(Deed::Malformed("the path of a file"), Deed::Read),
        Kind::Write => paths(request).map_or(Deed::Malformed("the path of a file"), Deed::Write),
        Kind::List => Deed::List(paths(request).unwrap_or_else(|| vec![request.cwd.clone()])),
        Kind::Search => Deed::Search(paths(request).unwrap_or_else(|| vec![request.cwd.clone()])),
    }
}

/// Every path that is named, under whatever key: which of them the agent will use is its own affair.
fn paths(request: &Request) -> Option<Vec<PathBuf>> {
    const KEYS: [&str; 7] =
        ["file_path", "notebook_path", "absolute_path", "filePath", "path", "dir_path", "target_file"];
    let named = KEYS.iter().filter_map(|key| request.input.get(*key));
    let paths: Option<Vec<PathBuf>> =
        named.map(|value| value.as_str().map(|path| request.path(path))).collect();
    paths.filter(|paths| !paths.is_empty())
}

/// The files of a patch in the format of Codex.
fn patched(request: &Request) -> Option<Vec<PathBuf>> {
    const HEADS: [&str; 4] = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    let text = ["command", "patchText", "input"].iter().find_map(|key| request.text(key))?;
    let names = text.lines().filter_map(|line| HEADS.iter().find_map(|head| line.trim().strip_prefix(head)));
    let paths: Vec<PathBuf> = names.map(|name| request.path(name.trim())).collect();
    (!paths.is_empty()).then_some(paths)
}
