//! Names that a command comes to by itself, by a wildcard or in a search that follows links, and that are links. What lies
//! behind one is judged as if its name were written out: `cat l*` reads what `cat link` would.
//!
//! Names that are no links need no look here: a file that must not be read is masked inside the fence.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ringfence_types::{ByteString, Decision, EntryKind, Risk, RuleId};

use super::wildcard::{example, is_wild, matches};
use super::{CommandContext, CommandEvaluator};
use crate::host_facts::{HostEntry, HostFacts, PathKind};
use crate::judgement::{JudgementPart, PartKind};
use crate::paths::PathIntent;

/// How many entries of directories are looked at for one argument. Beyond it, a person is asked.
const MOST: usize = 20_000;
/// How many directories below each other.
const DEEPEST: usize = 64;

impl CommandEvaluator<'_> {
    /// What stands behind the links that a pattern matches, where it would not be allowed by its name.
    pub(super) fn linked_part(
        &self,
        frame: &CommandContext,
        pattern: &[u8],
        intent: PathIntent,
    ) -> Option<JudgementPart> {
        let search = |walk: &mut LinkSearch<'_>, base: &Path| walk.expand(base, pattern);
        self.behind_links(frame, pattern, intent, &search)
    }

    /// The same for every link at or below a directory, hidden names included.
    pub(super) fn followed_part(&self, frame: &CommandContext, dir: &[u8]) -> Option<JudgementPart> {
        let search = |walk: &mut LinkSearch<'_>, base: &Path| {
            let dir = NamedPath { path: base.join(OsStr::from_bytes(dir)), is_linked: false };
            walk.below(&dir, 0, TreeSearch::Links);
        };
        self.behind_links(frame, dir, PathIntent::Read, &search)
    }

    fn behind_links(
        &self,
        frame: &CommandContext,
        shown: &[u8],
        intent: PathIntent,
        search: &dyn Fn(&mut LinkSearch<'_>, &Path),
    ) -> Option<JudgementPart> {
        let root = [PathBuf::from("/")];
        let bases = if shown.starts_with(b"/") { &root[..] } else { frame.place.candidates() };
        let mut walk =
            LinkSearch { facts: self.scene.facts, left: MOST, links: Vec::new(), reach: SearchReach::Whole };
        bases.iter().for_each(|base| search(&mut walk, base));
        let led =
            walk.links.iter().map(|path| (path, self.path_part(frame, path.as_os_str().as_bytes(), intent)));
        let closed =
            led.filter(|(_, part)| part.decision > Decision::Allow).max_by_key(|(_, part)| part.decision);
        let subject = super::arg::shorten(shown);
        if let Some((path, part)) = closed {
            let link = ByteString::from(path.as_path()).display();
            let why = format!("`{link}` is a link, and from there: {}", part.reason);
            return Some(linked(subject, intent, why, Risk::High));
        }
        (walk.reach == SearchReach::Part).then(|| {
            let why = "it covers more names than are looked at, and a link among them may lead anywhere";
            linked(subject, intent, why.to_owned(), Risk::Medium)
        })
    }
}

fn linked(subject: String, intent: PathIntent, why: String, risk: Risk) -> JudgementPart {
    let aspect = if intent == PathIntent::Write { PartKind::Write } else { PartKind::Read };
    JudgementPart::new(aspect, subject, RuleId::PathPattern)
        .because(why)
        .ask(risk, "name the files themselves, or say yes to this one")
}

/// Whether everything was looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchReach {
    Whole,
    Part,
}

/// What is wanted of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TreeSearch {
    /// Its directories, without those whose names begin with a dot.
    Directories,
    /// Every link in it.
    Links,
}

/// A path that a pattern has led to, and whether a link was on the way.
#[derive(Clone)]
struct NamedPath {
    path: PathBuf,
    is_linked: bool,
}

struct LinkSearch<'f> {
    facts: &'f dyn HostFacts,
    left: usize,
    /// Paths that are links, or lie behind one.
    links: Vec<PathBuf>,
    reach: SearchReach,
}

impl LinkSearch<'_> {
    fn expand(&mut self, base: &Path, pattern: &[u8]) {
        let mut reached = vec![NamedPath { path: base.to_owned(), is_linked: false }];
        let components = pattern.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let mut components = components.peekable();
        while let Some(component) = components.next() {
            reached = match component {
                b"**" if components.peek().is_some() => {
                    reached.iter().flat_map(|dir| self.below(dir, 0, TreeSearch::Directories)).collect()
                }
                b"**" => {
                    let dirs: Vec<NamedPath> =
                        reached.iter().flat_map(|dir| self.below(dir, 0, TreeSearch::Directories)).collect();
                    dirs.iter().flat_map(|dir| self.matching(dir, b"*")).collect()
                }
                _ if is_wild(component) => {
                    reached.iter().flat_map(|dir| self.matching(dir, component)).collect()
                }
                _ => {
                    let name = example(component);
                    let inside =
                        |at: NamedPath| NamedPath { path: at.path.join(OsStr::from_bytes(&name)), ..at };
                    reached.into_iter().map(inside).collect()
                }
            };
        }
        // What does not exist is no name that a pattern expands to.
        let is_there = |at: &NamedPath| self.facts.kind(&at.path) != PathKind::Missing;
        self.links.extend(reached.into_iter().filter(|at| at.is_linked && is_there(at)).map(|at| at.path));
    }

    fn entries(&mut self, dir: &Path) -> Vec<HostEntry> {
        let entries = self.facts.entries(dir, self.left);
        match entries {
            Some(entries) => {
                self.left -= entries.len().min(self.left);
                entries
            }
            None => {
                self.reach = SearchReach::Part;
                Vec::new()
            }
        }
    }

    fn matching(&mut self, dir: &NamedPath, component: &[u8]) -> Vec<NamedPath> {
        let hidden = component.starts_with(b".") || component.starts_with(b"\\.");
        let entries = self.entries(&dir.path);
        let matched = entries.iter().filter(|entry| {
            let name = entry.name.as_bytes();
            (hidden || !name.starts_with(b".")) && matches(component, name)
        });
        let named = |entry: &HostEntry| NamedPath {
            path: dir.path.join(&entry.name),
            is_linked: dir.is_linked || entry.kind == EntryKind::Link,
        };
        matched.map(named).collect()
    }

    /// A directory and all directories below it, as `**` means them in zsh, and in bash with `globstar`. Links are not entered.
    fn below(&mut self, dir: &NamedPath, depth: usize, search: TreeSearch) -> Vec<NamedPath> {
        let mut found = vec![dir.clone()];
        if depth > DEEPEST {
            self.reach = SearchReach::Part;
            return found;
        }
        for entry in self.entries(&dir.path) {
            if search == TreeSearch::Directories && entry.name.as_bytes().starts_with(b".") {
                continue;
            }
            let path = dir.path.join(&entry.name);
            match entry.kind {
                EntryKind::Directory => {
                    let inner = NamedPath { path, is_linked: dir.is_linked };
                    found.extend(self.below(&inner, depth + 1, search));
                }
                EntryKind::Link if search == TreeSearch::Links => self.links.push(path),
                EntryKind::Link | EntryKind::File | EntryKind::Other => {}
            }
        }
        found
    }
}
