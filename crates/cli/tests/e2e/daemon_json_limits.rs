//! What long JSON becomes: never much more than it is, whichever way it comes, and nobody waits for whoever reads it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ringfence_api::{CheckHealth, ErrorCode};
use serde_json::{Value, json};

use crate::daemon_fixture::{Served, raw};
use crate::daemon_socket::{Talk, code};
use crate::mcp_http::{Tools, door};

/// As long as a request may be, and as a message of tools may.
const LONG: usize = 33_000_000;
const LONG_FOR_TOOLS: usize = 8_000_000;
/// For three of them at once: as they came, in one piece, and as what is made of it.
const FOR_ALL_KB: u64 = 300 * 1024;

fn peak_kb(served: &Served) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", served.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Small values, as many as fit.
fn heavy(value: &str, bytes: usize) -> String {
    let more = format!(",{value}").repeat((bytes - 1000) / (value.len() + 1));
    format!("[{value}{more}]")
}

/// Somebody at the door of a session.
struct Agent {
    door: PathBuf,
    token: String,
    session: String,
}

impl Agent {
    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nauthorization: Bearer {}\r\ncontent-length: {}",
            self.token,
            body.len()
        );
        raw(&self.door, format!("{head}\r\n\r\n{body}").as_bytes())
    }

    fn by_http(&self, content: &str) -> (u16, String) {
        let path = format!("/v1/sessions/{}/files/write", self.session);
        self.post(&path, &format!("{{\"path\":\"http\",\"content\":{content}}}"))
    }

    fn by_tools(&self, content: &str) -> (u16, String) {
        let params =
            format!("{{\"name\":\"write_file\",\"arguments\":{{\"path\":\"mcp\",\"content\":{content}}}}}");
        let head = "\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"";
        self.post("/mcp", &format!("{{{head},\"params\":{params}}}"))
    }

    fn by_socket(&self, content: &str) -> Value {
        let params = format!("{{\"session\":\"{}\",\"path\":\"ws\",\"content\":{content}}}", self.session);
        let mut talk = self.talk();
        talk.say(format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"file.write\",\"params\":{params}}}"))
    }

    fn talk(&self) -> Talk {
        Talk::open(&self.door, Some(&self.token)).unwrap()
    }
}

fn is_malformed((status, answer): &(u16, String)) -> bool {
    *status == 400 && answer.contains("\"invalid-argument\"") && answer.contains("base64")
}

/// S003-23: a list of numbers is sixteen times as much in memory as it is as text, and an object far more than that.
#[test]
fn what_becomes_much_in_memory_is_refused_before_it_does() {
    let served = Served::new();
    let session = served.session();
    let (door, token) = door(&served, &session);
    let agent = Agent { door, token, session: session.session.to_string() };
    let before = peak_kb(&served);
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut client = served.client();
            while !over.load(Ordering::SeqCst) {
                client.call(&CheckHealth {}).unwrap();
                // Below the rate of one connection.
                thread::sleep(Duration::from_millis(2));
                asked.fetch_add(1, Ordering::SeqCst);
            }
        });
        let of = [("http", LONG), ("ws", LONG), ("mcp", LONG_FOR_TOOLS)].map(|(way, bytes)| {
            let agent = &agent;
            scope.spawn(move || {
                for value in ["0", "[]", "{\"\":0}"] {
                    refused(agent, way, &heavy(value, bytes));
                }
            })
        });
        let ended = of.map(|way| way.join().is_ok());
        over.store(true, Ordering::SeqCst);
        others.join().unwrap();
        assert_eq!(ended, [true; 3]);
    });
    assert!(asked.load(Ordering::SeqCst) > 0);
    let grown = peak_kb(&served) - before;
    assert!(grown < FOR_ALL_KB, "{grown} kB");
    assert!(["http", "ws", "mcp"].iter().all(|path| served.world.read(path).is_none()));
    // The control: what is as long and is a file is written.
    let long = "x".repeat(25_000_000);
    assert_eq!(agent.by_http(&format!("\"{long}\"")).0, 200);
    let params = json!({ "session": agent.session, "path": "ws", "content": long });
    agent.talk().call("file.write", params).unwrap();
    let tools = Tools::at_the_door(&served, &session).greeted();
    tools.done("write_file", json!({ "path": "mcp", "content": "x".repeat(7_000_000) }));
    let length = |path: &str| fs::metadata(served.world.workspace.join(Path::new(path))).unwrap().len();
    assert_eq!(["http", "ws", "mcp"].map(length), [25_000_000, 25_000_000, 7_000_000]);
}

fn refused(agent: &Agent, way: &str, content: &str) {
    match way {
        "http" => {
            let answer = agent.by_http(content);
            assert!(is_malformed(&answer), "{answer:?}");
        }
        "mcp" => {
            let answer = agent.by_tools(content);
            assert!(is_malformed(&answer), "{answer:?}");
        }
        _ => {
            let answer = agent.by_socket(content);
            assert_eq!(code(&answer["error"]), ErrorCode::InvalidArgument);
        }
    }
}
