//! What becomes of secrets where they would leave.

use ringfence_types::LeakAction;

/// For secrets that the operator has stored, and for what only looks like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakPolicy {
    pub stored_secrets: LeakSinks,
    pub patterns: LeakSinks,
}

/// The places where a secret would leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakSinks {
    /// What a call is made of, before it is made.
    pub arguments: LeakAction,
    /// What a command prints, and what is read for an agent.
    pub output: LeakAction,
    /// What is written for an agent: files and proposals.
    pub files: LeakAction,
}

/// C-15: stored values leave nowhere; what looks like a secret is taken out of what is shown.
impl Default for LeakPolicy {
    fn default() -> Self {
        let stored_secrets =
            LeakSinks { arguments: LeakAction::Block, output: LeakAction::Redact, files: LeakAction::Block };
        let patterns =
            LeakSinks { arguments: LeakAction::Flag, output: LeakAction::Redact, files: LeakAction::Flag };
        Self { stored_secrets, patterns }
    }
}
