//! What may follow what: the life of a transaction, a grant and a session. Pure; asked before every write and again by
//! [`crate::verify()`].
//!
//! ```text
//!  (proposed → conflicted* →) (requested → voted* → decided → grant?) → intent → launched? → limit* → settled
//!                                                            └→ refused            └→ refused, interrupted
//!  proposed → discarded
//! ```

use ringfence_types::Fingerprint;

use crate::approval::ApprovalAnswer;
use crate::event::{Event, Kind};

/// Where a transaction is. It moves only forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    proposed: bool,
    asked: bool,
    voters: Vec<String>,
    answer: Option<(ApprovalAnswer, Fingerprint)>,
    intended: bool,
    end: Option<Kind>,
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
        if self.end.is_some() {
            return Err(OutOfOrder::Closed);
        }
        match event {
            Event::Proposed { .. } => self.propose(),
            Event::Conflicted { .. } => self.proposed.then_some(()).ok_or(OutOfOrder::NotProposed),
            Event::ApprovalRequested(_) => self.ask(),
            Event::ApprovalVoted(vote) => self.vote(vote.by.identity()),
            Event::ApprovalDecided(decision) => self.answer(decision.answer, &decision.fingerprint),
            Event::GrantMade(_) => self.permitted(),
            Event::Intent { fingerprint, .. } => self.intend(fingerprint),
            Event::Launched { .. } | Event::LimitHit { .. } => self.begun(),
            Event::Settled { .. } | Event::Interrupted { .. } => {
                self.begun().map(|()| self.end = Some(event.kind()))
            }
            Event::Refused { .. } => {
                self.end = Some(Kind::Refused);
                Ok(())
            }
            Event::Discarded { .. } if !self.proposed => Err(OutOfOrder::NotProposed),
            Event::Discarded { .. } if self.intended => Err(OutOfOrder::IntendedTwice),
            Event::Discarded { .. } => {
                self.end = Some(Kind::Discarded);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub fn status(&self) -> Status {
        match self.end {
            Some(Kind::Settled) => Status::Completed,
            Some(Kind::Interrupted) => Status::Interrupted,
            Some(Kind::Discarded) => Status::Discarded,
            Some(_) => Status::Refused,
            None if self.intended => Status::InProgress,
            None if self.answer.is_some() => Status::Approved,
            None if self.asked => Status::AwaitingApproval,
            None if self.proposed => Status::Proposed,
            None => Status::Created,
        }
    }

    /// Asked about, and nobody has answered yet.
    pub fn is_pending(&self) -> bool {
        self.asked && self.answer.is_none() && self.end.is_none()
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
        if !self.asked {
            return Err(OutOfOrder::NotAsked);
        }
        if self.answer.is_some() {
            return Err(OutOfOrder::AnsweredTwice);
        }
        if self.voters.contains(&voter) {
            return Err(OutOfOrder::VotedTwice);
        }
        self.voters.push(voter);
        Ok(())
    }

    fn answer(&mut self, answer: ApprovalAnswer, fingerprint: &Fingerprint) -> Result<(), OutOfOrder> {
        if !self.asked {
            return Err(OutOfOrder::NotAsked);
        }
        if self.answer.is_some() {
            return Err(OutOfOrder::AnsweredTwice);
        }
        self.answer = Some((answer, fingerprint.clone()));
        Ok(())
    }

    fn permitted(&self) -> Result<(), OutOfOrder> {
        match &self.answer {
            Some((answer, _)) if answer.permits() => Ok(()),
            Some(_) => Err(OutOfOrder::NotPermitted),
            None => Err(OutOfOrder::NotAsked),
        }
    }

    /// An effect follows no question, or a yes to exactly this.
    fn intend(&mut self, fingerprint: &Fingerprint) -> Result<(), OutOfOrder> {
        if self.intended {
            return Err(OutOfOrder::IntendedTwice);
        }
        match &self.answer {
            Some((answer, _)) if !answer.permits() => return Err(OutOfOrder::NotPermitted),
            Some((_, permitted)) if permitted != fingerprint => return Err(OutOfOrder::OtherAction),
            None if self.asked => return Err(OutOfOrder::NotPermitted),
            _ => {}
        }
        self.intended = true;
        Ok(())
    }

    fn begun(&self) -> Result<(), OutOfOrder> {
        self.intended.then_some(()).ok_or(OutOfOrder::NotIntended)
    }
}
