//! What the daemon says of itself.

use ringfence_types::ScopeSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckHealth {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    pub version: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckReady {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ready {
    /// It takes sessions and calls.
    pub ready: bool,
    /// Why not.
    pub because: Vec<String>,
}

/// In the text format of Prometheus.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadMetrics {}

/// This description.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadOpenApi {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhoAmI {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Identity {
    /// `alice`, or the id of a session.
    pub name: String,
    /// `socket`, `api`, `device`, `web` or `session`.
    pub kind: String,
    #[schemars(with = "Vec<String>")]
    pub scopes: ScopeSet,
    /// `None`: every workspace.
    pub workspaces: Option<Vec<String>>,
}

/// Ends the daemon as SIGTERM does: what runs is drained first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {}
