use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, ContainerRequest, NetMode, OciRuntime};
use sha2::{Digest as _, Sha256};

use crate::create_request::{CreateRequest, EngineDialect, UnsupportedPath};
use crate::engine::{ContainerEngine, EngineError, LabelledContainer};
use crate::volumes::{self, RefusedVolume};

/// A container of ours. Dropping it removes it, also when its session never began.
#[derive(Debug)]
pub struct Container {
    engine: ContainerEngine,
    name: String,
    runtime: Option<OciRuntime>,
}

/// Why there is no container.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerStartError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the engine starts containers with {used}, and `{wanted}` was asked for")]
    OtherRuntime { wanted: OciRuntime, used: String },
    #[error("the engine cannot make a network for --net full: {reason}")]
    NoNetwork { reason: String },
    #[error("the engine does not support the path `{}`", ByteString::from(.0.as_path()).display())]
    Path(PathBuf),
    #[error(
        "the image declares a volume at `{}`, which is not the image's to give",
        ByteString::from(.0.as_path()).display()
    )]
    Volume(PathBuf),
    #[error("cannot say which process the container belongs to")]
    Owner(#[source] io::Error),
}

impl ContainerStartError {
    /// What would change the answer.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Engine(error) => error.hint(),
            Self::OtherRuntime { wanted, .. } => Some(format!(
                "install `{wanted}` and let the engine use it: `podman --runtime {wanted} system service …`, or `runtime = \"{wanted}\"` \
                 below [engine] in containers.conf; for Docker `runtimes` in daemon.json"
            )),
            Self::NoNetwork { .. } => Some(
                "give the engine what it makes networks with: Podman as root needs `netavark` or \
                 `containernetworking-plugins`, and iptables or nftables; without root `passt` or `slirp4netns`, and \
                 /dev/net/tun open to everybody; Docker its bridge. Or use --net filtered"
                    .to_owned(),
            ),
            Self::Path(_) | Self::Volume(_) | Self::Owner(_) => None,
        }
    }
}

const REGISTRY: &str = "io.ringfence.registry";
const OWNER: &str = "io.ringfence.owner";
const CONFIG: &str = "io.ringfence.config";

/// Names of our containers begin with this.
const PREFIX: &str = "ringfence-container-";

impl Container {
    /// Makes a container and starts it, after what killed processes left was removed.
    pub fn start(request: &ContainerRequest) -> Result<Self, ContainerStartError> {
        let engine = ContainerEngine::connect(&request.spec.engine)?;
        let registry = fingerprint(&request.registry);
        sweep(&engine, &registry);
        let labels = HashMap::from([
            (REGISTRY.to_owned(), registry),
            (OWNER.to_owned(), ContainerOwner::here().map_err(ContainerStartError::Owner)?.text()),
            (CONFIG.to_owned(), request.config.clone()),
        ]);
        // Missing is said by its name here; at creation it would be one of many reasons.
        let image = engine.image(request.spec.image.as_str())?;
        let covered = volumes::covered(&image.volumes, &request.bound)
            .map_err(|RefusedVolume(path)| ContainerStartError::Volume(path))?;
        let body = CreateRequest { container: request, covered: &covered, labels }
            .body(EngineDialect::from(&engine))
            .map_err(|UnsupportedPath(path)| ContainerStartError::Path(path))?;
        let name = format!("{PREFIX}{}", request.name);
        engine.create(&name, body).map_err(|error| not_created(error, request))?;
        let container = Self { engine, name, runtime: request.spec.runtime };
        container.engine.start(&container.name).map_err(|error| no_network(error, request.net))?;
        Ok(container)
    }

    /// Whether its PID 1 runs.
    pub fn is_running(&self) -> bool {
        self.engine.inspect(&self.name).is_ok_and(|found| found.pid.is_some())
    }

    /// Its PID 1, as the engine says, started with the runtime that was asked for.
    pub fn init(&self) -> Result<Option<u32>, ContainerStartError> {
        let found = self.engine.inspect(&self.name)?;
        match self.runtime {
            Some(wanted) if found.runtime.as_deref() != Some(wanted.word()) => {
                let used = found.runtime.unwrap_or_else(|| "one that it does not name".to_owned());
                Err(ContainerStartError::OtherRuntime { wanted, used })
            }
            _ => Ok(found.pid),
        }
    }
}

/// Docker knows the runtimes it was configured with, and says so when it is asked for another.
fn not_created(error: EngineError, request: &ContainerRequest) -> ContainerStartError {
    match (error, request.spec.runtime) {
        (EngineError::Refused(message), Some(wanted)) if message.contains("runtime") => {
            let used = format!("what it was configured with ({message})");
            ContainerStartError::OtherRuntime { wanted, used }
        }
        (error, _) => no_network(error, request.net),
    }
}

/// An engine that is asked for no network cannot fail to make one.
fn no_network(error: EngineError, net: NetMode) -> ContainerStartError {
    match (error, net) {
        (EngineError::Refused(message), NetMode::Full) if is_about_networks(&message) => {
            ContainerStartError::NoNetwork { reason: message }
        }
        (error, _) => ContainerStartError::Engine(error),
    }
}

/// What engines name when they cannot make a network: the programs that do it for them, and what those need.
fn is_about_networks(message: &str) -> bool {
    const WORDS: [&str; 8] =
        ["network", "slirp4netns", "pasta", "netavark", "cni", "iptables", "nftables", "net/tun"];
    let message = message.to_lowercase();
    WORDS.iter().any(|word| message.contains(word))
}

impl Drop for Container {
    fn drop(&mut self) {
        // PID 1 has ended with its socket, and the engine removes what has ended: it may be gone by now. What an
        // engine that is gone itself leaves, the next session sweeps.
        let _gone = self.engine.remove(&self.name);
    }
}

/// Which state directory a container belongs to: that of another is none of our business.
fn fingerprint(registry: &Path) -> String {
    let digest = Sha256::digest(registry.as_os_str().as_encoded_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The process that a container ends with, so that a number used again is not taken for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ContainerOwner {
    namespace: u64,
    pid: u32,
    started: u64,
}

impl ContainerOwner {
    fn here() -> std::io::Result<Self> {
        let pid = std::process::id();
        let started =
            started(pid).ok_or_else(|| std::io::Error::other("/proc does not say when we started"))?;
        Ok(Self { namespace: pid_namespace()?, pid, started })
    }

    fn text(&self) -> String {
        format!("{}-{}-{}", self.namespace, self.pid, self.started)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('-').map(str::parse::<u64>);
        let (namespace, pid, started) = (fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?);
        Some(Self { namespace, pid: u32::try_from(pid).ok()?, started })
    }

    /// Only of a process that could be seen from here is it known that it is gone.
    fn is_gone(&self) -> bool {
        pid_namespace().is_ok_and(|here| here == self.namespace) && started(self.pid) != Some(self.started)
    }
}

fn pid_namespace() -> std::io::Result<u64> {
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino())
}

/// In clock ticks since boot: the 22nd field of `stat`, counted after the name, which may contain anything.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Removes what sessions that were killed before they started, or with their engine, have left. An engine that cannot list while
/// it removes others is no reason not to start: the next session sweeps as well.
fn sweep(engine: &ContainerEngine, registry: &str) {
    let listed = engine.labelled(REGISTRY, registry);
    let listed =
        listed.inspect_err(|error| tracing::warn!(error = %error, "cannot remove leftover containers"));
    for LabelledContainer { id, names, labels } in listed.unwrap_or_default() {
        // Labels come from images as well, names only from the maker of a container.
        if !names.iter().any(|name| name.trim_start_matches('/').starts_with(PREFIX)) {
            continue;
        }
        let owner = labels.get(OWNER).and_then(|owner| ContainerOwner::parse(owner));
        if owner.is_none_or(|owner| owner.is_gone()) {
            // Another session may be removing it at this moment.
            let _gone = engine.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_makes_no_network_is_told_from_one_that_fails_otherwise() {
        let told = |message: &str, net| no_network(EngineError::Refused(message.to_owned()), net);
        let missing = "could not find slirp4netns, the network namespace can't be configured";
        assert!(matches!(told(missing, NetMode::Full), ContainerStartError::NoNetwork { .. }));
        assert!(told(missing, NetMode::Full).hint().is_some_and(|hint| hint.contains("--net filtered")));
        assert!(matches!(told(missing, NetMode::None), ContainerStartError::Engine(_)));
        for other in ["unfortunately no space left on device", "no such image"] {
            assert!(matches!(told(other, NetMode::Full), ContainerStartError::Engine(_)), "{other}");
        }
    }

    #[test]
    fn a_number_that_is_used_again_is_not_the_owner() {
        let here = ContainerOwner::here().unwrap();
        assert_eq!(ContainerOwner::parse(&here.text()), Some(here.clone()));
        assert!(!here.is_gone());
        assert!(ContainerOwner { started: here.started + 1, ..here.clone() }.is_gone());
        // Of another namespace nothing is known.
        assert!(!ContainerOwner { namespace: 1, started: 0, ..here }.is_gone());
        for text in ["", "1-2", "a-b-c", "1-99999999999-3"] {
            assert_eq!(ContainerOwner::parse(text), None);
        }
    }
}
