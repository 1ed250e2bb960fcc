//! What has been looked at is not reported again, for as long as it was said to be.

use jiff::civil::{Date, date};
use ringfence_scan::rules::expand;
use ringfence_scan::{Allowlist, Scanner};

const TODAY: Date = date(2026, 6, 1);

fn list(entries: &str) -> Allowlist {
    Allowlist::parse(&format!("version = 1\nsalt = \"0123456789\"\n{entries}")).unwrap()
}

#[test]
fn fingerprints_paths_and_rules_allow_until_they_expire() {
    let secret = expand("ghp_{alnum:30}{github}", 1).unwrap();
    let scanner = Scanner::builder().salt(list("").salt().clone()).build();
    let finding = &scanner.scan(&secret)[0];
    let print = finding.fingerprint.unwrap();
    let entry = |what: &str, expires: &str| {
        list(&format!("[[allow]]\n{what}\nreason = \"r\"\nexpires = \"{expires}\"\n"))
    };
    let by_print = format!("fingerprint = \"{print}\"");
    for (what, path, allowed) in [
        (by_print.as_str(), "any/where", true),
        ("fingerprint = \"00000000000000000000000000000000\"", "any/where", false),
        ("path = \"tests/**\"", "tests/a/b.txt", true),
        ("path = \"tests/*\"", "tests/a/b.txt", false),
        ("path = \"tests/**\"\nrule = \"github-token\"", "tests/x", true),
        ("path = \"tests/**\"\nrule = \"private-key\"", "tests/x", false),
    ] {
        assert_eq!(
            entry(what, "2026-06-01").allows(finding, path, TODAY).is_some(),
            allowed,
            "{what} {path}"
        );
        assert!(entry(what, "2026-05-31").allows(finding, path, TODAY).is_none(), "{what} has expired");
    }
    assert_eq!(entry(&by_print, "2026-05-31").expired(TODAY).count(), 1);
}

#[test]
fn a_list_that_says_too_little_is_refused() {
    for (text, said) in [
        ("version = 2\nsalt = \"0123456789\"", "version 2"),
        ("version = 1\nsalt = \"short\"", "salt"),
        ("version = 1\nsalt = \"0123456789\"\nextra = 1", "not an allowlist"),
        (
            "version = 1\nsalt = \"0123456789\"\n[[allow]]\nreason = \"r\"\nexpires = \"2027-01-01\"",
            "fingerprint",
        ),
        (
            "version = 1\nsalt = \"0123456789\"\n[[allow]]\npath = \"x\"\nreason = \" \"\nexpires = \"2027-01-01\"",
            "reason",
        ),
        (
            "version = 1\nsalt = \"0123456789\"\n[[allow]]\npath = \"x\"\nreason = \"r\"\nexpires = \"soon\"",
            "expires",
        ),
        (
            "version = 1\nsalt = \"0123456789\"\n[[allow]]\npath = \"a{\"\nreason = \"r\"\nexpires = \"2027-01-01\"",
            "path",
        ),
        (
            "version = 1\nsalt = \"0123456789\"\n[[allow]]\nfingerprint = \"xyz\"\nreason = \"r\"\nexpires = \"2027-01-01\"",
            "32 hex",
        ),
    ] {
        let error = Allowlist::parse(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}
