//! Approvals: the prompt, the eligible approvers, the timeout, and the binding and grants of an answer.
//!
//! The ledger is the store: an approval is pending while it has no decision there, and the first decision
//! counts. Every answer, at the terminal of the requesting process or elsewhere, goes through
//! [`ApprovalInbox`].

mod absent;
pub(crate) mod binding;
mod circuit_breaker;
mod grants;
mod inbox;
mod loop_guard;
mod notify;
mod presence;
mod principal;
pub(crate) mod prompt_content;
mod prompt_text;
mod request;
mod rewritten;
mod wait;

use std::fmt;

use ringfence_types::{PolicyLayer, Principal, Refusal, RefusalCode, Risk};

use crate::session::DENIED_BEFORE;

pub(crate) use circuit_breaker::CircuitBreaker;
pub use grants::{
    ActiveGrant, GrantEnd, GrantError, GrantRevocation, GrantScope, GrantVisibility, grant_files,
    live_grants, matched, revoke,
};
pub(crate) use grants::{GrantLease, lease, next};
pub use inbox::{
    ApprovalInbox, GrantTerms, InboxError, OperatorDecision, OperatorReply, PendingApproval, ReplyError,
    ReplyOutcome, WaiterStatus,
};
pub(crate) use inbox::{DEFAULT_EXPIRY, StoredDecision};
pub(crate) use loop_guard::{LoopGuard, STOPPED, outcome_of, recorded_outcome};
pub use presence::PresenceLock;
pub use presence::watching;
pub(crate) use presence::{asking, is_watched};
pub use principal::{local_operator, operator_of};
pub(crate) use prompt_content::PromptCall;
pub use prompt_text::render_prompt;
pub(crate) use prompt_text::{PromptContext, PromptRedactor, offers, prompt};
pub(crate) use request::{ApprovalRequester, ApprovalSubject, holds};
pub use wait::ApprovalWait;
pub(crate) use wait::{ApprovalContext, decision};

/// What this process can ask for an answer. An implementation shows the prompt to a person, never to the
/// agent.
pub trait Approver: fmt::Debug {
    /// Whether the approver can be reached right now.
    fn is_there(&mut self) -> bool;

    /// Shows the prompt and waits for an answer here, for one from elsewhere, or for the timeout.
    fn ask(&mut self, question: &ApprovalWait<'_>) -> ApproverReply;

    /// Tells the person the result, where it differs from the answer given here.
    fn tell(&mut self, _text: &str) {}
}

/// Result of asking an approver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApproverReply {
    Reply(OperatorReply),
    /// Another approver has answered.
    Elsewhere,
    /// The time ran out without an answer.
    Silence,
    /// The person left the prompt, or a signal asks this process to end.
    Interrupted,
    /// This process ends, but other approvers can still answer: the approval stays pending where it can be
    /// orphaned.
    Left,
}

/// No approver in this process: every approval is refused unless an operator watches or is notified.
#[derive(Clone, Copy, Debug)]
pub struct NoApprover;

impl Approver for NoApprover {
    fn is_there(&mut self) -> bool {
        false
    }

    fn ask(&mut self, _question: &ApprovalWait<'_>) -> ApproverReply {
        ApproverReply::Interrupted
    }
}

/// Default timeout of an approval (S003-13).
pub(crate) fn patience(risk: Risk) -> std::time::Duration {
    std::time::Duration::from_secs(match risk {
        Risk::Low => 30,
        Risk::Medium => 60,
        Risk::High => 120,
        Risk::Critical => 300,
    })
}

/// Refusal of an action that was denied before in the same session.
pub(crate) fn denied_before() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Session,
        rule: DENIED_BEFORE.into(),
        message: "the same action was denied before in this session".to_owned(),
        hint: Some("do something else: asking again does not change the answer".to_owned()),
    }
}

pub(crate) fn is_operator(principal: &Principal) -> bool {
    principal.is_person()
}
