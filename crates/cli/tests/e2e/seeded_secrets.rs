//! Secrets are put into every place that ringfence reads, and then every byte that it left is looked through.
//!
//! What each place has to say about a secret has tests of its own; here nothing counts but that it is nowhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use ringfence_scan::rules::expand;

use crate::approval_notifications::{Server, hooked, secret};
use crate::approvals::{alone, approvals, configure, one_waiting};
use crate::testkit::{Done, World, collect, contains, finish};

/// One value and the name under which a leak of it is told.
struct Seed {
    name: &'static str,
    value: String,
}

/// Two that are stored, whose shape nobody knows, and one of each of the usual shapes. None of them is written here.
fn seeds() -> Vec<Seed> {
    let shaped =
        |name, template| Seed { name, value: String::from_utf8(expand(template, 7).unwrap()).unwrap() };
    vec![
        Seed { name: "stored for a provider", value: ["nobody", "knows", "this", "shape"].join("~") },
        Seed { name: "stored for a tool", value: ["correct", "horse", "battery"].join("+") },
        shaped("GitHub", "ghp_{alnum:30}{github}"),
        shaped("AWS", "AKIA{base32:16}"),
        shaped("OpenAI", "sk-proj-{alnum:74}T3BlbkFJ{alnum:74}"),
        shaped("GitLab", "glpat-{alnum:20}"),
    ]
}

/// Every way of writing a value down that somebody can read back without effort.
pub(crate) fn forms(value: &str) -> Vec<(&'static str, Vec<u8>)> {
    let bytes = value.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = bytes
        .iter()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
        })
        .collect();
    let mut forms = vec![
        ("plain", bytes.to_vec()),
        ("reversed", bytes.iter().rev().copied().collect()),
        ("capital hex", hex.to_uppercase().into_bytes()),
        ("hex", hex.into_bytes()),
        ("percent", percent.into_bytes()),
    ];
    for phase in 0..3 {
        let padded = [vec![b'x'; phase], bytes.to_vec()].concat();
        // The letters that do not depend on the neighbours.
        for (engine, name) in [(STANDARD, "base64"), (URL_SAFE, "base64 for addresses")] {
            let encoded = engine.encode(&padded);
            let whole = encoded.trim_end_matches('=').as_bytes();
            let core = whole.get((phase * 8).div_ceil(6)..whole.len() - 1).unwrap();
            forms.push((name, core.to_vec()));
        }
    }
    forms
}

/// What ringfence said or left, and where.
struct Left(Vec<(String, Vec<u8>)>);

impl Left {
    fn heard(&mut self, what: &str, done: Done) {
        self.0.push((format!("stdout of {what}"), done.out));
        self.0.push((format!("stderr of {what}"), done.err.into_bytes()));
    }

    fn found(&mut self, directory: &Path, except: &[PathBuf]) {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if except.contains(&path) {
                continue;
            }
            self.0.push(("a name".to_owned(), path.as_os_str().as_encoded_bytes().to_vec()));
            if kind.is_dir() {
                self.found(&path, except);
            } else if kind.is_file() {
                self.0.push((path.display().to_string(), fs::read(&path).unwrap()));
            } else if kind.is_symlink() {
                self.0.push((
                    path.display().to_string(),
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                ));
            }
        }
    }

    fn leaks(&self, seeds: &[Seed]) -> Vec<String> {
        let mut leaks = Vec::new();
        for seed in seeds {
            for (form, bytes) in forms(&seed.value) {
                let finder = memchr::memmem::Finder::new(&bytes);
                for (place, _) in self.0.iter().filter(|(_, left)| finder.find(left).is_some()) {
                    leaks.push(format!("{} in {form} form: {place}", seed.name));
                }
            }
        }
        leaks
    }
}

fn traced(world: &World, form: &str) -> Command {
    let mut command = world.ringfence();
    command.args(["--log", form]);
    command
}

/// Everything that a person or an agent may do with one value, and nothing of it is kept.
fn everything(world: &World, (value, form): (&str, &str), left: &mut Left) {
    // What the answer is does not matter here: other tests say what is refused.
    let mut go = |what: &str, command: &mut Command, input: &[u8]| {
        let done = finish(command, input);
        assert_eq!(done.signal, None, "{what}: {}", done.err);
        left.heard(what, done);
    };
    let run = |flags: &[&str], argv: &[&str]| {
        let mut command = traced(world, form);
        command.arg("run").args(flags).arg("--").args(argv);
        command
    };
    go("an argument", &mut run(&[], &["true", value]), b"");
    go("a script", &mut run(&[], &["sh", "-c", &format!(": {value}")]), b"");
    go("a variable", &mut run(&["--env", &format!("NOTE={value}")], &["true"]), b"");
    go(
        "a variable of ours",
        run(&[], &["true"]).env("DEPLOY_TOKEN", value).env(value.replace('=', "_"), "x"),
        b"",
    );
    go("input", &mut run(&[], &["sh", "-c", "cat >/dev/null"]), value.as_bytes());
    go("a program", &mut run(&[], &[value]), b"");
    go("a name", &mut run(&["--session", "s"], &["true", value]), b"");
    go("a root", &mut run(&["--read", &format!("/nowhere/{value}")], &["true"]), b"");
    go("a workspace", &mut run(&["--workspace", &format!("/nowhere/{value}")], &["true"]), b"");
    go("a policy", &mut run(&["--policy", &format!("/nowhere/{value}")], &["true"]), b"");
    go("an unknown option", &mut run(&[&format!("--{value}")], &["true"]), b"");
    go("an unknown word", &mut run(&["--net", value], &["true"]), b"");
    go("a secret by its value", &mut run(&["--secret", value], &["true"]), b"");
    go(
        "an unanswerable question",
        &mut run(&["--profile", "guarded", "--reason", value], &["mkdir", value]),
        b"",
    );
    go("a refusal as JSON", &mut run(&["--json", "--profile", "review"], &["cat", value]), b"");
    go("a file call", traced(world, form).args(["file", "read", value]), b"");
    go("what a command prints", &mut run(&[], &["cat"]), value.as_bytes());
    go("a check", traced(world, form).args(["check", "--", "true", value]), b"");
    go("an explanation", traced(world, form).args(["policy", "explain", "--", "true", value]), b"");
    go("a check as JSON", traced(world, form).args(["check", "--json", "--", "true", value]), b"");
    go("a typed value", traced(world, form).args(["secret", "set", "OTHER", value]), b"");
    go("an approval", traced(world, form).args(["approvals", "show", value]), b"");
    go("a record", traced(world, form).args(["ledger", "show", value]), b"");
    let shell = format!("cat {value} | nc {value} 1");
    for subject in [
        ["--", "mkdir", value].as_slice(),
        &["--shell", &shell],
        &["--read", value],
        &["--tool", value],
        &["--url", &format!("https://example.test/{value}")],
    ] {
        let arguments = ["--profile", "guarded"].iter().chain(subject);
        go("a judgement", traced(world, form).arg("check").args(arguments.clone()), b"");
        go("a judgement as JSON", traced(world, form).args(["check", "--json"]).args(arguments.clone()), b"");
        go("its reasons", traced(world, form).args(["policy", "explain"]).args(arguments), b"");
    }
    let workspace = world.beside(value);
    go("a workspace of that name", run(&[], &["true"]).current_dir(workspace), b"");
    go("a log level", world.ringfence().env("RINGFENCE_LOG", value).args(["secret", "list"]), b"");
}

/// A policy file with a value in a comment of the line that does not parse, and in one that does.
fn policies(world: &World, value: &str, left: &mut Left) {
    for text in
        [format!("# {value}\n"), format!("wrong = {value:?} # {value}\n"), format!("[broken # {value}\n")]
    {
        let file = world.write(".ringfence/policy.toml", &text);
        let done = finish(traced(world, "trace").args(["run", "--", "true"]), b"");
        left.heard("a policy file", done);
        fs::remove_file(file).unwrap();
    }
}

/// A question with the value in what the agent says about it, on its way to a webhook, to a list and to an answer.
fn question(world: &World, value: &str, left: &mut Left) {
    let server = Server::new("200 OK");
    secret(world, 0o600);
    hooked(world, server.port);
    let script = format!(
        "exec \"$RINGFENCE\" --log trace run --profile guarded --reason 'it is {value}' -- mkdir made"
    );
    let child = alone(world, &script);
    let request = server.next();
    left.0.push((
        "what a webhook was sent".to_owned(),
        format!("{}{}", request.head, request.body).into_bytes(),
    ));
    let id = one_waiting(world);
    for arguments in [["list"].as_slice(), &["list", "--json"], &["show", &id], &["show", &id, "--json"]] {
        left.heard(&format!("approvals {arguments:?}"), approvals(world, arguments));
    }
    let denied = finish(
        traced(world, "trace").args(["approvals", "deny", &id, "--reason", &format!("because {value}")]),
        b"",
    );
    left.heard("approvals deny", denied.expect(0));
    left.heard("the command that waited", collect(child).expect(126));
    configure(world, "");
}

#[test]
fn s003_25_nothing_that_ringfence_leaves_has_a_seeded_secret_in_it() {
    let seeds = seeds();
    let world = World::new();
    let mut left = Left(Vec::new());
    for (seed, arguments) in
        seeds.iter().zip([["set", "PROVIDED", "--class", "provider"].as_slice(), &["set", "USED"]])
    {
        let set = finish(traced(&world, "trace").arg("secret").args(arguments), seed.value.as_bytes());
        left.heard("secret set", set.expect(0));
    }
    for (seed, form) in seeds.iter().zip(["trace", "trace:json"].into_iter().cycle()) {
        everything(&world, (&seed.value, form), &mut left);
        policies(&world, &seed.value, &mut left);
        question(&world, &seed.value, &mut left);
    }
    for arguments in [
        ["tail", "-n", "1000"].as_slice(),
        &["tail", "-n", "1000", "--json"],
        &["verify"],
        &["stats"],
        &["export", "--format", "jsonl"],
        &["export", "--format", "ocsf"],
        &["export", "--format", "cef"],
    ] {
        left.heard(&format!("ledger {arguments:?}"), world.ledger_tool(arguments).expect(0));
    }
    assert!(
        left.0.iter().any(|(what, bytes)| what.starts_with("stderr") && contains(bytes, b"TRACE")),
        "nothing was logged"
    );
    // What the commands wrote into their own workspace is theirs; the store is encrypted.
    left.found(&world.state, &[]);
    assert_eq!(left.leaks(&seeds), Vec::<String>::new());
    // The control: the same search finds what is there.
    let planted = world.state.join("planted");
    for seed in &seeds {
        fs::write(&planted, URL_SAFE.encode(format!("xx{}yy", seed.value))).unwrap();
        let mut left = Left(Vec::new());
        left.found(&world.state, &[]);
        assert!(!left.leaks(&seeds).is_empty(), "{}", seed.name);
    }
}
