//! How far a call has come, for whoever measures it. Nothing of what the call is about is told here.

use std::fmt;

use ringfence_types::{Decision, TransactionId};

/// Told how far a call has come, by the thread that makes it. INVARIANT: it does not wait, for the call would.
pub trait Observer: fmt::Debug + Send + Sync {
    /// This begins now, and what came before is over.
    fn reached(&self, stage: Stage);

    /// What policy says, before anybody is asked.
    fn decided(&self, decision: Decision);

    /// What is judged now has this number, unless what it is about changes while somebody is asked.
    fn begun(&self, transaction: &TransactionId);
}

/// The states of the pipeline, by what is done on the way to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Who asks, by which policy, and whether a secret would leave with it.
    Authenticate,
    Decide,
    /// A person is asked.
    Ask,
    /// The intent is written down.
    Admit,
    Run,
    /// What came of it is written down.
    Settle,
}

impl Stage {
    pub const ALL: [Self; 6] =
        [Self::Authenticate, Self::Decide, Self::Ask, Self::Admit, Self::Run, Self::Settle];

    pub fn word(self) -> &'static str {
        match self {
            Self::Authenticate => "authenticate",
            Self::Decide => "decide",
            Self::Ask => "ask",
            Self::Admit => "admit",
            Self::Run => "run",
            Self::Settle => "settle",
        }
    }
}
