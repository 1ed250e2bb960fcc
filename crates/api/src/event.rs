//! What happens, as it happens.

use ringfence_types::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Events of the ledger and of agents, as a stream. `after` is the last one that was seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Subscribe {
    /// `None`: from now on.
    pub after: Option<u64>,
    /// Of this session alone.
    #[schemars(with = "Option<String>")]
    pub session: Option<SessionId>,
}

/// One event. Its number only ever grows; to go on after a break, say the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Happened {
    pub seq: u64,
    /// RFC 3339.
    pub time: String,
    /// As in the ledger.
    pub kind: String,
    #[schemars(with = "Option<String>")]
    pub session: Option<SessionId>,
    pub event: serde_json::Value,
}
