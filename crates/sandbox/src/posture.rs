//! From what the launcher read back from the kernel to the posture that is shown, recorded and compared with the floor.

use std::collections::BTreeMap;

use ringfence_launch::wire::Achieved;
use ringfence_types::{Backend, Control, Level, NetMode, Posture};

use crate::cgroup::Cgroups;
use crate::network::Doors;
use crate::spec::{Spec, View};

/// What was asked of the kernel and what it said afterwards.
pub(crate) struct Evidence<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) achieved: Achieved,
    pub(crate) landlock_abi: Option<u32>,
    pub(crate) cgroups: &'a Cgroups,
    pub(crate) doors: Option<&'a Doors>,
}

pub(crate) fn posture(evidence: &Evidence<'_>) -> Posture {
    let backend = evidence.spec.backend;
    let landlock_abi = evidence.landlock_abi.filter(|_| evidence.achieved.landlock == 1);
    let mut controls = BTreeMap::new();
    for control in Control::ALL {
        controls.insert(*control, level(*control, evidence, landlock_abi));
    }
    Posture { backend, controls, landlock_abi }
}

fn level(control: Control, evidence: &Evidence<'_>, landlock_abi: Option<u32>) -> Level {
    let spec = evidence.spec;
    if control == Control::Env {
        return enforced("cleared environment");
    }
    if control == Control::Limits {
        return limits(evidence);
    }
    match spec.backend {
        Backend::Native | Backend::Bubblewrap | Backend::Container => {
            namespaced(control, evidence, landlock_abi)
        }
        Backend::Landlock => landlocked(control, evidence, landlock_abi),
        Backend::External => external(control, evidence),
        Backend::None => bare(control, spec),
    }
}

fn namespaced(control: Control, evidence: &Evidence<'_>, landlock_abi: Option<u32>) -> Level {
    let spec = evidence.spec;
    let Some(abi) = landlock_abi else {
        return match control {
            Control::Syscalls => syscalls(evidence),
            Control::Net => net(evidence),
            Control::Pid => enforced("PID namespace"),
            Control::Ipc => enforced("IPC namespace"),
            _ => Level::Partial {
                by: "mounts".into(),
                missing: "Landlock is not available in this kernel".into(),
            },
        };
    };
    match control {
        Control::FsRead | Control::FsWrite if matches!(spec.view, View::WholeMachine { .. }) => {
            whole_machine(spec)
        }
        Control::FsRead | Control::FsWrite => enforced(&format!("mounts, Landlock ABI {abi}")),
        Control::Net => net(evidence),
        Control::Pid => enforced("PID namespace"),
        Control::Ipc if matches!(spec.view, View::WholeMachine { .. }) => {
            absent("profile `danger` shows the host's sockets", "use --profile workspace")
        }
        Control::Ipc if shares_the_network(spec) && abi < 6 => Level::Partial {
            by: "IPC namespace".into(),
            missing: "abstract Unix sockets of the host (needs Landlock ABI 6, Linux 6.12)".into(),
        },
        Control::Ipc => enforced("IPC namespace, own sockets only"),
        Control::Syscalls => syscalls(evidence),
        Control::Limits | Control::Env => enforced(""),
    }
}

/// Of a container `full` is the engine's network, and has no sockets of the host in it.
fn shares_the_network(spec: &Spec) -> bool {
    spec.net == NetMode::Full && spec.backend != Backend::Container
}

/// What profile `danger` promises about files: the sensitive roots are hidden, nothing else.
fn whole_machine(spec: &Spec) -> Level {
    match &spec.view {
        View::WholeMachine { hidden, .. } if !hidden.is_empty() => {
            enforced("mounts over the sensitive roots; profile `danger` opens the rest")
        }
        _ => absent(
            "profile `danger` with --allow-sensitive-roots opens everything",
            "use --profile workspace",
        ),
    }
}

fn landlocked(control: Control, evidence: &Evidence<'_>, landlock_abi: Option<u32>) -> Level {
    let Some(abi) = landlock_abi else {
        return absent(
            "Landlock is not available in this kernel",
            "use Linux 5.13 or newer with Landlock enabled",
        );
    };
    match control {
        Control::FsRead => Level::Partial {
            by: format!("Landlock ABI {abi}"),
            missing: "hidden files inside a readable root cannot be masked".into(),
        },
        Control::FsWrite => Level::Partial {
            by: format!("Landlock ABI {abi}"),
            missing: "protected paths inside a writable root stay writable".into(),
        },
        Control::Net if evidence.spec.net == NetMode::None => Level::Partial {
            by: "seccomp (no internet sockets)".into(),
            missing: "interfaces and ports of the host can be seen".into(),
        },
        Control::Net => net(evidence),
        Control::Pid if abi >= 6 => Level::Partial {
            by: "Landlock scopes (signals, ptrace)".into(),
            missing: "processes of the host can be seen".into(),
        },
        Control::Pid => absent("no PID namespace could be made", "see `ringfence doctor`"),
        Control::Ipc => absent(
            "host Unix sockets and System V IPC are within reach",
            "enable unprivileged user namespaces",
        ),
        Control::Syscalls => syscalls(evidence),
        Control::Limits | Control::Env => enforced(""),
    }
}

/// A cover over the sensitive roots is all that `none` can have.
fn bare(control: Control, spec: &Spec) -> Level {
    match (control, &spec.view) {
        (Control::FsRead | Control::FsWrite, View::WholeMachine { hidden, .. }) if !hidden.is_empty() => {
            Level::Partial {
                by: "mounts over the sensitive roots".into(),
                missing: "everything else is open".into(),
            }
        }
        _ => absent("the backend `none` contains nothing", "leave out --backend none"),
    }
}

fn external(control: Control, evidence: &Evidence<'_>) -> Level {
    match control {
        Control::Syscalls => syscalls(evidence),
        _ => Level::Declared { by: "the operator declared an outer container as the boundary".into() },
    }
}

/// `full` is what was asked for: the control is the absence of a network, and there is none.
fn net(evidence: &Evidence<'_>) -> Level {
    match (evidence.spec.net, evidence.doors) {
        (NetMode::None, _) => enforced("network namespace"),
        (NetMode::Filtered, Some(doors)) => filtered(doors),
        (NetMode::Filtered, None) => {
            absent("the doors of the filtered network are missing", "use --net none")
        }
        (NetMode::Full, _) if evidence.spec.backend == Backend::Container => {
            absent("the network of the engine was asked for with --net full", "use --net none or filtered")
        }
        (NetMode::Full, _) => {
            absent("the network of the host was asked for with --net full", "use --net none")
        }
    }
}

/// The namespace is the fence in both cases; the difference is which programs have a network.
fn filtered(doors: &Doors) -> Level {
    match doors.transparent {
        Some(_) => enforced("network namespace, every connection ends at the proxy (nf_tables)"),
        None => enforced("network namespace, only the proxy can be reached (no nf_tables: by its variables)"),
    }
}

fn syscalls(evidence: &Evidence<'_>) -> Level {
    let Achieved { no_new_privs, seccomp_mode, capabilities_empty, .. } = evidence.achieved;
    match (no_new_privs, seccomp_mode, capabilities_empty) {
        (1, 2, 1) => enforced("seccomp, no_new_privs, no capabilities"),
        (1, 2, _) => Level::Partial {
            by: "seccomp, no_new_privs".into(),
            missing: "the bounding set keeps capabilities, which no_new_privs makes useless".into(),
        },
        _ => absent("no seccomp filter is in force", "use a kernel with CONFIG_SECCOMP_FILTER"),
    }
}

fn limits(evidence: &Evidence<'_>) -> Level {
    let (cgroups, spec) = (evidence.cgroups, evidence.spec);
    let (memory, pids) = (cgroups.controls("memory"), cgroups.controls("pids"));
    let mut by = match (memory, pids) {
        (true, true) => format!("{}, rlimits", cgroups.describe()),
        (true, false) | (false, true) => format!("{} in part, rlimits", cgroups.describe()),
        (false, false) => "rlimits (private memory per process)".to_owned(),
    };
    if spec.limits.wall_ms.is_some() {
        by.push_str(", wall clock");
    }
    if spec.limits.millicpus.is_some() && !cgroups.controls("cpu") {
        return Level::Partial {
            by,
            missing: "the share of the processor (needs a cpu control group)".into(),
        };
    }
    // KERNEL: the process limit does not bind root.
    if !pids && rustix::process::geteuid().is_root() {
        return Level::Partial {
            by,
            missing: "the number of processes (no pids control group can be made)".into(),
        };
    }
    if matches!(spec.backend, Backend::External | Backend::None) {
        return Level::Partial { by, missing: "/tmp is the one outside and has no limit of its own".into() };
    }
    enforced(&by)
}

fn enforced(by: &str) -> Level {
    Level::Enforced { by: by.to_owned() }
}

fn absent(reason: &str, fix: &str) -> Level {
    Level::Absent { reason: reason.to_owned(), fix: fix.to_owned() }
}
