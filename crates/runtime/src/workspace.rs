//! Finding out what a directory that was asked for as a workspace really is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringfence_authz::{FileKind, WorkspaceFacts, judge_root, judge_workspace, sensitive};
use ringfence_sandbox::beneath::Repairs;
use ringfence_scan::Confidence;
use ringfence_types::{Bytes, Layer, Refusal, RefusalCode, WorkspaceId};

use crate::home::{self, Resident};
use crate::leaks::LeakScanner;
use crate::session::{Asked, Setup};

/// A directory that may be a workspace.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Canonical.
    pub path: PathBuf,
    pub id: WorkspaceId,
    /// The synthetic home of what a session runs in it.
    pub home: PathBuf,
    /// Programs that the operator keeps for the agent: first on `PATH` inside, read-only.
    pub tools: Option<PathBuf>,
}

impl Workspace {
    /// Judges `requested` and changes nothing. The path is canonical.
    pub(crate) fn look(setup: &Setup, requested: &Path) -> Result<PathBuf, Refusal> {
        let facts = facts(setup, requested);
        judge_workspace(&facts)?;
        Ok(facts.canonical.as_path().to_owned())
    }

    /// Judges what is asked for and prepares the home of whoever asks; with what had to be put right in it.
    pub(crate) fn open(setup: &Setup, asked: &Asked) -> Result<Result<(Self, Repairs), Refusal>, io::Error> {
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

/// `agents/NAME/tools/bin` of the configuration directory, where there is one. An agent whose name is not the name of one directory
/// has none.
pub(crate) fn tools(setup: &Setup, agent: Option<&str>) -> Option<PathBuf> {
    let agent =
        agent.filter(|name| !name.starts_with('.') && !name.contains(['/', '\0']) && !name.is_empty())?;
    let directory = setup.config_dir.join("agents").join(agent).join("tools/bin");
    // By where it really is: it is bound there, and judged there.
    let real = fs::canonicalize(&directory).ok().filter(|real| real.is_dir())?;
    let own = canonical_or_same(&setup.config_dir);
    real.starts_with(own).then_some(real)
}

/// Judges a root besides the workspace.
pub(crate) fn judge_extra_root(setup: &Setup, path: &Path) -> Result<(), Refusal> {
    judge_root(&facts(setup, path))
}

/// What a root is called is in every record of it, so it must not hold a secret.
pub(crate) fn judge_name(leaks: &LeakScanner, path: &Path) -> Result<(), Refusal> {
    let Some(rule) = secret_in(leaks, Bytes::from(path).as_slice()) else { return Ok(()) };
    Err(Refusal {
        code: RefusalCode::Workspace,
        layer: Layer::Floor,
        rule: "workspace.secret".to_owned(),
        message: format!("the name of a directory holds a secret ({rule}), which would be in every record"),
        hint: Some("give the directory another name; the secret has to be replaced as well".to_owned()),
    })
}

/// So is what an agent is called.
pub(crate) fn judge_agent(leaks: &LeakScanner, name: &str) -> Result<(), Refusal> {
    judge_label(leaks, name, "agent")
}

/// The name under which a session is gone on with.
pub(crate) fn judge_session_name(leaks: &LeakScanner, name: &str) -> Result<(), Refusal> {
    judge_label(leaks, name, "session")
}

fn judge_label(leaks: &LeakScanner, name: &str, what: &str) -> Result<(), Refusal> {
    let Some(rule) = secret_in(leaks, name.as_bytes()) else { return Ok(()) };
    Err(Refusal {
        code: RefusalCode::Secret,
        layer: Layer::Floor,
        rule: "session.secret".to_owned(),
        message: format!("the name of the {what} holds a secret ({rule}), which would be in every record"),
        hint: Some(format!("give the {what} another name; the secret has to be replaced as well")),
    })
}

fn secret_in(leaks: &LeakScanner, name: &[u8]) -> Option<String> {
    let findings = leaks.scanner().search(name).findings;
    let found = findings.into_iter().find(|finding| finding.confidence >= Confidence::Shape);
    found.map(|finding| finding.rule.to_string())
}

fn facts(setup: &Setup, requested: &Path) -> WorkspaceFacts {
    let canonical = fs::canonicalize(requested);
    let kind = match &canonical {
        Ok(path) => kind(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => FileKind::Unreadable,
        Err(_) => FileKind::Missing,
    };
    let path = canonical.unwrap_or_else(|_| requested.to_owned());
    let home = setup.home.as_deref().map(canonical_or_same);
    let own: Vec<PathBuf> =
        [&setup.state_dir, &setup.config_dir].into_iter().map(|dir| canonical_or_same(dir)).collect();
    WorkspaceFacts {
        requested: Bytes::from(requested),
        kind,
        owner_uid: fs::metadata(&path).map_or(u32::MAX, |metadata| metadata.uid()),
        uid: rustix::process::geteuid().as_raw(),
        is_home: home.as_deref() == Some(&path),
        contains_home: home.as_deref().is_some_and(|home| home != path && home.starts_with(&path)),
        is_sensitive: home.as_deref().is_some_and(|home| touches_store(home, &path)),
        contains_state_dir: own.iter().any(|dir| dir.starts_with(&path)),
        inside_state_dir: own.iter().any(|dir| path.starts_with(dir)),
        canonical: Bytes::from(path),
    }
}

/// By its name and by where it really is: a store can be a link to somewhere else.
fn touches_store(home: &Path, path: &Path) -> bool {
    let stores = sensitive::roots(home).flat_map(|store| [canonical_or_same(&store), store]);
    stores.into_iter().any(|store| path.starts_with(&store) || store.starts_with(path))
}

fn kind(path: &Path) -> FileKind {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => FileKind::Other,
        // Root can look at it, but what runs inside has no such privilege.
        Ok(metadata) if is_shut(&metadata) => FileKind::Unreadable,
        Ok(_) => match fs::read_dir(path) {
            Ok(_) => FileKind::Directory,
            Err(_) => FileKind::Unreadable,
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => FileKind::Missing,
        Err(_) => FileKind::Unreadable,
    }
}

/// Whether its owner, who is the caller, has taken their own permissions away.
fn is_shut(metadata: &fs::Metadata) -> bool {
    const ENTER: u32 = 0o500;
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & ENTER != ENTER
}

fn canonical_or_same(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
