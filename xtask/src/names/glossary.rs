//! `docs/glossary.md`: at most eighty terms, each once, with Rust names that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::Result;

const PAGE: &str = "docs/glossary.md";
const MAX_TERMS: usize = 80;

/// One row: the term, and the types that are called by it.
struct Term<'p> {
    name: &'p str,
    types: Vec<&'p str>,
}

pub(super) fn read(root: &Path) -> Result<String> {
    Ok(fs::read_to_string(root.join(PAGE))?)
}

/// Names in the table that no type has.
pub(super) fn missing(page: &str, defined: &BTreeSet<String>) -> Vec<String> {
    let mut missing = Vec::new();
    for term in page.lines().filter_map(row) {
        let names = term.types.iter().filter(|name| !defined.contains(**name));
        missing.extend(names.map(|name| format!("{PAGE}: {}: there is no type `{name}`", term.name)));
    }
    missing
}

pub(super) fn violations(page: &str) -> Vec<String> {
    let terms: Vec<Term<'_>> = page.lines().filter_map(row).collect();
    let mut violations = Vec::new();
    if terms.len() > MAX_TERMS {
        violations.push(format!("{PAGE}: {} terms, more than {MAX_TERMS}", terms.len()));
    }
    let mut seen = BTreeSet::new();
    for term in &terms {
        if !seen.insert(term.name) {
            violations.push(format!("{PAGE}: `{}` has two rows", term.name));
        }
    }
    violations
}

/// `| term | meaning | Rust |`
fn row(line: &str) -> Option<Term<'_>> {
    let mut cells = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
    let (name, _, rust) = (cells.next()?, cells.next()?, cells.next()?);
    if name == "term" || name.starts_with("--") {
        return None;
    }
    let spans = rust.split('`').skip(1).step_by(2);
    Some(Term { name, types: spans.filter(|span| is_type(span)).collect() })
}

fn is_type(span: &str) -> bool {
    span.starts_with(|c: char| c.is_ascii_uppercase()) && span.chars().all(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defined(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_glossary_of_types_that_exist_is_fine() {
        let page = "# Glossary\n\n| term | meaning | Rust |\n|---|---|---|\n| call | One operation. | `Call`, `effect::exec` |\n";
        assert_eq!(violations(page), Vec::<String>::new());
        assert_eq!(missing(page, &defined(&["Call"])), Vec::<String>::new());
    }

    #[test]
    fn terms_that_stand_twice_and_types_that_do_not_exist_are_named() {
        let page = "| call | One. | `Call` |\n| call | Two. | `Gone` |\n";
        assert_eq!(violations(page), ["docs/glossary.md: `call` has two rows"]);
        assert_eq!(missing(page, &defined(&["Call"])), ["docs/glossary.md: call: there is no type `Gone`"]);
    }

    #[test]
    fn eighty_terms_are_enough() {
        let row = |number: usize| format!("| t{number} | x | |\n");
        assert_eq!(violations(&(0..80).map(row).collect::<String>()), Vec::<String>::new());
        assert_eq!(violations(&(0..81).map(row).collect::<String>()).len(), 1);
    }
}
