use ringfence_types::Quorum;
use ringfence_types::units::HumanDuration;

use super::super::settings::{
    ApprovalSettings, DaemonSettings, NotifyChannel, OperatorSettings, TlsSettings, WebhookSettings, settings,
};
use super::*;

const HOME: &str = "/home/ann";

fn read(text: &str) -> OperatorSettings {
    settings(&[operator(text).unwrap()], Some(Path::new(HOME)))
}

#[test]
fn what_nobody_says_is_the_default() {
    assert_eq!(read(""), OperatorSettings::default());
    assert_eq!(settings(&[], None).approvals.quorum, Quorum { approve: 1, deny: 1 });
}

#[test]
fn every_key_is_read() {
    let text = "\
[approvals]
timeout = \"3m\"
quorum = { approve = 2 }
require_reason = true
grant_lifetime = \"7d\"
notify = [\"desktop\", \"webhook\"]
webhook = { url = \"https://a.test/x\", secret_file = \"~/secret\" }
";
    let OperatorSettings { approvals, .. } = read(text);
    let expected = ApprovalSettings {
        timeout: Some(HumanDuration(180_000)),
        quorum: Quorum { approve: 2, deny: 1 },
        reason_required: true,
        grant_lifetime: Some(HumanDuration(7 * 86_400_000)),
        notify: vec![NotifyChannel::Desktop, NotifyChannel::Webhook],
        webhook: Some(WebhookSettings {
            url: "https://a.test/x".to_owned(),
            secret_file: "/home/ann/secret".into(),
        }),
    };
    assert_eq!(approvals, expected);
}

#[test]
fn a_file_counts_before_what_it_extends_and_key_by_key() {
    let files = disk(&[("/p/team.toml", "[approvals]\ntimeout = \"1m\"\nrequire_reason = true\n")]);
    let own = b"extends = [\"team.toml\"]\n[approvals]\ntimeout = \"2m\"\n";
    let file = PolicyFile::load(PolicyFileRole::Operator, Path::new("/p/config.toml"), own, &files).unwrap();
    let approvals = settings(&[file], None).approvals;
    assert_eq!((approvals.timeout, approvals.reason_required), (Some(HumanDuration(120_000)), true));
}

#[test]
fn only_an_operator_says_it() {
    let key = "[approvals]\ntimeout = \"1h\"\n";
    for role in [PolicyFileRole::Workspace, PolicyFileRole::Session] {
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
    let grant =
        PolicyFile::parse(PolicyFileRole::Operator, &ringfence_authz::grant_file("gr_1"), rules.as_bytes())
            .unwrap();
    assert_eq!(none, digest(std::slice::from_ref(&grant)));
    let effective = merged(&flags(), &[grant]).unwrap();
    let origin = effective.settings.iter().find_map(|setting| setting.origin.clone()).unwrap();
    assert_eq!((origin.grant(), origin.to_string().as_str()), (Some("gr_1"), "grant gr_1"));
}

#[test]
fn the_daemon_listens_where_it_is_told_to_and_nowhere_else() {
    assert_eq!(read("").daemon, DaemonSettings::default());
    let text = "[daemon]\nlisten = \"0.0.0.0:7420\"\ntls = \"files\"\ncertificate = \"/c.pem\"\nkey = \"~/k.pem\"\n\
                hosts = [\"box.example\"]\norigins = \"https://console.example\"\n";
    let DaemonSettings { listen, hosts, origins, tls } = read(text).daemon;
    assert_eq!(listen.unwrap().to_string(), "https://0.0.0.0:7420");
    assert_eq!(
        (hosts, origins),
        (vec!["box.example".to_owned()], vec!["https://console.example".to_owned()])
    );
    assert_eq!(tls, TlsSettings::Files { certificate: "/c.pem".into(), key: "/home/ann/k.pem".into() });
    let plain = read("[daemon]\nlisten = \"127.0.0.1:7420\"\n").daemon;
    assert_eq!(plain.listen.unwrap().to_string(), "http://127.0.0.1:7420");
}

/// Somebody wanted TLS: without a home there is no such file, and then nothing listens.
#[test]
fn without_its_files_nothing_listens_in_the_clear() {
    let text = "[daemon]\nlisten = \"127.0.0.1:7420\"\ntls = \"files\"\ncertificate = \"/c.pem\"\nkey = \"~/k.pem\"\n";
    assert!(read(text).daemon.listen.is_some(), "the control");
    assert_eq!(settings(&[operator(text).unwrap()], None).daemon, DaemonSettings::default());
}

/// S003-21, S003-22: what could be read by others is refused with the place and the fix.
#[test]
fn s003_22_an_address_that_others_reach_takes_tls() {
    let problem = |text: &str| operator(text).unwrap_err().to_string();
    let open = problem("[daemon]\nlisten = \"0.0.0.0:7420\"\n");
    assert!(open.starts_with("config.toml:2:10: ") && open.contains("tls = \"generated\""), "{open}");
    for (text, part) in [
        ("[daemon]\nlisten = \"localhost:80\"\n", "127.0.0.1:7420"),
        ("[daemon]\nhosts = [\"a\"]\n", "nothing listens without `listen`"),
        ("[daemon]\nlisten = \"127.0.0.1:1\"\ntls = \"files\"\nkey = \"/k\"\n", "without `certificate`"),
        ("[daemon]\nlisten = \"127.0.0.1:1\"\nkey = \"/k\"\n", "nothing uses `key`"),
        ("[daemon]\nlisten = \"127.0.0.1:1\"\nhosts = [\"*.example\"]\n", "not the name of one host"),
        ("[daemon]\nlisten = \"127.0.0.1:1\"\norigins = [\"https://a.example/\"]\n", "not a site"),
        ("[daemon]\nlisten = \"127.0.0.1:1\"\norigins = [\"*\"]\n", "not a site"),
        ("[daemon]\nlisten = \"127.0.0.1:1\"\ntls = \"of\"\n", "did you mean `off`?"),
    ] {
        assert!(problem(text).contains(part), "{text}: {}", problem(text));
    }
    let theirs = b"[daemon]\nlisten = \"127.0.0.1:1\"\n";
    let error = PolicyFile::parse(PolicyFileRole::Workspace, Path::new("policy.toml"), theirs).unwrap_err();
    assert!(error.to_string().contains("says nothing about `daemon`"), "{error}");
}

/// C-31: what weakens a guarantee is said each time, by whoever starts something.
#[test]
fn c31_flags_of_the_command_line_are_no_keys() {
    for (key, flag) in [
        ("danger", "--danger"),
        ("allow_sensitive_roots", "--allow-sensitive-roots"),
        ("allow-denylisted-commands", "--allow-denylisted-commands"),
    ] {
        for text in [format!("{key} = true\n"), format!("[daemon]\nlisten = \"127.0.0.1:1\"\n{key} = true\n")]
        {
            let error = operator(&text).unwrap_err().to_string();
            assert!(
                error.contains("flag of the command line alone")
                    && error.contains(&format!("start with `{flag}`")),
                "{error}"
            );
        }
    }
}
