//! What the systems of documents 003 and 004 got wrong (requirements 2.3 and 2.4), through the doors that people and programs use:
//! `ringfence run` and the daemon, natively and in a container. `docs/lessons.md` says which test is about which of them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::parity_fixture::Twin;
use crate::podman::Podman;
use crate::testkit::{World, finish};

fn prepare(world: &World) {
    world.repository();
    world.write("d/file", "x");
}

/// The same rules natively and in a container.
fn twins(podman: &Podman, rules: &str) -> [Twin; 2] {
    let (world, _) = podman.world();
    [Twin::native(rules, prepare), Twin::contained(world, &podman.socket(), rules, prepare)]
}

/// `argv` by the command and by the daemon.
fn both_doors(twin: &Twin, argv: &[&str]) -> [Value; 2] {
    let session = twin.session(json!({}));
    let run = twin.command(&[&["run", "--"], argv].concat(), b"");
    let called = twin.post(&session, "exec", &json!({ "argv": argv }));
    let (_, stopped) = twin.ask(&format!("POST /v1/sessions/{session}/stop"), &json!({}));
    assert_eq!(stopped["state"], "ended", "{stopped}");
    [run, called]
}

fn is_refused(answer: &Value) -> bool {
    let by_run = answer["code"] == 126 && answer["err"].as_str().unwrap_or_default().contains("rule: ");
    by_run || answer["answer"]["refusal"].is_object()
}

/// What it printed, of what ran.
fn printed(answer: &Value) -> &str {
    let text = if answer["code"] == 0 { &answer["out"] } else { &answer["answer"]["stdout"] };
    text.as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Commands whose first word is on the list, and that make `evil` all the same.
const CARRIED: [&str; 16] = [
    "git status & touch evil",
    "git status\ntouch evil",
    "git status; touch evil",
    "git status && touch evil",
    "ls nowhere || touch evil",
    "cat readme | tee evil",
    "echo x > evil",
    "echo x >> evil",
    "cat readme >| evil",
    "find . -name readme -exec touch evil \\;",
    "find . -name readme -fprint evil",
    "find d -type f -delete && mv d evil",
    "cat readme `touch evil`",
    "ls $(touch evil)",
    "ls \"$(touch evil)\"",
    "env touch evil",
];

/// 2.3 (auto-approval let `&`, newline, `>` and `-exec` through), 2.4 (lists matched by prefix).
#[test]
fn a_listed_command_carries_no_other() {
    let podman = Podman::start();
    for twin in twins(&podman, "profile = \"guarded\"\napproval = \"never\"\n") {
        let evil = twin.world().workspace.join("evil");
        for script in CARRIED {
            for answer in both_doors(&twin, &["sh", "-c", script]) {
                assert!(is_refused(&answer), "{script}: {answer}");
            }
            assert!(!evil.exists(), "{script}");
        }
        for answer in both_doors(&twin, &["sh", "-c", "git status --short && ls d"]) {
            assert!(printed(&answer).contains("file"), "what is listed runs: {answer}");
        }
    }
    podman.nothing_stays();
    for script in CARRIED {
        let world = World::new();
        prepare(&world);
        finish(world.host("sh").args(["-c", &format!("{script}\nwait")]), b"");
        assert!(world.workspace.join("evil").exists(), "the control: {script}");
    }
}

/// `rm -rf d`, in words and as a script.
const REMOVALS: [&str; 24] = [
    "rm -rf d",
    "rm -fr d",
    "rm  -rf  d",
    "rm -r -f d",
    "rm -f -R d",
    "rm -rfv d",
    "rm -vfr -- d",
    "rm --recursive --force d",
    "rm --recurs --forc d",
    "rm d -rf",
    "/bin/rm -rf d",
    "/usr/bin/rm -rf d",
    "command rm -rf d",
    "env rm -rf d",
    "env X=1 rm -rf d",
    "X=1 rm -rf d",
    "nice rm -rf d",
    "timeout 9 rm -rf d",
    "'r'm -rf d",
    "\\rm -rf d",
    "true; rm -rf d",
    "sh -c 'rm -rf d'",
    "env sh -c 'exec rm -fr d'",
    "find d -prune -exec rm -rf {} +",
];

/// 2.4: a denied `rm -rf` missed `rm -fr` and `rm  -rf`.
#[test]
fn a_denied_removal_is_denied_in_every_spelling() {
    let podman = Podman::start();
    for twin in twins(&podman, "[[command]]\ndeny = \"rm -rf\"\n") {
        let kept = twin.world().workspace.join("d/file");
        for script in REMOVALS.into_iter().chain(["busybox rm -rf d", "busybox sh -c 'rm -rf d'"]) {
            for answer in both_doors(&twin, &["sh", "-c", script]) {
                assert!(is_refused(&answer), "{script}: {answer}");
            }
            assert!(kept.exists(), "{script}");
        }
        for argv in [&["rm", "-rf", "d"][..], &["rm", "-fr", "d"], &["/bin/rm", "-r", "--force", "d"]] {
            for answer in both_doors(&twin, argv) {
                assert!(is_refused(&answer), "{argv:?}: {answer}");
            }
            assert!(kept.exists(), "{argv:?}");
        }
        let other = both_doors(&twin, &["sh", "-c", "mkdir -p e && rm -r e && echo removed"]);
        assert!(other.iter().all(|answer| printed(answer) == "removed\n"), "another command runs: {other:?}");
    }
    podman.nothing_stays();
    for script in REMOVALS {
        let world = World::new();
        prepare(&world);
        finish(world.host("sh").args(["-c", script]), b"");
        assert!(!world.workspace.join("d").exists(), "the control: {script}");
    }
}

/// 2.3: any text with `select`, `into`, `--`, `$` or `&` was refused as an injection.
const TEXTS: [&str; 8] = [
    "SELECT a INTO b FROM c; DROP TABLE d; --",
    "a | b || c && d & e ; f",
    "$HOME ${HOME} $(id) `id`",
    "' or 1=1 --",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "rm -rf / ; :(){ :|:& };:",
    "%00 %n \\x00 {{7*7}}",
];

/// 2.3: what is text stays text, and arrives as it is.
#[test]
fn text_that_looks_like_an_injection_arrives_as_it_is() {
    let podman = Podman::start();
    for twin in twins(&podman, "profile = \"guarded\"\napproval = \"never\"\n") {
        let world = twin.world();
        for text in TEXTS {
            for answer in both_doors(&twin, &["echo", text]) {
                assert_eq!(printed(&answer), format!("{text}\n"), "{answer}");
            }
        }
        let mut client = Client::new(world, &[]);
        for text in TEXTS {
            let quoted = text.replace('\'', "'\\''");
            let said = client.done("exec", json!({ "command": format!("echo '{quoted}'") }));
            assert_eq!(said["stdout"], format!("{text}\n"));
            let found = client.done("search", json!({ "pattern": "injected", "path": "d" }));
            assert_eq!(found["matches"], json!([]));
        }
        client.end();
    }
    let free = "profile = \"workspace\"\n";
    for twin in twins(&podman, free) {
        let session = twin.session(json!({}));
        for (number, text) in TEXTS.into_iter().enumerate() {
            let path = format!("text {number}; && | $x");
            let written = twin.post(&session, "files/write", &json!({ "path": path, "content": text }));
            assert_eq!(written["status"], 200, "{written}");
            assert_eq!(twin.world().read(&path).as_deref(), Some(text));
            let read = twin.post(&session, "files/read", &json!({ "path": path }));
            assert_eq!(read["answer"]["content"], text, "{read}");
        }
    }
    // The control: where a shell takes text apart it is not what it was.
    let world = World::new();
    let naive = finish(world.host("sh").args(["-c", &format!("echo {}", TEXTS[1])]), b"");
    assert_ne!(naive.text(), format!("{}\n", TEXTS[1]));
}

/// Lists that say nothing, wherever there can be one.
const EMPTY: [&str; 18] = [
    "[[host]]\nallow = []\n",
    "[[host]]\ndeny = []\n",
    "[[host]]\nallow = \"a.test\"\nmethods = []\n",
    "[[command]]\nallow = []\n",
    "[[command]]\ndeny = []\n",
    "[[command]]\nprogram = \"go\"\nallow_subcommands = []\n",
    "[[command]]\nallow = [[]]\n",
    "[[path]]\ndeny = []\n",
    "[[path]]\nallow = []\n",
    "[[tool]]\nallow = []\n",
    "[[env]]\ninherit = []\n",
    "[[env]]\ndeny = []\n",
    "[[agents.tester.tool]]\nallow = []\n",
    "[container]\nimage = []\n",
    "[container]\nimage = \"dev\"\ntrusted_keys = []\n",
    "required_controls = []\n",
    "danger_required_controls = []\n",
    "extends = []\n",
];

/// 2.4 (an empty list of commands or hosts meant all of them, CVE-2025-66479): it is an error, and nothing runs.
#[test]
fn an_empty_list_never_means_everything() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    let policy = world.home.join("policy.toml");
    let ran = || world.read("ran").is_some();
    let attempt = |more: &[&str]| world.run(more, &["sh", "-c", "echo ran >ran"]);
    for text in EMPTY {
        fs::write(&policy, text).unwrap();
        let named = ["--policy", policy.to_str().unwrap()];
        for flags in [named.to_vec(), flags.with(&named), [&named[..], &["--agent", "tester"]].concat()] {
            let done = attempt(&flags);
            assert!(matches!(done.code, Some(125 | 126)), "{text}{flags:?}: {done:?}");
            assert!(done.err.contains("empty"), "{text}: {}", done.err);
            assert!(!ran(), "{text}");
        }
        assert_ne!(checked(&world, &policy), Some(0), "{text}");
    }
    fs::write(&policy, "[[host]]\nallow = [\"a.test\"]\n").unwrap();
    assert_eq!(checked(&world, &policy), Some(0), "the control");
    attempt(&["--policy", policy.to_str().unwrap()]).expect(0);
    assert!(ran(), "the control");
}

fn checked(world: &World, policy: &Path) -> Option<i32> {
    finish(world.ringfence().args(["config", "check"]).arg(policy), b"").code
}

/// 2.4: hosts that are allowed where none is: no rule is no host, and `filtered` without one reaches nobody.
#[test]
fn no_rule_about_hosts_is_no_host() {
    let podman = Podman::start();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://localhost:{}/", server.local_addr().unwrap().port());
    let get = ["curl", "--noproxy", "", "-sS", "--max-time", "20", "--fail", &url];
    for twin in twins(&podman, "net = \"filtered\"\nunlisted_hosts = \"deny\"\n") {
        let run = twin.command(&[&["run", "--net", "filtered", "--"], &get[..]].concat(), b"");
        assert_ne!(run["code"], 0, "{run}");
    }
    server.set_nonblocking(true).unwrap();
    assert_eq!(server.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody was there");
    let _control = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
    server.set_nonblocking(false).unwrap();
    assert!(server.accept().is_ok(), "the control");
}

/// Directories whose names an engine's `SOURCE:TARGET:OPTIONS` would take apart.
fn colons(world: &World) -> [PathBuf; 3] {
    ["a:b:ro", "c:/etc:ro", "d:rw,exec"].map(|name| world.beside(name))
}

/// 2.4: volumes as `%s:%s`. A colon is part of a name.
#[test]
fn a_colon_in_a_path_is_a_colon() {
    let podman = Podman::start();
    let (world, flags) = podman.world();
    for place in &colons(&world)[..2] {
        let path = place.to_str().unwrap();
        for more in [vec!["--workspace", path], flags.with(&["--workspace", path])] {
            let mut command = world.ringfence();
            command
                .arg("run")
                .args(&more)
                .args(["--", "sh", "-c", "echo made >made; pwd"])
                .current_dir(place);
            let done = finish(&mut command, b"").expect(0);
            assert_eq!(done.text(), format!("{path}\n"));
            let made = fs::metadata(place.join("made")).unwrap();
            assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
            fs::remove_file(place.join("made")).unwrap();
        }
        for (flag, written) in [("--read", false), ("--write", true)] {
            for base in [vec![], flags.with(&[])] {
                let shown = [base, vec![flag, path]].concat();
                let script = format!("test -d '{path}' && echo seen; echo x >'{path}/made'; exit 0");
                assert_eq!(world.run(&shown, &["sh", "-c", &script]).expect(0).text(), "seen\n");
                assert_eq!(fs::remove_file(place.join("made")).is_ok(), written, "{shown:?}");
            }
        }
    }
    // What an engine cannot be told without a doubt is refused.
    let comma = &colons(&world)[2];
    let done = world.run(&flags.with(&["--write", comma.to_str().unwrap()]), &["sh", "-c", "echo x >ran"]);
    done.expect(126).says("the engine does not support the path");
    assert_eq!(world.read("ran"), None);
    podman.nothing_stays();
    naive_volumes(&podman, &world);
}

/// The control: as document 004's code wrote them, the options of a name are options.
fn naive_volumes(podman: &Podman, world: &World) {
    let [place, ..] = colons(world);
    let volume = format!("{}:/ws", place.display());
    let limits = ["run", "--rm", "--network=none", "--ulimit=nofile=256:256", "--ulimit=nproc=1000:1000"];
    let image = ["--volume", &volume, "localhost/ringfence/dev:latest", "sh", "-c", "echo x >/ws/naive"];
    let naive = podman.podman(&[&limits[..], &image].concat());
    assert!(!place.join("naive").exists(), "it was taken apart: {}", naive.err);
    let plain = world.beside("plain");
    let volume = format!("{}:/ws", plain.display());
    let image = ["--volume", &volume, "localhost/ringfence/dev:latest", "sh", "-c", "echo x >/ws/naive"];
    podman.podman(&[&limits[..], &image].concat()).expect(0);
    assert!(plain.join("naive").exists(), "a name without a colon is not");
}

/// 2.4: `Stats` returned zeros. What is told about a call is measured.
#[test]
fn numbers_about_a_call_are_measured() {
    let podman = Podman::start();
    for twin in twins(&podman, "") {
        let script = "head -c 12345 /dev/zero; head -c 678 /dev/zero >&2; sleep 0.3";
        let mut command = twin.world().ringfence();
        command.args(["run", "--json", "--max-output", "10000b", "--", "sh", "-c", script]);
        let told = finish(&mut command, b"").json();
        let outcome = &told["outcome"];
        let duration = outcome["duration_ms"].as_u64().unwrap();
        assert!(duration >= 300, "{told}");
        let bytes = |stream: &str| (outcome[stream]["bytes"].as_u64(), outcome[stream]["dropped"].as_u64());
        assert_eq!((bytes("stdout"), bytes("stderr")), ((Some(10_000), Some(2345)), (Some(678), Some(0))));
        let session = twin.session(json!({}));
        for _ in 0..3 {
            twin.post(&session, "exec", &json!({ "argv": ["true"] }));
        }
        let text = crate::daemon_fixture::raw(
            &twin.served.socket,
            b"GET /v1/metrics HTTP/1.1\r\nHost: ringfence\r\nConnection: close\r\n\r\n",
        );
        let value = |name: &str| {
            let line = text.1.lines().find(|line| line.starts_with(&format!("ringfence_{name} ")));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        };
        assert_eq!((value("calls_total"), value("sessions")), (Some(3), Some(1)), "{}", text.1);
    }
}
