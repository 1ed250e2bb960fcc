//! The same script of calls under `native` and `container`: the same answers, and the same shape of the ledger.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::container_policy::configure;
use crate::mcp::Client;
use crate::podman::Podman;
use crate::terminal::Terminal;
use crate::test_timeouts::joined;
use crate::testkit::{World, collect, finish, processes_with, send};

/// A world in which the script runs under one backend.
struct Side {
    world: World,
    flags: Vec<String>,
    /// How many records there were before.
    before: usize,
}

impl Side {
    fn native() -> Self {
        Self::of(World::new(), &["--backend", "native"])
    }

    fn container(podman: &Podman) -> Self {
        let (world, flags) = podman.world();
        Self::of(world, &flags.with(&[]))
    }

    fn of(world: World, flags: &[&str]) -> Self {
        world.repository();
        let key = "value-of-a-key-that-nobody-prints";
        finish(world.ringfence().args(["secret", "set", "tool-key"]), key.as_bytes()).expect(0);
        for (path, content) in [(".env", "HIDDEN\n"), ("sub/key.pem", "HIDDEN\n"), ("part/file", "seen\n")] {
            world.write(path, content);
        }
        let before = world.all_records().len();
        Self { world, flags: flags.iter().map(|flag| (*flag).to_owned()).collect(), before }
    }

    /// Exit code and output, with the names that differ taken out.
    fn answer(&self, call: &Call<'_>) -> (Option<i32>, String, String) {
        let mut command = self.world.ringfence();
        command.arg("run").args(&self.flags).args(call.flags).arg("--").args(call.argv);
        let done = finish(&mut command, call.stdin);
        let plain = |text: &[u8]| {
            let text = String::from_utf8_lossy(text);
            text.replace(self.world.workspace.to_str().unwrap(), "W")
        };
        (done.code, plain(&done.out), plain(done.err.as_bytes()))
    }

    /// What was recorded since the beginning, without what differs from one run to the next.
    fn ledger(&self) -> Vec<Value> {
        let records = self.world.all_records();
        records.iter().skip(self.before).map(|record| shape("", &record["event"])).collect()
    }
}

/// Words that must be the same; of everything else only what it is.
const WORDS: [&str; 10] =
    ["kind", "decision", "rule", "layer", "level", "profile", "net", "limit_hit", "code", "signal"];

fn shape(key: &str, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), shape(key, value)));
            serde_json::to_value(fields.collect::<BTreeMap<_, _>>()).unwrap()
        }
        Value::Array(items) => items.iter().map(|item| shape(key, item)).collect(),
        word if WORDS.contains(&key) => word.clone(),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!("number"),
        other => other.clone(),
    }
}

/// Record by record, so that what differs can be read.
#[track_caller]
fn same_shape(native: &[Value], container: &[Value]) {
    for (number, (one, other)) in native.iter().zip(container).enumerate() {
        assert_eq!(one, other, "record {number}");
    }
    assert_eq!(native.len(), container.len());
    assert!(native.iter().any(|event| event["kind"] == "call-settled"), "{native:?}");
}

struct Call<'c> {
    flags: &'c [&'c str],
    argv: &'c [&'c str],
    stdin: &'c [u8],
}

const fn call<'c>(flags: &'c [&'c str], argv: &'c [&'c str]) -> Call<'c> {
    Call { flags, argv, stdin: b"" }
}

const fn sh<'c>(flags: &'c [&'c str], script: &'c [&'c str; 3]) -> Call<'c> {
    call(flags, script)
}

#[track_caller]
fn alike(sides: &[Side; 2], calls: &[Call<'_>]) {
    let [native, container] = sides;
    for call in calls {
        let (one, other) = (native.answer(call), container.answer(call));
        assert_eq!(one, other, "{:?} {:?}", call.flags, call.argv);
    }
    same_shape(&native.ledger(), &container.ledger());
}

/// C-25, S003-43: streams, files, limits and what is left running.
#[test]
fn native_and_container_answer_alike() {
    let podman = Podman::start();
    let sides = [Side::native(), Side::container(&podman)];
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes = bytes.repeat(4096);
    alike(
        &sides,
        &[
            call(&[], &["no-such-program"]),
            sh(
                &[],
                &[
                    "sh",
                    "-c",
                    "echo out; echo err >&2; pwd; echo $HOME $TMPDIR; test -w ~ && test -w /tmp; exit 3",
                ],
            ),
            Call { stdin: &bytes, ..call(&[], &["cat"]) },
            Call {
                stdin: b"one\ntwo\n",
                ..sh(&[], &["sh", "-c", "read a; read b; echo $b $a; read c || echo end"])
            },
            sh(
                &[],
                &[
                    "sh",
                    "-c",
                    "head -c 5000000 /dev/zero | tr '\\0' x; head -c 70000 /dev/zero | tr '\\0' y >&2",
                ],
            ),
            sh(&["--max-output", "1k"], &["sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; exit 5"]),
            sh(
                &["--timeout", "1s"],
                &["bash", "-c", "sleep 1000 & setsid sleep 1000 & echo begun; sleep 1000"],
            ),
            sh(&[], &["sh", "-c", "cat .env sub/key.pem; cat part/file"]),
            sh(
                &[],
                &[
                    "sh",
                    "-c",
                    "export LC_ALL=C; echo x >.git/hooks/pre-commit; echo x >>.git/config; mkdir .vscode; mv .git g; ls -d .git",
                ],
            ),
            sh(&[], &["sh", "-c", "echo x >made; cat made; ls -A part; rm made"]),
            sh(
                &["--workspace-access", "read"],
                &["sh", "-c", "export LC_ALL=C; cat part/file; echo x >part/new; mkdir d; rm part/file"],
            ),
            sh(&["--workspace-access", "none"], &["sh", "-c", "pwd; ls -A; exit 0"]),
            sh(&[], &["sh", "-c", "echo x >/usr/x; echo x >/etc/x; echo x >/x; exit 0"]),
            sh(&["--file-size", "1m"], &["sh", "-c", "head -c 3000000 /dev/zero >big; wc -c <big; rm big"]),
            sh(
                &["--max-open-files", "20"],
                &["bash", "-c", "for i in $(seq 30); do exec {f}</dev/null || exit 9; done"],
            ),
            sh(&["--tmp-size", "1m"], &["sh", "-c", "head -c 3000000 /dev/zero >/tmp/big; wc -c </tmp/big"]),
            sh(
                &["--secret", "tool-key"],
                &["sh", "-c", "stat -c %a $TOOL_KEY_FILE; wc -c <$TOOL_KEY_FILE; cat $TOOL_KEY_FILE"],
            ),
            call(&["--profile", "strict"], &["curl", "-sS", "http://example.test/"]),
            call(&["--profile", "review"], &["true"]),
            call(&["--env", "LD_PRELOAD=x"], &["true"]),
        ],
    );
    podman.nothing_stays();
}

/// S003-8: every exit code, and the signals that end a process, in one session of each.
#[test]
fn every_exit_code_and_signal_is_alike() {
    let podman = Podman::start();
    let (contained, _) = podman.world();
    configure(&contained, &podman, "backend = \"container\"", "image = \"dev\"");
    let native = World::new();
    let directory = native.home.join(".config/ringfence");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("config.toml"), "backend = \"native\"\n").unwrap();
    native.sh("true").expect(0);
    let script = |world: &World| {
        let before = world.all_records().len();
        let mut client = Client::new(world, &[]);
        let mut said = |command: &str| {
            let done = client.done("exec", json!({ "command": command }));
            (done["exit_code"].clone(), done["stdout"].clone(), done["stderr"].clone())
        };
        let codes: Vec<_> = (0..=255).map(|code| said(&format!("echo o; echo e >&2; exit {code}"))).collect();
        assert!(codes.iter().enumerate().all(|(code, (exit, ..))| *exit == code), "{codes:?}");
        let signals: Vec<_> = [1, 2, 3, 6, 8, 9, 10, 11, 13, 14, 15]
            .map(|signal| said(&format!("exec sh -c 'kill -{signal} $$'")))
            .into();
        client.end();
        let records = world.all_records();
        let shapes: Vec<Value> =
            records.iter().skip(before).map(|record| shape("", &record["event"])).collect();
        (codes, signals, shapes)
    };
    let (one, other) = (script(&native), script(&contained));
    assert!(one.1.iter().all(|(exit, ..)| exit.as_u64().is_some_and(|exit| exit > 128)), "{:?}", one.1);
    assert_eq!(one.1, other.1);
    assert_eq!(one.0, other.0);
    same_shape(&one.2, &other.2);
    podman.nothing_stays();
}

/// S004-3: without a network, and with the hosts that a rule opens and no other.
#[test]
fn networks_are_alike() {
    let podman = Podman::start();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        for stream in server.incoming().take(3) {
            let mut stream = stream.unwrap();
            let _count = stream.read(&mut [0; 1024]).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved";
            stream.write_all(answer).unwrap();
        }
    });
    let sides = [Side::native(), Side::container(&podman)];
    let mut allow = Vec::new();
    for side in &sides {
        let policy = side.world.home.join("net.toml");
        fs::write(
            &policy,
            format!("[[host]]\nallow = [\"localhost:{port}\"]\nallow_private_addresses = true\n"),
        )
        .unwrap();
        allow.push(policy);
    }
    let url = format!("http://localhost:{port}/x");
    let get = ["curl", "--noproxy", "", "-sS", "--max-time", "20", &url];
    let control = finish(sides[0].world.host("curl").args(&get[1..]), b"").expect(0);
    assert_eq!(control.text(), "served", "the control");
    let answers = |side: &Side, policy: &std::path::Path| {
        let filtered = ["--net", "filtered", "--policy", policy.to_str().unwrap()];
        let beyond = ["curl", "-sS", "--fail", "--max-time", "20", "http://other.test/"];
        let (code, out, _) = side.answer(&call(&[], &get));
        let none = side.answer(&sh(&[], &["sh", "-c", "wc -l </proc/net/dev; wc -l </proc/net/route"]));
        let allowed = side.answer(&call(&filtered, &get));
        let denied = side.answer(&call(&filtered, &beyond));
        ((code != Some(0), out), none, allowed, denied)
    };
    let one = answers(&sides[0], &allow[0]);
    assert_eq!((&one.0, one.2.1.as_str()), (&(true, String::new()), "served"));
    assert_eq!((one.3.0, one.3.1.as_str()), (Some(22), ""), "{:?}", one.3);
    assert_eq!(one, answers(&sides[1], &allow[1]));
    same_shape(&sides[0].ledger(), &sides[1].ledger());
    joined("the server", served);
    podman.nothing_stays();
}

/// S003-35: a limit that is hit is the same limit, and what is left running ends with its call.
#[test]
fn limits_and_what_is_left_running_are_alike() {
    let podman = Podman::start();
    let sides = [Side::native(), Side::container(&podman)];
    let hit = |side: &Side, more: &[&str], script: &str| {
        let mut command = side.world.ringfence();
        command.args(["run", "--json"]).args(&side.flags).args(more).args(["--", "sh", "-c", script]);
        let answer = finish(&mut command, b"").json();
        (answer["exit_code"].clone(), answer["stdout"].clone(), answer["outcome"]["limit_hit"].clone())
    };
    let mut said = Vec::new();
    for side in &sides {
        let mark = crate::testkit::marker(&side.world);
        let left = format!("sh -c 'sleep 1000; : {mark}' & setsid sh -c 'sleep 1000; : {mark}' & echo left");
        let hog = "bash -c 'x=$(head -c 150000000 /dev/zero | tr \"\\0\" x); echo kept ${#x}' 2>/dev/null";
        // Not in bash, which tries again for half a minute.
        let bomb = "for i in $(seq 60); do sleep 1000 & done; echo all-60";
        said.push([
            hit(side, &["--memory", "100m"], hog),
            hit(side, &["--pids", "20"], bomb),
            hit(side, &["--cpu-time", "1s"], "while :; do :; done"),
            hit(side, &["--timeout", "1s"], "trap '' TERM; while :; do sleep 0.1; done"),
            hit(side, &[], &left),
        ]);
        assert_eq!(processes_with(&mark), Vec::<String>::new());
    }
    for kept in ["kept", "all-60"] {
        assert!(said[0].iter().all(|(_, out, _)| !out.as_str().unwrap().contains(kept)), "{said:?}");
    }
    assert_eq!(said[0], said[1]);
    same_shape(&sides[0].ledger(), &sides[1].ledger());
    podman.nothing_stays();
}

/// S003-7: a terminal of its own, that follows the caller's.
#[test]
fn terminals_are_alike() {
    let podman = Podman::start();
    let sides = [Side::native(), Side::container(&podman)];
    let seen = sides.each_ref().map(|side| {
        let terminal = Terminal::new(60, 80);
        let wait = "while [ ! -e go ]; do sleep 0.05; done";
        let script = format!(
            "trap 'stty size' WINCH; tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo start; {wait}; read x; echo got-$x; exit 7"
        );
        let mut command = side.world.ringfence();
        command.arg("run").args(&side.flags).args(["--", "sh", "-c", &script]);
        let command = command.stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
        let child = command.spawn().unwrap();
        terminal.wait_for("start");
        terminal.resize(50, 132);
        send(&child, Signal::WINCH);
        terminal.wait_for("50 132");
        side.world.write("go", "");
        terminal.type_in(b"word\r");
        terminal.wait_for("got-word");
        (collect(child).code, terminal.seen())
    });
    assert_eq!(seen[0], seen[1]);
    same_shape(&sides[0].ledger(), &sides[1].ledger());
    podman.nothing_stays();
}
