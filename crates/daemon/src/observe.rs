//! Observability: the event feed, metrics and telemetry.

pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod telemetry;
