//! A session: one agent, one workspace, one ceiling, for life.

mod call_context;
mod container_reuse;
mod core;
mod memory;
mod own_fence;
mod resume;

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ringfence_authz::{Policy, PolicyRules, SessionFacts, env::ApproverPresence};
use ringfence_ledger::{
    AppendError, Event, Ledger, LedgerLocation, LedgerOpenError, LedgerReadError, LedgerSettings, ProcessId,
    Receipt, SessionEndReason,
};
use ringfence_policy::ApprovalSettings;
use ringfence_sandbox::sweeper::Sweeper;
use ringfence_sandbox::{CommandIo, ContainerPool, SkeletonFile};
use ringfence_types::{
    Attenuation, ByteString, Call, CallOrigin, CredentialRef, Limits, Principal, Refusal, Root, SessionId,
    TransactionId,
};

use crate::approvals::{self, Approver, NoApprover};
use crate::effect::{FlowSummary, SharedApprover};
use crate::engine_containers::EngineContainers;
use crate::home::Resident;
use crate::images::{self, ImageRequest, SelectedImage};
use crate::layer::{self, CommandWrites, EndedLanding, LandingRecoveryError, SessionLayer};
use crate::leaks::{FindingTally, LeakError, LeakScanner, TextRedactor};
use crate::memory_budget::MemoryBudget;
use crate::observer::CallObserver;
use crate::operator_file::OperatorFileUpdate;
use crate::pipeline::{self, CallContext as _, Settled};
use crate::proposal::{self, JournalRecovery, RecoveryError};
use crate::proxy::{FlowApproverSettings, SessionProxy};
use crate::secrets::{SecretStore, SecretStoreError, SessionSecrets};
use crate::workspace::{Workspace, judge_agent, judge_extra_root, judge_name, judge_session_name};
pub(crate) use core::SessionFence;
use core::{RefreshedSpec, SessionCore, SessionRecordState};
pub use memory::JointMemory;
use memory::SessionMemory;
pub(crate) use memory::{AskPermit, BREAKER, DENIED_BEFORE, MOST_ASKING, NoTurn, STOPPED_LOOP, SharedMemory};
use own_fence::OwnFence;

pub use resume::{AbandonedSessions, end_abandoned, end_session};

/// Paths and environment facts of the host, supplied by the command line.
#[derive(Clone, Debug)]
pub struct HostSetup {
    pub state_dir: PathBuf,
    pub config_dir: PathBuf,
    pub home: Option<PathBuf>,
    pub host_env: Vec<(ByteString, ByteString)>,
    pub attendance: ApproverPresence,
    pub toolchains: Vec<Toolchain>,
    /// Files for the read-only system inside, such as a `gitconfig` with the operator's name.
    pub files: Vec<SkeletonFile>,
    /// A program that becomes a sweeper when started with [`ringfence_sandbox::sweeper::WORD`]. Without one,
    /// placeholders of a killed process stay until the next session.
    pub sweeper: Option<PathBuf>,
    /// Files that the host runs or obeys next for Ringfence: its program and the agent settings that name it.
    pub own: Vec<PathBuf>,
}

/// A language toolchain below the real home, shown read-only.
#[derive(Clone, Debug)]
pub struct Toolchain {
    pub roots: Vec<PathBuf>,
    /// Its directories for `PATH`.
    pub programs: Vec<PathBuf>,
    pub env: Vec<(ByteString, ByteString)>,
    /// Links below the synthetic home to the toolchain's packages.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// The runtime of one process: its ledger and its setup.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) setup: HostSetup,
    recovered: Vec<Result<JournalRecovery, RecoveryError>>,
    recovered_landings: Vec<Result<EndedLanding, LandingRecoveryError>>,
    /// Pooled containers for sessions of this process.
    pub(crate) pool: ContainerPool,
    sweeper: OnceLock<Option<Arc<Sweeper>>>,
}

/// Why a session could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenSessionError {
    #[error("cannot prepare the home of the workspace")]
    Home(#[source] io::Error),
    #[error("cannot make an id")]
    Id(#[source] io::Error),
    #[error("cannot write to the ledger")]
    Ledger(#[from] AppendError),
    #[error("cannot read the ledger")]
    Read(#[from] LedgerReadError),
    #[error("cannot read the ledger")]
    Open(#[from] LedgerOpenError),
    #[error("cannot close what was left open")]
    Left(#[from] approvals::InboxError),
    /// Without the stored secrets Ringfence cannot redact them from the ledger.
    #[error("the secrets of the operator cannot be read, so nothing is done")]
    Secrets(#[from] SecretStoreError),
    #[error("cannot load the leak scanner; refusing to run")]
    Leaks(#[from] LeakError),
}

impl OpenSessionError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Secrets(error) => error.hint(),
            Self::Leaks(error) => error.hint(),
            _ => None,
        }
    }
}

/// The specification of a session.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    pub workspace: PathBuf,
    pub policy: Policy,
    /// Digest of the policy, which answers are bound to.
    pub policy_digest: String,
    /// The files that the policy was read from, also missing ones: answers are bound to their content.
    pub policy_files: Vec<PathBuf>,
    pub settings: ApprovalSettings,
    /// Roots besides the workspace.
    pub roots: Vec<Root>,
    /// Real paths where the agent works: steering files there are protected even while they do not exist.
    pub worked_in: Vec<PathBuf>,
    /// A later process resumes the session by this name; without one it ends with this process.
    pub name: Option<String>,
    pub agent: Option<String>,
    pub started_by: Principal,
    /// The credential of a principal that the kernel does not identify.
    pub started_with: Option<CredentialRef>,
    /// For the backend `container`.
    pub image: Option<ImageRequest>,
    /// Further read-only directories, such as that of the session socket.
    pub shown: Vec<PathBuf>,
    /// Denials, loops and the circuit breaker that hold in other sessions of the same agent as well.
    pub memory: Option<JointMemory>,
}

impl SessionSpec {
    /// A session of the owner of this process, with defaults.
    pub fn new(workspace: PathBuf, policy: Policy) -> Self {
        Self {
            workspace,
            policy_digest: format!("profile {}", policy.profile),
            policy,
            policy_files: Vec::new(),
            settings: ApprovalSettings::default(),
            roots: Vec::new(),
            worked_in: Vec::new(),
            name: None,
            agent: None,
            started_by: approvals::local_operator(),
            started_with: None,
            image: None,
            shown: Vec::new(),
            memory: None,
        }
    }
}

/// Reads the policy again when one of its sources changed.
pub trait PolicySource: fmt::Debug {
    fn read(&self) -> Result<SessionSpec, Refusal>;

    /// Whether the next call must use the result of [`PolicySource::read`].
    fn has_changed(&self) -> bool {
        false
    }
}

impl<S: PolicySource + ?Sized> PolicySource for Arc<S> {
    fn read(&self) -> Result<SessionSpec, Refusal> {
        (**self).read()
    }

    fn has_changed(&self) -> bool {
        (**self).has_changed()
    }
}

impl Runtime {
    /// Fails without a ledger: no effect may happen without a record.
    pub fn open(setup: HostSetup) -> Result<Self, LedgerOpenError> {
        let settings = LedgerSettings::load(&setup.config_dir.join("ledger.toml"))?;
        let ledger = LedgerLocation::of(&setup.state_dir, &settings)?.open(settings)?;
        // First, because the outcome of these is known. The rest is only known to be abandoned.
        let recovered = proposal::recover(&ledger, &setup.state_dir);
        for recovered in &recovered {
            tracing::warn!(succeeded = recovered.is_ok(), "an interrupted application of a proposal");
        }
        let recovered_landings = layer::recover(&ledger, &setup.state_dir);
        // An unwritable ledger also refuses the first intent, which reports the error.
        let _unwritable = ledger.recover(&ProcessId::is_alive);
        Ok(Self {
            ledger: Arc::new(ledger),
            setup,
            recovered,
            recovered_landings,
            pool: ContainerPool::new(EngineContainers),
            sweeper: OnceLock::new(),
        })
    }

    /// Interrupted applications of proposals, and how this start recovered them.
    pub fn recovered(&self) -> &[Result<JournalRecovery, RecoveryError>] {
        &self.recovered
    }

    /// Interrupted landings, and how this start ended them.
    pub fn recovered_landings(&self) -> &[Result<EndedLanding, LandingRecoveryError>] {
        &self.recovered_landings
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn setup(&self) -> &HostSetup {
        &self.setup
    }

    /// One sweeper for all sessions of this process, started with the first sandbox.
    pub(crate) fn sweeper(&self) -> Option<Arc<Sweeper>> {
        let start = || {
            let registry = self.setup.state_dir.join("placeholders");
            let started = Sweeper::start(self.setup.sweeper.as_deref()?, &registry);
            let started = started
                .inspect_err(|error| tracing::warn!(error = %error, "cannot start the sweeper process"));
            started.ok().map(Arc::new)
        };
        self.sweeper.get_or_init(start).clone()
    }

    /// Records a refusal that precedes any session.
    pub fn refuse(&self, refusal: &Refusal) -> Result<(), AppendError> {
        let refusal = self.cleaner().refusal(refusal);
        self.ledger
            .append(&Event::CallRefused {
                transaction: None,
                session: None,
                call: None,
                refusal,
                call_origin: None,
            })
            .map(drop)
    }

    /// Records a change of the operator's policy.
    pub fn policy_changed(&self, stored: &OperatorFileUpdate, change: &str) -> Result<(), AppendError> {
        self.policy_changes(stored, &[change.to_owned()])
    }

    /// Records several changes that are one: all of them or none.
    pub fn policy_changes(&self, stored: &OperatorFileUpdate, changes: &[String]) -> Result<(), AppendError> {
        let cleaner = self.cleaner();
        let event = |change: &String| Event::PolicyChanged {
            session: None,
            file: ByteString::from(stored.file.as_path()),
            sha256: stored.sha256.clone(),
            change: cleaner.text(change),
        };
        let events: Vec<Event> = changes.iter().map(event).collect();
        self.ledger.append_all(&events).map(drop)
    }

    pub(crate) fn cleaner(&self) -> TextRedactor {
        TextRedactor::of(&self.setup.state_dir)
    }

    /// Opens a session or refuses the workspace. The ledger records a refusal.
    pub fn session(&self, asked: SessionSpec) -> Result<Result<AgentSession<'_>, Refusal>, OpenSessionError> {
        let secrets = SecretStore::new(&self.setup.state_dir).read()?;
        let judged = Workspace::open(&self.setup, &asked).map_err(OpenSessionError::Home)?;
        let judged = judged.and_then(|(workspace, repairs)| {
            let leaks = LeakScanner::of_state(&secrets, &self.setup.state_dir);
            judge_name(&leaks, &workspace.path)?;
            asked.roots.iter().try_for_each(|root| judge_name(&leaks, root.path.as_path()))?;
            // `danger` with its second flag opens credential stores on purpose.
            if !asked.policy.danger.allow_sensitive_roots {
                asked.roots.iter().try_for_each(|root| judge_extra_root(&self.setup, root.path.as_path()))?;
            }
            asked.agent.iter().try_for_each(|agent| judge_agent(&leaks, agent))?;
            asked.name.iter().try_for_each(|name| judge_session_name(&leaks, name))?;
            Ok((workspace, repairs, images::select(&self.setup, &asked)?))
        });
        let (workspace, repairs, container) = match judged {
            Ok(judged) => judged,
            Err(refusal) => {
                self.refuse(&refusal)?;
                return Ok(Err(refusal));
            }
        };
        let resumed = resume::named(&self.ledger, &self.setup.state_dir, &workspace, &asked)?;
        let (id, memory, standing) = match resumed {
            Some((id, memory)) => (id, memory, SessionRecordState::Open),
            None => {
                let id =
                    SessionId::random().map_err(|error| OpenSessionError::Id(io::Error::other(error)))?;
                (id, SessionMemory::default(), SessionRecordState::New)
            }
        };
        let leaks = LeakScanner::of_session(&secrets, &self.setup, &workspace.path)?;
        let memory = asked.memory.clone().unwrap_or_else(|| JointMemory::new(memory));
        let common = Arc::new(SessionCore::new(memory, standing));
        common.tell(repairs);
        tracing::info!(id = %id, workspace = %workspace.id, profile = %asked.policy.profile, resumed = standing == SessionRecordState::Open, "session");
        Ok(Ok(AgentSession::of(SessionShared {
            runtime: self,
            resident: Resident::of(workspace.id.clone(), &asked),
            id,
            name: asked.name,
            agent: asked.agent,
            started_by: asked.started_by,
            started_with: asked.started_with,
            workspace,
            policy: asked.policy,
            policy_digest: images::bound(asked.policy_digest, container.as_ref()),
            policy_files: asked.policy_files,
            settings: asked.settings,
            roots: asked.roots,
            worked_in: asked.worked_in,
            common,
            attention: FlowApproverSettings::default(),
            container,
            secrets: Arc::new(SessionSecrets::new(secrets)),
            shown: asked.shown,
            variables: Vec::new(),
            leaks,
        })))
    }
}

/// The parts of a policy that a sandbox is made from. The wall-clock limit is not one of them.
fn fence(policy: &Policy) -> impl PartialEq + '_ {
    let Policy { profile, access, danger, net, backend, container, limits, floor, home, rules, .. } = policy;
    // Without `..`: a new kind of rule that shapes a sandbox must not leave the old sandbox running.
    let PolicyRules { paths, hosts, commands: _, env: _, tools: _ } = rules;
    let limits = Limits { wall_ms: None, ..limits.clone() };
    ((profile, access, danger, net, backend, container), (limits, floor, home), (paths, hosts))
}

/// A running session. Its sandbox starts with the first command and ends with the session.
#[derive(Debug)]
pub struct AgentSession<'r> {
    bound: SessionShared<'r>,
    /// The agent's claim about its next call.
    pub(crate) stated: Option<String>,
    /// The part of the session that the next call may use.
    pub(crate) left: Attenuation,
    /// The origin of the next calls, if several clients share the session.
    pub(crate) made_by: Option<Box<CallOrigin>>,
    /// Wall-clock limit of the next commands, if the client sets one.
    wall_ms: Option<u64>,
    pub(crate) approver: Box<dyn Approver + 'r>,
    /// The end of the session is recorded with the end of the next call.
    ends: bool,
    /// Findings of the current call.
    pub(crate) found: FindingTally,
    /// Set while the current call has a ceiling below the session's.
    pub(crate) own: Option<Box<OwnFence<'r>>>,
    observer: Option<Arc<dyn CallObserver>>,
    weigher: Option<Arc<dyn MemoryBudget>>,
    pub(crate) writes: CommandWrites,
    /// The layer of the command that runs.
    pub(crate) layer: Option<Arc<SessionLayer>>,
}

/// The part of a session that all its calls share.
#[derive(Clone, Debug)]
pub struct SessionShared<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) id: SessionId,
    name: Option<String>,
    agent: Option<String>,
    pub(crate) started_by: Principal,
    started_with: Option<CredentialRef>,
    pub(crate) workspace: Workspace,
    pub(crate) resident: Resident,
    pub(crate) policy: Policy,
    pub(crate) policy_digest: String,
    pub(crate) policy_files: Vec<PathBuf>,
    pub(crate) settings: ApprovalSettings,
    pub(crate) roots: Vec<Root>,
    pub(crate) worked_in: Vec<PathBuf>,
    pub(crate) common: Arc<SessionCore>,
    /// The approver and policy source for flows.
    pub(crate) attention: FlowApproverSettings,
    pub(crate) container: Option<SelectedImage>,
    pub(crate) secrets: Arc<SessionSecrets>,
    /// Further read-only directories.
    pub(crate) shown: Vec<PathBuf>,
    /// For every command of the session.
    pub(crate) variables: Vec<(ByteString, ByteString)>,
    pub(crate) leaks: LeakScanner,
}

impl<'r> Deref for AgentSession<'r> {
    type Target = SessionShared<'r>;

    fn deref(&self) -> &SessionShared<'r> {
        &self.bound
    }
}

impl DerefMut for AgentSession<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.bound
    }
}

impl<'r> SessionShared<'r> {
    /// A handle for a concurrent call, with the same memory, sandbox and network.
    pub fn call_handle(&self) -> AgentSession<'r> {
        let mut lane = AgentSession::of(self.clone());
        if let Some(refreshed) = self.common.refreshed() {
            lane.adopt(refreshed);
        }
        lane
    }

    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// For another session of the same agent.
    pub fn joint_memory(&self) -> JointMemory {
        self.common.memory().joint()
    }

    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The redacted text, for display.
    pub fn clean(&self, text: &str) -> String {
        self.leaks.text(text)
    }

    /// Redacts a command line, including values of options that take secrets.
    pub fn clean_argv(&self, argv: &[String]) -> Vec<String> {
        let (clean, _) = self.leaks.scanner().redact_argv(argv);
        clean.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    pub fn is_in_container(&self) -> bool {
        self.container.is_some()
    }

    pub(crate) fn all_roots(&self) -> Vec<Root> {
        let path = ByteString::from(self.workspace.path.as_path());
        let mut roots = vec![Root { path, access: self.policy.access }];
        roots.extend(self.roots.iter().cloned());
        roots
    }

    /// The principal that started the session, and its credential.
    pub(crate) fn started(&self) -> CallOrigin {
        CallOrigin { principal: self.started_by.clone(), credential: self.started_with.clone() }
    }

    /// Records the refusal of a request that is no call of the pipeline.
    pub fn refuse(&self, refusal: &Refusal) -> Result<(), AppendError> {
        let (session, refusal) = (Some(self.id.clone()), self.leaks.refusal(refusal));
        let event = Event::CallRefused { transaction: None, session, call: None, refusal, call_origin: None };
        self.runtime.ledger().append(&event).map(drop)
    }

    /// The specification of this session, for dry runs.
    pub fn asked(&self) -> SessionSpec {
        SessionSpec {
            policy_digest: self.policy_digest.clone(),
            policy_files: self.policy_files.clone(),
            settings: self.settings.clone(),
            roots: self.roots.clone(),
            worked_in: self.worked_in.clone(),
            agent: self.agent.clone(),
            started_by: self.started_by.clone(),
            started_with: self.started_with.clone(),
            ..SessionSpec::new(self.workspace.path.clone(), self.policy.clone())
        }
    }
}

impl<'r> AgentSession<'r> {
    /// Sets the approver. Without one, only operators elsewhere can answer.
    pub fn set_approver(&mut self, approver: impl Approver + 'r) {
        self.approver = Box::new(approver);
    }

    /// Sets the approver for flows, which proxy threads use while a command runs.
    pub fn set_flow_approver(&mut self, approver: impl Approver + Clone + Send + 'static) {
        self.attention.approver = Arc::new(SharedApprover::new(approver));
    }

    /// Sets the source that reloads a changed policy: before a flow, and after an approval was pending.
    pub fn set_policy_source(&mut self, source: impl PolicySource + Send + Sync + 'static) {
        self.attention.source = Some(Arc::new(source));
    }

    /// Variables for every command of the session. They come from Ringfence, so policy does not evaluate
    /// them.
    pub fn set_variables(&mut self, variables: Vec<(ByteString, ByteString)>) {
        self.variables = variables;
    }

    /// The agent's claim about its next call; shown as untrusted.
    pub fn set_claim(&mut self, stated: Option<String>) {
        self.stated = stated;
    }

    /// Limits the paths and hosts of the next in-process calls to what their client may use. Commands in the
    /// sandbox are limited by the sandbox.
    pub fn set_attenuation(&mut self, left: Attenuation) {
        self.left = left;
    }

    /// The origin of the next calls, recorded with each.
    pub fn set_made_by(&mut self, by: CallOrigin) {
        self.made_by = Some(Box::new(by));
    }

    /// Overrides a variable for the next calls. It comes from Ringfence, so policy does not evaluate it.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        let own = [(ByteString::from(name), ByteString::from(value))];
        self.variables = ringfence_authz::env::merge(std::mem::take(&mut self.variables), &own);
    }

    /// Receives the progress of the next calls.
    pub fn set_observer(&mut self, observer: Arc<dyn CallObserver>) {
        self.observer = Some(observer);
    }

    /// Consulted before the next calls read a whole file.
    pub fn set_memory_budget(&mut self, weigher: Arc<dyn MemoryBudget>) {
        self.weigher = Some(weigher);
    }

    pub(crate) fn reserve_memory(&self, bytes: u64) -> io::Result<()> {
        self.weigher.as_ref().map_or(Ok(()), |weigher| weigher.weigh(bytes))
    }

    /// Runs one call through the pipeline. The only way to any effect.
    pub fn call(&mut self, call: Call, io: CommandIo<'_>) -> Settled {
        pipeline::call(call, self, io)
    }

    /// Evaluates a call that the agent executes itself, with the content as input, requests an approval if
    /// needed, and records that it was left `to` the agent. A refusal is settled like that of any other call.
    pub fn leave(&mut self, call: Call, io: &CommandIo<'_>, to: &str) -> Result<TransactionId, Settled> {
        pipeline::delegate(call, self, io, to)
    }

    /// Records that a tool without a rule was left `to` the user of the agent, whom the agent asks by itself.
    /// A denial or a leak is settled like that of any other call.
    pub fn refer(&mut self, call: Call, io: &CommandIo<'_>, to: &str) -> Result<TransactionId, Settled> {
        pipeline::defer(call, self, io, to)
    }

    /// Whether an approver can be reached: here, by watching, or through a notification channel.
    pub fn can_ask(&mut self) -> bool {
        let elsewhere =
            approvals::is_watched(&self.runtime.setup.state_dir) || !self.settings.notify.is_empty();
        elsewhere || self.approver.is_there()
    }

    /// Runs the last call of a session and records both ends together, unless the session is named.
    pub fn last_call(mut self, call: Call, io: CommandIo<'_>) -> Settled {
        self.ends = self.name.is_none();
        pipeline::call(call, &mut self, io)
    }

    /// Records the end of the session, if its start is recorded and it has no name.
    pub fn end(self) -> Result<(), AppendError> {
        self.end_because(SessionEndReason::Finished)
    }

    /// Like [`Self::end`], with a reason.
    pub fn end_because(self, reason: SessionEndReason) -> Result<(), AppendError> {
        self.common.memory().set_closed();
        self.common.end_fence();
        self.forget_containers();
        if self.is_named() || self.is_over() || !self.common.close() {
            return Ok(());
        }
        let event = Event::SessionEnded { session: self.id.clone(), reason: Some(reason) };
        self.runtime.ledger.append_late(&[event])
    }

    fn of(bound: SessionShared<'r>) -> Self {
        Self {
            bound,
            stated: None,
            left: Attenuation::none(),
            made_by: None,
            wall_ms: None,
            approver: Box::new(NoApprover),
            ends: false,
            found: FindingTally::default(),
            own: None,
            observer: None,
            weigher: None,
            writes: CommandWrites::Direct,
            layer: None,
        }
    }

    /// The shared part, from which other threads make calls. Their approvals are answered through the ledger
    /// only.
    pub fn into_bound(self) -> SessionShared<'r> {
        self.bound
    }

    /// Records the agent's claim about its activity, redacted; shown as untrusted.
    pub fn report(&mut self, kind: &str, text: &str) -> Result<u64, AppendError> {
        let event = Event::ActivityReported {
            session: self.id.clone(),
            activity: self.leaks.text(kind),
            claim: self.leaks.text(text),
        };
        let receipts = self.append(vec![event])?;
        Ok(receipts.last().map(Receipt::seq).unwrap_or_default())
    }

    /// Limits the run time of the next commands. Policy can only shorten it, also after a reload.
    pub fn set_wall_limit(&mut self, milliseconds: u64) {
        self.wall_ms = Some(milliseconds);
        self.hold_to_wall_limit();
    }

    fn hold_to_wall_limit(&mut self) {
        let limits = [self.policy.limits.wall_ms, self.wall_ms];
        self.policy.limits.wall_ms = limits.into_iter().flatten().min();
    }

    /// Records the start of the session now, not with its first call.
    pub fn begin(&mut self) -> Result<(), AppendError> {
        self.append(Vec::new()).map(drop)
    }

    /// What stored answers are bound to besides the policy and the roots.
    pub(crate) fn session_facts(&self) -> SessionFacts {
        SessionFacts {
            agent: self.agent.clone(),
            image: self.container.as_ref().map(|chosen| chosen.image.id.as_str().to_owned()),
            secrets: self.secrets.uses(),
        }
    }

    /// Ends the session with this call, even if it is named.
    pub(crate) fn terminate(&mut self) {
        self.ends = true;
        self.common.memory().set_over();
    }

    /// Ends the sandbox of the session, with everything in it.
    pub(crate) fn end_sandbox(&self) {
        self.common.end_sandbox();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.common.memory().is_over()
    }

    pub(crate) fn requester(&self) -> Principal {
        // Escaped, because programs that read records display the name as it is.
        let name = self.agent.as_deref().map(|name| ByteString::from(name).display());
        Principal::Agent { session: self.id.clone(), name }
    }

    /// Ends the network with the last call; returns the summary.
    pub(crate) fn leave_network(&mut self) -> Option<FlowSummary> {
        if let Some(own) = &mut self.own {
            return own.fence.network.take().map(SessionProxy::close);
        }
        let mut fence = self.common.fence();
        if !self.ends {
            return fence.network.as_ref().map(SessionProxy::seen);
        }
        let network = fence.network.take();
        // Closing records the end and waits for flows that still ask, so the lock is released first.
        drop(fence);
        network.map(SessionProxy::close)
    }

    /// The record that ends the session with its last call.
    pub(crate) fn ending(&self) -> Option<Event> {
        let reason = if self.is_over() { SessionEndReason::Leak } else { SessionEndReason::Finished };
        self.ends.then(|| Event::SessionEnded { session: self.id.clone(), reason: Some(reason) })
    }

    fn start(&self) -> Event {
        Event::SessionStarted {
            session: self.id.clone(),
            name: self.name.clone(),
            workspace_id: self.workspace.id.clone(),
            workspace: ByteString::from(self.workspace.path.as_path()),
            profile: self.policy.profile,
            requested_backend: self.policy.backend,
            agent: self.agent.clone(),
            principal: self.started_by.clone(),
            policy_digest: self.policy_digest.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // A named session spans several processes; each marks its own transactions.
            process: if self.is_named() { None } else { ProcessId::own() },
        }
    }

    /// Reloads the policy if its source reports a change.
    pub fn renew(&mut self) -> Result<(), Refusal> {
        let changed = self.attention.source.as_ref().is_some_and(|source| source.has_changed());
        if changed { self.refresh() } else { Ok(()) }
    }

    /// Replaces the policy of the session.
    fn replace(&mut self, asked: SessionSpec, container: Option<SelectedImage>) {
        let fence_changed = fence(&self.policy) != fence(&asked.policy) || self.container != container;
        if fence_changed || self.roots != asked.roots {
            // The sandbox enforces the old policy, so it ends with its processes.
            self.common.end_sandbox();
        }
        let refreshed = RefreshedSpec { spec: asked, container };
        self.common.refresh(refreshed.clone());
        self.adopt(refreshed);
    }

    fn adopt(&mut self, refreshed: RefreshedSpec) {
        let RefreshedSpec { spec: asked, container } = refreshed;
        self.policy = asked.policy;
        self.container = container;
        self.policy_digest = images::bound(asked.policy_digest, self.container.as_ref());
        self.policy_files = asked.policy_files;
        self.settings = asked.settings;
        self.roots = asked.roots;
        self.hold_to_wall_limit();
    }
}
