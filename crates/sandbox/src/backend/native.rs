//! Own namespaces, constructed root, Landlock and seccomp: everything at once, made by our own launcher.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_launch::step::LaunchStep;
use ringfence_types::{Access, NetMode};
use zeroize::Zeroizing;

use crate::cgroup::Cgroups;
use crate::host_sockets::{self, Coverage, Overlays};
use crate::landlock;
use crate::launch_sequence::PendingLaunch;
use crate::launcher;
use crate::layer_view::{self, LayeredRoots};
use crate::mount_guard::GuardedPaths;
use crate::netns::Netfilter;
use crate::placeholders::{PlaceholderSet, SessionOverlap};
use crate::plan_compiler::{self, CompileContext};
use crate::posture::{PostureEvidence, posture};
use crate::sandbox::{Sandbox, SandboxStartError};
use crate::spec::{HostView, SandboxSpec};
use crate::survey::{self, RootView, SurveyRoots, SurveyRules, WorkspaceSurvey};
use crate::sweeper::Sweeper;

/// Starts with everything that the kernel may have, and once more without each part that the launch misses.
pub(crate) fn start(spec: &SandboxSpec, rules: &dyn SurveyRules) -> Result<Sandbox, SandboxStartError> {
    let (netfilter, overlays) = (Netfilter::Present, Overlays::Used);
    let mut kernel = Kernel { landlock_abi: landlock::abi(), netfilter, overlays };
    loop {
        match start_on(spec, rules, &kernel) {
            Ok(sandbox) => return Ok(sandbox),
            Err(error) => kernel = kernel.without_missing(&error).ok_or(error)?,
        }
    }
}

/// What of the kernel is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kernel {
    landlock_abi: Option<u32>,
    netfilter: Netfilter,
    overlays: Overlays,
}

impl Kernel {
    /// This kernel without the part that a launch missed; the posture says that it is not used. `None`: the failure was
    /// about something else. A machine that is only short of something can mount overlays a moment later, so that start
    /// fails and is tried again.
    fn without_missing(self, failed: &SandboxStartError) -> Option<Self> {
        let SandboxStartError::Step { step, errno, .. } = failed else { return None };
        match step {
            LaunchStep::Network if self.netfilter == Netfilter::Present => {
                Some(Self { netfilter: Netfilter::Absent, ..self })
            }
            LaunchStep::System if self.overlays == Overlays::Used && host_sockets::is_lasting(*errno) => {
                Some(Self { overlays: Overlays::Unused, ..self })
            }
            _ => None,
        }
    }
}

fn start_on(
    spec: &SandboxSpec,
    rules: &dyn SurveyRules,
    kernel: &Kernel,
) -> Result<Sandbox, SandboxStartError> {
    let Kernel { landlock_abi, netfilter, overlays } = *kernel;
    let cgroups = tracing::trace_span!("cgroups").in_scope(|| Cgroups::create(&spec.limits));
    let launcher =
        tracing::trace_span!("spawn").in_scope(launcher::spawn).map_err(SandboxStartError::Spawn)?;
    let launching = PendingLaunch::begin(launcher, spec.backend, namespaces(spec.net), cgroups)?;
    let surroundings = tracing::trace_span!("survey").in_scope(|| WorkspaceState::look(spec, rules))?;
    let coverage = Coverage::look(spec, overlays).map_err(SandboxStartError::Spawn)?;
    let layer = LayeredRoots::prepare(spec, &surroundings.survey.roots)?;
    let ground = CompileContext {
        netfilter,
        coverage: Some(&coverage),
        layer: Some(&layer),
        ..CompileContext::here(landlock_abi, launching.cgroups())
    };
    let plan = tracing::trace_span!("compile")
        .in_scope(|| plan_compiler::native(spec, &surroundings.survey.roots, &ground))
        .map(Zeroizing::new)?;
    let sealed = tracing::trace_span!("launch", plan = plan.len())
        .in_scope(|| launching.finish(&plan))
        .map_err(|error| layer_view::explained(error, &plan))?;
    let evidence = PostureEvidence {
        spec,
        achieved: sealed.achieved,
        landlock_abi,
        cgroups: &sealed.cgroups,
        doors: sealed.doors.as_ref(),
        coverage: &coverage,
    };
    let posture = posture(&evidence);
    Sandbox::new(sealed, posture, surroundings)
}

fn namespaces(net: NetMode) -> u64 {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    let net = if net == NetMode::Full { 0 } else { libc::CLONE_NEWNET };
    u64::from((always | net).cast_unsigned())
}

/// What the workspace holds, and the placeholders for what it must not come to hold.
#[derive(Default)]
pub(crate) struct WorkspaceState {
    pub(crate) survey: WorkspaceSurvey,
    pub(crate) placeholders: Option<PlaceholderSet>,
    pub(crate) remembered: GuardedPaths,
    pub(crate) sweeper: Option<Arc<Sweeper>>,
}

impl WorkspaceState {
    pub(crate) fn look(spec: &SandboxSpec, rules: &dyn SurveyRules) -> Result<Self, SandboxStartError> {
        if !matches!(spec.view, HostView::Constructed) {
            return Ok(Self::default());
        }
        let open = surveyable(spec).collect();
        let places = SurveyRoots { open, closed: spec.closed_roots().collect(), view: RootView::Direct };
        if spec.layer.is_some() {
            return Self::look_through_layer(spec, rules, SurveyRoots { view: RootView::Layered, ..places });
        }
        let all: Vec<PathBuf> = places.open.iter().flat_map(|root| survey::roots(root)).collect();
        // Joined before the survey: what another session holds must not go away in between.
        let mut placeholders = PlaceholderSet::join(&spec.registry, &all)?;
        let mut survey = survey::survey_all(&places, rules)?;
        // A session that began meanwhile may own what was just surveyed as something that exists.
        while placeholders.join_overlapping()? == SessionOverlap::New {
            survey = survey::survey_all(&places, rules)?;
        }
        for root in &mut survey.roots {
            if !is_writable(spec, &root.path) {
                root.absent.clear();
            }
            placeholders.fill(root)?;
        }
        let remembered = GuardedPaths::of(&survey.roots);
        Ok(Self { survey, placeholders: Some(placeholders), remembered, sweeper: spec.sweeper.clone() })
    }

    /// No name is held on the host, so that there is nothing to put there and nothing to remove.
    fn look_through_layer(
        spec: &SandboxSpec,
        rules: &dyn SurveyRules,
        places: SurveyRoots<'_>,
    ) -> Result<Self, SandboxStartError> {
        let mut survey = survey::survey_all(&places, rules)?;
        for root in &mut survey.roots {
            if is_writable(spec, &root.path) {
                survey.notes.extend(layer_view::note_of_owner(&root.path));
            } else {
                root.view = RootView::Direct;
            }
        }
        let remembered = GuardedPaths::of(&survey.roots);
        Ok(Self { survey, placeholders: None, remembered, sweeper: None })
    }
}

/// In a root that is only read nothing can come to be, so no name has to be held. A git directory elsewhere is as
/// writable as the workspace that it belongs to.
fn is_writable(spec: &SandboxSpec, root: &Path) -> bool {
    let named = spec.roots.iter().find(|known| known.path.as_path() == root);
    named.or(spec.roots.first()).is_some_and(|root| root.access == Access::Write)
}

/// Directories whose content is not the system's: hidden files are hidden in all of them.
fn surveyable(spec: &SandboxSpec) -> impl Iterator<Item = &Path> {
    let visible = spec.roots.iter().filter(|root| root.access != Access::None);
    visible.map(|root| root.path.as_path()).filter(|path| path.is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringfence_types::{Backend, ByteString, Control, ControlLevel, Limits, PathDecision, Root};
    use rustix::io::Errno;

    use super::*;
    use crate::relay::{CommandIo, OutputTarget, StdinSource};
    use crate::spec::SandboxCommand;

    struct Open;

    impl SurveyRules for Open {
        fn judge(&self, _relative: &Path) -> PathDecision {
            PathDecision::Open
        }
        fn protected_at_root(&self) -> &[&str] {
            &[]
        }
        fn protected_anywhere(&self) -> &[&str] {
            &[]
        }
        fn is_protected(&self, _relative: &Path) -> bool {
            false
        }
    }

    fn spec(world: &Path) -> SandboxSpec {
        for directory in ["w", "home", "registry"] {
            fs::create_dir_all(world.join(directory)).unwrap();
        }
        SandboxSpec {
            backend: Backend::Native,
            roots: vec![Root { path: ByteString::from(world.join("w")), access: Access::Write }],
            view: HostView::Constructed,
            toolchains: Vec::new(),
            shown: Vec::new(),
            home: world.join("home"),
            net: NetMode::None,
            limits: Limits::default(),
            files: Vec::new(),
            secrets: Vec::new(),
            registry: world.join("registry"),
            sweeper: None,
            container: None,
            layer: None,
        }
    }

    fn kernel(landlock_abi: Option<u32>) -> Kernel {
        Kernel { landlock_abi, netfilter: Netfilter::Present, overlays: Overlays::Used }
    }

    fn sh(session: &mut Sandbox, cwd: &Path, script: &str) -> u8 {
        let argv = ["/bin/sh", "-c", script].map(ByteString::from).to_vec();
        let env = vec![(ByteString::from("PATH"), ByteString::from("/usr/bin:/bin"))];
        let io = CommandIo {
            stdin: StdinSource::Empty,
            stdout: OutputTarget::Discard,
            stderr: OutputTarget::Discard,
            interrupts: &[],
            timeout: None,
            output_bytes: 0,
        };
        session
            .run(&SandboxCommand { argv, env, cwd: cwd.to_owned(), approved: None }, io)
            .unwrap()
            .exit
            .code()
    }

    /// Each failure takes away one part, and no other failure takes any.
    #[test]
    fn a_launch_is_repeated_only_without_what_it_missed() {
        let failed =
            |step, errno| SandboxStartError::Step { backend: Backend::Native, step, operation: 0, errno };
        let whole = kernel(Some(1));
        let network = whole.without_missing(&failed(LaunchStep::Network, Errno::NOENT)).unwrap();
        assert_eq!(network, Kernel { netfilter: Netfilter::Absent, ..whole });
        let system = failed(LaunchStep::System, Errno::NODEV);
        let neither = network.without_missing(&system).unwrap();
        assert_eq!(neither, Kernel { overlays: Overlays::Unused, ..network });
        assert_eq!(neither.without_missing(&system), None);
        assert_eq!(neither.without_missing(&failed(LaunchStep::Network, Errno::NOENT)), None);
        assert_eq!(whole.without_missing(&failed(LaunchStep::System, Errno::NOMEM)), None);
        assert_eq!(whole.without_missing(&failed(LaunchStep::Masks, Errno::NODEV)), None);
        assert_eq!(whole.without_missing(&SandboxStartError::NoReport { backend: Backend::Native }), None);
    }

    /// Every ABI that this kernel has, from 1 on: it starts, works, holds, and says which it is.
    #[test]
    fn every_landlock_abi_of_this_kernel_starts_and_holds() {
        let world = tempfile::tempdir().unwrap();
        let world = world.path().canonicalize().unwrap();
        let newest = landlock::abi().expect("this kernel has no Landlock, so nothing here can be tested");
        for abi in 1..=newest {
            let spec = spec(&world);
            let mut session = start_on(&spec, &Open, &kernel(Some(abi))).unwrap();
            assert_eq!(session.posture().landlock_abi, Some(abi));
            assert!(
                matches!(session.posture().controls[&Control::FsWrite], ControlLevel::Enforced { .. }),
                "ABI {abi}"
            );
            let cwd = world.join("w");
            assert_eq!(
                sh(&mut session, &cwd, "echo x > f && cat f && mkdir -p d && echo y > /tmp/t"),
                0,
                "ABI {abi}"
            );
            assert_ne!(sh(&mut session, &cwd, "echo x > /usr/x || echo x > /etc/x"), 0, "ABI {abi}");
            // ABI 1 cannot tell one directory of a root from another, so it refuses every move between two.
            assert_eq!(
                sh(&mut session, &cwd, "perl -e 'exit(rename(\"f\", \"d/f\") ? 0 : 1)'") == 0,
                abi >= 2
            );
        }
    }

    /// Without Landlock the mounts still hold, and the posture does not claim more than that.
    #[test]
    fn without_landlock_the_posture_is_partial() {
        let world = tempfile::tempdir().unwrap();
        let world = world.path().canonicalize().unwrap();
        let session = start_on(&spec(&world), &Open, &kernel(None)).unwrap();
        assert_eq!(session.posture().landlock_abi, None);
        assert!(matches!(session.posture().controls[&Control::FsWrite], ControlLevel::Partial { .. }));
    }

    /// Without nf_tables the fence is the same: there is no route to anywhere, and the proxy is still there.
    #[test]
    fn without_netfilter_only_the_proxy_can_be_reached() {
        let world = tempfile::tempdir().unwrap();
        let world = world.path().canonicalize().unwrap();
        let spec = SandboxSpec { net: NetMode::Filtered, ..spec(&world) };
        let mut session =
            start_on(&spec, &Open, &Kernel { netfilter: Netfilter::Absent, ..kernel(landlock::abi()) })
                .unwrap();
        let net = &session.posture().controls[&Control::Net];
        assert!(matches!(net, ControlLevel::Enforced { by } if by.contains("no nf_tables")), "{net:?}");
        let doors = session.take_doors().unwrap();
        assert!(doors.transparent.is_none());
        let connect = |host: &str, port: u16| {
            format!(
                "perl -MSocket -e 'socket(my $s, AF_INET, SOCK_STREAM, 0); \
                 exit(connect($s, pack_sockaddr_in({port}, inet_aton(\"{host}\"))) ? 0 : $!)'"
            )
        };
        let unreachable = u8::try_from(libc::ENETUNREACH).unwrap();
        assert_eq!(sh(&mut session, &world.join("w"), &connect("203.0.113.9", 443)), unreachable);
        assert_eq!(sh(&mut session, &world.join("w"), &connect("127.0.0.1", ringfence_types::PROXY_PORT)), 0);
        assert!(doors.proxy.accept().is_ok(), "it arrived");
    }
}
