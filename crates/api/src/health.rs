//! Methods about the daemon itself.

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
pub struct Readiness {
    /// The daemon accepts sessions and calls.
    pub ready: bool,
    /// Why it does not.
    pub reasons: Vec<String>,
}

/// Metrics in the text format of Prometheus.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadMetrics {}

/// The OpenAPI description.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadOpenApi {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhoAmI {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallerInfo {
    /// `alice`, or the id of a session.
    pub name: String,
    /// `socket`, `api`, `device`, `web` or `session`.
    pub kind: String,
    #[schemars(with = "Vec<String>")]
    pub scopes: ScopeSet,
    /// `None`: every workspace.
    pub workspaces: Option<Vec<String>>,
}

/// Stops the daemon as SIGTERM does: running calls are drained first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {}
