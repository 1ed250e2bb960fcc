use proptest::prelude::*;
use ringfence_types::{PolicyLayer, Profile};

use super::*;
use crate::judgement::RuleLocation;

mod flow;

fn source(layer: PolicyLayer) -> RuleSource {
    let origin = RuleLocation { file: "/etc/ringfence.toml".into(), line: 7, column: 3 };
    RuleSource { layer, origin: Some(origin), reason: None }
}

fn entry(decision: Decision, host: &str) -> HostRule {
    HostRule {
        decision,
        host: HostPattern::parse(host).unwrap(),
        scheme: None,
        methods: None,
        path_prefix: None,
        inspect: false,
        upgrade: false,
        local: false,
        source: source(PolicyLayer::Operator),
    }
}

fn allow(host: &str) -> HostRule {
    entry(Decision::Allow, host)
}

fn deny(host: &str) -> HostRule {
    entry(Decision::Deny, host)
}

fn methods(words: &[&str]) -> Option<HttpMethods> {
    Some(HttpMethods::parse(words).unwrap())
}

fn path(prefix: &str) -> Option<PathPrefix> {
    Some(PathPrefix::parse(prefix).unwrap())
}

fn policy(net: NetMode, entries: Vec<HostRule>) -> Policy {
    let mut policy = Policy::new(Profile::Workspace);
    policy.net = net;
    policy.rules.hosts = HostRules::new(entries);
    policy
}

fn filtered(entries: Vec<HostRule>) -> Policy {
    policy(NetMode::Filtered, entries)
}

fn judged(policy: &Policy, url: &str, method: Option<&str>) -> JudgementPart {
    let part = judge_url(policy, url.as_bytes(), method);
    assert!(!part.rule.is_empty() && !part.reason.is_empty(), "{part:?}");
    assert_eq!(part.fix.is_some(), part.decision != Decision::Allow, "{part:?}");
    part
}

/// `allow`, or the rule that says no.
fn answer(policy: &Policy, url: &str) -> String {
    let part = judged(policy, url, None);
    if part.decision == Decision::Allow { "allow".to_owned() } else { part.rule.into() }
}

#[test]
fn unknown_hosts_are_denied_with_the_flag_that_allows_them() {
    let policy = filtered(vec![allow("example.org")]);
    assert_eq!(answer(&policy, "https://example.org/"), "allow");
    for (url, fix) in [
        ("https://other.test/x", "start with `--allow-host other.test`"),
        ("http://other.test:8080", "start with `--allow-host other.test:8080`"),
        ("https://sub.example.org/", "start with `--allow-host sub.example.org`"),
        ("https://[2606:4700::1]:8443/", "start with `--allow-host [2606:4700::1]:8443`"),
    ] {
        let part = judged(&policy, url, None);
        assert_eq!((part.rule.as_str(), part.fix.as_deref()), ("host.unlisted", Some(fix)), "{url}");
        assert_eq!(part.decision, Decision::Deny);
    }
}

#[test]
fn n2_without_a_rule_nothing_is_allowed() {
    for net in [NetMode::Filtered, NetMode::None] {
        let part = judged(&policy(net, Vec::new()), "https://example.org/", None);
        assert_eq!(part.decision, Decision::Deny, "{net}");
        assert_eq!(part.fix.as_deref(), Some("start with `--allow-host example.org`"), "{net}");
    }
    assert_eq!(
        answer(&policy(NetMode::None, vec![allow("example.org")]), "https://example.org/"),
        "net.none"
    );
}

#[test]
fn air_gapped_has_no_flag_that_opens_it() {
    let part = judged(&Policy::new(Profile::AirGapped), "https://example.org/", None);
    assert_eq!(part.fix.as_deref(), Some("use another profile than `air-gapped`"));
    let opened = Policy { profile: Profile::AirGapped, ..filtered(vec![allow("example.org")]) };
    assert_eq!(answer(&opened, "https://example.org/"), "net.none");
    let strict = Policy { profile: Profile::Strict, ..policy(NetMode::Full, Vec::new()) };
    assert_eq!(answer(&strict, "https://example.org/"), "host.unlisted");
}

#[test]
fn full_means_no_filter_but_denials_and_metadata_hold() {
    let policy = policy(NetMode::Full, vec![deny("bad.test"), entry(Decision::Ask, "odd.test")]);
    for (url, expected) in [
        ("https://example.org/", "allow"),
        ("http://127.0.0.1:8080/", "allow"),
        ("http://localhost:3000/", "allow"),
        ("https://bad.test/", "hosts.bad.test"),
        ("https://odd.test/", "hosts.odd.test"),
        ("http://169.254.169.254/latest", "host.metadata"),
    ] {
        assert_eq!(answer(&policy, url), expected, "{url}");
    }
}

#[test]
fn deny_beats_ask_beats_allow_in_any_order() {
    let mut entries = vec![allow("a.test"), entry(Decision::Ask, "a.test"), deny("a.test")];
    for _ in 0..entries.len() {
        entries.rotate_left(1);
        assert_eq!(judged(&filtered(entries.clone()), "https://a.test/", None).decision, Decision::Deny);
    }
    let two = vec![allow("*.test"), entry(Decision::Ask, "a.test")];
    assert_eq!(judged(&filtered(two), "https://a.test/", None).decision, Decision::Ask);
    let wide = vec![allow("a.b.test"), deny("*.test")];
    let part = judged(&filtered(wide), "https://a.b.test/", None);
    assert_eq!(part.fix.as_deref(), Some("change the rule at /etc/ringfence.toml:7:3"));
    assert_eq!(part.layer, PolicyLayer::Operator);
}

#[test]
fn a_question_is_a_no_where_questions_are_off() {
    let mut policy = filtered(vec![entry(Decision::Ask, "a.test")]);
    policy.approval = ApprovalMode::Never;
    assert_eq!(judged(&policy, "https://a.test/", None).decision, Decision::Deny);
}

#[test]
fn layers_below_the_operator_only_narrow() {
    for layer in [PolicyLayer::Workspace, PolicyLayer::Session, PolicyLayer::Call] {
        let low = |entry: HostRule| HostRule { source: source(layer), ..entry };
        assert_eq!(answer(&filtered(vec![low(allow("a.test"))]), "https://a.test/"), "host.unlisted");
        let both = filtered(vec![allow("a.test"), low(deny("a.test"))]);
        assert_eq!(answer(&both, "https://a.test/"), "hosts.a.test", "{layer:?}");
    }
}

#[test]
fn n5_every_spelling_of_a_host_is_that_host() {
    let policy = filtered(vec![allow("*.example.org"), deny("bad.example.org"), allow("bücher.example")]);
    for (url, expected) in [
        ("https://A.Example.ORG/", "allow"),
        ("https://a.example.org./", "allow"),
        ("https://a.b.example.org/", "allow"),
        ("https://a.example.org:443/", "allow"),
        ("https://example.org/", "host.unlisted"),
        ("https://notexample.org/", "host.unlisted"),
        ("https://BAD.example.org/", "hosts.bad.example.org"),
        ("https://bad.example.org./", "hosts.bad.example.org"),
        ("https://bad。example.org/", "hosts.bad.example.org"),
        ("https://BÜCHER.example/", "allow"),
        ("https://xn--bcher-kva.example/", "allow"),
        ("https://bu\u{308}cher.example/", "allow"),
        ("HTTPS://a.example.org/", "allow"),
    ] {
        assert_eq!(answer(&policy, url), expected, "{url}");
    }
}

#[test]
fn n4_what_two_parsers_read_differently_is_refused() {
    let policy =
        filtered(vec![allow("allowed.test"), allow("*.allowed.test"), allow("fass.de"), allow("*.de")]);
    for url in [
        "https://evil.test\0.allowed.test/",
        "https://evil.test%00.allowed.test/",
        "https://evil.test\r\n.allowed.test/",
        "https://evil.test .allowed.test/",
        "https://evil.test%2eallowed.test/",
        "https://allowed.test@evil.test/",
        "https://evil.test@allowed.test/",
        "https://user:secret@allowed.test/",
        "https://a@b@allowed.test/",
        "https://allowed.test\\@evil.test/",
        "https://evil.test\\.allowed.test/",
        "https:\\\\allowed.test/",
        "https:/\\allowed.test/",
        "https:///allowed.test/",
        "https:/allowed.test/",
        "https:allowed.test/",
        "//allowed.test/",
        "allowed.test/",
        "https://",
        "https:///",
        "https://:443/",
        "https://./",
        "https://allowed.test:/",
        "https://allowed.test:0/",
        "https://allowed.test:65536/",
        "https://allowed.test:0443/",
        "https://allowed.test:+443/",
        "https://allowed.test:443:443/",
        "https://allowed.test?@evil.test/",
        "https://allowed.test#@evil.test/",
        " https://allowed.test/",
        "https://allowed.test/ ",
        "https://allowed.test/\t",
        "ht\ttps://allowed.test/",
        "https://allowed.test/a\u{a0}b",
        "https://allowed.test/{a,b}",
        "https://allowed.test/[1-9]",
        "https://allowed.test/%zz",
        "https://allowed.test/%2",
        "https://allowed.test/é",
        "https://*.allowed.test/",
        "https://[::ffff:1.2.3.4%x.allowed.test]/",
        "https://[fe80::1%25eth0]/",
        "https://[::1/",
        "https://::1/",
        "https://faß.de/",
        "https://al\u{200d}lowed.test/",
        "https://allowed_.test/",
        "",
    ] {
        let part = judged(&policy, url, None);
        assert_eq!((part.decision, part.rule.as_str()), (Decision::Deny, "host.malformed"), "{url:?}");
        assert!(!part.subject.contains("secret"), "{}", part.subject);
    }
    let binary = judge_url(&policy, b"https://allowed.test/\xff", None);
    assert_eq!(binary.rule, "host.malformed");
    let long = format!("https://allowed.test/{}", "a".repeat(20_000));
    assert_eq!(answer(&policy, &long), "host.malformed");
}

#[test]
fn only_http_and_https_are_schemes() {
    let policy = policy(NetMode::Full, vec![allow("a.test")]);
    for url in [
        "ftp://a.test/",
        "file:///etc/passwd",
        "ws://a.test/",
        "gopher://a.test/",
        "javascript:alert(1)",
        "data:,x",
    ] {
        assert_eq!(answer(&policy, url), "host.scheme", "{url}");
    }
}

#[test]
fn n6_special_addresses_need_a_rule_of_their_own() {
    let wide = filtered(vec![allow("*.test"), allow("*.localhost"), allow("*.internal"), allow("127.0.0.2")]);
    for (url, expected) in [
        ("http://127.0.0.1/", "host.special"),
        ("http://[::1]/", "host.special"),
        ("http://0.0.0.0/", "host.special"),
        ("http://[::]/", "host.special"),
        ("http://10.0.0.1/", "host.special"),
        ("http://100.64.0.1/", "host.special"),
        ("http://[fd00::1]/", "host.special"),
        ("http://[64:ff9b::7f00:1]/", "host.special"),
        ("http://[2002:7f00:1::]/", "host.special"),
        ("http://localhost/", "host.special"),
        ("http://foo.localhost/", "host.special"),
        ("http://127.1/", "host.malformed"),
        ("http://0x7f.0.0.1/", "host.malformed"),
        ("http://2130706433/", "host.malformed"),
        ("http://0177.0.0.1/", "host.malformed"),
        ("http://[::ffff:127.0.0.1]/", "host.malformed"),
        ("http://[::ffff:7f00:1]/", "host.malformed"),
        ("http://127.0.0.2/", "allow"),
        ("http://8.8.8.8/", "host.unlisted"),
    ] {
        assert_eq!(answer(&wide, url), expected, "{url}");
    }
    let exact =
        filtered(vec![allow("127.0.0.1:8080"), allow("[::1]"), allow("localhost"), allow("a.localhost")]);
    for url in ["http://127.0.0.1:8080/", "http://[::1]/", "http://localhost:3000/", "http://a.localhost/"] {
        assert_eq!(answer(&exact, url), "allow", "{url}");
    }
    assert_eq!(answer(&exact, "http://127.0.0.1/"), "host.port");
}

#[test]
fn metadata_services_are_never_allowed() {
    let hosts = [
        "169.254.169.254",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "168.63.129.16",
        "metadata.google.internal",
    ];
    for host in hosts {
        let rule = allow(host);
        assert!(matches!(rule.check(), Err(HostRuleError::Metadata(_))), "{host}");
        let part = judged(&filtered(vec![rule]), &format!("http://{host}/latest/"), None);
        assert_eq!((part.rule.as_str(), part.risk), ("host.metadata", Risk::Critical), "{host}");
    }
    for host in ["[2002:a9fe:a9fe::]", "[64:ff9b::a9fe:a9fe]", "METADATA.google.internal."] {
        assert_eq!(
            answer(&filtered(vec![allow("*.internal")]), &format!("http://{host}/")),
            "host.metadata",
            "{host}"
        );
    }
    assert_eq!(deny("169.254.169.254").check(), Ok(()));
    assert_eq!(allow("example.org").check(), Ok(()));
}

#[test]
fn b_s18_addresses_match_no_wildcard() {
    assert!(HostPattern::parse("*.0.0.1").is_err());
    let policy = filtered(vec![allow("*.com")]);
    assert_eq!(answer(&policy, "http://8.8.8.8/"), "host.unlisted");
    assert_eq!(answer(&policy, "http://8.8.8.8.com/"), "allow");
}

#[test]
fn ports_and_schemes_are_part_of_a_rule() {
    let secure = HostRule { scheme: Some(UrlScheme::Https), ..allow("s.test") };
    let policy = filtered(vec![allow("p.test:8443"), allow("w.test:443"), secure]);
    for (url, expected) in [
        ("https://p.test:8443/", "allow"),
        ("http://p.test:8443/", "allow"),
        ("https://p.test/", "host.port"),
        ("https://w.test/", "allow"),
        ("http://w.test/", "host.port"),
        ("http://w.test:443/", "allow"),
        ("https://s.test/", "allow"),
        ("https://s.test:1234/", "allow"),
        ("http://s.test/", "host.scheme"),
    ] {
        assert_eq!(answer(&policy, url), expected, "{url}");
    }
}

#[test]
fn n12_unusual_methods_have_to_be_named() {
    let named = HostRule { methods: methods(&["GET", "PROPFIND"]), ..allow("b.test") };
    let policy = filtered(vec![allow("a.test"), named]);
    let decided = |url, method| judged(&policy, url, Some(method)).decision == Decision::Allow;
    for method in ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"] {
        assert!(decided("https://a.test/", method), "{method}");
    }
    for method in
        ["get", "Get", "TRACE", "CONNECT", "PROPFIND", "", "GET /x", "GET\r\nHost: x", "ＧＥＴ", "GET\0"]
    {
        assert!(!decided("https://a.test/", method), "{method:?}");
        let part = judged(&policy, "https://a.test/", Some(method));
        assert_eq!(part.rule, "host.method", "{method:?}");
    }
    assert!(decided("https://b.test/", "PROPFIND") && decided("https://b.test/", "GET"));
    assert!(!decided("https://b.test/", "POST") && !decided("https://b.test/", "propfind"));
    assert_eq!(judged(&policy, "https://a.test/", Some("POST")).risk, Risk::Medium);
    assert_eq!(HttpMethods::parse::<&str>(&[]), Err(HttpMethodError::Empty));
}

#[test]
fn a_denied_method_is_denied_in_every_letter_case() {
    let no_delete = HostRule { methods: methods(&["DELETE"]), ..deny("a.test") };
    let custom = HostRule { methods: methods(&["delete", "GET"]), ..allow("a.test") };
    let policy = filtered(vec![custom, no_delete]);
    assert_eq!(judged(&policy, "https://a.test/", Some("delete")).decision, Decision::Deny);
    assert_eq!(judged(&policy, "https://a.test/", Some("GET")).decision, Decision::Allow);
}

#[test]
fn n11_b_c18_paths_with_two_meanings_match_no_allowed_path() {
    let api = HostRule { path_prefix: path("/api/v1"), ..allow("a.test") };
    let policy = filtered(vec![api, allow("open.test")]);
    for good in [
        "/api/v1",
        "/api/v1/",
        "/api/v1/x?y=../z",
        "/api/v1/a%20b",
        "/api/v1/c%2B%2B",
        "/api/v1/%C3%A9",
        "/api/v1/.well-known",
    ] {
        assert_eq!(answer(&policy, &format!("https://a.test{good}")), "allow", "{good}");
    }
    for bad in [
        "",
        "/",
        "/api",
        "/api/v10",
        "/API/v1/x",
        "/api/v1/../../admin",
        "/api/v1/..",
        "/api/v1/.",
        "/api/v1/./x",
        "/api/v1/%2e%2e/admin",
        "/api/v1/%2E%2E/admin",
        "/api/v1/..%2fadmin",
        "/api/v1/%2f..%2fadmin",
        "/api/v1/%252e%252e/admin",
        "/api/v1/%5c..%5cadmin",
        "/api/v1//x",
        "//api/v1/x",
        "/api/v1/..;/admin",
        "/api/v1;x/y",
        "/api/v1/%3b",
        "/api/v1/x%00",
        "/api/v1/x%0a",
        "/api/v1/%c0%ae%c0%ae/admin",
        "/api/v1/x.",
        "/api/v1/x./y",
        "/%61pi/v1/x",
        "/api/v1/x%3fy",
        "/api/v1/x%23y",
    ] {
        assert_eq!(answer(&policy, &format!("https://a.test{bad}")), "host.path", "{bad}");
        assert_eq!(answer(&policy, &format!("https://open.test{bad}")), "allow", "{bad}");
    }
}

#[test]
fn a_denied_path_is_denied_in_doubt() {
    let no_admin = HostRule { path_prefix: path("/admin/"), ..deny("a.test") };
    let policy = filtered(vec![allow("a.test"), no_admin]);
    for bad in
        ["/admin", "/admin/x", "/ADMIN/x", "/x/../admin", "/%61dmin", "//admin", "/x;y", "/x/%2e%2e/admin"]
    {
        assert_eq!(answer(&policy, &format!("https://a.test{bad}")), "hosts.a.test", "{bad}");
    }
    for good in ["/", "/x", "/administrator", "/x/admin"] {
        assert_eq!(answer(&policy, &format!("https://a.test{good}")), "allow", "{good}");
    }
}

#[test]
fn prefixes_of_rules_are_checked_when_they_are_made() {
    for text in ["", "api", "/a/../b", "/a%2fb", "/a//b", "/a;b", "/a\\b", "/a b", "/é", "/a%zz"] {
        assert!(PathPrefix::parse(text).is_err(), "{text}");
    }
    assert_eq!(PathPrefix::parse("/").unwrap().to_string(), "/");
    assert_eq!("htps".parse::<UrlScheme>().unwrap_err().nearest, Some("https"));
}

#[test]
fn a_query_is_not_shown() {
    let part = judged(&filtered(Vec::new()), "https://a.test/x?token=hunter2#frag", None);
    assert_eq!(part.subject, "GET https://a.test/x");
    let part = judged(&filtered(Vec::new()), "https://a.test/x y?token=hunter2", None);
    assert!(!part.subject.contains("hunter2"), "{}", part.subject);
}

proptest! {
    /// What is accepted here means the same to the parser of browsers.
    #[test]
    fn n5_another_parser_reads_the_same(url in "https?://([a-zA-Z0-9.%@:_-]{1,12}|[0-9a-fx.]{1,12}|\\[[0-9a-f:.]{1,16}\\]|[a-z]\\PC{0,4}\\.org)(:[0-9]{0,6})?([/?#][ -~]{0,16})?") {
        if let Ok(request) = UrlRequest::read(url.as_bytes(), None) {
            let other = ::url::Url::parse(&url).unwrap();
            prop_assert_eq!(other.scheme(), request.scheme.to_string());
            prop_assert_eq!(other.host_str().unwrap().trim_end_matches('.'), request.host.to_string());
            prop_assert_eq!(other.port_or_known_default(), Some(request.port));
            prop_assert_eq!((other.username(), other.password()), ("", None));
            if request.path.oddity.is_none() {
                prop_assert!(other.path().eq_ignore_ascii_case(&request.path.text));
            }
        }
    }

    #[test]
    fn any_bytes_get_an_answer_and_never_an_open_host(url in proptest::collection::vec(any::<u8>(), 0..64), method in "\\PC{0,8}") {
        let policy = filtered(vec![allow("allowed.test")]);
        let part = &judge_url(&policy, &url, Some(&method));
        prop_assert_eq!(part.decision, Decision::Deny);
    }

    /// Whatever a lower layer adds, nothing more is allowed.
    #[test]
    fn a_lower_layer_never_opens(decisions in proptest::collection::vec((0..3_usize, 0..4_usize), 0..6), host in 0..4_usize) {
        const HOSTS: [&str; 4] = ["a.test", "*.test", "b.a.test", "10.0.0.1"];
        const URLS: [&str; 4] = ["https://a.test/", "https://c.test/", "https://b.a.test/", "https://10.0.0.1/"];
        let operator = vec![allow("a.test"), entry(Decision::Ask, "b.a.test")];
        let mut with = operator.clone();
        for (decision, host) in decisions {
            let decision = [Decision::Allow, Decision::Ask, Decision::Deny][decision];
            with.push(HostRule { source: source(PolicyLayer::Workspace), ..entry(decision, HOSTS[host]) });
        }
        let before = judged(&filtered(operator), URLS[host], None).decision;
        prop_assert!(judged(&filtered(with), URLS[host], None).decision >= before);
    }
}
