use std::path::{Path, PathBuf};

use ringfence_ledger::{
    ApprovalAnswer, BatteryEntry, Break, Event, Ledger, Timestamp, Verdict, VerifyError, verify,
};
use ringfence_types::{
    Access, Backend, Bytes, Call, CallId, Control, Decision, Exec, Exit, Fingerprint, Layer, Level, Limits,
    NetMode, Outcome, Posture, Profile, Refusal, RefusalCode, Risk, Root, SessionId, StreamSummary,
    TransactionId, WorkspaceId,
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

    /// A ledger with `count` records.
    pub(crate) fn with_records(count: u32) -> Self {
        let home = Self::new();
        append_many(&home.open(), count);
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
    pub(crate) call: CallId,
}

pub(crate) fn ids() -> Ids {
    Ids {
        session: SessionId::random().unwrap(),
        transaction: TransactionId::random().unwrap(),
        call: CallId::random().unwrap(),
    }
}

pub(crate) fn started(session: &SessionId) -> Event {
    Event::SessionStarted {
        session: session.clone(),
        workspace_id: WorkspaceId::of_canonical_path(Path::new("/w")),
        workspace: Bytes::from(&b"/w\xff"[..]),
        profile: Profile::Workspace,
        backend_wanted: None,
        version: "0.1.0".to_owned(),
    }
}

pub(crate) fn call() -> Call {
    Call::Exec(Exec {
        argv: vec![Bytes::from("echo"), Bytes::from(&b"\xfe\0'\n"[..])],
        cwd: Bytes::from("/w"),
        env: vec![(Bytes::from("A"), Bytes::from("b"))],
        net: NetMode::None,
    })
}

pub(crate) fn intent(ids: &Ids) -> Event {
    let roots = vec![Root { path: Bytes::from("/w"), access: Access::Write }];
    Event::Intent {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        call_id: ids.call.clone(),
        call: call(),
        fingerprint: Fingerprint::of(&call(), &roots),
        decision: Decision::Allow,
        layer: Layer::Floor,
        rule: "workspace: anything may run".to_owned(),
        profile: Profile::Workspace,
        roots,
        limits: Limits::default(),
        findings: vec!["aws-key".to_owned()],
    }
}

pub(crate) fn asked(ids: &Ids) -> Event {
    Event::ApprovalRequested {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        call: call(),
        fingerprint: Fingerprint::of(&call(), &[]),
        rule: "guarded.unlisted".to_owned(),
        layer: Layer::Floor,
        reason: "it is not on the list".to_owned(),
        risk: Risk::Medium,
    }
}

pub(crate) fn answered(ids: &Ids, answer: ApprovalAnswer) -> Event {
    Event::ApprovalDecided {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        fingerprint: Fingerprint::of(&call(), &[]),
        answer,
    }
}

pub(crate) fn settled(transaction: &TransactionId) -> Event {
    let stream = StreamSummary { bytes: 3, dropped: 0, sha256: "00".to_owned() };
    let outcome = Outcome {
        exit: Exit::Code { code: 0 },
        limit_hit: None,
        duration_ms: 7,
        stdout: stream.clone(),
        stderr: stream,
    };
    let level = Level::Enforced { by: "mount".to_owned() };
    let posture = Posture {
        backend: Backend::Native,
        controls: [(Control::FsRead, level)].into(),
        landlock_abi: Some(7),
    };
    Event::Settled {
        transaction: transaction.clone(),
        outcome: Some(outcome),
        posture: Some(posture),
        failure: None,
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
    Event::Refused { transaction: transaction.cloned(), session: None, call: Some(call()), refusal }
}
