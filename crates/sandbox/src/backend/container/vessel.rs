use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use ringfence_types::Posture;
use zeroize::Zeroizing;

use super::scratch::Scratch;
use super::{Container, Draft, ids_inside};
use crate::cgroup::Cgroups;
use crate::compile::{self, Ground};
use crate::container::Engine;
use crate::control::Control;
use crate::host_sockets::Coverage;
use crate::landlock;
use crate::launching::{Inside, Launching, Sealed};
use crate::network::Netfilter;
use crate::posture::{Evidence, posture};
use crate::relay;
use crate::session::StartError;
use crate::spec::Spec;
use crate::survey::SurveyedRoot;

/// A container whose PID 1 has connected and waits. Nothing of an agent has been in it.
#[derive(Debug)]
pub(crate) struct Vessel {
    /// Closed first: PID 1 ends with it.
    socket: OwnedFd,
    container: Container,
    /// Its PID 1, as the host counts.
    init: u32,
    pub(crate) config: String,
    pub(crate) made: Instant,
}

impl Vessel {
    pub(crate) fn make(draft: &Draft) -> Result<Self, StartError> {
        let engine = Engine::connect(&draft.wanted.engine)?;
        let scratch = Scratch::make(draft).map_err(StartError::Spawn)?;
        let mut container = Container::start(engine, draft, scratch)?;
        let (socket, init) = container.connected(&draft.wanted)?;
        Ok(Self { socket, container, init, config: draft.config.clone(), made: Instant::now() })
    }

    /// PID 1 says nothing before it is spoken to, so that anything to read is its end.
    pub(crate) fn is_alive(&self) -> bool {
        relay::readable(self.socket.as_fd()).is_ok_and(|readable| !readable)
    }

    /// Makes a sandbox of it.
    pub(super) fn launch(
        self,
        spec: &Spec,
        surveyed: &[SurveyedRoot],
        netfilter: Netfilter,
    ) -> Result<(Sealed, Posture), StartError> {
        let ids = ids_inside();
        self.container.scratch.furnish(spec, surveyed, ids).map_err(StartError::Spawn)?;
        let cgroups = Cgroups::of_process(self.init, &spec.limits);
        let inside = Inside { cgroups, ids, net: spec.net };
        let launching = Launching::inside(Control::new(self.socket), self.container, inside)?;
        let landlock_abi = landlock::abi();
        let ground = Ground { netfilter, ..Ground::here(landlock_abi, launching.cgroups()) };
        let plan = Zeroizing::new(compile::container(spec, surveyed, &ground)?);
        let sealed = launching.finish(&plan)?;
        let evidence = Evidence {
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
