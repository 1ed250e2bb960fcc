//! Rules of policy files: what patterns mean, who decides, and that lower layers only narrow.

use std::time::{Duration, Instant};

use super::*;
use crate::RuleSource;

const OPERATOR: PolicyLayer = PolicyLayer::Operator;

fn rule(layer: PolicyLayer, decision: Decision, patterns: &[&str]) -> PathRule {
    PathRule {
        decision,
        patterns: patterns.iter().map(|text| (*text).to_owned()).collect(),
        except: Vec::new(),
        operation: PathOperation::All,
        group: 0,
        source: RuleSource { layer, origin: None, reason: None },
    }
}

fn deny(patterns: &[&str]) -> PathRule {
    rule(OPERATOR, Decision::Deny, patterns)
}

fn allow(patterns: &[&str]) -> PathRule {
    rule(OPERATOR, Decision::Allow, patterns)
}

fn except(rule: PathRule, patterns: &[&str]) -> PathRule {
    PathRule { except: patterns.iter().map(|text| (*text).to_owned()).collect(), ..rule }
}

fn writing(rule: PathRule) -> PathRule {
    PathRule { operation: PathOperation::Write, ..rule }
}

fn rules(rules: &[PathRule]) -> PathRules {
    PathRules::new(rules.to_vec()).unwrap()
}

fn read(rules: &PathRules, path: &str) -> Decision {
    rules.reading(Path::new(path)).decision()
}

fn write(rules: &PathRules, path: &str) -> Decision {
    rules.writing(Path::new(path), SteeringPolicy::Reviewed).decision()
}

#[test]
fn what_patterns_mean() {
    for (pattern, matching, others) in [
        (
            "notes",
            &["notes", "a/notes", "notes/x", "a/notes/b/c", "NOTES"][..],
            &["notes2", "a/xnotes", "note/s"][..],
        ),
        ("**/notes", &["notes", "a/b/notes", "notes/x"], &["notess"]),
        ("**/notes/", &["notes/x", "a/notes/b/c"], &["notes", "a/notes"]),
        ("**/notes/**", &["notes/x", "a/NOTES/b/c"], &["notes", "a/notes"]),
        ("./notes", &["notes", "notes/x/y"], &["a/notes"]),
        ("a/b", &["a/b", "a/b/c", "A/B", "a//b", "a/./b"], &["x/a/b", "a/bc", "a"]),
        ("a/", &["a/b", "a/b/c"], &["a", "x/a/b"]),
        ("a/**", &["a/b", "a/b/c"], &["a", "ab"]),
        ("*.log", &["x.log", "a/x.LOG", ".log"], &["x.log/y", "xlog", "x.logs"]),
        ("a/*", &["a/b", "a/.b"], &["a/b/c", "a"]),
        ("a/*/c", &["a/b/c", "a/b/c/d"], &["a/c", "a/b/d/c"]),
        ("a/**/c", &["a/c", "a/b/c", "a/b/d/c", "a/c/d"], &["b/c"]),
        ("**/x/*.rs", &["x/a.rs", "b/x/a.rs"], &["x/y/a.rs"]),
        ("**", &["a", "a/b", ".x"], &[]),
        ("{a,b}.txt", &["a.txt", "c/b.txt"], &["c.txt"]),
        ("[ab]?.txt", &["a1.txt", "x/bz.txt"], &["c1.txt", "a.txt"]),
        (r"\*.txt", &["*.txt"], &["a.txt"]),
        ("a/*/", &["a/b/c", "a/b/c/d"], &["a/b"]),
        ("Ünder", &["ünder", "ÜNDER", "a/Ünder"], &["under"]),
        ("trail", &["trail.", "trail ", "trail. ./x"], &["trail.x"]),
        ("trail.*", &["trail.", "trail.x"], &["trail"]),
    ] {
        let rules = rules(&[deny(&[pattern])]);
        for path in matching {
            assert_eq!(read(&rules, path), Decision::Deny, "`{pattern}` and `{path}`");
        }
        for path in others {
            assert_eq!(read(&rules, path), Decision::Allow, "`{pattern}` and `{path}`");
        }
    }
}

#[test]
fn c12_the_operator_opens_by_order_and_exactly() {
    let rules = rules(&[allow(&[".env.test", "fixtures/"]), rule(OPERATOR, Decision::Ask, &["id_rsa"])]);
    for path in [".env.test", "a/.env.test", "fixtures/server.key", "fixtures/a/id_rsa"] {
        assert_eq!(read(&rules, path), Decision::Allow, "{path}");
        assert_eq!(rules.judge(Path::new(path)), Open, "{path}");
        assert_eq!(write(&rules, path), Decision::Allow, "{path}");
    }
    for path in [".env", ".ENV.TEST", ".env.test2", ".env.test.", "Fixtures/server.key", ".env.t\u{435}st"] {
        assert_eq!(read(&rules, path), Decision::Deny, "{path}");
    }
    assert_eq!(read(&rules, "id_rsa"), Decision::Ask, "the operator may ask instead of deny");
    assert_eq!(rules.judge(Path::new("id_rsa")), Hidden);
}

#[test]
fn the_first_rule_that_speaks_decides() {
    let first_allows = rules(&[allow(&["a/keep"]), deny(&["a/"])]);
    assert_eq!(
        (read(&first_allows, "a/keep"), read(&first_allows, "a/x")),
        (Decision::Allow, Decision::Deny)
    );
    let first_denies = rules(&[deny(&["a/"]), allow(&["a/keep"])]);
    assert_eq!(read(&first_denies, "a/keep"), Decision::Deny);
    let excepted = rules(&[except(deny(&["a/", "b/"]), &["a/keep", "*.md"])]);
    for (path, decision) in [
        ("a/keep", Decision::Allow),
        ("b/x/y.md", Decision::Allow),
        ("b/keep", Decision::Deny),
        ("a/KEEP", Decision::Deny),
    ] {
        assert_eq!(read(&excepted, path), decision, "{path}");
    }
    let excepted_allow = rules(&[except(allow(&["cfg/"]), &["cfg/.ENV"])]);
    assert_eq!(read(&excepted_allow, "cfg/.env"), Decision::Deny, "an exception of what opens is wide");
    assert_eq!(read(&excepted_allow, "cfg/x.key"), Decision::Allow);
}

#[test]
fn rules_about_writing_leave_reading_alone() {
    let rules = rules(&[writing(deny(&["deploy/"])), writing(allow(&[".env"])), writing(deny(&["lock"]))]);
    assert_eq!((read(&rules, "deploy/x"), write(&rules, "deploy/x")), (Decision::Allow, Decision::Deny));
    assert_eq!((read(&rules, ".env"), write(&rules, ".env")), (Decision::Deny, Decision::Deny));
    assert_eq!(rules.judge(Path::new("deploy/x")), Open);
    assert!(rules.holds(Path::new("deploy/x")) && rules.holds(Path::new("a/lock")));
    assert!(!rules.holds(Path::new(".env")) && !rules.holds(Path::new("deploy")));
}

#[test]
fn an_operator_may_allow_what_a_profile_asks_about() {
    let rules = rules(&[writing(allow(&["Makefile"]))]);
    let asked = |path: &str| rules.writing(Path::new(path), SteeringPolicy::Asked).decision();
    assert_eq!((asked("Makefile"), asked("justfile")), (Decision::Allow, Decision::Ask));
    assert!(!rules.steers(Path::new("Makefile")) && rules.steers(Path::new("justfile")));
    assert!(!rules.steers(Path::new("src/main.rs")));
}

#[test]
fn layers_below_the_operator_only_narrow() {
    let lower = |decision, patterns: &[&str]| rule(PolicyLayer::Workspace, decision, patterns);
    let rules = rules(&[
        allow(&["open"]),
        lower(Decision::Allow, &[".env", "notes/keep"]),
        lower(Decision::Deny, &["notes/"]),
        lower(Decision::Ask, &["open"]),
        rule(PolicyLayer::Session, Decision::Deny, &["open"]),
        rule(PolicyLayer::Session, Decision::Allow, &["**"]),
    ]);
    assert_eq!(read(&rules, ".env"), Decision::Deny, "a workspace cannot open it");
    assert_eq!(read(&rules, "notes/x"), Decision::Deny);
    assert_eq!(read(&rules, "notes/keep"), Decision::Allow, "it can limit its own rule");
    assert_eq!(read(&rules, "open"), Decision::Deny, "the strictest of all layers");
    let PathRuling::File(by) = rules.reading(Path::new("open")) else { panic!() };
    assert_eq!(by.source.layer, PolicyLayer::Session);
}

#[test]
fn what_cannot_be_a_rule_says_what_to_write() {
    for (bad, part) in [
        (deny(&[]), "name a path"),
        (deny(&[""]), "`**` is everything"),
        (deny(&["/etc/x"]), "write `./etc/x`"),
        (deny(&["~/x"]), "write `./x`"),
        (deny(&["a/../b"]), "without `..`"),
        (deny(&["!a"]), "`except`"),
        (deny(&["a**b"]), "use `*`"),
        (deny(&["a\0"]), "NUL"),
        (deny(&["./"]), "names nothing"),
        (deny(&["[a"]), "backslash"),
        (deny(&["{a"]), "backslash"),
        (except(deny(&["a"]), &["[z-a]"]), "backslash"),
        (writing(allow(&[".git/hooks/"])), "by any rule"),
        (writing(allow(&["sub/.ringfence/policy.toml"])), "by any rule"),
    ] {
        let error = PathRules::new(vec![allow(&["fine"]), bad.clone()]).unwrap_err();
        assert_eq!(error.rule, 1, "{bad:?}");
        assert!(error.message.contains(part), "{}", error.message);
    }
}

#[test]
fn whole_directories_are_told_from_those_with_exceptions() {
    let rules = rules(&[
        allow(&["part/open.txt"]),
        deny(&["closed/", "part/", "named"]),
        except(writing(deny(&["held/", "some/"])), &["some/*.md"]),
        writing(deny(&["**/*.lock"])),
    ]);
    for (directory, hidden, held) in [
        ("closed", true, ProtectionExtent::Everything),
        ("closed/below", true, ProtectionExtent::Everything),
        ("a/named", true, ProtectionExtent::Everything),
        ("part", false, ProtectionExtent::EverythingBut),
        ("part/below", true, ProtectionExtent::Everything),
        ("held", false, ProtectionExtent::Everything),
        ("some", false, ProtectionExtent::EverythingBut),
        ("other", false, ProtectionExtent::Nothing),
        ("", false, ProtectionExtent::Nothing),
    ] {
        let directory = Path::new(directory);
        assert_eq!((rules.hides_all(directory), rules.holds_in(directory)), (hidden, held), "{directory:?}");
    }
    let simple = self::rules(&[writing(deny(&["held/"]))]);
    assert_eq!(simple.holds_in(Path::new("held")), ProtectionExtent::Everything);
    assert_eq!(PathRules::default().holds_in(Path::new("held")), ProtectionExtent::Nothing);
}

#[test]
fn what_has_no_wildcard_is_held_while_absent() {
    let held = |list: &[PathRule]| {
        let paths = rules(list).held_while_absent();
        paths.iter().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let list = [
        allow(&["deploy/free", "late/"]),
        writing(deny(&["deploy/", "a/b", "name", "x/*.lock", "**"])),
        deny(&["hidden", "hidden/path", "late/x", "deploy/free"]),
        rule(PolicyLayer::Workspace, Decision::Ask, &["w/x"]),
        rule(PolicyLayer::Workspace, Decision::Allow, &["w/y"]),
    ];
    assert_eq!(held(&list), ["a/b", "deploy", "hidden/path", "name", "w/x"]);
}

const ALPHABET: &[&str] = &["a", "b", "A", ".env", "x.key", "a.b", "secret.txt"];

fn any_path() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(ALPHABET), 1..4).prop_map(|parts| parts.join("/"))
}

fn any_pattern() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(
        &["a", "b", ".env", "*", "**", "*.key", "?", "a*", "secret.txt", "[ab]"][..],
    );
    let parts = proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    (parts, any::<(bool, bool)>()).prop_map(|(text, (dot, slash))| {
        format!("{}{text}{}", if dot { "./" } else { "" }, if slash { "/" } else { "" })
    })
}

fn any_rule(layers: &'static [PolicyLayer]) -> impl Strategy<Value = PathRule> {
    (
        proptest::sample::select(layers),
        proptest::sample::select(&[Decision::Allow, Decision::Ask, Decision::Deny][..]),
        proptest::collection::vec(any_pattern(), 1..3),
        proptest::collection::vec(any_pattern(), 0..2),
        proptest::sample::select(&[PathOperation::All, PathOperation::Write][..]),
    )
        .prop_map(|(layer, decision, patterns, except, operation)| PathRule {
            decision,
            patterns,
            except,
            operation,
            group: 0,
            source: RuleSource { layer, origin: None, reason: None },
        })
}

const ALL: &[PolicyLayer] = &[PolicyLayer::Operator, PolicyLayer::Workspace, PolicyLayer::Session];
const BELOW: &[PolicyLayer] = &[PolicyLayer::Workspace, PolicyLayer::Session, PolicyLayer::Call];

/// The same by the book and slowly: no index, no glob set.
mod naive {
    use super::*;

    pub(super) fn decision(rules: &[PathRule], path: &str, operation: PathOperation) -> Decision {
        let of = |layer: PolicyLayer, operation| {
            rules.iter().find(|rule| {
                rule.source.layer == layer
                    && (operation == PathOperation::Write || rule.operation == PathOperation::All)
                    && speaks(rule, path)
            })
        };
        let at = |operation| {
            let built_in = || match operation {
                PathOperation::All => {
                    built_in::explain(Path::new(path)).map_or(Decision::Allow, |rule| rule.decision)
                }
                PathOperation::Write => Decision::Allow,
            };
            let operator = of(PolicyLayer::Operator, operation).map_or_else(built_in, |rule| rule.decision);
            let below = BELOW.iter().filter_map(|layer| of(*layer, operation)).map(|rule| rule.decision);
            below.fold(operator, Decision::max)
        };
        match operation {
            PathOperation::All => at(PathOperation::All),
            PathOperation::Write => at(PathOperation::All).max(at(PathOperation::Write)),
        }
    }

    fn speaks(rule: &PathRule, path: &str) -> bool {
        let opens = rule.decision == Decision::Allow;
        let exact = |list: &[String]| list.iter().any(|pattern| matches(pattern, path));
        let folded = |list: &[String]| {
            list.iter().any(|pattern| matches(&pattern.to_lowercase(), &path.to_lowercase()))
        };
        if opens {
            exact(&rule.patterns) && !folded(&rule.except)
        } else {
            folded(&rule.patterns) && !exact(&rule.except)
        }
    }

    fn matches(pattern: &str, path: &str) -> bool {
        let mut parts: Vec<&str> =
            pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if !pattern.contains('/') {
            parts.insert(0, "**");
        }
        let last = parts.last().copied().unwrap_or_default();
        let inside_only = pattern.ends_with('/') || last == "**";
        let inside_too = inside_only || !last.contains(['*', '?', '[']);
        if last == "**" {
            parts.pop();
        }
        let names: Vec<&str> = path.split('/').collect();
        (0..=names.len()).any(|end| {
            let whole = end == names.len();
            (if whole { !inside_only } else { inside_too }) && components(&parts, &names[..end])
        })
    }

    fn components(parts: &[&str], names: &[&str]) -> bool {
        match (parts, names) {
            ([], []) => true,
            (["**", rest @ ..], _) => (0..=names.len()).any(|skipped| components(rest, &names[skipped..])),
            ([part, rest @ ..], [name, more @ ..]) => {
                part_matches(part.as_bytes(), name.as_bytes()) && components(rest, more)
            }
            _ => false,
        }
    }

    fn part_matches(part: &[u8], name: &[u8]) -> bool {
        match (part, name) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=name.len()).any(|skipped| part_matches(rest, &name[skipped..])),
            ([b'?', rest @ ..], [_, more @ ..]) => part_matches(rest, more),
            ([b'[', b'a', b'b', b']', rest @ ..], [b'a' | b'b', more @ ..]) => part_matches(rest, more),
            ([one, rest @ ..], [other, more @ ..]) if *one != b'[' => {
                one == other && part_matches(rest, more)
            }
            _ => false,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_naive_evaluator_agrees(
        list in proptest::collection::vec(any_rule(ALL), 1..5),
        path in any_path(),
    ) {
        let Ok(rules) = PathRules::new(list.clone()) else { return Ok(()) };
        prop_assert_eq!(read(&rules, &path), naive::decision(&list, &path, PathOperation::All));
        prop_assert_eq!(write(&rules, &path), naive::decision(&list, &path, PathOperation::Write));
    }

    #[test]
    fn adding_a_layer_never_opens(
        list in proptest::collection::vec(any_rule(ALL), 0..4),
        more in proptest::collection::vec(any_rule(BELOW), 1..4),
        path in any_path(),
    ) {
        // What a layer has of its own comes first: a rule that is added is added at its end.
        let Ok(before) = PathRules::new(list.clone()) else { return Ok(()) };
        let layer = PolicyLayer::Call;
        let added = more.into_iter().map(|rule| PathRule { source: RuleSource { layer, ..rule.source.clone() }, ..rule });
        let Ok(after) = PathRules::new(list.into_iter().chain(added).collect()) else { return Ok(()) };
        prop_assert!(read(&after, &path) >= read(&before, &path));
        prop_assert!(write(&after, &path) >= write(&before, &path));
    }

    #[test]
    fn other_spellings_do_not_open(
        list in proptest::collection::vec(any_rule(ALL), 1..4),
        path in any_path(),
    ) {
        let Ok(rules) = PathRules::new(list) else { return Ok(()) };
        for other in [format!("./{path}"), path.replace('/', "//"), path.replace('/', "/./"), format!("{path}/")] {
            prop_assert_eq!(read(&rules, &other), read(&rules, &path), "{}", other);
            prop_assert_eq!(write(&rules, &other), write(&rules, &path), "{}", other);
        }
    }

    #[test]
    fn a_whole_directory_is_whole(
        list in proptest::collection::vec(any_rule(ALL), 1..4),
        directory in any_path(),
        inside in any_path(),
    ) {
        let Ok(rules) = PathRules::new(list) else { return Ok(()) };
        let (directory, path) = (Path::new(&directory), Path::new(&directory).join(&inside));
        if rules.hides_all(directory) {
            prop_assert_eq!(rules.judge(&path), Hidden);
        }
        if rules.holds_in(directory) == ProtectionExtent::Everything {
            prop_assert!(rules.holds(&path));
        }
    }

    #[test]
    fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..48)) {
        let rules = rules(&[deny(&["*.key", "a/**/b", "x?z"]), allow(&["**/*.txt"]), deny(&["**"])]);
        let path = Path::new(OsStr::from_bytes(&bytes));
        prop_assert!(path.as_os_str().is_empty() || rules.judge(path) == Hidden || read_bytes(&rules, path) == Decision::Allow);
    }
}

fn read_bytes(rules: &PathRules, path: &Path) -> Decision {
    rules.reading(path).decision()
}

/// Names, paths, trees, extensions and wildcards in equal parts.
fn many(count: usize) -> PathRules {
    let list = (0..count).map(|n| match n % 5 {
        0 => deny(&[&format!("name-{n}")]),
        1 => deny(&[&format!("crates/part_{n}/secret")]),
        2 => writing(deny(&[&format!("deploy/stage-{n}/")])),
        3 => deny(&[&format!("*.ext{n}")]),
        _ => except(deny(&[&format!("data/{n}-*/x_*.csv")]), &["data/public/**"]),
    });
    rules(&list.collect::<Vec<_>>())
}

fn fastest(rules: &PathRules) -> Duration {
    let paths: Vec<PathBuf> =
        (0..200).map(|n| PathBuf::from(format!("crates/part_{n}/src/module_{n}/file_{n}.rs"))).collect();
    let once = || {
        let start = Instant::now();
        let open = paths.iter().filter(|path| rules.judge(path) == Open).count();
        assert_eq!(open, paths.len());
        start.elapsed()
    };
    (0..30).map(|_| once()).min().unwrap()
}

#[test]
fn ten_thousand_rules_cost_no_more_than_twice_a_hundred() {
    let few = many(100);
    let start = Instant::now();
    let lots = many(10_000);
    println!("10 000 rules compiled in {:?}", start.elapsed());
    let (few, lots) = (fastest(&few), fastest(&lots));
    println!("200 paths: {few:?} with 100 rules, {lots:?} with 10 000");
    assert!(lots < few * 2, "{few:?} {lots:?}");
}
