//! Every effect takes the same path, so an answer holds for exactly as long as its text says, whichever effect it is for and
//! however the call came. Each combination makes the same call twice in one session and once in another. The ledger says whether
//! a person was asked, and the host and the servers of the test say whether it was done.
//!
//! | effect | what is done | what does not exist |
//! |---|---|---|
//! | exec | `mktemp`: each run leaves one more file | |
//! | file | a write below `asked/` | `always here`: no rule is offered for a path |
//! | patch | `proposal apply` of a proposal, at the command line alone | a proposal is applied once, so no answer to it is used again; no other way in has it |
//! | fetch | a page of a host that no rule names | |
//! | flow | `curl` inside the fence, to a host that no rule names | |
//!
//! At the command line `file` and `fetch` have no `--session`: each is a session of its own, so that an answer for the session
//! ends with it.

use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use ringfence_api::{
    AnswerApproval, ApprovalReply, CreateSession, ListApprovals, Method, SessionInfo, StopSession,
};
use ringfence_client::Client as DaemonClient;
use ringfence_grpc::v1;
use serde_json::{Value, json};

use crate::approvals::{Watcher, events};
use crate::daemon_socket::Talk;
use crate::grpc_client::Speaker;
use crate::internet::Internet;
use crate::internet::daemon::Daemon;
use crate::mcp::Client as McpClient;
use crate::testkit::{World, collect, eventually, finish};

/// The rules of the operator: what is asked about, besides hosts that no rule names.
const RULES: &str = "net = \"filtered\"\n[[path]]\nask = [\"asked/\"]\n";
/// Where commands that are on no list are asked about. `curl` is denied there.
const LISTED: &str = "net = \"filtered\"\ncommands = \"listed\"\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenAnswer {
    Once,
    Session,
    AlwaysHere,
    Deny,
}

const ALL: [GivenAnswer; 4] =
    [GivenAnswer::Once, GivenAnswer::Session, GivenAnswer::AlwaysHere, GivenAnswer::Deny];

impl GivenAnswer {
    fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::AlwaysHere => "always",
            Self::Deny => "deny",
        }
    }

    /// At the prompt.
    fn key(self) -> &'static [u8] {
        match self {
            Self::Once => b"o",
            Self::Session => b"s",
            Self::AlwaysHere => b"a",
            Self::Deny => b"d",
        }
    }

    fn answer(self) -> ApprovalReply {
        match self {
            Self::Once => ApprovalReply::Once,
            Self::Session => ApprovalReply::Session,
            Self::AlwaysHere => ApprovalReply::AlwaysHere { offer: 0 },
            Self::Deny => ApprovalReply::Deny,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EffectKind {
    Exec,
    File,
    Fetch,
    Flow,
}

/// One effect and one answer. Each has an object of its own, so that no answer is for another combination.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: EffectKind,
    given: GivenAnswer,
}

impl Case {
    fn name(self) -> String {
        format!("{:?}-{}", self.kind, self.given.word()).to_lowercase()
    }

    fn path(self) -> String {
        format!("asked/{}", self.name())
    }

    /// Host and port are what is asked about.
    fn url(self) -> String {
        let host = if self.kind == EffectKind::Fetch { "other.test" } else { "api.web.test" };
        let place = match self.given {
            GivenAnswer::Once => format!("http://{host}"),
            GivenAnswer::Session => format!("https://{host}"),
            GivenAnswer::AlwaysHere => format!("https://{host}:8443"),
            GivenAnswer::Deny if self.kind == EffectKind::Fetch => "http://evil.test".to_owned(),
            GivenAnswer::Deny => "https://evil.test".to_owned(),
        };
        format!("{place}/{}", self.name())
    }

    /// For what is done by a command.
    fn argv(self) -> Vec<String> {
        let (name, url) = (format!("made/{}.XXXXXX", self.name()), self.url());
        let words: &[&str] = match self.kind {
            EffectKind::Flow => &["curl", "-sS", "--max-time", "60", "-o", "page", &url],
            _ => &["mktemp", "-q", &name],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// How often it was done, by what is there afterwards.
    fn done(self, internet: &Internet) -> usize {
        let name = self.name();
        match self.kind {
            EffectKind::Exec => {
                let names = crate::testkit::names(&internet.world.workspace.join("made"));
                names.iter().filter(|file| file.to_string_lossy().starts_with(&name)).count()
            }
            // What is written is read and taken away: the next write leaves it again.
            EffectKind::File => {
                usize::from(std::fs::remove_file(internet.world.workspace.join(self.path())).is_ok())
            }
            EffectKind::Fetch | EffectKind::Flow => {
                let path = format!("/{name}");
                internet.visits().iter().filter(|visit| visit["target"] == path.as_str()).count()
            }
        }
    }
}

/// Whether a person was asked, and whether it was done, for each of three calls: two in one session, one in another.
type Course = [(bool, bool); 3];

/// How many calls a session of an entrance has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sessions {
    OfManyCalls,
    OfOneCall,
}

/// What the text of an answer says.
fn promised(given: GivenAnswer, sessions: Sessions) -> Course {
    let lone = sessions == Sessions::OfOneCall;
    let asked = match given {
        GivenAnswer::Once => [true, true, true],
        GivenAnswer::Session | GivenAnswer::Deny => [true, lone, true],
        GivenAnswer::AlwaysHere => [true, false, false],
    };
    asked.map(|asked| (asked, given != GivenAnswer::Deny))
}

/// A way in: sessions, and calls in them.
trait Entrance {
    /// The next calls are of another session.
    fn renew(&mut self);
    fn call(&mut self, case: Case);
    fn sessions(&self, _kind: EffectKind) -> Sessions {
        Sessions::OfManyCalls
    }
}

/// A person who gives the same answer to every question while `call` is made.
trait Person {
    fn answering(&self, given: GivenAnswer, call: &mut (dyn FnMut() + Send));
}

fn course(
    internet: &Internet,
    person: &dyn Person,
    case: Case,
    entrance: &mut (impl Entrance + Send),
) -> Course {
    let asked = || events(&internet.world.records(), "approval-requested").len();
    entrance.renew();
    [false, false, true].map(|renewed| {
        if renewed {
            entrance.renew();
        }
        let counted = case.kind != EffectKind::File;
        let before = (asked(), if counted { case.done(internet) } else { 0 });
        person.answering(case.given, &mut || entrance.call(case));
        let after = (asked(), case.done(internet));
        assert!(after.0 - before.0 <= 1 && after.1 - before.1 <= 1, "{case:?}: {before:?} {after:?}");
        (after.0 > before.0, after.1 > before.1)
    })
}

fn holds(
    internet: &Internet,
    person: &dyn Person,
    entrance: &mut (impl Entrance + Send),
    kinds: &[EffectKind],
) {
    internet.world.write("from", "x");
    for directory in ["asked", "made"] {
        std::fs::create_dir_all(internet.world.workspace.join(directory)).unwrap();
    }
    for kind in kinds.iter().copied() {
        for given in ALL {
            if (kind, given) == (EffectKind::File, GivenAnswer::AlwaysHere) {
                continue;
            }
            let case = Case { kind, given };
            let seen = course(internet, person, case, entrance);
            assert_eq!(seen, promised(given, entrance.sessions(kind)), "{case:?}");
        }
    }
    internet.world.ledger_tool(&["verify"]).expect(0);
}

/// What is asked about by which rules of the operator.
const PARTS: [(&str, &[EffectKind]); 2] =
    [(LISTED, &[EffectKind::Exec]), (RULES, &[EffectKind::File, EffectKind::Fetch, EffectKind::Flow])];

/// The same for processes, which each read the rules.
fn holds_for_processes(internet: &Internet, entrance: &mut (impl Entrance + Send)) {
    let person = AtTerminal(Watcher::within(internet));
    for (rules, kinds) in PARTS {
        internet.operator(rules);
        holds(internet, &person, entrance, kinds);
    }
}

/// At a terminal of their own, where every question is shown.
struct AtTerminal(Watcher);

const CHOICES: &str = "[d]eny > ";
const WHICH: &str = "anything else goes back > ";

impl Person for AtTerminal {
    fn answering(&self, given: GivenAnswer, call: &mut (dyn FnMut() + Send)) {
        let shown = |text: &str| self.0.terminal.seen().matches(text).count();
        let (mut choices, mut which) = (shown(CHOICES), shown(WHICH));
        thread::scope(|scope| {
            let made = scope.spawn(call);
            while !made.is_finished() {
                if shown(CHOICES) > choices {
                    choices += 1;
                    self.0.terminal.type_in(given.key());
                }
                if shown(WHICH) > which {
                    which += 1;
                    self.0.terminal.type_in(b"1");
                }
                thread::sleep(Duration::from_millis(10));
            }
            assert!(made.join().is_ok(), "on the terminal:\n{}", self.0.terminal.seen());
        });
    }
}

/// The owner of a daemon, at its socket.
struct AtSocket<'a>(&'a Daemon<'a>);

impl Person for AtSocket<'_> {
    fn answering(&self, given: GivenAnswer, call: &mut (dyn FnMut() + Send)) {
        let mut client = self.0.client();
        thread::scope(|scope| {
            let made = scope.spawn(call);
            while !made.is_finished() {
                for question in client.call(&ListApprovals {}).unwrap().approvals {
                    let (id, answer) = (question.id, given.answer());
                    let said = AnswerApproval {
                        id,
                        answer,
                        grant_terms: None,
                        reason: None,
                        accept_orphaned: false,
                    };
                    // One that was answered a moment ago may still be listed.
                    let _late = client.call(&said);
                }
                thread::sleep(Duration::from_millis(10));
            }
            made.join().unwrap();
        });
    }
}

/// `ringfence run`, `file` and `fetch`. Without a terminal: the person is elsewhere.
struct CommandLine<'a> {
    internet: &'a Internet,
    session: usize,
}

impl CommandLine<'_> {
    fn start(&self, arguments: &[&str], input: Stdio) -> Child {
        let mut command = self.internet.host("setsid");
        command.args(["--wait", crate::testkit::binary().to_str().unwrap()]).args(arguments);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Entrance for CommandLine<'_> {
    fn renew(&mut self) {
        self.session += 1;
    }

    fn call(&mut self, case: Case) {
        let (session, path, url, argv) = (format!("s{}", self.session), case.path(), case.url(), case.argv());
        let mut words = vec!["run", "--session", &session, "--"];
        words.extend(argv.iter().map(String::as_str));
        let input = || std::fs::File::open(self.internet.world.workspace.join("from")).unwrap().into();
        let child = match case.kind {
            EffectKind::Exec | EffectKind::Flow => self.start(&words, Stdio::null()),
            EffectKind::File => self.start(&["file", "write", &path], input()),
            EffectKind::Fetch => self.start(&["fetch", &url], Stdio::null()),
        };
        drop(collect(child));
    }

    fn sessions(&self, kind: EffectKind) -> Sessions {
        match kind {
            EffectKind::File | EffectKind::Fetch => Sessions::OfOneCall,
            EffectKind::Exec | EffectKind::Flow => Sessions::OfManyCalls,
        }
    }
}

#[test]
fn an_answer_at_the_command_line_holds_as_long_as_it_says() {
    let internet = Internet::new();
    holds_for_processes(&internet, &mut CommandLine { internet: &internet, session: 0 });
}

/// The hook of Claude Code: commands are rewritten to run inside the fence, and what the agent does itself is left to it.
struct HookEntrance<'a> {
    internet: &'a Internet,
    session: usize,
}

impl HookEntrance<'_> {
    /// What the hook says, and what it makes of the call.
    fn asked(&self, tool: &str, input: &Value) -> Value {
        let sent = json!({
            "session_id": format!("s{}", self.session), "cwd": self.internet.world.workspace,
            "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input,
        });
        let done =
            finish(self.internet.ringfence().args(["hook", "claude-code"]), sent.to_string().as_bytes());
        done.expect(0).json()["hookSpecificOutput"].clone()
    }
}

impl Entrance for HookEntrance<'_> {
    fn renew(&mut self) {
        self.session += 1;
    }

    /// With what the agent does after a yes.
    fn call(&mut self, case: Case) {
        let said = match case.kind {
            EffectKind::Exec | EffectKind::Flow => {
                self.asked("Bash", &json!({ "command": case.argv().join(" ") }))
            }
            EffectKind::File => {
                let path = self.internet.world.workspace.join(case.path());
                self.asked("Write", &json!({ "file_path": path, "content": "x" }))
            }
            EffectKind::Fetch => self.asked("WebFetch", &json!({ "url": case.url(), "prompt": "x" })),
        };
        if said["permissionDecision"] != "allow" {
            return;
        }
        match case.kind {
            EffectKind::Exec | EffectKind::Flow => {
                let command = said["updatedInput"]["command"].as_str().unwrap();
                drop(finish(self.internet.host("setsid").args(["--wait", "bash", "-c", command]), b""));
            }
            EffectKind::File => drop(self.internet.world.write(&case.path(), "x")),
            EffectKind::Fetch => drop(self.internet.control(&["curl", "-sS", "-o", "page", &case.url()])),
        }
    }
}

#[test]
fn an_answer_to_a_hook_holds_as_long_as_it_says() {
    let internet = Internet::new();
    holds_for_processes(&internet, &mut HookEntrance { internet: &internet, session: 0 });
}

/// `ringfence mcp`: each process is a session.
struct McpEntrance<'a> {
    internet: &'a Internet,
    client: Option<McpClient>,
}

impl Entrance for McpEntrance<'_> {
    fn renew(&mut self) {
        if let Some(client) = self.client.take() {
            client.end();
        }
        self.client = Some(McpClient::without_elicitation(self.internet.ringfence()));
    }

    fn call(&mut self, case: Case) {
        let client = self.client.as_mut().unwrap();
        let _said = match case.kind {
            EffectKind::Exec | EffectKind::Flow => {
                client.call("exec", json!({ "command": case.argv().join(" ") }))
            }
            EffectKind::File => client.call("write_file", json!({ "path": case.path(), "content": "x" })),
            EffectKind::Fetch => client.call("fetch", json!({ "url": case.url() })),
        };
    }
}

#[test]
fn an_answer_to_mcp_holds_as_long_as_it_says() {
    let internet = Internet::new();
    let mut entrance = McpEntrance { internet: &internet, client: None };
    holds_for_processes(&internet, &mut entrance);
    entrance.client.unwrap().end();
}

/// A session of a daemon, and how its calls are made.
struct DaemonEntrance<'a> {
    daemon: &'a Daemon<'a>,
    internet: &'a Internet,
    session: Option<SessionInfo>,
    line: DaemonLine,
}

enum DaemonLine {
    Http(DaemonClient),
    WebSocket(Box<Talk>),
    Grpc(Box<Speaker>),
}

impl DaemonEntrance<'_> {
    fn stop(&mut self) {
        if let Some(SessionInfo { session, .. }) = self.session.take() {
            self.daemon.client().call(&StopSession { session, grace_ms: None }).unwrap();
        }
    }
}

impl Entrance for DaemonEntrance<'_> {
    fn renew(&mut self) {
        self.stop();
        let wanted = json!({ "workspace": self.internet.world.workspace, "net": "filtered" });
        let wanted: CreateSession = serde_json::from_value(wanted).unwrap();
        self.session = Some(self.daemon.client().call(&wanted).unwrap());
    }

    fn call(&mut self, case: Case) {
        let session = self.session.as_ref().unwrap().session.to_string();
        let (method, request) = match case.kind {
            EffectKind::Exec | EffectKind::Flow => {
                (Method::CallExec, json!({ "session": session, "argv": case.argv() }))
            }
            EffectKind::File => {
                (Method::FileWrite, json!({ "session": session, "path": case.path(), "content": "x" }))
            }
            EffectKind::Fetch => (Method::CallFetch, json!({ "session": session, "url": case.url() })),
        };
        match &mut self.line {
            DaemonLine::Http(client) => drop(client.raw(method, request)),
            DaemonLine::WebSocket(talk) => drop(talk.call(method.name(), request)),
            DaemonLine::Grpc(speaker) => by_grpc(speaker, session, case),
        }
    }
}

fn by_grpc(speaker: &Speaker, session: String, case: Case) {
    match case.kind {
        EffectKind::Exec | EffectKind::Flow => {
            let command = Some(v1::Command { session, argv: case.argv(), ..Default::default() });
            let exec = v1::ExecRequest { command, background: false };
            drop(speaker.wait(speaker.calls().exec(exec)));
        }
        EffectKind::File => {
            let write = v1::WriteFileRequest { session, path: case.path(), content: b"x".to_vec() };
            drop(speaker.wait(speaker.files().write_file(write)));
        }
        EffectKind::Fetch => {
            let fetch = v1::FetchRequest { session, url: case.url() };
            drop(speaker.wait(speaker.calls().fetch(fetch)));
        }
    }
}

fn served(line: impl Fn(&Daemon<'_>) -> DaemonLine) {
    let internet = Internet::new();
    for (rules, kinds) in PARTS {
        internet.operator(rules);
        let daemon = Daemon::new(&internet);
        let line = line(&daemon);
        let mut entrance = DaemonEntrance { daemon: &daemon, internet: &internet, session: None, line };
        holds(&internet, &AtSocket(&daemon), &mut entrance, kinds);
        entrance.stop();
    }
}

#[test]
fn an_answer_over_http_holds_as_long_as_it_says() {
    served(|daemon| DaemonLine::Http(daemon.client()));
}

#[test]
fn an_answer_over_a_websocket_holds_as_long_as_it_says() {
    served(|daemon| DaemonLine::WebSocket(Box::new(Talk::open(&daemon.socket(), None).unwrap())));
}

#[test]
fn an_answer_over_grpc_holds_as_long_as_it_says() {
    served(|daemon| DaemonLine::Grpc(Box::new(Speaker::at(&daemon.socket(), None))));
}

/// A proposal is applied once: a no leaves it is, and the answer to one is none to another.
#[test]
fn an_answer_to_a_patch_is_for_that_proposal() {
    let world = World::new();
    world.write("Makefile", "before\n");
    let watcher = Watcher::new(&world);
    let apply = |id: &str, key: &[u8]| {
        let mut command = world.host("setsid");
        let program = crate::testkit::binary();
        command.arg("--wait").arg(program).args(["proposal", "apply", "--profile", "guarded", id]);
        watcher.answer(key, &mut command, b"")
    };
    let diff = b"--- a/Makefile\n+++ b/Makefile\n@@ -1 +1 @@\n-before\n+after\n";
    let asked = || events(&world.records(), "approval-requested").len();
    apply(&world.proposed(diff), b"d").expect(126);
    assert_eq!((asked(), world.read("Makefile").as_deref()), (1, Some("before\n")));
    let other = world.proposed(diff);
    apply(&other, b"o").expect(0);
    assert_eq!((asked(), world.read("Makefile").as_deref()), (2, Some("after\n")));
    assert_ne!(world.proposal(&["apply", "--profile", "guarded", &other], b"").code, Some(0));
    assert_eq!(asked(), 2, "what is applied is not asked about again");
}

/// Seven times the same page, to a person who says no: asked once, then refused by memory, and in the end the session has ended
/// for everything.
#[test]
fn a_page_that_was_denied_is_not_asked_about_again_and_the_breaker_opens() {
    let internet = Internet::new();
    internet.operator(RULES);
    let person = AtTerminal(Watcher::within(&internet));
    let mut client = McpClient::without_elicitation(internet.ringfence());
    let case = Case { kind: EffectKind::Fetch, given: GivenAnswer::Deny };
    let mut rules = Vec::new();
    person.answering(GivenAnswer::Deny, &mut || {
        for _ in 0..7 {
            let said = client.call("fetch", json!({ "url": case.url() }));
            let rule = said["structuredContent"]["denial"]["rule"].as_str().unwrap_or_default().to_owned();
            rules.push(rule);
        }
    });
    assert_eq!(events(&internet.world.records(), "approval-requested").len(), 1, "{rules:?}");
    assert!(rules[0].starts_with("approval.denied"), "{rules:?}");
    assert!(rules[1..5].iter().all(|rule| rule == "approval.already-denied"), "{rules:?}");
    assert!(rules[5..].iter().all(|rule| rule == "approval.circuit-breaker"), "{rules:?}");
    assert_eq!(case.done(&internet), 0);
    let over = client.call("exec", json!({ "command": "true" }));
    assert_eq!(over["structuredContent"]["denial"]["rule"], "approval.circuit-breaker", "{over}");
    client.end();
}

/// A program that tries again by itself does not end the session of its agent: what policy allows goes on.
#[test]
fn a_program_that_tries_again_is_refused_and_its_session_goes_on() {
    let internet = Internet::new();
    internet.operator(&format!("{RULES}[[host]]\nallow = [\"web.test\"]\n"));
    let person = AtTerminal(Watcher::within(&internet));
    let mut client = McpClient::without_elicitation(internet.ringfence());
    let script = "for i in 1 2 3 4 5 6 7 8; do curl -sS https://evil.test/x; done; curl -sS -o page https://web.test/after";
    person.answering(GivenAnswer::Deny, &mut || drop(client.call("exec", json!({ "command": script }))));
    assert_eq!(events(&internet.world.records(), "approval-requested").len(), 1);
    assert_eq!(internet.came_to("30.0.0.66"), 0);
    assert_eq!(internet.visits().iter().filter(|visit| visit["target"] == "/after").count(), 1);
    let goes_on = client.call("exec", json!({ "command": "true" }));
    assert_eq!(goes_on["structuredContent"]["ended"], "done", "{goes_on}");
    client.end();
}

/// Two fetches at the same time that ask the same are one question.
#[test]
fn two_calls_that_ask_about_the_same_host_wait_for_one_answer() {
    let internet = Internet::new();
    internet.operator(RULES);
    let daemon = Daemon::new(&internet);
    let mut entrance = DaemonEntrance {
        daemon: &daemon,
        internet: &internet,
        session: None,
        line: DaemonLine::Http(daemon.client()),
    };
    entrance.renew();
    let session = entrance.session.as_ref().unwrap().session.to_string();
    let case = Case { kind: EffectKind::Fetch, given: GivenAnswer::Session };
    thread::scope(|scope| {
        for _ in 0..3 {
            let mut client = daemon.client();
            let request = json!({ "session": session, "url": case.url() });
            scope.spawn(move || client.raw(Method::CallFetch, request).unwrap());
        }
        let waiting = || daemon.client().call(&ListApprovals {}).unwrap().approvals;
        eventually("a question waits", || !waiting().is_empty());
        AtSocket(&daemon).answering(GivenAnswer::Session, &mut || {
            eventually("all are there", || case.done(&internet) == 3);
        });
    });
    let records = internet.world.records();
    assert_eq!(events(&records, "approval-requested").len(), 1);
    assert_eq!(events(&records, "grant-created").len(), 1);
    entrance.stop();
}
