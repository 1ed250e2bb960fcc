//! What the operator allows, as one value: built from a profile, startup flags and policy files, never from a call.

mod container;
mod intersection;
mod leaks;

use ringfence_types::{
    Access, ApprovalMode, Backend, ByteString, CommandMode, Control, Limits, NetMode, Profile, UnlistedHosts,
};

use crate::command::CommandRules;
use crate::danger::DangerFlags;
use crate::env::EnvRules;
use crate::hosts::HostRules;
use crate::path_rules::PathRules;
use crate::tools::ToolRules;

pub use container::ContainerPolicy;
pub use intersection::roots_held_to;
pub use leaks::{LeakPolicy, LeakSinks};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub profile: Profile,
    pub commands: CommandMode,
    pub approval: ApprovalMode,
    /// What the workspace itself gives.
    pub access: Access,
    pub danger: DangerFlags,
    /// The most network a call may ask for.
    pub net: NetMode,
    pub unlisted_hosts: UnlistedHosts,
    /// The backend that was asked for; `None` is the strongest this machine has.
    pub backend: Option<Backend>,
    /// For the backend `container`.
    pub container: ContainerPolicy,
    pub limits: Limits,
    /// Controls without which nothing runs.
    pub floor: Vec<Control>,
    /// What becomes of secrets on their way out.
    pub leaks: LeakPolicy,
    /// The home directory of the person who started Ringfence: where the sensitive roots are.
    pub home: Option<ByteString>,
    /// Who asks, where rules are about one agent.
    pub agent: Option<String>,
    pub rules: PolicyRules,
    /// What the session began with, where this was read while it ran: nothing is beyond that.
    pub began: Option<Box<Self>>,
}

/// The rules of all policy files together. Each rule knows its layer; what a lower layer adds can only narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRules {
    pub commands: CommandRules,
    pub paths: PathRules,
    pub env: EnvRules,
    pub hosts: HostRules,
    pub tools: ToolRules,
}

impl Policy {
    /// The profile with nothing opened: no flag, no network, every control required.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            commands: commands(profile),
            approval: approval(profile),
            access: access(profile),
            danger: DangerFlags::default(),
            net: NetMode::None,
            unlisted_hosts: unlisted_hosts(profile),
            backend: None,
            container: ContainerPolicy::default(),
            limits: limits(profile),
            floor: Control::ALL.to_vec(),
            leaks: LeakPolicy::default(),
            home: None,
            agent: None,
            rules: PolicyRules::default(),
            began: None,
        }
    }
}

fn commands(profile: Profile) -> CommandMode {
    match profile {
        Profile::Workspace | Profile::Danger => CommandMode::Contained,
        Profile::Review | Profile::Guarded | Profile::Strict | Profile::AirGapped => CommandMode::Listed,
    }
}

fn approval(profile: Profile) -> ApprovalMode {
    match profile {
        Profile::Strict | Profile::AirGapped => ApprovalMode::Never,
        Profile::Review | Profile::Guarded | Profile::Workspace | Profile::Danger => ApprovalMode::Ask,
    }
}

fn access(profile: Profile) -> Access {
    match profile {
        Profile::Review | Profile::Strict | Profile::AirGapped => Access::Read,
        Profile::Guarded | Profile::Workspace | Profile::Danger => Access::Write,
    }
}

fn unlisted_hosts(profile: Profile) -> UnlistedHosts {
    match profile {
        Profile::Workspace | Profile::Danger => UnlistedHosts::Ask,
        Profile::Review | Profile::Guarded | Profile::Strict | Profile::AirGapped => UnlistedHosts::Deny,
    }
}

/// The most network that a profile can ever be given.
pub fn net_ceiling(profile: Profile) -> NetMode {
    match profile {
        Profile::AirGapped => NetMode::None,
        Profile::Strict => NetMode::Filtered,
        Profile::Review | Profile::Guarded | Profile::Workspace | Profile::Danger => NetMode::Full,
    }
}

/// The numbers of document 004 where it has some, those of document 000 elsewhere.
fn limits(profile: Profile) -> Limits {
    const MIB: u64 = 1024 * 1024;
    let common = Limits::default();
    match profile {
        Profile::Strict => Limits {
            memory_bytes: 512 * MIB,
            processes: 10,
            file_size_bytes: 10 * MIB,
            tmp_bytes: 64 * MIB,
            wall_ms: Some(30_000),
            ..common
        },
        Profile::AirGapped => Limits {
            memory_bytes: 256 * MIB,
            processes: 10,
            file_size_bytes: 10 * MIB,
            tmp_bytes: 64 * MIB,
            wall_ms: Some(60_000),
            ..common
        },
        Profile::Review | Profile::Guarded | Profile::Workspace | Profile::Danger => common,
    }
}
