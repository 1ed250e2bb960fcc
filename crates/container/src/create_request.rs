//! What is asked of the engine: the container of one session, closed in every respect.
//!
//! INVARIANT: nothing that would open it can be said here: there is no way to a privileged container, to a namespace of
//! the host or of another container, to a device, a port or a volume.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountType, ResourcesUlimits,
};
use ringfence_types::{Access, BindMount, ContainerRequest, NetMode};
use rustix::process::Resource;

use crate::engine::{ContainerEngine, EngineKind, EnginePrivilege};

/// What the engine puts a container into. It is never the network of the host or of another container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineNetwork {
    /// None: the launcher makes one of ours inside.
    Empty,
    /// One that the engine connects to what the host reaches.
    Engine,
}

impl From<NetMode> for EngineNetwork {
    fn from(net: NetMode) -> Self {
        match net {
            NetMode::None | NetMode::Filtered => Self::Empty,
            NetMode::Full => Self::Engine,
        }
    }
}

pub(crate) struct CreateRequest<'a> {
    pub(crate) container: &'a ContainerRequest,
    /// Where nothing of the image is to be seen or written.
    pub(crate) covered: &'a [String],
    pub(crate) labels: HashMap<String, String>,
}

/// What an engine differs in from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineDialect {
    kind: EngineKind,
    privilege: EnginePrivilege,
}

impl From<&ContainerEngine> for EngineDialect {
    fn from(engine: &ContainerEngine) -> Self {
        Self { kind: engine.kind, privilege: engine.privilege }
    }
}

/// A path that the engine would take for something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnsupportedPath(pub(crate) PathBuf);

/// What is in memory, and whose content is gone with the session.
pub(crate) const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// Of the 1024 that an engine gives a container: where processors are short, others come first.
const HALF_A_WEIGHT: i64 = 512;

impl CreateRequest<'_> {
    pub(crate) fn body(&self, dialect: EngineDialect) -> Result<ContainerCreateBody, UnsupportedPath> {
        let ids = dialect.ids();
        Ok(ContainerCreateBody {
            image: Some(self.container.spec.image.to_string()),
            entrypoint: Some(vec![speakable(&self.container.init)?]),
            cmd: Some(Vec::new()),
            env: Some(Vec::new()),
            user: Some(format!("{}:{}", ids.0, ids.1)),
            working_dir: Some("/".to_owned()),
            hostname: Some("ringfence".to_owned()),
            labels: Some(self.labels.clone()),
            // An engine runs the image's check beside PID 1, not inside what PID 1 has made.
            healthcheck: Some(HealthConfig { test: Some(texts(&["NONE"])), ..HealthConfig::default() }),
            // Whatever the image would be told to end with.
            stop_signal: Some("SIGKILL".to_owned()),
            host_config: Some(self.host_config(dialect)?),
            ..ContainerCreateBody::default()
        })
    }

    fn host_config(&self, dialect: EngineDialect) -> Result<HostConfig, UnsupportedPath> {
        let mounts: Result<Vec<Mount>, UnsupportedPath> = self.container.bound.iter().map(mount).collect();
        let limits = &self.container.limits;
        let memory = Some(signed(limits.memory_bytes));
        let closed = HostConfig {
            network_mode: Some(dialect.network(EngineNetwork::from(self.container.net)).to_owned()),
            ipc_mode: Some("private".to_owned()),
            cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
            cap_drop: Some(vec!["ALL".to_owned()]),
            readonly_rootfs: Some(true),
            privileged: Some(false),
            init: Some(false),
            auto_remove: Some(true),
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            ..HostConfig::default()
        };
        Ok(HostConfig {
            cap_add: dialect.capabilities(),
            // Podman does not listen to this, and says in the end what it has used.
            runtime: self.container.spec.runtime.map(|runtime| runtime.word().to_owned()),
            security_opt: Some(security(dialect.kind)),
            masked_paths: (dialect.kind == EngineKind::Docker).then(|| texts(&MASKED)),
            readonly_paths: (dialect.kind == EngineKind::Docker).then(|| texts(&READ_ONLY)),
            mounts: Some(mounts?),
            tmpfs: Some(self.private_places()),
            shm_size: Some(signed(limits.tmp_bytes)),
            memory,
            // The same: no swap besides.
            memory_swap: memory,
            pids_limit: Some(signed(limits.processes)),
            nano_cpus: limits.millicpus.map(|millicpus| signed(millicpus.saturating_mul(1_000_000))),
            cpu_shares: Some(HALF_A_WEIGHT),
            ulimits: Some(self.ulimits()),
            ..closed
        })
    }

    /// As much as the launcher will ask for: engines set more than they may, where they are confined themselves. The
    /// kernel counts processes besides those of this container, so there is room for them.
    fn ulimits(&self) -> Vec<ResourcesUlimits> {
        const OTHERS: u64 = 4096;
        let limits = &self.container.limits;
        vec![
            ulimit("nofile", Resource::Nofile, limits.open_files),
            ulimit("nproc", Resource::Nproc, limits.processes.max(OTHERS)),
        ]
    }

    fn private_places(&self) -> HashMap<String, String> {
        let options = format!("rw,noexec,nosuid,nodev,mode=1777,size={}", self.container.limits.tmp_bytes);
        let [tmp, var_tmp, run] = PRIVATE.map(str::to_owned);
        // What an image keeps in /run is of no use without its services, and is covered inside.
        let covered = (run, "rw,noexec,nosuid,nodev,mode=755,size=4096".to_owned());
        let closed = "ro,noexec,nosuid,nodev,mode=555,size=4096";
        let volumes = self.covered.iter().map(|path| (path.clone(), closed.to_owned()));
        volumes.chain([(tmp, options.clone()), (var_tmp, options), covered]).collect()
    }
}

impl EngineDialect {
    /// WHY NOT `default`: what that is can be configured, the host's network included.
    fn network(self, network: EngineNetwork) -> &'static str {
        match (network, self.kind) {
            (EngineNetwork::Empty, _) => "none",
            (EngineNetwork::Engine, EngineKind::Docker) => "bridge",
            // A bridge with root; without it what runs in user space.
            (EngineNetwork::Engine, EngineKind::Podman) => "private",
        }
    }

    /// As whom the launcher starts. In a rootless engine the caller is root, without the rights of root; in any other
    /// they have their own number.
    fn ids(self) -> (u32, u32) {
        match self.privilege {
            EnginePrivilege::Rootless => (0, 0),
            EnginePrivilege::Rootful => {
                (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
            }
        }
    }

    /// KERNEL: a process that is root outside a user namespace gets into it only with this capability. The launcher gives it
    /// up with all others before anything of the image runs.
    fn capabilities(self) -> Option<Vec<String>> {
        (self.ids().0 == 0).then(|| texts(&["SETFCAP"]))
    }
}

/// WHY unconfined: the launcher is the first and only program of the container, and makes a user and a mount namespace
/// before it installs the filter of every other backend; an engine's own filter forbids that. What it must write in
/// /proc/sys is in that namespace; then it makes /proc read-only.
fn security(kind: EngineKind) -> Vec<String> {
    let own = match kind {
        EngineKind::Podman => "unmask=/proc/sys",
        EngineKind::Docker => "apparmor=unconfined",
    };
    texts(&["no-new-privileges", "seccomp=unconfined", "label=disable", own])
}

/// Docker's own list.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/sys/firmware",
];

/// Docker's own list without /proc/sys.
const READ_ONLY: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger"];

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn mount(bound: &BindMount) -> Result<Mount, UnsupportedPath> {
    Ok(Mount {
        typ: Some(MountType::BIND),
        source: Some(speakable(&bound.source)?),
        target: Some(speakable(&bound.target)?),
        read_only: Some(bound.access != Access::Write),
        ..Mount::default()
    })
}

/// Podman puts the fields of a mount together as comma-separated values again, so that a comma or a quote in a path
/// would begin another option.
pub(crate) fn speakable(path: &Path) -> Result<String, UnsupportedPath> {
    let plain = |text: &&str| !text.chars().any(|c| matches!(c, ',' | '"' | '\\') || c.is_control());
    path.to_str().filter(plain).map(str::to_owned).ok_or_else(|| UnsupportedPath(path.to_owned()))
}

/// Never above what the caller has.
fn ulimit(name: &str, resource: Resource, wanted: u64) -> ResourcesUlimits {
    let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Some(signed(wanted.min(most)));
    ResourcesUlimits { name: Some(name.to_owned()), soft: limit, hard: limit }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use ringfence_types::{ContainerSpec, Limits};

    use super::*;

    fn body(bound: &[BindMount], kind: EngineKind) -> Result<ContainerCreateBody, UnsupportedPath> {
        let image = "0".repeat(64).parse().unwrap();
        let container = ContainerRequest {
            spec: ContainerSpec { engine: "/s".into(), image, runtime: None },
            name: "x".to_owned(),
            init: "/.ringfence/launch".into(),
            limits: Limits::default(),
            net: NetMode::None,
            bound: bound.to_vec(),
            registry: "/r".into(),
            config: String::new(),
        };
        let request = CreateRequest { container: &container, covered: &[], labels: HashMap::new() };
        request.body(EngineDialect { kind, privilege: EnginePrivilege::Rootful })
    }

    fn bound(source: &str) -> BindMount {
        BindMount { source: source.into(), target: source.into(), access: Access::Write }
    }

    /// S003-20, S004-3, S004-5, S004-6, S004-25: what document 004 promised and its system did not do.
    #[test]
    fn the_container_is_closed_in_every_respect() {
        for kind in [EngineKind::Podman, EngineKind::Docker] {
            let body = body(&[bound("/w")], kind).unwrap();
            let host = body.host_config.unwrap();
            assert_eq!(host.network_mode.as_deref(), Some("none"));
            assert_eq!(host.cap_drop.as_deref(), Some(&["ALL".to_owned()][..]));
            assert_eq!((host.readonly_rootfs, host.privileged), (Some(true), Some(false)));
            assert!(host.security_opt.unwrap().contains(&"no-new-privileges".to_owned()));
            assert!(
                host.memory.unwrap() > 0 && host.memory == host.memory_swap && host.pids_limit.unwrap() > 0
            );
            assert_eq!(host.cpu_shares, Some(512));
            assert!(host.tmpfs.unwrap()["/tmp"].contains("noexec,nosuid,nodev"));
            assert!(body.image.unwrap().starts_with("sha256:"));
            assert_eq!(body.env, Some(Vec::new()));
            assert_eq!(body.healthcheck.unwrap().test.unwrap(), ["NONE"]);
            for (open, what) in [
                (host.cap_add.is_some_and(|added| added != ["SETFCAP"]), "capabilities"),
                (host.devices.is_some() || host.device_requests.is_some(), "devices"),
                (host.pid_mode.is_some() || host.uts_mode.is_some(), "namespaces of others"),
                (host.userns_mode.is_some(), "the user namespace of the host"),
                (host.binds.is_some() || host.volumes_from.is_some(), "volumes"),
                (host.port_bindings.is_some() || host.publish_all_ports.is_some(), "ports"),
            ] {
                assert!(!open, "{what}");
            }
        }
    }

    /// S004-3: the whole network is one of the engine's, by a name that no configuration can make the host's.
    #[test]
    fn no_network_is_the_hosts_or_another_containers() {
        for kind in [EngineKind::Podman, EngineKind::Docker] {
            let dialect = EngineDialect { kind, privilege: EnginePrivilege::Rootful };
            for (net, wanted) in [
                (NetMode::None, "none"),
                (NetMode::Filtered, "none"),
                (NetMode::Full, if kind == EngineKind::Podman { "private" } else { "bridge" }),
            ] {
                assert_eq!(dialect.network(EngineNetwork::from(net)), wanted);
            }
        }
    }

    /// What document 004's system built with `%s:%s`.
    #[test]
    fn a_path_cannot_say_more_than_a_path() {
        for path in ["/w,dst=/etc", "/w\",ro", "/w\\x", "/w\n", "/w\u{7f}"] {
            assert_eq!(body(&[bound(path)], EngineKind::Podman), Err(UnsupportedPath(path.into())));
        }
        let fine = body(&[bound("/w:ro=x y")], EngineKind::Podman).unwrap();
        assert_eq!(fine.host_config.unwrap().mounts.unwrap()[0].source.as_deref(), Some("/w:ro=x y"));
    }
}
