//! A container of Podman or Docker, with our launcher as its PID 1 ([ADR 26](../../../../docs/adr/0026-launcher-in-containers.md)).
//!
//! The engine gives the image's root (read-only), namespaces and limits, and binds the roots. The launcher connects to
//! the control socket, makes a user and a mount namespace inside, in which the caller is an ordinary user and every
//! path is held as in `native`, and installs Landlock and the filter. What the engine says it has done is not believed:
//! who connected, and which namespaces and control groups they are in, is asked of the kernel.

mod draft;
mod request;
mod scratch;
mod verify;
mod vessel;
mod volumes;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ringfence_types::{Backend, Bytes, OciRuntime};
use sha2::{Digest as _, Sha256};

use self::request::{Dialect, Network, Request, Unspeakable};
use self::scratch::Scratch;
use super::native::Surroundings;
use crate::container::{ContainerSpec, Engine, EngineError, Labelled};
use crate::network;
use crate::pool::Pool;
use crate::session::{Session, StartError, Unsupported};
use crate::spec::{Spec, View};
use crate::survey::Rules;

pub(crate) use self::draft::Draft;
pub(crate) use self::vessel::Vessel;

/// Who the caller is inside: never root.
const INSTEAD_OF_ROOT: u32 = 1000;

pub(crate) fn start(spec: &Spec, rules: &dyn Rules, pool: &Pool) -> Result<Session, StartError> {
    network::with_or_without_netfilter(|netfilter| {
        let surroundings = Surroundings::look(spec, rules)?;
        let surveyed = &surroundings.survey.roots;
        let draft = Draft::new(spec, surveyed)?;
        let waiting = std::iter::from_fn(|| pool.take(&draft.config));
        // One that waited may have died, or what is bound in it may be another by now. Then a fresh one is made.
        let mut sealed = waiting.filter_map(|vessel| vessel.launch(spec, surveyed, netfilter).ok());
        let (sealed, posture) = match sealed.next() {
            Some(sealed) => sealed,
            None => Vessel::make(&draft)?.launch(spec, surveyed, netfilter)?,
        };
        Session::new(sealed, posture, surroundings)
    })
}

/// What a container for `spec` would be asked to be, without making one.
pub(crate) fn draft(spec: &Spec, rules: &dyn Rules) -> Result<Draft, StartError> {
    let surroundings = Surroundings::look(spec, rules)?;
    Draft::new(spec, &surroundings.survey.roots)
}

/// What this backend does not do is refused before anything is made.
fn possible(spec: &Spec) -> Result<&ContainerSpec, StartError> {
    let Some(wanted) = &spec.container else {
        return Err(unavailable("no image was named (--image NAME)"));
    };
    if matches!(spec.view, View::WholeMachine { .. }) {
        let what = Unsupported::WholeMachine;
        return Err(unsupported(what, "it does not do profile `danger`"));
    }
    let sources = spec.roots.iter().map(|root| root.path.as_path());
    if let Some((source, why)) =
        sources.filter_map(|source| Some((source, forbidden(source, &wanted.engine)?))).next()
    {
        let source = Bytes::from(source).display();
        let reason = format!("the root `{source}` is not shown to a container: {why}");
        return Err(unsupported(Unsupported::Root, &reason));
    }
    Ok(wanted)
}

fn unsupported(what: Unsupported, reason: &str) -> StartError {
    StartError::Unsupported { backend: Backend::Container, what, reason: reason.to_owned() }
}

fn unavailable(reason: &str) -> StartError {
    StartError::Unavailable { backend: Backend::Container, reason: reason.to_owned() }
}

/// An engine mounts whatever it is told to, with its own rights.
fn forbidden(source: &Path, engine: &Path) -> Option<&'static str> {
    const SYSTEM: [&str; 8] =
        ["/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/var/run", "/var/lib/containers"];
    if engine.starts_with(source) || engine.canonicalize().is_ok_and(|engine| engine.starts_with(source)) {
        return Some("the engine's own socket is in it");
    }
    let system = SYSTEM.map(Path::new);
    let touches = |path: &&Path| path.starts_with(source) || source.starts_with(path);
    system.iter().any(touches).then_some("it is, holds or is part of the system")
}

fn ids_inside() -> (u32, u32) {
    let not_root = |id: u32| if id == 0 { INSTEAD_OF_ROOT } else { id };
    (not_root(rustix::process::geteuid().as_raw()), not_root(rustix::process::getegid().as_raw()))
}

/// A container of ours. Dropping it removes it, also when its session never began.
#[derive(Debug)]
pub(crate) struct Container {
    engine: Engine,
    name: String,
    /// What is mounted inside stays until it is gone.
    scratch: Scratch,
}

const REGISTRY: &str = "io.ringfence.registry";
const OWNER: &str = "io.ringfence.owner";
const CONFIG: &str = "io.ringfence.config";

impl Container {
    fn start(engine: Engine, draft: &Draft, scratch: Scratch) -> Result<Self, StartError> {
        let registry = fingerprint(&draft.registry);
        sweep(&engine, &registry);
        let labels = HashMap::from([
            (REGISTRY.to_owned(), registry),
            (OWNER.to_owned(), Owner::here().map_err(StartError::Spawn)?.text()),
            (CONFIG.to_owned(), draft.config.clone()),
        ]);
        let wanted = &draft.wanted;
        let bound = draft.bound(&scratch);
        // Missing is said by its name here; at creation it would be one of many reasons.
        let image = engine.image(wanted.image.as_str())?;
        let covered = volumes::covered(&image.volumes, &bound).map_err(|volumes::Refused(path)| {
            let path = Bytes::from(path).display();
            unavailable(&format!("the image declares a volume at `{path}`, which is not the image's to give"))
        })?;
        let request = Request {
            wanted,
            limits: &draft.limits,
            network: draft.network,
            bound: &bound,
            covered: &covered,
            labels,
        };
        let body = request.body(Dialect::from(&engine)).map_err(|Unspeakable(path)| {
            let path = Bytes::from(path).display();
            unsupported(Unsupported::Root, &format!("no engine can be told of the path `{path}`"))
        })?;
        let name = scratch.name();
        engine.create(&name, body).map_err(|error| match unknown_runtime(error, wanted.runtime) {
            StartError::Engine(error) => no_network(error, draft.network),
            other => other,
        })?;
        let container = Self { engine, name, scratch };
        container.engine.start(&container.name).map_err(|error| no_network(error, draft.network))?;
        Ok(container)
    }

    /// The socket of PID 1, and its number: who connects is the process that the engine has started.
    fn connected(&mut self, wanted: &ContainerSpec) -> Result<(OwnedFd, u32), StartError> {
        let (engine, name) = (&self.engine, &self.name);
        let socket =
            self.scratch.connected(|| engine.inspect(name).is_ok_and(|found| found.pid.is_some()))?;
        let init = verify::peer(&socket)?;
        verify::started(&engine.inspect(name)?, init, wanted.runtime)?;
        Ok((socket, init))
    }
}

/// Docker knows the runtimes it was configured with, and says so when it is asked for another.
fn unknown_runtime(error: EngineError, wanted: Option<OciRuntime>) -> StartError {
    match (error, wanted) {
        (EngineError::Refused(message), Some(wanted)) if message.contains("runtime") => {
            StartError::OtherRuntime { wanted, used: format!("what it was configured with ({message})") }
        }
        (error, _) => StartError::Engine(error),
    }
}

/// An engine that is asked for no network cannot fail to make one.
fn no_network(error: EngineError, network: Network) -> StartError {
    match (error, network) {
        (EngineError::Refused(message), Network::Engine) if is_about_networks(&message) => {
            StartError::NoNetwork { reason: message }
        }
        (error, _) => StartError::Engine(error),
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
struct Owner {
    namespace: u64,
    pid: u32,
    started: u64,
}

impl Owner {
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
fn sweep(engine: &Engine, registry: &str) {
    let listed = engine.labelled(REGISTRY, registry);
    let listed = listed.inspect_err(|error| tracing::warn!(why = %error, "what was left is not swept"));
    for Labelled { id, names, labels } in listed.unwrap_or_default() {
        // Labels come from images as well, names only from whoever makes a container.
        if !names.iter().any(|name| name.trim_start_matches('/').starts_with(scratch::CONTAINER_PREFIX)) {
            continue;
        }
        let owner = labels.get(OWNER).and_then(|owner| Owner::parse(owner));
        if owner.is_none_or(|owner| owner.is_gone()) {
            // Another session may be removing it at this moment.
            let _gone = engine.remove(&id);
        }
    }
}

impl From<EngineError> for StartError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_root_shows_the_system_or_an_engine() {
        let engine = Path::new("/run/user/1000/podman/podman.sock");
        for source in
            ["/", "/etc", "/etc/ssl", "/var", "/var/run/docker.sock", "/proc/1", "/dev/shm", "/run/user/1000"]
        {
            assert!(forbidden(Path::new(source), engine).is_some(), "{source}");
        }
        assert!(forbidden(Path::new("/srv/x"), Path::new("/srv/x/api.sock")).is_some());
        for source in ["/home/me/project", "/srv/x", "/var/tmp/w", "/etcetera"] {
            assert_eq!(forbidden(Path::new(source), engine), None, "{source}");
        }
    }

    #[test]
    fn an_engine_that_makes_no_network_is_told_from_one_that_fails_otherwise() {
        let told = |message: &str, network| no_network(EngineError::Refused(message.to_owned()), network);
        let missing = "could not find slirp4netns, the network namespace can't be configured";
        assert!(matches!(told(missing, Network::Engine), StartError::NoNetwork { .. }));
        assert!(told(missing, Network::Engine).hint().is_some_and(|hint| hint.contains("--net filtered")));
        assert!(matches!(told(missing, Network::Empty), StartError::Engine(_)));
        for other in ["unfortunately no space left on device", "no such image"] {
            assert!(matches!(told(other, Network::Engine), StartError::Engine(_)), "{other}");
        }
    }

    #[test]
    fn a_number_that_is_used_again_is_not_the_owner() {
        let here = Owner::here().unwrap();
        assert_eq!(Owner::parse(&here.text()), Some(here.clone()));
        assert!(!here.is_gone());
        assert!(Owner { started: here.started + 1, ..here.clone() }.is_gone());
        // Of another namespace nothing is known.
        assert!(!Owner { namespace: 1, started: 0, ..here }.is_gone());
        for text in ["", "1-2", "a-b-c", "1-99999999999-3"] {
            assert_eq!(Owner::parse(text), None);
        }
    }
}
