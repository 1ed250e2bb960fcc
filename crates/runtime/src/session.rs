//! A session: one agent, one workspace, one ceiling, for life.

use std::io;
use std::path::PathBuf;

use ringfence_authz::{Policy, env::Attendance};
use ringfence_ledger::{AppendError, Event, Ledger, OpenError, ProcessId, Settings};
use ringfence_sandbox::{Io, Session as Sandbox, SkeletonFile};
use ringfence_types::{Bytes, Call, Principal, Refusal, Root, SessionId};

use crate::approval::{Approver, Nobody, Remembered};
use crate::pipeline::{self, Received, Settled};
use crate::secrets::{SecretStore, SessionSecrets, StoreError};
use crate::standing::Stored;
use crate::workspace::{Workspace, judge_extra_root};

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
    pub(crate) ledger: Ledger,
    pub(crate) setup: Setup,
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
    /// What is not known cannot be kept out of the ledger.
    #[error("the secrets of the operator cannot be read, so nothing is done")]
    Secrets(#[from] StoreError),
}

impl OpenSessionError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Secrets(error) => error.hint(),
            _ => None,
        }
    }
}

/// What a session was asked to be.
#[derive(Clone, Debug)]
pub struct Asked {
    pub workspace: PathBuf,
    pub policy: Policy,
    /// Roots besides the workspace.
    pub roots: Vec<Root>,
    /// Where "always here" is stored; `None`: nowhere, so it is not offered.
    pub operator_file: Option<PathBuf>,
}

impl Runtime {
    /// No ledger, no runtime: without a place to write nothing may happen.
    pub fn open(setup: Setup) -> Result<Self, OpenError> {
        let settings = Settings::load(&setup.config_dir.join("ledger.toml"))?;
        let ledger = Ledger::open_with(&setup.state_dir.join("ledger.db"), settings)?;
        // A ledger that cannot be written refuses the first intent, too, and that is where it is told.
        let _unwritable = ledger.recover(&ProcessId::is_alive);
        Ok(Self { ledger, setup })
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Writes down that the answer was no before there was a session to ask in.
    pub fn refuse(&self, refusal: &Refusal) -> Result<(), AppendError> {
        let refusal = refusal.clone();
        self.ledger
            .append(&Event::Refused { transaction: None, session: None, call: None, refusal })
            .map(drop)
    }

    /// Writes down that the operator's policy is another one from now on.
    pub fn policy_changed(&self, stored: &Stored, change: &str) -> Result<(), AppendError> {
        self.ledger.append(&changed(None, stored, change)).map(drop)
    }

    /// Opens a session, or says why this workspace cannot have one. A refusal is in the ledger.
    pub fn session(&self, asked: Asked) -> Result<Result<AgentSession<'_>, Refusal>, OpenSessionError> {
        let id = SessionId::random().map_err(|error| OpenSessionError::Id(io::Error::other(error)))?;
        let judged = Workspace::open(&self.setup, &asked.workspace).map_err(OpenSessionError::Home)?;
        let judged = judged.and_then(|workspace| {
            // `danger` with its second flag opens the stores on purpose.
            if !asked.policy.danger.allow_sensitive_roots {
                asked.roots.iter().try_for_each(|root| judge_extra_root(&self.setup, root.path.as_path()))?;
            }
            Ok(workspace)
        });
        let workspace = match judged {
            Ok(workspace) => workspace,
            Err(refusal) => {
                let event = Event::Refused {
                    transaction: None,
                    session: Some(id),
                    call: None,
                    refusal: refusal.clone(),
                };
                let _receipt = self.ledger.append(&event)?;
                return Ok(Err(refusal));
            }
        };
        self.ledger.announce(&started(&id, &workspace, &asked.policy))?;
        Ok(Ok(AgentSession {
            runtime: self,
            id,
            workspace,
            policy: asked.policy,
            roots: asked.roots,
            operator_file: asked.operator_file,
            approver: Box::new(Nobody),
            remembered: Remembered::default(),
            sandbox: None,
            secrets: SessionSecrets::new(SecretStore::new(&self.setup.state_dir).read()?),
        }))
    }
}

/// Goes into the ledger with the first thing that happens in the session.
fn started(session: &SessionId, workspace: &Workspace, policy: &Policy) -> Event {
    Event::SessionStarted {
        session: session.clone(),
        name: None,
        workspace_id: workspace.id.clone(),
        workspace: Bytes::from(workspace.path.as_path()),
        profile: policy.profile,
        backend_wanted: None,
        agent: None,
        principal: Principal::Operator {
            uid: rustix::process::getuid().as_raw(),
            name: None,
            node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            terminal: None,
        },
        policy: String::new(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        process: ProcessId::own(),
    }
}

pub(crate) fn changed(session: Option<SessionId>, stored: &Stored, change: &str) -> Event {
    let clean = ringfence_scan::redact(change.as_bytes()).clean;
    Event::PolicyChanged {
        session,
        file: Bytes::from(stored.file.as_path()),
        sha256: stored.sha256.clone(),
        change: String::from_utf8_lossy(&clean).into_owned(),
    }
}

/// A running session. Its sandbox starts with the first command and ends with the session.
#[derive(Debug)]
pub struct AgentSession<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) id: SessionId,
    pub(crate) workspace: Workspace,
    pub(crate) policy: Policy,
    pub(crate) roots: Vec<Root>,
    pub(crate) operator_file: Option<PathBuf>,
    pub(crate) approver: Box<dyn Approver + 'r>,
    pub(crate) remembered: Remembered,
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) secrets: SessionSecrets,
}

impl<'r> AgentSession<'r> {
    /// Who is asked from now on. Without this, nobody is, and every question is refused.
    pub fn set_approver(&mut self, approver: impl Approver + 'r) {
        self.approver = Box::new(approver);
    }

    pub fn id(&self) -> &SessionId {
        &self.id
    }

    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// One call, from what was asked to what became of it. The only way to any effect.
    pub fn call(&mut self, call: Call, io: Io<'_>) -> Settled {
        pipeline::run(Received::new(call), self, io)
    }

    pub(crate) fn all_roots(&self) -> Vec<Root> {
        let path = Bytes::from(self.workspace.path.as_path());
        let mut roots = vec![Root { path, access: self.policy.access }];
        roots.extend(self.roots.iter().cloned());
        roots
    }
}
