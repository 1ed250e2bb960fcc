//! A running sandbox: started once, it runs many commands; dropping it ends everything inside.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_launch::command::{APPROVED, SEALED_PROGRAM, TERMINAL_ERR, TERMINAL_IN, TERMINAL_OUT};
use ringfence_launch::plan::Writer;
use ringfence_launch::step::LaunchStep;
use ringfence_launch::wire::ControlMessage;
use ringfence_types::{Backend, HeldChange, LimitName, NetMode, Posture};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::approval::{self, ApprovedFiles, ApprovedProgram};
use crate::backend;
use crate::backend::container::ContainerPool;
use crate::backend::native::WorkspaceState;
use crate::cgroup::{Cgroups, Hits};
use crate::control_socket::{self, ControlEvent, ControlSocket};
use crate::held_changes::{self, CoveredPaths, ExaminationError, Watch, WatchError};
use crate::launch_sequence::{OuterProcess, SealedInit};
use crate::layer_view;
use crate::message_demux::{CommandMessages, InitMessage, MessageDemux};
use crate::meter::{self, MemoryFiles, Meter, MeterScope, PageLimits};
use crate::mount_guard::MountGuard;
use crate::netns::ProxySockets;
use crate::placeholders::{PlaceholderError, PlaceholderSet};
use crate::plan_compiler::PlanError;
use crate::relay::{self, CommandExit, CommandIo, RelayPause, StreamFilters};
use crate::spec::{HostView, SandboxCommand, SandboxSpec};
use crate::survey::{SurveyError, SurveyRules};
use crate::usage::SessionFiles;

/// Why a sandbox did not start. Nothing has run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxStartError {
    #[error("cannot look through the workspace")]
    Survey(#[from] SurveyError),
    #[error("cannot make placeholders for protected paths")]
    Placeholders(#[from] PlaceholderError),
    #[error("cannot tell later what came from inside")]
    Watch(#[from] WatchError),
    #[error("cannot compile the plan")]
    Compile(#[from] PlanError),
    #[error("cannot start the launcher")]
    Spawn(#[source] io::Error),
    #[error("the backend `{backend}` cannot {} (operation {operation})", step.describe())]
    Step {
        backend: Backend,
        step: LaunchStep,
        operation: u64,
        #[source]
        errno: Errno,
    },
    #[error("the launcher of backend `{backend}` ended without a report")]
    NoReport { backend: Backend },
    #[error("the backend `{backend}` is not available: {reason}")]
    Unavailable { backend: Backend, reason: String },
    #[error("the backend `{backend}` cannot be used for this: {reason}")]
    Unsupported { backend: Backend, what: UnsupportedFeature, reason: String },
    #[error("cannot make the layer of the root `{}`", ringfence_types::ByteString::from(root.as_path()).display())]
    Layer { root: std::path::PathBuf, source: io::Error },
    #[error("the backend `container` is not available")]
    Container {
        #[source]
        why: Box<dyn std::error::Error + Send + Sync>,
        hint: Option<String>,
    },
}

/// What a backend does not do on any machine. That it was asked for is answered with a no: nothing has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsupportedFeature {
    FilteredNetwork,
    ClosedRoot,
    SecretFile,
    HeldLink,
    Root,
    WholeMachine,
    /// A copy-on-write view of a root.
    Layer,
}

impl SandboxStartError {
    fn unfiltered(backend: Backend) -> Self {
        let reason = "it cannot filter the network, because it makes no network namespace".to_owned();
        Self::Unsupported { backend, what: UnsupportedFeature::FilteredNetwork, reason }
    }

    /// What would change the answer.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Step { backend: Backend::Container, step: LaunchStep::Namespaces | LaunchStep::IdMaps, .. } => Some(
                "the launcher needs a user namespace inside the container: set kernel.unprivileged_userns_clone=1 \
                 (Debian) or kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
                    .to_owned(),
            ),
            Self::Step { step: LaunchStep::Namespaces | LaunchStep::IdMaps, .. } => Some(
                "unprivileged user namespaces are off: set kernel.unprivileged_userns_clone=1 (Debian) or \
                 kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), install bubblewrap, or use --backend landlock"
                    .to_owned(),
            ),
            Self::Step { step: LaunchStep::Landlock, .. } => {
                Some("Landlock needs Linux 5.13 with CONFIG_SECURITY_LANDLOCK and `landlock` in the lsm= list".to_owned())
            }
            Self::Unsupported { what: UnsupportedFeature::FilteredNetwork, .. } => {
                Some("use --backend native or bubblewrap, or --net none".to_owned())
            }
            Self::Unsupported { backend: Backend::Native, what: UnsupportedFeature::Layer, .. } => {
                Some("use `ringfence run`, which works on the root itself".to_owned())
            }
            Self::Unsupported { what: UnsupportedFeature::Layer, .. } => {
                Some("use --backend native, or `ringfence run`, which works on the root itself".to_owned())
            }
            Self::Container { hint, .. } => hint.clone(),
            _ => None,
        }
    }

    /// Whether another backend might do what this one could not. A step that works on the roots is not about the
    /// machine: what is inside could make it fail to get a weaker sandbox. Neither is a shortage, which every
    /// backend meets, nor a control group, which every backend enters. And no other backend has a layer.
    pub fn is_about_this_machine(&self) -> bool {
        match self {
            Self::Step { step, errno, .. } => {
                let of_roots = matches!(
                    step,
                    LaunchStep::Roots | LaunchStep::Pins | LaunchStep::Protect | LaunchStep::Masks
                );
                !of_roots && *step != LaunchStep::Cgroup && !is_shortage(*errno)
            }
            Self::Unsupported { what, .. } => *what != UnsupportedFeature::Layer,
            Self::NoReport { .. } | Self::Unavailable { .. } => true,
            _ => false,
        }
    }

    /// Whether the same start may succeed a moment later: the machine was short of something, or something ended the
    /// launcher or removed its control group.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Spawn(error) => Errno::from_io_error(error).is_some_and(is_shortage),
            Self::Step { step, errno, .. } => *step == LaunchStep::Cgroup || is_shortage(*errno),
            Self::NoReport { .. } => true,
            _ => false,
        }
    }
}

/// KERNEL: not ENOSPC. It is what `user.max_user_namespaces = 0` answers, which no waiting changes.
fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::INTR)
}

/// Why a command did not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandRunError {
    #[error("an argument, variable or directory contains a NUL byte")]
    Nul,
    #[error("the command is empty")]
    Empty,
    #[error("cannot talk to the sandbox")]
    Control(#[source] Errno),
    #[error("the sandbox ended while the command was running")]
    SandboxEnded,
    #[error(
        "the sandbox was ended: `{}` was replaced on the host and could not be held again",
        ringfence_types::ByteString::from(path.as_path()).display()
    )]
    NotHeld { path: std::path::PathBuf },
    #[error("the sandbox was ended because a command killed its own supervisor")]
    LeaderLost,
    #[error("cannot relay input and output")]
    Relay(#[source] io::Error),
    #[error("the command ended, but its output could not be written")]
    Output(#[source] io::Error),
    #[error(transparent)]
    Unfinished(#[from] ExaminationError),
}

/// A command that runs in the background of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// What is known of a background command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxJob {
    pub id: JobId,
    pub argv: Vec<ringfence_types::ByteString>,
    /// wait(2)'s status, once it has ended.
    pub status: Option<i32>,
}

/// A running sandbox.
///
/// Field order is drop order: the control socket closes first, which ends everything inside; then PID 1 is waited
/// for; then nothing is left that could hold a control group or a placeholder.
#[derive(Debug)]
pub struct Sandbox {
    /// First: its thread ends before what it watches goes.
    guard: Option<MountGuard>,
    /// As early, for the same reason. Only where no control group limits memory.
    meter: Option<Meter>,
    control: ControlSocket,
    init: InitProcess,
    #[expect(dead_code, reason = "held for its drop: waits for the program around PID 1")]
    around: Option<OuterProcess>,
    cgroups: Cgroups,
    #[expect(dead_code, reason = "held for its drop: removes the placeholders")]
    placeholders: Option<PlaceholderSet>,
    /// After all of these: its last look finds nothing that still changes.
    watch: Option<Watch>,
    /// Until [`Watch`] has it.
    covered: Option<CoveredPaths>,
    posture: Posture,
    doors: Option<ProxySockets>,
    hold: RelayPause,
    notes: Vec<String>,
    demux: MessageDemux,
    last_call: AtomicU64,
    jobs: Mutex<Vec<SandboxJob>>,
    /// The files of commands that have not been executed yet, by the number of the call.
    approved: Mutex<HashMap<u64, Arc<ApprovedFiles>>>,
}

impl Sandbox {
    /// Starts a sandbox as `spec` says, with what `rules` hide and protect in its workspace. The backend `container` needs a pool.
    pub fn start(spec: &SandboxSpec, rules: &dyn SurveyRules) -> Result<Self, SandboxStartError> {
        Self::start_from(spec, rules, None)
    }

    /// The same, in a container of `pool` where one waits that is what `spec` asks for.
    pub fn start_from(
        spec: &SandboxSpec,
        rules: &dyn SurveyRules,
        pool: Option<&ContainerPool>,
    ) -> Result<Self, SandboxStartError> {
        if let Some(reason) = spec.cannot_close() {
            let what = UnsupportedFeature::ClosedRoot;
            return Err(SandboxStartError::Unsupported { backend: spec.backend, what, reason });
        }
        if let Some(secret) = spec.homeless_secret() {
            let reason = format!("it has no place of its own for the secret file `{}`", secret.name);
            let what = UnsupportedFeature::SecretFile;
            return Err(SandboxStartError::Unsupported { backend: spec.backend, what, reason });
        }
        if let Some(refused) = layer_view::refused(spec) {
            return Err(refused);
        }
        let span = tracing::debug_span!("start", backend = %spec.backend).entered();
        // Before anything is surveyed as the host's own.
        let repaired = held_changes::repair(&spec.registry);
        let started = match spec.backend {
            Backend::Native => backend::native::start(spec, rules),
            Backend::Bubblewrap => backend::bubblewrap::start(spec, rules),
            Backend::Container => backend::container::start(spec, rules, pool),
            backend if spec.net == NetMode::Filtered => Err(SandboxStartError::unfiltered(backend)),
            Backend::Landlock => backend::landlock::start(spec),
            Backend::External | Backend::None => backend::external_and_none::start(spec),
        };
        let started = started.and_then(|session| session.with_meter(spec));
        drop(span);
        let started = started.and_then(|session| session.watched(spec, repaired));
        match &started {
            Ok(session) => {
                tracing::info!(backend = %spec.backend, landlock = session.posture.landlock_abi, "sandbox started")
            }
            Err(error) => tracing::warn!(backend = %spec.backend, error = %error, "cannot start the sandbox"),
        }
        started
    }

    pub(crate) fn new(
        sealed: SealedInit,
        posture: Posture,
        surroundings: WorkspaceState,
    ) -> Result<Self, SandboxStartError> {
        if let Some(sweeper) = &surroundings.sweeper {
            // Before anything runs inside: a name must not become free for what still does.
            for process in sealed.processes() {
                sweeper.wait_for(process.map_err(SandboxStartError::Spawn)?.as_fd());
            }
        }
        let guard = match sealed.namespaces {
            Some(namespaces) if !surroundings.survey.roots.is_empty() => {
                let init = sealed.init.pidfd.try_clone().map_err(SandboxStartError::Spawn)?;
                Some(MountGuard::new(namespaces, init, surroundings.remembered))
            }
            _ => None,
        };
        Ok(Self {
            guard,
            meter: None,
            control: sealed.control,
            init: sealed.init,
            around: sealed.around,
            cgroups: sealed.cgroups,
            placeholders: surroundings.placeholders,
            watch: None,
            covered: Some(CoveredPaths::by(&surroundings.survey)),
            posture,
            doors: sealed.doors,
            hold: RelayPause::default(),
            notes: surroundings.survey.notes,
            demux: MessageDemux::default(),
            last_call: AtomicU64::new(0),
            jobs: Mutex::default(),
            approved: Mutex::default(),
        })
    }

    /// Has the memory of what runs here counted, where the kernel does not.
    fn with_meter(mut self, spec: &SandboxSpec) -> Result<Self, SandboxStartError> {
        let files = if spec.is_constructed() { MemoryFiles::Own } else { MemoryFiles::OfHost };
        let pages = PageLimits {
            memory_bytes: spec.limits.memory_bytes,
            file_bytes: spec.limits.file_size_bytes,
            files,
        };
        let by_kernel = self.cgroups.controls("memory");
        let scope = if by_kernel { MeterScope::LocksAlone } else { MeterScope::Pages(pages) };
        match Meter::start(&self.init.pidfd, scope) {
            Ok(meter) => self.meter = Some(meter),
            // An engine may have put it where its processes cannot be seen from here, which its posture says.
            Err(error) if by_kernel && spec.backend == Backend::Container => {
                tracing::debug!(error = %error, "file locks are not counted");
            }
            Err(error) => return Err(SandboxStartError::Spawn(error)),
        }
        Ok(self)
    }

    /// From here on what commands make is looked at. Where the whole machine is open, there is nothing to hold.
    fn watched(mut self, spec: &SandboxSpec, repaired: Vec<HeldChange>) -> Result<Self, SandboxStartError> {
        let covered = self.covered.take().unwrap_or_default();
        if matches!(spec.view, HostView::Constructed) {
            let watch = tracing::trace_span!("watch").in_scope(|| Watch::begin(spec, covered))?;
            watch.add(repaired);
            self.watch = Some(watch);
        }
        Ok(self)
    }

    /// Who is told of each change that was held, when it is found.
    pub fn report_held(&self, reporter: impl Fn(&[HeldChange]) + Send + Sync + 'static) {
        if let Some(watch) = &self.watch {
            watch.report_to(Box::new(reporter));
        }
    }

    /// The changes that were held since the last call.
    pub fn take_held(&self) -> Vec<HeldChange> {
        self.watch.as_ref().map(Watch::untold).unwrap_or_default()
    }

    /// What the kernel enforces for everything in this session.
    pub fn posture(&self) -> &Posture {
        &self.posture
    }

    /// The sockets that this session's connections arrive at, with `--net filtered`; once.
    pub fn take_doors(&mut self) -> Option<ProxySockets> {
        self.doors.take()
    }

    /// What the operator should know, for example that git metadata outside the workspace was left out.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Runs one command to its end, with everything it started gone when this returns. Others may run at the same time.
    pub fn run(&self, command: &SandboxCommand, io: CommandIo<'_>) -> Result<CommandExit, CommandRunError> {
        self.run_filtered(command, io, None)
    }

    /// As [`Sandbox::run`], with filters that see the output before it is delivered. However the command ends, the files
    /// that it made are examined before the caller gets the result.
    pub fn run_filtered(
        &self,
        command: &SandboxCommand,
        io: CommandIo<'_>,
        filters: Option<StreamFilters<'_>>,
    ) -> Result<CommandExit, CommandRunError> {
        let Some(watch) = &self.watch else { return self.attend_command(command, io, filters) };
        watch.enter().map_err(CommandRunError::Relay)?;
        let finished = self.attend_command(command, io, filters);
        if !matches!(finished, Ok(_) | Err(CommandRunError::Nul | CommandRunError::Empty)) {
            // Processes of the command may still run.
            self.end();
        }
        let looked = watch.leave();
        let finished = finished?;
        looked?;
        Ok(finished)
    }

    fn attend_command(
        &self,
        command: &SandboxCommand,
        io: CommandIo<'_>,
        filters: Option<StreamFilters<'_>>,
    ) -> Result<CommandExit, CommandRunError> {
        if let Some(guard) = &self.guard {
            guard.check();
        }
        let wiring = relay::CommandPipes::new(&io).map_err(CommandRunError::Relay)?;
        let id = self.next_id();
        let messages = self.demux.open(id).map_err(CommandRunError::Relay)?;
        let hits = self.cgroups.hits();
        self.request(id, command, &wiring.ask, &wiring.inside())?;
        let wiring = wiring.close_inside();
        let span = tracing::debug_span!("command", id).entered();
        let finished = relay::relay_command(self, &messages, wiring, io, filters);
        drop(span);
        // Still there where the command was never executed.
        drop(self.all_approved().remove(&id));
        let mut finished = finished?;
        if finished.limit_hit.is_none() {
            finished.limit_hit = self.limit_hit(id, hits);
        }
        Ok(finished)
    }

    /// Starts a command that lives until it ends, is killed, or the session ends. Its output goes to `output`.
    pub fn spawn(&mut self, command: &SandboxCommand, output: &OwnedFd) -> Result<JobId, CommandRunError> {
        // Not `/dev/null`: a descriptor of the host's node is one to change its mode by.
        let (ended, _closed) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|errno| CommandRunError::Relay(errno.into()))?;
        let fds = [ended.as_fd(), output.as_fd(), output.as_fd()];
        if let Some(guard) = &mut self.guard {
            guard.run().map_err(CommandRunError::Relay)?;
        }
        if let Some(watch) = &self.watch {
            // Never left: it is looked at until the session ends.
            watch.enter().map_err(CommandRunError::Relay)?;
        }
        let id = self.next_id();
        self.all_jobs().push(SandboxJob { id: JobId(id), argv: command.argv.clone(), status: None });
        match self.request(id, command, &TerminalStreams::default(), &fds) {
            Ok(()) => Ok(JobId(id)),
            Err(error) => {
                self.all_jobs().retain(|job| job.id.0 != id);
                Err(error)
            }
        }
    }

    /// The background commands of this session and how those that ended did.
    pub fn jobs(&self) -> Result<Vec<SandboxJob>, CommandRunError> {
        while self.read_for_all()? {}
        Ok(self.all_jobs().clone())
    }

    /// Kills a background command and everything it started.
    pub fn kill(&self, job: JobId) -> Result<(), CommandRunError> {
        self.control.send(ControlMessage::Kill { id: job.0 }, &[]).map_err(CommandRunError::Control)
    }

    /// What its commands have open.
    pub fn files(&self) -> SessionFiles {
        SessionFiles::below(meter::pid_of(&self.init.pidfd).ok())
    }

    /// Keeps the streams of the command in the foreground still.
    pub fn hold(&self) -> &RelayPause {
        &self.hold
    }

    pub(crate) fn guard(&self) -> Option<&MountGuard> {
        self.guard.as_ref()
    }

    /// Ends everything inside at once, whatever state it is in.
    pub fn end(&self) {
        // A stand-in that a command has stopped must be woken to see that its socket has closed.
        self.control.close();
        match self.init.role {
            InitRole::PidOne => self.init.kill(),
            InitRole::StandIn => {
                let woken = rustix::process::pidfd_send_signal(&self.init.pidfd, Signal::CONT);
                debug_assert!(matches!(woken, Ok(()) | Err(Errno::SRCH)));
            }
        }
    }

    pub(crate) fn signal(&self, id: u64, signal: i32) -> Result<(), CommandRunError> {
        let signal = u64::try_from(signal).unwrap_or_default();
        self.control.send(ControlMessage::Signal { id, signal }, &[]).map_err(CommandRunError::Control)
    }

    pub(crate) fn kill_call(&self, id: u64) -> Result<(), CommandRunError> {
        self.control.send(ControlMessage::Kill { id }, &[]).map_err(CommandRunError::Control)
    }

    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The next message for a command in the foreground, if one has arrived. Messages for other commands go to their queues.
    pub(crate) fn next_event(
        &self,
        messages: &CommandMessages<'_>,
    ) -> Result<Option<InitMessage>, CommandRunError> {
        if let Some(message) = messages.collect() {
            return Ok(Some(message));
        }
        match self.read_for_all() {
            Ok(_read) => Ok(messages.collect()),
            // What was said before the end counts.
            Err(ended) => messages.collect().map(Some).ok_or(ended),
        }
    }

    /// Reads one message, if there is one, and puts it where it belongs.
    fn read_for_all(&self) -> Result<bool, CommandRunError> {
        let reading = self.demux.reading();
        let (message, fd) = match self.control.try_receive().map_err(CommandRunError::Control)? {
            None => return Ok(false),
            Some(ControlEvent::Message(message, fd)) => (message, fd),
            Some(ControlEvent::End) => return Err(self.why_it_ended()),
        };
        match message {
            ControlMessage::LeaderLost { .. } => return Err(CommandRunError::LeaderLost),
            ControlMessage::Exited { id, status, .. } if self.note_job(id, status) => {}
            ControlMessage::Listener { id } => self.listen(id, fd),
            ControlMessage::Terminal { id }
            | ControlMessage::NotExecuted { id, .. }
            | ControlMessage::Exited { id, .. } => {
                self.demux.deliver(id, (message, fd));
            }
            _ => {}
        }
        drop(reading);
        Ok(true)
    }

    /// Without an answer the kernel refuses the calls that it asks about, so that nothing is executed.
    fn listen(&self, id: u64, listener: Option<OwnedFd>) {
        let approved = self.all_approved().remove(&id);
        if let Some((listener, approved)) = listener.zip(approved)
            && let Err(error) = approval::begin(listener, approved)
        {
            tracing::warn!(%error, "cannot pass approved files to their command");
        }
    }

    fn all_approved(&self) -> MutexGuard<'_, HashMap<u64, Arc<ApprovedFiles>>> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn why_it_ended(&self) -> CommandRunError {
        let lost = self.guard.as_ref().and_then(MountGuard::lost);
        lost.map_or(CommandRunError::SandboxEnded, |path| CommandRunError::NotHeld { path })
    }

    fn all_jobs(&self) -> MutexGuard<'_, Vec<SandboxJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_id(&self) -> u64 {
        self.last_call.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn note_job(&self, id: u64, status: u64) -> bool {
        match self.all_jobs().iter_mut().find(|job| job.id.0 == id) {
            Some(job) => {
                job.status = i32::try_from(status).ok();
                true
            }
            None => false,
        }
    }

    fn request(
        &self,
        id: u64,
        command: &SandboxCommand,
        terminal: &TerminalStreams,
        streams: &[BorrowedFd<'_>],
    ) -> Result<(), CommandRunError> {
        let program = command.approved.as_ref().and_then(|approved| approved.program(command));
        let bytes = encode(command, program.as_ref(), terminal)?;
        let memory = control_socket::sealed("ringfence-command", &bytes).map_err(CommandRunError::Control)?;
        let mut fds = vec![memory.as_fd()];
        fds.extend_from_slice(streams);
        if let Some(approved) = &command.approved {
            fds.extend(program.as_ref().and_then(ApprovedProgram::copy));
            drop(self.all_approved().insert(id, Arc::clone(approved)));
        }
        self.control.send(ControlMessage::Run { id, length: bytes.len() as u64 }, &fds).map_err(|errno| {
            match errno {
                Errno::PIPE | Errno::CONNRESET => CommandRunError::SandboxEnded,
                other => CommandRunError::Control(other),
            }
        })
    }

    fn limit_hit(&self, id: u64, before: Hits) -> Option<LimitName> {
        let counted = || self.meter.as_ref().is_some_and(|meter| meter.take_hit(id));
        self.cgroups.limit_hit(before).or_else(|| counted().then_some(LimitName::Memory))
    }
}

/// Which standard streams are a terminal inside, and how large it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TerminalStreams {
    pub(crate) streams: [Option<()>; 3],
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

fn encode(
    command: &SandboxCommand,
    program: Option<&ApprovedProgram<'_>>,
    terminal: &TerminalStreams,
) -> Result<Vec<u8>, CommandRunError> {
    if command.argv.is_empty() {
        return Err(CommandRunError::Empty);
    }
    let flags = [TERMINAL_IN, TERMINAL_OUT, TERMINAL_ERR];
    let flags = flags
        .iter()
        .zip(terminal.streams)
        .filter(|(_, on)| on.is_some())
        .fold(0, |all, (flag, _)| all | flag);
    let flags = flags | command.approved.as_ref().map_or(0, |_| APPROVED);
    let flags = flags | program.and_then(ApprovedProgram::copy).map_or(0, |_| SEALED_PROGRAM);
    let mut out = Writer::default();
    out.short(flags);
    out.short(u32::from(terminal.rows));
    out.short(u32::from(terminal.columns));
    out.short(u32::try_from(command.argv.len()).unwrap_or(u32::MAX));
    out.short(u32::try_from(command.env.len()).unwrap_or(u32::MAX));
    let nul = |_| CommandRunError::Nul;
    out.string_bytes(ringfence_types::ByteString::from(command.cwd.as_path()).as_slice()).map_err(nul)?;
    if command.approved.is_some() {
        out.blob(&approval::filter());
        let name = program.map(|program| program.name().as_slice()).unwrap_or_default();
        out.string_bytes(name).map_err(nul)?;
        out.number(program.map_or(0, ApprovedProgram::length));
    }
    for argument in &command.argv {
        out.string_bytes(argument.as_slice()).map_err(nul)?;
    }
    for (name, value) in &command.env {
        let variable = [name.as_slice(), b"=", value.as_slice()].concat();
        out.string_bytes(&variable).map_err(nul)?;
    }
    Ok(out.bytes)
}

/// PID 1 of the sandbox, or the process that stands in for it.
#[derive(Debug)]
pub(crate) struct InitProcess {
    pidfd: OwnedFd,
    role: InitRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InitRole {
    /// When it dies the kernel kills everything inside.
    PidOne,
    /// When it dies no other process does: it must be let finish.
    StandIn,
}

/// How long a stand-in may take to kill what it has started.
const LAST_WORDS: Duration = Duration::from_secs(3);

impl InitProcess {
    pub(crate) fn new(pidfd: OwnedFd, role: InitRole) -> Self {
        Self { pidfd, role }
    }

    pub(crate) fn process(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    fn kill(&self) {
        let killed = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        debug_assert!(matches!(killed, Ok(()) | Err(Errno::SRCH)));
    }
}

impl Drop for InitProcess {
    /// The control socket is closed by now, so it is ending by itself; the signal is for one that cannot.
    fn drop(&mut self) {
        let ended = self.role == InitRole::StandIn
            && relay::readable_within(self.pidfd.as_fd(), LAST_WORDS).is_ok_and(|ended| ended);
        if !ended {
            self.kill();
        }
        // ECHILD: inside bubblewrap it is not our child, and the wait for bubblewrap covers it.
        while let Err(Errno::INTR) =
            rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
        {}
    }
}
