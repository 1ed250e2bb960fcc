//! `ringfence token`, `device` and `operator` on the store of this machine.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::terminal::Terminal;
use crate::test_timeouts::Patient;
use crate::testkit::{Done, World, collect, contains, finish};

fn ask(world: &World, arguments: &[&str], input: &[u8]) -> Done {
    finish(world.ringfence().args(arguments), input)
}

fn token(world: &World, label: &str, flags: &[&str]) -> String {
    let done = ask(world, &[&["token", "create", label], flags].concat(), b"").expect(0);
    done.text().trim_end().to_owned()
}

fn id_of(token: &str) -> &str {
    token.split('_').nth(2).unwrap()
}

fn tokens(world: &World, flags: &[&str]) -> Vec<Value> {
    let listed = ask(world, &[&["token", "list", "--json"], flags].concat(), b"").expect(0).json();
    assert_eq!(listed["schema"], 1);
    listed["tokens"].as_array().unwrap().clone()
}

fn changes(world: &World) -> Vec<Value> {
    let records = world.records().into_iter().map(|record| record["event"].clone());
    records.filter(|event| event["kind"] == "identity-changed").collect()
}

fn store(world: &World) -> PathBuf {
    world.state.join("ringfence/identity/identity.db")
}

fn is_anywhere(directory: &Path, text: &str) -> bool {
    fs::read_dir(directory).unwrap().flatten().any(|entry| {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            return is_anywhere(&path, text);
        }
        kind.is_file() && contains(&fs::read(&path).unwrap(), text.as_bytes())
    })
}

/// S003-15, S003-42, C-33: shown once, kept as a digest, every change in the ledger.
#[test]
fn s003_15_a_token_is_made_listed_rotated_and_revoked() {
    let world = World::new();
    let workspace = world.workspace.to_str().unwrap();
    let flags = ["--scope", "read,run", "--workspace", workspace, "--expires", "30d"];
    let first = token(&world, "ci", &flags);
    assert!(first.starts_with("rf_api_"), "{first}");
    let listed = tokens(&world, &[]);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["id"], id_of(&first));
    assert_eq!(listed[0]["rights"]["scopes"], serde_json::json!(["read", "run"]));
    assert_eq!(listed[0]["rights"]["workspaces"]["only"][0], workspace);
    let begin = id_of(&first).get(..6).unwrap();
    let second = ask(&world, &["token", "rotate", begin], b"").expect(0).text().trim_end().to_owned();
    assert_eq!(id_of(&first), id_of(&second));
    assert_ne!(first, second);
    assert_eq!(tokens(&world, &[])[0]["rights"], listed[0]["rights"], "nothing else changed");
    assert_eq!(tokens(&world, &[])[0]["expires_at"], listed[0]["expires_at"]);
    ask(&world, &["token", "revoke", begin], b"").expect(0);
    assert_eq!(tokens(&world, &[]), Vec::<Value>::new());
    assert_eq!(tokens(&world, &["--all"]).len(), 1);
    ask(&world, &["token", "rotate", begin], b"").expect(125).says("revoked");
    ask(&world, &["token", "show", "ffff"], b"").expect(125).says("there is no token `ffff`");
    let verbs: Vec<Value> = changes(&world).iter().map(|event| event["change"]["verb"].clone()).collect();
    assert_eq!(verbs, ["minted", "rotated", "revoked"]);
    assert_eq!(changes(&world)[0]["actor"]["uid"], rustix::process::geteuid().as_raw());
    for secret in [&first, &second] {
        assert!(!is_anywhere(world.root.path(), secret.rsplit('_').next().unwrap()), "it is nowhere");
    }
    assert!(is_anywhere(world.root.path(), id_of(&first)), "the search finds what is there");
    let shown = world.ledger_tool(&["tail", "--kind", "identity-changed"]).expect(0).text();
    assert!(shown.contains(&format!("{} revoked", id_of(&first))), "{shown}");
    world.ledger_tool(&["verify"]).expect(0);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_word_that_does() {
    let world = World::new();
    ask(&world, &["token", "create", "x"], b"").expect(125).says("--scope");
    ask(&world, &["token", "create", "x", "--scope", "aprove"], b"").expect(125).says("approve");
    ask(&world, &["token", "create", "x", "--scope", "read", "--expires", "0s"], b"").expect(125);
    let nowhere = ["token", "create", "x", "--scope", "read", "--workspace", "/no/such/place"];
    ask(&world, &nowhere, b"").expect(125).says("/no/such/place");
    let unknown = ["token", "create", "x", "--scope", "read", "--operator", "ann"];
    ask(&world, &unknown, b"").expect(125).says("operator list");
    assert_eq!(tokens(&world, &["--all"]), Vec::<Value>::new());
}

/// S003-16: a password comes from a prompt or a pipe, and is kept as argon2id.
#[test]
fn s003_16_an_operator_has_a_password_that_is_never_an_argument() {
    let world = World::new();
    let password = ["correct", "horse", "battery"].join(" ");
    let typed = ["operator", "add", "ann", "--scope", "approve", password.as_str()];
    let done = ask(&world, &typed, b"").expect(125).says("never taken from the command line");
    assert!(!done.err.contains(&password), "{}", done.err);
    ask(&world, &["operator", "add", "ann", "--scope", "approve"], b"short\n")
        .expect(125)
        .says("12 characters");
    ask(&world, &["operator", "add", "ann", "--scope", "approve"], password.as_bytes()).expect(0);
    let again = ask(&world, &["operator", "add", "ann", "--scope", "approve"], password.as_bytes());
    again.expect(125).says("operator set-password ann");
    let listed = ask(&world, &["operator", "list", "--json"], b"").expect(0).json();
    assert_eq!(listed["operators"][0]["name"], "ann");
    assert!(is_anywhere(world.root.path(), "$argon2id$v=19$m=19456,t=2,p=1$"));
    assert!(!is_anywhere(world.root.path(), &password));
    let wide = ["token", "create", "x", "--operator", "ann", "--scope", "admin"];
    ask(&world, &wide, b"").expect(125).says("scope `admin`");
    let own = token(&world, "phone", &["--operator", "ann", "--scope", "approve"]);
    ask(&world, &["operator", "rm", "ann"], b"").expect(0);
    let all = tokens(&world, &["--all"]);
    assert_eq!(all[0]["id"], id_of(&own));
    assert!(all[0]["revoked_at"].is_string(), "what was theirs ended with them");
    let verbs: Vec<Value> = changes(&world).iter().map(|event| event["change"]["verb"].clone()).collect();
    assert_eq!(verbs, ["operator-added", "minted", "revoked", "operator-removed"]);
}

#[test]
fn a_person_types_the_password_twice_and_sees_nothing_of_it() {
    let world = World::new();
    let password = ["correct", "horse", "battery"].join(" ");
    let add = |second: &str| {
        let terminal = Terminal::new(60, 80);
        let mut command = world.host("setsid");
        command.args(["--ctty", "--wait"]).arg(crate::testkit::binary());
        command.args(["operator", "add", "ann", "--scope", "read"]);
        command.stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
        let child = command.spawn().unwrap();
        terminal.wait_for("password of ann");
        terminal.type_in(format!("{password}\r").as_bytes());
        terminal.wait_for("the same again");
        terminal.type_in(format!("{second}\r").as_bytes());
        (collect(child).code, terminal.seen())
    };
    let (code, seen) = add("something else entirely");
    assert_eq!(code, Some(125), "{seen}");
    let (code, seen) = add(&password);
    assert_eq!(code, Some(0), "{seen}");
    assert!(!seen.contains(&password), "{seen}");
}

/// What `device pair` says while it waits, and the process.
pub(crate) fn pairing(world: &World, out: &str, scopes: &str) -> (Child, String) {
    let mut command = world.ringfence();
    command.args(["device", "pair", "phone", "--scope", scopes, "--out", out]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(Patient(child.stderr.take().unwrap())).lines();
    let code = lines
        .by_ref()
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("ringfence: code ").map(str::to_owned));
    // What else it says is nobody's concern, but it must be able to say it.
    thread::spawn(move || lines.for_each(drop));
    (child, code.unwrap())
}

/// S003-18: a key on one side, a person on the other.
#[test]
fn s003_18_a_device_is_let_in_by_its_code_refreshed_and_revoked() {
    let world = World::new();
    let (child, code) = pairing(&world, "phone.json", "read,approve");
    let listed = ask(&world, &["device", "list", "--json"], b"").expect(0).json();
    assert_eq!(listed["waiting"][0]["code"], code.as_str());
    ask(&world, &["device", "approve", "00000-00000"], b"").expect(125).says("no device waits");
    ask(&world, &["device", "approve", &code, "--scope", "admin"], b"").expect(125).says("`admin`");
    ask(&world, &["device", "approve", &code, "--scope", "approve"], b"").expect(0);
    let first = collect(child).expect(0).text().trim_end().to_owned();
    assert!(first.starts_with("rf_device_"), "{first}");
    let file = world.workspace.join("phone.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let devices = ask(&world, &["device", "list", "--json"], b"").expect(0).json();
    assert_eq!(devices["devices"][0]["rights"]["scopes"], serde_json::json!(["approve"]));
    let second = ask(&world, &["device", "refresh", "phone.json"], b"").expect(0).text();
    assert_eq!(id_of(&first), id_of(&second));
    assert_ne!(first, second.trim_end());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    ask(&world, &["device", "refresh", "phone.json"], b"").expect(125).says("open to others");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut other: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    other["key"] = "11".repeat(32).into();
    let forged = world.write("forged.json", serde_json::to_vec(&other).unwrap());
    fs::set_permissions(&forged, fs::Permissions::from_mode(0o600)).unwrap();
    ask(&world, &["device", "refresh", "forged.json"], b"").expect(125).says("not signed");
    ask(&world, &["device", "revoke", id_of(&first)], b"").expect(0);
    ask(&world, &["device", "refresh", "phone.json"], b"").expect(125).says("revoked");
    let verbs: Vec<Value> = changes(&world).iter().map(|event| event["change"]["verb"].clone()).collect();
    assert_eq!(verbs, ["pairing-asked", "pairing-approved", "minted", "refreshed", "revoked"]);
}

#[test]
fn a_device_that_is_refused_gets_nothing_and_leaves_nothing() {
    let world = World::new();
    let (child, code) = pairing(&world, "phone.json", "admin");
    ask(&world, &["device", "refuse", &code], b"").expect(0);
    let done = collect(child).expect(125);
    assert_eq!(done.text(), "");
    assert!(!world.workspace.join("phone.json").exists());
}

/// D10: what runs inside neither reads the store nor makes itself a token, in any profile.
#[test]
fn d10_an_agent_cannot_touch_who_may_do_what() {
    let world = World::new();
    token(&world, "ops", &["--scope", "admin"]);
    let file = store(&world);
    let script = format!(
        "cat {0}; echo x >> {0}; rm -f {0}; ls {1}",
        file.display(),
        file.parent().unwrap().display()
    );
    let before = fs::read(&file).unwrap();
    for flags in [&[][..], &["--danger", "--profile", "danger"]] {
        let done = world.sh_with(flags, &script);
        assert!(
            !contains(&done.out, b"credential") && !done.text().contains("identity.db\n"),
            "{}",
            done.text()
        );
        assert_eq!(fs::read(&file).unwrap(), before, "{flags:?}");
    }
    // The control: the same words outside reach it.
    let read = finish(world.host("sh").args(["-c", &format!("cat {}", file.display())]), b"").expect(0);
    assert!(contains(&read.out, b"SQLite format 3"));
    let count = tokens(&world, &["--all"]).len();
    let binary = crate::testkit::binary();
    let inside =
        format!("XDG_STATE_HOME={} {} token create x --scope admin", world.state.display(), binary.display());
    let done = world.sh_with(&["--danger", "--profile", "danger"], &inside);
    assert!(!done.text().contains("rf_api_"), "{}", done.text());
    assert_eq!(tokens(&world, &["--all"]).len(), count);
    finish(world.host("sh").args(["-c", &inside]), b"").expect(0);
    assert_eq!(tokens(&world, &["--all"]).len(), count + 1, "the control: outside it makes one");
}

#[test]
fn a_store_that_others_may_open_is_not_used_and_the_fix_is_named() {
    let world = World::new();
    token(&world, "ops", &["--scope", "admin"]);
    fs::set_permissions(store(&world), fs::Permissions::from_mode(0o644)).unwrap();
    ask(&world, &["token", "list"], b"").expect(125).says("chmod go-rwx");
    fs::set_permissions(store(&world), fs::Permissions::from_mode(0o600)).unwrap();
    ask(&world, &["token", "list"], b"").expect(0);
}

/// D5: killed at any moment, each token that somebody has is kept, and each that is kept is in the ledger.
#[test]
fn d5_a_crash_leaves_no_token_without_a_record() {
    let world = World::new();
    token(&world, "first", &["--scope", "read"]);
    let mut shown = Vec::new();
    for round in 0..24_u64 {
        let mut command = world.ringfence();
        command.args(["token", "create", "x", "--scope", "read"]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(2 + round * 3));
        // It may have ended by itself.
        let _ended = child.kill();
        let text = collect(child).text();
        shown.extend(text.lines().map(str::to_owned));
    }
    let kept: Vec<String> =
        tokens(&world, &["--all"]).iter().map(|meta| meta["id"].as_str().unwrap().to_owned()).collect();
    let recorded: Vec<String> =
        changes(&world).iter().map(|event| event["change"]["subject"].as_str().unwrap().to_owned()).collect();
    for token in &shown {
        assert!(kept.iter().any(|id| id == id_of(token)), "somebody has {}", id_of(token));
    }
    for id in &kept {
        assert!(recorded.contains(id), "{id} is not in the ledger");
    }
    world.ledger_tool(&["verify"]).expect(0);
}
