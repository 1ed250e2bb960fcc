use std::collections::BTreeSet;

use super::*;

const ERRORS: &str = include_str!("../../../../docs/errors.md");

#[test]
fn a_name_has_the_word_of_its_rule_and_the_place_where_it_is_written() {
    let rule = RuleName::from(RuleId::PathRule).at("/etc/ringfence/config.toml:3:1");
    assert_eq!(rule, "path.rule (/etc/ringfence/config.toml:3:1)");
    assert_eq!(rule.id(), Some(RuleId::PathRule));
    let denied = RuleName::because_of(RuleId::ApprovalDenied, &rule);
    assert_eq!(denied, "approval.denied: path.rule (/etc/ringfence/config.toml:3:1)");
    assert_eq!(denied.id(), Some(RuleId::ApprovalDenied));
    let plain = RuleName::from(RuleId::PathRule);
    assert!(rule != RuleId::PathRule && plain == RuleId::PathRule);
}

#[test]
fn a_family_contains_its_members_and_nothing_that_begins_like_it() {
    let member = RuleFamily::Env.member("CC*");
    assert_eq!(member, "env.CC*");
    assert!(RuleFamily::Env.contains(&member) && member.id().is_none());
    assert!(RuleFamily::Guarded.contains(&RuleId::GuardedCd.into()));
    assert!(!RuleFamily::Option.contains(&RuleName(Cow::Borrowed("options.x"))));
}

#[test]
fn a_rule_of_another_version_is_read_as_it_was_written() {
    let rule: RuleName = serde_json::from_str("\"moon.phase (a:1:1)\"").unwrap();
    assert_eq!(
        (rule.id(), serde_json::to_string(&rule).unwrap()),
        (None, "\"moon.phase (a:1:1)\"".to_owned())
    );
}

#[test]
fn every_profile_has_a_rule_of_its_name() {
    for profile in Profile::ALL {
        assert_eq!(RuleId::of_profile(*profile).word(), format!("profile.{profile}"));
    }
}

/// The words in the first column of the tables of `docs/errors.md` that have the form of a rule.
fn rules_of_the_page() -> BTreeSet<&'static str> {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    let is_rule = |text: &&str| text.split_once('.').is_some_and(|(family, name)| word(family) && word(name));
    ERRORS.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).filter(is_rule).collect()
}

#[test]
fn docs_errors_md_explains_every_rule_and_no_other() {
    let known: BTreeSet<&str> = RuleId::WORDS.iter().copied().filter(|word| word.contains('.')).collect();
    let told = rules_of_the_page();
    let silent: Vec<&&str> = known.difference(&told).collect();
    assert!(silent.is_empty(), "no row in docs/errors.md: {silent:?}");
    let gone: Vec<&&str> = told.difference(&known).collect();
    assert!(gone.is_empty(), "docs/errors.md explains rules that do not exist: {gone:?}");
}
