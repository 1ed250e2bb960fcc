use ringfence_types::Quorum;
use ringfence_types::units::Duration;

use super::super::settings::{ApprovalSettings, Channel, Settings, Webhook, settings};
use super::*;

const HOME: &str = "/home/ann";

fn read(text: &str) -> Settings {
    settings(&[operator(text).unwrap()], Some(Path::new(HOME)))
}

#[test]
fn what_nobody_says_is_the_default() {
    assert_eq!(read(""), Settings::default());
    assert_eq!(settings(&[], None).approvals.quorum, Quorum { approve: 1, deny: 1 });
}

#[test]
fn every_key_is_read() {
    let text = "\
[approvals]
timeout = \"3m\"
quorum = { approve = 2 }
reason = \"required\"
grant_expiry = \"7d\"
notify = [\"desktop\", \"webhook\"]
webhook = { url = \"https://a.test/x\", secret_file = \"~/secret\" }
";
    let Settings { approvals } = read(text);
    let expected = ApprovalSettings {
        timeout: Some(Duration(180_000)),
        quorum: Quorum { approve: 2, deny: 1 },
        reason_required: true,
        grant_expiry: Some(Duration(7 * 86_400_000)),
        notify: vec![Channel::Desktop, Channel::Webhook],
        webhook: Some(Webhook { url: "https://a.test/x".to_owned(), secret_file: "/home/ann/secret".into() }),
    };
    assert_eq!(approvals, expected);
}

#[test]
fn a_file_counts_before_what_it_extends_and_key_by_key() {
    let files = disk(&[("/p/team.toml", "[approvals]\ntimeout = \"1m\"\nreason = \"required\"\n")]);
    let own = b"extends = [\"team.toml\"]\n[approvals]\ntimeout = \"2m\"\n";
    let file = PolicyFile::load(Role::Operator, Path::new("/p/config.toml"), own, &files).unwrap();
    let approvals = settings(&[file], None).approvals;
    assert_eq!((approvals.timeout, approvals.reason_required), (Some(Duration(120_000)), true));
}

#[test]
fn only_an_operator_says_it() {
    let key = "[approvals]\ntimeout = \"1h\"\n";
    for role in [Role::Workspace, Role::Session] {
        let error = PolicyFile::parse(role, Path::new("/w/policy.toml"), key.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("says nothing about"), "{error}");
    }
    assert!(operator(key).is_ok());
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let hook = |url: &str| format!("[approvals]\nwebhook = {{ url = \"{url}\", secret_file = \"/s\" }}\n");
    for good in ["https://a.test", "http://127.0.0.1:8080/x", "http://[::1]:1/", "http://localhost/x"] {
        assert!(operator(&hook(good)).is_ok(), "{good}");
    }
    let bad = [
        hook("http://a.test/"),
        hook("http://127.0.0.1@a.test/"),
        hook("http://localhost.a.test/"),
        hook("https://"),
        hook("https://me@a.test/"),
        hook("ftp://127.0.0.1/"),
        "[approvals]\nnotify = \"webhook\"\n".to_owned(),
        "[approvals]\nnotify = \"pigeon\"\n".to_owned(),
        "[approvals]\nwebhook = { url = \"https://a.test\" }\n".to_owned(),
        "[approvals]\nwebhook = { secret_file = \"/s\" }\n".to_owned(),
        "[approvals]\nwebhook = { url = \"https://a.test\", secret_file = \"s\" }\n".to_owned(),
        "[approvals]\nquorum = { approve = 0 }\n".to_owned(),
        "[approvals]\ntimeout = 0\n".to_owned(),
        "[approvals]\nreason = true\n".to_owned(),
        "[workspaces.\"/w\".approvals]\ntimeout = \"1h\"\n".to_owned(),
    ];
    for text in bad {
        assert!(operator(&text).is_err(), "{text}");
    }
}

#[test]
fn the_digest_changes_with_what_holds_and_not_with_stored_answers() {
    let digest = |files: &[PolicyFile]| merged(&flags(), files).unwrap().digest();
    let none = digest(&[]);
    let deny = operator("[[command]]\ndeny = \"make\"\n").unwrap();
    assert_eq!(none, digest(&[]));
    assert_ne!(none, digest(std::slice::from_ref(&deny)));
    let rules = format!("[[workspaces.\"{WORKSPACE}\".command]]\nallow = \"make\"\n");
    let grant = PolicyFile::parse(Role::Operator, &crate::grant_file("gr_1"), rules.as_bytes()).unwrap();
    assert_eq!(none, digest(std::slice::from_ref(&grant)));
    let effective = merged(&flags(), &[grant]).unwrap();
    let origin = effective.settings.iter().find_map(|setting| setting.origin.clone()).unwrap();
    assert_eq!((origin.grant(), origin.to_string().as_str()), (Some("gr_1"), "grant gr_1"));
}
