//! An operator's answer: as a request, and what happens to the approval meanwhile.

use std::cell::{Cell, OnceCell};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_api::{AnswerApproval, Approval, ApprovalReply, ReplyTerms, ShowApproval, TextOrBase64};
use ringfence_ledger::{ApprovalDecision, ApprovalRequest, Timestamp};
use ringfence_runtime::approvals::{GrantTerms, OperatorDecision, OperatorReply};
use ringfence_types::Call;

use super::ApprovalClient;
use crate::approval::PromptSource;
use crate::error;
use crate::operator_api::{OperatorApi, OperatorApiError};
use crate::policy_resolution;

/// Poll interval for decisions.
const LOOK: Duration = Duration::from_millis(250);

impl ApprovalClient {
    /// The request for an answer to an approval as it was shown. The daemon itself determines the operator and the default lifetime of
    /// an "always here" grant.
    pub(super) fn request(
        &self,
        question: &Approval,
        reply: OperatorReply,
    ) -> Result<AnswerApproval, ExitCode> {
        let OperatorReply { say, reason, .. } = reply;
        let (answer, grant_terms) = match say {
            OperatorDecision::Once => (ApprovalReply::Once, None),
            OperatorDecision::Deny => (ApprovalReply::Deny, None),
            OperatorDecision::Session(terms) => (ApprovalReply::Session, reply_terms(terms)),
            OperatorDecision::AlwaysHere { offer, terms } => {
                (ApprovalReply::AlwaysHere { offer }, self.with_expiry(reply_terms(terms))?)
            }
            OperatorDecision::Edited(call) => match *call {
                Call::Exec(exec) => {
                    let argv = exec.argv.iter().map(|word| TextOrBase64::from(word.as_slice().to_vec()));
                    (ApprovalReply::Replace { argv: argv.collect() }, None)
                }
                _ => return Err(error::failed_text("only a command can be replaced", None)),
            },
        };
        let (id, accept_orphaned) = (question.id.clone(), question.orphaned);
        Ok(AnswerApproval { id, answer, grant_terms, reason, accept_orphaned })
    }

    fn with_expiry(&self, terms: Option<ReplyTerms>) -> Result<Option<ReplyTerms>, ExitCode> {
        let terms = terms.unwrap_or_default();
        let (OperatorApi::Here(owner), None) = (&self.api, terms.expires_in_ms) else {
            return Ok(Some(terms));
        };
        let settings = policy_resolution::settings(&self.environment, owner.runtime().setup(), None)?;
        Ok(Some(ReplyTerms { expires_in_ms: settings.approvals.grant_lifetime.map(|time| time.0), ..terms }))
    }
}

fn reply_terms(terms: GrantTerms) -> Option<ReplyTerms> {
    let left = |end: Timestamp| {
        let left = Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default();
        u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
    };
    let said = ReplyTerms { expires_in_ms: terms.expires.map(left), max_uses: terms.uses };
    (terms != GrantTerms::default()).then_some(said)
}

/// An approval on the screen, which another operator may answer.
pub(super) struct ShownApproval<'a> {
    api: &'a OperatorApi,
    request: &'a ApprovalRequest,
    /// The timeout and its start. Setting the clock back does not extend it.
    given: (Duration, Instant),
    /// `None`: stop polling.
    look_at: Cell<Option<Instant>>,
    found: OnceCell<ApprovalDecision>,
}

impl<'a> ShownApproval<'a> {
    pub(super) fn new(api: &'a OperatorApi, request: &'a ApprovalRequest) -> Self {
        let given = (super::left(request), Instant::now());
        Self { api, request, given, look_at: Cell::new(Some(Instant::now())), found: OnceCell::new() }
    }
}

impl PromptSource for ShownApproval<'_> {
    fn request(&self) -> &ApprovalRequest {
        self.request
    }

    fn left(&self) -> Duration {
        let (given, begun) = self.given;
        super::left(self.request).min(given.saturating_sub(begun.elapsed()))
    }

    fn decided(&self) -> Option<ApprovalDecision> {
        let due = self.look_at.get().is_some_and(|at| at <= Instant::now());
        if self.found.get().is_none() && due {
            let found = self.api.call(ShowApproval { id: self.request.transaction.to_string() });
            // A prompt does not wait repeatedly for a daemon that does not answer.
            let gone = found.as_ref().is_err_and(OperatorApiError::is_gone);
            self.look_at.set((!gone).then(|| Instant::now() + LOOK));
            if let Some(decision) = found.ok().and_then(|question| question.decision) {
                return Some(self.found.get_or_init(|| decision).clone());
            }
        }
        self.found.get().cloned()
    }
}
