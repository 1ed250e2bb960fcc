//! How much, how many, how fast: what a session may use of the filtered network.

use std::fs;

use serde_json::Value;

use crate::internet::Internet;
use crate::testkit::{Done, finish};

const WEB: &[&str] = &["--net", "filtered", "--allow-host", "web.test"];

/// What `--json` tells of a session with these flags.
fn report(internet: &Internet, flags: &[&str], command: &[&str]) -> Value {
    let mut ringfence = internet.ringfence();
    ringfence.args(["run", "--json"]).args(WEB).args(flags).arg("--").args(command);
    finish(&mut ringfence, b"").json()
}

fn refusals(report: &Value) -> Vec<&Value> {
    report["network"]["refused"].as_array().unwrap().iter().collect()
}

/// The rule by which something was refused, if only one thing was.
#[track_caller]
fn refused_by<'a>(report: &'a Value, rule: &str) -> &'a Value {
    let found = refusals(report).into_iter().find(|refused| refused["refusal"]["rule"] == rule);
    found.unwrap_or_else(|| panic!("`{rule}`: {report:#}"))
}

/// A page of 4 MB at the server.
fn page(internet: &Internet) {
    fs::write(internet.place.join("site/page"), vec![b'x'; 4_000_000]).unwrap();
}

const GET: &[&str] =
    &["sh", "-c", "curl -sS --max-time 20 https://web.test/page -o got; stat -c %s got; rm got"];

/// What comes in is bounded for the session: the flow that passes the bound is cut off there.
#[test]
fn bytes_that_come_in_have_a_budget() {
    let internet = Internet::new();
    page(&internet);
    let whole = report(&internet, &["--max-bytes-in", "5m"], GET);
    assert_eq!(whole["stdout"], "4000000\n", "the control: {whole:#}");
    let cut = report(&internet, &["--max-bytes-in", "1m"], GET);
    let got: u64 = cut["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(got <= 1 << 20, "{cut:#}");
    let refused = refused_by(&cut, "limits.session-bytes");
    assert_eq!(refused["host"], "web.test");
    assert_eq!(refused["refusal"]["hint"], "`limits.max_bytes_in` of the policy sets it");
}

/// What leaves is bounded for the session, over all of its flows, in a tunnel and in plain HTTP.
#[test]
fn bytes_that_leave_have_a_budget() {
    let internet = Internet::new();
    internet.world.write("data", vec![b'x'; 600_000]);
    for url in ["https://web.test/echo", "http://web.test/echo"] {
        let send = format!("curl -sS --max-time 20 -o /dev/null --data-binary @data {url}");
        internet.forget_visits();
        report(&internet, &["--max-bytes-out", "2m"], &["sh", "-c", &format!("{send}; {send}")]);
        assert_eq!(arrived_whole(&internet), 2, "the control: {url}");
        internet.forget_visits();
        let cut =
            report(&internet, &["--max-bytes-out", "1m"], &["sh", "-c", &format!("{send}; {send}; {send}")]);
        assert_eq!(arrived_whole(&internet), 1, "{url}");
        refused_by(&cut, "limits.session-bytes");
    }
}

fn arrived_whole(internet: &Internet) -> usize {
    let visits = internet.visits();
    visits.iter().filter(|visit| visit["body"].as_str().is_some_and(|body| body.len() == 600_000)).count()
}

/// Opens so many tunnels to `web.test` and keeps them, says how many were opened, and which answer the others got.
const TUNNELS: &str = "\
import socket, sys
count, kept, answers = int(sys.argv[1]), [], []
for _ in range(count):
    s = socket.create_connection(('127.0.0.1', 3128), timeout=20)
    s.sendall(b'CONNECT web.test:443 HTTP/1.1\\r\\nHost: web.test:443\\r\\n\\r\\n')
    answers.append(s.recv(4096).split(b' ')[1].decode())
    kept.append(s)
print(answers.count('200'), ' '.join(sorted(set(answers))))
";

#[test]
fn flows_at_once_have_a_limit() {
    let internet = Internet::new();
    let tunnels = ["python3", "-c", TUNNELS, "8"];
    let all = report(&internet, &[], &tunnels);
    assert_eq!(all["stdout"], "8 200\n", "the control");
    let some = report(&internet, &["--max-flows", "3"], &tunnels);
    assert_eq!(some["stdout"], "3 200 403\n", "{some:#}");
    refused_by(&some, "limits.flows");
    assert_eq!(some["network"]["flows"].as_array().unwrap().len(), 3, "{some:#}");
}

#[test]
fn new_flows_have_a_rate() {
    let internet = Internet::new();
    let tunnels = ["python3", "-c", TUNNELS, "40"];
    let some = report(&internet, &["--max-flow-rate", "1"], &tunnels);
    let text = some["stdout"].as_str().unwrap().to_owned();
    let opened: usize = text.split(' ').next().unwrap().parse().unwrap();
    assert!((1..40).contains(&opened) && text.contains("403"), "{text}");
    refused_by(&some, "limits.flows-per-second");
}

/// A policy sets them as well, and what nobody would hold is refused.
#[test]
fn limits_of_the_network_need_somebody_who_counts() {
    let internet = Internet::new();
    for flag in
        [["--max-bytes-out", "1m"], ["--max-bytes-in", "1m"], ["--max-flows", "3"], ["--max-flow-rate", "3"]]
    {
        let done = internet.run(&[&["--net", "full"][..], &flag].concat(), &["touch", "made"]);
        done.expect(126).says("nothing holds");
    }
    assert!(!internet.world.workspace.join("made").exists());
    internet.run(&["--max-bytes-out", "1m"], &["true"]).expect(0);
    internet.world.write(".ringfence/policy.toml", "[limits]\nmax_bytes_in = \"1m\"\n");
    page(&internet);
    let cut = report(&internet, &[], GET);
    refused_by(&cut, "limits.session-bytes");
}

/// N21: names have a length and a rate, whoever asks, and none of them leaves.
#[test]
fn n21_names_have_a_length_and_a_rate() {
    const ASK: &str = "\
import socket, struct, sys
def query(labels):
    name = b''.join(bytes([len(l) & 255]) + l for l in labels) + b'\\0'
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(5)
    s.sendto(b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0' + name + b'\\0\\1\\0\\1', ('30.0.0.53', 53))
    try: return s.recv(4096)[3] & 15
    except TimeoutError: return 'unanswered'
print('ordinary', query([b'a', b'web', b'test']))
print('long label', query([b'a' * 64, b'web', b'test']))
print('long name', query([b'a' * 60] * 5 + [b'web', b'test']))
codes = [query([b'n%d' % n, b'web', b'test']) for n in range(int(sys.argv[1]))]
print('flood', sorted(set(codes)))
";
    let internet = Internet::new();
    internet.control(&["python3", "-c", ASK, "1"]);
    assert!(!internet.names_asked().is_empty(), "the control");
    internet.forget_visits();
    let flags = ["--net", "filtered", "--allow-host", "*.web.test"];
    let done: Done = internet.run(&flags, &["python3", "-c", ASK, "3000"]).expect(0);
    let text = done.text();
    assert!(text.contains("ordinary 0\n"), "{text}");
    assert!(!text.contains("long label 0\n") && !text.contains("long name 0\n"), "{text}");
    assert!(text.contains("flood [0, 5]"), "answered and refused: {text}");
    assert_eq!(internet.names_asked(), Vec::<String>::new());
}

/// N26: who says a little and then nothing is let go, and holds up nobody meanwhile.
#[test]
fn n26_slow_clients_are_let_go() {
    const SLOW: &str = "\
import socket, subprocess
slow = []
for words in [b'CONNECT web.test:443 HTT', b'GET http://web.test/ HTTP/1.1\\r\\nHost:', b'\\x05\\x02\\0']:
    s = socket.create_connection(('127.0.0.1', 3128))
    s.settimeout(90)
    s.sendall(words)
    slow.append(s)
print(subprocess.run(['curl', '-sS', 'https://web.test/'], capture_output=True, text=True).stdout.strip())
for s in slow:
    while s.recv(4096): pass
print('let go')
";
    let internet = Internet::new();
    let done = internet.run(WEB, &["python3", "-c", SLOW]).expect(0);
    assert_eq!(done.text(), "hello from 30.0.0.10\nlet go\n", "{}", done.err);
    assert_eq!(internet.came_to("30.0.0.10"), 1);
}
