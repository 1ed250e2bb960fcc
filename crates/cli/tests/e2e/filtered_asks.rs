//! A host that no rule names is a crossing: a person is asked while the flow waits, and what was answered holds.

use std::fs;
use std::process::{Child, Stdio};

use crate::approval::session;
use crate::approvals::{READY, Watcher, approve, events, one_waiting};
use crate::internet::Internet;
use crate::terminal::Terminal;
use crate::testkit::{collect, eventually};

const CHOICES: &str = "[d]eny > ";

/// A command without a terminal that reaches `other.test`, and goes on when `go` exists.
fn reach(internet: &Internet, script: &str) -> Child {
    let mut command = internet.host("setsid");
    command.args([
        "--wait",
        crate::testkit::binary().to_str().unwrap(),
        "run",
        "--net",
        "filtered",
        "--",
        "sh",
        "-c",
    ]);
    command.arg(script).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

const CURL: &str = "curl -sS --max-time 60 https://other.test/";

#[test]
fn somebody_who_watches_answers_for_a_flow() {
    let internet = Internet::new();
    let watcher = Watcher::new(&internet.world);
    let child = reach(&internet, CURL);
    watcher.terminal.wait_for(CHOICES);
    let seen = watcher.terminal.seen();
    assert!(seen.contains("May something inside the fence reach `other.test` at port 443?"), "{seen}");
    assert_eq!(internet.came_to("30.0.0.20"), 0, "nothing happens before the answer");
    watcher.terminal.type_in(b"o");
    assert_eq!(collect(child).expect(0).text(), "hello from 30.0.0.20\n");
    let records = internet.world.records();
    let asked = events(&records, "approval-requested");
    assert_eq!((asked.len(), &asked[0]["call"]["kind"]), (1, &"flow".into()));
    internet.world.ledger_tool(&["verify"]).expect(0);
}

/// An answer for the session is for every later flow to the host, and a no as well.
#[test]
fn an_answer_holds_for_the_session() {
    let internet = Internet::new();
    let watcher = Watcher::new(&internet.world);
    let child = reach(&internet, &format!("{CURL} && {CURL}"));
    watcher.terminal.wait_for(CHOICES);
    watcher.terminal.type_in(b"s");
    collect(child).expect(0);
    assert_eq!(internet.came_to("30.0.0.20"), 2);
    let records = internet.world.records();
    assert_eq!(events(&records, "approval-requested").len(), 1);
    let child = reach(&internet, &format!("{CURL}; {CURL}; true"));
    eventually("the next question", || watcher.terminal.seen().matches(CHOICES).count() == 2);
    watcher.terminal.type_in(b"d");
    let done = collect(child).expect(0);
    assert!(done.err.contains("approval.denied"), "{}", done.err);
    assert_eq!(internet.came_to("30.0.0.20"), 2);
    assert_eq!(
        events(&internet.world.records(), "approval-requested").len(),
        2,
        "the second time nobody is asked"
    );
}

/// "Always here" is a rule of this workspace; taken back, it holds no more, also for a session that runs.
#[test]
fn always_here_is_stored_and_revoked_under_a_running_session() {
    let internet = Internet::new();
    let world = &internet.world;
    let watcher = Watcher::new(world);
    let child = reach(&internet, CURL);
    let id = one_waiting(world);
    let (_terminal, done) = approve(world, &id, "--always", b"y");
    done.expect(0);
    collect(child).expect(0);
    drop(watcher);
    let script = format!(
        "{CURL} >first; touch first-done; while ! [ -e go ]; do sleep 0.05; done; {CURL} >second; true"
    );
    let child = reach(&internet, &script);
    eventually("the first flow", || world.workspace.join("first-done").exists());
    assert_eq!(world.read("first").as_deref(), Some("hello from 30.0.0.20\n"));
    crate::approvals::grants(world, &["revoke", "--all"]);
    let grants = events(&world.records(), "grant-revoked").len();
    world.write("go", "");
    let done = collect(child).expect(0);
    assert_eq!(grants, 1);
    assert_eq!(world.read("second").as_deref(), Some(""), "{}", done.err);
}

/// Rules that change count for the next flow of a running session.
#[test]
fn a_changed_policy_counts_for_the_next_flow() {
    let internet = Internet::new();
    let world = &internet.world;
    internet.operator("");
    let get = |name: &str| {
        format!("{CURL} >{name} 2>&1; touch {name}-done; while ! [ -e {name}-go ]; do sleep 0.05; done")
    };
    let child = reach(&internet, &format!("{}; {}; {}", get("a"), get("b"), get("c")));
    let step = |name: &str, rules: &str| {
        eventually("a step", || world.workspace.join(format!("{name}-done")).exists());
        internet.operator(rules);
        world.write(&format!("{name}-go"), "");
    };
    step("a", "[[host]]\nallow = [\"other.test\"]\n");
    step("b", "[[host]]\ndeny = [\"other.test\"]\n");
    step("c", "");
    collect(child).expect(0);
    assert!(!world.read("a").unwrap().contains("hello"));
    assert_eq!(world.read("b").as_deref(), Some("hello from 30.0.0.20\n"));
    assert!(!world.read("c").unwrap().contains("hello"));
    assert_eq!(internet.came_to("30.0.0.20"), 1);
}

/// Silence is a no, and holds up nobody else.
#[test]
fn a_decider_who_is_silent_is_a_no_and_others_pass_meanwhile() {
    let internet = Internet::new();
    let world = &internet.world;
    internet.operator("[approvals]\ntimeout = \"3s\"\n[[host]]\nallow = [\"web.test\"]\n");
    let _watcher = Watcher::new(world);
    let script = format!(
        "{CURL} >asked 2>&1 & for i in 1 2 3; do curl -sS https://web.test/ >>passed; done; touch three; wait; true"
    );
    let child = reach(&internet, &script);
    let _id = one_waiting(world);
    eventually("others pass", || world.workspace.join("three").exists());
    let done = collect(child).expect(0);
    assert_eq!(world.read("passed").unwrap().lines().count(), 3);
    assert!(done.err.contains("approval.expired"), "{}", done.err);
    assert_eq!(internet.came_to("30.0.0.20"), 0);
}

/// At the terminal of the command itself: what is typed is the answer, and what the command prints waits.
#[test]
fn the_person_at_the_terminal_of_the_command_is_asked() {
    let internet = Internet::new();
    let terminal = Terminal::new(50, 120);
    let nsenter: Vec<String> = {
        let mut command = internet.host("sh");
        command.arg("-c");
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_str().unwrap().to_owned())
            .collect()
    };
    let inner = "(while :; do echo noise; sleep 0.02; done) & curl -sS --max-time 60 https://other.test/ >page; read line; echo \"got $line\" >typed; kill %1 2>/dev/null; true";
    fs::write(internet.world.workspace.join("inner.sh"), inner).unwrap();
    let outer =
        format!("exec {} 'exec \"$RINGFENCE\" run --net filtered -- sh -m inner.sh'", nsenter.join(" "));
    let child = session(&internet.world, &terminal, &outer);
    terminal.wait_for(READY);
    let before = terminal.seen().matches("noise").count();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(terminal.seen().matches("noise").count(), before, "the command is still while a person reads");
    terminal.type_in(b"o");
    eventually("the page", || internet.world.read("page").is_some_and(|page| page.contains("hello")));
    terminal.type_in(b"word\r");
    collect(child).expect(0);
    assert_eq!(internet.world.read("typed").as_deref(), Some("got word\n"));
}

/// Opens a connection to the proxy for each of many unknown hosts, waits until all that may ask do, and goes on to one that
/// is allowed.
const MANY: &str = r#"
import select, socket
def ask(host):
    s = socket.create_connection(('127.0.0.1', 3128))
    s.sendall(('CONNECT %s:443 HTTP/1.1\r\n\r\n' % host).encode())
    return s
asking = [ask('n%d.other.test' % n) for n in range(80)]
refused = 0
while refused < 16:
    for s in select.select(asking, [], [], 60)[0]:
        assert b'approval.too-many-pending' in s.recv(4096)
        asking.remove(s)
        refused += 1
print(refused, len(asking), ask('web.test').recv(12).decode(), flush=True)
"#;

/// Flows that ask are so many and no more, and leave places for those that nobody has to be asked about.
#[test]
fn many_who_ask_do_not_crowd_out_who_need_not() {
    let internet = Internet::new();
    let _watcher = Watcher::new(&internet.world);
    internet.operator("[[host]]\nallow = [\"web.test\"]\n");
    fs::write(internet.world.workspace.join("many.py"), MANY).unwrap();
    let done = collect(reach(&internet, "python3 many.py")).expect(0);
    assert_eq!(done.text(), "16 64 HTTP/1.1 200\n", "{}", done.err);
    assert_eq!(internet.came_to("30.0.0.20"), 0);
}
