//! The steps of a launch, in order. A failure is `(step, operation index, errno)`; the parent adds the text.

/// Discriminants are the wire format and the order: a plan whose operations go backwards is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum LaunchStep {
    Receive = 1,
    CloseFds = 2,
    Cgroup = 3,
    Namespaces = 4,
    IdMaps = 5,
    NoNestedNamespaces = 6,
    Init = 7,
    Hostname = 8,
    Loopback = 9,
    Network = 10,
    Doors = 11,
    Stage = 12,
    Skeleton = 13,
    Seal = 14,
    Devices = 15,
    System = 16,
    Roots = 17,
    Pins = 18,
    Protect = 19,
    Masks = 20,
    Pivot = 21,
    Limits = 22,
    Capabilities = 23,
    NoNewPrivileges = 24,
    Landlock = 25,
    Seccomp = 26,
    Report = 27,
    Command = 28,
}

impl LaunchStep {
    pub const ALL: [Self; 28] = [
        Self::Receive,
        Self::CloseFds,
        Self::Cgroup,
        Self::Namespaces,
        Self::IdMaps,
        Self::NoNestedNamespaces,
        Self::Init,
        Self::Hostname,
        Self::Loopback,
        Self::Network,
        Self::Doors,
        Self::Stage,
        Self::Skeleton,
        Self::Seal,
        Self::Devices,
        Self::System,
        Self::Roots,
        Self::Pins,
        Self::Protect,
        Self::Masks,
        Self::Pivot,
        Self::Limits,
        Self::Capabilities,
        Self::NoNewPrivileges,
        Self::Landlock,
        Self::Seccomp,
        Self::Report,
        Self::Command,
    ];

    pub fn from_wire(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step as u32 == number)
    }

    /// What the step does, as the object of "cannot …".
    pub fn describe(self) -> &'static str {
        match self {
            Self::Receive => "receive the plan",
            Self::CloseFds => "close inherited file descriptors",
            Self::Cgroup => "enter the control group",
            Self::Namespaces => "create namespaces",
            Self::IdMaps => "map the user and group id",
            Self::NoNestedNamespaces => "forbid nested user namespaces",
            Self::Init => "start PID 1",
            Self::Hostname => "set the host name",
            Self::Loopback => "bring up loopback",
            Self::Network => "catch what leaves the network namespace",
            Self::Doors => "open the doors of the network",
            Self::Stage => "prepare the new root",
            Self::Skeleton => "build the read-only system",
            Self::Seal => "make the system read-only",
            Self::Devices => "build /dev, /proc and /tmp",
            Self::System => "mount an overlay over a directory of the system",
            Self::Roots => "bind the writable roots",
            Self::Pins => "pin the ancestors of protected paths",
            Self::Protect => "make protected paths read-only",
            Self::Masks => "mask hidden files",
            Self::Pivot => "switch to the new root",
            Self::Limits => "set resource limits",
            Self::Capabilities => "drop capabilities",
            Self::NoNewPrivileges => "set no_new_privs",
            Self::Landlock => "enforce Landlock",
            Self::Seccomp => "install the seccomp filter",
            Self::Report => "report",
            Self::Command => "start the command",
        }
    }
}
