//! Reads policy files, and accepts only files that no other user and no agent can have written.
//!
//! A file is refused if another user could write it or a directory above it, or if it lies where commands may
//! write. It is opened once, so the checked file is the file that is read.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use ringfence_authz::is_system_dir;
use ringfence_policy::{IN_WORKSPACE, PolicyError, PolicyFile, PolicyFileRole};
use ringfence_types::ByteString;

/// Limit of bytes in a policy file.
const MAX_BYTES: u64 = 1 << 20;

/// A policy file as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyText {
    pub path: PathBuf,
    pub text: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyFileError {
    #[error("policy file `{}` cannot be read", shown(path))]
    Io { path: PathBuf, source: io::Error },
    #[error("policy file `{}` is not a regular file", shown(path))]
    NotAFile { path: PathBuf },
    #[error("policy file `{}` has more than 1 MiB", shown(path))]
    TooLarge { path: PathBuf },
    #[error("{}:{line}:{column}: the file is not UTF-8", shown(path))]
    NotText { path: PathBuf, line: usize, column: usize },
    #[error("policy file `{}` belongs to user {owner}, not to you or root", shown(path))]
    Owner { path: PathBuf, owner: u32 },
    #[error("`{}` can be written by others, so the policy in it cannot be trusted", shown(path))]
    Writable { path: PathBuf },
    #[error(
        "policy file `{}` is inside `{}`, which is writable from inside the fence",
        shown(path),
        shown(root)
    )]
    Inside { path: PathBuf, root: PathBuf },
}

impl PolicyFileError {
    /// The next step for the operator.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "name a file that exists, or leave `--policy` out".to_owned()
            }
            Self::Io { .. } => "check the permissions of the file and of the directories above it".to_owned(),
            Self::NotAFile { .. } => "name a file".to_owned(),
            Self::TooLarge { .. } => "split it, or remove what is not needed".to_owned(),
            Self::NotText { .. } => "save it as UTF-8".to_owned(),
            Self::Owner { path, .. } => format!("make a copy of your own: cp {0} {0}.mine", shown(path)),
            Self::Writable { path } => format!("chmod go-w {}", shown(path)),
            Self::Inside { .. } => {
                format!("move it out of the workspace; the workspace's own file is `{IN_WORKSPACE}`")
            }
        }
    }
}

/// Why a policy cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadPolicyError {
    #[error(transparent)]
    File(#[from] PolicyFileError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl LoadPolicyError {
    /// The next step for the operator. Problems inside a policy each have their own.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File(error) => Some(error.hint()),
            Self::Policy(_) => None,
        }
    }
}

/// The places of a session's policy files.
#[derive(Clone, Copy, Debug)]
pub struct PolicyPaths<'a> {
    /// The operator's file, and whether it must exist.
    pub operator: OperatorFile<'a>,
    /// Canonical.
    pub workspace: &'a Path,
    pub home: Option<&'a Path>,
    /// Other directories that commands may write; canonical.
    pub writable: &'a [PathBuf],
}

#[derive(Clone, Copy, Debug)]
pub enum OperatorFile<'a> {
    /// The default path; without a file only the built-in profiles apply.
    Default(&'a Path),
    /// Named by the operator: a missing file is an error.
    Named(&'a Path),
}

/// Reads the operator's file, the workspace's file and those of the directories above, with every file they
/// name.
pub fn load(places: PolicyPaths<'_>) -> Result<Vec<PolicyFile>, LoadPolicyError> {
    let mut closed: Vec<PathBuf> = places.writable.to_vec();
    closed.push(places.workspace.to_owned());
    let mut files: Vec<PolicyFile> = load_operator(places.operator, &closed)?.into_iter().collect();
    files.extend(load_workspaces(places.workspace, places.home)?);
    Ok(files)
}

/// Reads only the operator's file, if it exists. `closed_to` are the roots that commands may write.
pub fn load_operator(
    file: OperatorFile<'_>,
    closed_to: &[PathBuf],
) -> Result<Option<PolicyFile>, LoadPolicyError> {
    let Some(path) = operator_path(file) else { return Ok(None) };
    let read = read_operator(path, closed_to)?;
    let loader = |path: &Path| {
        read_operator(path, closed_to).map(|read| read.text.into_bytes()).map_err(io::Error::other)
    };
    let file = PolicyFile::load(PolicyFileRole::Operator, &read.path, read.text.as_bytes(), &loader)?;
    Ok(Some(told(file)))
}

/// Directories whose policy file applies in a workspace: the workspace, then its ancestors below the home and
/// below system directories.
pub fn policy_directories<'a>(
    workspace: &'a Path,
    home: Option<&'a Path>,
) -> impl Iterator<Item = &'a Path> + 'a {
    let is_work = move |directory: &&Path| {
        let is_home = home.is_some_and(|home| home.starts_with(directory));
        !is_home && !is_system_dir(directory) && directory.parent().is_some()
    };
    let around = workspace.ancestors().skip(1).take_while(is_work);
    std::iter::once(workspace).chain(around.filter(|directory| is_trusted(directory)))
}

pub fn has_policy(directory: &Path) -> bool {
    fs::symlink_metadata(directory.join(IN_WORKSPACE)).is_ok()
}

/// Whether the owner or root owns the policy of a directory above a workspace. Another user may keep a policy
/// there.
fn is_trusted(directory: &Path) -> bool {
    let owner = fs::symlink_metadata(directory.join(".ringfence")).map(|metadata| metadata.uid());
    owner.is_ok_and(|owner| owner == 0 || owner == rustix::process::geteuid().as_raw())
}

/// The policy files of a workspace and of the directories above it.
pub fn load_workspaces(workspace: &Path, home: Option<&Path>) -> Result<Vec<PolicyFile>, LoadPolicyError> {
    let mut files = Vec::new();
    for directory in policy_directories(workspace, home) {
        files.extend(load_workspace(directory)?);
    }
    Ok(files)
}

/// The policy file of one directory, if it exists.
fn load_workspace(workspace: &Path) -> Result<Option<PolicyFile>, LoadPolicyError> {
    let Some(file) = read_workspace(workspace)? else { return Ok(None) };
    let directory = workspace.join(".ringfence");
    let loader = |path: &Path| read_beside(&directory, path);
    let file = PolicyFile::load(PolicyFileRole::Workspace, &file.path, file.text.as_bytes(), &loader)?;
    Ok(Some(told(file)))
}

/// Checks that a file shared by all workspaces is outside the writable roots of this one.
pub fn check_outside(file: &PolicyFile, closed_to: &[PathBuf]) -> Result<(), PolicyFileError> {
    for path in file.paths() {
        if let Some(root) = closed_to.iter().find(|root| path.starts_with(root)) {
            return Err(PolicyFileError::Inside { path: path.to_owned(), root: root.clone() });
        }
    }
    Ok(())
}

fn told(file: PolicyFile) -> PolicyFile {
    tracing::info!(role = ?file.role(), path = %shown(file.path()), seal = %file.seal(), "policy file read");
    file
}

fn operator_path(file: OperatorFile<'_>) -> Option<&Path> {
    match file {
        OperatorFile::Named(path) => Some(path),
        // A dangling link counts as a file that the operator meant to exist.
        OperatorFile::Default(path) => fs::symlink_metadata(path).is_ok().then_some(path),
    }
}

/// A file named by a workspace file must be in the same protected directory, and not a link.
fn read_beside(directory: &Path, path: &Path) -> io::Result<Vec<u8>> {
    let inside = path.parent() == Some(directory) && path.file_name().is_some();
    if !inside {
        return Err(io::Error::other("a workspace file may only name files beside it in `.ringfence`"));
    }
    read(path).map(|read| read.text.into_bytes()).map_err(io::Error::other)
}

/// Reads a file of the operator. `closed_to` are the roots that commands may write.
pub fn read_operator(path: &Path, closed_to: &[PathBuf]) -> Result<PolicyText, PolicyFileError> {
    let real =
        fs::canonicalize(path).map_err(|source| PolicyFileError::Io { path: path.to_owned(), source })?;
    if let Some(root) = closed_to.iter().find(|root| real.starts_with(root)) {
        return Err(PolicyFileError::Inside { path: real, root: root.clone() });
    }
    check_directories(&real)?;
    read(&real)
}

/// Reads the policy file of a workspace, if it exists. Links are not followed: through a link an agent could
/// choose which file of the operator is read.
pub fn read_workspace(workspace: &Path) -> Result<Option<PolicyText>, PolicyFileError> {
    let path = workspace.join(IN_WORKSPACE);
    let directory = path.parent().unwrap_or(workspace);
    match fs::symlink_metadata(directory) {
        // A path that is no directory is refused as a workspace later.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(PolicyFileError::Io { path, source }),
        Ok(metadata) if !metadata.is_dir() => {
            return Err(PolicyFileError::NotAFile { path: directory.to_owned() });
        }
        Ok(metadata) => check_mode(directory, &metadata)?,
    }
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PolicyFileError::Io { path, source }),
        Ok(_) => read(&path).map(Some),
    }
}

fn read(path: &Path) -> Result<PolicyText, PolicyFileError> {
    let io = |source| PolicyFileError::Io { path: path.to_owned(), source };
    // A FIFO in place of the file must not block this process.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(PolicyFileError::NotAFile { path: path.to_owned() });
    }
    check_mode(path, &metadata)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(PolicyFileError::TooLarge { path: path.to_owned() });
    }
    let text = String::from_utf8(bytes).map_err(|error| not_text(path, &error))?;
    Ok(PolicyText { path: path.to_owned(), text })
}

fn not_text(path: &Path, error: &FromUtf8Error) -> PolicyFileError {
    let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
    let good = String::from_utf8_lossy(good);
    let last = good.rsplit('\n').next().unwrap_or_default();
    PolicyFileError::NotText {
        path: path.to_owned(),
        line: good.matches('\n').count() + 1,
        column: last.chars().count() + 1,
    }
}

/// A user that can write a directory above a file can replace the file.
fn check_directories(path: &Path) -> Result<(), PolicyFileError> {
    for directory in path.ancestors().skip(1) {
        let metadata = fs::metadata(directory)
            .map_err(|source| PolicyFileError::Io { path: directory.to_owned(), source })?;
        check_mode(directory, &metadata)?;
    }
    Ok(())
}

fn check_mode(path: &Path, metadata: &fs::Metadata) -> Result<(), PolicyFileError> {
    const GROUP_WRITES: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let owner = metadata.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(PolicyFileError::Owner { path: path.to_owned(), owner });
    }
    let mode = metadata.mode();
    // In a sticky directory other users cannot replace our files.
    let sticky = metadata.is_dir() && mode & STICKY != 0;
    let group = mode & GROUP_WRITES != 0 && !is_own_group(metadata.gid(), owner);
    if (group || mode & OTHERS_WRITE != 0) && !sticky {
        return Err(PolicyFileError::Writable { path: path.to_owned() });
    }
    Ok(())
}

/// Many systems give each user a private group with write access. Only a group without other members is safe;
/// an unknown group is not.
fn is_own_group(gid: u32, uid: u32) -> bool {
    let (Ok(users), Ok(groups)) = (fs::read_to_string("/etc/passwd"), fs::read_to_string("/etc/group"))
    else {
        return false;
    };
    is_private_group(&users, &groups, gid, uid)
}

fn is_private_group(users: &str, groups: &str, gid: u32, uid: u32) -> bool {
    let field = |line: &str, index: usize| line.split(':').nth(index).map(str::to_owned).unwrap_or_default();
    let members: Vec<&str> = users.lines().filter(|line| field(line, 3) == gid.to_string()).collect();
    let [only] = members.as_slice() else { return false };
    let listed = groups.lines().filter(|line| field(line, 2) == gid.to_string()).map(|line| field(line, 3));
    let name = field(only, 0);
    field(only, 2) == uid.to_string()
        && listed
            .flat_map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>())
            .all(|member| member.trim().is_empty() || member.trim() == name)
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn file(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("config.toml");
        fs::write(&path, "profile = \"guarded\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (directory, path)
    }

    #[test]
    fn a_file_of_ones_own_is_read_whole() {
        let (_directory, path) = file(0o600);
        let read = read_operator(&path, &[]).unwrap();
        assert_eq!(read.text, "profile = \"guarded\"\n");
    }

    #[test]
    fn c12_a_file_that_others_can_write_is_refused() {
        let (_directory, path) = file(0o602);
        let error = read_operator(&path, &[]).unwrap_err();
        assert!(matches!(error, PolicyFileError::Writable { .. }), "{error}");
        let (directory, path) = file(0o600);
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(read_operator(&path, &[]).unwrap_err(), PolicyFileError::Writable { .. }));
    }

    #[test]
    fn c12_a_file_inside_a_writable_root_is_refused_also_through_a_link() {
        let (directory, path) = file(0o600);
        let root = directory.path().canonicalize().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let link = outside.path().join("link.toml");
        symlink(&path, &link).unwrap();
        for path in [&path, &link] {
            let error = read_operator(path, std::slice::from_ref(&root)).unwrap_err();
            assert!(matches!(error, PolicyFileError::Inside { .. }), "{error}");
        }
        assert!(read_operator(&link, &[]).is_ok(), "a link of the operator's own is followed");
    }

    #[test]
    fn what_is_no_text_file_is_refused_without_waiting_for_it() {
        let (directory, path) = file(0o600);
        fs::write(&path, b"a = 1\nb = \xff").unwrap();
        let error = read_operator(&path, &[]).unwrap_err();
        assert!(matches!(error, PolicyFileError::NotText { line: 2, column: 5, .. }), "{error:?}");
        fs::write(&path, vec![b'#'; 1 << 21]).unwrap();
        assert!(matches!(read_operator(&path, &[]).unwrap_err(), PolicyFileError::TooLarge { .. }));
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(matches!(read_operator(&fifo, &[]).unwrap_err(), PolicyFileError::NotAFile { .. }));
        assert!(matches!(
            read_operator(directory.path(), &[]).unwrap_err(),
            PolicyFileError::NotAFile { .. }
        ));
    }

    #[test]
    fn a_workspace_file_is_optional_and_never_a_link() {
        let workspace = tempfile::tempdir().unwrap();
        assert_eq!(read_workspace(workspace.path()).unwrap(), None);
        fs::create_dir(workspace.path().join(".ringfence")).unwrap();
        assert_eq!(read_workspace(workspace.path()).unwrap(), None);
        let path = workspace.path().join(IN_WORKSPACE);
        symlink("/etc/hostname", &path).unwrap();
        assert!(read_workspace(workspace.path()).is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(read_workspace(workspace.path()).unwrap().is_some());
    }

    #[test]
    fn only_a_group_of_one_is_nobody_else() {
        let users = "root:x:0:0::/:\nann:x:1000:1000::/:\nbob:x:1001:100::/:\neve:x:1002:100::/:\n";
        let groups = "root:x:0:\nann:x:1000:\nusers:x:100:\nteam:x:50:ann,bob\n";
        assert!(is_private_group(users, groups, 1000, 1000));
        assert!(!is_private_group(users, groups, 100, 1001), "two users have it");
        assert!(!is_private_group(users, groups, 50, 1000), "nobody's own");
        assert!(!is_private_group(users, "ann:x:1000:bob\n", 1000, 1000), "somebody was added");
        assert!(!is_private_group(users, groups, 1000, 1001));
    }
}
