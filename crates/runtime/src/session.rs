//! A session: one agent, one workspace, one ceiling, for life.

mod common;
mod containers;
mod resume;

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use ringfence_authz::policy::ApprovalSettings;
use ringfence_authz::{Policy, env::Attendance};
use ringfence_ledger::{
    AppendError, Event, Ledger, Location, OpenError, ProcessId, ReadError, Receipt, SessionEnd, Settings,
};
use ringfence_sandbox::sweeper::Sweeper;
use ringfence_sandbox::{Io, Pool, SkeletonFile};
use ringfence_types::{
    Attenuation, Bytes, Call, Decision, Limits, MadeBy, Principal, Refusal, Root, SessionId, ShownCredential,
    TransactionId,
};

use crate::approval::{self, Approver, Inquiry, Memory, Nobody};
use crate::facts::{Inside, Machine};
use crate::home::Resident;
use crate::images::{self, Chosen, InImage};
use crate::leaks::{Cleaner, LeakError, LeakScanner, Tally};
use crate::network::{Attention, Network, Seen, SharedApprover};
use crate::observe::{Observer, Stage};
use crate::pipeline::{self, Ended, Received, Settled};
use crate::proposal::{self, Recovery, RecoveryError};
use crate::secrets::{SecretStore, SessionSecrets, StoreError};
use crate::standing::Stored;
use crate::weigh::Weigher;
use crate::workspace::{Workspace, judge_agent, judge_extra_root, judge_name, judge_session_name};
pub(crate) use common::Fence;
use common::{Common, Standing};

pub use resume::{Abandoned, end_abandoned, end_session};

/// What only the command line knows: where things are, and what the host's environment says.
#[derive(Clone, Debug)]
pub struct Setup {
    pub state_dir: PathBuf,
    pub config_dir: PathBuf,
    pub home: Option<PathBuf>,
    pub host_env: Vec<(Bytes, Bytes)>,
    pub attendance: Attendance,
    pub toolchains: Vec<Toolchain>,
    /// Files for the read-only system inside, such as a `gitconfig` with the operator's name.
    pub files: Vec<SkeletonFile>,
    /// A program that becomes a sweeper when it is started with [`ringfence_sandbox::sweeper::WORD`]. Without one, the
    /// placeholders of a process that was killed stay until the next session.
    pub sweeper: Option<PathBuf>,
    /// What the host runs or obeys next on behalf of Ringfence: its program and the files in which agents name it.
    pub own: Vec<PathBuf>,
}

/// A language toolchain below the real home, shown read-only.
#[derive(Clone, Debug)]
pub struct Toolchain {
    pub roots: Vec<PathBuf>,
    /// Directories of it that belong on `PATH`.
    pub programs: Vec<PathBuf>,
    pub env: Vec<(Bytes, Bytes)>,
    /// Below the synthetic home: links to where the toolchain keeps its packages.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// The runtime of one process: its ledger and its setup.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) setup: Setup,
    recovered: Vec<Result<Recovery, RecoveryError>>,
    /// Containers that wait for sessions of this process.
    pub(crate) pool: Pool,
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
    Read(#[from] ReadError),
    #[error("cannot read the ledger")]
    Open(#[from] OpenError),
    #[error("cannot close what was left open")]
    Left(#[from] approval::InboxError),
    /// What is not known cannot be kept out of the ledger.
    #[error("the secrets of the operator cannot be read, so nothing is done")]
    Secrets(#[from] StoreError),
    #[error("secrets cannot be told from other text, so nothing is done")]
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

/// What a session was asked to be.
#[derive(Clone, Debug)]
pub struct Asked {
    pub workspace: PathBuf,
    pub policy: Policy,
    /// Of the policy: what answers are bound to.
    pub policy_digest: String,
    /// The files that the policy was read from, also where there is none yet: an answer is bound to what they say.
    pub policy_files: Vec<PathBuf>,
    pub settings: ApprovalSettings,
    /// Roots besides the workspace.
    pub roots: Vec<Root>,
    /// Where the agent and its commands work, by real paths: what steers an agent is held there also while absent.
    pub worked_in: Vec<PathBuf>,
    /// Under which the session goes on in a later process; without a name it ends with this one.
    pub name: Option<String>,
    pub agent: Option<String>,
    pub started_by: Principal,
    /// What they showed, where they are not known by the kernel.
    pub started_with: Option<ShownCredential>,
    /// For the backend `container`.
    pub image: Option<InImage>,
    /// Directories that are shown besides, read-only: the door of a session that has one.
    pub shown: Vec<PathBuf>,
}

impl Asked {
    /// A session of the owner of this process, with nothing said besides.
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
            started_by: approval::local_operator(),
            started_with: None,
            image: None,
            shown: Vec::new(),
        }
    }
}

/// Reads the policy again when something it depends on has changed.
pub trait PolicySource: fmt::Debug {
    fn read(&self) -> Result<Asked, Refusal>;

    /// Whether the next call has to be judged by what [`PolicySource::read`] says now.
    fn has_changed(&self) -> bool {
        false
    }
}

impl<S: PolicySource + ?Sized> PolicySource for Arc<S> {
    fn read(&self) -> Result<Asked, Refusal> {
        (**self).read()
    }

    fn has_changed(&self) -> bool {
        (**self).has_changed()
    }
}

impl Runtime {
    /// No ledger, no runtime: without a place to write nothing may happen.
    pub fn open(setup: Setup) -> Result<Self, OpenError> {
        let settings = Settings::load(&setup.config_dir.join("ledger.toml"))?;
        let ledger = Location::of(&setup.state_dir, &settings)?.open(settings)?;
        // First: of these it is known what became of them. Of the rest only that nobody works on it.
        let recovered = proposal::recover(&ledger, &setup.state_dir);
        for recovered in &recovered {
            tracing::warn!(succeeded = recovered.is_ok(), "an application that was left half done");
        }
        // A ledger that cannot be written refuses the first intent, too, and that is where it is told.
        let _unwritable = ledger.recover(&ProcessId::is_alive);
        Ok(Self {
            ledger: Arc::new(ledger),
            setup,
            recovered,
            pool: Pool::default(),
            sweeper: OnceLock::new(),
        })
    }

    /// Applications that somebody left half done, and what this start made of them.
    pub fn recovered(&self) -> &[Result<Recovery, RecoveryError>] {
        &self.recovered
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// One for all sessions of this process, started for the first that puts up a fence.
    pub(crate) fn sweeper(&self) -> Option<Arc<Sweeper>> {
        let start = || {
            let registry = self.setup.state_dir.join("placeholders");
            let started = Sweeper::start(self.setup.sweeper.as_deref()?, &registry);
            let started = started.inspect_err(|error| tracing::warn!(why = %error, "there is no sweeper"));
            started.ok().map(Arc::new)
        };
        self.sweeper.get_or_init(start).clone()
    }

    /// Writes down that the answer was no before there was a session to ask in.
    pub fn refuse(&self, refusal: &Refusal) -> Result<(), AppendError> {
        let refusal = self.cleaner().refusal(refusal);
        self.ledger
            .append(&Event::Refused { transaction: None, session: None, call: None, refusal, by: None })
            .map(drop)
    }

    /// Writes down that the operator's policy is another one from now on.
    pub fn policy_changed(&self, stored: &Stored, change: &str) -> Result<(), AppendError> {
        let event = Event::PolicyChanged {
            session: None,
            file: Bytes::from(stored.file.as_path()),
            sha256: stored.sha256.clone(),
            change: self.cleaner().text(change),
        };
        self.ledger.append(&event).map(drop)
    }

    pub(crate) fn cleaner(&self) -> Cleaner {
        Cleaner::of(&self.setup.state_dir)
    }

    /// Opens a session, or says why this workspace cannot have one. A refusal is in the ledger.
    pub fn session(&self, asked: Asked) -> Result<Result<AgentSession<'_>, Refusal>, OpenSessionError> {
        let secrets = SecretStore::new(&self.setup.state_dir).read()?;
        let judged = Workspace::open(&self.setup, &asked).map_err(OpenSessionError::Home)?;
        let judged = judged.and_then(|(workspace, repairs)| {
            let leaks = LeakScanner::of_state(&secrets, &self.setup.state_dir);
            judge_name(&leaks, &workspace.path)?;
            asked.roots.iter().try_for_each(|root| judge_name(&leaks, root.path.as_path()))?;
            // `danger` with its second flag opens the stores on purpose.
            if !asked.policy.danger.allow_sensitive_roots {
                asked.roots.iter().try_for_each(|root| judge_extra_root(&self.setup, root.path.as_path()))?;
            }
            asked.agent.iter().try_for_each(|agent| judge_agent(&leaks, agent))?;
            asked.name.iter().try_for_each(|name| judge_session_name(&leaks, name))?;
            Ok((workspace, repairs, images::judge(&self.setup, &asked)?))
        });
        let (workspace, repairs, container) = match judged {
            Ok(judged) => judged,
            Err(refusal) => {
                self.refuse(&refusal)?;
                return Ok(Err(refusal));
            }
        };
        let resumed = resume::named((&self.ledger, &self.setup.state_dir), &workspace, &asked)?;
        let (id, memory, standing) = match resumed {
            Some((id, memory)) => (id, memory, Standing::Open),
            None => {
                let id =
                    SessionId::random().map_err(|error| OpenSessionError::Id(io::Error::other(error)))?;
                (id, Memory::default(), Standing::New)
            }
        };
        let leaks = LeakScanner::of_session(&secrets, &self.setup, &workspace.path)?;
        let common = Arc::new(Common::new(memory, standing));
        common.tell(repairs);
        tracing::info!(id = %id, workspace = %workspace.id, profile = %asked.policy.profile, resumed = standing == Standing::Open, "session");
        Ok(Ok(AgentSession::of(Bound {
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
            attention: Attention::default(),
            container,
            secrets: Arc::new(SessionSecrets::new(secrets)),
            shown: asked.shown,
            variables: Vec::new(),
            leaks,
        })))
    }
}

/// What of a policy a sandbox is made from. How long a command takes is no part of it.
fn fence(policy: &Policy) -> impl PartialEq + '_ {
    let Policy { profile, access, danger, net, backend, container, limits, floor, home, rules, .. } = policy;
    let limits = Limits { wall_ms: None, ..limits.clone() };
    ((profile, access, danger, net, backend, container), (limits, floor, home), (&rules.paths, &rules.hosts))
}

/// What became of a call, without anything that the caller said.
fn tell(settled: &Settled) {
    let transaction = settled.transaction.as_ref().map(tracing::field::display);
    match &settled.ended {
        Ended::Executed(outcome) => {
            tracing::info!(transaction, exit = outcome.exit.code(), ms = outcome.duration_ms, "executed");
        }
        Ended::Touched(_) => tracing::info!(transaction, "file touched"),
        Ended::Refused(refusal) => {
            tracing::warn!(transaction, rule = %refusal.rule, layer = ?refusal.layer, "refused");
        }
        Ended::Failed { what, .. } => tracing::error!(transaction, what = %what, "failed"),
    }
    if let Some(why) = &settled.unrecorded {
        tracing::error!(transaction, why = %why, "the outcome is not in the ledger");
    }
}

/// A running session. Its sandbox starts with the first command and ends with the session.
#[derive(Debug)]
pub struct AgentSession<'r> {
    bound: Bound<'r>,
    /// What the agent says about its next call.
    pub(crate) stated: Option<String>,
    /// What of the session the next call may use.
    pub(crate) left: Attenuation,
    /// Who makes the next calls, where several may.
    pub(crate) made_by: Option<Box<MadeBy>>,
    /// How long the next commands may take, where whoever asks for them says so.
    wall_ms: Option<u64>,
    pub(crate) approver: Box<dyn Approver + 'r>,
    source: Option<Box<dyn PolicySource + 'r>>,
    /// The end of the session is written with the end of the next call.
    ends: bool,
    /// On its way out in the call that is being made.
    pub(crate) found: Tally,
    observer: Option<Arc<dyn Observer>>,
    weigher: Option<Arc<dyn Weigher>>,
}

/// What a session is, whoever makes its calls.
#[derive(Clone, Debug)]
pub struct Bound<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) id: SessionId,
    name: Option<String>,
    agent: Option<String>,
    pub(crate) started_by: Principal,
    started_with: Option<ShownCredential>,
    pub(crate) workspace: Workspace,
    pub(crate) resident: Resident,
    pub(crate) policy: Policy,
    pub(crate) policy_digest: String,
    pub(crate) policy_files: Vec<PathBuf>,
    pub(crate) settings: ApprovalSettings,
    pub(crate) roots: Vec<Root>,
    pub(crate) worked_in: Vec<PathBuf>,
    pub(crate) common: Arc<Common>,
    /// Who is asked about flows.
    pub(crate) attention: Attention,
    pub(crate) container: Option<Chosen>,
    pub(crate) secrets: Arc<SessionSecrets>,
    /// Directories that are shown besides, read-only.
    pub(crate) shown: Vec<PathBuf>,
    /// For everything that runs in it.
    pub(crate) variables: Vec<(Bytes, Bytes)>,
    pub(crate) leaks: LeakScanner,
}

impl<'r> Deref for AgentSession<'r> {
    type Target = Bound<'r>;

    fn deref(&self) -> &Bound<'r> {
        &self.bound
    }
}

impl DerefMut for AgentSession<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.bound
    }
}

impl<'r> Bound<'r> {
    /// The session for a call that may be made while others are: one memory, one sandbox, one network.
    pub fn lane(&self) -> AgentSession<'r> {
        let mut lane = AgentSession::of(self.clone());
        if let Some(asked) = self.common.refreshed() {
            lane.adopt(asked);
        }
        lane
    }

    pub fn id(&self) -> &SessionId {
        &self.id
    }

    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Text as it may be shown to whoever may look: without secrets.
    pub fn clean(&self, text: &str) -> String {
        self.leaks.text(text)
    }

    /// The same of a command, of which some options are followed by secrets.
    pub fn clean_argv(&self, argv: &[String]) -> Vec<String> {
        let (clean, _) = self.leaks.scanner().redact_argv(argv);
        clean.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    pub fn is_in_container(&self) -> bool {
        self.container.is_some()
    }

    pub(crate) fn all_roots(&self) -> Vec<Root> {
        let path = Bytes::from(self.workspace.path.as_path());
        let mut roots = vec![Root { path, access: self.policy.access }];
        roots.extend(self.roots.iter().cloned());
        roots
    }

    /// Who began it, and with what.
    pub(crate) fn started(&self) -> MadeBy {
        MadeBy { principal: self.started_by.clone(), shown: self.started_with.clone() }
    }

    /// Writes down that the answer was no to something that is no call of the pipeline.
    pub fn refuse(&self, refusal: &Refusal) -> Result<(), AppendError> {
        let (session, refusal) = (Some(self.id.clone()), self.leaks.refusal(refusal));
        let event = Event::Refused { transaction: None, session, call: None, refusal, by: None };
        self.runtime.ledger().append(&event).map(drop)
    }

    /// As it would be asked for again, to judge what is not done.
    pub fn asked(&self) -> Asked {
        Asked {
            policy_digest: self.policy_digest.clone(),
            policy_files: self.policy_files.clone(),
            settings: self.settings.clone(),
            roots: self.roots.clone(),
            worked_in: self.worked_in.clone(),
            agent: self.agent.clone(),
            started_by: self.started_by.clone(),
            started_with: self.started_with.clone(),
            ..Asked::new(self.workspace.path.clone(), self.policy.clone())
        }
    }
}

impl<'r> AgentSession<'r> {
    /// Who is asked from now on. Without this, only people who watch from elsewhere are.
    pub fn set_approver(&mut self, approver: impl Approver + 'r) {
        self.approver = Box::new(approver);
    }

    /// Where the policy is read again when its files have changed while a question waited.
    pub fn set_policy_source(&mut self, source: impl PolicySource + 'r) {
        self.source = Some(Box::new(source));
    }

    /// Who is asked about flows from now on, by the threads of the proxy while a command runs.
    pub fn set_flow_approver(&mut self, approver: impl Approver + Clone + Send + 'static) {
        self.attention.approver = Arc::new(SharedApprover::new(approver));
    }

    /// Where the policy is read again when it has changed before a flow.
    pub fn set_flow_policy_source(&mut self, source: impl PolicySource + Send + Sync + 'static) {
        self.attention.source = Some(Arc::new(source));
    }

    /// For everything that runs in the session. Not judged: they are ours.
    pub fn set_variables(&mut self, variables: Vec<(Bytes, Bytes)>) {
        self.variables = variables;
    }

    /// What the agent says about what it does next. People see it, marked as an allegation.
    pub fn set_stated_reason(&mut self, stated: Option<String>) {
        self.stated = stated;
    }

    /// What of its paths and hosts is left to whoever makes the next calls, where that is less than all. For calls that are done
    /// in this process: what runs in the fence has what the fence has.
    pub fn set_left(&mut self, left: Attenuation) {
        self.left = left;
    }

    /// Who makes the next calls. It is written down with each.
    pub fn set_made_by(&mut self, by: MadeBy) {
        self.made_by = Some(Box::new(by));
    }

    /// Another value than the session's own for what the next calls run. Not judged: it is ours.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        let own = [(Bytes::from(name), Bytes::from(value))];
        self.variables = ringfence_authz::env::merge(std::mem::take(&mut self.variables), &own);
    }

    /// Who is told how far the next calls come.
    pub fn set_observer(&mut self, observer: Arc<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Who is asked before the next calls read a file as a whole.
    pub fn set_weigher(&mut self, weigher: Arc<dyn Weigher>) {
        self.weigher = Some(weigher);
    }

    pub(crate) fn weigh(&self, bytes: u64) -> io::Result<()> {
        self.weigher.as_ref().map_or(Ok(()), |weigher| weigher.weigh(bytes))
    }

    pub(crate) fn reach(&self, stage: Stage) {
        self.observer.iter().for_each(|observer| observer.reached(stage));
    }

    pub(crate) fn decided(&self, decision: Decision) {
        self.observer.iter().for_each(|observer| observer.decided(decision));
    }

    pub(crate) fn begun(&self, transaction: &TransactionId) {
        self.observer.iter().for_each(|observer| observer.begun(transaction));
    }

    /// One call, from what was asked to what became of it. The only way to any effect.
    pub fn call(&mut self, call: Call, io: Io<'_>) -> Settled {
        let span = tracing::info_span!("call", id = %self.id).entered();
        let settled = pipeline::run(Received::new(call), self, io);
        drop(span);
        tell(&settled);
        settled
    }

    /// Judges a call that the agent does itself, with what it would write as input, asks where policy says so, and writes down
    /// that it was left `to` it. What was refused comes back as for every other call.
    pub fn leave(&mut self, call: Call, io: &Io<'_>, to: &str) -> Result<TransactionId, Settled> {
        pipeline::leave(Received::new(call), self, io, to)
    }

    /// Writes down that a tool that no rule speaks of was left `to` the person at the agent, whom the agent asks by itself.
    /// What is denied, or would let a secret out, comes back as for every other call.
    pub fn refer(&mut self, call: Call, io: &Io<'_>, to: &str) -> Result<TransactionId, Settled> {
        pipeline::refer(Received::new(call), self, io, to)
    }

    /// Whether anybody could answer a question of this session: somebody here, somebody who watches, or a channel.
    pub fn can_ask(&mut self) -> bool {
        let elsewhere =
            approval::is_watched(&self.runtime.setup.state_dir) || !self.settings.notify.is_empty();
        elsewhere || self.approver.is_there()
    }

    /// The last call of a session: its end is written down together with the end of the session, unless that has a name
    /// and goes on.
    pub fn last_call(mut self, call: Call, io: Io<'_>) -> Settled {
        self.ends = self.name.is_none();
        self.call(call, io)
    }

    /// Writes down that the session is over, if anything of it was written and it has no name under which it goes on.
    pub fn end(self) -> Result<(), AppendError> {
        self.end_because(SessionEnd::Finished)
    }

    /// The same, for this reason.
    pub fn end_because(self, reason: SessionEnd) -> Result<(), AppendError> {
        self.common.set_closed();
        self.common.end_fence();
        self.forget_containers();
        if self.is_named() || self.common.is_over() || !self.common.close() {
            return Ok(());
        }
        let event = Event::SessionEnded { session: self.id.clone(), reason: Some(reason) };
        self.runtime.ledger.append(&event).map(drop)
    }

    fn of(bound: Bound<'r>) -> Self {
        Self {
            bound,
            stated: None,
            left: Attenuation::none(),
            made_by: None,
            wall_ms: None,
            approver: Box::new(Nobody),
            source: None,
            ends: false,
            found: Tally::default(),
            observer: None,
            weigher: None,
        }
    }

    /// What other threads make calls of this session from. Whoever answers its questions is known to the ledger alone.
    pub fn into_bound(self) -> Bound<'r> {
        self.bound
    }

    /// Writes down what the agent says that it does. People see it, marked as an allegation; secrets in it stay out.
    pub fn report(&mut self, kind: &str, text: &str) -> Result<u64, AppendError> {
        let event = Event::Activity {
            session: self.id.clone(),
            what: self.leaks.text(kind),
            text: self.leaks.text(text),
        };
        let receipts = self.append(vec![event])?;
        Ok(receipts.last().map(Receipt::seq).unwrap_or_default())
    }

    /// Commands of the next calls have at most this long, and never longer than policy says, also one that is read again.
    pub fn set_wall_limit(&mut self, milliseconds: u64) {
        self.wall_ms = Some(milliseconds);
        self.hold_to_wall_limit();
    }

    fn hold_to_wall_limit(&mut self) {
        let limits = [self.policy.limits.wall_ms, self.wall_ms];
        self.policy.limits.wall_ms = limits.into_iter().flatten().min();
    }

    /// Writes the start of the session down now, instead of with its first call.
    pub fn begin(&mut self) -> Result<(), AppendError> {
        self.append(Vec::new()).map(drop)
    }

    /// The machine as commands of this session find it.
    pub(crate) fn facts(&self) -> Machine {
        let setup = &self.runtime.setup;
        let inside = Inside::of(setup, &self.policy, &self.all_roots(), &self.workspace.home);
        Machine::of(setup, &self.policy, inside).with_tools(self.workspace.tools.as_deref())
    }

    /// What it did is so bad that it ends with this call, also where it has a name.
    pub(crate) fn terminate(&mut self) {
        self.ends = true;
        self.common.set_over();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.common.is_over()
    }

    pub(crate) fn is_named(&self) -> bool {
        self.name.is_some()
    }

    pub(crate) fn requester(&self) -> Principal {
        Principal::Agent { session: self.id.clone(), name: self.agent.clone() }
    }

    /// What it takes to ask about something in this session.
    pub(crate) fn inquiry(&mut self) -> Inquiry<'_> {
        Inquiry {
            ledger: &self.bound.runtime.ledger,
            state_dir: &self.bound.runtime.setup.state_dir,
            approver: self.approver.as_mut(),
            settings: &self.bound.settings,
            grant_expiry: approval::holds(&self.bound.settings),
        }
    }

    /// Writes events of this session down, in one step; the first time with its start.
    pub(crate) fn append(&mut self, mut events: Vec<Event>) -> Result<Vec<Receipt>, AppendError> {
        let mut standing = self.common.standing();
        if *standing == Standing::Open {
            drop(standing);
            return self.runtime.ledger.append_all(&events);
        }
        // Of two first calls, the second waits for the start to be written.
        events.insert(0, self.start());
        let receipts = self.runtime.ledger.append_all(&events)?;
        *standing = Standing::Open;
        Ok(receipts)
    }

    /// Ends the network with the last call; what there was to see in it.
    pub(crate) fn leave_network(&mut self) -> Option<Seen> {
        let mut fence = self.common.fence();
        if !self.ends {
            return fence.network.as_ref().map(Network::seen);
        }
        let network = fence.network.take();
        // Its end is written down, and whoever still asks is waited for.
        drop(fence);
        network.map(Network::close)
    }

    /// What is written with the end of the last call.
    pub(crate) fn ending(&self) -> Option<Event> {
        let reason = if self.is_over() { SessionEnd::Secret } else { SessionEnd::Finished };
        self.ends.then(|| Event::SessionEnded { session: self.id.clone(), reason: Some(reason) })
    }

    fn start(&self) -> Event {
        Event::SessionStarted {
            session: self.id.clone(),
            name: self.name.clone(),
            workspace_id: self.workspace.id.clone(),
            workspace: Bytes::from(self.workspace.path.as_path()),
            profile: self.policy.profile,
            backend_wanted: self.policy.backend,
            agent: self.agent.clone(),
            principal: self.started_by.clone(),
            policy: self.policy_digest.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // One with a name lives in several; each of them says for itself what it works on.
            process: if self.is_named() { None } else { ProcessId::own() },
        }
    }

    /// Reads the policy again where whoever knows it says that it has changed.
    pub fn renew(&mut self) -> Result<(), Refusal> {
        let changed = match (&self.source, &self.attention.source) {
            (Some(source), _) => source.has_changed(),
            (None, Some(source)) => source.has_changed(),
            (None, None) => false,
        };
        if changed { self.refresh() } else { Ok(()) }
    }

    /// Reads the policy again, where somebody knows how.
    pub(crate) fn refresh(&mut self) -> Result<(), Refusal> {
        let asked = match (&self.source, &self.attention.source) {
            (Some(source), _) => source.read()?,
            (None, Some(source)) => source.read()?,
            (None, None) => return Ok(()),
        };
        let container = images::judge(&self.runtime.setup, &asked)?;
        tracing::info!(before = %self.policy_digest, now = %asked.policy_digest, "policy read again");
        let fence_changed = fence(&self.policy) != fence(&asked.policy) || self.container != container;
        if fence_changed || self.roots != asked.roots {
            // It was made for what holds no more. What runs in it ends with it.
            self.common.end_sandbox();
        }
        self.common.refresh((asked.clone(), container.clone()));
        self.adopt((asked, container));
        Ok(())
    }

    fn adopt(&mut self, (asked, container): (Asked, Option<Chosen>)) {
        self.policy = asked.policy;
        self.container = container;
        self.policy_digest = images::bound(asked.policy_digest, self.container.as_ref());
        self.policy_files = asked.policy_files;
        self.settings = asked.settings;
        self.roots = asked.roots;
        self.hold_to_wall_limit();
    }
}
