//! Held changes: changes from inside that a host program would execute or obey.

use serde::{Deserialize, Serialize};

use crate::{ByteString, RuleName};

/// A change from inside that a host program would have executed or obeyed. It was made ineffective.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldChange {
    pub path: ByteString,
    /// `held.git-config`, `held.git-hook` and so on.
    pub rule: RuleName,
    /// Description for a person: the name of a setting, never its value.
    pub what: String,
    /// New path of the original; `None`: nothing was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<ByteString>,
}
