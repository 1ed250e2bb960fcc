//! Methods about events.

use ringfence_types::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Streams the events of the ledger.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Subscribe {
    /// The number of the last event that the client has seen. `None`: only new events.
    pub after: Option<u64>,
    /// Only events of this session.
    #[schemars(with = "Option<String>")]
    pub session: Option<SessionId>,
}

/// One event. Numbers only grow; after a disconnect, pass the last one as `after`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventMessage {
    pub seq: u64,
    /// RFC 3339.
    pub time: String,
    /// As in the ledger.
    pub kind: String,
    #[schemars(with = "Option<String>")]
    pub session: Option<SessionId>,
    pub event: serde_json::Value,
}
