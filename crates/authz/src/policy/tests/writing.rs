use ringfence_types::{Decision, Layer};

use super::*;
use crate::command::{CommandPattern, CommandRule};
use crate::judgement::RuleSource;

fn rule(pattern: CommandPattern) -> CommandRule {
    let source = RuleSource { layer: Layer::Operator, origin: None, reason: None };
    CommandRule { pattern, decision: Decision::Allow, here: None, source }
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

const WRITTEN_BY_HAND: &str = "\
# my policy
profile = \"guarded\"   # for now

[[command]] # tests
allow = \"npm test\"

[workspaces.\"/home/ann/web\"] # the shop
limits.memory = \"2g\"   

[[path]]
deny    =   [ \"*.bin\", ]
";

#[test]
fn a_rule_is_added_and_nothing_else_changes() {
    let workspace = Some(Path::new(WORKSPACE));
    let added =
        with_rule(WRITTEN_BY_HAND, workspace, &rule(CommandPattern::Words(words(&["npm", "run", "build"]))))
            .unwrap();
    for line in WRITTEN_BY_HAND.lines() {
        assert!(added.lines().any(|kept| kept == line), "{line}\n{added}");
    }
    assert!(
        added.contains("[[workspaces.\"/home/ann/web\".command]]\nallow = \"npm run build\"\n"),
        "{added}"
    );
    let effective = merged(&flags(), &[operator(&added).unwrap()]).unwrap();
    assert!(
        effective
            .settings
            .iter()
            .any(|setting| setting.key == "command.allow" && setting.value == "npm run build")
    );
    let elsewhere = Flags { workspace: PathBuf::from("/else"), ..flags() };
    let effective = merged(&elsewhere, &[operator(&added).unwrap()]).unwrap();
    assert!(!effective.settings.iter().any(|setting| setting.value == "npm run build"));
}

#[test]
fn rules_read_back_as_they_were() {
    let odd = [
        words(&["git", "commit", "-m", "it's \"done\"; rm -rf $HOME `x` \\"]),
        words(&["grep", "-r", "a  b", "*.rs", "#x", "~", "é"]),
        words(&["make"]),
        words(&["npm", "run", "build"]),
    ];
    let mut text = String::new();
    let mut expected = Vec::new();
    for argv in odd {
        let exact =
            CommandRule { here: Some(PathBuf::from("sub dir")), ..rule(CommandPattern::Exact(argv.clone())) };
        text = with_rule(&text, Some(Path::new(WORKSPACE)), &exact)
            .unwrap_or_else(|error| panic!("{argv:?}: {error}"));
        expected.push((exact.pattern, exact.here));
    }
    let file = operator(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let effective = merged(&flags(), &[file]).unwrap();
    let found: Vec<(CommandPattern, Option<PathBuf>)> = effective
        .policy
        .rules
        .commands
        .iter()
        .map(|rule| (rule.pattern.clone(), rule.here.clone()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn what_a_file_says_already_is_not_said_twice() {
    let npm = rule(CommandPattern::Words(words(&["npm", "test"])));
    assert_eq!(with_rule(WRITTEN_BY_HAND, None, &npm).unwrap(), WRITTEN_BY_HAND);
    let here = with_rule(WRITTEN_BY_HAND, Some(Path::new(WORKSPACE)), &npm).unwrap();
    assert_ne!(here, WRITTEN_BY_HAND, "for one workspace is something else");
    assert_eq!(with_rule(&here, Some(Path::new(WORKSPACE)), &npm).unwrap(), here);
    let never = CommandRule { decision: Decision::Deny, ..npm };
    assert_eq!(with_rule(WRITTEN_BY_HAND, None, &never), Err(WriteError::Opposite("npm test".to_owned())));
}

#[test]
fn a_digest_is_approved_once() {
    let digest = sha256(b"x");
    let other = sha256(b"y");
    let path = Path::new(WORKSPACE);
    let one = with_approved(WRITTEN_BY_HAND, path, &digest).unwrap();
    assert!(one.contains("# the shop") && one.contains("limits.memory = \"2g\"   "), "{one}");
    assert_eq!(with_approved(&one, path, &digest).unwrap(), one);
    let two = with_approved(&one, path, &other).unwrap();
    assert!(two.contains(&format!("approved = [\"{digest}\", \"{other}\"]")), "{two}");
    let single = format!("[workspaces.\"/new\"]\napproved = \"{digest}\"\n");
    assert!(with_approved(&single, Path::new("/new"), &other).unwrap().contains(&other));
    let fresh = with_approved("", path, &digest).unwrap();
    assert_eq!(fresh, format!("[workspaces.\"{WORKSPACE}\"]\napproved = [\"{digest}\"]\n"));
    for text in [one, two, fresh] {
        assert!(operator(&text).is_ok(), "{text}");
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let make = rule(CommandPattern::Words(words(&["make"])));
    let here = Some(Path::new(WORKSPACE));
    for (text, rule, expected) in [
        ("profile = 1", make.clone(), "the file has mistakes"),
        ("not toml", make.clone(), "the file has mistakes"),
        ("workspaces = {}", make.clone(), "`workspaces` is written inline"),
        ("", rule(CommandPattern::Exact(words(&["a", "b\nc"]))), "cannot be written in a policy file"),
        ("", rule(CommandPattern::Exact(words(&["a", ""]))), "cannot be written in a policy file"),
        ("", rule(CommandPattern::Words(Vec::new())), "cannot be written in a policy file"),
    ] {
        let error = with_rule(text, here, &rule).unwrap_err();
        assert!(error.to_string().contains(expected) && !error.fix().is_empty(), "{error}");
    }
    use std::os::unix::ffi::OsStrExt as _;
    let odd = Path::new(std::ffi::OsStr::from_bytes(b"/w\xff"));
    assert!(matches!(with_rule("", Some(odd), &make), Err(WriteError::Unwritable(_))));
    assert!(matches!(with_approved("", Path::new("/w"), "123"), Err(WriteError::Digest(_))));
}
