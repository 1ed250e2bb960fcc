use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Something that came from inside and would have made a program of the host execute or obey it. It was made ineffective.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldChange {
    pub path: Bytes,
    /// `held.git-config`, `held.git-hook` and so on.
    pub rule: String,
    /// What it was, for a person: the name of a setting, never its value.
    pub what: String,
    /// Where the original is now; `None` where nothing was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Bytes>,
}
