//! API methods for approvals and grants.

use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use ringfence_api::{
    AnswerApproval, ApiError, Approval, ApprovalList, ApprovalReply, Caller, ErrorCode, GrantInfo, GrantList,
    GrantMatchCount, GrantsRevoked, ReplyResult, ReplyTerms,
};
use ringfence_ledger::{
    ApprovalDecision, ApprovalRequest, GrantRecord, GrantSubject, LedgerReader, Timestamp,
};
use ringfence_runtime::approvals::{
    ActiveGrant, ApprovalInbox, GrantError, GrantRevocation, GrantScope, GrantTerms, OperatorDecision,
    OperatorReply, PendingApproval, ReplyError, ReplyOutcome as Done, WaiterStatus, live_grants, matched,
    revoke as take_back,
};
use ringfence_runtime::identity::{CredentialId, KnownIdentity};
use ringfence_types::{
    ByteString, CallOrigin, CredentialRef, Principal, RuleId, Scope, SessionId, WorkspaceId,
};
use serde_json::Value;

use crate::admit::authenticate::{forbidden, require};
use crate::errors::{internal, malformed, unavailable};
use crate::server::Daemon;

pub(crate) fn list(daemon: &Daemon, caller: &Caller) -> Result<ApprovalList, ApiError> {
    let pending = inbox(daemon).pending(Timestamp::now()).map_err(|error| unavailable(&error))?;
    let visible = pending.iter().filter(|pending| sees(daemon, caller, pending));
    Ok(ApprovalList { approvals: visible.map(|pending| question(pending, None)).collect::<Result<_, _>>()? })
}

pub(crate) fn show(daemon: &Daemon, caller: &Caller, id: &str) -> Result<Approval, ApiError> {
    let (pending, decision) = find(daemon, caller, id)?;
    question(&pending, decision.as_ref())
}

/// Records an answer. The requester cannot answer: agents never get here, and the ledger compares the two again.
pub(crate) fn answer(
    daemon: &Daemon,
    caller: &Caller,
    known: Option<&KnownIdentity>,
    request: AnswerApproval,
) -> Result<ReplyResult, ApiError> {
    let AnswerApproval { id, answer, grant_terms, reason, accept_orphaned } = request;
    // The author of a replacement command also runs it. If policy asks about that command, this answer is the approval.
    if matches!(answer, ApprovalReply::Replace { .. }) {
        require(caller, Scope::Run)?;
    }
    // Serializes votes, so that of two related credentials the second sees the vote of the first.
    let _turn = daemon.answering.lock().unwrap_or_else(PoisonError::into_inner);
    // Looked up once: the checked approval is the answered one, even if the id prefix becomes ambiguous meanwhile.
    let (pending, _) = find(daemon, caller, &id)?;
    if let Some(known) = known {
        not_by_who_asked(daemon, caller, known, &pending.request)?;
        not_by_who_voted(daemon, known, &pending)?;
    }
    let say = meant(daemon, &pending.request, answer, grant_terms)?;
    let reply = OperatorReply { by: caller.principal.clone(), say, reason };
    let shown = known.map(shown_of);
    let seen = if accept_orphaned { WaiterStatus::Orphaned } else { WaiterStatus::Waiting };
    let done = inbox(daemon)
        .showing(shown.as_ref())
        .seeing(seen)
        .answer(pending.request.transaction.as_str(), &reply)
        .map_err(|error| not_counted(&error))?;
    Ok(match done {
        Done::Decided { decision, grant } => {
            let stored = grant.map(|made| stored_now(daemon, *made)).transpose()?;
            ReplyResult::Decided { answer: decision.answer.word().to_owned(), grant: stored.map(Box::new) }
        }
        Done::Counted { approve, deny } => ReplyResult::VoteCounted { approvals: approve, denials: deny },
    })
}

fn meant(
    daemon: &Daemon,
    asked: &ApprovalRequest,
    answer: ApprovalReply,
    terms: Option<ReplyTerms>,
) -> Result<OperatorDecision, ApiError> {
    if terms.is_some() && !matches!(answer, ApprovalReply::Session | ApprovalReply::AlwaysHere { .. }) {
        return Err(malformed("`grant_terms` need `session` or `always-here`")
            .with_hint("answer `session` or `always-here`, or leave them out"));
    }
    let ReplyTerms { expires_in_ms, max_uses } = terms.unwrap_or_default();
    let time = expires_in_ms.map(Duration::from_millis);
    let within = |time| GrantTerms::within(time, max_uses).map_err(|error| not_counted(&error));
    Ok(match answer {
        ApprovalReply::Once => OperatorDecision::Once,
        ApprovalReply::Deny => OperatorDecision::Deny,
        ApprovalReply::Session => OperatorDecision::Session(within(time)?),
        ApprovalReply::AlwaysHere { offer } => OperatorDecision::AlwaysHere {
            offer,
            terms: within(time.or_else(|| daemon.governor.grant_lifetime()))?,
        },
        ApprovalReply::Replace { argv } => {
            let argv = argv.into_iter().map(|word| Ok(ByteString::from(word.bytes()?)));
            OperatorDecision::instead(asked, argv.collect::<Result<_, ApiError>>()?)
                .map_err(|error| not_counted(&error))?
        }
    })
}

pub(crate) fn grants(daemon: &Daemon, caller: &Caller) -> Result<GrantList, ApiError> {
    let reader = daemon.runtime.ledger().reader().map_err(|error| unavailable(&error))?;
    let live = live_grants(&reader, GrantScope::Everywhere, Timestamp::now())
        .map_err(|error| unavailable(&error))?;
    let visible = live.into_iter().filter(|grant| sees_grant(daemon, caller, &grant.made));
    Ok(GrantList { grants: visible.map(|grant| stored(&reader, &grant)).collect::<Result<_, _>>()? })
}

/// Without an id, revokes all grants the caller may see.
pub(crate) fn revoke(
    daemon: &Daemon,
    caller: &Caller,
    id: Option<&str>,
    reason: Option<&str>,
) -> Result<GrantsRevoked, ApiError> {
    let known = |made: &GrantRecord| sees_grant(daemon, caller, made);
    let revocation = GrantRevocation { id, by: &caller.principal, reason };
    let (ledger, state_dir) = (daemon.runtime.ledger(), &daemon.runtime.setup().state_dir);
    let gone = take_back(ledger, state_dir, &known, &revocation).map_err(|error| {
        let code = match &error {
            GrantError::Unknown { .. } => ErrorCode::NotFound,
            GrantError::Ambiguous { .. } => ErrorCode::InvalidArgument,
            GrantError::NotAnOperator => ErrorCode::Forbidden,
            _ => return unavailable(&error),
        };
        ApiError::new(code, error.to_string())
    })?;
    Ok(GrantsRevoked { grants: gone.iter().map(ToString::to_string).collect() })
}

fn stored_now(daemon: &Daemon, made: GrantRecord) -> Result<GrantInfo, ApiError> {
    let reader = daemon.runtime.ledger().reader().map_err(|error| unavailable(&error))?;
    stored(&reader, &ActiveGrant { made, since: Timestamp::now(), used: 0 })
}

fn stored(reader: &LedgerReader, grant: &ActiveGrant) -> Result<GrantInfo, ApiError> {
    let matched = match &grant.made.covers {
        // A failed comparison is left out of the response; the grant itself is valid.
        GrantSubject::Here { rules, .. } => matched(reader, &grant.made.workspace, rules).ok(),
        GrantSubject::Session { .. } | GrantSubject::Next { .. } => None,
    };
    Ok(GrantInfo {
        id: grant.made.grant.to_string(),
        record: serde_json::to_value(&grant.made).map_err(|error| internal(&error))?,
        created_at: grant.since.to_string(),
        uses: grant.used,
        uses_left: grant.left(),
        would_have_matched: matched.map(|(count, of)| GrantMatchCount { count, total: of }),
    })
}

fn find(
    daemon: &Daemon,
    caller: &Caller,
    id: &str,
) -> Result<(PendingApproval, Option<ApprovalDecision>), ApiError> {
    let found = inbox(daemon).find(id).map_err(|error| not_counted(&error))?;
    if sees(daemon, caller, &found.0) {
        return Ok(found);
    }
    Err(not_counted(&ReplyError::Unknown { id: id.to_owned() }))
}

/// A caller limited to some workspaces does not see the approvals of others.
fn sees(daemon: &Daemon, caller: &Caller, pending: &PendingApproval) -> bool {
    let request = &pending.request;
    let root = request.roots.first().map(|root| root.path.as_path());
    covers(daemon, caller, &request.session, &request.workspace, root)
}

fn sees_grant(daemon: &Daemon, caller: &Caller, made: &GrantRecord) -> bool {
    let root = match &made.covers {
        GrantSubject::Here { directory, .. } | GrantSubject::Next { directory, .. } => {
            Some(directory.as_path())
        }
        GrantSubject::Session { .. } => None,
    };
    covers(daemon, caller, &made.session, &made.workspace, root)
}

/// Decides by the workspace of a known session. For other sessions, by their first root if it is the workspace.
fn covers(
    daemon: &Daemon,
    caller: &Caller,
    session: &SessionId,
    workspace: &WorkspaceId,
    root: Option<&Path>,
) -> bool {
    if caller.rights.workspaces.is_any() {
        return true;
    }
    match daemon.sessions.show(session) {
        Ok(session) => caller.rights.covers_workspace(&session.workspace),
        Err(_) => root.is_some_and(|root| {
            WorkspaceId::of_canonical_path(root) == *workspace && caller.rights.covers_workspace(root)
        }),
    }
}

/// The caller of an action does not approve it: not with the same credential, not with one in the same line of descent,
/// and not as the same account. The owner of the machine, without a credential, is exempt.
fn not_by_who_asked(
    daemon: &Daemon,
    caller: &Caller,
    known: &KnownIdentity,
    request: &ApprovalRequest,
) -> Result<(), ApiError> {
    for asker in askers(daemon, request) {
        let Some(shown) = asker.credential.filter(|_| asker.principal.is_person()) else { continue };
        let account = matches!(asker.principal, Principal::Account { .. });
        let same = account && asker.principal.identity() == caller.principal.identity();
        if same || are_kin(daemon, known, &shown)? {
            let why = "the requester may not answer its own approval";
            return Err(forbidden(RuleId::ApprovalRequesterCannotAnswer, why)
                .with_hint("another operator must answer, or the owner of the machine"));
        }
    }
    Ok(())
}

/// The origins of a request. A flow may belong to any call of the sandbox, so it counts for every origin that ran a
/// command in the session.
fn askers(daemon: &Daemon, request: &ApprovalRequest) -> Vec<CallOrigin> {
    match &request.call_origin {
        Some(by) => vec![CallOrigin::clone(by)],
        // Calls of a session that this daemon does not know did not come over its API.
        None => daemon.sessions.find(&request.session).map(|live| live.runners()).unwrap_or_default(),
    }
}

/// In a quorum, credentials in the same line of descent count as one voter: one of them could have created the others.
fn not_by_who_voted(
    daemon: &Daemon,
    known: &KnownIdentity,
    pending: &PendingApproval,
) -> Result<(), ApiError> {
    for shown in pending.votes.iter().filter_map(|vote| vote.credential.as_ref()) {
        if are_kin(daemon, known, shown)? {
            let why = "a credential with the same ancestor has already voted";
            return Err(forbidden(RuleId::ApprovalAlreadyVoted, why)
                .with_hint("another operator must vote, with an unrelated credential"));
        }
    }
    Ok(())
}

/// The public part of a credential.
pub(crate) fn shown_of(known: &KnownIdentity) -> CredentialRef {
    CredentialRef { kind: known.kind, id: known.id.to_string() }
}

/// Whether two credentials are in the same line of descent. An unreadable id counts as related.
fn are_kin(daemon: &Daemon, known: &KnownIdentity, shown: &CredentialRef) -> Result<bool, ApiError> {
    let Some(other) = CredentialId::parse(&shown.id) else { return Ok(true) };
    daemon.identities.are_kin(&other, &known.id).map_err(|error| unavailable(&error))
}

fn inbox(daemon: &Daemon) -> ApprovalInbox<'_> {
    ApprovalInbox::new(daemon.runtime.ledger(), &daemon.runtime.setup().state_dir)
}

fn question(pending: &PendingApproval, decision: Option<&ApprovalDecision>) -> Result<Approval, ApiError> {
    let request = &pending.request;
    let json = |value: serde_json::Result<Value>| value.map_err(|error| internal(&error));
    Ok(Approval {
        id: request.transaction.to_string(),
        session: request.session.to_string(),
        requested_at: pending.asked.to_string(),
        expires_at: request.expires_at.to_string(),
        risk: request.risk.to_string(),
        summary: request.prompt.sentence.clone(),
        request: json(serde_json::to_value(request))?,
        votes: pending.votes.iter().map(|vote| json(serde_json::to_value(vote))).collect::<Result<_, _>>()?,
        decision: decision.map(|decision| json(serde_json::to_value(decision))).transpose()?,
        orphaned: pending.awaited == WaiterStatus::Orphaned,
    })
}

fn not_counted(error: &ReplyError) -> ApiError {
    let code = match error {
        ReplyError::Unknown { .. } => ErrorCode::NotFound,
        ReplyError::Ambiguous { .. }
        | ReplyError::ReasonRequired
        | ReplyError::NotOffered(_)
        | ReplyError::Terms(_) => ErrorCode::InvalidArgument,
        ReplyError::NotAnOperator => ErrorCode::Forbidden,
        ReplyError::Inbox(error) => return unavailable(error),
        _ => ErrorCode::FailedPrecondition,
    };
    let told = ApiError::new(code, error.to_string());
    error.hint().map_or(told.clone(), |hint| told.with_hint(hint))
}
