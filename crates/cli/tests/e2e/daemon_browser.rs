//! What a browser has: a cookie that goes to every port of the host, and what only its page knows.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ringfence_api::Method;
use ringfence_types::Scope;
use serde_json::{Value, json};

use crate::daemon_authorization_matrix::{Entrance, Place};
use crate::test_timeouts::Patient;
use crate::testkit::finish;

struct Browser {
    place: Place,
    jar: String,
    csrf: String,
}

impl Browser {
    /// An operator with every scope, signed in with a real keeper of cookies.
    fn signed_in() -> Self {
        let place = Place::new();
        let password = ["correct", "horse", "battery"].join(" ");
        let scopes: Vec<&str> = Scope::ALL.iter().map(|scope| scope.word()).collect();
        let mut add = place.served.world.ringfence();
        finish(add.args(["operator", "add", "ann", "--scope", &scopes.join(",")]), password.as_bytes())
            .expect(0);
        let jar = place.served.world.beside("browser").join("jar").to_str().unwrap().to_owned();
        let body = json!({ "name": "ann", "password": password }).to_string();
        let url = format!("http://127.0.0.1:{}/v1/login", place.port);
        let mut login = place.served.world.host("curl");
        login.args(["-sS", "-m", "60", "-c", &jar, "-d", &body, &url]);
        let answer: Value = finish(&mut login, b"").expect(0).json();
        let csrf = answer["csrf"].as_str().unwrap().to_owned();
        Self { place, jar, csrf }
    }

    /// What the same browser shows to a page of another port of the host.
    fn stolen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://127.0.0.1:{}/", listener.local_addr().unwrap().port());
        let thief = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(Patient(stream.try_clone().unwrap())).lines().map(Result::unwrap);
            let cookie = lines.find_map(|line| line.strip_prefix("Cookie: ").map(str::to_owned));
            lines.find(String::is_empty);
            Patient(stream).write_all(b"HTTP/1.0 204 No Content\r\n\r\n").unwrap();
            cookie
        });
        let mut visit = self.place.served.world.host("curl");
        finish(visit.args(["-sS", "-m", "60", "-b", &self.jar, &url]), b"").expect(0);
        thief.join().unwrap().expect("the attack itself: cookies know no ports")
    }

    fn ask(&self, line: &str, headers: &str, body: &str) -> (u16, String, String) {
        self.place.send(Entrance::Tcp, (line, headers), body)
    }

    /// The status line and headers that answer a request for a WebSocket.
    fn socket(&self, headers: &str) -> String {
        self.socket_of(&format!("http://127.0.0.1:{}", self.place.port), headers)
    }

    /// The same by a page of this site.
    fn socket_of(&self, origin: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.place.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let port = self.place.port;
        let head = format!(
            "GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: {origin}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            answer.push(byte[0]);
        }
        String::from_utf8(answer).unwrap().to_ascii_lowercase()
    }
}

/// A cookie that another port of this host was shown is worth nothing, for reading, for changing, as a token, for a
/// WebSocket.
#[test]
fn a_cookie_alone_opens_nothing() {
    let browser = Browser::signed_in();
    let cookie = browser.stolen();
    let token = cookie.strip_prefix("ringfence=").unwrap().to_owned();
    assert!(token.starts_with("rf_web_"), "{token}");
    let as_cookie = format!("Cookie: {cookie}\r\n");
    let as_token = format!("Authorization: Bearer {token}\r\n");
    let guessed = format!("{as_cookie}X-Ringfence-Csrf: {}\r\n", "0".repeat(64));
    for headers in [&as_cookie, &as_token, &guessed] {
        for line in ["GET /v1/whoami", "GET /v1/sessions", "POST /v1/shutdown", "POST /v1/logout"] {
            let (status, _, body) =
                browser.ask(line, headers, if line.starts_with("POST") { "{}" } else { "" });
            assert_eq!(status, 403, "{line} {headers} {body}");
            assert!(body.contains("identity.csrf"), "{body}");
        }
        assert!(browser.socket(headers).starts_with("http/1.1 403"), "{headers}");
    }
    // By the socket of the operators it is none either.
    let (status, _, body) = browser.place.send(Entrance::Socket, ("GET /v1/whoami", &as_token), "");
    assert_eq!(status, 403, "{body}");
    let failures = browser.place.served.records("authentication-attempted");
    let failures = failures.iter().filter(|record| record["event"]["refusal"]["rule"] == "identity.csrf");
    assert_eq!(failures.count(), 2, "once for each place that it came from");
    // The control: the page itself does all of it.
    let page = format!("{as_cookie}X-Ringfence-Csrf: {}\r\n", browser.csrf);
    assert_eq!(browser.ask("GET /v1/sessions", &page, "").0, 200);
    let opened = browser.socket(&format!(
        "{as_cookie}Sec-WebSocket-Protocol: ringfence, ringfence.csrf.{}\r\n",
        browser.csrf
    ));
    assert!(
        opened.starts_with("http/1.1 101") && opened.contains("sec-websocket-protocol: ringfence\r\n"),
        "{opened}"
    );
    assert!(!opened.contains(&browser.csrf), "it is not said back");
    let (status, head, _) = browser.ask("POST /v1/logout", &page, "{}");
    assert_eq!(status, 200);
    assert!(head.to_ascii_lowercase().contains("max-age=0"), "the browser forgets it: {head}");
}

/// B-14, CVE-2026-25253: a browser lets every page open a WebSocket anywhere, so that the daemon has to look whose it is.
#[test]
fn a_page_of_another_site_opens_no_websocket() {
    let browser = Browser::signed_in();
    let shown = format!(
        "Cookie: {}\r\nSec-WebSocket-Protocol: ringfence, ringfence.csrf.{}\r\n",
        browser.stolen(),
        browser.csrf
    );
    for origin in ["https://evil.example", "null", "http://127.0.0.1", "http://127.0.0.1.evil.example"] {
        let answer = browser.socket_of(origin, &shown);
        assert!(answer.starts_with("http/1.1 403"), "{origin}: {answer}");
    }
    let control = browser.socket(&shown);
    assert!(control.starts_with("http/1.1 101"), "the control: our own page, with the same: {control}");
}

/// Who is turned away unknown is written down, and fills nothing.
#[test]
fn pages_of_other_sites_are_in_the_ledger_once() {
    let place = Place::new();
    let ask = |origin: &str| {
        let headers = format!("Origin: {origin}\r\n");
        place.send(Entrance::Tcp, ("GET /v1/health", &headers), "").0
    };
    for _ in 0..20 {
        assert_eq!(ask("https://evil.example"), 403);
    }
    assert_eq!(ask(&format!("http://127.0.0.1:{}", place.port)), 200, "the control");
    let records = place.served.records("authentication-attempted");
    let strangers: Vec<&Value> = records
        .iter()
        .map(|record| &record["event"])
        .filter(|event| event["refusal"]["rule"] == "web.origin")
        .collect();
    assert_eq!(strangers.len(), 1, "{strangers:?}");
    assert_eq!(strangers[0]["principal"]["source"], "127.0.0.1");
}

/// A browser goes on after the last event that it saw.
#[test]
fn a_stream_of_events_goes_on_after_the_last_one() {
    let place = Place::new();
    let session = place.served.session();
    let token = place.api(Scope::Read).headers;
    let report = |text: &str| {
        let request = json!({ "session": session.session, "activity": "k", "claim": text });
        place.served.client().raw(Method::SessionReportActivity, request).unwrap()["seq"].as_u64().unwrap()
    };
    let first = report("first");
    report("second");
    let next = |last: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
        let host = format!("Host: 127.0.0.1:{}\r\n", place.port);
        // As a browser does: the address is still that of the first time.
        let head = format!("GET /v1/events?after=0 HTTP/1.0\r\n{host}{token}{last}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut lines = BufReader::new(Patient(stream)).lines().map(Result::unwrap);
        lines.find(String::is_empty);
        lines.find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap()
    };
    assert_eq!(next(""), "1", "the control");
    assert_eq!(next(&format!("Last-Event-ID: {first}\r\n")), (first + 1).to_string());
}
