//! The pipeline: the one path that every effect takes, and the sessions that carry it.
//!
//! Start reading at [`pipeline`]. This is the only crate that knows the order in which policy, ledger and sandbox
//! are asked; each of them knows nothing of the others.

pub mod approval;
pub mod attack;
mod consider;
pub mod doctor;
mod environment;
mod facts;
mod home;
pub mod identity;
pub mod images;
mod leaks;
pub mod network;
mod observe;
mod outbound;
pub mod pipeline;
pub mod policy_files;
pub mod proposal;
mod quota;
mod rules;
mod salt;
pub mod secrets;
mod session;
pub mod standing;
pub mod tls;
mod weigh;
mod workspace;

pub use approval::{Approver, Heard, Nobody, local_operator, operator_of};
pub use consider::{Subject, consider, tool_refused};
pub use leaks::{LeakError, Leaked};
pub use observe::{Observer, Stage};
pub use outbound::{Outbound, OutboundError, private_value};
pub use pipeline::{Ended, Settled, TOO_MANY, Touched};
pub use session::{
    Abandoned, AgentSession, Asked, Bound, OpenSessionError, PolicySource, Runtime, Setup, Toolchain,
    end_abandoned, end_session,
};
pub use weigh::Weigher;
pub use workspace::Workspace;

/// What a caller of this crate needs from the layers below.
pub use ringfence_authz as authz;
pub use ringfence_egress::FetchResponse;
pub use ringfence_ledger as ledger;
pub use ringfence_sandbox::container;
pub use ringfence_sandbox::files::Listed;
pub use ringfence_sandbox::sweeper;
pub use ringfence_sandbox::sys::{close_on_exec, peer_pidfd};
pub use ringfence_sandbox::{Finished, Interrupt, Io, Pty, SkeletonFile, Source, Target};
pub use ringfence_web as web;
