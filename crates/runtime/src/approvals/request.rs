//! The approval request as the ledger records it: the action, its binding, and the prompt that people read.

use std::time::Duration;

use ringfence_authz::{ApprovalNeeded, GrantCandidate};
use ringfence_ledger::{ApprovalRequest, ReasonRequirement, Timestamp};
use ringfence_policy::ApprovalSettings;
use ringfence_types::{PolicyLayer, Principal, Risk, RuleId, SessionId, TransactionId, WorkspaceId};

use super::binding::ApprovalBinding;
use super::prompt_content::{PromptCall, PromptContent};
use crate::images::ImageEntry;

use super::{DEFAULT_EXPIRY, PromptContext, PromptRedactor, offers, patience, prompt};

/// Limit of bound objects in the record. The digest covers all of them, and it decides.
const MOST_BOUND: usize = 512;

/// The principal and session that an approval is requested for.
#[derive(Debug)]
pub(crate) struct ApprovalRequester<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) workspace: &'a WorkspaceId,
    pub(crate) requester: Principal,
    /// The principal that started the session.
    pub(crate) owner: &'a Principal,
    /// The agent's stated reason, untrusted.
    pub(crate) stated: Option<&'a str>,
    pub(crate) settings: &'a ApprovalSettings,
    /// The image whose programs would run.
    pub(crate) image: Option<&'a ImageEntry>,
}

/// What the person is asked about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApprovalSubject<'a> {
    pub(crate) question: &'a ApprovalNeeded,
    pub(crate) transaction: &'a TransactionId,
    pub(crate) binding: &'a ApprovalBinding,
    pub(crate) seen: PromptCall<'a>,
    /// What a stored answer could cover.
    pub(crate) candidates: &'a [GrantCandidate],
}

impl ApprovalRequester<'_> {
    pub(crate) fn request(
        &self,
        subject: &ApprovalSubject<'_>,
        redactor: &PromptRedactor<'_>,
    ) -> ApprovalRequest {
        let ApprovalSubject { question, transaction, binding, seen, candidates } = *subject;
        let judgement = question.judgement();
        let part = judgement.decisive();
        let quorum = self.settings.quorum;
        let content = PromptContent::of(&PromptCall { stated: self.stated, ..seen }, redactor);
        let risk = content.risk(judgement.risk());
        let patience = waits(self.settings, risk);
        let offers = offers(candidates, risk, quorum);
        let reason_rule = if self.settings.reason_required {
            ReasonRequirement::Required
        } else {
            ReasonRequirement::Optional
        };
        let context = PromptContext {
            id: transaction.as_str(),
            requester: &self.requester,
            owner: self.owner,
            stated: self.stated,
            patience,
            quorum,
            reason_rule,
            offers: &offers,
            grant_lifetime: holds(self.settings),
            image: self.image,
            roots: question.action().roots(),
            secrets: seen.secrets,
            content: &content,
        };
        let prompt = prompt(seen.call, judgement, &context, redactor);
        ApprovalRequest {
            transaction: transaction.clone(),
            session: self.session.clone(),
            workspace: self.workspace.clone(),
            call: seen.call.clone().bounded(),
            roots: question.action().roots().to_vec(),
            fingerprint: question.action().fingerprint().clone(),
            binding: binding.digest.clone(),
            binding_without_session: None,
            bound_objects: binding.approved.bound.iter().take(MOST_BOUND).cloned().collect(),
            rule: part.map_or_else(|| RuleId::CallEmpty.into(), |part| part.rule.clone()),
            layer: part.map_or(PolicyLayer::Floor, |part| part.layer),
            reason: part.map(|part| redactor.clean(&part.reason)).unwrap_or_default(),
            risk,
            expires_at: Timestamp::now().checked_add(patience).unwrap_or(Timestamp::MAX),
            quorum,
            reason_requirement: reason_rule,
            requester: self.requester.clone(),
            grant_offers: offers,
            prompt,
            call_origin: None,
        }
    }
}

/// Timeout of an approval.
fn waits(settings: &ApprovalSettings, risk: Risk) -> Duration {
    settings.timeout.map_or_else(|| patience(risk), |timeout| Duration::from_millis(timeout.0))
}

/// Lifetime of an "always here" grant.
pub(crate) fn holds(settings: &ApprovalSettings) -> Duration {
    let default = || DEFAULT_EXPIRY.unsigned_abs();
    settings.grant_lifetime.map_or_else(default, |expiry| Duration::from_millis(expiry.0))
}
