use std::path::Path;

use ringfence_ledger::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, AttemptRecord, AttemptVerdictWord,
    Event, GrantRecord, GrantSubject, ProcessId, ReasonRequirement, Timestamp, Vote,
};
use ringfence_types::{
    Access, ActionFingerprint, ApprovalPrompt, Backend, ByteString, Call, Decision, ExecCall, GrantId,
    Limits, NetMode, PolicyLayer, Principal, Profile, Quorum, Risk, Root, RuleId, SessionId, StandardInput,
    TransactionId, WorkspaceId,
};

pub(crate) struct Ids {
    pub(crate) session: SessionId,
    pub(crate) transaction: TransactionId,
}

pub(crate) fn ids() -> Ids {
    Ids { session: SessionId::random().unwrap(), transaction: TransactionId::random().unwrap() }
}

pub(crate) fn battery(passed: u32) -> Event {
    let entry = AttemptRecord {
        id: "F1".to_owned(),
        verdict: AttemptVerdictWord::Held,
        detail: "é ∀ \"quoted\" \0".to_owned(),
    };
    Event::BatteryFinished { passed, total: 60, backend: Backend::Native, attempts: vec![entry] }
}

pub(crate) fn person(uid: u32) -> Principal {
    Principal::Operator { uid, name: None, node: "n".to_owned(), terminal: None }
}

fn call() -> Call {
    Call::Exec(ExecCall {
        argv: vec![ByteString::from("echo"), ByteString::from(&b"\xfe\0'\n"[..])],
        cwd: ByteString::from("/w"),
        env: Vec::new(),
        ceiling: None,
        net: NetMode::None,
        stdin: StandardInput::None,
    })
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
        fingerprint: ActionFingerprint::of(&call(), &roots()),
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

pub(crate) fn started(ids: &Ids, process: Option<ProcessId>) -> Event {
    Event::SessionStarted {
        session: ids.session.clone(),
        name: None,
        workspace_id: WorkspaceId::of_canonical_path(Path::new("/w")),
        workspace: ByteString::from("/w"),
        profile: Profile::Workspace,
        requested_backend: None,
        agent: None,
        principal: person(0),
        policy_digest: "00".to_owned(),
        version: "0".to_owned(),
        process,
    }
}

pub(crate) fn asked(ids: &Ids) -> Event {
    Event::ApprovalRequested(Box::new(ApprovalRequest {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        workspace: WorkspaceId::of_canonical_path(Path::new("/w")),
        call: call(),
        roots: roots(),
        fingerprint: ActionFingerprint::of(&call(), &roots()),
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
        fingerprint: ActionFingerprint::of(&call(), &roots()),
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
    Event::CallSettled {
        transaction: ids.transaction.clone(),
        session: ids.session.clone(),
        outcome: None,
        failure: Some("none".to_owned()),
        delegated_to: None,
        notes: Vec::new(),
    }
}
