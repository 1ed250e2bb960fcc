use std::path::{Path, PathBuf};

use ringfence_ledger::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, AttemptRecord, AttemptVerdictWord,
    ChainBreak, Event, GrantRecord, GrantSubject, Ledger, ProcessId, ReasonRequirement, Timestamp,
    VerifyError, Vote, verify,
};
use ringfence_types::{
    Access, ActionFingerprint, ApprovalPrompt, Backend, ByteString, Call, Control, ControlLevel, Decision,
    ExecCall, ExitReason, GrantId, Limits, NetMode, Outcome, PolicyLayer, Posture, Principal, Profile,
    Quorum, Refusal, RefusalCode, Risk, Root, RuleId, SessionId, StandardInput, StreamSummary, TransactionId,
    WorkspaceId,
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

    pub(crate) fn broken(&self) -> ChainBreak {
        broken(&self.path)
    }
}

pub(crate) fn broken(path: &Path) -> ChainBreak {
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
    let entry = AttemptRecord {
        id: "F1".to_owned(),
        verdict: AttemptVerdictWord::Held,
        detail: "é ∀ \"quoted\"".to_owned(),
    };
    Event::BatteryFinished { passed, total: 60, backend: Backend::Native, attempts: vec![entry] }
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
        workspace: ByteString::from(&b"/w\xff"[..]),
        profile: Profile::Workspace,
        requested_backend: None,
        agent: Some("a".to_owned()),
        principal: person(0),
        policy_digest: "00".to_owned(),
        version: "0.1.0".to_owned(),
        process,
    }
}

pub(crate) fn call() -> Call {
    Call::Exec(ExecCall {
        argv: vec![ByteString::from("echo"), ByteString::from(&b"\xfe\0'\n"[..])],
        cwd: ByteString::from("/w"),
        env: vec![(ByteString::from("A"), ByteString::from("b"))],
        ceiling: None,
        net: NetMode::None,
        stdin: StandardInput::None,
    })
}

pub(crate) fn fingerprint() -> ActionFingerprint {
    ActionFingerprint::of(&call(), &roots())
}

fn roots() -> Vec<Root> {
    vec![Root { path: ByteString::from("/w"), access: Access::Write }]
}

pub(crate) fn intent(ids: &Ids) -> Event {
    intent_by(ids, None)
}

pub(crate) fn intent_by(ids: &Ids, grant: Option<GrantId>) -> Event {
    Event::CallIntended {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        call: call(),
        fingerprint: fingerprint(),
        decision: Decision::Allow,
        layer: PolicyLayer::Floor,
        rule: RuleId::PathRule.into(),
        grant,
        profile: Profile::Workspace,
        policy_digest: "00".to_owned(),
        roots: roots(),
        limits: Limits::default(),
        findings: Vec::new(),
        call_origin: None,
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
        binding_without_session: None,
        bound_objects: Vec::new(),
        rule: RuleId::GuardedUnlisted.into(),
        layer: PolicyLayer::Floor,
        reason: "it is not on the list".to_owned(),
        risk: Risk::Medium,
        requester: Principal::Agent { session: ids.session.clone(), name: None },
        expires_at: Timestamp::UNIX_EPOCH,
        quorum: Quorum::default(),
        reason_requirement: ReasonRequirement::Optional,
        grant_offers: Vec::new(),
        call_origin: None,
        prompt: ApprovalPrompt { sentence: "Run echo".to_owned(), blocks: Vec::new(), fields: Vec::new() },
    }))
}

pub(crate) fn voted(ids: &Ids, uid: u32) -> Event {
    let transaction = ids.transaction.clone();
    Event::ApprovalVoted(ApprovalVote {
        transaction,
        actor: person(uid),
        vote: Vote::Approve,
        reason: None,
        credential: None,
    })
}

pub(crate) fn answered(ids: &Ids, answer: ApprovalAnswer) -> Event {
    Event::ApprovalDecided(Box::new(ApprovalDecision {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        fingerprint: fingerprint(),
        answer,
        actor: person(1),
        reason: None,
        replacement: None,
        bound_objects: Vec::new(),
    }))
}

pub(crate) fn granted(ids: &Ids, uses: Option<u32>) -> (GrantId, Event) {
    let grant = GrantId::random().unwrap();
    let made = GrantRecord {
        grant: grant.clone(),
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        workspace: WorkspaceId::of_canonical_path(Path::new("/w")),
        covers: GrantSubject::Session { binding: "00".to_owned() },
        permits: "echo".to_owned(),
        actor: person(1),
        expires_at: None,
        max_uses: uses,
    };
    (grant, Event::GrantCreated(Box::new(made)))
}

pub(crate) fn settled(ids: &Ids) -> Event {
    let stream = StreamSummary { bytes: 3, dropped: 0, sha256: "00".to_owned() };
    let outcome = Outcome {
        exit: ExitReason::Code { code: 0 },
        limit_hit: None,
        duration_ms: 7,
        stdout: stream.clone(),
        stderr: stream,
    };
    Event::CallSettled {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        outcome: Some(outcome),
        failure: None,
        delegated_to: None,
        notes: Vec::new(),
    }
}

pub(crate) fn launched(ids: &Ids) -> Event {
    let level = ControlLevel::Enforced { by: "mount".to_owned() };
    let posture = Posture {
        backend: Backend::Native,
        controls: [(Control::FsRead, level)].into(),
        landlock_abi: Some(7),
        ceiling: None,
    };
    Event::SandboxStarted {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        posture,
        skipped_backends: Vec::new(),
    }
}

pub(crate) fn refused(transaction: Option<&TransactionId>) -> Event {
    let refusal = Refusal {
        code: RefusalCode::Floor,
        layer: PolicyLayer::Floor,
        rule: RuleId::Floor.into(),
        message: "no".to_owned(),
        hint: None,
    };
    Event::CallRefused {
        transaction: transaction.cloned(),
        session: None,
        call: Some(call()),
        refusal,
        call_origin: None,
    }
}
