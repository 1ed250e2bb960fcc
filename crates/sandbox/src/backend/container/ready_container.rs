use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use ringfence_types::Posture;
use zeroize::Zeroizing;

use super::scratch_dir::ContainerScratch;
use super::{ContainerGuard, ContainerMaker, ContainerTemplate, ids_inside, verify};
use crate::cgroup::Cgroups;
use crate::control_socket::ControlSocket;
use crate::host_sockets::Coverage;
use crate::landlock;
use crate::launch_sequence::{ContainerLaunch, PendingLaunch, SealedInit};
use crate::netns::Netfilter;
use crate::plan_compiler::{self, CompileContext};
use crate::posture::{PostureEvidence, posture};
use crate::relay;
use crate::sandbox::SandboxStartError;
use crate::spec::SandboxSpec;
use crate::survey::SurveyedRoot;

/// A container whose PID 1 has connected and waits. Nothing of an agent has been in it.
#[derive(Debug)]
pub(super) struct ReadyContainer {
    /// Closed first: PID 1 ends with it.
    socket: OwnedFd,
    container: ContainerGuard,
    /// Its PID 1, as the host counts.
    init: u32,
    pub(super) config: String,
    pub(super) made: Instant,
}

impl ReadyContainer {
    pub(super) fn make(
        template: &ContainerTemplate,
        maker: &dyn ContainerMaker,
    ) -> Result<Self, SandboxStartError> {
        let mut scratch = ContainerScratch::make(template).map_err(SandboxStartError::Spawn)?;
        let running = maker.start(&template.request(&scratch))?;
        let socket = scratch.connected(|| running.is_running())?;
        let init = verify::peer(&socket)?;
        verify::started(running.init()?, init)?;
        let container = ContainerGuard { running, scratch };
        Ok(Self { socket, container, init, config: template.config.clone(), made: Instant::now() })
    }

    /// PID 1 says nothing before it is spoken to, so that anything to read is its end.
    pub(super) fn is_alive(&self) -> bool {
        relay::readable(self.socket.as_fd()).is_ok_and(|readable| !readable)
    }

    /// Makes a sandbox of it.
    pub(super) fn launch(
        self,
        spec: &SandboxSpec,
        surveyed: &[SurveyedRoot],
        netfilter: Netfilter,
    ) -> Result<(SealedInit, Posture), SandboxStartError> {
        self.container.scratch.furnish(spec, surveyed).map_err(SandboxStartError::Spawn)?;
        let cgroups = Cgroups::of_process(self.init, &spec.limits);
        let inside = ContainerLaunch { cgroups, ids: ids_inside(), net: spec.net };
        let launching = PendingLaunch::inside(ControlSocket::new(self.socket), self.container, inside)?;
        let landlock_abi = landlock::abi();
        let ground = CompileContext { netfilter, ..CompileContext::here(landlock_abi, launching.cgroups()) };
        let plan = Zeroizing::new(plan_compiler::container(spec, surveyed, &ground)?);
        let sealed = launching.finish(&plan)?;
        let evidence = PostureEvidence {
            spec,
            achieved: sealed.achieved,
            landlock_abi,
            cgroups: &sealed.cgroups,
            doors: sealed.doors.as_ref(),
            coverage: &Coverage::default(),
        };
        let posture = posture(&evidence);
        Ok((sealed, posture))
    }
}
