//! `docs/errors.md` names every rule by which the daemon refuses, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Result, lexer, tree};

const PAGE: &str = "docs/errors.md";
/// The heading of the table, which ends with the next one.
const HEADING: &str = "## Rules of the daemon";
const SOURCES: &[&str] = &["crates/daemon/src", "crates/identity/src", "crates/web/src"];
/// Names of attributes, which are not rules.
const ELSEWHERE: &str = "crates/daemon/src/telemetry";
/// Words of the same form that are no rules: methods, messages of JSON-RPC, a file.
const NOT_RULES: &[&str] = &[
    "call.exec",
    "file.write",
    "identity.db",
    "limits.memory",
    "limits.processes",
    "rpc.cancel",
    "rpc.ended",
];

pub(crate) fn violations(root: &Path) -> Result<Vec<String>> {
    let mut used = BTreeSet::new();
    let is_source = |path: &&PathBuf| {
        SOURCES.iter().any(|sources| path.starts_with(sources)) && path.extension().is_some_and(|e| e == "rs")
    };
    for path in tree::files(root)?.iter().filter(is_source).filter(|path| !is_elsewhere(path)) {
        used.extend(rules_of(&fs::read_to_string(root.join(path))?));
    }
    Ok(differences(&used, &told(&fs::read_to_string(root.join(PAGE))?)))
}

fn is_elsewhere(path: &Path) -> bool {
    let tests = path.iter().any(|part| part == "tests" || part == "tests.rs");
    tests || path.to_string_lossy().starts_with(ELSEWHERE)
}

/// Literals that look like a rule, in what is not a test.
fn rules_of(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or(source);
    let rules = lexer::literals(code).into_iter().filter(|text| is_rule(text) && !NOT_RULES.contains(text));
    rules.map(str::to_owned).collect()
}

/// `family.name`
fn is_rule(text: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    text.split_once('.').is_some_and(|(family, name)| word(family) && word(name))
}

/// The first column of the table.
fn told(page: &str) -> BTreeSet<String> {
    let lines = page.lines().skip_while(|line| *line != HEADING).skip(1);
    let table = lines.take_while(|line| !line.starts_with("## "));
    let first = table.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    first.map(str::to_owned).collect()
}

fn differences(used: &BTreeSet<String>, told: &BTreeSet<String>) -> Vec<String> {
    let silent = used.difference(told).map(|rule| format!("{PAGE}: `{rule}` is not in \"{HEADING}\""));
    let gone = told.difference(used).map(|rule| format!("{PAGE}: nothing refuses by `{rule}`"));
    silent.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_literals_of_their_form_outside_of_tests() {
        let source = "// \"in.comment\"\nlet a = (\"web.host\", \"two words.x\", \"a.b.c\", \"identity.no-token\", \"rpc.ended\");\n#[cfg(test)]\nmod tests { const A: &str = \"a.example\"; }";
        assert_eq!(rules_of(source).into_iter().collect::<Vec<_>>(), ["identity.no-token", "web.host"]);
    }

    #[test]
    fn the_table_and_the_code_have_the_same_rules() {
        let page = format!(
            "| `before.it` | x |\n{HEADING}\n\n| rule | why |\n|---|---|\n| `web.host` | `x.y` |\n| `gone.by` | x |\n## Next\n| `after.it` | x |\n"
        );
        let used = ["web.host", "web.origin"].map(str::to_owned).into();
        let found = differences(&used, &told(&page));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("`web.origin`") && found[1].contains("`gone.by`"), "{found:?}");
    }
}
