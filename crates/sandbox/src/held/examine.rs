//! Looks at candidates and says what of them would make a program of the host execute something.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::Bytes;
use rustix::fs::{AtFlags, Dir, FileType, Stat};

use super::finding::{Finding, FindingKind, Print, Reason};
use super::other_systems;
use super::settings::{self, Leads};
use crate::git_config::{self, Setting};
use crate::survey::{Candidate, CandidateKind, Ground, destination, innermost, open_directory, read_small};

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
    pub(super) grounds: &'a [Ground],
    /// Places outside the roots that commands can write and nobody looks through.
    pub(super) outside: &'a [PathBuf],
    /// What mounts kept as it was.
    pub(super) fixed: &'a BTreeSet<PathBuf>,
}

impl Scene<'_> {
    pub(super) fn is_fixed(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.fixed.contains(above))
    }

    fn is_inside(&self, path: &Path) -> bool {
        innermost(self.grounds, path).is_some()
    }

    fn is_outside_for_commands(&self, path: &Path) -> bool {
        self.outside.iter().any(|place| path.starts_with(place))
    }

    /// All findings of these candidates, one list for each root. Each once, in the order of their paths.
    pub(super) fn examine(&self, candidates: &[Vec<Candidate>]) -> Vec<Finding> {
        let mut examiner = Examiner { scene: self, findings: BTreeSet::new(), seen: BTreeSet::new() };
        for (ground, candidates) in candidates.iter().enumerate() {
            candidates.iter().for_each(|candidate| examiner.candidate(ground, candidate));
        }
        let fixed = |finding: &Finding| {
            let root = self.grounds.get(finding.ground).map(|ground| ground.path.as_path());
            root.is_none_or(|root| self.is_fixed(&root.join(&finding.directory).join(&finding.name)))
        };
        examiner.findings.into_iter().filter(|finding| !fixed(finding)).collect()
    }
}

struct Examiner<'s> {
    scene: &'s Scene<'s>,
    findings: BTreeSet<Finding>,
    seen: BTreeSet<(usize, PathBuf)>,
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

    fn read(&self, name: impl AsRef<OsStr>) -> Option<Vec<u8>> {
        read_small(self.fd.as_fd(), Path::new(name.as_ref()), MAX)
    }

    fn finding(&self, name: &OsStr, kind: FindingKind, content: &[u8]) -> Finding {
        let path = self.absolute.join(name);
        let print = Print::of(&[path.as_os_str().as_bytes(), kind.rule().as_bytes(), content]);
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

impl Examiner<'_> {
    fn candidate(&mut self, ground: usize, candidate: &Candidate) {
        let relative = &candidate.relative;
        match candidate.kind {
            CandidateKind::Git => self.git_entry(ground, relative),
            CandidateKind::Head => self.repository(ground, relative, Certainty::ByContent),
            CandidateKind::OtherSystem => self.other_system(ground, relative),
            CandidateKind::Subversion => self.subversion(ground, relative),
            CandidateKind::Link => self.link(ground, relative),
            CandidateKind::Closed => self.closed(ground, relative),
        }
    }

    fn note(&mut self, finding: Finding) {
        let _known = self.findings.insert(finding);
    }

    fn parent(&self, ground: usize, relative: &Path) -> Option<(Open, OsString)> {
        let parent = Open::at(self.scene, ground, relative.parent()?)?;
        Some((parent, relative.file_name()?.to_owned()))
    }

    fn git_entry(&mut self, ground: usize, relative: &Path) {
        let Some((parent, name)) = self.parent(ground, relative) else { return };
        match parent.kind(&name) {
            None => {}
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
        let target = destination(&parent.absolute.join(one_line(path)));
        // The configuration of a repository of the host is for its own checkouts: a path in it that is not absolute would
        // be taken from this one.
        let foreign = self.scene.is_fixed(&target.join("config")) && !is_part(&target);
        self.scene.is_inside(&target) && !foreign
    }

    fn repository(&mut self, ground: usize, relative: &Path, certainty: Certainty) {
        if !self.seen.insert((ground, relative.to_owned())) {
            return;
        }
        let Some(git) = Open::at(self.scene, ground, relative) else { return };
        let complete = git.has("commondir") || (git.has("objects") && git.has("refs"));
        if certainty == Certainty::ByContent && !(complete && git.has("HEAD")) {
            return;
        }
        self.configuration(&git, "config");
        self.configuration(&git, "config.worktree");
        self.entries(&git, "hooks", Reason::Hook);
        self.entries(&git, "remotes", Reason::LegacyRemote);
        self.entries(&git, "branches", Reason::LegacyRemote);
        self.common_dir(&git);
        self.alternates(&git);
        self.attributes(&git);
        self.rebase(&git);
    }

    fn configuration(&mut self, git: &Open, name: &str) {
        if !git.has(name) {
            return;
        }
        let located = git.read(name).map(|content| git_config::locate(&content));
        let Some(located) = located.filter(|located| located.bad.is_none()) else {
            self.note(git.entry(name, Reason::UnreadableConfig));
            return;
        };
        let place = Place { scene: self.scene, git: git.absolute.clone() };
        let bad = located.settings.iter().filter(|(setting, _)| !settings::is_harmless(setting, &place));
        for (setting, _) in bad {
            // Whoever reads it may sit at a terminal.
            let shown = Bytes::from(setting.name().as_str()).display();
            let kind = FindingKind::Setting { name: shown };
            let print = setting_print(&git.absolute.join(name), setting);
            self.note(Finding { print, ..git.finding(OsStr::new(name), kind, b"") });
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
        let live = names.iter().filter(|name| !is_inert(name));
        self.findings.extend(live.map(|name| directory.entry(name, reason)));
    }

    fn common_dir(&mut self, git: &Open) {
        if !git.has("commondir") {
            return;
        }
        let target = git.read("commondir").map(|content| destination(&git.absolute.join(one_line(&content))));
        let own = target.filter(|target| self.may_share(git, target));
        match own.and_then(|target| innermost(self.scene.grounds, &target)) {
            // It need have no HEAD of its own.
            Some((ground, relative)) => self.repository(ground, &relative, Certainty::ByName),
            None => self.note(git.entry("commondir", Reason::CommonDir)),
        }
    }

    /// A linked worktree shares with the repository that it is in; what came from inside may share with its like.
    fn may_share(&self, git: &Open, target: &Path) -> bool {
        let linked = git.absolute.parent().is_some_and(|above| above == target.join("worktrees"));
        linked || target == git.absolute || !self.scene.is_fixed(&target.join("config"))
    }

    fn alternates(&mut self, git: &Open) {
        let Some(info) = Open::at(self.scene, git.ground, &git.relative.join("objects/info")) else { return };
        let Some(kind) = info.kind("alternates") else { return };
        let objects = git.absolute.join("objects");
        let leads =
            |line: &[u8]| self.scene.is_outside_for_commands(&destination(&objects.join(one_line(line))));
        let bad = match info.read("alternates").filter(|_| kind == FileType::RegularFile) {
            Some(content) => content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).any(leads),
            None => true,
        };
        if bad {
            self.note(info.entry("alternates", Reason::Alternates));
        }
    }

    /// They choose among drivers: the configuration of the host may define some.
    fn attributes(&mut self, git: &Open) {
        if !self.scene.is_fixed(&git.absolute.join("config")) {
            return;
        }
        let Some(info) = Open::at(self.scene, git.ground, &git.relative.join("info")) else { return };
        if info.has("attributes") {
            self.note(info.entry("attributes", Reason::Attributes));
        }
    }

    fn rebase(&mut self, git: &Open) {
        const LIST: &str = "git-rebase-todo";
        let Some(rebase) = Open::at(self.scene, git.ground, &git.relative.join("rebase-merge")) else {
            return;
        };
        if !rebase.has(LIST) {
            return;
        }
        let executes = |content: Vec<u8>| content.split(|byte| *byte == b'\n').any(executes);
        if rebase.read(LIST).is_none_or(executes) {
            self.note(rebase.entry(LIST, Reason::RebaseCommand));
        }
    }

    fn other_system(&mut self, ground: usize, relative: &Path) {
        let Some((parent, name)) = self.parent(ground, relative) else { return };
        let known = other_systems::FILES.iter().find(|(system, _)| name.eq_ignore_ascii_case(system));
        let Some((system, files)) = known else { return };
        if parent.kind(&name) != Some(FileType::Directory) {
            return;
        }
        for file in *files {
            let path = relative.join(file);
            let Some((directory, file_name)) = self.parent(ground, &path) else { continue };
            let Some(kind) = directory.kind(&file_name) else { continue };
            let content = directory.read(&file_name).filter(|_| kind == FileType::RegularFile);
            if !content.is_some_and(|content| other_systems::is_harmless(file, &content)) {
                self.note(directory.entry(&file_name, Reason::OtherSystem));
            }
        }
        if *system == ".jj" {
            self.shared_jj(ground, relative);
        }
    }

    /// `.jj/repo` is a file where a repository has several checkouts.
    fn shared_jj(&mut self, ground: usize, relative: &Path) {
        let Some(jj) = Open::at(self.scene, ground, relative) else { return };
        let Some(content) = jj.read("repo") else { return };
        if !self.scene.is_inside(&destination(&jj.absolute.join(one_line(&content)))) {
            self.note(jj.entry("repo", Reason::OtherSystem));
        }
    }

    fn subversion(&mut self, ground: usize, relative: &Path) {
        let Some(repository) = Open::at(self.scene, ground, relative) else { return };
        if repository.has("format") && repository.has("db") {
            self.entries(&repository, "hooks", Reason::SubversionHook);
        }
    }

    fn link(&mut self, ground: usize, relative: &Path) {
        let Some((parent, name)) = self.parent(ground, relative) else { return };
        if parent.kind(&name) == Some(FileType::Symlink)
            && self.scene.is_outside_for_commands(&destination(&parent.absolute.join(&name)))
        {
            self.note(parent.entry(&name, Reason::Link));
        }
    }

    fn closed(&mut self, ground: usize, relative: &Path) {
        if relative.as_os_str().is_empty() {
            self.closed_top(ground);
        } else if let Some((parent, name)) = self.parent(ground, relative) {
            let finding = parent.finding(&name, FindingKind::Closed, b"");
            self.note(finding);
        }
    }

    /// A root that cannot be listed hides everything in it from the look.
    fn closed_top(&mut self, ground: usize) {
        let Some(root) = self.scene.grounds.get(ground) else { return };
        let kind = FindingKind::Closed;
        let print = Print::of(&[root.path.as_os_str().as_bytes(), kind.rule().as_bytes(), b""]);
        let name = OsString::from(TOP);
        self.note(Finding { ground, directory: PathBuf::new(), name, kind, print });
    }
}

/// What a setting is recognised by.
pub(super) fn setting_print(config: &Path, setting: &Setting) -> Print {
    Print::of(&[config.as_os_str().as_bytes(), setting.name().as_bytes(), &setting.value])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Certainty {
    ByName,
    ByContent,
}

/// A repository, for the settings in it.
pub(super) struct Place<'s> {
    pub(super) scene: &'s Scene<'s>,
    pub(super) git: PathBuf,
}

impl Leads for Place<'_> {
    fn leads_out(&self, path: &Path) -> bool {
        let bases = [Some(self.git.as_path()), self.git.parent()];
        bases
            .into_iter()
            .flatten()
            .any(|base| self.scene.is_outside_for_commands(&destination(&base.join(path))))
    }

    /// Its own directory, or for the module of a repository any directory that is no root.
    fn is_checkout(&self, path: &Path) -> bool {
        let checkout = destination(&self.git.join(path));
        let is_root = self.scene.grounds.iter().any(|ground| ground.path == checkout);
        Some(checkout.as_path()) == self.git.parent() || (self.scene.is_inside(&checkout) && !is_root)
    }
}

/// Part of a repository that has a checkout of its own.
fn is_part(git: &Path) -> bool {
    git.ancestors().skip(1).any(|above| above.ends_with("worktrees") || above.ends_with("modules"))
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
    let command = line.trim_ascii_start().split(u8::is_ascii_whitespace).next().unwrap_or_default();
    matches!(command, b"exec" | b"x")
}

fn names(directory: &OwnedFd) -> Option<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    (names.len() <= MOST_ENTRIES).then_some(names)
}

/// The path in a file of one line.
fn one_line(line: &[u8]) -> &Path {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Path::new(OsStr::from_bytes(line.get(..end).unwrap_or_default()))
}
