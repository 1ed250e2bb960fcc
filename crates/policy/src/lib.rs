//! From files and startup flags to one [`Policy`](ringfence_authz::Policy): the format with its schema, the layers and how they merge, where each
//! value comes from, and the settings that are not policy (approvals, daemon, telemetry).
//!
//! INVARIANT: nothing here does I/O. A [`PolicyLoader`] reads what a file names; the caller decides what may be read.
//!
//! What it is not: nothing is decided here. [`ringfence_authz`] decides about actions and never sees a file.
//!
//! What the attacker controls here: every byte of a workspace file. What the attacker does not control: the operator's
//! files and the flags.

mod check;
mod command_words;
mod container;
mod edit;
mod file;
mod format;
mod layers;
mod leaks;
mod limits;
mod problem;
mod rules;
mod settings;
mod source_text;
pub mod test_cases;
mod toml_reader;

pub use edit::{PolicyWriteError, with_approved};
pub use file::{PolicyFile, PolicyFileRole, PolicyLoader};
pub use layers::{
    EffectivePolicy, EffectiveSetting, FileAuthority, IN_WORKSPACE, StartupFlags, WideningRequest,
    configured_workspaces, effective, overlapping, trust,
};
pub use limits::LimitFlags;
pub use problem::{PolicyError, PolicyProblem};
pub use settings::{
    ApprovalSettings, DaemonSettings, ExportHeader, HeaderSource, NotifyChannel, OperatorSettings,
    TelemetryDetail, TelemetrySettings, TelemetrySignal, TlsSettings, WebhookSettings, settings,
};
pub use source_text::{Excerpt, MAX_BYTES, sha256};

#[cfg(test)]
mod tests;
