//! Resolves and checks the directory that is requested as a workspace.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringfence_authz::{WorkspaceFacts, WorkspaceFileKind, credential_stores, judge_root, judge_workspace};
use ringfence_sandbox::beneath::Repairs;
use ringfence_scan::Confidence;
use ringfence_types::{ByteString, PolicyLayer, Refusal, RefusalCode, RuleId, WorkspaceId};

use crate::home::{self, Resident};
use crate::leaks::LeakScanner;
use crate::session::{HostSetup, SessionSpec};

/// A directory that may be a workspace.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Canonical.
    pub path: PathBuf,
    pub id: WorkspaceId,
    /// The synthetic home of the session's commands.
    pub home: PathBuf,
    /// The operator's programs for the agent: first on `PATH` inside, read-only.
    pub tools: Option<PathBuf>,
}

impl Workspace {
    /// Checks `requested` without changing anything. The result is canonical.
    pub(crate) fn look(setup: &HostSetup, requested: &Path) -> Result<PathBuf, Refusal> {
        let facts = facts(setup, requested);
        judge_workspace(&facts)?;
        Ok(facts.canonical.as_path().to_owned())
    }

    /// Checks the request and prepares the home of the resident; also returns the repairs it made.
    pub(crate) fn open(
        setup: &HostSetup,
        asked: &SessionSpec,
    ) -> Result<Result<(Self, Repairs), Refusal>, io::Error> {
        let path = match Self::look(setup, &asked.workspace) {
            Ok(path) => path,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let id = WorkspaceId::of_canonical_path(&path);
        let home = home::kept(setup, &Resident::of(id.clone(), asked))?;
        let tools = tools(setup, asked.agent.as_deref());
        Ok(Ok((Self { path, id, home: home.path, tools }, home.repairs)))
    }
}

/// `agents/NAME/tools/bin` in the configuration directory, if it exists. The agent's name must be a single
/// path component.
pub(crate) fn tools(setup: &HostSetup, agent: Option<&str>) -> Option<PathBuf> {
    let agent =
        agent.filter(|name| !name.starts_with('.') && !name.contains(['/', '\0']) && !name.is_empty())?;
    let directory = setup.config_dir.join("agents").join(agent).join("tools/bin");
    // The real path, because that is what is mounted and checked.
    let real = fs::canonicalize(&directory).ok().filter(|real| real.is_dir())?;
    let own = canonical_or_same(&setup.config_dir);
    real.starts_with(own).then_some(real)
}

/// Checks a root besides the workspace.
pub(crate) fn judge_extra_root(setup: &HostSetup, path: &Path) -> Result<(), Refusal> {
    judge_root(&facts(setup, path))
}

/// Refuses a root whose path contains a secret, because every record names it.
pub(crate) fn judge_name(leaks: &LeakScanner, path: &Path) -> Result<(), Refusal> {
    let Some(rule) = secret_in(leaks, ByteString::from(path).as_slice()) else { return Ok(()) };
    Err(Refusal {
        code: RefusalCode::Workspace,
        layer: PolicyLayer::Floor,
        rule: RuleId::WorkspaceSecret.into(),
        message: format!("the name of a directory holds a secret ({rule}), which would be in every record"),
        hint: Some("give the directory another name; the secret has to be replaced as well".to_owned()),
    })
}

/// Refuses an agent name that contains a secret.
pub(crate) fn judge_agent(leaks: &LeakScanner, name: &str) -> Result<(), Refusal> {
    judge_label(leaks, name, "agent")
}

/// Refuses a session name that contains a secret.
pub(crate) fn judge_session_name(leaks: &LeakScanner, name: &str) -> Result<(), Refusal> {
    judge_label(leaks, name, "session")
}

fn judge_label(leaks: &LeakScanner, name: &str, what: &str) -> Result<(), Refusal> {
    let Some(rule) = secret_in(leaks, name.as_bytes()) else { return Ok(()) };
    Err(Refusal {
        code: RefusalCode::Secret,
        layer: PolicyLayer::Floor,
        rule: RuleId::SessionSecret.into(),
        message: format!("the name of the {what} holds a secret ({rule}), which would be in every record"),
        hint: Some(format!("give the {what} another name; the secret has to be replaced as well")),
    })
}

fn secret_in(leaks: &LeakScanner, name: &[u8]) -> Option<String> {
    let findings = leaks.scanner().search(name).findings;
    let found = findings.into_iter().find(|finding| finding.confidence >= Confidence::Shape);
    found.map(|finding| finding.rule.to_string())
}

fn facts(setup: &HostSetup, requested: &Path) -> WorkspaceFacts {
    let canonical = fs::canonicalize(requested);
    let kind = match &canonical {
        Ok(path) => kind(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => WorkspaceFileKind::Unreadable,
        Err(_) => WorkspaceFileKind::Missing,
    };
    let path = canonical.unwrap_or_else(|_| requested.to_owned());
    let home = setup.home.as_deref().map(canonical_or_same);
    let own: Vec<PathBuf> =
        [&setup.state_dir, &setup.config_dir].into_iter().map(|dir| canonical_or_same(dir)).collect();
    WorkspaceFacts {
        requested: ByteString::from(requested),
        kind,
        owner_uid: fs::metadata(&path).map_or(u32::MAX, |metadata| metadata.uid()),
        uid: rustix::process::geteuid().as_raw(),
        is_home: home.as_deref() == Some(&path),
        contains_home: home.as_deref().is_some_and(|home| home != path && home.starts_with(&path)),
        is_sensitive: home.as_deref().is_some_and(|home| touches_store(home, &path)),
        contains_state_dir: own.iter().any(|dir| dir.starts_with(&path)),
        inside_state_dir: own.iter().any(|dir| path.starts_with(dir)),
        canonical: ByteString::from(path),
    }
}

/// Checks the path as named and as resolved: a credential store can be a link.
fn touches_store(home: &Path, path: &Path) -> bool {
    let stores = credential_stores::roots(home).flat_map(|store| [canonical_or_same(&store), store]);
    stores.into_iter().any(|store| path.starts_with(&store) || store.starts_with(path))
}

fn kind(path: &Path) -> WorkspaceFileKind {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => WorkspaceFileKind::Other,
        // Root can read it here, but a command inside has no such privilege.
        Ok(metadata) if is_shut(&metadata) => WorkspaceFileKind::Unreadable,
        Ok(_) => match fs::read_dir(path) {
            Ok(_) => WorkspaceFileKind::Directory,
            Err(_) => WorkspaceFileKind::Unreadable,
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => WorkspaceFileKind::Missing,
        Err(_) => WorkspaceFileKind::Unreadable,
    }
}

/// Whether the caller, as owner, lacks permission to enter.
fn is_shut(metadata: &fs::Metadata) -> bool {
    const ENTER: u32 = 0o500;
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & ENTER != ENTER
}

fn canonical_or_same(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
