use std::collections::BTreeSet;

use super::*;

#[test]
fn every_family_can_be_read() {
    for (name, text) in FAMILIES {
        let rules = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!rules.is_empty(), "{name}");
    }
    assert_eq!(built_in().len(), FAMILIES.iter().map(|(_, text)| parse(text).unwrap().len()).sum::<usize>());
}

#[test]
fn there_are_at_least_150_kinds_with_an_id_of_their_own() {
    let ids: BTreeSet<&str> = built_in().iter().map(|rule| rule.id()).collect();
    assert_eq!(ids.len(), built_in().len());
    assert!(ids.len() >= 150, "{}", ids.len());
}

#[test]
fn every_rule_finds_its_examples_and_not_its_counterexamples() {
    let faults: Vec<String> = built_in()
        .iter()
        .filter_map(|rule| check(std::slice::from_ref(rule)).err())
        .map(|error| error.to_string())
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn known_keywords_are_those_of_the_rules() {
    let of_rules: BTreeSet<String> =
        built_in().iter().flat_map(|rule| rule.keywords.iter().map(|k| k.to_ascii_lowercase())).collect();
    let known: BTreeSet<String> = KEYWORDS.iter().map(|k| (*k).to_owned()).collect();
    assert_eq!(known, of_rules);
}
