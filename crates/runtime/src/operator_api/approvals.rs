//! Approvals and grants: lists, shows, answers and revokes them.

use std::path::Path;
use std::time::Duration;

use ringfence_api::{
    AnswerApproval, ApiError, Approval, ApprovalList, ApprovalReply, ErrorCode, GrantInfo, GrantList,
    GrantMatchCount, GrantsRevoked, ReplyResult, ReplyTerms,
};
use ringfence_ledger::{
    ApprovalDecision, ApprovalRequest, GrantRecord, GrantSubject, Ledger, LedgerReader, Timestamp,
};
use ringfence_types::{ByteString, CredentialRef, Principal, SessionId, WorkspaceId};

use super::MethodError;
use crate::approvals::{
    ActiveGrant, ApprovalInbox, GrantRevocation, GrantScope, GrantTerms, OperatorDecision, OperatorReply,
    PendingApproval, ReplyError, ReplyOutcome, WaiterStatus, live_grants, matched, revoke,
};

/// What an approval or a grant is about, to decide whether a caller sees it.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalOrigin<'a> {
    pub session: &'a SessionId,
    pub workspace: &'a WorkspaceId,
    /// The first root.
    pub root: Option<&'a Path>,
}

/// The approvals and grants of a ledger, as one caller sees them.
#[expect(missing_debug_implementations, reason = "it borrows functions")]
pub struct ApprovalMethods<'a> {
    pub ledger: &'a Ledger,
    pub state_dir: &'a Path,
    /// The lifetime of an "always here" grant without one.
    pub grant_lifetime: &'a dyn Fn() -> Option<Duration>,
    pub sees: &'a dyn Fn(ApprovalOrigin<'_>) -> bool,
}

impl ApprovalMethods<'_> {
    pub fn list(&self) -> Result<ApprovalList, MethodError> {
        let pending = self.inbox().pending(Timestamp::now())?;
        let visible = pending.into_iter().filter(|pending| self.sees(pending));
        Ok(ApprovalList { approvals: visible.map(|pending| shown(pending, None)).collect() })
    }

    pub fn show(&self, id: &str) -> Result<Approval, MethodError> {
        let (pending, decision) = self.find(id)?;
        Ok(shown(pending, decision))
    }

    pub fn find(&self, id: &str) -> Result<(PendingApproval, Option<ApprovalDecision>), MethodError> {
        let found = self.inbox().find(id)?;
        if self.sees(&found.0) {
            return Ok(found);
        }
        Err(ReplyError::Unknown { id: id.to_owned() }.into())
    }

    /// Records an answer to an approval that was found and checked before.
    pub fn answer(
        &self,
        pending: &PendingApproval,
        request: AnswerApproval,
        by: &Principal,
        credential: Option<&CredentialRef>,
    ) -> Result<ReplyResult, MethodError> {
        let AnswerApproval { answer, grant_terms, reason, accept_orphaned, .. } = request;
        let say = self.decision(&pending.request, answer, grant_terms)?;
        let reply = OperatorReply { by: by.clone(), say, reason };
        let seen = if accept_orphaned { WaiterStatus::Orphaned } else { WaiterStatus::Waiting };
        let inbox = self.inbox().showing(credential).seeing(seen);
        Ok(match inbox.answer(pending.request.transaction.as_str(), &reply)? {
            ReplyOutcome::Decided { decision, grant } => {
                let new = |made: Box<GrantRecord>| {
                    let grant = ActiveGrant { made: *made, since: Timestamp::now(), used: 0 };
                    Ok::<_, MethodError>(Box::new(grant_info(&self.ledger.reader()?, grant)))
                };
                ReplyResult::Decided { answer: decision.answer, grant: grant.map(new).transpose()? }
            }
            ReplyOutcome::Counted { approve, deny } => {
                ReplyResult::VoteCounted { approvals: approve, denials: deny }
            }
        })
    }

    fn decision(
        &self,
        asked: &ApprovalRequest,
        answer: ApprovalReply,
        terms: Option<ReplyTerms>,
    ) -> Result<OperatorDecision, MethodError> {
        if terms.is_some() && !matches!(answer, ApprovalReply::Session | ApprovalReply::AlwaysHere { .. }) {
            let why = "`grant_terms` need `session` or `always-here`";
            let error = ApiError::new(ErrorCode::InvalidArgument, why);
            return Err(error.with_hint("answer `session` or `always-here`, or leave them out").into());
        }
        let ReplyTerms { expires_in_ms, max_uses } = terms.unwrap_or_default();
        let time = expires_in_ms.map(Duration::from_millis);
        Ok(match answer {
            ApprovalReply::Once => OperatorDecision::Once,
            ApprovalReply::Deny => OperatorDecision::Deny,
            ApprovalReply::Session => OperatorDecision::Session(GrantTerms::within(time, max_uses)?),
            ApprovalReply::AlwaysHere { offer } => {
                let terms = GrantTerms::within(time.or_else(self.grant_lifetime), max_uses)?;
                OperatorDecision::AlwaysHere { offer, terms }
            }
            ApprovalReply::Replace { argv } => {
                let argv = argv.into_iter().map(|word| Ok(ByteString::from(word.bytes()?)));
                OperatorDecision::instead(asked, argv.collect::<Result<_, ApiError>>()?)?
            }
        })
    }

    pub fn grants(&self) -> Result<GrantList, MethodError> {
        let reader = self.ledger.reader()?;
        let live = live_grants(&reader, GrantScope::Everywhere, Timestamp::now())?;
        let visible = live.into_iter().filter(|grant| self.sees_grant(&grant.made));
        Ok(GrantList { grants: visible.map(|grant| grant_info(&reader, grant)).collect() })
    }

    /// Without an id, revokes all grants that the caller sees.
    pub fn revoke(
        &self,
        id: Option<&str>,
        by: &Principal,
        reason: Option<&str>,
    ) -> Result<GrantsRevoked, MethodError> {
        let revocation = GrantRevocation { id, by, reason };
        let gone = revoke(self.ledger, self.state_dir, &|made| self.sees_grant(made), &revocation)?;
        Ok(GrantsRevoked { grants: gone.iter().map(ToString::to_string).collect() })
    }

    fn sees(&self, pending: &PendingApproval) -> bool {
        let ApprovalRequest { session, workspace, roots, .. } = &pending.request;
        let root = roots.first().map(|root| root.path.as_path());
        (self.sees)(ApprovalOrigin { session, workspace, root })
    }

    fn sees_grant(&self, made: &GrantRecord) -> bool {
        let root = match &made.covers {
            GrantSubject::Here { directory, .. } | GrantSubject::Next { directory, .. } => {
                Some(directory.as_path())
            }
            GrantSubject::Session { .. } => None,
        };
        (self.sees)(ApprovalOrigin { session: &made.session, workspace: &made.workspace, root })
    }

    fn inbox(&self) -> ApprovalInbox<'_> {
        ApprovalInbox::new(self.ledger, self.state_dir)
    }
}

fn grant_info(reader: &LedgerReader, grant: ActiveGrant) -> GrantInfo {
    let matched = match &grant.made.covers {
        // A failed comparison is left out of the response; the grant itself is valid.
        GrantSubject::Here { rules, .. } => matched(reader, &grant.made.workspace, rules).ok(),
        GrantSubject::Session { .. } | GrantSubject::Next { .. } => None,
    };
    GrantInfo {
        id: grant.made.grant.to_string(),
        created_at: grant.since.to_string(),
        uses: grant.used,
        uses_left: grant.left(),
        would_have_matched: matched.map(|(count, total)| GrantMatchCount { count, total }),
        record: grant.made,
    }
}

fn shown(pending: PendingApproval, decision: Option<ApprovalDecision>) -> Approval {
    let PendingApproval { request, votes, asked, awaited, .. } = pending;
    Approval {
        id: request.transaction.to_string(),
        session: request.session.to_string(),
        requested_at: asked.to_string(),
        expires_at: request.expires_at.to_string(),
        risk: request.risk.to_string(),
        summary: request.prompt.sentence.clone(),
        request: Box::new(request),
        votes,
        decision,
        orphaned: awaited == WaiterStatus::Orphaned,
    }
}
