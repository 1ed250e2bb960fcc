//! `--net filtered`: these hosts and no others, for every client.

use serde_json::Value;

use crate::internet::Internet;
use crate::testkit::Done;

const WEB: &[&str] = &["--net", "filtered", "--allow-host", "web.test"];

/// The test world itself: what the controls rely on.
#[test]
fn the_internet_of_the_tests_works() {
    let internet = Internet::new();
    let page = internet.control(&["curl", "-sS", "https://web.test/"]).expect(0);
    assert_eq!(page.text(), "hello from 30.0.0.10\n");
    let page = internet.control(&["curl", "-sS", "http://meta.test/"]).expect(0);
    assert_eq!(page.text(), "hello from 169.254.169.254\n");
    assert_eq!(internet.came_to("30.0.0.10"), 1);
    assert!(internet.names_asked().contains(&"web.test".to_owned()));
    internet.control(&["curl", "-sS", "--max-time", "2", "https://nowhere.test/"]).expect(6);
}

/// A port and a name below are parts of a rule.
#[test]
fn rules_are_about_ports_and_names_below() {
    let internet = Internet::new();
    let get = |host: &str, url: &str| {
        internet.run(&["--allow-host", host], &["curl", "-sS", "--max-time", "20", url])
    };
    get("web.test:8443", "https://web.test:8443/").expect(0);
    get("*.web.test", "https://api.web.test/").expect(0);
    internet.forget_visits();
    for (host, url) in [("web.test:443", "https://web.test:8443/"), ("*.web.test", "https://web.test/")] {
        let done = get(host, url);
        assert_ne!(done.code, Some(0), "{host} {url}");
    }
    assert_eq!(internet.visits(), Vec::<Value>::new());
}

/// Every flow is in the ledger, with its host, address, rule and bytes, and every refusal with what would change it.
#[test]
fn flows_and_refusals_are_written_down_and_reported() {
    let internet = Internet::new();
    let script =
        "curl -sS https://web.test/; curl -sS https://other.test/; curl -sS https://other.test/; true";
    let mut command = internet.ringfence();
    let done = crate::testkit::finish(
        command.args(["run", "--json"]).args(WEB).args(["--", "sh", "-c", script]),
        b"",
    );
    let report = done.expect(0).json();
    let (flows, refused) = (&report["network"]["flows"], &report["network"]["refused"]);
    assert_eq!(
        (&flows[0]["host"], &flows[0]["address"]),
        (&"web.test".into(), &"30.0.0.10".into()),
        "{report}"
    );
    assert!(flows[0]["bytes_in"].as_u64().unwrap() > 100, "{report}");
    assert_eq!((&refused[0]["host"], &refused[0]["times"]), (&"other.test".into(), &2.into()), "{report}");
    assert_eq!(refused[0]["refusal"]["hint"], "start with `--allow-host other.test`");
    let records = internet.world.records();
    let of_flow = |kind: &str| {
        let events = records.iter().map(|record| &record["event"]).filter(|event| event["kind"] == kind);
        events
            .filter(|event| kind == "flow-ended" || event["call"]["kind"] == "flow")
            .cloned()
            .collect::<Vec<_>>()
    };
    let intents = of_flow("call-intended");
    assert_eq!(intents.len(), 1, "{intents:?}");
    let opened = records.iter().map(|record| &record["event"]).filter(|event| event["kind"] == "flow-opened");
    let addresses: Vec<_> = opened.map(|event| event["address"].clone()).collect();
    assert_eq!(addresses, ["30.0.0.10"], "written before the address is tried");
    assert_eq!(intents[0]["rule"], "hosts.web.test");
    assert_eq!((of_flow("flow-ended").len(), of_flow("call-refused").len()), (1, 2));
    internet.world.ledger_tool(&["verify"]).expect(0);
    let shown = internet.world.ledger_tool(&["tail"]).expect(0).text();
    assert!(shown.contains("connect web.test:443 (connect)") && shown.contains("at 30.0.0.10"), "{shown}");
}

/// Nothing of the host's own proxy and trust is inside, and loopback is still the sandbox's own.
#[test]
fn the_environment_leads_to_the_proxy_of_the_session() {
    let internet = Internet::new();
    let mut command = internet.ringfence();
    command.env("https_proxy", "http://proxy.example:1").env("SSL_CERT_FILE", "/nowhere");
    let done = crate::testkit::finish(command.arg("run").args(WEB).args(["--", "env"]), b"").expect(0);
    let text = done.text();
    for name in ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
        assert!(text.contains(&format!("{name}=http://127.0.0.1:3128\n")), "{name}: {text}");
    }
    assert!(text.contains("SSL_CERT_FILE=/etc/ringfence-ca-bundle.pem\n"), "{text}");
    assert!(!text.contains("proxy.example") && !text.contains("/nowhere"), "{text}");
    let none = internet.run(&[], &["env"]).expect(0).text();
    assert!(!none.to_ascii_lowercase().contains("_proxy"), "{none}");
}

/// What a rule says about methods and paths is held, because the proxy looks inside.
#[test]
fn methods_and_paths_are_held_where_the_proxy_inspects() {
    let internet = Internet::new();
    internet.operator(
        "net = \"filtered\"\n[[host]]\nallow = [\"web.test\"]\nmethods = [\"GET\"]\npath = \"/echo\"\n",
    );
    let curl = |more: &[&str]| -> Done {
        let command = [&["curl", "-sS", "--max-time", "20", "-w", "%{http_code}"], more].concat();
        internet.run(&[], &command)
    };
    let done = curl(&["https://web.test/echo"]).expect(0);
    assert!(done.text().ends_with("200"), "{}", done.text());
    let seen = internet.came_to("30.0.0.10");
    assert_eq!(seen, 1);
    for more in
        [&["-d", "x", "https://web.test/echo"][..], &["https://web.test/"], &["https://web.test/echo/../"]]
    {
        let done = curl(more).expect(0);
        assert!(done.text().ends_with("403"), "{more:?}: {}", done.text());
        assert!(done.text().contains("host.method") || done.text().contains("host.path"), "{}", done.text());
    }
    assert_eq!(internet.came_to("30.0.0.10"), seen, "{:?}", internet.visits());
}

/// `check --url` says what the proxy does: allow, ask (nobody is there, so the answer is no), deny.
#[test]
fn check_says_what_the_proxy_does() {
    let internet = Internet::new();
    internet.operator("[[host]]\nallow = [\"web.test\"]\n[[host]]\ndeny = [\"evil.test\"]\n");
    let check = |url: &str| {
        let mut command = internet.ringfence();
        crate::testkit::finish(command.args(["check", "--net", "filtered", "--url", url]), b"").code
    };
    let status = |url: &str| {
        let curl = ["curl", "-sS", "-o", "page", "-w", "%{http_code} %header{x-ringfence-rule}", url];
        internet.run(&["--net", "filtered"], &curl).text()
    };
    for (url, code, said) in [
        ("http://web.test/", 0, "200 "),
        ("http://other.test/", 10, "403 host.unlisted"),
        ("http://evil.test/", 11, "403 hosts.evil.test"),
        ("http://meta.test/", 10, "403 host.unlisted"),
        ("http://169.254.169.254/", 11, "403 host.metadata"),
    ] {
        assert_eq!(check(url), Some(code), "{url}");
        let answered = status(url);
        assert!(answered.starts_with(said), "{url}: {answered}");
    }
    assert_eq!(
        internet.came_to("30.0.0.66") + internet.came_to("30.0.0.20") + internet.came_to("169.254.169.254"),
        0
    );
}

/// A request that makes no sense has no target, and is in the ledger all the same.
#[test]
fn what_makes_no_sense_is_in_the_ledger() {
    let internet = Internet::new();
    let client = "import socket\ns = socket.create_connection(('127.0.0.1', 3128))\n\
                  s.sendall(b'CONNECT web.test:443 HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n')\nprint(s.recv(12).decode())\n";
    let done = internet.run(&[WEB, &["--json"]].concat(), &["python3", "-c", client]);
    let object: Value = done.json();
    assert_eq!(object["stdout"], "HTTP/1.1 400\n", "{object}");
    assert_eq!(object["network"]["omitted"], 1, "{object}");
    let records = internet.world.records();
    let refused = records.iter().find(|record| record["event"]["refusal"]["rule"] == "network.malformed");
    let message = refused.expect("a record")["event"]["refusal"]["message"].as_str().unwrap();
    assert!(message.contains("evil.test"), "{message}");
    assert_eq!(internet.visits().len(), 0);
}
