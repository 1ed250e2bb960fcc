//! Settings of approvals and leaks: which commands ask, and what happens to a secret on its way out.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::UnknownKeyword;
use crate::workspace::words;

words! {
    /// Which commands run without a question. The fence is the same for both.
    CommandMode("command mode") {
        /// Whatever stays inside the fence (document 002).
        Contained = "contained",
        /// Only what is on the list (documents 000 and 001).
        Listed = "listed",
    }
}

words! {
    /// What becomes of a question.
    ApprovalMode("approval mode") {
        /// A person answers.
        Ask = "ask",
        /// The answer is no.
        Never = "never",
    }
}

words! {
    /// What becomes of a flow to a host that no rule names.
    UnlistedHosts("answer about unknown hosts") {
        /// A person answers.
        Ask = "ask",
        /// The answer is no.
        Deny = "deny",
    }
}

words! {
    /// How bad it would be if the action were not what it seems.
    Risk("risk") {
        Low = "low",
        Medium = "medium",
        High = "high",
        Critical = "critical",
    }
}

words! {
    /// What becomes of a secret that is on its way out, mildest first.
    LeakAction("action") {
        /// It passes, and is written down.
        Flag = "flag",
        /// It is taken out; everything else passes.
        Redact = "redact",
        /// It stops there: a call is not made, a stream ends.
        Block = "block",
        /// It stops there, and what caused it is ended: a command, for a call the session.
        Terminate = "terminate",
    }
}
