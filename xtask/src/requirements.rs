//! `docs/requirements.md` is checked, not believed: every id has a row, and every test it cites exists. So do those of the other pages
//! that cite tests, and the rows of checklists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Result, checklists, lexer, report_violations, tree};

const TABLE: &str = "docs/requirements.md";
/// Pages whose tables have tests in their last column.
const CITING: &[&str] = &["docs/lessons.md", "docs/containers.md"];
/// How many requirements each source document has.
const DOCUMENTS: &[(&str, u32)] = &[("S000", 59), ("S001", 31), ("S002", 40), ("S003", 44), ("S004", 26)];
/// Marks a row whose test was planned and has not been looked at since.
const UNVERIFIED: &str = "(verify)";

pub(crate) fn run(root: &Path) -> Result<()> {
    let names = Names::in_sources(root)?;
    let mut found = violations(&fs::read_to_string(root.join(TABLE))?, &names);
    for page in CITING {
        let text = fs::read_to_string(root.join(page))?;
        found.extend(missing_tests(&text, &names).map(|name| format!("{page}: no test `{name}`")));
    }
    let listed = checklists::violations(&fs::read_to_string(root.join(checklists::PAGE))?, &names);
    found.extend(listed.into_iter().map(|text| format!("{}: {text}", checklists::PAGE)));
    report_violations("requirements", &found)
}

/// Words of the last column of a table that look like a test, and are none.
fn missing_tests<'p>(page: &'p str, names: &Names) -> impl Iterator<Item = &'p str> {
    let last = |line: &'p str| line.trim().strip_prefix('|')?.strip_suffix('|')?.rsplit('|').next();
    let cited = page.lines().filter_map(last).flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let is_test = |word: &&str| word.matches('_').count() > 1 && !word.contains(['.', ' ', '/', '$']);
    cited.filter(is_test).filter(|name| !names.contains(name))
}

/// Everything a row may cite: tests, and string literals (attempts of the battery are known by their ids).
#[derive(Default)]
pub(crate) struct Names {
    tests: BTreeSet<String>,
    sources: String,
}

impl Names {
    fn in_sources(root: &Path) -> Result<Self> {
        let mut names = Self::default();
        let is_ours =
            |path: &&PathBuf| path.starts_with("crates") && path.extension().is_some_and(|e| e == "rs");
        for path in tree::files(root)?.iter().filter(is_ours) {
            names.add(&fs::read_to_string(root.join(path))?);
        }
        Ok(names)
    }

    pub(crate) fn add(&mut self, source: &str) {
        let code = lexer::code_only(source);
        self.tests.extend(code.match_indices("fn ").filter_map(|(at, _)| test_at(&code, at)));
        self.sources.push_str(source);
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        let attempt = || self.sources.contains(&format!("\"{name}\""));
        let class = || is_class(name) && self.sources.contains(&format!("\"{name}-"));
        self.tests.contains(name) || attempt() || class()
    }
}

/// The name of the function that is declared here, if it is a test.
fn test_at(code: &str, at: usize) -> Option<String> {
    let before = code.get(..at)?;
    let declaration = before.rsplit(['{', '}', ';']).next()?;
    let is_test = ["#[test]", "::test]", "::test("].iter().any(|attribute| declaration.contains(attribute));
    let name = code.get(at + "fn ".len()..)?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    is_test.then(|| name.to_owned())
}

/// `F11` stands for every attempt of its class: `F11-ancestor-rename`, …
fn is_class(name: &str) -> bool {
    let digits = name.trim_start_matches(|c: char| c.is_ascii_uppercase());
    digits.len() + 1 == name.len() && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    id: &'a str,
    status: &'a str,
    place: &'a str,
    tests: &'a str,
}

fn violations(table: &str, names: &Names) -> Vec<String> {
    let rows: Vec<Row<'_>> = table.lines().filter_map(row).collect();
    let mut violations = ids_violations(&rows);
    for row in &rows {
        violations.extend(row_violations(row, names).into_iter().map(|text| format!("{}: {text}", row.id)));
    }
    violations
}

/// `| S000-1 | text | status | where | tests |`
fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<&str> =
        line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    match cells[..] {
        [id, _, status, place, tests] if is_id(id) => Some(Row { id, status, place, tests }),
        _ => None,
    }
}

fn is_id(text: &str) -> bool {
    DOCUMENTS.iter().any(|(document, _)| text.starts_with(document)) && text.contains('-')
}

fn ids_violations(rows: &[Row<'_>]) -> Vec<String> {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for row in rows {
        *seen.entry(row.id).or_default() += 1;
    }
    let wanted: BTreeSet<String> = DOCUMENTS
        .iter()
        .flat_map(|(document, count)| (1..=*count).map(move |number| format!("{document}-{number}")))
        .collect();
    let missing =
        wanted.iter().filter(|id| !seen.contains_key(id.as_str())).map(|id| format!("{id}: no row"));
    let unknown =
        seen.keys().filter(|id| !wanted.contains(**id)).map(|id| format!("{id}: no such requirement"));
    let twice =
        seen.iter().filter(|(_, count)| **count > 1).map(|(id, _)| format!("{id}: more than one row"));
    missing.chain(unknown).chain(twice).collect()
}

fn row_violations(row: &Row<'_>, names: &Names) -> Vec<String> {
    let mut violations = Vec::new();
    let cited: Vec<&str> = row.tests.split('`').skip(1).step_by(2).collect();
    match row.status {
        "done" | "partial" if cited.is_empty() => {
            violations.push(format!("{}, but no test is cited", row.status));
        }
        "done" => {}
        "partial" | "later" | "out" if row.place.is_empty() => {
            violations.push(format!("{} without a reason", row.status));
        }
        "partial" | "later" | "out" => {}
        other => violations.push(format!("unknown status `{other}`")),
    }
    violations
        .extend(cited.iter().filter(|name| !names.contains(name)).map(|name| format!("no test `{name}`")));
    if row.tests.contains(UNVERIFIED) {
        violations.push(format!("still marked {UNVERIFIED}"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.add("fn helper() {}\n#[test]\nfn traversal_is_refused() {}\n#[tokio::test]\nasync fn waits() {}\nconst A: [&str; 2] = [\"F11\", \"F7-git-config\"]; // fn commented() {}");
        names
    }

    fn judged(line: &str) -> Vec<String> {
        row_violations(&row(line).unwrap(), &names())
    }

    #[test]
    fn tests_that_other_pages_cite_must_exist() {
        let page = "| a | b |\n|---|---|\n| `not_a_test_here` | `traversal_is_refused`, `was_there_once`, `--net` |\n`in_the_text`\n";
        assert_eq!(missing_tests(page, &names()).collect::<Vec<_>>(), ["was_there_once"]);
    }

    #[test]
    fn cited_functions_and_attempt_ids_must_exist() {
        assert_eq!(
            judged("| S000-1 | x | done | authz | `traversal_is_refused`, `F11` |"),
            Vec::<String>::new()
        );
        assert_eq!(judged("| S000-1 | x | done | authz | `F7`, `F7-git-config` |"), Vec::<String>::new());
        assert_eq!(judged("| S000-1 | x | done | authz | `F8` |").len(), 1);
        assert_eq!(judged("| S000-1 | x | done | authz | `waits` |"), Vec::<String>::new());
        for no_test in ["commented", "helper"] {
            assert_eq!(judged(&format!("| S000-1 | x | done | authz | `{no_test}` |")).len(), 1, "{no_test}");
        }
        assert_eq!(judged("| S000-1 | x | later | in the daemon | `absent` |").len(), 1);
    }

    #[test]
    fn done_needs_a_test_and_the_rest_a_reason() {
        assert_eq!(judged("| S000-1 | x | done | authz | |").len(), 1);
        assert_eq!(judged("| S000-1 | x | later | | |").len(), 1);
        assert_eq!(judged("| S000-1 | x | partial | the rest | |").len(), 1);
        assert_eq!(judged("| S000-1 | x | partial | | `F11` |").len(), 1);
        assert_eq!(judged("| S000-1 | x | partial | the rest is out | `F11` |"), Vec::<String>::new());
        assert_eq!(judged("| S000-1 | x | perhaps | authz | |").len(), 1);
        assert_eq!(judged("| S000-1 | x | out | stated non-goal | |"), Vec::<String>::new());
    }

    #[test]
    fn planned_tests_are_not_accepted_as_done() {
        assert_eq!(judged("| S000-1 | x | done | authz | `F11` (verify) |").len(), 1);
    }

    #[test]
    fn every_id_has_exactly_one_row() {
        let full: Vec<String> = DOCUMENTS
            .iter()
            .flat_map(|(d, n)| (1..=*n).map(move |i| format!("| {d}-{i} | x | out | reason | |")))
            .collect();
        assert_eq!(violations(&full.join("\n"), &names()), Vec::<String>::new());
        assert_eq!(violations(&full[1..].join("\n"), &names()), ["S000-1: no row"]);
        let twice = format!("{}\n{}", full.join("\n"), full[0]);
        assert_eq!(violations(&twice, &names()), ["S000-1: more than one row"]);
        let extra = format!("{}\n| S004-27 | x | out | reason | |", full.join("\n"));
        assert_eq!(violations(&extra, &names()), ["S004-27: no such requirement"]);
    }
}
