//! From what the launcher read back from the kernel to the posture that is shown, recorded and compared with the floor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringfence_launch::wire::Achieved;
use ringfence_types::{Access, Backend, Bytes, Control, Gap, Level, NetMode, Posture};

use crate::cgroup::Cgroups;
use crate::host_sockets::Coverage;
use crate::meter;
use crate::network::Doors;
use crate::spec::{Spec, View};

/// What was asked of the kernel and what it said afterwards.
pub(crate) struct Evidence<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) achieved: Achieved,
    pub(crate) landlock_abi: Option<u32>,
    pub(crate) cgroups: &'a Cgroups,
    pub(crate) doors: Option<&'a Doors>,
    pub(crate) coverage: &'a Coverage,
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
            Control::Ipc => ipc(evidence, 0),
            _ => partial("mounts", "Landlock is not available in this kernel"),
        };
    };
    match control {
        Control::FsRead | Control::FsWrite if matches!(spec.view, View::WholeMachine { .. }) => {
            whole_machine(spec)
        }
        Control::FsRead | Control::FsWrite => enforced(&format!("mounts, Landlock ABI {abi}")),
        Control::Net => net(evidence),
        Control::Pid => enforced("PID namespace"),
        Control::Ipc => ipc(evidence, abi),
        Control::Syscalls => syscalls(evidence),
        Control::Limits | Control::Env => enforced(""),
    }
}

/// The first ABI at which Landlock tells sockets of the own domain from those of the host.
const TELLS_SOCKETS: u32 = 9;

fn ipc(evidence: &Evidence<'_>, abi: u32) -> Level {
    let spec = evidence.spec;
    if matches!(spec.view, View::WholeMachine { .. }) {
        return absent("profile `danger` shows the host's sockets", "use --profile workspace");
    }
    if shares_the_network(spec) && abi < 6 {
        return partial(
            "IPC namespace",
            "abstract Unix sockets of the host (needs Landlock ABI 6, Linux 6.12)",
        );
    }
    if abi >= TELLS_SOCKETS {
        return enforced("IPC namespace, own sockets only (Landlock)");
    }
    let places = host_places(evidence);
    if places.is_empty() {
        return enforced("IPC namespace, own sockets only");
    }
    let by = match evidence.coverage.open() {
        [] => "IPC namespace, no socket of the host outside the roots, masks over those in them at the start",
        _ => "IPC namespace, masks over the sockets of the host that the kernel lists at the start",
    };
    let missing = format!(
        "a Unix socket that a program of the host serves in {} (needs Landlock ABI {TELLS_SOCKETS}, Linux 7.1)",
        places.join(" or ")
    );
    Level::Partial { by: by.to_owned(), missing, gap: Gap::Bounded }
}

/// Where a socket of the host can be that nothing covers.
fn host_places(evidence: &Evidence<'_>) -> Vec<String> {
    let mut places = Vec::new();
    if evidence.spec.roots.iter().any(|root| root.access != Access::None) {
        places.push("a root during the session".to_owned());
    }
    let open: BTreeSet<String> = evidence.coverage.open().iter().map(|path| named(path)).collect();
    if !open.is_empty() {
        let open: Vec<String> = open.into_iter().collect();
        places.push(format!("{} without being in the list of the kernel at the start", open.join(", ")));
    }
    places
}

/// Of /etc many directories are shown: one name says it.
fn named(directory: &Path) -> String {
    let directory = if directory.starts_with("/etc") { Path::new("/etc") } else { directory };
    Bytes::from(directory).display()
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
    let landlock = format!("Landlock ABI {abi}");
    match control {
        Control::FsRead => partial(
            &landlock,
            "hidden files inside a readable root cannot be masked; names, sizes, times and attributes of every file \
             of the host can be seen",
        ),
        Control::FsWrite => partial(
            &landlock,
            "protected paths inside a writable root stay writable; mode, owner, times and extended attributes of \
             the caller's files can be changed anywhere on the host",
        ),
        Control::Net if evidence.spec.net == NetMode::None => {
            partial("seccomp (no internet sockets)", "interfaces and ports of the host can be seen")
        }
        Control::Net => net(evidence),
        Control::Pid if abi >= 6 => partial(
            "Landlock scopes (signals, ptrace), seccomp (priority, limits)",
            "processes of the host can be seen, and those of the caller be given other processors and scheduling",
        ),
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
            partial("mounts over the sensitive roots", "everything else is open")
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
        (1, 2, _) => partial(
            "seccomp, no_new_privs",
            "the bounding set keeps capabilities, which no_new_privs makes useless",
        ),
        _ => absent("no seccomp filter is in force", "use a kernel with CONFIG_SECCOMP_FILTER"),
    }
}

fn limits(evidence: &Evidence<'_>) -> Level {
    let (cgroups, spec) = (evidence.cgroups, evidence.spec);
    let (memory, pids) = (cgroups.controls("memory"), cgroups.controls("pids"));
    let mut by = match (memory, pids) {
        (true, true) => format!("{}, rlimits (processor time per process)", cgroups.describe()),
        (true, false) => format!("{} in part, rlimits (processor time per process)", cgroups.describe()),
        (false, true) => {
            format!("{} in part, rlimits (processor time per process), memory counted", cgroups.describe())
        }
        (false, false) => "rlimits (processor time per process), memory counted".to_owned(),
    };
    if spec.limits.wall_ms.is_some() {
        by.push_str(", wall clock");
    }
    if spec.limits.millicpus.is_some() && !cgroups.controls("cpu") {
        return partial(&by, "the share of the processor (needs a cpu control group)");
    }
    // KERNEL: the process limit does not bind root.
    if !pids && rustix::process::geteuid().is_root() {
        return partial(&by, "the number of processes (no pids control group can be made)");
    }
    if matches!(spec.backend, Backend::External | Backend::None) {
        return partial(&by, "/tmp is the one outside and has no limit of its own");
    }
    if !memory {
        let missing = format!(
            "more memory for up to {} ms, and memory that no process has open or mapped (needs a memory control group)",
            meter::ROUND.as_millis()
        );
        return Level::Partial { by, missing, gap: Gap::Bounded };
    }
    enforced(&by)
}

fn partial(by: &str, missing: &str) -> Level {
    Level::Partial { by: by.to_owned(), missing: missing.to_owned(), gap: Gap::Open }
}

fn enforced(by: &str) -> Level {
    Level::Enforced { by: by.to_owned() }
}

fn absent(reason: &str, fix: &str) -> Level {
    Level::Absent { reason: reason.to_owned(), fix: fix.to_owned() }
}
