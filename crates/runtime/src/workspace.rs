//! Finding out what a directory that was asked for as a workspace really is.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use ringfence_authz::{FileKind, WorkspaceFacts, judge_root, judge_workspace, sensitive};
use ringfence_scan::Confidence;
use ringfence_types::{Bytes, Layer, Refusal, RefusalCode, WorkspaceId};

use crate::leaks::LeakScanner;
use crate::session::Setup;

/// A directory that may be a workspace.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Canonical.
    pub path: PathBuf,
    pub id: WorkspaceId,
    /// The synthetic home of everything that runs in it.
    pub home: PathBuf,
}

impl Workspace {
    /// Judges `requested` and changes nothing. The path is canonical.
    pub(crate) fn look(setup: &Setup, requested: &Path) -> Result<PathBuf, Refusal> {
        let facts = facts(setup, requested);
        judge_workspace(&facts)?;
        Ok(facts.canonical.as_path().to_owned())
    }

    /// Judges `requested` and prepares its home.
    pub(crate) fn open(setup: &Setup, requested: &Path) -> Result<Result<Self, Refusal>, io::Error> {
        let path = match Self::look(setup, requested) {
            Ok(path) => path,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let id = WorkspaceId::of_canonical_path(&path);
        let home = setup.state_dir.join("homes").join(id.as_str());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&home)?;
        for (name, target) in setup.toolchains.iter().flat_map(|toolchain| &toolchain.links) {
            link_packages(&home.join(name), target)?;
        }
        Ok(Ok(Self { path, id, home }))
    }
}

/// What is there already stays: the home belongs to what runs in the workspace.
fn link_packages(link: &Path, target: &Path) -> io::Result<()> {
    if link.symlink_metadata().is_ok() {
        return Ok(());
    }
    let Some(parent) = link.parent() else { return Ok(()) };
    match fs::create_dir_all(parent).and_then(|()| std::os::unix::fs::symlink(target, link)) {
        // Another start was faster, or a command has put something else in the way.
        Err(error)
            if !matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
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
        Ok(_) => match fs::read_dir(path) {
            Ok(_) => FileKind::Directory,
            Err(_) => FileKind::Unreadable,
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => FileKind::Missing,
        Err(_) => FileKind::Unreadable,
    }
}

fn canonical_or_same(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
