//! Which programs git would run because a repository says so.
//!
//! Conservative in every doubt: what cannot be found, read or understood is reported as a reason, never passed over, and a
//! condition (`includeIf`, a directory that belongs to somebody else) counts as met.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ringfence_authz::git_keys::{HOOKS, runs_a_program};
use ringfence_sandbox::git_config::{self, Setting};
use ringfence_types::Bytes;

use super::index;
use super::inside::Inside;

/// Larger configurations are not read.
const MAX_CONFIG: u64 = 1024 * 1024;
/// A `.git` file and the like have one line.
const MAX_POINTER: u64 = 64 * 1024;
/// Git follows ten; a file that includes itself is read once here.
const MAX_FILES: usize = 64;
const MAX_REPOSITORIES: usize = 256;

/// The settings that make git, started in `dir`, run a program, and reasons why they could not be told.
pub(super) fn programs(dir: &Path, inside: &Inside) -> Vec<String> {
    let mut search = Search::new(inside);
    // Git does not look above a mount, and a root inside is one.
    for above in dir.ancestors().take_while(|above| inside.host(above).is_ok()) {
        if search.look_at(above) == Looked::Repository {
            break;
        }
    }
    search.submodules();
    search.found
}

/// Absolute paths of everything that is tracked by the repository that git would find from `dir`. An error: it cannot be told.
pub(super) fn tracked(dir: &Path, inside: &Inside) -> io::Result<Vec<PathBuf>> {
    for above in dir.ancestors().take_while(|above| inside.host(above).is_ok()) {
        let git = above.join(".git");
        let found = match inside.host(&git).and_then(fs::metadata) {
            Ok(metadata) if metadata.is_dir() => is_repository(inside, &git).then(|| git.clone()),
            Ok(_) => {
                let content = read(&inside.host(&git)?, MAX_POINTER)?;
                let target =
                    content.strip_prefix(b"gitdir: ").ok_or_else(|| io::Error::other("no `gitdir`"))?;
                Some(above.join(line(target)))
            }
            Err(_) => is_repository(inside, above).then(|| above.to_owned()),
        };
        if let Some(git) = found {
            let tracked = index::tracked(&inside.host(&git)?)?;
            return Ok(tracked.into_iter().map(|path| above.join(path)).collect());
        }
    }
    Ok(Vec::new())
}

struct Search<'i> {
    inside: &'i Inside,
    found: Vec<String>,
    /// Files that were read for the repository at hand. A relative path in one means something else in the next.
    files: BTreeSet<PathBuf>,
    /// Git directories with what is checked out from them, still to be asked for submodules.
    pending: Vec<(PathBuf, PathBuf)>,
    repositories: BTreeSet<PathBuf>,
}

/// What a configuration says about where things are. A later setting counts for git; here every one of them does.
#[derive(Default)]
struct Places {
    worktrees: Vec<PathBuf>,
    hooks: Vec<PathBuf>,
}

#[derive(PartialEq, Eq)]
enum Looked {
    /// Git stops here.
    Repository,
    Nothing,
}

impl<'i> Search<'i> {
    fn new(inside: &'i Inside) -> Self {
        Self {
            inside,
            found: Vec::new(),
            files: BTreeSet::new(),
            pending: Vec::new(),
            repositories: BTreeSet::new(),
        }
    }

    fn metadata(&self, path: &Path) -> io::Result<fs::Metadata> {
        self.inside.host(path).and_then(fs::metadata)
    }

    fn read(&self, path: &Path, max: u64) -> io::Result<Vec<u8>> {
        read(&self.inside.host(path)?, max)
    }

    /// What git would find in one directory: a `.git`, or the directory itself.
    fn look_at(&mut self, directory: &Path) -> Looked {
        let git = directory.join(".git");
        match self.metadata(&git) {
            Ok(metadata) if metadata.is_dir() => {
                self.repository(&git, directory);
                if is_repository(self.inside, &git) {
                    return Looked::Repository;
                }
            }
            Ok(_) => {
                self.git_file(&git, directory);
                return Looked::Repository;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Looked::Nothing,
            Err(_) => self.cannot("look at", &git),
        }
        if is_repository(self.inside, directory) {
            self.repository(directory, directory);
            return Looked::Repository;
        }
        Looked::Nothing
    }

    /// `gitdir: PATH`, as linked worktrees and submodules have it.
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
        let mut places = Places::default();
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

    /// `core.worktree` that is not where the repository was found: git would read and compare what is there.
    fn elsewhere(&mut self, worktrees: &[PathBuf]) {
        let canonical = |worktree: &PathBuf| self.inside.host(worktree).and_then(fs::canonicalize).ok();
        let mut real = worktrees.iter().map(canonical);
        let here = real.next().flatten();
        if real.any(|worktree| worktree.is_none() || worktree != here) {
            self.found.push("core.worktree".to_owned());
        }
    }

    /// Hooks are looked for where the command runs: at the top of the worktree, or in a repository without one.
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
                let found = format!("the hook `{}`", Bytes::from(hook).display());
                if !self.found.contains(&found) {
                    self.found.push(found);
                }
            }
        }
    }

    /// Reads a configuration with all it includes.
    fn config(&mut self, file: &Path, places: &mut Places) {
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

    fn settings(&mut self, file: &Path) -> Vec<Setting> {
        match self.read(file, MAX_CONFIG) {
            Ok(content) => {
                let config = git_config::parse(&content);
                if config.bad.is_some() {
                    self.cannot("understand", file);
                }
                config.settings
            }
            // Missing files are skipped by git, too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(_) => {
                self.cannot("read", file);
                Vec::new()
            }
        }
    }

    fn setting(&mut self, setting: &Setting) {
        let name = setting.name();
        if runs_a_program(&name, &String::from_utf8_lossy(&setting.value)) {
            self.found.push(Bytes::from(name.as_str()).display());
        }
    }

    fn included(&mut self, from: &Path, setting: &Setting) -> Option<PathBuf> {
        let path = self.near(setting)?;
        Some(from.parent().unwrap_or(from).join(path))
    }

    /// A home directory inside the fence is not the one here, so what is in it is not known.
    fn near(&mut self, setting: &Setting) -> Option<PathBuf> {
        let path = path_of(setting);
        if setting.value.starts_with(b"~") || setting.value.starts_with(b"%(") {
            self.found.push(format!("{} = {}", setting.name(), Bytes::from(path).display()));
            return None;
        }
        Some(path)
    }

    /// Git enters what its index says is a submodule, and that has settings of its own.
    fn submodules(&mut self) {
        while let Some((git, worktree)) = self.pending.pop() {
            match self.inside.host(&git).and_then(|git| index::submodules(&git)) {
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
            Bytes::from(path).display()
        ));
    }
}

/// As git tells one.
fn is_repository(inside: &Inside, directory: &Path) -> bool {
    let Ok(directory) = inside.host(directory) else { return false };
    let has = |name: &str| fs::symlink_metadata(directory.join(name)).is_ok();
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

/// The whole of a regular file that is not too large. A FIFO in its place does not make us wait.
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

fn path_of(setting: &Setting) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&setting.value))
}
