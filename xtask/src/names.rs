//! The vocabulary as a check: what a machine can hold of "one name, one thing".
//!
//! Each rule counts per crate. `xtask/names-baseline.toml` has the numbers that stand; a number may fall and never
//! rise.

mod baseline;
mod glossary;
mod source;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Result, report_violations, tree};
use baseline::{Baseline, Counts};
use source::Facts;

/// A name in more crates than this is a word of the whole project without one meaning.
const MAX_CRATES: usize = 3;
/// How many findings of a rule are printed as the next ones to mend, without `--all`.
const SHOWN: usize = 4;
const WORKSPACE: &str = "workspace";

/// One finding: where, and what.
struct Finding {
    rule: &'static str,
    krate: String,
    text: String,
}

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let (sources, page) = (read(root)?, glossary::read(root)?);
    let mut findings = findings(&sources);
    let missing = glossary::missing(&page, &defined(&sources)).into_iter();
    findings.extend(missing.map(|text| Finding { rule: "glossary-name", krate: WORKSPACE.to_owned(), text }));
    let mut counts = count(&findings);
    counts.insert("homonym-share".to_owned(), BTreeMap::from([(WORKSPACE.to_owned(), share(&sources))]));
    if arguments.iter().any(|argument| argument == "--lower") {
        return Baseline::read(root)?.lowered_to(&counts).write(root);
    }
    let shown = if arguments.iter().any(|argument| argument == "--all") { usize::MAX } else { SHOWN };
    show_next(&findings, &counts, shown);
    let mut violations = Baseline::read(root)?.risen(&counts);
    violations.extend(glossary::violations(&page));
    report_violations("names", &violations)
}

/// One source file of a crate.
struct Source {
    krate: String,
    path: String,
    facts: Facts,
}

fn read(root: &Path) -> Result<Vec<Source>> {
    let files: Vec<PathBuf> = tree::files(root)?.into_iter().filter(|path| is_source(path)).collect();
    let mut sources = Vec::new();
    for path in files {
        let text = fs::read_to_string(root.join(&path))?;
        let path = path.to_string_lossy().into_owned();
        let facts = Facts::of(&text).map_err(|error| format!("{path}: {error}"))?;
        let krate = path.split('/').nth(1).unwrap_or_default().to_owned();
        sources.push(Source { krate, path, facts });
    }
    let tests: BTreeSet<String> = sources.iter().flat_map(test_modules).collect();
    sources.retain(|source| !is_test(&source.path, &tests));
    Ok(sources)
}

fn is_source(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let rust = text.starts_with("crates/") && text.ends_with(".rs");
    rust && !text.contains("/generated/")
}

/// The files of modules that exist in tests alone, without `.rs`.
fn test_modules(source: &Source) -> Vec<String> {
    let path = source.path.trim_end_matches(".rs");
    let root = ["lib", "main", "mod"].iter().find_map(|name| path.strip_suffix(&format!("/{name}")));
    let below = root.unwrap_or(path);
    source.facts.test_modules.iter().map(|module| format!("{below}/{module}")).collect()
}

fn is_test(path: &str, tests: &BTreeSet<String>) -> bool {
    let stem = path.trim_end_matches(".rs");
    let directory = path.split('/').any(|part| part == "tests" || part == "tests.rs");
    directory || tests.iter().any(|test| stem == test || stem.starts_with(&format!("{test}/")))
}

fn findings(sources: &[Source]) -> Vec<Finding> {
    let mut findings = names_in_one_crate(sources);
    findings.extend(names_in_many_crates(sources));
    for source in sources {
        findings.extend(participles(source));
        findings
            .extend(source.facts.tuple_parameters.iter().map(|at| finding(source, "tuple-parameter", at)));
        findings.extend(source.facts.subjectless.iter().map(|at| finding(source, "subjectless-comment", at)));
    }
    findings
}

fn finding(source: &Source, rule: &'static str, at: &source::At) -> Finding {
    let text = format!("{}:{}: {}", source.path, at.line, at.text);
    Finding { rule, krate: source.krate.clone(), text }
}

fn by_name(sources: &[Source]) -> BTreeMap<&str, Vec<&Source>> {
    let mut names: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources {
        for name in source.facts.distinct_types() {
            names.entry(name).or_default().push(source);
        }
    }
    names
}

fn names_in_one_crate(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, places) in by_name(sources) {
        let mut crates: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for source in places {
            crates.entry(&source.krate).or_default().push(&source.path);
        }
        for (krate, paths) in crates.into_iter().filter(|(_, paths)| paths.len() > 1) {
            let text = format!("{krate}: `{name}` names a type in {}", paths.join(" and in "));
            findings.push(Finding { rule: "type-twice", krate: krate.to_owned(), text });
        }
    }
    findings
}

fn names_in_many_crates(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, places) in by_name(sources) {
        let crates: BTreeSet<&str> = places.iter().map(|source| source.krate.as_str()).collect();
        if crates.len() > MAX_CRATES {
            let list = crates.into_iter().collect::<Vec<_>>().join(", ");
            let text = format!("`{name}` names a type in {list}");
            findings.push(Finding { rule: "type-in-many-crates", krate: WORKSPACE.to_owned(), text });
        }
    }
    findings
}

fn participles(source: &Source) -> Vec<Finding> {
    let types = source.facts.types.iter().filter(|at| words::is_participle(&at.text));
    let mut findings: Vec<Finding> = types.map(|at| finding(source, "participle", at)).collect();
    let module = Path::new(&source.path).file_stem().unwrap_or_default().to_string_lossy();
    if words::is_participle(&module) {
        let text = format!("{}: a module is a thing", source.path);
        findings.push(Finding { rule: "participle", krate: source.krate.clone(), text });
    }
    findings
}

/// Of a thousand types, how many share their name with another.
fn share(sources: &[Source]) -> usize {
    let names = by_name(sources);
    let all: usize = names.values().map(Vec::len).sum();
    let shared: usize = names.values().map(Vec::len).filter(|count| *count > 1).sum();
    shared * 1000 / all.max(1)
}

fn defined(sources: &[Source]) -> BTreeSet<String> {
    let types = sources.iter().flat_map(|source| source.facts.types.iter().map(|at| at.text.clone()));
    types.chain(sources.iter().flat_map(|source| source.facts.made_by_macros.iter().cloned())).collect()
}

fn count(findings: &[Finding]) -> Counts {
    let mut counts = Counts::new();
    for finding in findings {
        *counts.entry(finding.rule.to_owned()).or_default().entry(finding.krate.clone()).or_default() += 1;
    }
    counts
}

fn show_next(findings: &[Finding], counts: &Counts, shown: usize) {
    for (rule, crates) in counts {
        let sum: usize = crates.values().sum();
        println!("names: {rule}: {sum}");
        for finding in findings.iter().filter(|finding| finding.rule == rule).take(shown) {
            println!("    next: {}", finding.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        let krate = path.split('/').nth(1).unwrap_or_default().to_owned();
        Source { krate, path: path.to_owned(), facts: Facts::of(text).unwrap() }
    }

    fn texts(findings: &[Finding], rule: &str) -> Vec<String> {
        findings.iter().filter(|finding| finding.rule == rule).map(|finding| finding.text.clone()).collect()
    }

    #[test]
    fn one_name_names_one_type_of_a_crate() {
        let twice = [
            source("crates/a/src/x.rs", "struct Place;"),
            source("crates/a/src/y.rs", "enum Place { A }"),
            source("crates/b/src/x.rs", "struct Place; struct Other;"),
        ];
        let found = findings(&twice);
        assert_eq!(texts(&found, "type-twice").len(), 1);
        assert_eq!(count(&found)["type-twice"]["a"], 1);
        assert_eq!(texts(&found, "type-in-many-crates"), Vec::<String>::new());
        assert_eq!(share(&twice), 750);
    }

    #[test]
    fn one_name_is_in_three_crates_at_most() {
        let crates =
            ["a", "b", "c", "d"].map(|name| source(&format!("crates/{name}/src/lib.rs"), "trait Store {}"));
        assert_eq!(texts(&findings(&crates), "type-in-many-crates"), ["`Store` names a type in a, b, c, d"]);
        assert_eq!(texts(&findings(&crates[..3]), "type-in-many-crates"), Vec::<String>::new());
    }

    #[test]
    fn a_participle_names_neither_type_nor_module() {
        let held = source(
            "crates/a/src/held.rs",
            "pub struct Asked; struct Settled; struct HeldChange; struct Finding;",
        );
        let found = texts(&participles_of(held), "participle");
        assert_eq!(found, ["crates/a/src/held.rs:1: Asked", "crates/a/src/held.rs: a module is a thing"]);
        assert!(participles_of(source("crates/a/src/settled.rs", "")).is_empty());
    }

    fn participles_of(source: Source) -> Vec<Finding> {
        findings(&[source])
    }

    #[test]
    fn modules_of_tests_do_not_count() {
        let lib = source("crates/a/src/lib.rs", "#[cfg(test)] mod fixture; mod real;");
        let tests: BTreeSet<String> = test_modules(&lib).into_iter().collect();
        assert!(is_test("crates/a/src/fixture.rs", &tests));
        assert!(is_test("crates/a/src/fixture/below.rs", &tests));
        assert!(is_test("crates/a/tests/api.rs", &tests));
        assert!(!is_test("crates/a/src/real.rs", &tests));
        assert!(!is_test("crates/a/src/fixtures.rs", &tests));
    }
}
