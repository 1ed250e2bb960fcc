//! The pipeline, the only path of every effect, and the sessions that use it.
//!
//! Start reading at [`pipeline`]. Only this crate knows the order of policy, ledger and sandbox; they do not
//! know each other.
//!
//! What it is not: it makes no decision, `authz` does. It reads no environment and writes to no terminal; the program that
//! opens a [`Runtime`] gives it a [`HostSetup`].

pub mod approvals;
mod command_env;
pub mod doctor;
mod dry_run;
pub mod effect;
mod engine_containers;
mod finding_salt;
mod home;
mod host_facts;
pub mod identity;
pub mod images;
pub mod layer;
mod leaks;
mod memory_budget;
mod observer;
pub mod operator_api;
pub mod operator_file;
mod outbound_redaction;
pub mod pipeline;
pub mod policy_files;
mod policy_reload;
pub mod proposal;
pub mod proxy;
mod quota;
mod sandbox_rules;
pub mod secrets;
mod session;
pub mod session_api;
mod signal_pipes;
pub mod tls;
mod workspace;

pub use approvals::{Approver, ApproverReply, NoApprover, local_operator, operator_of};
pub use dry_run::{DryRunSubject, consider, tool_refused};
pub use engine_containers::EngineContainers;
pub use leaks::{LeakError, LeakSummary};
pub use memory_budget::MemoryBudget;
pub use observer::{CallObserver, PipelineStage};
pub use outbound_redaction::{OutboundRedactionError, OutboundRedactor, private_value};
pub use pipeline::{CallEnd, EffectOutput, Settled, TOO_MANY};
pub use policy_reload::FileStamps;
pub use session::{
    AbandonedSessions, AgentSession, HostSetup, JointMemory, OpenSessionError, PolicySource, Runtime,
    SessionShared, SessionSpec, Toolchain, end_abandoned, end_session,
};
pub use signal_pipes::{SignalPipes, signal_of};
pub use workspace::Workspace;

/// What callers need from the crates below.
pub use ringfence_egress::{DialPermit, FetchResponse};
pub use ringfence_sandbox::files::ListedEntry;
pub use ringfence_sandbox::sweeper;
pub use ringfence_sandbox::sys::{close_on_exec, peer_pidfd};
pub use ringfence_sandbox::{
    CommandExit, CommandIo, OutputTarget, Pty, SignalForward, SkeletonFile, StdinSource,
};
