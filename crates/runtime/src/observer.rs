//! Progress of a call, for metrics. It contains nothing of the call's content.

use std::fmt;

use ringfence_types::{Decision, TransactionId};

/// Receives the progress of a call on the thread that makes it. INVARIANT: implementations do not block,
/// because the call would wait.
pub trait CallObserver: fmt::Debug + Send + Sync {
    /// This stage begins, and the previous one ended.
    fn reached(&self, stage: PipelineStage);

    /// The decision of policy, before any approval.
    fn decided(&self, decision: Decision);

    /// The transaction of the current evaluation. A changed binding during an approval leads to a new one.
    fn begun(&self, transaction: &TransactionId);
}

/// The transitions of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PipelineStage {
    /// Origin, current policy, and leak scan.
    Authenticate,
    Decide,
    /// Waits for an approval.
    Ask,
    /// Writes the intent.
    Admit,
    Run,
    /// Writes the outcome.
    Settle,
}

impl PipelineStage {
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
