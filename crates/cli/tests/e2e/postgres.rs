//! The ledger in a database that two nodes share, through the real binary.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ringfence_ledger::{Event, Ledger, LedgerNode, LedgerSettings, ProcessId};
use ringfence_types::{ByteString, Principal, Profile, SessionId, WorkspaceId};

use crate::approval::session;
use crate::approvals::{READY, approve, events, one_waiting};
use crate::daemon_fixture::Served;
use crate::terminal::Terminal;
use crate::test_timeouts::{Patient, ended};
use crate::testkit::{World, collect, eventually, finish, is_root};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// Somebody without rights who exists everywhere: the server refuses to run as root.
const NOBODY: u32 = 65_534;

/// Ends the server, and takes its directory away, when the pipe from the test ends, however that comes.
const GUARD: &str = r#"
    "$1"/postgres -D "$2/data" -c unix_socket_directories="$2" -c listen_addresses= -c port=5432 </dev/null >>"$2/log" 2>&1 &
    echo $!; read -r _; kill -QUIT $!; wait $!; rm -rf "$2"
"#;

struct Server {
    directory: PathBuf,
    guard: Child,
}

impl Server {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("pg.").tempdir().unwrap().keep();
        let directory = directory.canonicalize().unwrap();
        if is_root() {
            chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut make = ordinary(&format!("{PROGRAMS}/initdb"));
        make.arg("--pgdata").arg(directory.join("data")).args([
            "--username",
            "owner",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]);
        finish(&mut make, b"").expect(0);
        let mut guard = ordinary("sh")
            .args(["-c", GUARD, "guard", PROGRAMS])
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pid = String::new();
        BufReader::new(Patient(guard.stdout.take().unwrap())).read_line(&mut pid).unwrap();
        let server = Self { directory, guard };
        eventually("the server to answer", || {
            let mut ready = ordinary(&format!("{PROGRAMS}/pg_isready"));
            finish(ready.arg("--host").arg(&server.directory), b"").code == Some(0)
        });
        fs::set_permissions(&server.directory, fs::Permissions::from_mode(0o755)).unwrap();
        server
    }

    fn url(&self) -> String {
        format!("postgres://owner@/postgres?host={}", self.directory.display())
    }

    /// A machine that keeps its ledger here.
    fn node(&self, name: &str) -> World {
        let world = World::new();
        let config = world.home.join(".config/ringfence");
        fs::create_dir_all(&config).unwrap();
        let text = format!("store = \"{}\"\nnode = \"{name}\"\n", self.url());
        fs::write(config.join("ledger.toml"), text).unwrap();
        world
    }

    /// As a role that has the rights of the manual and nothing else.
    fn attack(&self, statement: &str) {
        self.sql(&format!("SET ROLE ringfence_node; {statement}"));
    }

    /// Makes the tables, and a role with the rights of the manual.
    fn grant_rights(&self) {
        let page = include_str!("../../../../docs/postgres.md");
        let (_, rest) = page.split_once("CREATE ROLE ringfence_node LOGIN;\n").unwrap();
        self.sql(&format!("CREATE ROLE ringfence_node LOGIN; {}", rest.split_once("```").unwrap().0));
    }

    fn sql(&self, statement: &str) {
        let mut psql = ordinary(&format!("{PROGRAMS}/psql"));
        psql.arg("--host").arg(&self.directory).args([
            "--username",
            "owner",
            "--command",
            statement,
            "postgres",
        ]);
        finish(&mut psql, b"").expect(0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        ended("the server and its guard", &mut self.guard);
    }
}

fn ordinary(program: &str) -> Command {
    let mut command = Command::new(if is_root() { "setpriv" } else { program });
    if is_root() {
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", program]);
    }
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    command
}

#[test]
fn two_nodes_write_to_one_database_and_each_sees_what_the_other_did() {
    let server = Server::new();
    let (one, other) = (server.node("one"), server.node("other"));
    one.sh("exit 3").expect(3);
    other.sh("exit 4").expect(4);
    assert!(!one.ledger_path().exists() && !other.ledger_path().exists(), "there is no file beside it");
    let kinds: Vec<String> =
        one.records().iter().map(|record| record["event"]["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["call-intended", "sandbox-started", "call-settled"]);
    let verified = one.ledger_tool(&["verify"]).expect(0).text();
    assert_eq!(verified.matches("the chain is whole").count(), 2, "{verified}");
    one.ledger_tool(&["stats"]).expect(0);
    one.ledger_tool(&["checkpoint"]).expect(0);
    // An edit in the chain of the other is found from here.
    server.sql(
        "UPDATE ringfence.record SET body = replace(body, 'exit 4', 'exit 0') WHERE body LIKE '%exit 4%'",
    );
    let done = one.ledger_tool(&["verify"]).expect(1);
    assert!(done.err.contains("other"), "it names the node: {}", done.err);
}

#[test]
fn without_the_database_nothing_is_done() {
    let server = Server::new();
    let world = server.node("one");
    world.sh("touch before").expect(0);
    assert!(world.workspace.join("before").exists(), "the control");
    drop(server);
    let done = world.run(&[], &["touch", "made"]).expect(125);
    assert!(done.err.contains("nothing is done"), "{}", done.err);
    assert!(!world.workspace.join("made").exists());
}

/// Whoever has the rights of a node and not its key cannot take its chain out of sight.
#[test]
fn a_chain_that_is_set_aside_without_its_key_is_told_on_every_node() {
    let server = Server::new();
    let (one, other) = (server.node("one"), server.node("other"));
    one.sh("exit 3").expect(3);
    other.sh("exit 4").expect(4);
    server.grant_rights();
    one.ledger_tool(&["checkpoint"]).expect(0);
    one.ledger_tool(&["verify"]).expect(0);
    server.attack("UPDATE ringfence.head SET aside = 'x' WHERE node = 'other'");
    server.attack("UPDATE ringfence.record SET body = NULL FROM ringfence.head h WHERE h.chain = record.chain AND h.node = 'other'");
    for world in [&one, &other] {
        let done = world.ledger_tool(&["verify"]).expect(1);
        assert!(done.err.contains("set aside") && done.err.contains("other"), "{}", done.err);
    }
    let done = other.run(&[], &["touch", "made"]).expect(125);
    assert!(done.err.contains("restart"), "{}", done.err);
    assert!(!other.workspace.join("made").exists(), "no new chain begins in silence");
    // The operator of that node looks, and says so with its key; from then on everybody is told, also what is missing.
    other.ledger_tool(&["restart", "--reason", "somebody wrote into the table"]).expect(0);
    other.sh("exit 5").expect(5);
    for world in [&one, &other] {
        let done = world.ledger_tool(&["verify"]).expect(0).text();
        assert!(done.contains("set aside") && done.contains("somebody wrote into the table"), "{done}");
        assert_eq!(done.matches("lost its body").count(), 2, "as it was found, and as it is: {done}");
    }
}

/// A daemon that starts ends the sessions that a dead process of its own node has left. Whether those of another node live it cannot see.
#[test]
fn a_daemon_ends_no_session_of_another_node() {
    let server = Server::new();
    let worlds = [server.node("one"), server.node("other")];
    let left = worlds.each_ref().map(|world| {
        let settings = LedgerSettings::default();
        let node =
            LedgerNode::in_directory(&server.url(), &world.state.join("ringfence"), &name_of(world)).unwrap();
        let ledger = Ledger::connect(&node, settings).unwrap();
        let session = SessionId::random().unwrap();
        drop(ledger.append(&started(&session)).unwrap());
        session
    });
    let [one, _other] = worlds;
    let served = Served::with(one, &[]);
    // It listens before it looks at what was left, and answers after that.
    assert!(served.sessions().is_empty());
    let records = served.world.all_records();
    let ended: Vec<&str> =
        events(&records, "session-ended").iter().map(|event| event["session"].as_str().unwrap()).collect();
    assert_eq!(ended, [left[0].as_str()], "control: that of its own node, whose process is gone");
}

/// The files of a question are on the machine that asks: it looks at them itself, and another node says nothing about them.
#[test]
fn an_answer_from_another_node_says_nothing_about_files_that_are_not_there() {
    let server = Server::new();
    let (one, other) = (server.node("one"), server.node("other"));
    one.write("data", "one");
    let terminal = Terminal::new(60, 100);
    let child = session(&one, &terminal, "exec \"$RINGFENCE\" run --profile guarded -- cp data copy");
    terminal.wait_for(READY);
    let id = one_waiting(&other);
    one.write("data", "two");
    let (_terminal, done) = approve(&other, &id, "", b"y");
    done.expect(0);
    terminal.wait_for("has changed; it is judged again");
    assert!(one.read("copy").is_none(), "nothing ran");
    assert!(events(&other.records(), "approval-decided").iter().all(|event| event["answer"] == "once"));
    // Control: nothing changes before the second answer.
    let again = one_waiting(&other);
    assert_ne!(again, id);
    let (_terminal, done) = approve(&other, &again, "", b"y");
    done.expect(0);
    collect(child).expect(0);
    assert_eq!(one.read("copy").as_deref(), Some("two"), "what was shown the second time");
}

/// The name that the configuration of a node has.
fn name_of(world: &World) -> String {
    let text = fs::read_to_string(world.home.join(".config/ringfence/ledger.toml")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("node = ")).unwrap().trim_matches('"').to_owned()
}

/// The start of a session by a process of another boot.
fn started(session: &SessionId) -> Event {
    let own = ProcessId::own().unwrap();
    Event::SessionStarted {
        session: session.clone(),
        name: None,
        workspace_id: WorkspaceId::of_canonical_path(Path::new("/w")),
        workspace: ByteString::from("/w"),
        profile: Profile::Workspace,
        requested_backend: None,
        agent: None,
        principal: Principal::System,
        policy_digest: "00".to_owned(),
        version: "0".to_owned(),
        process: Some(ProcessId { boot_id: "another".to_owned(), ..own }),
    }
}

#[test]
fn a_second_machine_of_the_same_name_is_told_to_take_another() {
    let server = Server::new();
    let (first, second) = (server.node("same"), server.node("same"));
    first.sh("exit 3").expect(3);
    let done = second.run(&[], &["touch", "made"]).expect(125);
    assert!(done.err.contains("node = ") && !done.err.contains("restart"), "{}", done.err);
    let done = second.ledger_tool(&["restart", "--reason", "I want to"]).expect(125);
    assert!(done.err.contains("another machine"), "{}", done.err);
    first.sh("exit 4").expect(4);
    let config = second.home.join(".config/ringfence/ledger.toml");
    fs::write(&config, format!("store = \"{}\"\nnode = \"second\"\n", server.url())).unwrap();
    second.sh("exit 5").expect(5);
    let head = head_of(&second);
    first.ledger_tool(&["verify", "--head", &head]).expect(0);
    let (number, hash) = head.split_once(':').unwrap();
    let other = format!("{number}:{}", hash.chars().rev().collect::<String>());
    first.ledger_tool(&["verify", "--head", &other]).expect(1);
}

/// The head of the chain of the node `second`.
fn head_of(world: &World) -> String {
    let verified = world.ledger_tool(&["verify", "--json"]).expect(0).text();
    let chains = verified.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let own = chains.into_iter().find(|chain| chain["node"] == "second").unwrap();
    own["head"].as_str().unwrap().to_owned()
}
