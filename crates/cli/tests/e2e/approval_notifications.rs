//! Word of a question to people who are not at the terminal: a webhook on loopback, and the desktop.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::approvals::{alone, approvals, approve, configure, events, one_waiting};
use crate::testkit::{World, collect, eventually, finish, script};

const MAKE: &str = "exec \"$RINGFENCE\" run --profile guarded --reason '<b>please</b>' -- mkdir made";

/// A web server that answers everything with `status`, and what it was sent.
pub(crate) struct Server {
    pub(crate) port: u16,
    requests: Receiver<Request>,
}

pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        let line = self
            .head
            .lines()
            .find_map(|line| line.split_once(':').filter(|(key, _)| key.eq_ignore_ascii_case(name)));
        line.unwrap_or_else(|| panic!("no {name} in {}", self.head)).1.trim()
    }
}

impl Server {
    pub(crate) fn new(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read(&mut stream);
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).unwrap();
                if sender.send(request).is_err() {
                    return;
                }
            }
        });
        Self { port, requests }
    }

    pub(crate) fn next(&self) -> Request {
        self.requests.recv_timeout(Duration::from_secs(120)).unwrap()
    }
}

fn read(stream: &mut impl std::io::Read) -> Request {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let expected = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:").map(|n| n.trim().parse().unwrap())
            })
            .unwrap_or(0);
        if body.len() >= expected || length == 0 {
            return Request { head: head.to_owned(), body: body.to_owned() };
        }
    }
}

pub(crate) fn secret(world: &World, mode: u32) {
    let path = world.home.join("secret");
    fs::write(&path, "a key of this test\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn hooked(world: &World, port: u16) {
    configure(
        world,
        &format!(
            "[approvals]\nnotify = \"webhook\"\nwebhook = {{ url = \"http://127.0.0.1:{port}/ask\", secret_file = \"~/secret\" }}\n"
        ),
    );
}

/// HMAC-SHA-256 by a program that is not ours.
fn hmac(world: &World, text: &str) -> String {
    let program = "import hashlib, hmac, sys; print(hmac.new(b'a key of this test', sys.stdin.buffer.read(), hashlib.sha256).hexdigest())";
    finish(world.host("python3").args(["-c", program]), text.as_bytes()).expect(0).text().trim().to_owned()
}

#[test]
fn a_webhook_is_told_signed_and_the_answer_comes_by_the_ledger_alone() {
    let world = World::new();
    let server = Server::new("200 OK");
    secret(&world, 0o600);
    hooked(&world, server.port);
    let child = alone(&world, MAKE);
    let request = server.next();
    assert!(request.head.starts_with("POST /ask HTTP/1.1"), "{}", request.head);
    let signed = format!("{}.{}", request.header("ringfence-timestamp"), request.body);
    assert_eq!(request.header("ringfence-signature"), format!("sha256={}", hmac(&world, &signed)));
    let message: Value = serde_json::from_str(&request.body).unwrap();
    let id = one_waiting(&world);
    let shown = approvals(&world, &["show", &id, "--json"]).expect(0).json();
    assert_eq!((&message["schema"], &message["id"]), (&1.into(), &id.as_str().into()));
    assert_eq!(message["prompt"], shown["request"]["prompt"], "the same text as everywhere");
    assert!(message["text"].as_str().unwrap().contains("May `mkdir` run with 1 argument?"), "{message}");
    assert!(!world.workspace.join("made").exists(), "whoever can read a message has not answered");
    let (_terminal, done) = approve(&world, &id, "", b"y");
    done.expect(0);
    collect(child).expect(0);
    assert!(world.workspace.join("made").is_dir());
    let records = world.records();
    let told = events(&records, "approval-notified");
    assert_eq!((&told[0]["channel"], &told[0]["failure"]), (&"webhook".into(), &Value::Null));
}

/// Nobody was reached, so nobody is waited for; and nothing is allowed.
fn unreached(world: &World, why: &str) {
    let start = Instant::now();
    let done = collect(alone(world, MAKE)).expect(126);
    assert!(start.elapsed() < Duration::from_secs(100), "{:?}", start.elapsed());
    assert!(
        done.err.contains("no approver is available") && done.err.contains(why),
        "`{why}` is not in {}",
        done.err
    );
    assert!(!world.workspace.join("made").exists());
    let records = world.records();
    let told = events(&records, "approval-notified");
    assert!(told.last().unwrap()["failure"].as_str().unwrap().contains(why), "{told:?}");
    assert_eq!(events(&records, "approval-decided").last().unwrap()["answer"], "unreachable");
}

#[test]
fn a_webhook_that_fails_is_written_down_and_allows_nothing() {
    let world = World::new();
    secret(&world, 0o600);
    // Nobody listens there.
    hooked(&world, 1);
    unreached(&world, "refused");
    for (status, why) in [("500 No", "500"), ("302 Elsewhere", "302")] {
        let server = Server::new(status);
        hooked(&world, server.port);
        unreached(&world, why);
    }
    let server = Server::new("200 OK");
    hooked(&world, server.port);
    secret(&world, 0o644);
    unreached(&world, "can be read by others");
    assert!(server.requests.try_recv().is_err(), "nothing was sent without a secret");
}

#[test]
fn a_webhook_that_never_answers_is_not_waited_for_long() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    secret(&world, 0o600);
    hooked(&world, listener.local_addr().unwrap().port());
    unreached(&world, "timeout");
}

#[test]
fn a_notification_is_told_by_argv_and_its_markup_is_text() {
    let world = World::new();
    let programs = world.beside("programs");
    let told = world.beside("told");
    script(
        &programs.join("notify-send"),
        &format!("#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done >{}/all; exit 0\n", told.display()),
    );
    configure(&world, "[approvals]\nnotify = [\"desktop\"]\n");
    let path = format!("PATH={}:$PATH {MAKE}", programs.display()).replace("exec ", "");
    let child = alone(&world, &path);
    let id = one_waiting(&world);
    eventually("somebody was told", || told.join("all").exists());
    approvals(&world, &["deny", &id]).expect(0);
    collect(child).expect(126);
    let words = fs::read_to_string(told.join("all")).unwrap();
    let words: Vec<&str> = words.split('\0').collect();
    assert_eq!(words[..5], ["--app-name=ringfence", "--urgency", "normal", "--", "Ringfence asks"]);
    assert!(words[5].contains("May `mkdir` run") && words[5].contains(&id), "{}", words[5]);
    assert!(words[5].contains("&lt;b&gt;please&lt;/b&gt;") && !words[5].contains('<'), "{}", words[5]);
}

/// A notification server on a bus of its own, that prints what it is asked to show.
const SHOWS: &str = "\
import dbus, dbus.service, dbus.mainloop.glib
from gi.repository import GLib
dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
class Server(dbus.service.Object):
    @dbus.service.method('org.freedesktop.Notifications', in_signature='susssasa{sv}i', out_signature='u')
    def Notify(self, app, replaces, icon, summary, body, actions, hints, timeout):
        open('shown.new', 'w').write(app + '\\n' + summary + '\\n' + body)
        import os; os.rename('shown.new', 'shown')
        return 1
    @dbus.service.method('org.freedesktop.Notifications', out_signature='ssss')
    def GetServerInformation(self):
        return ('test', 'test', '1', '1.2')
    @dbus.service.method('org.freedesktop.Notifications', out_signature='as')
    def GetCapabilities(self):
        return ['body', 'body-markup']
bus = dbus.SessionBus()
name = dbus.service.BusName('org.freedesktop.Notifications', bus)
Server(bus, '/org/freedesktop/Notifications')
open('ready', 'w')
GLib.MainLoop().run()
";

fn on_a_bus(world: &World, script: &str) -> Child {
    let mut command = world.host("dbus-run-session");
    command.args(["--", "setsid", "--wait", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn the_real_notify_send_shows_the_prompt_on_a_real_bus() {
    let world = World::new();
    configure(&world, "[approvals]\nnotify = \"desktop\"\n");
    let server = world.beside("server");
    fs::write(server.join("server.py"), SHOWS).unwrap();
    let run = format!(
        "(cd {}; exec python3 server.py) & while [ ! -e {}/ready ]; do sleep 0.05; done; {}; code=$?; kill $!; exit $code",
        server.display(),
        server.display(),
        MAKE.replace("exec ", "")
    );
    let child = on_a_bus(&world, &run);
    let id = one_waiting(&world);
    eventually("it is on the screen", || server.join("shown").exists());
    approvals(&world, &["deny", &id]).expect(0);
    collect(child).expect(126);
    let shown = fs::read_to_string(server.join("shown")).unwrap();
    assert!(shown.starts_with("ringfence\nRingfence asks\nMay `mkdir` run"), "{shown}");
    assert!(shown.contains(&id) && shown.contains("&lt;b&gt;please&lt;/b&gt;"), "{shown}");
    let records = world.records();
    assert_eq!(events(&records, "approval-notified")[0]["failure"], Value::Null);
}

#[test]
fn a_desktop_that_is_not_there_is_nobody() {
    let world = World::new();
    configure(&world, "[approvals]\nnotify = \"desktop\"\n");
    unreached(&world, "notify-send");
}
