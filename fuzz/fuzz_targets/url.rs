//! What is allowed leads to the allowed host, also as browsers read it.
#![no_main]

mod machine;

use libfuzzer_sys::fuzz_target;
use ringfence_authz::RuleSource;
use ringfence_authz::hosts::{HostRule, HostRules, judge_url};
use ringfence_types::{Decision, NetMode, PolicyLayer};

fuzz_target!(|url: &[u8]| {
    let mut policy = machine::policy();
    policy.net = NetMode::Filtered;
    policy.rules.hosts = HostRules::new(vec![allowed("example.com:443"), allowed("*.sub.test:443")]);
    let part = judge_url(&policy, url, None);
    assert!(!part.subject.contains(char::is_control));
    assert!(part.decision == Decision::Allow || part.fix.is_some());
    if part.decision != Decision::Allow {
        return;
    }
    let text = std::str::from_utf8(url).expect("an allowed URL is text");
    let read = ::url::Url::parse(text).expect("an allowed URL is one for browsers");
    let host = read.host_str().expect("it has a host").trim_end_matches('.');
    assert!(host == "example.com" || host.ends_with(".sub.test"), "{text:?} leads to {host}");
    assert_eq!(read.port_or_known_default(), Some(443), "{text:?}");
});

fn allowed(host: &str) -> HostRule {
    HostRule {
        decision: Decision::Allow,
        host: host.parse().expect("a rule"),
        scheme: None,
        methods: None,
        path_prefix: None,
        inspect: false,
        upgrade: false,
        local: false,
        source: RuleSource { layer: PolicyLayer::Flags, origin: None, reason: None },
    }
}
