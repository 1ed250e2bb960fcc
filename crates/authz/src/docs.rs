//! Keeps the tables in `docs/` equal to the data they describe.

mod marked_tables;

use std::fmt::Write as _;

use crate::env::{FAMILIES, FIXED, FamilyOverride, INHERITED, UNATTENDED};
use crate::path_rules::{
    DATA_EXTENSIONS, EXCEPTIONS, GENERATED_DIRS, KEY_EXTENSIONS, MAYBE_EXTENSIONS, NAMES, NamePattern,
    SETTINGS_NAMES, STATE_EXTENSIONS, STEERING,
};
use crate::protected_names::{
    ANYWHERE, AT_ROOT, IN_GIT_DIR, IN_GIT_DIR_WHERE_PRESENT, IN_OTHER_SYSTEMS, IN_WORKTREE_DIR, ProtectedName,
};

use marked_tables::check;

#[test]
fn environment_md_is_up_to_date() {
    check("environment.md", &[("variables", variables()), ("refused", refused())]);
}

#[test]
fn files_md_is_up_to_date() {
    check("files.md", &[("hidden", hidden()), ("protected", protected()), ("steering", steering())]);
}

fn variables() -> String {
    let mut table = header(["variable", "value"]);
    writeln!(
        table,
        "| {}, `LC_*` | as on the host, where set; `LANG` is `C.UTF-8` otherwise |",
        code(INHERITED)
    )
    .unwrap();
    for (name, value) in FIXED {
        writeln!(table, "| `{name}` | `{value}` |").unwrap();
    }
    for (name, value) in UNATTENDED {
        writeln!(table, "| `{name}` | `{value}`, where no terminal is attached |").unwrap();
    }
    for (name, value) in ELSEWHERE {
        writeln!(table, "| {name} | {value} |").unwrap();
    }
    table
}

/// Set by whoever knows the place and the session.
const ELSEWHERE: &[(&str, &str)] = &[
    ("`HOME`, `XDG_*`, `TMPDIR`", "directories that the sandbox made; never the real home"),
    ("`RINGFENCE_SESSION_ID`", "the session the command runs in"),
    ("`RINGFENCE_WORKSPACE_ID`", "the workspace, the same in every run"),
    ("`RINGFENCE_WORKSPACE_DIR`", "the directory of the workspace"),
];

fn refused() -> String {
    let mut table = header(["family", "refused, because …", "an operator may open", "names"]);
    for family in FAMILIES {
        let names: Vec<String> = family.names.iter().map(|name| format!("`{name}`")).collect();
        let opening = match family.opening {
            FamilyOverride::Never => "nothing",
            FamilyOverride::ByName => "whole names",
        };
        writeln!(table, "| {} | {} | {opening} | {} |", family.name, family.reason, names.join(" ")).unwrap();
    }
    table
}

fn hidden() -> String {
    let dotted =
        |words: &[&str]| words.iter().map(|word| format!("`*.{word}`")).collect::<Vec<_>>().join(" ");
    let name = |named: &NamePattern| {
        named.dir.map_or(format!("`{}`", named.name), |dir| format!("`{dir}/{}`", named.name))
    };
    let names: Vec<String> = NAMES.iter().map(name).collect();
    let data: Vec<String> = DATA_EXTENSIONS.iter().map(|word| format!("`{word}`")).collect();
    let before: Vec<String> =
        EXCEPTIONS.iter().filter(|word| **word != "pub").map(|word| format!("`*.{word}.json`")).collect();
    header(["files", "verdict", "rule", "because"])
        + &format!(
            "| {} {} and before any other data format | visible | | they are there to be read |\n\
         | {} `.ssh/*` `.gnupg/*` | hidden, denied | `path.key-material` `path.logins` `path.service-credentials` | keys, logins and service credentials |\n\
         | {} | hidden, denied | `path.key-material` | private keys and key stores |\n\
         | `.env` `.env.*` `.env-*` `.env_*` `.envrc` `*.env` | hidden, denied | `path.environment` | environment files hold secrets |\n\
         | {} | hidden and denied, unless they hold only certificates or public keys | `path.certificate` | they may hold a private key |\n\
         | {} | hidden and denied, unless no login is in it | `path.logins` | it may hold the token of a registry |\n\
         | {} | hidden, asked about | `path.state` | the state of an infrastructure holds its secrets in plain text |\n\
         | `*secret*` `*password*` without an extension, with the word in the extension, or with one of {}; not below {} | hidden, asked about | `path.named-secret` | the name says that it holds secrets |\n\
         | everything else | visible | | |\n",
            dotted(EXCEPTIONS),
            before.join(" "),
            names.join(" "),
            dotted(KEY_EXTENSIONS),
            dotted(MAYBE_EXTENSIONS),
            code(SETTINGS_NAMES),
            dotted(STATE_EXTENSIONS),
            data.join(" "),
            code(GENERATED_DIRS),
        )
}

fn protected() -> String {
    let mut table = header(["path", "where", "because"]);
    for (place, prefix, list) in [
        ("top of a root, also when absent", "", AT_ROOT),
        ("wherever it exists", "", ANYWHERE),
        ("every git directory, submodules' included, also when absent", ".git/", IN_GIT_DIR),
        ("every linked worktree, also when absent", ".git/worktrees/*/", IN_WORKTREE_DIR),
    ] {
        rows(&mut table, place, prefix, list);
    }
    let present = "every git directory where it exists; a new one is held";
    rows(&mut table, present, ".git/", IN_GIT_DIR_WHERE_PRESENT);
    for (system, files) in IN_OTHER_SYSTEMS {
        rows(&mut table, "wherever it exists; a new one is held", &format!("{system}/"), files);
    }
    table
}

fn steering() -> String {
    let mut table = header(["files", "rule", "because"]);
    for group in STEERING {
        let names = group.names.iter().map(|name| format!("`{name}`"));
        let directories = group.directories.iter().map(|name| format!("`{name}/`"));
        let prefixes = group.prefixes.iter().map(|prefix| format!("`{prefix}*`"));
        let suffixes = group.suffixes.iter().map(|suffix| format!("`*{suffix}`"));
        let all: Vec<String> = names.chain(directories).chain(prefixes).chain(suffixes).collect();
        writeln!(table, "| {} | `{}` | {} |", all.join(" "), group.rule.name, group.rule.reason).unwrap();
    }
    table
}

/// One row per reason: a reader looks for a path, and then for why.
fn rows(table: &mut String, place: &str, prefix: &str, list: &[ProtectedName]) {
    let mut reasons: Vec<&str> = Vec::new();
    for protected in list {
        if !reasons.contains(&protected.reason) {
            reasons.push(protected.reason);
        }
    }
    for reason in reasons {
        let same = list.iter().filter(|protected| protected.reason == reason);
        let names: Vec<String> = same.map(|protected| format!("`{prefix}{}`", protected.name)).collect();
        writeln!(table, "| {} | {place} | {reason} |", names.join(" ")).unwrap();
    }
}

/// Inside the marks, because a comment between its rows would end a table.
fn header<const N: usize>(columns: [&str; N]) -> String {
    format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(N))
}

fn code(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
