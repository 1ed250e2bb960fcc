//! Looks at candidates and says what of them would make a program of the host execute something.

mod conflicts;
mod elsewhere;
mod objects;
mod refs;
mod resume;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::ByteString;
use rustix::fs::{Access, AtFlags, Dir, FileType, Stat};

use super::finding::{AcceptedPrints, Finding, FindingKind, Print, Reason};
use super::git_paths::{self, CheckedIndex, MAX_INDEX, ObjectFormat};
use super::other_systems;
use super::settings::{self, Leads};
use crate::git_config::{self, GitSetting};
use crate::survey::{
    Candidate, CandidateKind, Patience, RootHandle, SurveyError, destination, innermost,
    is_in_version_control, normalized, open_directory, read_small, resolved,
};

/// Configurations, hooks and pointers that are larger are not read, and so not trusted.
pub(super) const MAX: u64 = 1024 * 1024;
/// A directory of hooks with more entries is held as a whole.
const MOST_ENTRIES: usize = 4096;
/// What is renamed to make it ineffective has this in its name.
pub(super) const MARK: &str = ".held-by-ringfence";
/// The name of a root in a finding about the root itself.
pub(super) const TOP: &str = ".";

/// Where candidates are looked at.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) grounds: &'a [RootHandle],
    /// Places outside the roots that commands can write and that are not looked through.
    pub(super) outside: &'a [PathBuf],
    /// Every root that commands can read.
    pub(super) visible: &'a [PathBuf],
    /// What mounts kept as it was.
    pub(super) fixed: &'a BTreeSet<PathBuf>,
    /// Where the user's own configuration sends git for hooks.
    pub(super) hooks_of_user: &'a [PathBuf],
    /// What was there at the start.
    pub(super) accepted: &'a AcceptedPrints,
    pub(super) mode: ExaminationMode,
    pub(super) patience: Patience,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExaminationMode {
    /// Before anything ran: whatever is there is the host's, and so are the files that it leads to.
    First,
    Later,
    /// Every finding that any session could have, whatever its roots are: no place counts as looked through.
    Strictest,
}

impl Scene<'_> {
    pub(super) fn is_fixed(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.fixed.contains(above))
    }

    /// The place in a root that `path` leads to.
    fn inside(&self, path: &Path) -> Option<(usize, PathBuf)> {
        innermost(self.grounds, &resolved(path)?)
    }

    fn is_strictest(&self) -> bool {
        self.mode == ExaminationMode::Strictest
    }

    /// Whether `path` leads, or may lead, where commands cannot have looked, or where they alone write.
    fn leads_out(&self, path: &Path) -> bool {
        let is_visible = |end: &Path| {
            let roots = self.grounds.iter().map(|ground| &ground.path).chain(self.visible);
            roots.into_iter().any(|root| end.starts_with(root)) && !self.is_outside_for_commands(end)
        };
        self.is_strictest() || !resolved(path).is_some_and(|end| is_visible(&end))
    }

    /// Whether files that are checked out at `path` would be files of a repository. Linked worktrees of a bare repository lie in
    /// it, under names of their own.
    fn is_in_repository(&self, path: &Path) -> bool {
        const PARTS: &[&str] = &[
            "branches",
            "hooks",
            "info",
            "logs",
            "modules",
            "objects",
            "refs",
            "reftable",
            "remotes",
            "rr-cache",
            "worktrees",
        ];
        let Some((ground, relative)) = innermost(self.grounds, path) else { return false };
        let is_repository =
            |at: &Path| Open::at(self, ground, at).is_some_and(|git| git.has("HEAD") && git.is_complete());
        let part = |above: &Path| {
            let below = relative.strip_prefix(above).ok().and_then(|below| below.iter().next());
            below.is_none_or(|name| PARTS.iter().any(|part| name.eq_ignore_ascii_case(part)))
        };
        is_in_version_control(&relative.join("x"))
            || relative.ancestors().any(|above| part(above) && is_repository(above))
    }

    /// Whether a path of a checkout is one that mounts keep as it was, in any checkout.
    fn is_fixed_in_a_checkout(&self, path: &Path) -> bool {
        let parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
        self.fixed.iter().any(|fixed| parts.iter().any(|part| fixed.ends_with(part)))
    }

    fn is_outside_for_commands(&self, path: &Path) -> bool {
        self.outside.iter().any(|place| path.starts_with(place))
    }

    /// All findings of these candidates, one list for each root. Each once, in the order of their paths. All of them, or an error.
    pub(super) fn examine(&self, candidates: &[Vec<Candidate>]) -> Result<Vec<Finding>, SurveyError> {
        let mut examiner = Examiner::new(self);
        // What these mean depends on whether they lie in a repository, and those are known later.
        let is_inner = |candidate: &&Candidate| {
            matches!(
                candidate.kind,
                CandidateKind::Link | CandidateKind::InnerLink | CandidateKind::InnerConfig
            )
        };
        for (ground, candidates) in candidates.iter().enumerate() {
            let others = candidates.iter().filter(|candidate| !is_inner(candidate));
            for candidate in others {
                examiner.candidate(ground, candidate);
                examiner.check(ground)?;
            }
        }
        for (ground, candidates) in candidates.iter().enumerate() {
            for candidate in candidates.iter().filter(is_inner) {
                examiner.candidate(ground, candidate);
                examiner.check(ground)?;
            }
        }
        let fixed = |finding: &Finding| self.is_fixed(&finding.path(self.grounds));
        Ok(examiner.findings.into_iter().filter(|finding| !fixed(finding)).collect())
    }
}

/// The bytes of what is found. A command can make one file a million findings, or make the path of each as long as it likes, and
/// the limits of commands are not for this process.
const MOST_FOUND: usize = 64 * 1024 * 1024;

struct Examiner<'s> {
    scene: &'s Scene<'s>,
    findings: BTreeSet<Finding>,
    /// What was looked at as a repository.
    seen: BTreeSet<(usize, PathBuf)>,
    /// What was looked at as a store of objects.
    stores: BTreeSet<(usize, PathBuf)>,
    /// What of it is one, of any system.
    repositories: BTreeSet<(usize, PathBuf)>,
    /// Configurations that others include.
    read: BTreeSet<PathBuf>,
    /// What leads on is looked at in turn, not by recursion: a command can make a chain of any length.
    repositories_ahead: Vec<(usize, PathBuf, Certainty)>,
    configurations_ahead: Vec<PathBuf>,
    /// The bytes of all of these.
    kept: usize,
}

/// A directory below a root, held open.
struct Open {
    ground: usize,
    relative: PathBuf,
    absolute: PathBuf,
    fd: OwnedFd,
}

impl Open {
    fn at(scene: &Scene<'_>, ground: usize, relative: &Path) -> Option<Self> {
        let root = scene.grounds.get(ground)?;
        // A path takes as long as it is deep. What is not looked at is an error in the end.
        scene.patience.check(&root.path).ok()?;
        let fd = open_directory(root.fd.as_fd(), relative.as_os_str().as_bytes()).ok()?;
        Some(Self { ground, relative: relative.to_owned(), absolute: root.path.join(relative), fd })
    }

    fn stat(&self, name: &OsStr) -> Option<Stat> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    fn kind(&self, name: impl AsRef<OsStr>) -> Option<FileType> {
        self.stat(name.as_ref()).map(|stat| FileType::from_raw_mode(stat.st_mode))
    }

    fn has(&self, name: &str) -> bool {
        self.kind(name).is_some()
    }

    /// Whether git finds what it needs of a repository besides `HEAD`.
    fn is_complete(&self) -> bool {
        self.has("commondir") || (self.has("objects") && self.has("refs"))
    }

    /// Whether this user has, or can take, a way into a directory. One of another user without any is of no use to commands, nor
    /// to programs of this user.
    fn may_be_used(&self, name: &OsStr) -> bool {
        let own = self.stat(name).is_some_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
        own || rustix::fs::accessat(&self.fd, name, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    }

    /// What is in the files with these names, as one. A digest of each: together they can be as large as a command likes.
    fn contents(&self, mut names: Vec<OsString>) -> Vec<u8> {
        names.sort();
        let content = |name: &OsString| self.identity(self.fd.as_fd(), name).unwrap_or_default();
        names.iter().flat_map(|name| Print::of(&[name.as_bytes(), &content(name)]).bytes()).collect()
    }

    fn read(&self, name: impl AsRef<OsStr>) -> Option<Vec<u8>> {
        read_small(self.fd.as_fd(), Path::new(name.as_ref()), MAX)
    }

    fn finding(&self, name: &OsStr, kind: FindingKind, content: &[u8]) -> Finding {
        let path = self.absolute.join(name);
        let print = Print::of(&[path.as_os_str().as_bytes(), kind.rule().word().as_bytes(), content]);
        Finding { ground: self.ground, directory: self.relative.clone(), name: name.to_owned(), kind, print }
    }

    /// An entry as a whole, by what is in it.
    fn entry(&self, name: impl AsRef<OsStr>, reason: Reason) -> Finding {
        let name = name.as_ref();
        let content = self.identity(self.fd.as_fd(), name).unwrap_or_default();
        self.finding(name, FindingKind::Entry(reason), &content)
    }

    /// The content, or for what is too large or no file something that changes with it.
    fn identity(&self, directory: BorrowedFd<'_>, name: &OsStr) -> Option<Vec<u8>> {
        let stat = self.stat(name)?;
        let kind = stat.st_mode.to_le_bytes();
        let content = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => rustix::fs::readlinkat(directory, name, Vec::new()).ok()?.into_bytes(),
            _ => self.read(name).unwrap_or_else(|| changing(&stat)),
        };
        Some([&kind[..], &content].concat())
    }
}

/// The kernel alone sets the time of the last change.
fn changing(stat: &Stat) -> Vec<u8> {
    format!("{} {} {} {}", stat.st_dev, stat.st_ino, stat.st_ctime, stat.st_ctime_nsec).into_bytes()
}

impl<'s> Examiner<'s> {
    fn new(scene: &'s Scene<'s>) -> Self {
        Self {
            scene,
            findings: BTreeSet::new(),
            seen: BTreeSet::new(),
            stores: BTreeSet::new(),
            repositories: BTreeSet::new(),
            read: BTreeSet::new(),
            repositories_ahead: Vec::new(),
            configurations_ahead: Vec::new(),
            kept: 0,
        }
    }

    /// Whether everything so far was looked at.
    fn check(&self, ground: usize) -> Result<(), SurveyError> {
        let path = self.scene.grounds.get(ground).map_or(Path::new(""), |ground| &ground.path);
        self.scene.patience.check(path)?;
        if self.has_room() { Ok(()) } else { Err(SurveyError::TooMuch { path: path.to_owned() }) }
    }

    fn has_room(&self) -> bool {
        self.kept <= MOST_FOUND
    }

    /// Whether the time for a look has run out. One candidate can have more than its share: what ends for this reason is an error
    /// at the next [`Self::check`].
    fn is_over(&self) -> bool {
        self.scene.patience.check(Path::new("")).is_err()
    }

    fn candidate(&mut self, ground: usize, candidate: &Candidate) {
        let relative = &candidate.relative;
        match candidate.kind {
            CandidateKind::Git => self.git_entry(ground, relative),
            CandidateKind::Head => self.repository(ground, relative, Certainty::ByContent),
            CandidateKind::InnerConfig => self.inner_config(ground, relative),
            CandidateKind::OtherSystem => self.other_system(ground, relative),
            CandidateKind::Subversion => self.subversion(ground, relative),
            CandidateKind::Link | CandidateKind::InnerLink => self.link(ground, candidate),
            CandidateKind::Closed => self.closed(ground, relative),
        }
    }

    /// In a git directory any other with a configuration may be one: programs that come with git have written the `commondir`
    /// that makes it so.
    fn inner_config(&mut self, ground: usize, relative: &Path) {
        let above = |part: &Path| self.repositories.contains(&(ground, part.to_owned()));
        let known = relative.ancestors().skip(1).any(above);
        let named = || relative.ancestors().skip(1).any(|part| part.ends_with(".git"));
        if (known || named())
            && Open::at(self.scene, ground, relative).is_some_and(|inner| inner.is_complete())
        {
            self.repository(ground, relative, Certainty::ByName);
        }
    }

    fn note(&mut self, finding: Finding) {
        let bytes = size_of::<Finding>() + finding.bytes();
        if self.has_room() && self.findings.insert(finding) {
            self.kept += bytes;
        }
    }

    /// A file that is trusted for what is in it has one name. Git of the host writes some files in place, such as the message of
    /// a commit, and would write a trusted file through a second name of it. The names that a file of the host has are known by
    /// their number.
    fn only_name(&mut self, directory: &Open, name: impl AsRef<OsStr>) {
        let name = name.as_ref();
        let shared = directory.stat(name).filter(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink > 1
        });
        if let Some(stat) = shared {
            let names = format!("{} {} {}", stat.st_dev, stat.st_ino, stat.st_nlink);
            let kind = FindingKind::Entry(Reason::HardLink);
            self.note(directory.finding(name, kind, names.as_bytes()));
        }
    }

    fn parent(&self, ground: usize, relative: &Path) -> Option<(Open, OsString)> {
        let parent = Open::at(self.scene, ground, relative.parent()?)?;
        Some((parent, relative.file_name()?.to_owned()))
    }

    fn git_entry(&mut self, ground: usize, relative: &Path) {
        let Some((parent, name)) = self.parent(ground, relative) else { return };
        self.only_name(&parent, &name);
        self.hooks_of_user(&parent.absolute);
        match parent.kind(&name) {
            None => {}
            Some(_) if self.scene.is_in_repository(&parent.absolute) => {
                self.note(parent.entry(&name, Reason::InnerCheckout));
            }
            Some(FileType::Directory) => self.repository(ground, relative, Certainty::ByName),
            Some(FileType::RegularFile) if self.is_own_pointer(&parent, &name) => {}
            Some(FileType::RegularFile) => self.note(parent.entry(&name, Reason::GitFile)),
            Some(_) => self.note(parent.entry(&name, Reason::GitLink)),
        }
    }

    /// Whether a `.git` file leads to a repository that is looked at as well, and that it may belong to.
    fn is_own_pointer(&self, parent: &Open, name: &OsStr) -> bool {
        let Some(content) = parent.read(name) else { return false };
        let Some(path) = content.strip_prefix(b"gitdir: ") else { return content.is_empty() };
        let Some(target) = one_line(path).and_then(|path| resolved(&parent.absolute.join(path))) else {
            return false;
        };
        // The configuration of a repository of the host is for its own checkouts: a path in it that is not absolute would
        // be taken from this one.
        let foreign = self.scene.is_fixed(&target.join("config")) && !self.is_part(&target);
        innermost(self.scene.grounds, &target).is_some()
            && !foreign
            && !self.scene.is_strictest()
            && !self.leads_out_from(&parent.absolute, &target)
    }

    /// Whether `git` is the part of a repository of the host that has a checkout of its own.
    fn is_part(&self, git: &Path) -> bool {
        let holds = |above: &Path| above.ends_with("worktrees") || above.ends_with("modules");
        let of_host = |git: &Path| self.scene.is_fixed(&git.join("config"));
        git.ancestors().skip(1).filter(|above| holds(above)).any(|above| above.parent().is_some_and(of_host))
    }

    /// A directory in `from`. A link is followed where it leads to what is looked through; any other is a finding.
    fn step(&mut self, from: &Open, name: impl AsRef<OsStr>, reason: Reason) -> Option<Open> {
        let name = name.as_ref();
        match from.kind(name)? {
            FileType::Directory => Open::at(self.scene, from.ground, &from.relative.join(name)),
            FileType::Symlink => {
                let place = self.scene.inside(&from.absolute.join(name));
                let open = place.and_then(|(ground, relative)| Open::at(self.scene, ground, &relative));
                if open.is_none() || self.scene.is_strictest() {
                    self.note(from.entry(name, reason));
                }
                open
            }
            _ => None,
        }
    }

    /// A repository, and every one that it leads to.
    fn repository(&mut self, ground: usize, relative: &Path, certainty: Certainty) {
        self.repositories_ahead.push((ground, relative.to_owned(), certainty));
        while let Some((ground, relative, certainty)) = self.repositories_ahead.pop() {
            self.one_repository(ground, &relative, certainty);
        }
    }

    fn one_repository(&mut self, ground: usize, relative: &Path, certainty: Certainty) {
        if !self.has_room() || !self.seen.insert((ground, relative.to_owned())) {
            return;
        }
        // As one that was seen, and as a repository.
        self.kept += 2 * relative.as_os_str().len();
        let Some(git) = Open::at(self.scene, ground, relative) else { return };
        if certainty == Certainty::ByContent && !(git.is_complete() && git.has("HEAD")) {
            return;
        }
        self.repositories.insert((ground, relative.to_owned()));
        self.hooks_of_user(&git.absolute);
        for name in ["config", "config.worktree"] {
            if git.has(name) {
                self.configuration(&git, &git, OsStr::new(name));
            }
        }
        while let Some(path) = self.configurations_ahead.pop() {
            self.included(&git, &path);
        }
        self.entries(&git, "hooks", Reason::Hook);
        self.legacy_remotes(&git, "remotes");
        self.legacy_remotes(&git, "branches");
        self.common_dir(&git);
        self.object_stores(&git);
        self.attributes(&git);
        self.resume_state(&git);
        self.symbolic_refs(&git);
        self.reference_tables(&git);
        self.worktree_locations(&git);
        self.index(&git, "index");
        self.conflicts(&git);
        if let Some(sapling) = self.step(&git, "sl", Reason::OtherSystem) {
            self.plain_files(&sapling, &["config", "hgrc"]);
            let (_, state) = other_systems::HISTEDIT;
            self.state_file(&sapling, state, Reason::OtherSystem, other_systems::is_plain_histedit);
        }
        self.plain_files(&git, other_systems::IN_GIT);
        self.entries(&git, other_systems::INSTAWEB, Reason::OtherSystem);
        self.state_file(&git, "pid", Reason::OtherSystem, other_systems::is_process_id);
    }

    /// The configuration `name` in `directory`, for the repository `git`.
    fn configuration(&mut self, git: &Open, directory: &Open, name: &OsStr) {
        self.only_name(directory, name);
        let located = directory.read(name).map(|content| git_config::locate(&content));
        let Some(located) = located.filter(|located| located.bad.is_none()) else {
            return self.note(directory.entry(name, Reason::UnreadableConfig));
        };
        let place = Place::new(self.scene, git.absolute.clone());
        let path = directory.absolute.join(name);
        for (setting, _) in &located.settings {
            if self.is_over() {
                return;
            }
            if settings::is_harmless(setting, &place) {
                continue;
            }
            let kind = FindingKind::Setting { name: shown_name(setting) };
            let print = setting_print(&path, setting);
            self.note(Finding { print, ..directory.finding(name, kind, b"") });
            // A setting that came from inside is taken out, and then leads nowhere.
            if self.scene.mode != ExaminationMode::Later || self.scene.accepted.contains(&print) {
                self.led_to(git, directory, setting);
            }
            if !self.has_room() {
                return;
            }
        }
    }

    /// What a setting of the host leads to, where commands can change it.
    fn led_to(&mut self, git: &Open, directory: &Open, setting: &GitSetting) {
        let Some(path) = one_line(&setting.value).filter(|path| !path.starts_with("~")) else { return };
        match (setting.section.as_slice(), setting.key.as_slice()) {
            (b"include" | b"includeif", b"path") => {
                let path = directory.absolute.join(path);
                self.kept += path.as_os_str().len();
                self.configurations_ahead.push(path);
            }
            (b"core", b"hookspath") => {
                let bases = [Some(git.absolute.as_path()), git.absolute.parent()];
                let places: Vec<PathBuf> = bases.into_iter().flatten().map(|base| base.join(path)).collect();
                places.iter().for_each(|place| self.hooks_of_host(place));
            }
            _ => {}
        }
    }

    fn included(&mut self, git: &Open, path: &Path) {
        let Some((ground, relative)) = self.scene.inside(path) else { return };
        let Some((directory, name)) = self.parent(ground, &relative) else { return };
        let new = self.read.insert(directory.absolute.join(&name));
        // Git stops at a file that it cannot read, so one that is no configuration does nothing. It does not stop at a zero byte.
        let refused = |content: Vec<u8>| {
            !git_config::has_zero_byte(&content) && git_config::locate(&content).bad.is_some()
        };
        let stops = directory.read(&name).is_some_and(refused);
        if new && directory.kind(&name).is_some() && !stops {
            self.configuration(git, &directory, &name);
        }
    }

    /// Hooks that the user's own configuration takes from every checkout.
    fn hooks_of_user(&mut self, checkout: &Path) {
        let hooks = self.scene.hooks_of_user.iter().filter(|path| path.is_relative());
        hooks.for_each(|path| self.hooks_of_host(&checkout.join(path)));
    }

    /// Hooks that the host keeps in its work. Other files beside them are no hooks. Husky's are wrappers for those one level up.
    fn hooks_of_host(&mut self, path: &Path) {
        let above = path.ends_with("_").then(|| path.parent()).flatten();
        for path in [Some(path), above].into_iter().flatten() {
            let Some((ground, relative)) = self.scene.inside(path) else { continue };
            let Some(hooks) = Open::at(self.scene, ground, &relative) else { continue };
            for name in HOOKS.iter().filter(|name| hooks.has(name)) {
                self.only_name(&hooks, name);
                self.note(hooks.entry(name, Reason::Hook));
            }
        }
    }

    /// Every entry of a directory of `git` that is not inert.
    fn entries(&mut self, git: &Open, name: &str, reason: Reason) {
        match git.kind(name) {
            None => return,
            Some(FileType::Directory) => {}
            Some(_) => return self.note(git.entry(name, reason)),
        }
        let listed = Open::at(self.scene, git.ground, &git.relative.join(name))
            .and_then(|directory| names(&directory.fd).map(|names| (directory, names)));
        let Some((directory, names)) = listed else {
            return self.note(git.entry(name, reason));
        };
        for name in names.iter().filter(|name| !is_inert(name)) {
            self.only_name(&directory, name);
            self.note(directory.entry(name, reason));
        }
    }

    /// A remote can have any name, also one of those that are kept, so the directory is one thing.
    fn legacy_remotes(&mut self, git: &Open, name: &str) {
        match git.kind(name) {
            None => {}
            Some(FileType::Directory) => {
                let listed = Open::at(self.scene, git.ground, &git.relative.join(name))
                    .and_then(|remotes| names(&remotes.fd).map(|names| (remotes, names)));
                let content = match listed {
                    Some((_, names)) if names.is_empty() => return,
                    Some((remotes, names)) => {
                        names.iter().for_each(|name| self.only_name(&remotes, name));
                        remotes.contents(names)
                    }
                    None => git.identity(git.fd.as_fd(), OsStr::new(name)).unwrap_or_default(),
                };
                let kind = FindingKind::Entry(Reason::LegacyRemote);
                self.note(git.finding(OsStr::new(name), kind, &content));
            }
            Some(_) => self.note(git.entry(name, Reason::LegacyRemote)),
        }
    }

    fn common_dir(&mut self, git: &Open) {
        if !git.has("commondir") {
            return;
        }
        self.only_name(git, "commondir");
        let content = git.read("commondir");
        let target = content.and_then(|content| resolved(&git.absolute.join(one_line(&content)?)));
        let own = target.filter(|target| self.may_share(git, target));
        let place = own.and_then(|target| innermost(self.scene.grounds, &target));
        if place.is_none() || self.scene.is_strictest() {
            self.note(git.entry("commondir", Reason::CommonDir));
        }
        if let Some((ground, relative)) = place {
            // It need have no HEAD of its own.
            self.repositories_ahead.push((ground, relative, Certainty::ByName));
        }
    }

    /// A linked worktree shares with the repository that it is in; what came from inside may share with its like.
    fn may_share(&self, git: &Open, target: &Path) -> bool {
        let linked = git.absolute.parent().is_some_and(|above| above == target.join("worktrees"));
        linked || target == git.absolute || !self.scene.is_fixed(&target.join("config"))
    }

    /// They choose among drivers: the configuration of the host may define some, of the repository or of the user.
    fn attributes(&mut self, git: &Open) {
        let Some(info) = self.step(git, "info", Reason::Shortcut) else { return };
        if info.has("attributes") {
            self.only_name(&info, "attributes");
            self.note(info.entry("attributes", Reason::Attributes));
        }
    }

    /// An index, and the one that it is based on.
    fn index(&mut self, git: &Open, name: &str) {
        if !git.has(name) {
            return;
        }
        self.only_name(git, name);
        let Some(index) =
            self.checked_index(git, name).filter(|index| !self.leads_out_of_checkouts(git, &index.listed))
        else {
            return self.note(git.entry(name, Reason::Index));
        };
        // One that is based on others is none that others are based on.
        if name == "index" {
            index.shared.iter().for_each(|base| self.index(git, base));
        }
    }

    fn checked_index(&self, git: &Open, name: &str) -> Option<CheckedIndex> {
        let format = self.object_format(git)?;
        let content = read_small(git.fd.as_fd(), Path::new(name), MAX_INDEX)?;
        git_paths::checked_index(&content, format)
    }

    /// As the configuration of the repository says it. `None` where it says two things.
    fn object_format(&self, git: &Open) -> Option<ObjectFormat> {
        let common = self.common(git);
        let settings =
            git_config::parse(&common.as_ref().unwrap_or(git).read("config").unwrap_or_default()).settings;
        let with = |section: &'static [u8], key: &'static [u8]| {
            let is = move |setting: &&GitSetting| setting.section == section && setting.key == key;
            settings.iter().filter(|setting| setting.subsection.is_none()).filter(is)
        };
        let mut formats = with(b"extensions", b"objectformat");
        // With another version git refuses the repository.
        let mut versions = with(b"core", b"repositoryformatversion");
        let is_extended = versions.next().is_some_and(|first| first.value == b"1")
            && versions.all(|next| next.value == b"1");
        let is_long = |setting: &GitSetting| setting.value.eq_ignore_ascii_case(b"sha256");
        match formats.next() {
            None => Some(ObjectFormat::Sha1),
            Some(first) if formats.any(|next| is_long(next) != is_long(first)) => None,
            Some(first) if is_long(first) => is_extended.then_some(ObjectFormat::Sha256),
            Some(_) => Some(ObjectFormat::Sha1),
        }
    }

    fn other_system(&mut self, ground: usize, relative: &Path) {
        let Some((parent, name)) = self.parent(ground, relative) else { return };
        let known = other_systems::FILES.iter().find(|(system, _)| name.eq_ignore_ascii_case(system));
        let Some((system, files)) = known else { return };
        if parent.kind(&name) == Some(FileType::Symlink) {
            self.note(parent.entry(&name, Reason::OtherSystem));
        }
        let Some(directory) = self.step(&parent, &name, Reason::OtherSystem) else { return };
        self.plain_files(&directory, files);
        if *system == ".jj" {
            self.jujutsu(&directory);
        }
        let (systems, state) = other_systems::HISTEDIT;
        if systems.contains(system) {
            self.state_file(&directory, state, Reason::OtherSystem, other_systems::is_plain_histedit);
        }
    }

    /// Files that must say nothing which executes. A link on the way to one is as good as the file.
    fn plain_files(&mut self, directory: &Open, files: &[&str]) {
        for file in files {
            let Some((above, name)) = file.rsplit_once('/') else {
                self.plain_file(directory, file, file);
                continue;
            };
            if let Some(above) = self.step(directory, above, Reason::OtherSystem) {
                self.plain_file(&above, name, file);
            }
        }
    }

    fn plain_file(&mut self, directory: &Open, name: &str, file: &str) {
        let Some(kind) = directory.kind(name) else { return };
        self.only_name(directory, name);
        let content = directory.read(name).filter(|_| kind == FileType::RegularFile);
        if !content.is_some_and(|content| other_systems::is_harmless(file, &content)) {
            self.note(directory.entry(name, Reason::OtherSystem));
        }
    }

    /// `.jj/repo` is a file where a repository has several checkouts. Either has a git repository that it fetches with.
    fn jujutsu(&mut self, jj: &Open) {
        let repository = match jj.kind("repo") {
            Some(FileType::RegularFile) => self.pointed_at(jj, "repo"),
            Some(_) => self.step(jj, "repo", Reason::OtherSystem),
            None => None,
        };
        let Some(repository) = repository else { return };
        self.plain_files(&repository, &["config.toml"]);
        if let Some(store) = self.step(&repository, "store", Reason::OtherSystem)
            && store.has("git_target")
        {
            let _git = self.pointed_at(&store, "git_target");
        }
    }

    /// The directory that a file of one line leads to. One that is not looked through is a finding about the file.
    fn pointed_at(&mut self, directory: &Open, name: &str) -> Option<Open> {
        self.only_name(directory, name);
        let content = directory.read(name);
        let target = content.and_then(|content| Some(directory.absolute.join(one_line(&content)?)));
        let place = target.and_then(|target| self.scene.inside(&target));
        if place.is_none() || self.scene.is_strictest() {
            self.note(directory.entry(name, Reason::OtherSystem));
        }
        let (ground, relative) = place?;
        let open = Open::at(self.scene, ground, &relative);
        self.repositories.extend(open.is_some().then_some((ground, relative)));
        open
    }

    fn subversion(&mut self, ground: usize, relative: &Path) {
        let Some(repository) = Open::at(self.scene, ground, relative) else { return };
        if repository.has("format") && repository.has("db") {
            self.repositories.insert((ground, relative.to_owned()));
            self.entries(&repository, "hooks", Reason::SubversionHook);
        }
    }

    fn link(&mut self, ground: usize, candidate: &Candidate) {
        let Some((parent, name)) = self.parent(ground, &candidate.relative) else { return };
        let inside = self.is_in_repository(ground, &candidate.relative);
        match parent.kind(&name) {
            Some(FileType::Symlink) => {}
            Some(FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice) if inside => {
                return self.note(parent.entry(&name, Reason::Pipe));
            }
            _ => return,
        }
        // Git writes this file of a checkout through a link.
        let inside = inside || name.eq_ignore_ascii_case(".gitmodules");
        let leads_out = candidate.kind == CandidateKind::Link && self.leads_out(&parent.absolute.join(&name));
        if leads_out {
            self.note(parent.entry(&name, Reason::Link));
        }
        if inside && (!leads_out || self.scene.is_strictest()) && !is_customary(&parent, &name) {
            self.note(parent.entry(&name, Reason::InnerLink));
        }
    }

    fn leads_out(&self, link: &Path) -> bool {
        // Behind a name that is missing the text says where it leads once that name is a directory.
        let end = || resolved(link).unwrap_or_else(|| normalized(&destination(link)));
        self.scene.is_strictest() || self.scene.is_outside_for_commands(&end())
    }

    /// Version control opens most of its files by name and follows a link in its place: `git commit` would write the message of a
    /// command into a file of the user's choice, or of the command's.
    fn is_in_repository(&self, ground: usize, relative: &Path) -> bool {
        let known = |above: &Path| self.repositories.contains(&(ground, above.to_owned()));
        is_in_version_control(relative) || relative.ancestors().skip(1).any(known)
    }

    fn closed(&mut self, ground: usize, relative: &Path) {
        if relative.as_os_str().is_empty() {
            self.closed_top(ground);
        } else if let Some((parent, name)) = self.parent(ground, relative)
            && parent.may_be_used(&name)
        {
            let finding = parent.finding(&name, FindingKind::Closed, b"");
            self.note(finding);
        }
    }

    /// A root that cannot be listed hides everything in it from the look.
    fn closed_top(&mut self, ground: usize) {
        let Some(root) = self.scene.grounds.get(ground) else { return };
        let kind = FindingKind::Closed;
        let print = Print::of(&[root.path.as_os_str().as_bytes(), kind.rule().word().as_bytes(), b""]);
        let name = OsString::from(TOP);
        self.note(Finding { ground, directory: PathBuf::new(), name, kind, print });
    }
}

/// Links that version control makes itself and does not write through: an old form of `HEAD`, and locks of Mercurial and Sapling,
/// whose text is no path.
fn is_customary(directory: &Open, name: &OsStr) -> bool {
    let text = rustix::fs::readlinkat(&directory.fd, name, Vec::new()).map(std::ffi::CString::into_bytes);
    let text = text.unwrap_or_default();
    let path = Path::new(OsStr::from_bytes(&text));
    let is_ref = path.starts_with("refs") && !path.iter().any(|part| part == "..");
    let of_mercurial =
        || directory.absolute.iter().any(|part| part == ".hg" || part == ".sl" || part == "sl");
    match name.as_bytes() {
        b"HEAD" => is_ref,
        b"lock" | b"wlock" => of_mercurial(),
        _ => false,
    }
}

/// Its reader may sit at a terminal, and the name of a section can be as long as the file.
fn shown_name(setting: &GitSetting) -> String {
    const LONGEST: usize = 200;
    let name = ByteString::from(setting.name().as_str()).display();
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name,
    }
}

/// What a setting is recognised by.
pub(super) fn setting_print(config: &Path, setting: &GitSetting) -> Print {
    Print::of(&[config.as_os_str().as_bytes(), setting.name().as_bytes(), &setting.value])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Certainty {
    ByName,
    ByContent,
}

/// A repository, for the settings in it.
pub(super) struct Place<'s> {
    scene: &'s Scene<'s>,
    git: PathBuf,
    /// Where its files are checked out, besides the directory around it. A configuration can have many addresses.
    checkouts: OnceCell<Vec<PathBuf>>,
}

impl Leads for Place<'_> {
    fn leads_out(&self, path: &Path) -> bool {
        self.address_leads_out(path)
    }

    /// Its own directory, or for the module of a repository a directory that leads back to it. Git of the host would write the
    /// files of the repository into any other.
    fn is_checkout(&self, path: &Path) -> bool {
        let Some(checkout) = resolved(&self.git.join(path)) else { return false };
        let is_root = self.scene.grounds.iter().any(|ground| ground.path == checkout);
        let is_module = || !is_root && !self.scene.is_strictest() && self.leads_back(&checkout);
        !self.scene.is_in_repository(&checkout)
            && (Some(checkout.as_path()) == self.git.parent() || is_module())
    }
}

impl<'s> Place<'s> {
    pub(super) fn new(scene: &'s Scene<'s>, git: PathBuf) -> Self {
        Self { scene, git, checkouts: OnceCell::new() }
    }

    fn leads_back(&self, checkout: &Path) -> bool {
        let place = innermost(self.scene.grounds, checkout);
        let directory = place.and_then(|(ground, relative)| Open::at(self.scene, ground, &relative));
        let pointer = directory.and_then(|directory| directory.read(".git"));
        let target =
            pointer.as_deref().and_then(|content| content.strip_prefix(b"gitdir: ")).and_then(one_line);
        target.is_some_and(|target| resolved(&checkout.join(target)).as_ref() == Some(&self.git))
    }
}

/// `*.sample` and `*.tmpl` are examples: neither git nor Subversion executes them.
fn is_inert(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".sample") || name.ends_with(b".tmpl") || is_marked(name)
}

fn is_marked(name: &[u8]) -> bool {
    name.windows(MARK.len()).any(|window| window == MARK.as_bytes())
}

pub(super) fn executes(line: &[u8]) -> bool {
    // Git ends the name of a command at a zero byte too.
    let ends = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    let command = line.trim_ascii_start().split(ends).next().unwrap_or_default();
    matches!(command, b"exec" | b"x")
}

fn names(directory: &OwnedFd) -> Option<Vec<OsString>> {
    all_names(directory).filter(|names| names.len() <= MOST_ENTRIES)
}

fn all_names(directory: &OwnedFd) -> Option<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Some(names)
}

/// The path in a file of one line. `None` with a zero byte in it, at which some programs stop and others do not.
fn one_line(line: &[u8]) -> Option<&Path> {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let path = line.get(..end).filter(|path| !path.contains(&0))?;
    Some(Path::new(OsStr::from_bytes(path)))
}

/// The hooks of githooks(5).
const HOOKS: &[&str] = &[
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "p4-prepare-changelist",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "sendemail-validate",
    "update",
];
