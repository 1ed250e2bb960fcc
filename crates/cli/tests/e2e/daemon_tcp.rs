//! The daemon on TCP: who is turned away before anybody asks who they are, and who is let in.

use std::fs;
use std::net::TcpStream;
use std::ops::Deref;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::daemon_fixture;
use crate::test_timeouts::Patient;
use crate::testkit::{World, eventually, finish};

/// A daemon on TCP.
struct Served {
    daemon: daemon_fixture::Served,
    port: u16,
}

impl Deref for Served {
    type Target = daemon_fixture::Served;

    fn deref(&self) -> &Self::Target {
        &self.daemon
    }
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Served {
    /// `more` is what `[daemon]` says besides `listen`.
    fn new(more: &str) -> Self {
        let daemon = daemon_fixture::Served::listening(World::new(), "", more);
        Self { port: daemon.port(), daemon }
    }

    fn token(&self, scopes: &str) -> String {
        let done =
            finish(self.world.ringfence().args(["token", "create", "t", "--scope", scopes]), b"").expect(0);
        done.text().trim_end().to_owned()
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// One request with exactly these headers.
    fn raw(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let stream = Patient(TcpStream::connect(("127.0.0.1", self.port)).unwrap());
        exchange(stream, line, headers, body)
    }

    fn ask(&self, line: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let host = self.host();
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.raw(line, &[&[("Host", host.as_str())], headers].concat(), &text)
    }

    fn with(&self, token: &str, line: &str, body: &Value) -> Answer {
        self.ask(line, &[("Authorization", &format!("Bearer {token}"))], body)
    }

    /// By the socket of the operators.
    fn local(&self, line: &str, token: Option<&str>, body: &Value) -> Answer {
        let stream = Patient(UnixStream::connect(&self.socket).unwrap());
        let header = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> =
            header.iter().map(|value| ("Authorization", value.as_str())).collect();
        let text = if body.is_null() { String::new() } else { body.to_string() };
        exchange(stream, line, &[&[("Host", "ringfence")], headers.as_slice()].concat(), &text)
    }

    fn purposes(&self) -> Vec<String> {
        let records = self.world.records();
        let of = |record: &Value| record["event"]["kind"] == "authentication-attempted";
        records.iter().filter(|record| of(record)).map(|record| record["event"].to_string()).collect()
    }
}

fn exchange(
    mut stream: impl std::io::Read + std::io::Write,
    line: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut text = format!("{line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {line}: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let head = head.to_ascii_lowercase();
    let chunked = head.contains("transfer-encoding: chunked");
    let body = if chunked { joined(body) } else { body.to_owned() };
    Answer { status, head, body: serde_json::from_str(&body).unwrap_or(Value::Null) }
}

/// One request without a token, and the status and body of the answer.
pub(crate) fn exchanged(stream: impl std::io::Read + std::io::Write, line: &str, body: &str) -> (u16, Value) {
    let answer = exchange(stream, line, &[("Host", "ringfence")], body);
    (answer.status, answer.body)
}

/// A body that came in chunks.
pub(crate) fn joined(body: &str) -> String {
    let mut rest = body;
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(after.get(..size).unwrap());
        rest = after.get(size..).unwrap().trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    whole
}

/// The ports that a process listens on.
fn listens(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let sockets: Vec<String> = links
        .filter_map(|link| fs::read_link(link.path()).ok())
        .filter_map(|link| {
            link.to_str()?.strip_prefix("socket:[").map(|rest| rest.trim_end_matches(']').to_owned())
        })
        .collect();
    let tables = ["tcp", "tcp6"]
        .map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let listening = |line: &&str| line.split_whitespace().nth(3) == Some("0A");
    let inode = |line: &str| line.split_whitespace().nth(9).map(str::to_owned);
    lines.filter(listening).filter_map(inode).filter(|inode| sockets.contains(inode)).count()
}

/// S003-21, D1: off until somebody asks for it.
#[test]
fn s003_21_nothing_listens_on_tcp_unless_the_operator_says_so() {
    let off = daemon_fixture::Served::new();
    assert_eq!(listens(off.child.id()), 0);
    let on = Served::new("");
    assert_eq!(listens(on.child.id()), 1, "the control: the same look finds one that is there");
    assert!(on.said().contains(&format!("http://127.0.0.1:{}\n", on.port)), "{}", on.said());
}

/// S003-17, S003-39, S003-40, S003-44, D3: a token, its scope, its end.
#[test]
fn s003_40_a_token_is_good_for_its_scopes_until_it_is_revoked() {
    let served = Served::new("");
    assert_eq!(served.ask("GET /v1/whoami", &[], &Value::Null).status, 401, "nobody is an owner on TCP");
    let token = served.token("read");
    let answer = served.with(&token, "GET /v1/whoami", &Value::Null);
    assert_eq!((answer.status, &answer.body["scopes"]), (200, &json!(["read"])));
    assert!(
        answer.head.contains("content-security-policy: default-src 'none'")
            && answer.head.contains("no-store"),
        "{}",
        answer.head
    );
    let refused = served.with(&token, "POST /v1/shutdown", &json!({}));
    assert_eq!(refused.status, 403);
    assert!(refused.body["message"].as_str().unwrap().contains("scope `admin`"), "{refused:?}");
    assert!(
        served
            .purposes()
            .iter()
            .any(|event| event.contains("daemon.shutdown") && event.contains("identity.scope"))
    );
    finish(served.world.ringfence().args(["token", "revoke", token.split('_').nth(2).unwrap()]), b"")
        .expect(0);
    let over = served.with(&token, "GET /v1/whoami", &Value::Null);
    assert_eq!((over.status, &over.body["rule"]), (401, &json!("identity.revoked")));
}

/// DNS rebinding, pages of other sites, tokens in addresses; each with the same request that passes.
#[test]
fn requests_of_other_sites_are_turned_away_whoever_sends_them() {
    let served = Served::new("hosts = [\"box.example\"]\norigins = [\"https://console.example\"]\n");
    let token = served.token("read");
    let bearer = format!("Bearer {token}");
    let (own, named) = (served.host(), format!("box.example:{}", served.port));
    let page = format!("http://{own}");
    let who = |headers: &[(&str, &str)]| {
        let headers = [&[("Authorization", bearer.as_str())], headers].concat();
        served.raw("GET /v1/whoami", &headers, "")
    };
    for good in [
        &[("Host", own.as_str())][..],
        &[("Host", named.as_str())],
        &[("Host", own.as_str()), ("Origin", page.as_str())],
        &[("Host", own.as_str()), ("Origin", "https://console.example")],
    ] {
        assert_eq!(who(good).status, 200, "{good:?}");
    }
    for (bad, rule) in [
        (&[("Host", "evil.example")][..], "web.host"),
        (&[("Host", "127.0.0.1:1")], "web.host"),
        (&[("Host", own.as_str()), ("Origin", "https://evil.example")], "web.origin"),
        (&[("Host", own.as_str()), ("Origin", "null")], "web.origin"),
        (
            &[("Host", own.as_str()), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors")],
            "web.origin",
        ),
    ] {
        let answer = who(bad);
        assert_eq!((answer.status, &answer.body["rule"]), (403, &json!(rule)), "{bad:?}");
    }
    let leaked = served.ask(&format!("GET /v1/whoami?token={token}"), &[], &Value::Null);
    assert_eq!((leaked.status, &leaked.body["rule"]), (400, &json!("web.token-in-url")));
    assert!(leaked.body["hint"].as_str().unwrap().contains("Authorization"), "{leaked:?}");
}

/// S003-19: a password, a cookie, and what another site cannot send.
#[test]
fn s003_19_a_browser_signs_in_and_another_site_changes_nothing_with_its_cookie() {
    let served = Served::new("");
    let password = ["correct", "horse", "battery"].join(" ");
    let add = ["operator", "add", "ann", "--scope", "read,admin"];
    finish(served.world.ringfence().args(add), password.as_bytes()).expect(0);
    let wrong = served.ask("POST /v1/login", &[], &json!({ "name": "ann", "password": "not this one" }));
    assert_eq!((wrong.status, &wrong.body["rule"]), (401, &json!("identity.unknown")));
    let login = served.ask("POST /v1/login", &[], &json!({ "name": "ann", "password": password }));
    assert_eq!(login.status, 200, "{login:?}");
    let cookie = login.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("httponly") && cookie.contains("samesite=strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let csrf = login.body["csrf"].as_str().unwrap();
    let page = [("Cookie", cookie), ("X-Ringfence-Csrf", csrf)];
    let who = served.ask("GET /v1/whoami", &page, &Value::Null);
    assert_eq!((who.status, &who.body["kind"]), (200, &json!("web")));
    for stolen in [&[("Cookie", cookie)][..], &[("Cookie", cookie), ("X-Ringfence-Csrf", "guessed")]] {
        let answer = served.ask("POST /v1/logout", stolen, &json!({}));
        assert_eq!((answer.status, &answer.body["rule"]), (403, &json!("identity.csrf")), "{stolen:?}");
    }
    let out = served.ask("POST /v1/logout", &page, &json!({}));
    assert_eq!(out.status, 200, "{out:?}");
    assert!(out.head.contains("set-cookie: ringfence=;") && out.head.contains("max-age=0"), "{}", out.head);
    assert_eq!(served.ask("GET /v1/whoami", &page, &Value::Null).status, 401);
    let events = served.purposes().join("\n");
    assert!(
        events.contains("come in as operator ann with a password") && !events.contains(&password),
        "{events}"
    );
}

/// Who guesses waits, and nobody else: not the right token from the same address, not a password, not the owner.
#[test]
fn who_fails_too_often_is_not_looked_at_for_a_while_and_keeps_nobody_out() {
    let served = Served::new("");
    let token = served.token("read");
    let password = ["correct", "horse", "battery"].join(" ");
    for name in ["ann", "bob"] {
        let add = ["operator", "add", name, "--scope", "read"];
        finish(served.world.ringfence().args(add), password.as_bytes()).expect(0);
    }
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(served.with("rf_api_0000000000000000_00", "GET /v1/whoami", &Value::Null).status);
    }
    assert!(statuses.contains(&401) && statuses.last() == Some(&429), "{statuses:?}");
    assert_eq!(served.with(&token, "GET /v1/whoami", &Value::Null).status, 200, "the right one is let in");
    assert_eq!(served.local("GET /v1/whoami", None, &Value::Null).status, 200, "the way back in is open");
    let failures = served.purposes().iter().filter(|event| event.contains("identity.no-token")).count();
    assert!((5..=8).contains(&failures), "{failures}");
    let login = |name: &str, password: &str| {
        served.ask("POST /v1/login", &[], &json!({ "name": name, "password": password })).status
    };
    assert_eq!(login("ann", &password), 200, "wrong tokens are no wrong passwords");
    assert!((0..5).all(|_| login("ann", "not the right one") == 401));
    assert!((0..20).any(|_| login("ann", "not the right one") == 429), "who guesses waits");
    assert_eq!(login("bob", &password), 200, "what is guessed of one keeps out no other");
    assert_eq!(served.with(&token, "GET /v1/whoami", &Value::Null).status, 200);
}

/// S003-22: TLS with a certificate that is made here.
#[test]
fn s003_22_with_tls_nothing_is_answered_in_the_clear() {
    let served = Served::new("tls = \"generated\"\n");
    let token = served.token("read");
    let url = format!("https://127.0.0.1:{}/v1/whoami", served.port);
    let certificate = served.world.state.join("ringfence/tls/daemon.pem");
    let curl = |trust: &[&str], url: &str| {
        let mut command = served.world.host("curl");
        command.args(["-sS", "-i", "-H", &format!("Authorization: Bearer {token}")]).args(trust).arg(url);
        finish(&mut command, b"")
    };
    let trusted = curl(&["--cacert", certificate.to_str().unwrap()], &url).expect(0).text();
    assert!(trusted.contains("200") && trusted.contains("strict-transport-security: max-age="), "{trusted}");
    assert_ne!(curl(&[], &url).code, Some(0), "nobody has signed it: who does not trust it gets nothing");
    let clear = curl(&[], &url.replace("https", "http"));
    assert!(!clear.text().contains("scopes"), "{}", clear.text());
    let said = served.said();
    let mut openssl = served.world.host("openssl");
    openssl.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(&certificate);
    let fingerprint = finish(&mut openssl, b"").expect(0).text();
    assert!(said.contains(fingerprint.trim().rsplit('=').next().unwrap()), "{said} {fingerprint}");
}

/// S003-18 over the interface, with a key that openssl made.
#[test]
fn s003_18_any_client_can_be_a_device() {
    let served = Served::new("");
    let dir = served.world.beside("device");
    let openssl = |arguments: &[&str]| {
        let mut command = served.world.host("openssl");
        command.args(arguments).current_dir(&dir);
        finish(&mut command, b"").expect(0).out
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", "key.pem"]);
    let public = openssl(&["pkey", "-in", "key.pem", "-pubout", "-outform", "DER"]);
    let key = hex(&public[public.len() - 32..]);
    let signed = |purpose: &str, challenge: &Value| {
        let [subject, nonce] = ["subject", "nonce"].map(|name| challenge[name].as_str().unwrap().to_owned());
        fs::write(dir.join("text"), format!("ringfence device v1\n{purpose}\n{subject}\n{nonce}\n")).unwrap();
        let signature = openssl(&["pkeyutl", "-sign", "-inkey", "key.pem", "-rawin", "-in", "text"]);
        json!({ "subject": subject, "nonce": nonce, "signature": hex(&signature) })
    };
    let wants = json!({ "scopes": ["read"], "workspaces": "any" });
    let asked =
        served.ask("POST /v1/pairings", &[], &json!({ "label": "phone", "key": key, "wants": wants }));
    assert_eq!(asked.status, 200, "{asked:?}");
    let proven = served.ask("POST /v1/pairings/prove", &[], &signed("pair", &asked.body));
    let code = proven.body["pairing"]["code"].as_str().unwrap().to_owned();
    let challenge =
        |subject: &str| served.ask("POST /v1/devices/challenge", &[], &json!({ "subject": subject })).body;
    let pairing = asked.body["subject"].as_str().unwrap();
    let early = served.ask("POST /v1/pairings/claim", &[], &signed("claim", &challenge(pairing)));
    assert_eq!((early.status, &early.body["rule"]), (403, &json!("identity.pairing")), "{early:?}");
    let reader = served.token("read");
    let refused = served.with(&reader, "POST /v1/pairings/approve", &json!({ "code": code }));
    assert_eq!(refused.status, 403, "it takes scope `pair`");
    let pairer = served.token("pair,read");
    assert_eq!(served.with(&pairer, "POST /v1/pairings/approve", &json!({ "code": code })).status, 200);
    let minted = served.ask("POST /v1/pairings/claim", &[], &signed("claim", &challenge(pairing)));
    let token = minted.body["secret"].as_str().unwrap().to_owned();
    let who = served.with(&token, "GET /v1/whoami", &Value::Null);
    assert_eq!((who.status, &who.body["kind"]), (200, &json!("device")));
    let device = token.split('_').nth(2).unwrap();
    let fresh = served.ask("POST /v1/devices/refresh", &[], &signed("refresh", &challenge(device)));
    assert_eq!(fresh.status, 200, "{fresh:?}");
    assert_eq!(served.with(&token, "GET /v1/whoami", &Value::Null).status, 401, "the one before is over");
}

/// C-32: minted within the minter, over the interface.
#[test]
fn c32_tokens_are_made_and_ended_over_the_interface_and_never_wider() {
    let served = Served::new("");
    let admin = served.token("admin,read");
    let make = |scopes: Value| {
        let body =
            json!({ "label": "x", "rights": { "scopes": scopes, "workspaces": "any" }, "lifetime_s": 60 });
        served.with(&admin, "POST /v1/tokens", &body)
    };
    let wide = make(json!(["approve"]));
    assert_eq!((wide.status, &wide.body["rule"]), (403, &json!("identity.wider-than-parent")), "{wide:?}");
    let made = make(json!(["read"]));
    assert_eq!(made.status, 200, "{made:?}");
    let token = made.body["secret"].as_str().unwrap();
    assert_eq!(served.with(token, "GET /v1/whoami", &Value::Null).status, 200);
    let listed = served.with(&admin, "GET /v1/tokens", &Value::Null);
    assert!(
        !listed.body.to_string().contains("digest") && listed.body["tokens"].as_array().unwrap().len() == 2
    );
    let id = made.body["token"]["id"].as_str().unwrap();
    assert_eq!(
        served.with(token, &format!("POST /v1/tokens/{id}/revoke"), &json!({})).status,
        403,
        "it takes `admin`"
    );
    assert_eq!(served.with(&admin, &format!("POST /v1/tokens/{id}/revoke"), &json!({})).status, 200);
    assert_eq!(served.with(token, "GET /v1/whoami", &Value::Null).status, 401);
}

/// A session hands a part of its rights on, and only ever less.
#[test]
fn a_session_hands_on_a_token_that_only_narrows() {
    let served = Served::new("");
    let world = &served.world;
    world.write("src/a", "inside\n");
    world.write("b", "outside\n");
    let create = ["session", "create", "--json", "--workspace", ".", "--socket"];
    let program = ["--", "sh", "-c", "echo \"$RINGFENCE_SESSION_TOKEN\" > token; sleep 600"];
    let created =
        finish(world.ringfence().args(create).arg(&served.socket).args(program), b"").expect(0).json();
    let session = created["session"].as_str().or(created["id"].as_str()).unwrap().to_owned();
    eventually("the agent has its token", || world.read("token").is_some_and(|text| text.ends_with('\n')));
    let own = world.read("token").unwrap().trim_end().to_owned();
    let at = |path: &str| format!("POST /v1/sessions/{session}/{path}");
    let read = |token: &str, path: &str| {
        served.local(&at("files/read"), Some(token), &json!({ "path": path })).status
    };
    assert_eq!(
        (read(&own, "src/a"), read(&own, "b")),
        (200, 200),
        "the control: the session itself reads both"
    );
    let only = json!([world.workspace.join("src")]);
    let limits = json!({ "paths": { "only": only }, "hosts": "any", "commands": "any", "calls": 3 });
    let hand = |token: &str, limits: &Value| {
        served.local(&at("tokens"), Some(token), &json!({ "label": "sub", "attenuation": limits }))
    };
    let child = hand(&own, &limits);
    assert_eq!(child.status, 200, "{child:?}");
    let token = child.body["secret"].as_str().unwrap();
    assert_eq!((read(token, "src/a"), read(token, "b"), read(token, "src/../b")), (200, 403, 403));
    let run = served.local(&at("exec"), Some(token), &json!({ "argv": ["cat", "b"] }));
    assert_eq!(run.status, 403, "what runs could read everything: {run:?}");
    let shell = json!({ "argv": ["cat"], "background": true, "interactive": true });
    let shell = served.local(&at("exec"), Some(&own), &shell);
    let input = |token: &str| {
        let to = at(&format!("calls/{}/input", shell.body["call"]));
        served.local(&to, Some(token), &json!({ "data": "typed" })).status
    };
    assert_eq!((input(&own), input(token)), (200, 403), "what others run does nothing for it: {shell:?}");
    let printed = served.local(&at("exec"), Some(&own), &json!({ "argv": ["cat", "b"] }));
    for path in ["calls".to_owned(), format!("calls/{}", printed.body["call"])] {
        let path = format!("GET /v1/sessions/{session}/{path}");
        let seen = |token: &str| served.local(&path, Some(token), &Value::Null).status;
        assert_eq!((seen(&own), seen(token)), (200, 403), "what others have read is not for it: {path}");
    }
    let nowhere = json!({ "paths": "any", "hosts": { "only": [] }, "commands": "any", "calls": null });
    let nowhere = hand(&own, &nowhere).body["secret"].as_str().unwrap().to_owned();
    let run = |token: &str| served.local(&at("exec"), Some(token), &json!({ "argv": ["true"] })).status;
    assert_eq!((run(&own), run(&nowhere)), (200, 403), "what runs could reach every host of the session");
    let wider = json!({ "paths": "any", "hosts": "any", "commands": "any", "calls": 1 });
    assert_eq!(hand(token, &wider).status, 403);
    assert_eq!(
        (read(token, "src/a"), read(token, "src/a"), read(token, "src/a")),
        (200, 200, 403),
        "three calls and no more"
    );
    let outside = served.with(&own, "GET /v1/whoami", &Value::Null);
    assert_eq!(
        (outside.status, &outside.body["rule"]),
        (403, &json!("session-socket.not-over-tcp")),
        "not on TCP"
    );
    for method in ["POST /v1/tokens", "GET /v1/tokens", "POST /v1/shutdown", "POST /v1/pairings/approve"] {
        assert_eq!(served.local(method, Some(&own), &json!({})).status, 403, "{method}");
    }
}

/// Headers that proxies set, and that somebody wrote who wanted his tests to be quick.
const OF_OTHERS: [(&str, &str); 12] = [
    ("X-Forwarded-For", "192.0.2."),
    ("X-Real-IP", "192.0.2."),
    ("Forwarded", "for=192.0.2."),
    ("True-Client-IP", "192.0.2."),
    ("CF-Connecting-IP", "192.0.2."),
    ("X-Client-IP", "192.0.2."),
    ("X-Cluster-Client-IP", "192.0.2."),
    ("X-Forwarded", "192.0.2."),
    ("X-Test-Bypass", "true; "),
    ("X-Test-Bypass-Rate-Limit", "true; "),
    ("X-RateLimit-Bypass", "1; "),
    ("X-Internal", "1; "),
];

/// Requirements 2.3: who has to wait waits, whatever they say about who they are.
#[test]
fn no_header_gets_around_the_wait() {
    let served = Served::new("");
    let token = served.token("read");
    let whoami = |token: &str, number: usize, headers: &[(&str, &str)]| {
        let bearer = format!("Bearer {token}");
        let values: Vec<String> = headers.iter().map(|(_, value)| format!("{value}{number}")).collect();
        let claims = headers.iter().zip(&values).map(|((name, _), value)| (*name, value.as_str()));
        let all: Vec<(&str, &str)> = claims.chain([("Authorization", bearer.as_str())]).collect();
        served.ask("GET /v1/whoami", &all, &Value::Null).status
    };
    assert_eq!(whoami(&token, 0, &OF_OTHERS), 200, "the control: the headers do no harm");
    let wrong = "rf_api_0000000000000000_00";
    // Somebody else with every request, by each of them and by all at once.
    let each = OF_OTHERS.chunks(1).chain([OF_OTHERS.as_slice()]).cycle().take(130).enumerate();
    let statuses: Vec<u16> = each.map(|(number, claims)| whoami(wrong, number, claims)).collect();
    let looked_at = statuses.iter().filter(|status| **status == 401).count();
    // Five for nothing, and then each takes twice as long as the one before.
    assert!((5..=14).contains(&looked_at), "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 401 | 429)), "{statuses:?}");
}
