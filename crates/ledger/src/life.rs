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

/// Where a transaction is. It moves only forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    proposed: bool,
    asked: bool,
    voters: Vec<String>,
    /// With the fingerprint of what was answered.
    answer: Option<(ApprovalAnswer, String)>,
    intended: bool,
    end: Option<Kind>,
    /// Some of it was pruned: what it said is not known, only that it was there.
    forgotten: bool,
}

/// What of an event decides whether it may come next.
#[derive(Clone, Debug)]
pub(crate) enum Step<'a> {
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
    /// Not part of a life.
    None,
}

impl<'a> Step<'a> {
    pub(crate) fn of(event: &'a Event) -> Self {
        match event {
            Event::ApprovalVoted(vote) => Self::Vote { voter: vote.by.identity() },
            Event::ApprovalDecided(decision) => {
                Self::Answer { answer: decision.answer, fingerprint: decision.fingerprint.as_str() }
            }
            Event::Intent { fingerprint, .. } => Self::Intend { fingerprint: fingerprint.as_str() },
            _ => Self::of_kind(event.kind()),
        }
    }

    /// The step of a kind whose content does not matter.
    pub(crate) fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::Proposed => Self::Propose,
            Kind::Conflicted => Self::Conflict,
            Kind::ApprovalRequested => Self::Ask,
            Kind::GrantMade => Self::Grant,
            Kind::SecretReleased | Kind::Launched | Kind::LimitHit | Kind::Found | Kind::FlowOpened => {
                Self::Run
            }
            Kind::Settled | Kind::FlowEnded | Kind::Interrupted | Kind::Refused | Kind::Discarded => {
                Self::End(kind)
            }
            _ => Self::None,
        }
    }
}

/// Why an event cannot come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OutOfOrder {
    #[error("it is over already")]
    Closed,
    #[error("it was asked about already")]
    AskedTwice,
    #[error("nobody asked about it")]
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

/// In words for people; what DESIGN calls proposed, decided, admitted and settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
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

impl Status {
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

impl Life {
    /// The life after these events, which are in order.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Self, OutOfOrder> {
        let mut life = Self::default();
        events.into_iter().try_for_each(|event| life.follow(event))?;
        Ok(life)
    }

    /// Takes one step, or says why it is none. After an error the life is as it was.
    pub fn follow(&mut self, event: &Event) -> Result<(), OutOfOrder> {
        if event.transaction().is_none() {
            return Ok(());
        }
        self.step(Step::of(event))
    }

    pub(crate) fn step(&mut self, step: Step<'_>) -> Result<(), OutOfOrder> {
        if self.end.is_some() {
            return Err(OutOfOrder::Closed);
        }
        match step {
            Step::Propose => self.propose(),
            Step::Conflict => self.proposed.then_some(()).ok_or(OutOfOrder::NotProposed),
            Step::Ask => self.ask(),
            Step::Vote { voter } => self.vote(voter),
            Step::Answer { answer, fingerprint } => self.answer(answer, fingerprint),
            Step::Grant => self.permitted(),
            Step::Intend { fingerprint } => self.intend(fingerprint),
            Step::Run => self.begun(),
            Step::End(kind) => self.close(kind),
            Step::Forgotten(kind) => self.forget(kind),
            Step::None => Ok(()),
        }
    }

    pub fn status(&self) -> Status {
        match self.end {
            Some(Kind::Settled | Kind::FlowEnded) => Status::Completed,
            Some(Kind::Interrupted) => Status::Interrupted,
            Some(Kind::Discarded) => Status::Discarded,
            Some(_) => Status::Refused,
            None if self.intended => Status::InProgress,
            None if self.answered().is_some_and(ApprovalAnswer::permits) => Status::Approved,
            None if self.answer.is_some() => Status::Refused,
            None if self.asked => Status::AwaitingApproval,
            None if self.proposed => Status::Proposed,
            None => Status::Created,
        }
    }

    /// Asked about, and nobody has answered yet.
    pub fn is_pending(&self) -> bool {
        self.asked && self.answer.is_none() && self.end.is_none()
    }

    pub fn is_proposed(&self) -> bool {
        self.proposed
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    pub fn answered(&self) -> Option<ApprovalAnswer> {
        self.answer.as_ref().map(|(answer, _)| *answer)
    }

    fn propose(&mut self) -> Result<(), OutOfOrder> {
        if self.proposed || self.asked || self.intended {
            return Err(OutOfOrder::ProposedTwice);
        }
        self.proposed = true;
        Ok(())
    }

    fn ask(&mut self) -> Result<(), OutOfOrder> {
        if self.asked {
            return Err(OutOfOrder::AskedTwice);
        }
        if self.intended {
            return Err(OutOfOrder::IntendedTwice);
        }
        self.asked = true;
        Ok(())
    }

    fn vote(&mut self, voter: String) -> Result<(), OutOfOrder> {
        self.awaiting()?;
        if self.voters.contains(&voter) {
            return Err(OutOfOrder::VotedTwice);
        }
        self.voters.push(voter);
        Ok(())
    }

    fn answer(&mut self, answer: ApprovalAnswer, fingerprint: &str) -> Result<(), OutOfOrder> {
        self.awaiting()?;
        self.answer = Some((answer, fingerprint.to_owned()));
        Ok(())
    }

    fn awaiting(&self) -> Result<(), OutOfOrder> {
        if !self.asked && !self.forgotten {
            return Err(OutOfOrder::NotAsked);
        }
        self.answer.is_none().then_some(()).ok_or(OutOfOrder::AnsweredTwice)
    }

    fn permitted(&self) -> Result<(), OutOfOrder> {
        match &self.answer {
            Some((answer, _)) if answer.permits() => Ok(()),
            Some(_) => Err(OutOfOrder::NotPermitted),
            None if self.forgotten => Ok(()),
            None => Err(OutOfOrder::NotAsked),
        }
    }

    /// An effect follows no question, or a yes to exactly this.
    fn intend(&mut self, fingerprint: &str) -> Result<(), OutOfOrder> {
        if self.intended {
            return Err(OutOfOrder::IntendedTwice);
        }
        match &self.answer {
            Some((answer, _)) if !answer.permits() => return Err(OutOfOrder::NotPermitted),
            Some((_, permitted)) if permitted != fingerprint => return Err(OutOfOrder::OtherAction),
            None if self.asked && !self.forgotten => return Err(OutOfOrder::NotPermitted),
            _ => {}
        }
        self.intended = true;
        Ok(())
    }

    fn begun(&self) -> Result<(), OutOfOrder> {
        self.intended.then_some(()).ok_or(OutOfOrder::NotIntended)
    }

    fn close(&mut self, kind: Kind) -> Result<(), OutOfOrder> {
        match kind {
            Kind::Settled | Kind::FlowEnded | Kind::Interrupted => self.begun()?,
            Kind::Discarded if !self.proposed => return Err(OutOfOrder::NotProposed),
            Kind::Discarded if self.intended => return Err(OutOfOrder::IntendedTwice),
            _ => {}
        }
        self.end = Some(kind);
        Ok(())
    }

    /// What happens once still happens once; what was said is taken as it must have been.
    fn forget(&mut self, kind: Kind) -> Result<(), OutOfOrder> {
        self.forgotten = true;
        match kind {
            Kind::ApprovalVoted | Kind::ApprovalDecided => Ok(()),
            Kind::Intent if self.intended => Err(OutOfOrder::IntendedTwice),
            Kind::Intent => {
                self.intended = true;
                Ok(())
            }
            kind => self.step(Step::of_kind(kind)),
        }
    }
}
