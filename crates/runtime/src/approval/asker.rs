//! A question as it is written down: the action, what it is bound to, and the card that people read.

use std::time::Duration;

use ringfence_authz::policy::ApprovalSettings;
use ringfence_authz::{Candidate, Question};
use ringfence_ledger::{ApprovalRequest, ReasonRule, Timestamp};
use ringfence_types::{Layer, Principal, Risk, SessionId, TransactionId, WorkspaceId};

use super::binding::Binding;
use super::seen::{Seen, Sight};
use crate::images::Listed;

use super::{Context, DEFAULT_EXPIRY, Redactor, card, offers, patience};

/// Of what an answer is bound to, this much is in the record; the digest is of all of it, and decides.
const MOST_BOUND: usize = 512;

/// For whom something is asked.
#[derive(Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) workspace: &'a WorkspaceId,
    pub(crate) requester: Principal,
    /// Who started the session.
    pub(crate) owner: &'a Principal,
    /// What the agent says about it.
    pub(crate) stated: Option<&'a str>,
    pub(crate) settings: &'a ApprovalSettings,
    /// The image whose programs would run.
    pub(crate) image: Option<&'a Listed>,
}

impl Asker<'_> {
    pub(crate) fn request(
        &self,
        (question, transaction): (&Question, &TransactionId),
        (seen, candidates): (Seen<'_>, Vec<Candidate>),
        binding: &Binding,
        redactor: &Redactor<'_>,
    ) -> ApprovalRequest {
        let judgement = question.judgement();
        let part = judgement.decisive();
        let quorum = self.settings.quorum;
        let sight = Sight::of(&seen, redactor);
        let risk = sight.risk(judgement.risk());
        let patience = waits(self.settings, risk);
        let offers = offers(&candidates, risk, quorum);
        let reason_rule =
            if self.settings.reason_required { ReasonRule::Required } else { ReasonRule::Optional };
        let context = Context {
            id: transaction.as_str(),
            requester: &self.requester,
            owner: self.owner,
            stated: self.stated,
            patience,
            quorum,
            reason_rule,
            offers: &offers,
            grant_expiry: holds(self.settings),
            image: self.image,
            roots: question.action().roots(),
            sight: &sight,
        };
        let card = card(seen.call, judgement, &context, redactor);
        ApprovalRequest {
            transaction: transaction.clone(),
            session: self.session.clone(),
            workspace: self.workspace.clone(),
            call: seen.call.clone().bounded(),
            roots: question.action().roots().to_vec(),
            fingerprint: question.action().fingerprint().clone(),
            binding: binding.digest.clone(),
            next: None,
            bound: binding.bound.iter().take(MOST_BOUND).cloned().collect(),
            rule: part.map(|part| part.rule.clone().into_owned()).unwrap_or_default(),
            layer: part.map_or(Layer::Floor, |part| part.layer),
            reason: part.map(|part| redactor.clean(&part.reason)).unwrap_or_default(),
            risk,
            expires: Timestamp::now().checked_add(patience).unwrap_or(Timestamp::MAX),
            quorum,
            reason_rule,
            requester: self.requester.clone(),
            offers,
            card,
            by: None,
        }
    }
}

/// How long a question waits.
fn waits(settings: &ApprovalSettings, risk: Risk) -> Duration {
    settings.timeout.map_or_else(|| patience(risk), |timeout| Duration::from_millis(timeout.0))
}

/// How long "always here" holds.
pub(crate) fn holds(settings: &ApprovalSettings) -> Duration {
    let default = || DEFAULT_EXPIRY.unsigned_abs();
    settings.grant_expiry.map_or_else(default, |expiry| Duration::from_millis(expiry.0))
}
