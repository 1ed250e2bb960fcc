//! What a rule about files of a directory means for a directory below it.

use std::path::{Component, Path};

use globset::GlobBuilder;
use ringfence_types::Decision;

use super::PathRule;
use super::pattern::{self, PathPattern};

/// Everything in a root.
const EVERYTHING: &str = "**";

impl PathRule {
    /// The rule as it speaks about `base` alone, a path from where it was written to where it is read now. `None`: it says
    /// nothing about what is there.
    pub fn below(&self, base: &Path) -> Option<Self> {
        let names: Vec<&str> = base
            .components()
            .filter_map(|component| match component {
                Component::Normal(name) => Some(name.to_str().unwrap_or("\u{fffd}")),
                _ => None,
            })
            .collect();
        let case = if self.decision == Decision::Allow { Case::Exact } else { Case::Folded };
        let except: Vec<String> =
            self.except.iter().flat_map(|text| rest(text, &names, Case::Exact)).collect();
        if except.iter().any(|text| text == EVERYTHING) {
            return None;
        }
        let mut patterns: Vec<String> =
            self.patterns.iter().flat_map(|text| rest(text, &names, case)).collect();
        patterns.sort();
        patterns.dedup();
        (!patterns.is_empty()).then(|| Self { patterns, except, ..self.clone() })
    }
}

/// What closes is compared without letter case, and where it cannot be told it matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Folded,
    Exact,
}

fn rest(text: &str, base: &[&str], case: Case) -> Vec<String> {
    let Ok(parsed) = pattern::parse(text) else { return Vec::new() };
    match parsed {
        PathPattern::Name(name) | PathPattern::InName(name) => {
            let is_around = base.iter().any(|part| is_match(&name, part, case));
            vec![if is_around { EVERYTHING.to_owned() } else { text.to_owned() }]
        }
        PathPattern::Path(path) => literal(&path, base, case).into_iter().collect(),
        PathPattern::Tree(path) => {
            let inside = literal(&path, base, case);
            inside.map(|rest| if rest == EVERYTHING { rest } else { rest + "/**" }).into_iter().collect()
        }
        PathPattern::Globs(globs) => {
            globs.iter().flat_map(|glob| left(&glob.split('/').collect::<Vec<_>>(), base, case)).collect()
        }
    }
}

/// A path without wildcards: around the base it is all of it, elsewhere nothing.
fn literal(path: &str, base: &[&str], case: Case) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if !parts.iter().zip(base).all(|(part, name)| same(part, name, case)) {
        return None;
    }
    match parts.get(base.len()..) {
        Some(rest @ [_, ..]) => Some(format!("./{}", rest.join("/"))),
        _ => Some(EVERYTHING.to_owned()),
    }
}

/// What is left of a glob behind the base. `**` takes as much of the base as it likes.
fn left(parts: &[&str], base: &[&str], case: Case) -> Vec<String> {
    match (parts, base) {
        ([], _) => Vec::new(),
        (["**"], _) => vec![EVERYTHING.to_owned()],
        (rest, []) => vec![format!("./{}", rest.join("/"))],
        (["**", after @ ..], [_, deeper @ ..]) => {
            let mut all = left(after, base, case);
            all.extend(left(parts, deeper, case));
            all
        }
        ([part, after @ ..], [name, deeper @ ..]) if is_match(part, name, case) => left(after, deeper, case),
        _ => Vec::new(),
    }
}

fn is_match(part: &str, name: &str, case: Case) -> bool {
    let glob = GlobBuilder::new(part).case_insensitive(case == Case::Folded).literal_separator(true).build();
    match glob {
        Ok(glob) => glob.compile_matcher().is_match(name),
        // Braces around a slash: the parts are no globs by themselves.
        Err(_) => case == Case::Folded,
    }
}

fn same(part: &str, name: &str, case: Case) -> bool {
    match case {
        Case::Folded => part.to_lowercase() == name.to_lowercase(),
        Case::Exact => part == name,
    }
}

#[cfg(test)]
mod tests {
    use ringfence_types::PolicyLayer;

    use super::*;
    use crate::judgement::RuleSource;
    use crate::path_rules::PathOperation;

    fn rule(decision: Decision, pattern: &str, except: &[&str]) -> PathRule {
        PathRule {
            decision,
            patterns: vec![pattern.to_owned()],
            except: except.iter().map(|text| (*text).to_owned()).collect(),
            operation: PathOperation::All,
            group: 0,
            source: RuleSource { layer: PolicyLayer::Workspace, origin: None, reason: None },
        }
    }

    #[test]
    fn a_pattern_is_read_from_a_directory_below() {
        for (pattern, expected) in [
            ("secrets", &["secrets"][..]),
            ("**/secrets", &["**/secrets"]),
            ("*.log", &["./**/*.log"]),
            ("src/api/private", &["./private"]),
            ("SRC/Api/private", &["./private"]),
            ("src/api/private/", &["./private/**"]),
            ("src/api/private/**", &["./private/**"]),
            ("src/api", &["**"]),
            ("src", &["**"]),
            ("src/", &["**"]),
            ("./src/**", &["**"]),
            ("api", &["**"]),
            ("**", &["**"]),
            ("*", &["**"]),
            ("other/private", &[]),
            ("./api", &[]),
            ("src/apis", &[]),
            ("*/api/private", &["./private", "./private/**"]),
            ("src/**/key", &["./**/key", "./**/key/**"]),
            ("src/a*/x*", &["./x*"]),
            ("src/*", &[]),
            ("src/*/**", &["**"]),
            ("{src,lib}/api/a*", &["./a*"]),
        ] {
            let found = rule(Decision::Deny, pattern, &[]).below(Path::new("src/api"));
            let found = found.map(|rule| rule.patterns).unwrap_or_default();
            assert_eq!(found, expected, "{pattern}");
        }
    }

    #[test]
    fn what_opens_is_compared_exactly_and_an_exception_ends_a_rule() {
        let base = Path::new("src");
        assert!(rule(Decision::Allow, "SRC/a", &[]).below(base).is_none());
        assert!(rule(Decision::Allow, "src/a", &[]).below(base).is_some());
        let but = rule(Decision::Deny, "**", &["src/open", "other"]).below(base).unwrap();
        assert_eq!(
            (but.patterns, but.except),
            (vec!["**".to_owned()], vec!["./open".to_owned(), "other".to_owned()])
        );
        assert!(rule(Decision::Deny, "**", &["src"]).below(base).is_none());
        assert!(
            rule(Decision::Deny, "**", &["SRC/"]).below(base).is_some(),
            "another letter case opens nothing"
        );
    }
}
