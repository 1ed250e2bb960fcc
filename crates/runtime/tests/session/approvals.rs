//! Questions in a session: who is asked, how often, and what an answer is good for.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence_authz::Policy;
use ringfence_authz::env::ApproverPresence;
use ringfence_ledger::{ApprovalAnswer, Event, Kind, Record, Timestamp};
use ringfence_policy::ApprovalSettings;
use ringfence_runtime::approvals::{
    ApprovalInbox, ApprovalWait, GrantRevocation, GrantTerms, OperatorDecision, OperatorReply, ReplyError,
    ReplyOutcome, revoke,
};
use ringfence_runtime::{
    AgentSession, Approver, ApproverReply, CallEnd, CommandIo, HostSetup, OutputTarget, PolicySource,
    Runtime, SessionSpec, Settled, StdinSource,
};
use ringfence_types::units::HumanDuration as Time;
use ringfence_types::{
    Access, ByteString, Call, ExecCall, FileCall, NetMode, Principal, Profile, Quorum, Refusal, Root,
    StandardInput,
};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// Somebody who answers with a function, and counts.
struct Person<F> {
    answer: F,
    asked: Rc<Cell<u32>>,
}

impl<F> std::fmt::Debug for Person<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Person")
    }
}

impl<F: FnMut(&ApprovalWait<'_>) -> ApproverReply> Approver for Person<F> {
    fn is_there(&mut self) -> bool {
        true
    }

    fn ask(&mut self, question: &ApprovalWait<'_>) -> ApproverReply {
        self.asked.set(self.asked.get() + 1);
        (self.answer)(question)
    }
}

fn operator(uid: u32) -> Principal {
    Principal::Operator { uid, name: None, node: "here".to_owned(), terminal: None }
}

fn reply(say: OperatorDecision) -> OperatorReply {
    OperatorReply { by: operator(1), say, reason: None }
}

struct World {
    root: PathBuf,
    _directory: TempDir,
    runtime: Runtime,
    asked: Rc<Cell<u32>>,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["w", "home", "config"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let runtime = Runtime::open(HostSetup {
            state_dir: root.join("state"),
            config_dir: root.join("config"),
            home: Some(root.join("home")),
            host_env: Vec::new(),
            attendance: ApproverPresence::Unattended,
            toolchains: Vec::new(),
            files: Vec::new(),
            sweeper: None,
            own: Vec::new(),
        })
        .unwrap();
        Self { root, _directory: directory, runtime, asked: Rc::default() }
    }

    fn session(&self) -> AgentSession<'_> {
        self.session_with(|_| {})
    }

    fn session_with(&self, change: impl FnOnce(&mut SessionSpec)) -> AgentSession<'_> {
        let mut asked = SessionSpec::new(self.root.join("w"), Policy::new(Profile::Guarded));
        change(&mut asked);
        self.runtime.session(asked).unwrap().unwrap()
    }

    fn person<F: FnMut(&ApprovalWait<'_>) -> ApproverReply>(&self, answer: F) -> Person<F> {
        Person { answer, asked: Rc::clone(&self.asked) }
    }

    fn says(&self, say: OperatorDecision) -> Person<impl FnMut(&ApprovalWait<'_>) -> ApproverReply + use<>> {
        Person {
            answer: move |_: &ApprovalWait<'_>| ApproverReply::Reply(reply(say.clone())),
            asked: Rc::clone(&self.asked),
        }
    }

    fn inbox(&self) -> ApprovalInbox<'_> {
        ApprovalInbox::new(self.runtime.ledger(), &self.runtime.setup().state_dir)
    }

    fn records(&self) -> Vec<Record> {
        self.runtime.ledger().reader().unwrap().tail(1000).unwrap()
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.records()
            .iter()
            .map(|record| record.event.kind().word())
            .filter(|kind| *kind != "chain-started")
            .collect()
    }

    fn count(&self, kind: Kind) -> usize {
        self.records().iter().filter(|record| record.event.kind() == kind).count()
    }
}

fn write_call(path: &str, content: &[u8]) -> Call {
    let sha256 = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    Call::File(FileCall::Write { path: path.into(), sha256, bytes: content.len() as u64 })
}

fn io(content: &[u8]) -> CommandIo<'_> {
    CommandIo {
        stdin: StdinSource::Bytes(content),
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    }
}

fn rule(settled: &Settled) -> String {
    assert_eq!(settled.record_error, None);
    match &settled.ended {
        CallEnd::Refused(refusal) => refusal.rule.to_string(),
        CallEnd::Touched(_) => "done".to_owned(),
        other => panic!("{other:?}"),
    }
}

fn write(session: &mut AgentSession<'_>, path: &str, content: &[u8]) -> String {
    rule(&session.call(write_call(path, content), io(content)))
}

/// What becomes of the same write twice and of another one, and how often somebody was asked.
fn twice(say: OperatorDecision) -> ([String; 3], u32) {
    let world = World::new();
    let mut session = world.session();
    session.set_approver(world.says(say));
    let ends =
        [&b"all:\n"[..], b"all:\n", b"other:\n"].map(|content| write(&mut session, "Makefile", content));
    (ends, world.asked.get())
}

#[test]
fn s001_25_a_no_is_kept_for_the_session() {
    let (ends, asked) = twice(OperatorDecision::Deny);
    assert!(ends[0].starts_with("approval.denied: path.build-script"), "{ends:?}");
    assert_eq!(ends[1], "approval.already-denied");
    assert!(ends[2].starts_with("approval.denied: "), "other content is another question");
    assert_eq!(asked, 2);
}

#[test]
fn once_is_for_one_call_and_session_for_the_same_content() {
    assert_eq!(twice(OperatorDecision::Once), (["done", "done", "done"].map(str::to_owned), 3));
    assert_eq!(
        twice(OperatorDecision::Session(GrantTerms::default())),
        (["done", "done", "done"].map(str::to_owned), 2)
    );
}

#[test]
fn nobody_is_not_a_no_for_later_and_is_not_waited_for() {
    let world = World::new();
    let mut session = world.session();
    let start = Instant::now();
    for _ in 0..3 {
        assert!(write(&mut session, "Makefile", b"all:\n").starts_with("approval.unreachable"));
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(
        world.kinds()[..5],
        ["session-started", "approval-requested", "approval-decided", "call-refused", "approval-requested"]
    );
}

#[test]
fn s001_27_28_the_question_is_on_disk_before_it_is_shown_and_the_answer_before_anything_follows() {
    let world = World::new();
    let seen = RefCell::new(Vec::new());
    let mut session = world.session();
    session.set_approver(world.person(|_| {
        *seen.borrow_mut() = world.kinds();
        ApproverReply::Reply(reply(OperatorDecision::Once))
    }));
    assert_eq!(write(&mut session, "Makefile", b"all:\n"), "done");
    assert_eq!(*seen.borrow(), ["session-started", "approval-requested"]);
    let after = [
        "session-started",
        "approval-requested",
        "authentication-attempted",
        "approval-decided",
        "call-intended",
        "call-settled",
    ];
    assert_eq!(world.kinds(), after);
    drop(session);
}

#[test]
fn c17_an_answer_after_the_time_is_over_is_none() {
    let world = World::new();
    let mut session = world.session_with(|asked| {
        asked.settings = ApprovalSettings { timeout: Some(Time(50)), ..ApprovalSettings::default() };
    });
    session.set_approver(world.person(|question| {
        assert!(question.left() <= Duration::from_millis(50));
        std::thread::sleep(Duration::from_millis(80));
        ApproverReply::Reply(reply(OperatorDecision::Once))
    }));
    assert!(write(&mut session, "Makefile", b"all:\n").starts_with("approval.expired"));
    assert!(!world.root.join("w/Makefile").exists());
    session.set_approver(world.person(|_| ApproverReply::Silence));
    assert!(
        write(&mut session, "Makefile", b"all:\n").starts_with("approval.expired"),
        "it is no lasting no"
    );
    assert_eq!(world.count(Kind::CallIntended), 0);
}

#[test]
fn the_first_decision_counts_and_the_other_operator_is_told() {
    let world = World::new();
    let inbox = world.inbox();
    let mut session = world.session();
    session.set_approver(world.person(|question| {
        let id = question.request().transaction.to_string();
        let answered = inbox
            .answer(&id, &OperatorReply { by: operator(2), say: OperatorDecision::Deny, reason: None })
            .unwrap();
        assert!(matches!(answered, ReplyOutcome::Decided { .. }));
        assert_eq!(question.decided().unwrap().answer, ApprovalAnswer::Deny);
        let again = inbox.answer(&id, &reply(OperatorDecision::Once)).unwrap_err();
        assert!(matches!(again, ReplyError::AnsweredBefore { answer: ApprovalAnswer::Deny, .. }), "{again}");
        ApproverReply::Reply(reply(OperatorDecision::Once))
    }));
    assert!(write(&mut session, "Makefile", b"all:\n").starts_with("approval.denied"));
    assert_eq!(world.count(Kind::ApprovalDecided), 1);
}

#[test]
fn two_operators_at_once_and_exactly_one_decides() {
    let world = World::new();
    for _ in 0..10 {
        let inbox = world.inbox();
        let mut session = world.session();
        session.set_approver(world.person(|question| {
            let id = question.request().transaction.as_str();
            let answers = std::thread::scope(|scope| {
                let threads: Vec<_> = [2, 3]
                    .map(|uid| {
                        let say = if uid == 2 { OperatorDecision::Once } else { OperatorDecision::Deny };
                        scope.spawn(move || {
                            inbox.answer(id, &OperatorReply { by: operator(uid), say, reason: None }).is_ok()
                        })
                    })
                    .into_iter()
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(answers.iter().filter(|won| **won).count(), 1, "{answers:?}");
            ApproverReply::Elsewhere
        }));
        write(&mut session, "Makefile", b"all:\n");
    }
    assert_eq!(world.count(Kind::ApprovalDecided), 10);
}

#[test]
fn c8_only_an_operator_answers_and_never_the_one_who_asks() {
    let world = World::new();
    let inbox = world.inbox();
    let mut session = world.session();
    session.set_approver(world.person(|question| {
        let request = question.request();
        for by in [request.requester.clone(), Principal::System] {
            let error = inbox.answer(
                request.transaction.as_str(),
                &OperatorReply { by, say: OperatorDecision::Once, reason: None },
            );
            assert!(matches!(error, Err(ReplyError::NotAnOperator)));
        }
        let by = request.requester.clone();
        ApproverReply::Reply(OperatorReply { by, say: OperatorDecision::Once, reason: None })
    }));
    assert!(write(&mut session, "Makefile", b"all:\n").starts_with("approval.denied"));
    assert!(!world.root.join("w/Makefile").exists());
}

fn quorum(approve: u8, deny: u8) -> ApprovalSettings {
    ApprovalSettings {
        quorum: Quorum { approve, deny },
        timeout: Some(Time(2000)),
        ..ApprovalSettings::default()
    }
}

/// What becomes of a question that takes two yes or two no, with these votes: user, yes or no.
fn voted(votes: &'static [(u32, bool)]) -> (String, Vec<String>) {
    let world = World::new();
    let inbox = world.inbox();
    let told = RefCell::new(Vec::new());
    let mut session = world.session_with(|asked| asked.settings = quorum(2, 2));
    session.set_approver(world.person(|question| {
        for (uid, yes) in votes {
            let say = if *yes { OperatorDecision::Once } else { OperatorDecision::Deny };
            let by = operator(*uid);
            let answered = inbox
                .answer(question.request().transaction.as_str(), &OperatorReply { by, say, reason: None });
            told.borrow_mut().push(match answered {
                Ok(ReplyOutcome::Decided { .. }) => "decided".to_owned(),
                Ok(ReplyOutcome::Counted { approve, deny }) => format!("{approve}:{deny}"),
                Err(error) => error.to_string(),
            });
        }
        if question.decided().is_some() { ApproverReply::Elsewhere } else { ApproverReply::Silence }
    }));
    let end = write(&mut session, "Makefile", b"all:\n");
    drop(session);
    (end, told.into_inner())
}

#[test]
fn a_quorum_takes_different_people() {
    assert_eq!(
        voted(&[(1, true), (2, true)]),
        ("done".to_owned(), vec!["1:0".to_owned(), "decided".to_owned()])
    );
    let (end, told) = voted(&[(1, true), (1, true)]);
    assert!(end.starts_with("approval.expired"), "{end}");
    assert_eq!(told, ["1:0", "you have already voted; another operator must vote"]);
    let (end, told) = voted(&[(1, true), (2, false), (3, false)]);
    assert!(end.starts_with("approval.denied"), "{end}");
    assert_eq!(told, ["1:0", "1:1", "decided"]);
}

#[test]
fn under_a_quorum_nothing_is_stored() {
    let world = World::new();
    let mut session = world.session_with(|asked| asked.settings = quorum(2, 1));
    session.set_approver(world.person(|question| {
        assert!(question.request().grant_offers.is_empty());
        ApproverReply::Reply(reply(OperatorDecision::Session(GrantTerms::default())))
    }));
    assert!(write(&mut session, "Makefile", b"all:\n").starts_with("approval.denied"));
    assert_eq!(world.count(Kind::GrantCreated), 0);
}

#[test]
fn under_a_quorum_nobody_edits_what_others_said_yes_to() {
    for (approve, refused) in [(1, false), (2, true)] {
        let world = World::new();
        let inbox = world.inbox();
        let mut session = world.session_with(|asked| asked.settings = quorum(approve, 2));
        session.set_approver(world.person(|question| {
            let id = question.request().transaction.as_str();
            if refused {
                let first = OperatorReply { by: operator(1), say: OperatorDecision::Once, reason: None };
                assert!(matches!(inbox.answer(id, &first), Ok(ReplyOutcome::Counted { approve: 1, .. })));
            }
            let say = OperatorDecision::Edited(Box::new(question.request().call.clone()));
            let answered = inbox.answer(id, &OperatorReply { by: operator(2), say, reason: None });
            assert_eq!(matches!(answered, Err(ReplyError::NotOffered(_))), refused, "{answered:?}");
            if question.decided().is_some() { ApproverReply::Elsewhere } else { ApproverReply::Silence }
        }));
        let end = write(&mut session, "Makefile", b"all:\n");
        assert_eq!(end.starts_with("approval.expired"), refused, "{end}");
    }
}

#[test]
fn an_answer_says_why_where_it_has_to() {
    let world = World::new();
    let settings = ApprovalSettings { reason_required: true, ..ApprovalSettings::default() };
    let inbox = world.inbox();
    let mut session = world.session_with(|asked| asked.settings = settings);
    session.set_approver(world.person(|question| {
        let id = question.request().transaction.as_str();
        assert!(matches!(inbox.answer(id, &reply(OperatorDecision::Once)), Err(ReplyError::ReasonRequired)));
        ApproverReply::Reply(OperatorReply {
            reason: Some("it is a test".to_owned()),
            ..reply(OperatorDecision::Once)
        })
    }));
    assert_eq!(write(&mut session, "Makefile", b"all:\n"), "done");
    let reasons = world.records().into_iter().filter_map(|record| match record.event {
        Event::ApprovalDecided(decision) => decision.reason,
        _ => None,
    });
    assert_eq!(reasons.collect::<Vec<_>>(), ["it is a test"]);
}

#[test]
fn c7_a_session_answer_is_over_when_it_is_taken_back_used_up_or_expired() {
    let used_up = GrantTerms { uses: Some(1), ..GrantTerms::default() };
    let expired = GrantTerms { expires: Some(Timestamp::now()), ..GrantTerms::default() };
    for (terms, asked) in [(GrantTerms::default(), 1), (used_up, 2), (expired, 2)] {
        let world = World::new();
        let mut session = world.session();
        session.set_approver(world.says(OperatorDecision::Session(terms)));
        let first = write(&mut session, "Makefile", b"all:\n");
        if terms == expired {
            assert_eq!(first, "grant.exhausted", "an answer that is over before it is used is none");
        } else {
            assert_eq!(first, "done");
        }
        assert!(["done", "grant.exhausted"].contains(&write(&mut session, "Makefile", b"all:\n").as_str()));
        assert_eq!(world.asked.get(), asked, "{terms:?}");
    }
    let world = World::new();
    let mut session = world.session();
    session.set_approver(world.says(OperatorDecision::Session(GrantTerms::default())));
    write(&mut session, "Makefile", b"all:\n");
    assert_eq!(
        revoke(
            world.runtime.ledger(),
            &world.runtime.setup().state_dir,
            &|_| true,
            &GrantRevocation { id: None, by: &operator(1), reason: None }
        )
        .unwrap()
        .len(),
        1
    );
    write(&mut session, "Makefile", b"all:\n");
    assert_eq!(world.asked.get(), 2);
}

/// Something that is written down while the clock is ahead.
fn seen(world: &World, ahead: Duration) {
    let event =
        Event::AuthenticationAttempted { principal: operator(1), purpose: "look".to_owned(), refusal: None };
    let then = Timestamp::now().checked_add(ahead).unwrap();
    let _receipt = world.runtime.ledger().append_at(&event, then).unwrap();
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn c7_a_clock_that_is_set_back_revives_no_stored_answer() {
    for (ahead, asked) in [(HOUR / 2, 1), (HOUR * 2, 2)] {
        let world = World::new();
        // Ahead long before: what it said then has nothing to do with what is stored now.
        seen(&world, HOUR * 100);
        let terms = GrantTerms { expires: Timestamp::now().checked_add(HOUR).ok(), ..GrantTerms::default() };
        let mut session = world.session();
        session.set_approver(world.says(OperatorDecision::Session(terms)));
        assert_eq!(write(&mut session, "Makefile", b"all:\n"), "done");
        seen(&world, ahead);
        write(&mut session, "Makefile", b"all:\n");
        assert_eq!(world.asked.get(), asked, "{ahead:?}");
    }
}

#[test]
fn c7_a_clock_that_is_set_back_gives_a_question_no_more_time() {
    for ahead in [Duration::ZERO, HOUR] {
        let world = World::new();
        let inbox = world.inbox();
        let mut session = world.session();
        session.set_approver(world.person(|question| {
            seen(&world, ahead);
            let answered =
                inbox.answer(question.request().transaction.as_str(), &reply(OperatorDecision::Once));
            assert_eq!(matches!(answered, Err(ReplyError::Expired)), ahead == HOUR, "{answered:?}");
            ApproverReply::Elsewhere
        }));
        let expected = if ahead == HOUR { "approval.expired" } else { "done" };
        let written = write(&mut session, "Makefile", b"all:\n");
        assert!(written.starts_with(expected), "{written}");
    }
}

#[test]
fn c7_a_clock_that_is_set_back_revives_no_session() {
    let named = |asked: &mut SessionSpec| asked.name = Some("a".to_owned());
    for (ahead, asked) in [(HOUR * 20, 1), (HOUR * 30, 2)] {
        let world = World::new();
        for _ in 0..2 {
            let mut session = world.session_with(named);
            session.set_approver(world.says(OperatorDecision::Session(GrantTerms::default())));
            assert_eq!(write(&mut session, "Makefile", b"all:\n"), "done");
            drop(session);
            seen(&world, ahead);
        }
        assert_eq!(world.asked.get(), asked, "{ahead:?}");
    }
}

#[test]
fn c7_a_session_answer_is_for_this_session_policy_and_agent_alone() {
    let world = World::new();
    let say = || world.says(OperatorDecision::Session(GrantTerms::default()));
    let named = |asked: &mut SessionSpec| asked.name = Some("a".to_owned());
    let mut session = world.session_with(named);
    session.set_approver(say());
    write(&mut session, "Makefile", b"all:\n");
    drop(session);
    let mut same = world.session_with(named);
    same.set_approver(say());
    write(&mut same, "Makefile", b"all:\n");
    assert_eq!(world.asked.get(), 1, "control: the same session by its name");
    drop(same);
    let changes: [&dyn Fn(&mut SessionSpec); 4] = [
        &|asked| asked.name = Some("b".to_owned()),
        &|asked| asked.name = None,
        &|asked| {
            asked.name = Some("a".to_owned());
            asked.policy_digest = "another".to_owned();
        },
        &|asked| {
            asked.name = Some("a".to_owned());
            asked.agent = Some("somebody".to_owned());
        },
    ];
    for (count, change) in changes.iter().enumerate() {
        let mut other = world.session_with(|asked| change(asked));
        other.set_approver(say());
        write(&mut other, "Makefile", b"all:\n");
        assert_eq!(world.asked.get(), u32::try_from(2 + count).unwrap(), "{count}");
    }
}

#[test]
fn c19_the_like_is_denied_five_times_and_then_nothing_is_done_any_more() {
    let world = World::new();
    let mut session = world.session();
    session.set_approver(world.says(OperatorDecision::Deny));
    for round in 0..5 {
        let content = format!("all: {round}\n");
        assert!(write(&mut session, "Makefile", content.as_bytes()).starts_with("approval.denied"));
    }
    assert_eq!(write(&mut session, "notes.txt", b"harmless"), "approval.circuit-breaker");
    assert!(!world.root.join("w/notes.txt").exists());
    let mut fresh = world.session();
    assert_eq!(write(&mut fresh, "notes.txt", b"harmless"), "done", "control: another session");
}

#[test]
fn the_same_again_and_again_is_noted_and_then_stopped() {
    let world = World::new();
    let mut session = world.session();
    let read = || Call::File(FileCall::Read { path: "a".into() });
    fs::write(world.root.join("w/a"), "same").unwrap();
    for round in 1..10 {
        let settled = session.call(read(), io(b""));
        assert_eq!((rule(&settled).as_str(), settled.notice.is_some()), ("done", round == 5), "{round}");
    }
    let settled = session.call(read(), io(b""));
    assert_eq!(rule(&settled), "loop.repeated");
    assert_eq!(write(&mut session, "b", b"x"), "done");
    assert_eq!(rule(&session.call(read(), io(b""))), "done", "another call begins anew");
    for round in 0..20 {
        fs::write(world.root.join("w/a"), round.to_string()).unwrap();
        assert_eq!(rule(&session.call(read(), io(b""))), "done", "what changes is no loop");
    }
    let found: Vec<(u32, bool)> = world
        .records()
        .iter()
        .filter_map(|record| match record.event {
            Event::LoopDetected { repeats, stopped, .. } => Some((repeats, stopped)),
            _ => None,
        })
        .collect();
    assert_eq!(found, [(5, false), (10, true)]);
}

#[test]
fn a_session_with_a_name_goes_on_with_its_denials_and_its_loops() {
    let world = World::new();
    let named = |asked: &mut SessionSpec| asked.name = Some("a".to_owned());
    let mut session = world.session_with(named);
    session.set_approver(world.says(OperatorDecision::Deny));
    write(&mut session, "Makefile", b"all:\n");
    drop(session);
    let mut session = world.session_with(named);
    assert_eq!(write(&mut session, "Makefile", b"all:\n"), "approval.already-denied");
    drop(session);
    for _ in 0..4 {
        let mut session = world.session_with(named);
        write(&mut session, "Makefile", b"all:\n");
    }
    let mut session = world.session_with(named);
    assert_eq!(write(&mut session, "other", b"x"), "approval.circuit-breaker");
    drop(session);
    let read = || Call::File(FileCall::Read { path: "none".into() });
    let looping = |asked: &mut SessionSpec| asked.name = Some("loop".to_owned());
    for _ in 0..9 {
        let mut session = world.session_with(looping);
        let settled = session.call(read(), io(b""));
        assert!(matches!(settled.ended, CallEnd::Failed { .. } | CallEnd::Refused(_)), "{settled:?}");
    }
    let mut session = world.session_with(looping);
    assert_eq!(rule(&session.call(read(), io(b""))), "loop.repeated");
    assert_eq!(world.count(Kind::SessionStarted), 2);
}

#[test]
fn a_run_of_one_call_takes_two_steps_of_the_ledger() {
    let world = World::new();
    let settled = world.session().last_call(write_call("a", b"x"), io(b"x"));
    assert_eq!(rule(&settled), "done");
    assert_eq!(world.kinds(), ["session-started", "call-intended", "call-settled", "session-ended"]);
}

#[test]
fn secrets_are_neither_in_the_question_nor_in_the_record_but_known_again() {
    let world = World::new();
    let secret = "hunter2-hunter2";
    let shown = RefCell::new(String::new());
    let mut session = world.session();
    session.set_approver(world.person(|question| {
        *shown.borrow_mut() = serde_json::to_string(question.request()).unwrap();
        ApproverReply::Reply(reply(OperatorDecision::Deny))
    }));
    let mut run = |program: &str| {
        let argv = [program, "--password", secret].map(ByteString::from).to_vec();
        let cwd = ByteString::from(world.root.join("w"));
        let call = Call::Exec(ExecCall {
            argv,
            cwd,
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        });
        session.call(call, io(b""))
    };
    let _denied = run("frobnicate");
    assert!(shown.borrow().contains("[redacted") && !shown.borrow().contains(secret), "{}", shown.borrow());
    for _ in 0..2 {
        let settled = run("echo");
        assert!(matches!(settled.ended, CallEnd::Executed(_)), "{settled:?}");
    }
    let records = world.records();
    assert!(!serde_json::to_string(&records).unwrap().contains(secret));
    let fingerprints: Vec<String> = records
        .into_iter()
        .filter_map(|record| match record.event {
            Event::CallIntended { findings, .. } => Some(findings[0].fingerprint.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(fingerprints.len(), 2);
    assert_eq!((fingerprints[0].len(), &fingerprints[0]), (32, &fingerprints[1]));
}

/// Reads what the test says by now.
#[derive(Debug)]
struct Says(Arc<Mutex<SessionSpec>>);

impl PolicySource for Says {
    fn read(&self) -> Result<SessionSpec, Refusal> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// The sandbox of a session was made for a policy that holds no more: what is allowed now does not run in it.
#[test]
fn a_policy_that_narrows_while_a_question_waits_narrows_the_sandbox() {
    for (access, made) in [(Access::Write, true), (Access::Read, false)] {
        let world = World::new();
        let (beside, file) = (world.root.join("beside"), world.root.join("policy.toml"));
        fs::create_dir(&beside).unwrap();
        fs::write(&file, "one").unwrap();
        let mut asked = SessionSpec::new(world.root.join("w"), Policy::new(Profile::Guarded));
        asked.roots = vec![Root { path: ByteString::from(beside.as_path()), access: Access::Write }];
        asked.policy_files = vec![file.clone()];
        let now = Arc::new(Mutex::new(asked.clone()));
        let mut session = world.runtime.session(asked).unwrap().unwrap();
        session.set_policy_source(Says(Arc::clone(&now)));
        session.set_approver(world.person(|_| {
            if world.asked.get() == 1 {
                fs::write(&file, "two").unwrap();
                now.lock().unwrap().roots = vec![Root { path: ByteString::from(beside.as_path()), access }];
            }
            ApproverReply::Reply(reply(OperatorDecision::Once))
        }));
        let mut run = |argv: &[&str]| {
            let argv = argv.iter().map(|word| ByteString::from(*word)).collect();
            let cwd = ByteString::from(world.root.join("w"));
            let call = Call::Exec(ExecCall {
                argv,
                cwd,
                env: Vec::new(),
                ceiling: None,
                net: NetMode::None,
                stdin: StandardInput::None,
            });
            session.call(call, io(b"")).ended
        };
        assert!(matches!(run(&["ls"]), CallEnd::Executed(_)), "the sandbox runs");
        let target = beside.join("made");
        // Nobody sees in its arguments what it writes.
        fs::write(world.root.join("w/make.pl"), format!("open(F, '>', '{}')", target.display())).unwrap();
        let ended = run(&["perl", "make.pl"]);
        assert_eq!(world.asked.get(), 2, "asked again: {ended:?}");
        assert_eq!(target.exists(), made, "{access:?}: {ended:?}");
    }
}

/// Something else is approved, and then changed: nobody said yes to that.
#[test]
fn what_was_approved_instead_is_bound_to_its_files_too() {
    for (later, runs) in [("one", true), ("two", false)] {
        let world = World::new();
        let made = world.root.join("w/made");
        let script = world.root.join("w/make.pl");
        let writes = |text: &str| {
            fs::write(&script, format!("open(F, '>', '{}'); print F '{text}'", made.display())).unwrap();
        };
        writes("one");
        let inbox = world.inbox();
        let mut session = world.session();
        session.set_approver(world.person(|question| {
            if world.asked.get() > 1 {
                return ApproverReply::Reply(reply(OperatorDecision::Deny));
            }
            let Call::Exec(exec) = &question.request().call else { panic!("a command was asked about") };
            let argv = ["perl", "make.pl"].map(ByteString::from).to_vec();
            let edited = OperatorDecision::Edited(Box::new(Call::Exec(ExecCall { argv, ..exec.clone() })));
            inbox.answer(question.request().transaction.as_str(), &reply(edited)).unwrap();
            writes(later);
            ApproverReply::Elsewhere
        }));
        let argv = ["mkdir", "other"].map(ByteString::from).to_vec();
        let cwd = ByteString::from(world.root.join("w"));
        let call = Call::Exec(ExecCall {
            argv,
            cwd,
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        });
        let ended = session.call(call, io(b"")).ended;
        assert_eq!(fs::read_to_string(&made).ok().as_deref(), runs.then_some("one"), "{ended:?}");
    }
}
