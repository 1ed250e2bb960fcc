//! Questions to people: what they are shown, who may answer, how long it waits, and what an answer is good for.
//!
//! The ledger is the store: a question is pending while its request has no decision there, and the first decision
//! counts. Whoever answers, at the terminal of the process that asks or anywhere else, does it through [`Inbox`].

mod asker;
pub(crate) mod binding;
mod breaker;
mod card;
mod channel;
mod grants;
mod inbox;
mod loops;
mod memory;
mod presence;
mod principal;
pub(crate) mod seen;
mod wait;

use std::fmt;

use ringfence_types::{Layer, Principal, Refusal, RefusalCode, Risk};

pub(crate) use asker::{Asker, holds};
pub use card::card_text;
pub(crate) use card::{Context, Redactor, card, offers};
pub use grants::{GrantError, Here, LiveGrant, Sees, Spent, grant_files, live_grants, matched, revoke};
pub(crate) use grants::{Lease, lease, next};
pub(crate) use inbox::DEFAULT_EXPIRY;
pub use inbox::{AnswerError, Answered, Awaited, Inbox, InboxError, Pending, Reply, Say, Terms};
pub(crate) use loops::{Loops, STOPPED, outcome_of, recorded_outcome};
pub(crate) use memory::{BREAKER, DENIED_BEFORE, Memory, STOPPED_LOOP};
pub use presence::Held;
pub use presence::watching;
pub(crate) use presence::{asking, is_watched};
pub use principal::{local_operator, operator_of};
pub(crate) use seen::Seen;
pub use wait::Waiting;
pub(crate) use wait::{Inquiry, decision};

/// Somebody of this process who can be asked. An implementation shows the question to a person who is not the agent.
pub trait Approver: fmt::Debug {
    /// Whether there is a person right now.
    fn is_there(&mut self) -> bool;

    /// Shows the question and waits: for an answer, for one from elsewhere, or until the time is over.
    fn ask(&mut self, question: &Waiting<'_>) -> Heard;

    /// What became of it, where that is not what was answered here.
    fn tell(&mut self, _text: &str) {}
}

/// What came of asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Reply(Reply),
    /// Somebody else has answered.
    Elsewhere,
    /// Nobody answered in time.
    Silence,
    /// Whoever was asked went away, or this process is to end.
    Interrupted,
    /// This process ends, and others can answer after it: the question waits on without it where it can.
    Left,
}

/// Nobody: every question is refused, unless somebody else watches.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Approver for Nobody {
    fn is_there(&mut self) -> bool {
        false
    }

    fn ask(&mut self, _question: &Waiting<'_>) -> Heard {
        Heard::Interrupted
    }
}

/// How long a question waits where the operator says nothing (S003-13).
pub(crate) fn patience(risk: Risk) -> std::time::Duration {
    std::time::Duration::from_secs(match risk {
        Risk::Low => 30,
        Risk::Medium => 60,
        Risk::High => 120,
        Risk::Critical => 300,
    })
}

/// The answer to what was denied before in the same session.
pub(crate) fn denied_before() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Session,
        rule: DENIED_BEFORE.to_owned(),
        message: "the same action was denied before in this session".to_owned(),
        hint: Some("do something else: asking again does not change the answer".to_owned()),
    }
}

pub(crate) fn is_operator(principal: &Principal) -> bool {
    principal.is_person()
}
