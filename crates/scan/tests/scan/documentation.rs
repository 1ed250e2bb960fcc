//! `docs/scan.md` lists every kind.

use ringfence_scan::rules::built_in;

#[test]
fn every_rule_is_in_the_documentation() {
    let text = include_str!("../../../../docs/scan.md");
    let listed: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("- `")?.split('`').next()).collect();
    let rules: Vec<&str> = built_in().iter().map(|rule| rule.id()).collect();
    assert_eq!(listed, rules);
}
