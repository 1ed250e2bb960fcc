//! What may follow what: the life of a transaction, a grant and a session. Pure; asked before every write and again by
//! [`crate::verify()`].
//!
//! ```text
//!  (proposed → conflicted* →) (requested → voted* → decided → grant?) → intent → released* → launched? → limit*, found* → settled
//!                                                            └→ refused            └→ refused, interrupted
//!  proposed → discarded
//!  a flow: (requested → decided →) intent → flow-opened*, found* → flow-ended
//! ```

use crate::approval::ApprovalAnswer;
use crate::event::{Event, Kind};

/// State of a transaction. It only moves forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifecycle {
    proposed: bool,
    asked: bool,
    voters: Vec<String>,
    /// With the fingerprint that was answered.
    answer: Option<(ApprovalAnswer, String)>,
    intended: bool,
    end: Option<Kind>,
    /// A record was pruned: its content is unknown, only its existence is known.
    forgotten: bool,
}

/// The part of an event that decides whether it may come next.
#[derive(Clone, Debug)]
pub(crate) enum LifecycleStep<'a> {
    Propose,
    Conflict,
    Ask,
    Vote {
        voter: String,
    },
    Answer {
        answer: ApprovalAnswer,
        fingerprint: &'a str,
    },
    Grant,
    Intend {
        fingerprint: &'a str,
    },
    Run,
    End(Kind),
    /// A record without its body.
    Forgotten(Kind),
    /// Not part of a lifecycle.
    None,
}

impl<'a> LifecycleStep<'a> {
    pub(crate) fn of(event: &'a Event) -> Self {
        match event {
            Event::ApprovalVoted(vote) => Self::Vote { voter: vote.actor.identity() },
            Event::ApprovalDecided(decision) => {
                Self::Answer { answer: decision.answer, fingerprint: decision.fingerprint.as_str() }
            }
            Event::CallIntended { fingerprint, .. } => Self::Intend { fingerprint: fingerprint.as_str() },
            _ => Self::of_kind(event.kind()),
        }
    }

    /// The step of a kind whose content is irrelevant.
    pub(crate) fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::ProposalCreated => Self::Propose,
            Kind::ProposalConflicted => Self::Conflict,
            Kind::ApprovalRequested => Self::Ask,
            Kind::GrantCreated => Self::Grant,
            Kind::SecretReleased
            | Kind::SandboxStarted
            | Kind::LimitReached
            | Kind::SecretsFound
            | Kind::ChangesLanded
            | Kind::FlowOpened => Self::Run,
            Kind::CallSettled
            | Kind::FlowEnded
            | Kind::CallInterrupted
            | Kind::CallRefused
            | Kind::ProposalDiscarded => Self::End(kind),
            Kind::SessionStarted
            | Kind::SessionEnded
            | Kind::ApprovalNotified
            | Kind::ApprovalVoted
            | Kind::ApprovalOrphaned
            | Kind::ApprovalDecided
            | Kind::GrantRevoked
            | Kind::PolicyChanged
            | Kind::AuthenticationAttempted
            | Kind::IdentityChanged
            | Kind::CallIntended
            | Kind::ChangesHeld
            | Kind::LayerDiscarded
            | Kind::LoopDetected
            | Kind::ActivityReported
            | Kind::LedgerRead
            | Kind::LedgerPruned
            | Kind::BatteryFinished
            | Kind::ChainStarted
            | Kind::CheckpointSigned
            | Kind::LedgerKeyRotated
            | Kind::ChainWitnessed
            | Kind::ChainWitnessRefused
            | Kind::ChainAcknowledged => Self::None,
        }
    }

    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::End(_))
    }
}

/// Reason why an event may not come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LifecycleError {
    #[error("it has already ended")]
    Closed,
    #[error("it was asked about already")]
    AskedTwice,
    #[error("it has no approval request")]
    NotAsked,
    #[error("it was answered already")]
    AnsweredTwice,
    #[error("this person has voted already")]
    VotedTwice,
    #[error("it was asked about and not permitted")]
    NotPermitted,
    #[error("it is not what was permitted")]
    OtherAction,
    #[error("it was begun already")]
    IntendedTwice,
    #[error("it was never begun")]
    NotIntended,
    #[error("it was proposed already, or begun without a proposal")]
    ProposedTwice,
    #[error("it was never proposed")]
    NotProposed,
    #[error("it was granted already")]
    GrantedTwice,
    #[error("there is no such grant")]
    NotGranted,
    #[error("it was revoked already")]
    RevokedTwice,
    #[error("it was used as often as it may be")]
    UsedUp,
    #[error("it was started already")]
    StartedTwice,
    #[error("it was ended already")]
    EndedTwice,
}

/// Status of a transaction as shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    Created,
    Proposed,
    AwaitingApproval,
    Approved,
    InProgress,
    Completed,
    Refused,
    Discarded,
    Interrupted,
}

impl TransactionStatus {
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Proposed => "proposed",
            Self::AwaitingApproval => "awaiting-approval",
            Self::Approved => "approved",
            Self::InProgress => "in-progress",
            Self::Completed => "completed",
            Self::Refused => "refused",
            Self::Discarded => "discarded",
            Self::Interrupted => "interrupted",
        }
    }
}

impl Lifecycle {
    /// The lifecycle after these events, in order.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Self, LifecycleError> {
        let mut life = Self::default();
        events.into_iter().try_for_each(|event| life.follow(event))?;
        Ok(life)
    }

    /// Takes one step or returns the reason against it. An error leaves the lifecycle unchanged.
    pub fn follow(&mut self, event: &Event) -> Result<(), LifecycleError> {
        if event.transaction().is_none() {
            return Ok(());
        }
        self.step(LifecycleStep::of(event))
    }

    pub(crate) fn step(&mut self, step: LifecycleStep<'_>) -> Result<(), LifecycleError> {
        if self.end.is_some() {
            return Err(LifecycleError::Closed);
        }
        match step {
            LifecycleStep::Propose => self.propose(),
            LifecycleStep::Conflict => self.proposed.then_some(()).ok_or(LifecycleError::NotProposed),
            LifecycleStep::Ask => self.ask(),
            LifecycleStep::Vote { voter } => self.vote(voter),
            LifecycleStep::Answer { answer, fingerprint } => self.answer(answer, fingerprint),
            LifecycleStep::Grant => self.permitted(),
            LifecycleStep::Intend { fingerprint } => self.intend(fingerprint),
            LifecycleStep::Run => self.begun(),
            LifecycleStep::End(kind) => self.close(kind),
            LifecycleStep::Forgotten(kind) => self.forget(kind),
            LifecycleStep::None => Ok(()),
        }
    }

    pub fn status(&self) -> TransactionStatus {
        match self.end {
            Some(Kind::CallSettled | Kind::FlowEnded) => TransactionStatus::Completed,
            Some(Kind::CallInterrupted) => TransactionStatus::Interrupted,
            Some(Kind::ProposalDiscarded) => TransactionStatus::Discarded,
            Some(_) => TransactionStatus::Refused,
            None if self.intended => TransactionStatus::InProgress,
            None if self.answered().is_some_and(ApprovalAnswer::permits) => TransactionStatus::Approved,
            None if self.answer.is_some() => TransactionStatus::Refused,
            None if self.asked => TransactionStatus::AwaitingApproval,
            None if self.proposed => TransactionStatus::Proposed,
            None => TransactionStatus::Created,
        }
    }

    /// Whether an approval is pending.
    pub fn is_pending(&self) -> bool {
        self.asked && self.answer.is_none() && self.end.is_none()
    }

    pub fn is_proposed(&self) -> bool {
        self.proposed
    }

    /// Whether one of its records was pruned.
    pub(crate) fn is_partly_forgotten(&self) -> bool {
        self.forgotten
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    pub fn answered(&self) -> Option<ApprovalAnswer> {
        self.answer.as_ref().map(|(answer, _)| *answer)
    }

    fn propose(&mut self) -> Result<(), LifecycleError> {
        if self.proposed || self.asked || self.intended {
            return Err(LifecycleError::ProposedTwice);
        }
        self.proposed = true;
        Ok(())
    }

    fn ask(&mut self) -> Result<(), LifecycleError> {
        if self.asked {
            return Err(LifecycleError::AskedTwice);
        }
        if self.intended {
            return Err(LifecycleError::IntendedTwice);
        }
        self.asked = true;
        Ok(())
    }

    fn vote(&mut self, voter: String) -> Result<(), LifecycleError> {
        self.awaiting()?;
        if self.voters.contains(&voter) {
            return Err(LifecycleError::VotedTwice);
        }
        self.voters.push(voter);
        Ok(())
    }

    fn answer(&mut self, answer: ApprovalAnswer, fingerprint: &str) -> Result<(), LifecycleError> {
        self.awaiting()?;
        self.answer = Some((answer, fingerprint.to_owned()));
        Ok(())
    }

    fn awaiting(&self) -> Result<(), LifecycleError> {
        if !self.asked && !self.forgotten {
            return Err(LifecycleError::NotAsked);
        }
        self.answer.is_none().then_some(()).ok_or(LifecycleError::AnsweredTwice)
    }

    fn permitted(&self) -> Result<(), LifecycleError> {
        match &self.answer {
            Some((answer, _)) if answer.permits() => Ok(()),
            Some(_) => Err(LifecycleError::NotPermitted),
            None if self.forgotten => Ok(()),
            None => Err(LifecycleError::NotAsked),
        }
    }

    /// An intent needs either no approval request, or a yes to exactly this fingerprint.
    fn intend(&mut self, fingerprint: &str) -> Result<(), LifecycleError> {
        if self.intended {
            return Err(LifecycleError::IntendedTwice);
        }
        match &self.answer {
            Some((answer, _)) if !answer.permits() => return Err(LifecycleError::NotPermitted),
            Some((_, permitted)) if permitted != fingerprint => return Err(LifecycleError::OtherAction),
            None if self.asked && !self.forgotten => return Err(LifecycleError::NotPermitted),
            _ => {}
        }
        self.intended = true;
        Ok(())
    }

    fn begun(&self) -> Result<(), LifecycleError> {
        self.intended.then_some(()).ok_or(LifecycleError::NotIntended)
    }

    fn close(&mut self, kind: Kind) -> Result<(), LifecycleError> {
        match kind {
            Kind::CallSettled | Kind::FlowEnded | Kind::CallInterrupted => self.begun()?,
            Kind::ProposalDiscarded if !self.proposed => return Err(LifecycleError::NotProposed),
            Kind::ProposalDiscarded if self.intended => return Err(LifecycleError::IntendedTwice),
            _ => {}
        }
        self.end = Some(kind);
        Ok(())
    }

    /// Takes the step of a pruned record: unique events stay unique, and the content is assumed to have been valid.
    fn forget(&mut self, kind: Kind) -> Result<(), LifecycleError> {
        self.forgotten = true;
        match kind {
            Kind::ApprovalVoted | Kind::ApprovalDecided => Ok(()),
            Kind::CallIntended if self.intended => Err(LifecycleError::IntendedTwice),
            Kind::CallIntended => {
                self.intended = true;
                Ok(())
            }
            kind => self.step(LifecycleStep::of_kind(kind)),
        }
    }
}
