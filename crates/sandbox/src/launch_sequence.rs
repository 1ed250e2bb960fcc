//! From a spawned launcher to a sealed PID 1.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::Duration;

use ringfence_launch::step::LaunchStep;
use ringfence_launch::wire::{ControlMessage, LaunchReport};
use ringfence_types::{Backend, NetMode};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

use crate::backend::bubblewrap;
use crate::backend::container::ContainerGuard;
use crate::cgroup::Cgroups;
use crate::control_socket::{self, ControlEvent, ControlSocket};
use crate::launcher::{self, LauncherProcess};
use crate::netns::ProxySockets;
use crate::relay;
use crate::sandbox::{InitProcess, InitRole, SandboxStartError};

/// A launcher that has been told its namespaces and waits for the plan.
///
/// Dropped before it is finished, it takes the launcher with it: the socket closes first.
pub(crate) struct PendingLaunch {
    control: ControlSocket,
    outer: OuterProcess,
    backend: Backend,
    cgroups: Cgroups,
}

/// What a launcher that is PID 1 of a container is told.
pub(crate) struct ContainerLaunch {
    /// The engine's.
    pub(crate) cgroups: Cgroups,
    /// Who the caller is inside.
    pub(crate) ids: (u32, u32),
    pub(crate) net: NetMode,
}

/// PID 1 has done everything in the plan and said what the kernel enforces.
pub(crate) struct SealedInit {
    pub(crate) control: ControlSocket,
    pub(crate) init: InitProcess,
    /// The program around PID 1, or what stands in for it.
    pub(crate) around: Option<OuterProcess>,
    pub(crate) cgroups: Cgroups,
    pub(crate) achieved: LaunchReport,
    /// The way back in, for repairs: only where the namespaces are our own.
    pub(crate) namespaces: Option<Namespaces>,
    /// Where the network is not ours to set up from inside.
    pub(crate) net_namespace: Option<OwnedFd>,
    pub(crate) doors: Option<ProxySockets>,
}

impl SealedInit {
    /// What has to be dead before nothing runs inside any more.
    pub(crate) fn processes(&self) -> impl Iterator<Item = io::Result<OwnedFd>> {
        let outer = self.around.as_ref().and_then(OuterProcess::process);
        std::iter::once(self.init.process()).chain(outer)
    }
}

/// Descriptors of the namespaces of a running sandbox.
#[derive(Debug)]
pub(crate) struct Namespaces {
    pub(crate) user: OwnedFd,
    pub(crate) mount: OwnedFd,
}

impl PendingLaunch {
    /// Tells a spawned launcher its namespaces; it makes them while the caller works out the plan.
    pub(crate) fn begin(
        launcher: LauncherProcess,
        backend: Backend,
        namespaces: u64,
        cgroups: Cgroups,
    ) -> Result<Self, SandboxStartError> {
        let LauncherProcess { control, outer } = launcher;
        let mut launch = Self { control, outer, backend, cgroups };
        let entrances = launch.cgroups.entrances().map_err(SandboxStartError::Spawn)?;
        let fds: Vec<BorrowedFd<'_>> = entrances.iter().map(AsFd::as_fd).collect();
        let start = ControlMessage::Start {
            namespaces,
            uid: u64::from(rustix::process::geteuid().as_raw()),
            gid: u64::from(rustix::process::getegid().as_raw()),
            cgroups: fds.len() as u64,
        };
        if let Err(errno) = launch.control.send(start, &fds) {
            let error = unheard(&launch.control, backend, errno);
            return Err(explained(error, backend, &mut launch.outer));
        }
        Ok(launch)
    }

    /// The same for a launcher that is PID 1 of a container: the engine's control groups are around it already.
    pub(crate) fn inside(
        control: ControlSocket,
        container: ContainerGuard,
        ContainerLaunch { cgroups, ids: (uid, gid), net }: ContainerLaunch,
    ) -> Result<Self, SandboxStartError> {
        // A network of its own as well: engines let more through in theirs, such as echo requests. And Podman does not listen to who
        // asks it for control groups and shared memory that no other container can join.
        let network = if net == NetMode::Full { 0 } else { libc::CLONE_NEWNET };
        let unheard = libc::CLONE_NEWCGROUP | libc::CLONE_NEWIPC;
        let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | unheard | network;
        let namespaces = u64::from(namespaces.cast_unsigned());
        let start = ControlMessage::Start { namespaces, uid: uid.into(), gid: gid.into(), cgroups: 0 };
        control.send(start, &[]).map_err(spawn_error)?;
        let outer = OuterProcess::Container(Box::new(container));
        Ok(Self { control, outer, backend: Backend::Container, cgroups })
    }

    pub(crate) fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// Hands over the plan and waits until it has been carried out.
    pub(crate) fn finish(self, plan: &[u8]) -> Result<SealedInit, SandboxStartError> {
        let Self { control, mut outer, backend, cgroups } = self;
        let memory = control_socket::sealed("ringfence-plan", plan).map_err(spawn_error)?;
        let init = started(&control, backend).map_err(|error| explained(error, backend, &mut outer))?;
        // With a PID namespace of its own the launcher has cloned PID 1 and ended; otherwise it is what stays.
        let around = (backend != Backend::Native).then_some(outer);
        control
            .send(ControlMessage::Plan { length: plan.len() as u64 }, &[memory.as_fd()])
            .map_err(|errno| unheard(&control, backend, errno))?;
        let InitReport { achieved, user, mount, net_namespace, doors } = ready(&control, backend)?;
        let namespaces = user.zip(mount).map(|(user, mount)| Namespaces { user, mount });
        let doors = ProxySockets::from_sockets(doors);
        Ok(SealedInit { control, init, around, cgroups, achieved, namespaces, net_namespace, doors })
    }
}

/// Why a message could not be sent. A launcher that is gone may have said why, and if not it ended without a report: that
/// is about the backend, not about this process.
fn unheard(control: &ControlSocket, backend: Backend, errno: Errno) -> SandboxStartError {
    match errno {
        Errno::PIPE | Errno::CONNRESET => {
            expect(control, backend).err().unwrap_or(SandboxStartError::NoReport { backend })
        }
        other => spawn_error(other),
    }
}

fn started(control: &ControlSocket, backend: Backend) -> Result<InitProcess, SandboxStartError> {
    match expect(control, backend)? {
        (ControlMessage::Started { .. }, Some(pidfd)) => {
            let alone = matches!(backend, Backend::Native | Backend::Container);
            let role = if alone { InitRole::PidOne } else { InitRole::StandIn };
            Ok(InitProcess::new(pidfd, role))
        }
        _ => Err(SandboxStartError::NoReport { backend }),
    }
}

/// What PID 1 says from the plan to `Ready`.
#[derive(Default)]
struct InitReport {
    achieved: LaunchReport,
    user: Option<OwnedFd>,
    mount: Option<OwnedFd>,
    net_namespace: Option<OwnedFd>,
    doors: Vec<OwnedFd>,
}

fn ready(control: &ControlSocket, backend: Backend) -> Result<InitReport, SandboxStartError> {
    let mut said = InitReport::default();
    loop {
        match expect(control, backend)? {
            (ControlMessage::UserNamespace, fd) => said.user = fd,
            (ControlMessage::MountNamespace, fd) => said.mount = fd,
            (ControlMessage::NetNamespace, fd) => said.net_namespace = fd,
            (ControlMessage::Door, fd) => said.doors.extend(fd),
            (ControlMessage::Ready(achieved), _) => return Ok(InitReport { achieved, ..said }),
            _ => return Err(SandboxStartError::NoReport { backend }),
        }
    }
}

/// Sends a second launcher into a network namespace to carry out `plan` there.
///
/// KERNEL: the user who made a user namespace has all rights over it and over what belongs to it, from outside.
pub(crate) fn outfit(
    net: &OwnedFd,
    plan: &[u8],
    backend: Backend,
) -> Result<ProxySockets, SandboxStartError> {
    let memory = control_socket::sealed("ringfence-outfit", plan).map_err(spawn_error)?;
    let LauncherProcess { control, outer: _launcher } =
        launcher::spawn().map_err(SandboxStartError::Spawn)?;
    let message = ControlMessage::Outfit { length: plan.len() as u64 };
    control.send(message, &[net.as_fd(), memory.as_fd()]).map_err(spawn_error)?;
    let mut doors = Vec::new();
    loop {
        match expect(&control, backend)? {
            (ControlMessage::Door, fd) => doors.extend(fd),
            (ControlMessage::Outfitted, _) => {
                return ProxySockets::from_sockets(doors).ok_or(SandboxStartError::NoReport { backend });
            }
            _ => return Err(SandboxStartError::NoReport { backend }),
        }
    }
}

/// Far longer than any launch takes; a launcher that says nothing for so long never will.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn expect(
    control: &ControlSocket,
    backend: Backend,
) -> Result<(ControlMessage, Option<OwnedFd>), SandboxStartError> {
    if !relay::readable_within(control.as_fd(), PATIENCE).map_err(spawn_error)? {
        return Err(SandboxStartError::NoReport { backend });
    }
    match control.receive().map_err(spawn_error)? {
        ControlEvent::End => Err(SandboxStartError::NoReport { backend }),
        ControlEvent::Message(ControlMessage::Failed { step, operation, errno }, _) => {
            let step =
                u32::try_from(step).ok().and_then(LaunchStep::from_wire).unwrap_or(LaunchStep::Receive);
            let errno = Errno::from_raw_os_error(i32::try_from(errno).unwrap_or_default());
            Err(SandboxStartError::Step { backend, step, operation, errno })
        }
        ControlEvent::Message(message, fd) => Ok((message, fd)),
    }
}

/// Another program's own words are better than our silence about it.
fn explained(error: SandboxStartError, backend: Backend, outer: &mut OuterProcess) -> SandboxStartError {
    match (error, outer) {
        (SandboxStartError::NoReport { .. }, OuterProcess::Process(child))
            if backend == Backend::Bubblewrap =>
        {
            match bubblewrap::complaint(child) {
                Some(reason) => SandboxStartError::Unavailable { backend, reason },
                None => SandboxStartError::NoReport { backend },
            }
        }
        (error, _) => error,
    }
}

fn spawn_error(errno: Errno) -> SandboxStartError {
    SandboxStartError::Spawn(errno.into())
}

/// What was started around PID 1.
#[derive(Debug)]
pub(crate) enum OuterProcess {
    /// It ends by itself: after it has cloned PID 1, or because its socket closed.
    Process(Child),
    /// Removes itself.
    Container(#[expect(dead_code, reason = "held for its drop")] Box<ContainerGuard>),
}

impl OuterProcess {
    pub(crate) fn new(child: Child) -> Self {
        Self::Process(child)
    }

    fn process(&self) -> Option<io::Result<OwnedFd>> {
        let Self::Process(child) = self else { return None };
        let opened = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty());
        Some(opened.map_err(io::Error::from))
    }
}

impl Drop for OuterProcess {
    fn drop(&mut self) {
        if let Self::Process(child) = self {
            // One that is stuck does not notice that its socket has closed; one that has ended does not notice this.
            let _gone = child.kill();
            // Its exit code says nothing that the control socket has not said.
            let _status = child.wait();
        }
    }
}
