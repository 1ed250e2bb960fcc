//! What shows how the daemon is, and who is kept away from it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use ringfence_api::{
    CallState, CheckReady, CreateSession, ErrorCode, ExecRequest, FetchUrl, ReadMetrics, ReportActivity,
    Shutdown, Subscribe,
};
use ringfence_client::{Client, ClientError};
use ringfence_types::NetMode;
use serde_json::{Value, json};

use crate::daemon_fixture::{Served, exec};
use crate::internet::Internet;
use crate::test_timeouts::{Patient, end, ended, mortal};
use crate::testkit::{LANDLOCK, World, eventually, finish};

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ringfence_api::ApiError {
    match answer {
        Err(ClientError::Api(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn metric(served: &Served, name: &str) -> u64 {
    let text = served.client().call(&ReadMetrics {}).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn metrics_count_what_happens() {
    let served = Served::new();
    let count = |name: &str| metric(&served, &format!("ringfence_{name}"));
    assert_eq!((count("sessions"), count("sessions_total"), count("calls_total")), (0, 0, 0));
    let session = served.session();
    served.sh(&session, "true");
    let waiting = ExecRequest { background: true, ..exec(&session, "touch runs; sleep 600") };
    served.client().call(&waiting).unwrap();
    assert_eq!((count("sessions"), count("sessions_total"), count("calls_total")), (1, 1, 2));
    assert_eq!(count("calls_running"), 1);
    let before = count("errors_total{code=\"not-found\"}");
    let nobody = json!({ "session": "ses_00000000000000000000000000" });
    let _not_found = served.client().raw(ringfence_api::Method::SessionShow, nobody).unwrap_err();
    assert_eq!(count("errors_total{code=\"not-found\"}"), before + 1);
    let requests = count("requests_total");
    assert!(count("requests_total") > requests);
    let text = served.client().call(&ReadMetrics {}).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("ringfence_") && value.parse::<u64>().is_ok(), "{line}");
    }
}

/// Ready while it takes work; not when it is about to end, and not when nothing can be written down.
#[test]
fn readiness_says_whether_work_is_taken() {
    let served = Served::with(World::new(), &["--drain-timeout", "600s"]);
    assert!(served.client().call(&CheckReady {}).unwrap().ready);
    let session = served.session();
    let waiting = ExecRequest {
        background: true,
        ..exec(&session, "touch runs; while [ ! -e go ]; do sleep 0.02; done")
    };
    served.client().call(&waiting).unwrap();
    eventually("the call runs", || served.world.read("runs").is_some());
    served.client().call(&Shutdown {}).unwrap();
    let ready = served.client().call(&CheckReady {}).unwrap();
    assert!(!ready.ready && ready.reasons.iter().any(|why| why.contains("about to end")), "{ready:?}");
    assert_eq!(refused(served.client().call(&served.wanted())).code, ErrorCode::Unavailable);
    assert_eq!(refused(served.client().call(&exec(&session, "true"))).code, ErrorCode::Unavailable);
    served.world.write("go", "");
    let mut served = served;
    assert!(ended("the daemon, when what ran has ended", &mut served.child).success());
}

#[test]
fn a_ledger_that_was_changed_makes_the_daemon_unready() {
    let served = Served::new();
    let session = served.session();
    assert_eq!(served.sh(&session, "touch before").state, CallState::Done);
    let change = "import sqlite3, sys\nd = sqlite3.connect(sys.argv[1], timeout=60)\n\
        d.execute(\"update record set hash = case substr(hash, 1, 1) when '0' then '1' else '0' end || substr(hash, 2) \
        where seq = (select max(seq) from record)\")\nd.commit()\n";
    let mut python = served.world.host("python3");
    finish(python.args(["-c", change]).arg(served.world.ledger_path()), b"").expect(0);
    let no = served.client().call(&exec(&session, "touch after"));
    let refused = match no {
        Ok(info) => format!("{:?}", info.refusal.unwrap()),
        Err(error) => format!("{error:?}"),
    };
    assert_eq!(served.world.read("after"), None, "{refused}");
    let ready = served.client().call(&CheckReady {}).unwrap();
    assert!(!ready.ready && ready.reasons.iter().any(|why| why.contains("ledger")), "{ready:?}");
}

/// S002-14 over the daemon: by the rules of the session, cleaned, and written down.
#[test]
fn a_page_is_fetched_by_the_rules_of_the_session() {
    let internet = Internet::new();
    internet.operator(
        "net = \"filtered\"\n[[host]]\nallow = [\"web.test\"]\n[[host]]\ndeny = [\"other.test\"]\n",
    );
    let runtime = internet.world.beside("r");
    let socket = runtime.join("ringfence/daemon.sock");
    let mut command = internet.ringfence();
    command.env("XDG_RUNTIME_DIR", &runtime).arg("serve").stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    mortal(&child);
    eventually("the daemon answers", || UnixStream::connect(&socket).is_ok());
    let mut client = Client::connect(&socket, None).unwrap();
    let wanted: CreateSession =
        serde_json::from_value(json!({ "workspace": internet.world.workspace })).unwrap();
    let filtered = client.call(&CreateSession { net: Some(NetMode::Filtered), ..wanted.clone() }).unwrap();
    let fetch = |session: &ringfence_api::SessionInfo, url: &str| FetchUrl {
        session: session.session.clone(),
        url: url.to_owned(),
    };
    let page = client.call(&fetch(&filtered, "https://web.test/")).unwrap();
    assert_eq!((page.status, page.body.bytes().unwrap()), (200, b"hello from 30.0.0.10\n".to_vec()));
    assert_eq!(client.call(&fetch(&filtered, "https://web.test/nothing")).unwrap().status, 404);
    internet.forget_visits();
    for url in ["https://other.test/", "http://169.254.169.254/", "file:///etc/passwd", "nonsense"] {
        let error = refused(client.call(&fetch(&filtered, url)));
        assert!(matches!(error.code, ErrorCode::Refused | ErrorCode::InvalidArgument), "{url}: {error:?}");
    }
    let closed = client.call(&CreateSession { net: Some(NetMode::None), ..wanted }).unwrap();
    assert_eq!(refused(client.call(&fetch(&closed, "https://web.test/"))).code, ErrorCode::Refused);
    assert_eq!(internet.visits().iter().filter(|visit| visit["what"] == "http").count(), 0);
    let intents: Vec<Value> = internet.world.all_records();
    let fetched = |record: &&Value| {
        record["event"]["kind"] == "call-intended" && record["event"]["call"]["url"] == "https://web.test/"
    };
    assert_eq!(intents.iter().filter(fetched).count(), 1);
    client.call(&Shutdown {}).unwrap();
    assert!(ended("the daemon, told to end", &mut child).success());
}

/// C-38: a token for some hosts reaches no other, neither by how an address is written nor by where a server leads.
#[test]
fn a_narrowed_token_is_not_led_to_other_hosts() {
    let internet = Internet::new();
    internet.operator("net = \"filtered\"\n[[host]]\nallow = [\"web.test\", \"other.test\"]\n");
    let runtime = internet.world.beside("r");
    let socket = runtime.join("ringfence/daemon.sock");
    let mut command = internet.ringfence();
    command.env("XDG_RUNTIME_DIR", &runtime).arg("serve").stdin(Stdio::null()).stderr(Stdio::null());
    let mut daemon = Killed(command.spawn().unwrap());
    mortal(&daemon.0);
    eventually("the daemon answers", || UnixStream::connect(&socket).is_ok());
    let mut client = Client::connect(&socket, None).unwrap();
    let wanted: CreateSession =
        serde_json::from_value(json!({ "workspace": internet.world.workspace })).unwrap();
    let session = client.call(&CreateSession { net: Some(NetMode::Filtered), ..wanted }).unwrap();
    client.call(&exec(&session, "printf %s \"$RINGFENCE_SESSION_TOKEN\" | rev > token")).unwrap();
    let own: String = internet.world.read("token").unwrap().trim().chars().rev().collect();
    let left = json!({ "paths": "any", "hosts": { "only": ["web.test"] }, "commands": "any", "calls": null });
    let hand = json!({ "session": session.session, "label": "sub", "attenuation": left });
    let mut whole = Client::connect(&socket, Some(own)).unwrap();
    let minted = whole.raw(ringfence_api::Method::TokenAttenuate, hand).unwrap();
    let mut narrow = Client::connect(&socket, minted["secret"].as_str().map(str::to_owned)).unwrap();
    let fetch = |url: &str| FetchUrl { session: session.session.clone(), url: url.to_owned() };
    let led = "https://web.test/redirect/https:/other.test/";
    internet.forget_visits();
    for url in [
        led,
        "https://other.test/",
        "https:/other.test/web.test/",
        "https:other.test/b/web.test/",
        "https://other.test\\web.test/",
        "https://web.test@other.test/",
        "https://web.test:443@other.test/",
    ] {
        let error = refused(narrow.call(&fetch(url)));
        assert!(matches!(error.code, ErrorCode::Forbidden | ErrorCode::Refused), "{url}: {error:?}");
    }
    let visited = |host: &str| {
        internet.visits().iter().any(|visit| visit["what"] == "http" && visit["headers"]["host"] == host)
    };
    assert!(visited("web.test") && !visited("other.test"), "{:?}", internet.visits());
    assert_eq!(refused(narrow.call(&fetch(led))).rule.as_deref(), Some("host.not-left"));
    assert_eq!(narrow.call(&fetch("https://web.test/")).unwrap().status, 200);
    // The control: the session itself is led there.
    assert_eq!(whole.call(&fetch(led)).unwrap().status, 200);
    assert!(visited("other.test"));
    client.call(&Shutdown {}).unwrap();
    assert!(ended("the daemon", &mut daemon.0).success());
}

/// Does not outlive a test that fails.
pub(crate) struct Killed(pub(crate) std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Nothing is kept for whoever does not read: they are let go, and can go on where they were. Everybody else hears everything. The
/// bench has a thousand of them.
#[test]
fn subscribers_that_do_not_read_are_dropped() {
    const EACH: usize = 8;
    const REPORTS: usize = 150;
    let served = Served::new();
    let session = served.session();
    let silent = || {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.write_all(b"GET /v1/events?after=0 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        stream
    };
    let slow: Vec<UnixStream> = (0..EACH).map(|_| silent()).collect();
    let mine = Subscribe { after: Some(0), session: Some(session.session.clone()) };
    let text = "word ".repeat(3000);
    std::thread::scope(|scope| {
        let listening: Vec<_> = (0..EACH)
            .map(|_| {
                let (mut client, mine, text) = (served.client(), &mine, &text);
                scope.spawn(move || {
                    let events = client.events(mine).unwrap().map(|event| event.unwrap());
                    let reports = events.filter(|event| event.kind == "activity-reported").take(REPORTS);
                    reports.filter(|event| event.event["claim"] == json!(text)).count()
                })
            })
            .collect();
        let mut client = served.client();
        for _ in 0..REPORTS {
            let (session, kind) = (session.session.clone(), "step".to_owned());
            client.call(&ReportActivity { session, activity: kind, claim: text.clone() }).unwrap();
        }
        for hears in listening {
            assert_eq!(hears.join().unwrap(), REPORTS);
        }
    });
    eventually("the slow ones are let go", || {
        metric(&served, "ringfence_subscribers_dropped_total") >= EACH as u64
    });
    eventually("nobody subscribes any more", || metric(&served, "ringfence_subscribers") == 0);
    for mut stream in slow.into_iter().map(Patient) {
        // The connection is over, and less than everything was kept for it.
        let mut rest = Vec::new();
        let _reset = stream.read_to_end(&mut rest);
        let told = String::from_utf8_lossy(&rest);
        assert!(told.matches("event: activity").count() < REPORTS, "{} bytes", rest.len());
    }
}

/// Where the fence cannot hide the socket, whoever is inside still has the same user and is not the owner.
#[test]
fn somebody_in_a_fence_is_not_the_owner_of_the_daemon() {
    let served = Served::new();
    let ask = format!(
        "curl -s -o answer -w '%{{http_code}}' --unix-socket '{}' http://x/v1/sessions",
        served.socket.display()
    );
    let fenced = served.world.sh_with(LANDLOCK, &ask);
    assert_eq!(fenced.text(), "401", "{}", fenced.err);
    assert!(served.world.read("answer").unwrap().contains("identity.no-token"));
    let control = finish(served.world.host("sh").args(["-c", &ask]), b"").expect(0);
    assert_eq!(control.text(), "200");
    // With a token of somebody who may, it is that somebody.
    let token =
        served.ringfence(&["token", "create", "inside", "--scope", "read", "--json"]).expect(0).json();
    served.world.write("token", format!("Authorization: Bearer {}", token["secret"].as_str().unwrap()));
    let known = served.world.sh_with(LANDLOCK, &format!("{ask} -H @token"));
    assert_eq!(known.text(), "200", "{}", known.err);
}
