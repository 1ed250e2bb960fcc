use std::path::{Path, PathBuf};

use ringfence_ledger::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, BatteryEntry, Break, Covers, Event,
    GrantMade, Ledger, ProcessId, ReasonRule, Timestamp, Verdict, VerifyError, Vote, verify,
};
use ringfence_types::{
    Access, Backend, Bytes, Call, Card, Control, Decision, Exec, Exit, Fingerprint, GrantId, Layer, Level,
    Limits, NetMode, Outcome, Posture, Principal, Profile, Quorum, Refusal, RefusalCode, Risk, Root,
    SessionId, StandardInput, StreamSummary, TransactionId, WorkspaceId,
};
use rusqlite::Connection;
use tempfile::TempDir;

/// A directory of the test's own with the path of a ledger in it.
pub(crate) struct Home {
    pub(crate) directory: TempDir,
    pub(crate) path: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/ledger.db");
        Self { directory, path }
    }

    pub(crate) fn open(&self) -> Ledger {
        Ledger::open(&self.path).unwrap()
    }

    /// A ledger with `count` records, the beginning of the chain among them.
    pub(crate) fn with_records(count: u32) -> Self {
        let home = Self::new();
        append_many(&home.open(), count - 1);
        home
    }

    /// The file as somebody with `sqlite3` sees it.
    pub(crate) fn sql(&self, sql: &str) {
        Connection::open(&self.path).unwrap().execute_batch(sql).unwrap();
    }

    pub(crate) fn broken(&self) -> Break {
        broken(&self.path)
    }
}

pub(crate) fn broken(path: &Path) -> Break {
    match verify(path, None).unwrap_err() {
        VerifyError::Broken(broken) => broken,
        other => panic!("{other}"),
    }
}

pub(crate) fn append_many(ledger: &Ledger, count: u32) {
    for number in 0..count {
        let time = Timestamp::from_second(1_767_323_045 + i64::from(number)).unwrap();
        ledger.append_at(&battery(number), time).map(|receipt| receipt.seq()).unwrap();
    }
}

pub(crate) fn battery(passed: u32) -> Event {
    let entry =
        BatteryEntry { id: "F1".to_owned(), verdict: Verdict::Held, detail: "é ∀ \"quoted\"".to_owned() };
    Event::Battery { passed, total: 60, backend: Backend::Native, attempts: vec![entry] }
}

pub(crate) struct Ids {
    pub(crate) session: SessionId,
    pub(crate) transaction: TransactionId,
}

pub(crate) fn ids() -> Ids {
    Ids { session: SessionId::random().unwrap(), transaction: TransactionId::random().unwrap() }
}

pub(crate) fn person(uid: u32) -> Principal {
    Principal::Operator { uid, name: None, node: "n".to_owned(), terminal: None }
}

pub(crate) fn started(session: &SessionId) -> Event {
    started_by(session, None)
}

pub(crate) fn started_by(session: &SessionId, process: Option<ProcessId>) -> Event {
    Event::SessionStarted {
        session: session.clone(),
        name: None,
        workspace_id: WorkspaceId::of_canonical_path(Path::new("/w")),
        workspace: Bytes::from(&b"/w\xff"[..]),
        profile: Profile::Workspace,
        backend_wanted: None,
        agent: Some("a".to_owned()),
        principal: person(0),
        policy: "00".to_owned(),
        version: "0.1.0".to_owned(),
        process,
    }
}

pub(crate) fn call() -> Call {
    Call::Exec(Exec {
        argv: vec![Bytes::from("echo"), Bytes::from(&b"\xfe\0'\n"[..])],
        cwd: Bytes::from("/w"),
        env: vec![(Bytes::from("A"), Bytes::from("b"))],
        net: NetMode::None,
        stdin: StandardInput::None,
    })
}

pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint::of(&call(), &roots())
}

fn roots() -> Vec<Root> {
    vec![Root { path: Bytes::from("/w"), access: Access::Write }]
}

pub(crate) fn intent(ids: &Ids) -> Event {
    intent_by(ids, None)
}

pub(crate) fn intent_by(ids: &Ids, grant: Option<GrantId>) -> Event {
    Event::Intent {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        call: call(),
        fingerprint: fingerprint(),
        decision: Decision::Allow,
        layer: Layer::Floor,
        rule: "r".to_owned(),
        grant,
        profile: Profile::Workspace,
        policy: "00".to_owned(),
        roots: roots(),
        limits: Limits::default(),
        findings: Vec::new(),
        by: None,
    }
}

pub(crate) fn asked(ids: &Ids) -> Event {
    Event::ApprovalRequested(Box::new(ApprovalRequest {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        workspace: WorkspaceId::of_canonical_path(Path::new("/w")),
        call: call(),
        roots: roots(),
        fingerprint: fingerprint(),
        binding: "00".to_owned(),
        next: None,
        bound: Vec::new(),
        rule: "guarded.unlisted".to_owned(),
        layer: Layer::Floor,
        reason: "it is not on the list".to_owned(),
        risk: Risk::Medium,
        requester: Principal::Agent { session: ids.session.clone(), name: None },
        expires: Timestamp::UNIX_EPOCH,
        quorum: Quorum::default(),
        reason_rule: ReasonRule::Optional,
        offers: Vec::new(),
        by: None,
        card: Card { sentence: "Run echo".to_owned(), blocks: Vec::new(), fields: Vec::new() },
    }))
}

pub(crate) fn voted(ids: &Ids, uid: u32) -> Event {
    let transaction = ids.transaction.clone();
    Event::ApprovalVoted(ApprovalVote {
        transaction,
        by: person(uid),
        vote: Vote::Approve,
        reason: None,
        shown: None,
    })
}

pub(crate) fn answered(ids: &Ids, answer: ApprovalAnswer) -> Event {
    Event::ApprovalDecided(Box::new(ApprovalDecision {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        fingerprint: fingerprint(),
        answer,
        by: person(1),
        reason: None,
        edited: None,
        bound: Vec::new(),
    }))
}

pub(crate) fn granted(ids: &Ids, uses: Option<u32>) -> (GrantId, Event) {
    let grant = GrantId::random().unwrap();
    let made = GrantMade {
        grant: grant.clone(),
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        workspace: WorkspaceId::of_canonical_path(Path::new("/w")),
        covers: Covers::Session { binding: "00".to_owned() },
        permits: "echo".to_owned(),
        by: person(1),
        expires: None,
        uses,
    };
    (grant, Event::GrantMade(Box::new(made)))
}

pub(crate) fn settled(ids: &Ids) -> Event {
    let stream = StreamSummary { bytes: 3, dropped: 0, sha256: "00".to_owned() };
    let outcome = Outcome {
        exit: Exit::Code { code: 0 },
        limit_hit: None,
        duration_ms: 7,
        stdout: stream.clone(),
        stderr: stream,
    };
    Event::Settled {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        outcome: Some(outcome),
        failure: None,
        left_to: None,
        notes: Vec::new(),
    }
}

pub(crate) fn launched(ids: &Ids) -> Event {
    let level = Level::Enforced { by: "mount".to_owned() };
    let posture = Posture {
        backend: Backend::Native,
        controls: [(Control::FsRead, level)].into(),
        landlock_abi: Some(7),
    };
    Event::Launched {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        posture,
        passed_over: Vec::new(),
    }
}

pub(crate) fn refused(transaction: Option<&TransactionId>) -> Event {
    let refusal = Refusal {
        code: RefusalCode::Floor,
        layer: Layer::Floor,
        rule: "floor".to_owned(),
        message: "no".to_owned(),
        hint: None,
    };
    Event::Refused { transaction: transaction.cloned(), session: None, call: Some(call()), refusal, by: None }
}
