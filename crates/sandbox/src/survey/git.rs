//! What of a git directory must not change; the module above says why.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use super::at::{Kind, Probe, normalized, read_small};
use super::seek::CandidateKind;
use super::{Covered, Placeholder, SurveyError, Surveyor, config, pointer, shown};
use crate::held;

/// Held where they exist. What a command makes of them later is found by the look at its end ([`crate::held`]), which costs
/// nothing where there is nothing.
const WHERE_PRESENT: [&str; 3] = ["branches", "remotes", "info/attributes"];

const EMPTY: Placeholder = Placeholder::File(b"");
/// Git reads a common directory of `.` as "this one".
const HERE: Placeholder = Placeholder::File(b".\n");
const TWO_UP: Placeholder = Placeholder::File(b"../..\n");

/// Covers the named entries the walk met, every git directory of every root and what they lead to.
pub(super) fn cover_all(surveyor: &mut Surveyor<'_>) -> Result<(), SurveyError> {
    let mut work = Work { surveyor, repositories: Vec::new(), seen: BTreeSet::new() };
    work.collect()?;
    while let Some(repository) = work.repositories.pop() {
        if work.seen.insert(repository.path.clone()) {
            work.cover(&repository)?;
        }
    }
    Ok(())
}

struct Work<'w, 'a> {
    surveyor: &'w mut Surveyor<'a>,
    repositories: Vec<Repository>,
    seen: BTreeSet<PathBuf>,
}

/// A directory with objects and refs of its own, by absolute path.
struct Repository {
    path: PathBuf,
    /// Where its files are checked out, as far as known before its configuration is read.
    worktree: Option<PathBuf>,
}

impl Work<'_, '_> {
    fn collect(&mut self) -> Result<(), SurveyError> {
        let mut named = Vec::new();
        let mut gits = Vec::new();
        for (ground, found) in self.surveyor.grounds.iter().zip(&mut self.surveyor.found) {
            named.extend(std::mem::take(&mut found.named).into_iter().map(|path| ground.path.join(path)));
            gits.extend(std::mem::take(&mut found.gits).into_iter().map(|path| ground.path.join(path)));
        }
        for path in named {
            self.surveyor.cover(&path, Placeholder::Directory)?;
        }
        self.other_systems()?;
        for outside in self.surveyor.grounds.iter().skip(self.surveyor.declared) {
            let path = outside.path.clone();
            self.repositories.push(Repository { worktree: worktree_of(&path), path });
        }
        gits.extend(self.surveyor.declared_paths().iter().map(|root| root.join(".git")));
        gits.extend(self.surveyor.on_the_way().iter().map(|directory| directory.join(".git")));
        gits.sort();
        gits.dedup();
        gits.iter().try_for_each(|git| self.git_entry(git))
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
            if self.kind(&system)? != Some(Kind::Directory) {
                continue;
            }
            for file in held::files_of(&system).map(|file| system.join(file)) {
                if self.kind(&file)?.is_some() {
                    self.surveyor.cover(&file, EMPTY)?;
                }
            }
        }
        Ok(())
    }

    /// A `.git`: the repository itself, a file that points at it, or nothing yet.
    fn git_entry(&mut self, git: &Path) -> Result<(), SurveyError> {
        let worktree = git.parent().map(Path::to_owned);
        if self.kind(git)? == Some(Kind::Directory) {
            self.repositories.push(Repository { path: git.to_owned(), worktree });
            return Ok(());
        }
        if let Covered::Present(Kind::File) = self.surveyor.cover(git, Placeholder::Directory)?
            && let Some(target) = pointer::pointed_at(git)
        {
            self.pointed(&target, worktree)?;
        }
        Ok(())
    }

    /// The target of a `.git` file, where it is inside a root. One that does not exist must not come into being.
    fn pointed(&mut self, target: &Path, worktree: Option<PathBuf>) -> Result<(), SurveyError> {
        let target = std::fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        match self.probe(&target)? {
            Some(Probe::Present(Kind::Directory)) if target.join("gitdir").exists() => self.linked(&target),
            Some(Probe::Present(Kind::Directory)) => {
                self.repositories.push(Repository { path: target, worktree });
                Ok(())
            }
            Some(_) => self.surveyor.cover(&target, Placeholder::Directory).map(drop),
            None => Ok(()),
        }
    }

    fn cover(&mut self, repository: &Repository) -> Result<(), SurveyError> {
        let git = &repository.path;
        self.pin(git);
        self.surveyor.cover(&git.join("hooks"), Placeholder::Directory)?;
        for name in WHERE_PRESENT {
            if self.kind(&git.join(name))?.is_some() {
                self.surveyor.cover(&git.join(name), EMPTY)?;
            }
        }
        let mut settings = self.cover_config(&git.join("config"))?;
        let own = self.cover_config(&git.join("config.worktree"))?;
        settings.hooks_paths.extend(own.hooks_paths);
        self.cover_common(git, &settings)?;
        let mut worktrees = self.cover_worktrees(git)?;
        let configured = settings.worktree.or(own.worktree).map(|path| normalized(&git.join(path)));
        worktrees.extend(configured.or_else(|| repository.worktree.clone()));
        for worktree in &worktrees {
            self.cover_hooks_paths(worktree, &settings.hooks_paths)?;
        }
        self.cover_modules(git, &worktrees)
    }

    fn cover_common(&mut self, git: &Path, settings: &config::Config) -> Result<(), SurveyError> {
        let common = git.join("commondir");
        match self.surveyor.cover(&common, HERE)? {
            Covered::Present(Kind::File) => {
                let target = pointer::path_in(&common).and_then(|path| std::fs::canonicalize(path).ok());
                if let Some(path) = target.filter(|path| path != git) {
                    self.repositories.push(Repository { path, worktree: None });
                }
            }
            Covered::Absent if settings.bare => self.surveyor.notes.push(format!(
                "`{}` is a bare repository in a directory called `.git`; while the session lasts git takes the directory around it for its checkout",
                shown(git)
            )),
            _ => {}
        }
        Ok(())
    }

    /// The configuration is shown as it is, or without its credentials, or (if it is too large to judge) not at all.
    fn cover_config(&mut self, file: &Path) -> Result<config::Config, SurveyError> {
        let mut queue = vec![file.to_owned()];
        let mut total = config::Config::default();
        let mut done = BTreeSet::new();
        while let Some(file) = queue.pop() {
            if !done.insert(file.clone()) {
                continue;
            }
            let Covered::Present(Kind::File) = self.surveyor.cover(&file, EMPTY)? else { continue };
            let Some(content) = self.show_config(&file) else { continue };
            let config = config::parse(&content);
            let above = file.parent().unwrap_or(&file);
            queue.extend(config.includes.iter().map(|path| normalized(&above.join(path))));
            total.worktree = config.worktree.or(total.worktree);
            total.hooks_paths.extend(config.hooks_paths);
            total.bare |= config.bare;
        }
        Ok(total)
    }

    fn show_config(&mut self, file: &Path) -> Option<Vec<u8>> {
        let (index, relative) = self.surveyor.place(file)?;
        let ground = self.surveyor.grounds.get(index)?;
        let found = self.surveyor.found.get_mut(index)?;
        let content = read_small(ground.fd.as_fd(), &relative, config::MAX);
        match &content {
            None => found.mask(relative),
            Some(content) => {
                if let Some(clean) = config::redacted(content) {
                    found.rewrite(relative, clean);
                }
            }
        }
        content
    }

    /// Hooks kept in the workspace run on the host like any other. Husky's are wrappers for those one level up.
    fn cover_hooks_paths(&mut self, worktree: &Path, paths: &[PathBuf]) -> Result<(), SurveyError> {
        for path in paths.iter().filter(|path| !path.as_os_str().is_empty() && !path.starts_with("~")) {
            let path = normalized(&worktree.join(path));
            let hooks = if path.ends_with("_") { path.parent().unwrap_or(&path) } else { &path };
            if hooks != worktree {
                self.surveyor.cover(hooks, Placeholder::Directory)?;
            }
        }
        Ok(())
    }

    /// Covers the linked worktrees of a repository and says where they are checked out.
    fn cover_worktrees(&mut self, git: &Path) -> Result<Vec<PathBuf>, SurveyError> {
        let mut checkouts = Vec::new();
        for linked in self.subdirectories(&git.join("worktrees"))? {
            self.linked(&linked)?;
            let pointer = pointer::path_in(&linked.join("gitdir"));
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
            self.surveyor.cover(&linked.join("gitdir"), EMPTY)?;
        }
        self.surveyor.cover(&linked.join("commondir"), TWO_UP)?;
        self.cover_config(&linked.join("config.worktree"))?;
        // Only where it exists: git does not remove a worktree that has this directory.
        match self.kind(&linked.join("modules"))? {
            Some(_) => self.cover_modules(linked, &[]),
            None => Ok(()),
        }
    }

    fn cover_modules(&mut self, git: &Path, worktrees: &[PathBuf]) -> Result<(), SurveyError> {
        let modules = git.join("modules");
        if self.kind(&modules)? != Some(Kind::Directory) {
            return self.surveyor.cover(&modules, Placeholder::Directory).map(drop);
        }
        let mut pending = vec![modules.clone()];
        while let Some(directory) = pending.pop() {
            for child in self.subdirectories(&directory)? {
                if self.kind(&child.join("HEAD"))?.is_some() {
                    self.repositories.push(Repository { path: child, worktree: None });
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
            let Some(content) = read_small(rustix::fs::CWD, &worktree.join(".gitmodules"), config::MAX)
            else {
                continue;
            };
            for name in config::submodule_names(&content) {
                let module = normalized(&modules.join(name));
                if module.starts_with(modules) && self.kind(&module)?.is_none() {
                    self.surveyor.cover(&module, Placeholder::Directory)?;
                }
            }
        }
        Ok(())
    }

    fn subdirectories(&self, directory: &Path) -> Result<Vec<PathBuf>, SurveyError> {
        if self.kind(directory)? != Some(Kind::Directory) {
            return Ok(Vec::new());
        }
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(source) if source.kind() == std::io::ErrorKind::PermissionDenied => return Ok(Vec::new()),
            Err(source) => {
                return Err(SurveyError::Io { action: "list", path: directory.to_owned(), source });
            }
        };
        let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        Ok(directories.map(|entry| entry.path()).collect())
    }

    fn pin(&mut self, path: &Path) {
        if let Some((index, relative)) = self.surveyor.place(path)
            && let Some(found) = self.surveyor.found.get_mut(index)
        {
            found.pin(relative);
        }
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>, SurveyError> {
        Ok(match self.probe(path)? {
            Some(Probe::Present(kind)) => Some(kind),
            Some(Probe::Link(_)) => Some(Kind::Link),
            Some(Probe::Missing(_)) | None => None,
        })
    }

    /// `None` outside every root.
    fn probe(&self, path: &Path) -> Result<Option<Probe>, SurveyError> {
        let Some((index, relative)) = super::at::innermost(&self.surveyor.grounds, path) else {
            return Ok(None);
        };
        self.surveyor.grounds.get(index).map(|ground| ground.probe(&relative)).transpose()
    }
}

/// The directory around a `.git`.
fn worktree_of(git: &Path) -> Option<PathBuf> {
    git.ends_with(".git").then(|| git.parent().map(Path::to_owned)).flatten()
}
