//! The daemon against its own description: `schemathesis` reads `/v1/openapi.json`, makes requests that fit it and requests that do
//! not, and compares every answer with it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use ringfence_api::SessionInfo;
use serde_json::{Map, Value, json};

use crate::agents::agents;
use crate::daemon_fixture::{Served, stdout};
use crate::daemon_socket::token_with;
use crate::daemon_tcp::joined;
use crate::test_timeouts::Patient;
use crate::testkit::{Done, World, finish};

/// What ends the daemon, the session that most of the others are about, or the token that all of them come with.
const ENDS: [&str; 3] = ["/v1/shutdown", "/v1/sessions/{session}/stop", "/v1/logout"];
/// What is over when one side has enough; protocols of their own, which tests of their own speak.
const OTHERWISE: [&str; 4] = ["/v1/events", "/v1/approvals/watch", "/v1/ws", "/v1/sessions/{session}/mcp"];
/// What an answer to a request that fits may be. Policy says no to much of it (422), and nearly everything is about something
/// that is not there; but none of it makes no sense (400).
const GOOD: &str = "[\"2xx\", \"401\", \"403\", \"404\", \"409\", \"422\", \"429\"]";

/// A daemon on loopback whose sessions have no network, a token for all of it, and its description.
struct Described {
    served: Served,
    session: SessionInfo,
    port: u16,
    token: String,
    description: Value,
}

impl Described {
    fn new() -> Self {
        let served = Served::listening(World::new(), "schema = 1\nnet = \"none\"\n", "");
        let port = served.port();
        let token = token_with(&served, &["read", "run", "approve", "pair", "admin"]).1;
        let description = described(port, &token);
        let session = served.session();
        assert_eq!(stdout(&served.sh(&session, "echo first")), "first\n");
        let mut made = Self { served, session, port, token, description };
        made.description["paths"]
            .as_object_mut()
            .unwrap()
            .retain(|path, _| !ENDS.contains(&path.as_str()) && !OTHERWISE.contains(&path.as_str()));
        made.narrow();
        strict(&mut made.description["components"]["schemas"]);
        made
    }

    /// What nobody guesses.
    fn narrow(&mut self) {
        let one = |value: &Value| json!({ "enum": [value] });
        let session = one(&json!(self.session.session));
        let workspace = one(&json!(self.served.world.workspace));
        let pointer = "/paths/~1v1~1sessions/post/requestBody/content/application~1json/schema/properties";
        self.description.pointer_mut(pointer).unwrap()["workspace"] = workspace;
        for operation in operations(&mut self.description) {
            let fields = operation["parameters"].as_array_mut().unwrap();
            for field in fields.iter_mut().filter(|field| field["name"] == "session") {
                field["schema"] = session.clone();
            }
            let fields = operation.pointer_mut("/requestBody/content/application~1json/schema/properties");
            for field in fields.and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
                // A key that is one: not all of 32 bytes are.
                let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
                if field["pattern"] == "^[0-9a-f]{64}$" {
                    *field = one(&json!(key));
                }
                // The hosts of a ceiling: no schema says which texts are hosts, and the others are refused.
                if let Some(net) = field.pointer_mut("/properties/net") {
                    *net = json!({ "enum": ["none", "filtered", null] });
                }
                // A place that is there, and a host that is one.
                replace(field, &json!({ "type": "string", "pattern": "^/" }), &one(&json!("/w")));
                replace(field, &json!({ "type": "string", "minLength": 1 }), &one(&json!("a.example")));
            }
        }
    }

    /// Tries what is in the description, and says what it found.
    fn tried(&self, more: &[&str]) -> Done {
        let place = self.served.world.beside("tried");
        fs::create_dir_all(&place).unwrap();
        let [description, settings] = ["openapi.json", "schemathesis.toml"].map(|name| place.join(name));
        fs::write(&description, self.description.to_string()).unwrap();
        let statuses = format!("[checks.positive_data_acceptance]\nexpected-statuses = {GOOD}\n");
        fs::write(
            &settings,
            format!("headers = {{ Authorization = \"Bearer {}\" }}\n{statuses}", self.token),
        )
        .unwrap();
        let mut command = self.served.world.host("/usr/bin/python3");
        command.current_dir(&place).env("PYTHONPATH", packages()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.args(["-m", "schemathesis.cli", "--no-color", "--config-file"]).arg(&settings);
        command.arg("run").arg(&description).args(["--url", &format!("http://127.0.0.1:{}", self.port)]);
        // No more than so many, always the same, one after the other.
        command.args([
            "--seed",
            "7",
            "--max-examples",
            "1",
            "--workers",
            "1",
            "--phases",
            "coverage,fuzzing",
        ]);
        command.args(["--request-timeout", "30", "--continue-on-failure", "--checks", CHECKS]);
        finish(command.args(more), b"")
    }
}

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_schema_conformance,negative_data_rejection,positive_data_acceptance";

fn packages() -> PathBuf {
    let packages = agents().join("../schemathesis");
    assert!(packages.join("schemathesis").is_dir(), "no schemathesis: run `cargo xtask agents`");
    packages
}

/// As anybody gets it who has a token.
fn described(port: u16, token: &str) -> Value {
    let mut stream = Patient(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let head = format!("host: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\nconnection: close");
    stream.write_all(format!("GET /v1/openapi.json HTTP/1.1\r\n{head}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    serde_json::from_str(&if is_chunked { joined(body) } else { body.to_owned() }).unwrap()
}

fn operations(description: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = description["paths"].as_object_mut().unwrap().values_mut();
    paths.flat_map(|path| path.as_object_mut().unwrap().values_mut())
}

fn replace(value: &mut Value, from: &Value, to: &Value) {
    if value == from {
        *value = to.clone();
        return;
    }
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| replace(value, from, to)),
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, from, to)),
        _ => {}
    }
}

/// Clients bear with fields that they do not know, and so does the description. Here there is none that is not in it.
fn strict(schemas: &mut Value) {
    for schema in schemas.as_object_mut().unwrap().values_mut() {
        close(schema);
        for key in ["oneOf", "anyOf"] {
            schema.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(close);
        }
    }
}

fn close(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if fields.get("properties").is_some() {
        let _known = fields.entry("additionalProperties").or_insert(json!(false));
    }
}

/// S003-23, S003-24: every method does what its description says, with what fits it and with what does not.
#[test]
fn the_daemon_is_as_it_describes_itself() {
    let described = Described::new();
    let done = described.tried(&[]);
    assert_eq!(done.code, Some(0), "{}\n{}", done.text(), done.err);
    // All of them, and all the way.
    let text = done.text();
    let count = described.description["paths"].as_object().unwrap().values();
    let count: usize = count.map(|path| path.as_object().unwrap().len()).sum();
    assert!(text.contains(&format!("Tested: {count}")) && count > 40, "{text}");
    assert_eq!(stdout(&described.served.sh(&described.session, "echo on")), "on\n");
    described.served.world.ledger_tool(&["verify"]).expect(0);
}

/// The control: a description that is wrong in one place each is found to be.
#[test]
fn a_description_that_is_wrong_is_found_out() {
    let mut described = Described::new();
    let schemas = &mut described.description["components"]["schemas"];
    // A field that is not in it, and one that is something else.
    schemas["Health"]["properties"].as_object_mut().unwrap().remove("version").unwrap();
    schemas["Health"]["required"] = json!([]);
    schemas["SessionInfo"]["properties"]["calls"] = json!({ "type": "string" });
    let paths = &mut described.description["paths"];
    // A status that is not in it, and another kind of content.
    paths["/v1/approvals/{id}"]["get"]["responses"].as_object_mut().unwrap().remove("404").unwrap();
    let metrics = &mut paths["/v1/metrics"]["get"]["responses"]["200"]["content"];
    *metrics = json!({ "application/json": {} });
    // More than is taken.
    let report = "/v1/sessions/{session}/activity";
    let report = &mut paths[report]["post"]["requestBody"]["content"]["application/json"]["schema"];
    report["required"] = json!([]);
    let wrong = ["GET /v1/health", "GET /v1/sessions", "GET /v1/approvals/{id}", "GET /v1/metrics"]
        .map(str::to_owned);
    let mut more = Vec::new();
    let report = "POST /v1/sessions/{session}/activity".to_owned();
    for name in wrong.iter().chain([&report]) {
        more.extend(["--include-name", name]);
    }
    let done = described.tried(&more);
    assert_eq!(done.code, Some(1), "{}\n{}", done.text(), done.err);
    let text = done.text();
    for name in wrong.iter().chain([&report]) {
        assert!(
            text.lines().any(|line| line.starts_with("__") && line.contains(&format!(" {name} "))),
            "{name}: {text}"
        );
    }
}
