//! What of a git directory must not change; the module above says why.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType};
use rustix::io::Errno;

use super::root_handle::{EntryType, PathProbe, destination, failed, normalized, open_directory, read_small};
use super::seek::CandidateKind;
use super::{CoverResult, PlaceholderKind, SurveyError, Surveyor, git_config, gitdir_pointer, shown};
use crate::held_changes;

/// Held where they exist. What a command makes of them later is found by the look at its end ([`crate::held_changes`]), which costs
/// nothing where there is nothing.
const WHERE_PRESENT: [&str; 3] = ["branches", "remotes", "info/attributes"];

/// Covers the named entries the walk met, every git directory of every root and what they lead to.
pub(super) fn cover_all(surveyor: &mut Surveyor<'_>) -> Result<(), SurveyError> {
    let mut work = GitSurvey {
        surveyor,
        repositories: Vec::new(),
        seen: BTreeSet::new(),
        settings_of_user: git_config::SurveyedGitConfig::default(),
    };
    work.settings_of_user()?;
    work.collect()?;
    while let Some(repository) = work.repositories.pop() {
        if work.seen.insert(repository.path.clone()) {
            work.cover(&repository)?;
        }
    }
    Ok(())
}

struct GitSurvey<'w, 'a> {
    surveyor: &'w mut Surveyor<'a>,
    repositories: Vec<GitDir>,
    seen: BTreeSet<PathBuf>,
    /// The templates and attributes of every repository.
    settings_of_user: git_config::SurveyedGitConfig,
}

/// A directory with objects and refs of its own, by absolute path.
struct GitDir {
    path: PathBuf,
    /// Where its files are checked out, as far as known before its configuration is read.
    worktree: Option<PathBuf>,
}

impl GitSurvey<'_, '_> {
    fn collect(&mut self) -> Result<(), SurveyError> {
        let mut named = Vec::new();
        let mut gits = Vec::new();
        for (ground, found) in self.surveyor.grounds.iter().zip(&mut self.surveyor.found) {
            named.extend(std::mem::take(&mut found.named).into_iter().map(|path| ground.path.join(path)));
            gits.extend(std::mem::take(&mut found.gits).into_iter().map(|path| ground.path.join(path)));
        }
        for path in named {
            self.surveyor.cover(&path, PlaceholderKind::Directory)?;
        }
        self.other_systems()?;
        self.bare_repositories()?;
        for outside in self.surveyor.grounds.iter().skip(self.surveyor.declared) {
            let path = outside.path.clone();
            self.repositories.push(GitDir { worktree: worktree_of(&path), path });
        }
        gits.extend(self.surveyor.declared_paths().iter().map(|root| root.join(".git")));
        gits.extend(self.surveyor.on_the_way().iter().map(|directory| directory.join(".git")));
        gits.sort();
        gits.dedup();
        gits.iter().try_for_each(|git| self.git_entry(git))
    }

    /// What the configuration of the user and of the system leads to in a root: git of the host obeys it in every repository. One
    /// that is not there yet must not come to be in a root.
    fn settings_of_user(&mut self) -> Result<(), SurveyError> {
        const MOST_FILES: usize = 64;
        let mut queue: Vec<PathBuf> = self.surveyor.rules.git_configs().to_vec();
        let mut done = BTreeSet::new();
        let mut total = git_config::SurveyedGitConfig::default();
        while let Some(file) = queue.pop().filter(|_| done.len() < MOST_FILES) {
            let file = destination(&file);
            if !done.insert(file.clone()) {
                continue;
            }
            if self.surveyor.place(&file).is_some() {
                total.add(self.cover_config(&file)?);
            } else if let Some(content) = read_small(rustix::fs::CWD, &file, git_config::MAX) {
                let config = git_config::parse(&content);
                let above = file.parent().unwrap_or(&file);
                queue.extend(config.includes.iter().map(|path| normalized(&above.join(self.expanded(path)))));
                total.add(config);
            }
        }
        let mut hooks_paths = std::mem::take(&mut total.hooks_paths);
        hooks_paths.retain(|path: &PathBuf| !path.as_os_str().is_empty());
        hooks_paths = hooks_paths.iter().map(|path| self.expanded(path)).collect();
        let absolute: Vec<PathBuf> = hooks_paths.iter().filter(|path| path.is_absolute()).cloned().collect();
        self.surveyor.hooks_of_user = hooks_paths;
        // Without a repository in the root they are the hooks of others.
        self.cover_hooks_paths(Path::new("/"), &absolute)?;
        self.cover_templates(Path::new("/"), &total)?;
        let (templates, attributes) = (total.templates, total.attributes);
        self.settings_of_user = git_config::SurveyedGitConfig { templates, attributes, ..Default::default() };
        Ok(())
    }

    /// What a configuration has git copy into new repositories, and the attributes that it adds to those of each. Git takes a
    /// relative path from where it works.
    fn cover_templates(
        &mut self,
        worktree: &Path,
        config: &git_config::SurveyedGitConfig,
    ) -> Result<(), SurveyError> {
        let paths = |paths: &[PathBuf]| -> Vec<PathBuf> {
            let stated = paths.iter().filter(|path| !path.as_os_str().is_empty());
            stated.map(|path| normalized(&worktree.join(self.expanded(path)))).collect()
        };
        let (templates, attributes) = (paths(&config.templates), paths(&config.attributes));
        for template in templates {
            // A root is covered by what is in it.
            let is_root = self.surveyor.grounds.iter().any(|ground| ground.path == template);
            let path = if is_root { template.join("hooks") } else { template };
            self.surveyor.cover(&path, PlaceholderKind::Directory)?;
        }
        for file in attributes {
            self.surveyor.cover(&file, PlaceholderKind::EMPTY)?;
        }
        Ok(())
    }

    /// Directories that git takes for repositories by what is in them. Their configurations are shown without credentials;
    /// what a command changes in the others is found when it ends.
    ///
    /// WHY NOT hold them like a `.git`: git would take a placeholder for `commondir` to mean that there is a checkout.
    fn bare_repositories(&mut self) -> Result<(), SurveyError> {
        let mut directories = Vec::new();
        for (ground, found) in self.surveyor.grounds.iter().zip(&self.surveyor.found) {
            let heads = found.candidates.iter().filter(|found| found.kind == CandidateKind::Head);
            directories.extend(heads.map(|head| ground.path.join(&head.relative)));
        }
        for directory in directories {
            let is_directory = |name: &str| {
                Ok::<_, SurveyError>(self.kind(&directory.join(name))? == Some(EntryType::Directory))
            };
            if is_directory("objects")? && is_directory("refs")? {
                self.show_configs(directory.join("config"))?;
                self.show_configs(directory.join("config.worktree"))?;
            }
        }
        Ok(())
    }

    /// Shows a configuration, and those that it includes, without credentials.
    fn show_configs(&mut self, file: PathBuf) -> Result<(), SurveyError> {
        let mut queue = vec![file];
        let mut done = BTreeSet::new();
        while let Some(file) = queue.pop() {
            if !done.insert(file.clone()) || self.kind(&file)? != Some(EntryType::File) {
                continue;
            }
            let Some(content) = self.show_config(&file) else { continue };
            let above = file.parent().unwrap_or(&file);
            let includes = git_config::parse(&content).includes;
            queue.extend(includes.iter().map(|path| normalized(&above.join(self.expanded(path)))));
        }
        Ok(())
    }

    /// What other version control systems execute, where it exists.
    fn other_systems(&mut self) -> Result<(), SurveyError> {
        let mut systems = Vec::new();
        for (ground, found) in self.surveyor.grounds.iter().zip(&self.surveyor.found) {
            let named = found.candidates.iter().filter(|found| found.kind == CandidateKind::OtherSystem);
            systems.extend(named.map(|system| ground.path.join(&system.relative)));
        }
        for system in systems {
            // A file can have the name as well: zsh completes darcs by one.
            if self.kind(&system)? != Some(EntryType::Directory) {
                continue;
            }
            for file in held_changes::files_of(&system).map(|file| system.join(file)) {
                if self.kind(&file)?.is_some() {
                    self.surveyor.cover(&file, PlaceholderKind::EMPTY)?;
                }
            }
        }
        Ok(())
    }

    /// A `.git`: the repository itself, a file that points at it, or nothing yet.
    fn git_entry(&mut self, git: &Path) -> Result<(), SurveyError> {
        let worktree = git.parent().map(Path::to_owned);
        if self.kind(git)? == Some(EntryType::Directory) {
            self.repositories.push(GitDir { path: git.to_owned(), worktree });
            return Ok(());
        }
        if let CoverResult::Present(EntryType::File) = self.surveyor.cover(git, PlaceholderKind::Directory)?
            && let Some(target) = gitdir_pointer::pointed_at(git)
        {
            self.pointed(&target, worktree)?;
        }
        Ok(())
    }

    /// The target of a `.git` file, where it is inside a root. One that does not exist must not come into being.
    fn pointed(&mut self, target: &Path, worktree: Option<PathBuf>) -> Result<(), SurveyError> {
        let target = std::fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        match self.probe(&target)? {
            Some(PathProbe::Present(EntryType::Directory)) if target.join("gitdir").exists() => {
                self.linked(&target)
            }
            Some(PathProbe::Present(EntryType::Directory)) => {
                self.repositories.push(GitDir { path: target, worktree });
                Ok(())
            }
            Some(_) => self.surveyor.cover(&target, PlaceholderKind::Directory).map(drop),
            None => Ok(()),
        }
    }

    fn cover(&mut self, repository: &GitDir) -> Result<(), SurveyError> {
        let git = &repository.path;
        self.pin(git);
        self.surveyor.cover(&git.join("hooks"), PlaceholderKind::Directory)?;
        for name in WHERE_PRESENT {
            if self.kind(&git.join(name))?.is_some() {
                self.surveyor.cover(&git.join(name), PlaceholderKind::EMPTY)?;
            }
        }
        let mut settings = self.cover_config(&git.join("config"))?;
        let own = self.cover_config(&git.join("config.worktree"))?;
        settings.hooks_paths.extend(self.surveyor.hooks_of_user.iter().cloned());
        settings.add(own);
        settings.add(self.settings_of_user.clone());
        self.cover_common(git, &settings)?;
        let mut worktrees = self.cover_worktrees(git)?;
        let configured = settings.worktree.as_ref().map(|path| normalized(&git.join(path)));
        worktrees.extend(configured.or_else(|| repository.worktree.clone()));
        for worktree in &worktrees {
            self.cover_hooks_paths(worktree, &settings.hooks_paths)?;
            self.cover_templates(worktree, &settings)?;
        }
        self.cover_modules(git, &worktrees)
    }

    fn cover_common(
        &mut self,
        git: &Path,
        settings: &git_config::SurveyedGitConfig,
    ) -> Result<(), SurveyError> {
        let common = git.join("commondir");
        match self.surveyor.cover(&common, PlaceholderKind::HERE)? {
            CoverResult::Present(EntryType::File) => {
                let target = gitdir_pointer::path_in(&common).and_then(|path| std::fs::canonicalize(path).ok());
                if let Some(path) = target.filter(|path| path != git) {
                    self.repositories.push(GitDir { path, worktree: None });
                }
            }
            CoverResult::Absent if settings.bare => self.surveyor.notes.push(format!(
                "`{}` is a bare repository in a directory called `.git`; while the session lasts git takes the directory around it for its checkout",
                shown(git)
            )),
            _ => {}
        }
        Ok(())
    }

    /// The configuration is shown as it is, or without its credentials, or (if it is too large to judge) not at all.
    fn cover_config(&mut self, file: &Path) -> Result<git_config::SurveyedGitConfig, SurveyError> {
        let mut queue = vec![file.to_owned()];
        let mut total = git_config::SurveyedGitConfig::default();
        let mut done = BTreeSet::new();
        while let Some(file) = queue.pop() {
            if !done.insert(file.clone()) {
                continue;
            }
            let CoverResult::Present(EntryType::File) = self.surveyor.cover(&file, PlaceholderKind::EMPTY)?
            else {
                continue;
            };
            let Some(content) = self.show_config(&file) else { continue };
            let config = git_config::parse(&content);
            let above = file.parent().unwrap_or(&file);
            queue.extend(config.includes.iter().map(|path| normalized(&above.join(self.expanded(path)))));
            // The last one counts.
            total.worktree = total.worktree.take().filter(|_| config.worktree.is_none());
            total.add(config);
        }
        Ok(total)
    }

    fn show_config(&mut self, file: &Path) -> Option<Vec<u8>> {
        let (index, relative) = self.surveyor.place(file)?;
        let ground = self.surveyor.grounds.get(index)?;
        let found = self.surveyor.found.get_mut(index)?;
        let content = read_small(ground.fd.as_fd(), &relative, git_config::MAX);
        match &content {
            None => found.mask(relative),
            Some(content) => match git_config::redacted(content) {
                None => {}
                Some(clean) if found.has_room(&clean) => found.rewrite(relative, clean),
                Some(_) => found.mask(relative),
            },
        }
        content
    }

    /// Hooks kept in the workspace run on the host like any other. Husky's are wrappers for those one level up.
    fn cover_hooks_paths(&mut self, worktree: &Path, paths: &[PathBuf]) -> Result<(), SurveyError> {
        for path in paths.iter().filter(|path| !path.as_os_str().is_empty()) {
            let path = normalized(&worktree.join(self.expanded(path)));
            let hooks = if path.ends_with("_") { path.parent().unwrap_or(&path) } else { &path };
            if hooks != worktree {
                self.surveyor.cover(hooks, PlaceholderKind::Directory)?;
            }
        }
        Ok(())
    }

    /// A path of a setting with the home of the caller in the place of `~`.
    fn expanded(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix("~").ok();
        match self.surveyor.rules.home().zip(below) {
            Some((home, below)) => home.join(below),
            None => path.to_owned(),
        }
    }

    /// Covers the linked worktrees of a repository and says where they are checked out.
    fn cover_worktrees(&mut self, git: &Path) -> Result<Vec<PathBuf>, SurveyError> {
        let mut checkouts = Vec::new();
        for linked in self.subdirectories(&git.join("worktrees"))? {
            self.linked(&linked)?;
            let pointer = gitdir_pointer::path_in(&linked.join("gitdir"));
            checkouts.extend(pointer.and_then(|git_file| std::fs::canonicalize(git_file.parent()?).ok()));
        }
        Ok(checkouts)
    }

    /// The part of a repository that belongs to one linked worktree.
    fn linked(&mut self, linked: &Path) -> Result<(), SurveyError> {
        if !self.seen.insert(linked.to_owned()) {
            return Ok(());
        }
        self.pin(linked);
        if self.kind(&linked.join("gitdir"))?.is_some() {
            self.surveyor.cover(&linked.join("gitdir"), PlaceholderKind::EMPTY)?;
        }
        self.surveyor.cover(&linked.join("commondir"), PlaceholderKind::TWO_UP)?;
        self.cover_config(&linked.join("config.worktree"))?;
        // Only where it exists: git does not remove a worktree that has this directory.
        match self.kind(&linked.join("modules"))? {
            Some(_) => self.cover_modules(linked, &[]),
            None => Ok(()),
        }
    }

    fn cover_modules(&mut self, git: &Path, worktrees: &[PathBuf]) -> Result<(), SurveyError> {
        let modules = git.join("modules");
        if self.kind(&modules)? != Some(EntryType::Directory) {
            return self.surveyor.cover(&modules, PlaceholderKind::Directory).map(drop);
        }
        let mut pending = vec![modules.clone()];
        while let Some(directory) = pending.pop() {
            for child in self.subdirectories(&directory)? {
                if self.kind(&child.join("HEAD"))?.is_some() {
                    self.repositories.push(GitDir { path: child, worktree: None });
                } else {
                    pending.push(child);
                }
            }
        }
        self.pin(&modules);
        self.hold_free_modules(&modules, worktrees)
    }

    fn hold_free_modules(&mut self, modules: &Path, worktrees: &[PathBuf]) -> Result<(), SurveyError> {
        for worktree in worktrees {
            let Some(content) = self.read(&worktree.join(".gitmodules")) else { continue };
            for name in git_config::submodule_names(&content) {
                let module = normalized(&modules.join(name));
                if module.starts_with(modules) && self.kind(&module)?.is_none() {
                    self.surveyor.cover(&module, PlaceholderKind::Directory)?;
                }
            }
        }
        Ok(())
    }

    fn read(&self, file: &Path) -> Option<Vec<u8>> {
        match super::root_handle::innermost(&self.surveyor.grounds, file) {
            Some((index, relative)) => {
                read_small(self.surveyor.grounds.get(index)?.fd.as_fd(), &relative, git_config::MAX)
            }
            None => read_small(rustix::fs::CWD, file, git_config::MAX),
        }
    }

    /// By descriptors below the root: a path of a command can be longer than the kernel takes at once.
    fn subdirectories(&self, directory: &Path) -> Result<Vec<PathBuf>, SurveyError> {
        let place = super::root_handle::innermost(&self.surveyor.grounds, directory);
        let ground = place.and_then(|(index, relative)| Some((self.surveyor.grounds.get(index)?, relative)));
        let Some((ground, relative)) = ground else { return Ok(Vec::new()) };
        match open_directory(ground.fd.as_fd(), relative.as_os_str().as_bytes()) {
            Ok(fd) => listed_directories(&fd, directory).map_err(failed("list", directory)),
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Vec::new()),
            Err(errno) => Err(failed("list", directory)(errno)),
        }
    }

    fn pin(&mut self, path: &Path) {
        if let Some((index, relative)) = self.surveyor.place(path)
            && let Some(found) = self.surveyor.found.get_mut(index)
        {
            found.pin(relative);
        }
    }

    fn kind(&self, path: &Path) -> Result<Option<EntryType>, SurveyError> {
        Ok(match self.probe(path)? {
            Some(PathProbe::Present(kind)) => Some(kind),
            Some(PathProbe::Link(_)) => Some(EntryType::Link),
            Some(PathProbe::Missing(_)) | None => None,
        })
    }

    /// `None` outside every root.
    fn probe(&self, path: &Path) -> Result<Option<PathProbe>, SurveyError> {
        let Some((index, relative)) = super::root_handle::innermost(&self.surveyor.grounds, path) else {
            return Ok(None);
        };
        let Some(ground) = self.surveyor.grounds.get(index) else { return Ok(None) };
        self.surveyor.patience.check(&ground.path)?;
        ground.probe(&relative).map(Some)
    }
}

fn listed_directories(fd: &OwnedFd, path: &Path) -> Result<Vec<PathBuf>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = match entry.file_type() {
            FileType::Unknown => rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            known => known,
        };
        if kind == FileType::Directory && !matches!(name.to_bytes(), b"." | b"..") {
            found.push(path.join(OsStr::from_bytes(name.to_bytes())));
        }
    }
    Ok(found)
}

/// The directory around a `.git`.
fn worktree_of(git: &Path) -> Option<PathBuf> {
    git.ends_with(".git").then(|| git.parent().map(Path::to_owned)).flatten()
}
