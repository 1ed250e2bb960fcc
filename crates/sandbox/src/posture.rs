//! From what the launcher read back from the kernel to the posture that is shown, recorded and compared with the floor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringfence_launch::wire::LaunchReport;
use ringfence_types::units::ByteSize;
use ringfence_types::{Access, Backend, ByteString, Control, ControlLevel, Gap, NetMode, Posture};

use crate::cgroup::Cgroups;
use crate::host_sockets::Coverage;
use crate::meter;
use crate::netns::ProxySockets;
use crate::spec::{HostView, SandboxSpec};

/// What was asked of the kernel and what it said afterwards.
pub(crate) struct PostureEvidence<'a> {
    pub(crate) spec: &'a SandboxSpec,
    pub(crate) achieved: LaunchReport,
    pub(crate) landlock_abi: Option<u32>,
    pub(crate) cgroups: &'a Cgroups,
    pub(crate) doors: Option<&'a ProxySockets>,
    pub(crate) coverage: &'a Coverage,
}

pub(crate) fn posture(evidence: &PostureEvidence<'_>) -> Posture {
    let backend = evidence.spec.backend;
    let landlock_abi = evidence.landlock_abi.filter(|_| evidence.achieved.landlock == 1);
    let mut controls = BTreeMap::new();
    for control in Control::ALL {
        controls.insert(*control, level(*control, evidence, landlock_abi));
    }
    Posture { backend, controls, landlock_abi, ceiling: None }
}

fn level(control: Control, evidence: &PostureEvidence<'_>, landlock_abi: Option<u32>) -> ControlLevel {
    let spec = evidence.spec;
    if control == Control::Env {
        return env(evidence);
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

fn namespaced(control: Control, evidence: &PostureEvidence<'_>, landlock_abi: Option<u32>) -> ControlLevel {
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
        Control::FsRead | Control::FsWrite if matches!(spec.view, HostView::WholeMachine { .. }) => {
            whole_machine(spec)
        }
        Control::FsWrite if spec.layer.is_some() => {
            enforced(&format!("mounts, a layer over each writable root, Landlock ABI {abi}"))
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

fn ipc(evidence: &PostureEvidence<'_>, abi: u32) -> ControlLevel {
    let spec = evidence.spec;
    if matches!(spec.view, HostView::WholeMachine { .. }) {
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
    ControlLevel::Partial { by: by.to_owned(), missing, gap: Gap::Bounded }
}

/// Where a socket of the host can be that nothing covers.
fn host_places(evidence: &PostureEvidence<'_>) -> Vec<String> {
    let mut places = Vec::new();
    // A socket in a view is another object than the host's below it.
    let layered = |access: Access| access == Access::Write && evidence.spec.layer.is_some();
    if evidence.spec.roots.iter().any(|root| root.access != Access::None && !layered(root.access)) {
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
    ByteString::from(directory).display()
}

/// Of a container `full` is the engine's network, and has no sockets of the host in it.
fn shares_the_network(spec: &SandboxSpec) -> bool {
    spec.net == NetMode::Full && spec.backend != Backend::Container
}

/// What profile `danger` promises about files: the sensitive roots are hidden, nothing else.
fn whole_machine(spec: &SandboxSpec) -> ControlLevel {
    match &spec.view {
        HostView::WholeMachine { hidden, .. } if !hidden.is_empty() => {
            enforced("mounts over the sensitive roots; profile `danger` opens the rest")
        }
        _ => absent(
            "profile `danger` with --allow-sensitive-roots opens everything",
            "use --profile workspace",
        ),
    }
}

fn landlocked(control: Control, evidence: &PostureEvidence<'_>, landlock_abi: Option<u32>) -> ControlLevel {
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
             of the host can be seen, and what is typed into the caller's terminals be read",
        ),
        Control::FsWrite => partial(
            &landlock,
            "protected paths inside a writable root stay writable; mode, owner, times and extended attributes of \
             the caller's files can be changed anywhere on the host, and text be written to the caller's terminals",
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
fn bare(control: Control, spec: &SandboxSpec) -> ControlLevel {
    match (control, &spec.view) {
        (Control::FsRead | Control::FsWrite, HostView::WholeMachine { hidden, .. }) if !hidden.is_empty() => {
            partial("mounts over the sensitive roots", "everything else is open")
        }
        _ => absent("the backend `none` contains nothing", "leave out --backend none"),
    }
}

/// Whether a command can look into processes of its caller and signal them: those that count it, and those with the environment
/// that it does not get.
fn reaches_the_caller(evidence: &PostureEvidence<'_>) -> bool {
    match evidence.spec.backend {
        Backend::Native | Backend::Bubblewrap | Backend::Container | Backend::Landlock => false,
        Backend::External => evidence.achieved.landlock != 1,
        Backend::None => true,
    }
}

fn env(evidence: &PostureEvidence<'_>) -> ControlLevel {
    let by = "cleared environment".to_owned();
    // A cover over the sensitive roots takes a user namespace, and a process in it cannot look into one outside.
    let is_covered =
        matches!(&evidence.spec.view, HostView::WholeMachine { hidden, .. } if !hidden.is_empty());
    if !reaches_the_caller(evidence) || is_covered {
        return ControlLevel::Enforced { by };
    }
    let missing = "the variables of the caller's processes can be read in /proc".to_owned();
    ControlLevel::Partial { by, missing, gap: Gap::Bounded }
}

fn external(control: Control, evidence: &PostureEvidence<'_>) -> ControlLevel {
    match control {
        Control::Syscalls => syscalls(evidence),
        _ => ControlLevel::Declared { by: "the operator declared an outer container as the boundary".into() },
    }
}

/// `full` is what was asked for: the control is the absence of a network, and there is none.
fn net(evidence: &PostureEvidence<'_>) -> ControlLevel {
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
fn filtered(doors: &ProxySockets) -> ControlLevel {
    match doors.transparent {
        Some(_) => enforced("network namespace, every connection ends at the proxy (nf_tables)"),
        None => enforced("network namespace, only the proxy can be reached (no nf_tables: by its variables)"),
    }
}

fn syscalls(evidence: &PostureEvidence<'_>) -> ControlLevel {
    let LaunchReport { no_new_privs, seccomp_mode, capabilities_empty, .. } = evidence.achieved;
    match (no_new_privs, seccomp_mode, capabilities_empty) {
        (1, 2, 1) => enforced("seccomp, no_new_privs, no capabilities"),
        (1, 2, _) => partial(
            "seccomp, no_new_privs",
            "the bounding set keeps capabilities, which no_new_privs makes useless",
        ),
        _ => absent("no seccomp filter is in force", "use a kernel with CONFIG_SECCOMP_FILTER"),
    }
}

fn limits(evidence: &PostureEvidence<'_>) -> ControlLevel {
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
    let gaps = PostureGaps::of_limits(evidence);
    match gaps.open.is_empty() && gaps.bounded.is_empty() {
        true => enforced(&by),
        false => gaps.level(by),
    }
}

/// All that a control does not hold.
#[derive(Default)]
struct PostureGaps {
    open: Vec<String>,
    bounded: Vec<String>,
}

impl PostureGaps {
    fn of_limits(evidence: &PostureEvidence<'_>) -> Self {
        let mut missing = Self::default();
        missing.open_limits(evidence);
        if evidence.cgroups.controls("memory") {
            missing.beyond_the_group(evidence);
        } else {
            missing.beyond_the_count(evidence);
        }
        missing.kept_outside(evidence);
        missing
    }

    fn open_limits(&mut self, evidence: &PostureEvidence<'_>) {
        let (cgroups, spec) = (evidence.cgroups, evidence.spec);
        let is_root = rustix::process::geteuid().is_root();
        if spec.limits.millicpus.is_some() && !cgroups.controls("cpu") {
            self.open.push("the share of the processor (needs a cpu control group)".to_owned());
        }
        // KERNEL: the process limit does not bind root.
        if !cgroups.controls("pids") && is_root {
            self.open.push("the number of processes (no pids control group can be made)".to_owned());
        }
        if matches!(spec.backend, Backend::External | Backend::None) {
            self.open.push("/tmp and /dev/shm are those outside and have no limit of their own".to_owned());
            // Nothing hides the files of the groups, and root may write them.
            if is_root && cgroups.controls("memory") {
                self.open.push("a command can leave its control groups".to_owned());
            }
        }
        if reaches_the_caller(evidence) {
            self.open.push("a command can end or stop what counts and ends it".to_owned());
        }
    }

    /// What a memory control group does not count.
    fn beyond_the_group(&mut self, evidence: &PostureEvidence<'_>) {
        self.bounded.push(locks(evidence.spec));
        if !evidence.cgroups.counts_tcp() {
            self.bounded.push(format!("the buffers of TCP connections, {}", per_socket(evidence)));
        }
    }

    /// What the supervisor does not count.
    fn beyond_the_count(&mut self, evidence: &PostureEvidence<'_>) {
        self.bounded.push(format!(
            "more memory for up to {} ms (a second where there is much to count), up to 1 GiB in System V segments and 1 GiB in \
             queues and semaphores, the buffers of pipes and of {} sockets ({}), and objects of the kernel that the machine limits \
             for each user, such as epoll items and inotify watches (needs a memory control group)",
            meter::ROUND.as_millis(),
            meter::FIRST_SOCKETS,
            per_socket(evidence),
        ));
        self.bounded.push(locks(evidence.spec));
    }

    /// What is the host's in this backend, or measured from outside.
    fn kept_outside(&mut self, evidence: &PostureEvidence<'_>) {
        let spec = evidence.spec;
        let is_whole = matches!(spec.view, HostView::WholeMachine { .. });
        if is_whole && !evidence.cgroups.controls("memory") {
            self.bounded.push(
                "files in the machine's own file systems in memory (/tmp, /dev/shm), up to the size of these"
                    .to_owned(),
            );
        }
        if spec.limits.disk_bytes.is_some() {
            if is_whole || matches!(spec.backend, Backend::External | Backend::None) {
                self.bounded.push(
                    "`--disk` counts the roots and the home, and a command can write elsewhere".to_owned(),
                );
            }
            self.bounded.push(
                "more disk space between two looks, and files without a name while only a mapping or a socket holds them"
                    .to_owned(),
            );
        }
        if spec.backend == Backend::Landlock {
            self.bounded.push(
                "temporary files are in the home, so that `--tmp-size` has no effect, and up to 1 GiB in System V segments stays \
                 after the call"
                    .to_owned(),
            );
        }
        if !matches!(spec.backend, Backend::Native | Backend::Container) {
            self.bounded
                .push("the inotify instances and watches of the user are shared with the host".to_owned());
        }
    }

    fn level(self, by: String) -> ControlLevel {
        let gap = if self.open.is_empty() { Gap::Bounded } else { Gap::Open };
        let all: Vec<String> = self.open.into_iter().chain(self.bounded).collect();
        ControlLevel::Partial { by, missing: all.join("; "), gap }
    }
}

/// KERNEL: file locks are charged to no control group.
fn locks(spec: &SandboxSpec) -> String {
    let most = meter::MOST_LOCKS;
    let counted = format!(
        "{most} file locks, and more for up to {} ms (a second where the machine has very many)",
        meter::ROUND.as_millis()
    );
    match spec.backend {
        Backend::Container => format!("{counted}, where the processes of the container can be seen"),
        _ => counted,
    }
}

fn per_socket(evidence: &PostureEvidence<'_>) -> String {
    match evidence.achieved.socket_bytes {
        0 => "as much as the machine gives to each".to_owned(),
        bytes => format!("up to {} each", ByteSize(bytes.max(meter::SOCKET))),
    }
}

/// The same level with one thing less.
pub(crate) fn without(level: &ControlLevel, missing: &str) -> ControlLevel {
    match level {
        ControlLevel::Enforced { by } => partial(by, missing),
        ControlLevel::Partial { by, missing: known, .. } => partial(by, &format!("{known}; {missing}")),
        other => other.clone(),
    }
}

fn partial(by: &str, missing: &str) -> ControlLevel {
    ControlLevel::Partial { by: by.to_owned(), missing: missing.to_owned(), gap: Gap::Open }
}

fn enforced(by: &str) -> ControlLevel {
    ControlLevel::Enforced { by: by.to_owned() }
}

fn absent(reason: &str, fix: &str) -> ControlLevel {
    ControlLevel::Absent { reason: reason.to_owned(), fix: fix.to_owned() }
}
