//! Two worlds in which the same is done, natively and in containers of an engine, and everything in which they can be told apart:
//! answers word by word, files of the host with their owners, and the ledger field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::agents::source;
use crate::daemon_fixture::{Served, raw};
use crate::daemon_tcp::{exchanged, joined};
use crate::test_timeouts::Patient;
use crate::testkit::{Done, World, eventually, finish};

/// One of them, with a daemon.
pub(crate) struct Twin {
    pub(crate) served: Served,
    /// How many records there were before.
    before: usize,
    /// A name of the world, and what stands for it.
    names: Vec<(String, &'static str)>,
}

impl Twin {
    pub(crate) fn native(rules: &str, prepare: impl Fn(&World)) -> Self {
        // Rules are known by their lines, so that both have as many before them.
        Self::of(World::new(), "backend = \"native\"\n\n\n", rules, prepare)
    }

    /// In a world that has the image `dev` of this engine.
    pub(crate) fn contained(world: World, socket: &Path, rules: &str, prepare: impl Fn(&World)) -> Self {
        let backend = "backend = \"container\"\ncontainer.image = \"dev\"\n";
        let head = format!("{backend}container.engine_socket = \"{}\"\n", socket.display());
        Self::of(world, &head, rules, prepare)
    }

    fn of(world: World, head: &str, rules: &str, prepare: impl Fn(&World)) -> Self {
        let directory = world.home.join(".config/ringfence");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("config.toml"), format!("{head}{rules}")).unwrap();
        prepare(&world);
        let mut names = vec![(world.home.parent().unwrap().to_str().unwrap().to_owned(), "WORLD")];
        names.extend(image(&world).map(|digest| (digest, "IMAGE")));
        let served = Served::with(world, &[]);
        let before = if served.world.ledger_path().exists() { served.world.all_records().len() } else { 0 };
        Self { served, before, names }
    }

    pub(crate) fn world(&self) -> &World {
        &self.served.world
    }

    pub(crate) fn session(&self, more: Value) -> String {
        let mut wanted = json!({ "workspace": self.world().workspace });
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = self.ask("POST /v1/sessions", &wanted);
        assert_eq!(status, 200, "{answer}");
        answer["session"].as_str().unwrap().to_owned()
    }

    /// One request to the daemon, as it is on the wire.
    pub(crate) fn ask(&self, line: &str, body: &Value) -> (u16, Value) {
        let stream = Patient(UnixStream::connect(&self.served.socket).unwrap());
        let text = if body.is_null() { String::new() } else { body.to_string() };
        exchanged(stream, line, &text)
    }

    pub(crate) fn post(&self, session: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(&format!("POST /v1/sessions/{session}/{path}"), body);
        json!({ "status": status, "answer": answer })
    }

    pub(crate) fn download(&self, session: &str, path: &str) -> Value {
        let line = format!("GET /v1/sessions/{session}/files/download?path={path} HTTP/1.1");
        let request = format!("{line}\r\nHost: ringfence\r\nConnection: close\r\n\r\n");
        let (status, answer) = raw(&self.served.socket, request.as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { joined(body) } else { body.to_owned() };
        json!({ "status": status, "body": body })
    }

    pub(crate) fn command(&self, words: &[&str], input: &[u8]) -> Value {
        let mut command = self.world().ringfence();
        command.env("XDG_RUNTIME_DIR", self.world().beside("r"));
        said(&finish(command.args(words), input))
    }

    /// The question that waits, if one does.
    fn waiting(&self) -> Option<Value> {
        let (_, list) = self.ask("GET /v1/approvals", &Value::Null);
        list["approvals"].get(0).cloned()
    }

    pub(crate) fn question(&self) -> Value {
        let mut question = None;
        eventually("somebody is asked", || {
            question = self.waiting();
            question.is_some()
        });
        question.unwrap()
    }

    /// Does something that is asked about, and answers.
    pub(crate) fn answering(&self, asks: impl FnOnce() -> Value + Send, answer: impl FnOnce(&str)) -> Value {
        std::thread::scope(|scope| {
            let asked = scope.spawn(asks);
            let mut question = None;
            eventually("somebody is asked", || {
                question = self.waiting();
                question.is_some() || asked.is_finished()
            });
            if let Some(question) = &question {
                answer(question["id"].as_str().unwrap());
            }
            let done = asked.join().unwrap();
            json!([question.unwrap_or_else(|| panic!("nobody was asked: {done}")), done])
        })
    }

    pub(crate) fn decide(&self, id: &str, answer: &Value) {
        let line = format!("POST /v1/approvals/{id}/answer");
        let (status, said) = self.ask(&line, &json!({ "answer": answer, "reason": "a test" }));
        assert_eq!(status, 200, "{said}");
    }

    /// Every file of the workspace, with what the host knows about it.
    fn files(&self) -> Value {
        let mut files = Map::new();
        let mut places = vec![self.world().workspace.clone()];
        while let Some(place) = places.pop() {
            for entry in fs::read_dir(place).unwrap().flatten() {
                let (path, meta) = (entry.path(), fs::symlink_metadata(entry.path()).unwrap());
                let name = path.strip_prefix(&self.world().workspace).unwrap().to_str().unwrap().to_owned();
                let content = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                let content = String::from_utf8_lossy(&content).into_owned();
                files.insert(name, json!([meta.mode(), meta.uid(), meta.gid(), meta.nlink(), content]));
                if meta.is_dir() && path.file_name().unwrap() != ".git" {
                    places.push(path);
                }
            }
        }
        Value::Object(files)
    }

    /// What was recorded since the beginning, in order for each transaction: what a connection does and what the call does that made it
    /// happen at the same time.
    fn story(&self) -> Vec<Value> {
        const BESIDE: [&str; 3] = ["chain-started", "ledger-read", "checkpoint-signed"];
        let records = self.world().all_records();
        let events = records.into_iter().skip(self.before).map(|mut record| record["event"].take());
        let mut events: Vec<Value> =
            events.filter(|event| !BESIDE.iter().any(|kind| event["kind"] == *kind)).collect();
        let ids: Vec<Value> = events.iter().map(|event| event["transaction"].clone()).collect();
        events.sort_by_key(|event| ids.iter().position(|id| *id == event["transaction"]));
        self.plain(&Value::Array(events)).as_array().unwrap().clone()
    }

    /// Without what differs from one run to the next: whatever is a name of this world, an id or a digest becomes a number, the
    /// same one wherever it is again.
    pub(crate) fn plain(&self, value: &Value) -> Value {
        Plain { names: &self.names, numbers: BTreeMap::new() }.value("", value)
    }
}

/// The digest on the operator's list.
fn image(world: &World) -> Option<String> {
    let list = fs::read_to_string(world.home.join(".config/ringfence/images.toml")).ok()?;
    let digest = list.split('"').find(|word| word.starts_with("sha256:"))?;
    Some(digest.to_owned())
}

/// What somebody at a terminal would see.
pub(crate) fn said(done: &Done) -> Value {
    json!({ "code": done.code, "signal": done.signal, "out": done.text(), "err": done.err })
}

/// Names of numbers that no two runs have in common.
const CHANCE: [&str; 6] = ["duration_ms", "pid", "start_time", "namespace", "modified", "seq"];

struct Plain<'t> {
    names: &'t [(String, &'static str)],
    /// Of each field its own, so that one more in one of them changes no other.
    numbers: BTreeMap<String, Vec<String>>,
}

impl Plain<'_> {
    fn value(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                // What an answer is bound to has digests of this world: its policy, its directory.
                let bound = fields.get("kind").filter(|_| fields.contains_key("sha256"));
                let key_of =
                    |key: &str| bound.map_or_else(|| key.to_owned(), |what| format!("{key} of {what}"));
                let plain = |(key, value): (&String, &Value)| (key.clone(), self.value(&key_of(key), value));
                Value::Object(fields.iter().map(plain).collect())
            }
            Value::Array(items) => items.iter().map(|item| self.value(key, item)).collect(),
            // Tests beside this one have terminals as well.
            Value::String(text) if key == "terminal" && text.starts_with("/dev/pts/") => "chance".into(),
            Value::String(text) => self.text(key, text).into(),
            Value::Number(_) if CHANCE.contains(&key) => "chance".into(),
            other => other.clone(),
        }
    }

    fn text(&mut self, key: &str, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, instead) in self.names {
            text = text.replace(name, instead);
        }
        let mut plain = String::new();
        for piece in pieces(&text) {
            if is_time(piece) {
                plain.push_str("TIME");
            } else if is_id(piece) && key != "sha256" {
                let known = self.numbers.entry(key.to_owned()).or_default();
                let number = known.iter().position(|known| known == piece).unwrap_or(known.len());
                if number == known.len() {
                    known.push(piece.to_owned());
                }
                plain.push_str(&format!("ID{number}"));
            } else {
                plain.push_str(piece);
            }
        }
        plain
    }
}

/// Words, and what is between them.
fn pieces(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-:.".contains(c);
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn is_id(word: &str) -> bool {
    let last = word.rsplit(['_', ':', '-']).next().unwrap();
    word.starts_with("req_") || last.len() >= 16 && last.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_time(word: &str) -> bool {
    word.len() >= 19 && word.starts_with("20") && word.as_bytes().get(10) == Some(&b'T')
}

/// Every field in which two values differ: where it is, and both.
fn differences(place: &str, one: &Value, other: &Value) -> Vec<(String, Value, Value)> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let of = |fields: &Map<String, Value>, key: &str| fields.get(key).cloned().unwrap_or_default();
            keys.into_iter()
                .flat_map(|key| differences(&format!("{place}.{key}"), &of(one, key), &of(other, key)))
                .collect()
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            // A name and what it is.
            if let ([Value::String(name), one], [Value::String(same), other]) = (&one[..], &other[..])
                && name == same
            {
                return differences(&format!("{place}.{name}"), one, other);
            }
            one.iter().zip(other).flat_map(|(one, other)| differences(place, one, other)).collect()
        }
        _ if one == other => Vec::new(),
        _ => vec![(place.to_owned(), one.clone(), other.clone())],
    }
}

/// What was done by its name, and what came of it.
pub(crate) type Answers = BTreeMap<String, Value>;

/// The same answers, the same files on the host and the same records, apart from what `docs/containers.md` has in its table; says which
/// of that was seen.
#[track_caller]
pub(crate) fn assert_alike(twins: [&Twin; 2], answers: &[Answers; 2]) -> BTreeSet<String> {
    let [one, other] = answers.each_ref().map(|answers| serde_json::to_value(answers).unwrap());
    let [native, contained] = twins;
    let mut apart = differences("answer", &native.plain(&one), &contained.plain(&other));
    apart.extend(differences("file", &native.files(), &contained.files()));
    let [one, other] = twins.map(Twin::story);
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one["kind"], other["kind"], "{one:#}\n{other:#}");
        apart.extend(differences(one["kind"].as_str().unwrap(), one, other));
    }
    let known = documented();
    let named = |place: &str| known.iter().find(|field| place.ends_with(field.as_str()));
    let (seen, unknown): (Vec<_>, Vec<_>) = apart.into_iter().partition(|(place, ..)| named(place).is_some());
    let told: BTreeMap<_, _> =
        unknown.iter().map(|(place, one, other)| (place, format!("{one} / {other}"))).collect();
    assert!(unknown.is_empty(), "{told:#?}");
    seen.iter().filter_map(|(place, ..)| named(place).cloned()).collect()
}

/// The fields that `docs/containers.md` says may differ.
pub(crate) fn documented() -> BTreeSet<String> {
    let text = fs::read_to_string(source("../../../../docs/containers.md")).unwrap();
    let (_, table) = text.split_once("## What can be told apart").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let fields = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    fields.map(str::to_owned).collect()
}
