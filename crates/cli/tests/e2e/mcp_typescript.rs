//! The official clients for TypeScript: the one that programs have today, which begins with a handshake, and the one that speaks
//! both eras. They check every result against the schema of its tool.

use std::path::Path;
use std::process::Command;
use std::thread;

use ringfence_api::{AnswerApproval, ListApprovals};
use serde_json::{Value, json};

use crate::agents::{agents, source};
use crate::approvals::configure;
use crate::daemon_fixture::Served;
use crate::daemon_socket::token_with;
use crate::mcp_http::{ASK, door, listening};
use crate::testkit::{World, binary, eventually, finish};

/// The package, its mode, and the version that comes of it.
const CLIENTS: [(&str, &str, &str); 3] =
    [("sdk", "legacy", "2025-11-25"), ("client", "legacy", "2025-11-25"), ("client", "auto", "2026-07-28")];
fn client(world: &World, (package, mode): (&str, &str), answer: &str) -> Command {
    let packages = agents().join("../node");
    assert!(packages.join("node_modules").is_dir(), "no clients: run `cargo xtask agents`");
    let mut command = world.host("node");
    command.arg(source("mcp_client.mjs")).arg(packages).args([package, mode, answer]);
    command
}

/// What is the same whichever way they come.
#[track_caller]
fn expect_work(said: &Value, world: &World, (asked, tools): (&str, usize)) {
    assert_eq!(said["tools"].as_array().unwrap().len(), tools, "{said}");
    assert_eq!((&said["exec"]["exit_code"], &said["exec"]["stdout"]), (&json!(3), &json!("out\n")), "{said}");
    assert!(said["progress"].as_u64().unwrap() >= 1, "{said}");
    assert_eq!((&said["read"], &said["explain"]), (&json!("one\n"), &json!("allow")), "{said}");
    assert_eq!(said["outside"], json!([true, "path.boundary"]), "{said}");
    assert_eq!(said["asked"], asked, "{said}");
    assert_eq!(world.workspace.join("made").is_dir(), asked == "done");
    assert_eq!((&said["cancelled"], &said["after"]), (&json!("cancelled"), &json!("next\n")), "{said}");
    assert!(world.read("begun").is_some() && world.read("ended").is_none());
}

#[test]
fn the_clients_for_typescript_speak_with_it_on_standard_input_and_output() {
    thread::scope(|scope| {
        for ((package, mode, version), answer) in
            CLIENTS.into_iter().zip(["allow once", "deny", "allow once"])
        {
            scope.spawn(move || {
                let world = World::new();
                configure(&world, &format!("schema = 1\n{ASK}"));
                let mut command = client(&world, (package, mode), answer);
                command.arg("stdio").arg(binary()).args(["mcp", "--elicit"]);
                let said = finish(&mut command, b"").expect(0).json();
                let asked = if answer == "deny" { "refused" } else { "done" };
                expect_work(&said, &world, (asked, 10));
                assert_eq!(said["questions"].as_array().unwrap().len(), 1, "{said}");
                assert!(package == "sdk" || said["version"] == version, "{said}");
            });
        }
    });
}

/// Says yes to the first question.
fn approve(served: &Served) {
    let mut question = None;
    eventually("the question waits", || {
        question = served.client().call(&ListApprovals {}).unwrap().approvals.pop();
        question.is_some()
    });
    let reply = json!({ "id": question.unwrap().id, "answer": "once" });
    let reply: AnswerApproval = serde_json::from_value(reply).unwrap();
    served.client().call(&reply).unwrap();
}

/// On loopback with the token of an operator, and at the door of a session with its own.
#[test]
fn the_clients_for_typescript_speak_with_the_daemon_over_http() {
    thread::scope(|scope| {
        for (package, mode, version) in CLIENTS {
            scope.spawn(move || {
                let (served, port) = listening();
                let session = served.session();
                let mut command = client(&served.world, (package, mode), "allow once");
                if mode == "auto" {
                    let (socket, token) = door(&served, &session);
                    command.env("SOCKET", socket).env("TOKEN", token).args(["http", "http://door/mcp"]);
                } else {
                    let address = format!("http://127.0.0.1:{port}/v1/sessions/{}/mcp", session.session);
                    command.env("TOKEN", token_with(&served, &["run"]).1).args(["http", &address]);
                }
                let said = thread::scope(|scope| {
                    scope.spawn(|| approve(&served));
                    finish(&mut command, b"").expect(0).json()
                });
                expect_work(&said, &served.world, ("done", 9));
                assert_eq!(said["questions"], json!([]), "nobody on the side of the agent is asked");
                assert_eq!(said["version"], version, "{said}");
                assert!(!Path::new("/etc/x").exists());
            });
        }
    });
}
