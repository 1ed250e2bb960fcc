//! All kernel knowledge of the parent side: probe, compile permissions into a plan, start the launcher, supervise,
//! kill. Policy-free: it does what a `Spec` says and reports what the kernel then enforces.
//!
//! The way through: [`Spec`] + [`survey`] → [`compile`] → plan → [`Session::start`] → [`Session::run`].

pub mod backend;
pub mod beneath;
mod cgroup;
mod compile;
pub mod container;
mod control;
mod etc;
pub mod files;
pub mod git_config;
mod guard;
mod held;
mod host_sockets;

mod landlock;
mod launcher;
mod launching;
mod lease;
mod meter;
mod netfilter;
mod netlink;
mod network;
pub mod placeholders;
mod pool;
mod post;
mod posture;
mod pty;
mod relay;
pub mod seccomp;
mod session;
mod spec;
pub mod survey;
pub mod sweeper;
pub mod sys;
mod system;
pub mod usage;

pub use compile::CompileError;
pub use held::{Before, WatchError, before};
pub use landlock::{NEWEST_KNOWN_ABI, abi as landlock_abi};
pub use network::{Doors, PROXY_PORT};
pub use pool::{Kind, Pool};
pub use pty::Pty;
pub use relay::{Filter, Filters, Finished, Flow, Hold, Interrupt, Io, Quiet, Source, Stillness, Target};
pub use session::{Job, JobId, RunError, Session, StartError, Unsupported};
pub use spec::{Command, HOME_INSIDE, SECRETS_INSIDE, SecretFile, SkeletonFile, Spec, View};
pub use system::is_system;
