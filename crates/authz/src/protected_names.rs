//! Paths that a command may read but never write, create or replace: they make the *host* do something later.
//!
//! A hook runs at the next `git commit`, an editor task at the next click, an agent's own settings at its next start.
//! Files that are part of the work as well (`CLAUDE.md`, `AGENTS.md`, `package.json`, `Makefile`, CI workflows) stay
//! writable: they are reviewed like code, because they are code.

use std::path::{Component, Path};

/// A name with the reason why it may not be written.
#[derive(Clone, Copy, Debug)]
pub struct ProtectedName {
    pub name: &'static str,
    pub reason: &'static str,
}

const GIT: &str = "it decides what git on the host runs";
const GIT_CONFIG: &str = "git on the host runs programs that its configuration names";
const GIT_HOOKS: &str = "git on the host runs the hooks in it";
const SYSTEM: &str = "version control on the host executes or obeys what it says";
const SHELL: &str = "shells on the host run it";
const AGENT: &str = "coding agents take permissions, hooks and commands from it";
const EDITOR: &str = "editors on the host run tasks and settings from it";
const TOOL: &str = "a program on the host runs commands from it";
const OWN: &str = "it is the policy of this workspace";

/// Protected at the top of a workspace root, also when absent: a placeholder holds the name while a session lasts. Those
/// of them that are in [`ANYWHERE`] too, and `.git`, are held likewise in every directory from there down to where the
/// agent works: that is where it, and git under its hand, look for them.
///
/// Each costs two directory operations at every start, so only names are here that something on the host runs or
/// obeys without being asked. What else exists is covered by [`ANYWHERE`].
pub const AT_ROOT: &[ProtectedName] = &[
    at(".agents", AGENT),
    at(".bash_profile", SHELL),
    at(".bashrc", SHELL),
    at(".claude", AGENT),
    at(".codex", AGENT),
    at(".cursor", AGENT),
    at(".envrc", SHELL),
    at(".gemini", AGENT),
    at(".git", GIT),
    at(".gitconfig", GIT_CONFIG),
    at(".gitmodules", GIT),
    at(".goose", AGENT),
    at(".idea", EDITOR),
    at(".mcp.json", AGENT),
    at(".opencode", AGENT),
    at(".profile", SHELL),
    at(".ringfence", OWN),
    at(".ripgreprc", TOOL),
    at(".vscode", EDITOR),
    at(".zprofile", SHELL),
    at(".zshrc", SHELL),
    at("opencode.json", AGENT),
    at("opencode.jsonc", AGENT),
];

/// Protected wherever they exist. Shell start-up files are not among them: below the top of a root they are
/// test data or a skeleton home. `.git` is not among them either, because most of it must stay writable; see
/// [`IN_GIT_DIR`].
pub const ANYWHERE: &[ProtectedName] = &[
    at(".agents", AGENT),
    at(".aider.conf.yml", AGENT),
    at(".amazonq", AGENT),
    at(".claude", AGENT),
    at(".codex", AGENT),
    at(".continue", AGENT),
    at(".cursor", AGENT),
    at(".devcontainer", EDITOR),
    at(".devcontainer.json", EDITOR),
    at(".envrc", SHELL),
    at(".exrc", EDITOR),
    at(".factory", AGENT),
    at(".fleet", EDITOR),
    at(".gdbinit", TOOL),
    at(".gemini", AGENT),
    at(".gitmodules", GIT),
    at(".goose", AGENT),
    at(".helix", EDITOR),
    at(".idea", EDITOR),
    at(".irbrc", TOOL),
    at(".junie", AGENT),
    at(".kiro", AGENT),
    at(".lldbinit", TOOL),
    at(".mcp.json", AGENT),
    at(".nvim.lua", EDITOR),
    at(".nvimrc", EDITOR),
    at(".opencode", AGENT),
    at(".pdbrc", TOOL),
    at(".pryrc", TOOL),
    at(".qwen", AGENT),
    at(".ringfence", OWN),
    at(".roo", AGENT),
    at(".vimrc", EDITOR),
    at(".vscode", EDITOR),
    at(".windsurf", AGENT),
    at(".zed", EDITOR),
    at("opencode.json", AGENT),
    at("opencode.jsonc", AGENT),
];

/// Protected inside a git directory, also when absent; the same inside that of a submodule (`modules/NAME`).
pub const IN_GIT_DIR: &[ProtectedName] = &[
    at("hooks", GIT_HOOKS),
    at("config", GIT_CONFIG),
    at("config.worktree", GIT_CONFIG),
    at("commondir", GIT),
];

/// Protected inside a git directory where they exist; what a command makes of them is held when it ends.
pub const IN_GIT_DIR_WHERE_PRESENT: &[ProtectedName] =
    &[at("branches", GIT), at("remotes", GIT), at("info/attributes", GIT)];

/// Protected inside the directory of another version control system, wherever that is.
pub const IN_OTHER_SYSTEMS: &[(&str, &[ProtectedName])] = &[
    (".hg", &[at("hgrc", SYSTEM), at("hgrc-not-shared", SYSTEM), at("sharedpath", SYSTEM)]),
    (".sl", &[at("config", SYSTEM), at("hgrc", SYSTEM), at("sharedpath", SYSTEM)]),
    (
        ".jj",
        &[at("config.toml", SYSTEM), at("repo/config.toml", SYSTEM), at("workspace-config.toml", SYSTEM)],
    ),
    (".bzr", &[at("branch/branch.conf", SYSTEM), at("branch/location", SYSTEM), at("control.conf", SYSTEM)]),
    ("_darcs", &[at("prefs/defaults", SYSTEM), at("prefs/prefs", SYSTEM)]),
    (".pijul", &[at("config", SYSTEM), at("config.toml", SYSTEM)]),
];

/// Protected inside `worktrees/NAME` of a git directory, also when absent.
pub const IN_WORKTREE_DIR: &[ProtectedName] =
    &[at("gitdir", GIT), at("commondir", GIT), at("config.worktree", GIT_CONFIG), at("hooks", GIT_HOOKS)];

/// Why writing to `relative` (relative to a workspace root) is refused. Names are compared without letter case,
/// because a workspace may lie on a file system that does so.
pub fn is_protected(relative: &Path) -> Option<&'static str> {
    let names: Vec<&[u8]> = relative
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.as_encoded_bytes()),
            _ => None,
        })
        .collect();
    let first = names.first().and_then(|name| reason_in(AT_ROOT, name).filter(|_| !is(name, ".git")));
    first
        .or_else(|| names.iter().find_map(|name| reason_in(ANYWHERE, name)))
        .or_else(|| {
            names.iter().position(|name| is(name, ".git")).and_then(|at| in_git(names.get(at + 1..)?))
        })
        .or_else(|| in_other_systems(&names))
}

fn in_other_systems(names: &[&[u8]]) -> Option<&'static str> {
    names.iter().enumerate().find_map(|(at, name)| {
        let (_, files) = IN_OTHER_SYSTEMS.iter().find(|(system, _)| is(name, system))?;
        begins_in(files, names.get(at + 1..)?)
    })
}

/// The reason of the entry of `list`, a path with one or more names, that `inside` is or lies in.
fn begins_in(list: &[ProtectedName], inside: &[&[u8]]) -> Option<&'static str> {
    let begins = |protected: &&ProtectedName| {
        let mut words = protected.name.split('/').enumerate();
        words.all(|(at, word)| inside.get(at).is_some_and(|name| is(name, word)))
    };
    list.iter().find(begins).map(|protected| protected.reason)
}

/// `inside` is the part of a path below `.git`.
fn in_git(inside: &[&[u8]]) -> Option<&'static str> {
    match inside {
        [] => Some(GIT),
        [first, rest @ ..] if is(first, "modules") => in_submodules(rest),
        [first, _, name, ..] if is(first, "worktrees") => reason_in(IN_WORKTREE_DIR, name),
        inside => begins_in(IN_GIT_DIR, inside).or_else(|| begins_in(IN_GIT_DIR_WHERE_PRESENT, inside)),
    }
}

/// The name of a submodule may have slashes in it, so its git directory is anywhere below `modules`; but a branch
/// called `config` is not a configuration.
fn in_submodules(inside: &[&[u8]]) -> Option<&'static str> {
    let content = |name: &&&[u8]| !["refs", "logs", "objects"].iter().any(|word| is(name, word));
    let mut above = inside.iter().take_while(content);
    above.find_map(|name| reason_in(IN_GIT_DIR, name).or_else(|| is(name, "gitdir").then_some(GIT)))
}

fn reason_in(list: &[ProtectedName], name: &[u8]) -> Option<&'static str> {
    list.iter().find(|protected| is(name, protected.name)).map(|protected| protected.reason)
}

fn is(name: &[u8], word: &str) -> bool {
    name.eq_ignore_ascii_case(word.as_bytes())
}

const fn at(name: &'static str, reason: &'static str) -> ProtectedName {
    ProtectedName { name, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f4_every_file_of_the_probe_is_protected() {
        for path in [
            ".git/hooks/pre-commit",
            ".git/config",
            ".git/config.worktree",
            ".git/commondir",
            ".gitmodules",
            ".gitconfig",
            ".bashrc",
            ".bash_profile",
            ".zshrc",
            ".zprofile",
            ".profile",
            ".envrc",
            ".mcp.json",
            ".vscode/tasks.json",
            ".idea/x",
            ".claude/settings.json",
            ".claude/commands/x",
            ".codex/config.toml",
            ".agents/x",
            ".cursor/mcp.json",
            ".ripgreprc",
            ".ringfence/policy.toml",
            ".gemini/settings.json",
        ] {
            assert!(is_protected(Path::new(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn nested_repositories_worktrees_and_submodules_are_protected() {
        for path in [
            "a/b/.git/hooks/x",
            "a/.git",
            ".git",
            ".git/modules/sub/hooks/pre-commit",
            ".git/modules/a/b/config",
            ".git/modules/a/modules/b/config.worktree",
            ".git/modules/s/worktrees/w/gitdir",
            ".git/worktrees/w/gitdir",
            ".git/worktrees/w/commondir",
            ".git/worktrees/w/config.worktree",
            "deep/er/.vscode/settings.json",
            ".GIT/Hooks/x",
            ".git/remotes/origin",
            ".git/branches/x",
            ".git/info/attributes",
            "a/.git/info/attributes",
            ".hg/hgrc",
            "deep/.hg/hgrc",
            ".jj/repo/config.toml",
            "_darcs/prefs/defaults",
            ".Claude/settings.json",
            "./.git/./hooks/x",
        ] {
            assert!(is_protected(Path::new(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn work_stays_writable() {
        for path in [
            "",
            "src/main.rs",
            "CLAUDE.md",
            "AGENTS.md",
            "package.json",
            "Makefile",
            ".github/workflows/ci.yml",
            ".gitignore",
            ".gitattributes",
            ".git/index",
            ".git/HEAD",
            ".git/objects/ab/cd",
            ".git/refs/heads/config",
            ".git/refs/heads/hooks/x",
            ".git/info/exclude",
            ".git/info/sparse-checkout",
            ".hg/store/00changelog.i",
            ".jj/repo/op_heads/x",
            ".git/worktrees/w/HEAD",
            ".git/worktrees/w/index",
            ".git/modules/sub/refs/heads/config",
            ".git/modules/sub/HEAD",
            ".git/logs/refs/heads/config",
            "skel/.bashrc",
            "docs/.profile",
            "gitconfig",
            ".claudette/x",
            "hooks/pre-commit",
            "config",
        ] {
            assert_eq!(is_protected(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn what_exists_anywhere_is_protected_by_name_alone() {
        for protected in ANYWHERE {
            assert!(
                is_protected(&Path::new("deep/down").join(protected.name)).is_some(),
                "{}",
                protected.name
            );
        }
    }
}
