use ringfence_types::{FetchCall, FlowCall, UnlistedHosts, Way};

use super::*;

fn flow(host: &str, port: u16) -> FlowCall {
    FlowCall { way: Way::Connect, host: host.to_owned(), port, request: None, address: None }
}

fn request(method: &str, url: &str, flow: FlowCall) -> FlowCall {
    FlowCall { request: Some(FetchCall::new(method.to_owned(), url.to_owned())), ..flow }
}

fn verdict(policy: &Policy, flow: &FlowCall) -> (Decision, String) {
    let part = judge_flow(policy, flow);
    (part.decision, part.rule.into())
}

/// A connection is known by host and port alone; what is said in it is judged where somebody sees it.
#[test]
fn a_rule_about_requests_opens_a_connection_and_has_it_inspected() {
    let partial = HostRule { methods: methods(&["GET"]), path_prefix: path("/v1"), ..allow("a.test") };
    let policy = filtered(vec![partial, allow("b.test:443"), HostRule { inspect: true, ..allow("c.test") }]);
    let connect = flow("a.test", 443);
    assert_eq!(verdict(&policy, &connect), (Decision::Allow, "hosts.a.test".to_owned()));
    let host = |name: &str| Host::Name(name.to_owned());
    let inspected = |name: &str| handling(&policy, &host(name), 443).inspected;
    assert_eq!(["a.test", "b.test", "c.test", "d.test"].map(inspected), [true, false, true, false]);
    let get = |url: &str| verdict(&policy, &request("GET", url, connect.clone()));
    assert_eq!(get("https://a.test/v1/x").0, Decision::Allow);
    assert_eq!(get("https://a.test/v2"), (Decision::Deny, "host.path".to_owned()));
    assert_eq!(get("https://other.test/v1"), (Decision::Deny, "host.malformed".to_owned()));
    let post = request("POST", "https://a.test/v1", connect);
    assert_eq!(verdict(&policy, &post), (Decision::Deny, "host.method".to_owned()));
}

/// A denial of some requests closes these and not the connection; one of the host closes it.
#[test]
fn denials_hold_for_connections_and_requests() {
    let some = HostRule { methods: methods(&["DELETE"]), ..deny("a.test") };
    let policy = filtered(vec![allow("a.test"), some, allow("*.b.test"), deny("x.b.test")]);
    assert_eq!(verdict(&policy, &flow("a.test", 443)).0, Decision::Allow);
    assert!(handling(&policy, &Host::Name("a.test".to_owned()), 443).inspected);
    let delete = request("DELETE", "https://a.test/", flow("a.test", 443));
    assert_eq!(verdict(&policy, &delete).0, Decision::Deny);
    assert_eq!(verdict(&policy, &flow("y.b.test", 1)).0, Decision::Allow);
    assert_eq!(verdict(&policy, &flow("x.b.test", 1)), (Decision::Deny, "hosts.x.b.test".to_owned()));
}

/// A host that nobody has said anything about is a crossing in `workspace`; special ones and denied ones are not.
#[test]
fn unknown_hosts_ask_where_the_policy_says_so() {
    let asks = Policy {
        profile: Profile::Workspace,
        unlisted_hosts: UnlistedHosts::Ask,
        ..filtered(vec![allow("a.test:443"), deny("d.test")])
    };
    assert_eq!(verdict(&asks, &flow("u.test", 443)), (Decision::Ask, "host.unlisted".to_owned()));
    assert_eq!(verdict(&asks, &flow("a.test", 22)), (Decision::Ask, "host.port".to_owned()));
    for closed in ["d.test", "127.0.0.1", "localhost", "169.254.169.254", "a..b", "*.a.test", "0x7f.1"] {
        assert_eq!(verdict(&asks, &flow(closed, 443)).0, Decision::Deny, "{closed}");
    }
    let denies = Policy { unlisted_hosts: UnlistedHosts::Deny, ..asks.clone() };
    let never = Policy { approval: ApprovalMode::Never, ..asks.clone() };
    let off = Policy { net: NetMode::None, ..asks.clone() };
    for policy in [&denies, &never, &off] {
        assert_eq!(verdict(policy, &flow("u.test", 443)).0, Decision::Deny);
    }
    let resolves =
        |policy: &Policy, name: &str| may_resolve(policy, HostPattern::parse(name).unwrap().host());
    assert!(resolves(&asks, "a.test") && resolves(&asks, "u.test") && resolves(&denies, "a.test"));
    for (policy, name) in
        [(&asks, "d.test"), (&denies, "u.test"), (&asks, "metadata.google.internal"), (&off, "a.test")]
    {
        assert!(!resolves(policy, name), "{name}");
    }
}

/// Only a rule that says so about exactly this host lets a name be this machine or its network.
#[test]
fn a_name_is_local_only_where_its_own_rule_says_so() {
    let policy = filtered(vec![
        allow("plain.test"),
        HostRule { local: true, ..allow("company.test") },
        allow("localhost"),
        allow("*.below.test"),
    ]);
    let local = |name: &str| handling(&policy, HostPattern::parse(name).unwrap().host(), 443).may_be_local;
    let names = ["plain.test", "company.test", "localhost", "x.below.test", "127.0.0.1"];
    assert_eq!(names.map(local), [false, true, true, false, false]);
}

/// What `check` says about a request is what the proxy does with it.
#[test]
fn a_request_is_judged_as_its_flow_is() {
    let rules = || {
        let partial = HostRule { methods: methods(&["GET"]), path_prefix: path("/v1"), ..allow("p.test") };
        vec![allow("a.test:443"), deny("d.test"), partial]
    };
    let mut seen = std::collections::HashSet::new();
    for unlisted_hosts in [UnlistedHosts::Ask, UnlistedHosts::Deny] {
        for approval in [ApprovalMode::Ask, ApprovalMode::Never] {
            let profile = Profile::Workspace;
            let policy = Policy { profile, unlisted_hosts, approval, ..filtered(rules()) };
            for host in ["a.test", "d.test", "p.test", "u.test", "127.0.0.1", "169.254.169.254"] {
                for (port, path, method) in [(443, "/v1", "GET"), (443, "/x", "GET"), (8443, "/v1", "POST")] {
                    let url = format!("https://{host}:{port}{path}");
                    let checked = judge_request(&policy, url.as_bytes(), Some(method));
                    let flow = request(method, &url, flow(host, port));
                    let done = verdict(&policy, &flow);
                    assert_eq!((checked.decision, checked.rule.into()), done, "{method} {url}");
                    seen.insert(done.0);
                }
            }
        }
    }
    assert_eq!(seen.len(), 3, "allow, ask and deny");
}
