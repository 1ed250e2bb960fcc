//! Finds the programs that git would run because of a repository's settings.
//!
//! Conservative: anything that cannot be found, read or parsed is reported as a reason. A condition, such as
//! `includeIf` or a directory of another user, counts as met.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ringfence_authz::git_keys::{HOOKS, runs_a_program};
use ringfence_sandbox::git_config::{self, GitSetting};
use ringfence_types::ByteString;

use super::git_index;
use super::inside::Inside;

/// Larger configurations are not read.
const MAX_CONFIG: u64 = 1024 * 1024;
/// A `.git` file and similar files have one line.
const MAX_POINTER: u64 = 64 * 1024;
/// Git follows ten levels; a file that includes itself is read once here.
const MAX_FILES: usize = 64;
const MAX_REPOSITORIES: usize = 256;

/// The settings that make git in `dir` run a program, and the reasons why they could not be determined.
pub(super) fn programs(dir: &Path, inside: &Inside) -> Vec<String> {
    let mut search = RepositorySearch::new(inside);
    // Git does not look above a mount, and a root is a mount inside.
    for above in dir.ancestors().take_while(|above| inside.host(above).is_ok()) {
        if search.look_at(above) == LookupResult::Repository {
            break;
        }
    }
    search.submodules();
    search.found
}

/// Absolute paths of all files tracked by the repository that git would find from `dir`. An error means that
/// they are unknown.
pub(super) fn tracked(dir: &Path, inside: &Inside) -> io::Result<Vec<PathBuf>> {
    for above in dir.ancestors().take_while(|above| inside.host(above).is_ok()) {
        let git = above.join(".git");
        let found = match inside.host(&git).and_then(fs::metadata) {
            Ok(metadata) if metadata.is_dir() => recognised(inside, &git)?.then(|| git.clone()),
            Ok(_) => {
                let content = read(&inside.host(&git)?, MAX_POINTER)?;
                let target =
                    content.strip_prefix(b"gitdir: ").ok_or_else(|| io::Error::other("no `gitdir`"))?;
                Some(above.join(line(target)))
            }
            Err(_) => None,
        };
        match found {
            Some(git) => return tracked_in(inside, &git, above),
            None if recognised(inside, above)? => return Err(io::Error::other("there is no checkout")),
            None => {}
        }
    }
    Ok(Vec::new())
}

/// Absolute paths of the files in the index of `git`. Git prints files of its commits, which an index can lack: one that was
/// moved aside, or that names a directory in place of its files.
fn tracked_in(inside: &Inside, git: &Path, worktree: &Path) -> io::Result<Vec<PathBuf>> {
    let host = inside.host(git)?;
    if let Err(missing) = fs::symlink_metadata(host.join("index")) {
        // A repository without commits has no index, and nothing to print.
        let objects = common_directory(inside, git)?.join("objects");
        return if has_no_objects(&objects)? { Ok(Vec::new()) } else { Err(missing) };
    }
    let tracked = git_index::tracked(&host)?;
    if tracked.iter().any(|path| path.as_os_str().as_bytes().ends_with(b"/")) {
        return Err(io::Error::other("the index names directories"));
    }
    Ok(tracked.into_iter().map(|path| worktree.join(path)).collect())
}

/// Whether an object store is as `git init` makes it. A list of other stores is an entry in it, and a link leads to another.
fn has_no_objects(objects: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(objects)?.is_dir() {
        return Ok(false);
    }
    for entry in fs::read_dir(objects)? {
        let entry = entry?;
        let is_part = ["info", "pack"].iter().any(|name| entry.file_name() == *name);
        if !is_part || !entry.file_type()?.is_dir() || fs::read_dir(entry.path())?.next().is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

struct RepositorySearch<'i> {
    inside: &'i Inside,
    found: Vec<String>,
    /// Files read for the current repository. A relative path differs in the next one.
    files: BTreeSet<PathBuf>,
    /// Git directories with their worktrees, still to be searched for submodules.
    pending: Vec<(PathBuf, PathBuf)>,
    repositories: BTreeSet<PathBuf>,
}

/// Paths in a configuration. Git uses the last setting; here every one counts.
#[derive(Default)]
struct GitPaths {
    worktrees: Vec<PathBuf>,
    hooks: Vec<PathBuf>,
}

#[derive(PartialEq, Eq)]
enum LookupResult {
    /// Git stops here.
    Repository,
    Nothing,
}

impl<'i> RepositorySearch<'i> {
    fn new(inside: &'i Inside) -> Self {
        Self {
            inside,
            found: Vec::new(),
            files: BTreeSet::new(),
            pending: Vec::new(),
            repositories: BTreeSet::new(),
        }
    }

    fn is_recognised(&mut self, directory: &Path) -> bool {
        recognised(self.inside, directory).unwrap_or_else(|_unclear| {
            self.cannot("tell which repository git takes at", directory);
            false
        })
    }

    fn metadata(&self, path: &Path) -> io::Result<fs::Metadata> {
        self.inside.host(path).and_then(fs::metadata)
    }

    fn read(&self, path: &Path, max: u64) -> io::Result<Vec<u8>> {
        read(&self.inside.host(path)?, max)
    }

    /// What git would find in one directory: a `.git`, or a bare repository.
    fn look_at(&mut self, directory: &Path) -> LookupResult {
        let git = directory.join(".git");
        match self.metadata(&git) {
            Ok(metadata) if metadata.is_dir() => {
                self.repository(&git, directory);
                if self.is_recognised(&git) {
                    return LookupResult::Repository;
                }
            }
            Ok(_) => {
                self.git_file(&git, directory);
                return LookupResult::Repository;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return LookupResult::Nothing,
            Err(_) => self.cannot("look at", &git),
        }
        if self.is_recognised(directory) {
            self.repository(directory, directory);
            return LookupResult::Repository;
        }
        LookupResult::Nothing
    }

    /// `gitdir: PATH`, in linked worktrees and submodules.
    fn git_file(&mut self, file: &Path, worktree: &Path) {
        match self.read(file, MAX_POINTER) {
            Ok(content) => match content.strip_prefix(b"gitdir: ") {
                Some(target) => self.repository(&worktree.join(line(target)), worktree),
                None => self.cannot("understand", file),
            },
            Err(_) => self.cannot("read", file),
        }
    }

    fn repository(&mut self, git: &Path, worktree: &Path) {
        if !self.repositories.insert(git.to_owned()) {
            return;
        }
        if self.repositories.len() > MAX_REPOSITORIES {
            return self.found.push("more submodules than are looked at".to_owned());
        }
        let common = match self.read(&git.join("commondir"), MAX_POINTER) {
            Ok(content) => git.join(line(&content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => git.to_owned(),
            Err(_) => return self.cannot("read", &git.join("commondir")),
        };
        let mut places = GitPaths::default();
        self.files.clear();
        self.config(&git.join("config.worktree"), &mut places);
        self.config(&common.join("config"), &mut places);
        let mut worktrees = vec![worktree.to_owned()];
        worktrees.extend(places.worktrees.iter().map(|path| git.join(path)));
        self.elsewhere(&worktrees);
        places.hooks.push(common.join("hooks"));
        for worktree in worktrees {
            self.hooks(&places.hooks, &[&worktree, git]);
            self.pending.push((git.to_owned(), worktree));
        }
    }

    /// Reports a `core.worktree` elsewhere: git would read and compare the files there.
    fn elsewhere(&mut self, worktrees: &[PathBuf]) {
        let canonical = |worktree: &PathBuf| self.inside.host(worktree).and_then(fs::canonicalize).ok();
        let mut real = worktrees.iter().map(canonical);
        let here = real.next().flatten();
        if real.any(|worktree| worktree.is_none() || worktree != here) {
            self.found.push("core.worktree".to_owned());
        }
    }

    /// Searches hooks where git does: at the top of the worktree, or in a bare repository.
    fn hooks(&mut self, directories: &[PathBuf], from: &[&Path]) {
        for directory in directories {
            let places = from.iter().map(|from| from.join(directory));
            let all = places.flat_map(|place| HOOKS.map(|hook| place.join(hook)));
            for hook in all {
                match self.inside.host_name(&hook) {
                    Ok(host) if fs::symlink_metadata(&host).is_err() => continue,
                    Ok(_) => {}
                    Err(_) => {
                        self.cannot("look at", &hook);
                        continue;
                    }
                }
                let found = format!("the hook `{}`", ByteString::from(hook).display());
                if !self.found.contains(&found) {
                    self.found.push(found);
                }
            }
        }
    }

    /// Reads a configuration with all its includes.
    fn config(&mut self, file: &Path, places: &mut GitPaths) {
        let mut pending = vec![file.to_owned()];
        while let Some(file) = pending.pop() {
            if !self.files.insert(file.clone()) {
                continue;
            }
            if self.files.len() > MAX_FILES {
                return self.found.push("more configuration files than are looked at".to_owned());
            }
            for setting in self.settings(&file) {
                match (setting.section.as_slice(), setting.key.as_slice()) {
                    (b"core", b"worktree") => places.worktrees.push(path_of(&setting)),
                    (b"core", b"hookspath") => places.hooks.extend(self.near(&setting)),
                    (b"include" | b"includeif", b"path") => pending.extend(self.included(&file, &setting)),
                    _ => self.setting(&setting),
                }
            }
        }
    }

    fn settings(&mut self, file: &Path) -> Vec<GitSetting> {
        match self.read(file, MAX_CONFIG) {
            Ok(content) => {
                let config = git_config::parse(&content);
                if config.bad.is_some() {
                    self.cannot("understand", file);
                }
                config.settings
            }
            // Git skips missing files, too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(_) => {
                self.cannot("read", file);
                Vec::new()
            }
        }
    }

    fn setting(&mut self, setting: &GitSetting) {
        let name = setting.name();
        if runs_a_program(&name, &String::from_utf8_lossy(&setting.value)) {
            self.found.push(ByteString::from(name.as_str()).display());
        }
    }

    fn included(&mut self, from: &Path, setting: &GitSetting) -> Option<PathBuf> {
        let path = self.near(setting)?;
        Some(from.parent().unwrap_or(from).join(path))
    }

    /// The home inside the fence differs from the host's, so its content is unknown.
    fn near(&mut self, setting: &GitSetting) -> Option<PathBuf> {
        let path = path_of(setting);
        if setting.value.starts_with(b"~") || setting.value.starts_with(b"%(") {
            self.found.push(format!("{} = {}", setting.name(), ByteString::from(path).display()));
            return None;
        }
        Some(path)
    }

    /// Git enters the submodules in its index, which have settings of their own.
    fn submodules(&mut self) {
        while let Some((git, worktree)) = self.pending.pop() {
            match self.inside.host(&git).and_then(|git| git_index::submodules(&git)) {
                Ok(paths) => {
                    for path in paths {
                        self.look_at(&worktree.join(path));
                    }
                }
                Err(_) => self.cannot("read the index of", &git),
            }
        }
    }

    fn cannot(&mut self, what: &str, path: &Path) {
        self.found.push(format!(
            "a configuration that cannot be told: cannot {what} `{}`",
            ByteString::from(path).display()
        ));
    }
}

/// Whether git recognises a repository here: it reads `HEAD`, and needs to enter `objects` and `refs` of the common directory. An
/// error means that the directory looks like one, and that git may go on to the directory above it.
fn recognised(inside: &Inside, directory: &Path) -> io::Result<bool> {
    let Ok(host) = inside.host(directory) else { return Ok(false) };
    let head = host.join("HEAD");
    if fs::symlink_metadata(&head).is_err() {
        return Ok(false);
    }
    let common = common_directory(inside, directory)?;
    let tables = ["objects", "refs"].map(|name| common.join(name));
    if tables.iter().any(|table| fs::symlink_metadata(table).is_err()) {
        return Ok(false);
    }
    if tables.iter().all(|table| may(table, 0o1)) && has_valid_head(&head) {
        return Ok(true);
    }
    Err(io::Error::other("it looks like a repository, and git may take another one"))
}

/// The host path of the directory that `commondir` names, or of the directory itself. A running session has a `commondir` in each
/// repository, which names the repository itself.
fn common_directory(inside: &Inside, directory: &Path) -> io::Result<PathBuf> {
    let file = directory.join("commondir");
    if fs::symlink_metadata(inside.host_name(&file)?).is_err() {
        return inside.host(directory);
    }
    let content = read(&inside.host(&file)?, MAX_POINTER)?;
    let named = line(&content);
    if named.as_os_str().is_empty() || content.contains(&0) {
        return Err(io::Error::other("`commondir` names no directory"));
    }
    inside.host(&directory.join(named))
}

/// A link to a reference, `ref: refs/…`, or a digest.
fn has_valid_head(head: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    /// Git looks at no more of it.
    const LENGTH: usize = 255;
    if let Ok(target) = fs::read_link(head) {
        return target.as_os_str().as_bytes().starts_with(b"refs/");
    }
    let Ok(content) = read(head, MAX_POINTER) else { return false };
    let content = content.get(..LENGTH).unwrap_or(&content);
    let is_reference = content.strip_prefix(b"ref:").is_some_and(|reference| {
        let name = reference.iter().position(|byte| !b" \t\r\n".contains(byte)).unwrap_or_default();
        reference.get(name..).is_some_and(|name| name.starts_with(b"refs/"))
    });
    let is_digest = content.get(..40).is_some_and(|digest| digest.iter().all(u8::is_ascii_hexdigit));
    may(head, 0o4) && (is_reference || is_digest)
}

/// Whether a command inside may read (4) or enter (1) it by its mode. Root inside has no capability that overrides modes.
fn may(path: &Path, permission: u32) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(metadata) = fs::metadata(path) else { return false };
    let own = metadata.uid() == rustix::process::geteuid().as_raw();
    metadata.mode() & if own { permission << 6 } else { permission } != 0
}

/// Reads a regular file up to a limit. A FIFO in its place does not block this process.
pub(super) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    file.take(max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max { Err(io::Error::other("too large")) } else { Ok(content) }
}

fn line(content: &[u8]) -> &Path {
    let end = content.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Path::new(OsStr::from_bytes(content.get(..end).unwrap_or_default()))
}

fn path_of(setting: &GitSetting) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&setting.value))
}
