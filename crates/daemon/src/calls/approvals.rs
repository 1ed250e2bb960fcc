//! Approvals and grants of callers: what each sees, and who may answer.

use std::sync::PoisonError;

use ringfence_api::{
    AnswerApproval, ApiError, Approval, ApprovalList, ApprovalReply, Caller, GrantList, GrantsRevoked,
    ReplyResult,
};
use ringfence_ledger::ApprovalRequest;
use ringfence_runtime::approvals::PendingApproval;
use ringfence_runtime::identity::{CredentialId, KnownIdentity};
use ringfence_runtime::operator_api::MethodError;
use ringfence_runtime::operator_api::approvals::{ApprovalMethods, ApprovalOrigin};
use ringfence_types::{CallOrigin, CredentialRef, Principal, RuleId, Scope, WorkspaceId};

use crate::admit::authenticate::{forbidden, require};
use crate::admit::identity_methods::failed;
use crate::errors::unavailable;
use crate::server::Daemon;

pub(crate) fn list(daemon: &Daemon, caller: &Caller) -> Result<ApprovalList, ApiError> {
    visible(daemon, caller, |approvals| approvals.list())
}

pub(crate) fn show(daemon: &Daemon, caller: &Caller, id: &str) -> Result<Approval, ApiError> {
    visible(daemon, caller, |approvals| approvals.show(id))
}

pub(crate) fn grants(daemon: &Daemon, caller: &Caller) -> Result<GrantList, ApiError> {
    visible(daemon, caller, |approvals| approvals.grants())
}

/// Without an id, revokes all grants the caller may see.
pub(crate) fn revoke(
    daemon: &Daemon,
    caller: &Caller,
    id: Option<&str>,
    reason: Option<&str>,
) -> Result<GrantsRevoked, ApiError> {
    visible(daemon, caller, |approvals| approvals.revoke(id, &caller.principal, reason))
}

/// Records an answer. The requester cannot answer: agents never get here, and the ledger compares the two again.
pub(crate) fn answer(
    daemon: &Daemon,
    caller: &Caller,
    known: Option<&KnownIdentity>,
    request: AnswerApproval,
) -> Result<ReplyResult, ApiError> {
    // The author of a replacement command also runs it. If policy asks about that command, this answer is the approval.
    if matches!(request.answer, ApprovalReply::Replace { .. }) {
        require(caller, Scope::Run)?;
    }
    // Serializes votes, so that of two related credentials the second sees the vote of the first.
    let _turn = daemon.answering.lock().unwrap_or_else(PoisonError::into_inner);
    visible(daemon, caller, |approvals| {
        // Looked up once: the checked approval is the answered one, even if the id prefix becomes ambiguous meanwhile.
        let (pending, _) = approvals.find(&request.id)?;
        if let Some(known) = known {
            not_by_who_asked(daemon, caller, known, &pending.request)?;
            not_by_who_voted(daemon, known, &pending)?;
        }
        approvals.answer(&pending, request, &caller.principal, known.map(shown_of).as_ref())
    })
}

/// The approvals and grants that the caller may see.
fn visible<T>(
    daemon: &Daemon,
    caller: &Caller,
    perform: impl FnOnce(&ApprovalMethods<'_>) -> Result<T, MethodError>,
) -> Result<T, ApiError> {
    let approvals = ApprovalMethods {
        ledger: daemon.runtime.ledger(),
        state_dir: &daemon.runtime.setup().state_dir,
        grant_lifetime: &|| daemon.governor.grant_lifetime(),
        sees: &|origin| covers(daemon, caller, origin),
    };
    perform(&approvals).map_err(failed)
}

/// Decides by the workspace of a known session. For other sessions, by their first root if it is the workspace.
fn covers(daemon: &Daemon, caller: &Caller, origin: ApprovalOrigin<'_>) -> bool {
    let ApprovalOrigin { session, workspace, root } = origin;
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
