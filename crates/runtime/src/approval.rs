//! Who answers questions, and what was answered before.

use std::collections::HashMap;
use std::fmt;

use ringfence_authz::{Answer, Question};
use ringfence_types::Fingerprint;

/// Somebody who can be asked. An implementation shows the question to a person who is not the agent.
pub trait Approver: fmt::Debug {
    fn ask(&mut self, question: &Question) -> Answer;
}

/// Nobody: every question is refused.
#[derive(Debug)]
pub struct Nobody;

impl Approver for Nobody {
    fn ask(&mut self, _question: &Question) -> Answer {
        Answer::Unreachable
    }
}

/// Answers that hold for the rest of a session, by what exactly was asked. A no is kept as well: an agent that asks
/// again gets the same answer without a person being bothered (S001-25, C-19).
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    answers: HashMap<Fingerprint, Kept>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Permitted,
    Denied,
}

impl Remembered {
    pub(crate) fn of(&self, fingerprint: &Fingerprint) -> Option<Kept> {
        self.answers.get(fingerprint).copied()
    }

    pub(crate) fn keep(&mut self, fingerprint: Fingerprint, answer: &Answer) {
        let kept = match answer {
            Answer::Session | Answer::AlwaysHere(_) => Kept::Permitted,
            Answer::Deny => Kept::Denied,
            Answer::Once | Answer::Unreachable => return,
        };
        self.answers.insert(fingerprint, kept);
    }
}
