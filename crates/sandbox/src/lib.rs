//! All kernel knowledge of the parent side: probe, compile permissions into a plan, start the launcher, supervise,
//! kill. Policy-free: it does what a `SandboxSpec` says and reports what the kernel then enforces.
//!
//! The way through: [`SandboxSpec`] + [`survey`] → [`compile`] → plan → [`Sandbox::start`] → [`Sandbox::run`].

mod approval;
pub mod backend;
pub mod beneath;
mod cgroup;
mod control_socket;
mod etc_files;
pub mod files;
pub mod git_config;
mod held_changes;
mod host_sockets;
mod mount_guard;
mod plan_compiler;

mod landlock;
mod launch_sequence;
mod launcher;
mod layer_view;
mod lease;
mod message_demux;
mod meter;
mod netfilter;
mod netlink;
mod netns;
pub mod placeholders;
mod posture;
mod pty;
mod relay;
mod sandbox;
pub mod seccomp;
mod spec;
pub mod survey;
pub mod sweeper;
pub mod sys;
mod system_root;
pub mod usage;

pub use approval::{ApprovedFiles, FilePlace};
pub use backend::container::{ContainerMaker, ContainerPool, ContainerPoolKey, RunningContainer};
pub use held_changes::{
    After, Before, ExaminationError, GitIndexEntry, ObjectFormat, WatchError, before, visit_index,
};
pub use landlock::{NEWEST_KNOWN_ABI, abi as landlock_abi};
pub use layer_view::{LayerMountPaths, LayerSource};
pub use netns::ProxySockets;
pub use plan_compiler::PlanError;
pub use pty::Pty;
pub use relay::{
    CommandExit, CommandIo, FilterAction, IdleSpan, OutputTarget, PauseGuard, RelayPause, SignalForward,
    StdinSource, StreamFilter, StreamFilters,
};
pub use sandbox::{CommandRunError, JobId, Sandbox, SandboxJob, SandboxStartError, UnsupportedFeature};
pub use spec::{
    HOME_INSIDE, HostView, SECRETS_INSIDE, SandboxCommand, SandboxSpec, SecretFile, SkeletonFile,
};
pub use system_root::is_system;
