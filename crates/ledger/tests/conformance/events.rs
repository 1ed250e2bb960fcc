use std::path::Path;

use ringfence_ledger::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, BatteryEntry, Covers, Event, GrantMade,
    ReasonRule, Timestamp, Verdict, Vote,
};
use ringfence_types::{
    Access, Backend, Bytes, Call, Card, Decision, Exec, Fingerprint, GrantId, Layer, Limits, NetMode,
    Principal, Profile, Quorum, Risk, Root, SessionId, StandardInput, TransactionId, WorkspaceId,
};

pub(crate) struct Ids {
    pub(crate) session: SessionId,
    pub(crate) transaction: TransactionId,
}

pub(crate) fn ids() -> Ids {
    Ids { session: SessionId::random().unwrap(), transaction: TransactionId::random().unwrap() }
}

pub(crate) fn battery(passed: u32) -> Event {
    let entry =
        BatteryEntry {
            id: "F1".to_owned(), verdict: Verdict::Held, detail: "é ∀ \"quoted\" \0".to_owned()
        };
    Event::Battery { passed, total: 60, backend: Backend::Native, attempts: vec![entry] }
}

pub(crate) fn person(uid: u32) -> Principal {
    Principal::Operator { uid, name: None, node: "n".to_owned(), terminal: None }
}

fn call() -> Call {
    Call::Exec(Exec {
        argv: vec![Bytes::from("echo"), Bytes::from(&b"\xfe\0'\n"[..])],
        cwd: Bytes::from("/w"),
        env: Vec::new(),
        net: NetMode::None,
        stdin: StandardInput::None,
    })
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
        fingerprint: Fingerprint::of(&call(), &roots()),
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
        fingerprint: Fingerprint::of(&call(), &roots()),
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
        fingerprint: Fingerprint::of(&call(), &roots()),
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
    Event::Settled {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        outcome: None,
        failure: Some("none".to_owned()),
        left_to: None,
        notes: Vec::new(),
    }
}
