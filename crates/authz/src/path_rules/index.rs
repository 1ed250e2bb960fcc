//! The rules of one layer, found by path: what has no wildcard by hash, the rest by one pass over a glob set.

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use ringfence_types::Decision;

use super::pattern::{self, Pattern};
use super::{PathRule, PathRuleError};

#[derive(Debug)]
pub(super) struct Index {
    /// What closes: compared without letter case, because a workspace may lie on a file system that does so.
    folded: Table,
    /// What opens: exactly.
    exact: Table,
}

#[derive(Debug, Default)]
struct Table {
    names: HashMap<Box<[u8]>, Vec<Entry>>,
    /// By path; an entry speaks about everything in it, and about the path itself unless it is a tree.
    paths: HashMap<Box<[u8]>, Vec<(Entry, Span)>>,
    globs: GlobSet,
    /// One for each glob.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    ItselfAndInside,
    Inside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    rule: usize,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Pattern,
    Exception,
}

impl Index {
    pub(super) fn new<'a>(rules: impl Iterator<Item = (usize, &'a PathRule)>) -> Result<Self, PathRuleError> {
        let mut folded = Draft::default();
        let mut exact = Draft::default();
        for (number, rule) in rules {
            let opens = rule.decision == Decision::Allow;
            let (patterns, exceptions) =
                if opens { (&mut exact, &mut folded) } else { (&mut folded, &mut exact) };
            let add = |draft: &mut Draft, list: &[String], role, fold| {
                let entry = Entry { rule: number, role };
                list.iter().try_for_each(|text| draft.add(text, entry, fold))
            };
            let error = |message| PathRuleError { rule: number, message };
            if rule.patterns.is_empty() {
                return Err(error(
                    "a rule without a pattern speaks about nothing; name a path, or remove it".to_owned(),
                ));
            }
            add(patterns, &rule.patterns, Role::Pattern, fold_unless(opens)).map_err(error)?;
            add(exceptions, &rule.except, Role::Exception, fold_unless(!opens)).map_err(error)?;
        }
        Ok(Self { folded: folded.finish()?, exact: exact.finish()? })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.folded.is_empty() && self.exact.is_empty()
    }

    /// The first rule that speaks about `relative`, among those that `applies` says.
    pub(super) fn first(&self, relative: &Path, applies: impl Fn(usize) -> bool) -> Option<usize> {
        let path = plain(relative);
        let mut hits = Hits::default();
        self.exact.find(&path, &mut hits);
        let folded = fold(&path);
        self.folded.find(&folded, &mut hits);
        if let Some(bare) = without_trailing_dots(&folded) {
            self.folded.find(&bare, &mut hits);
        }
        hits.first(applies)
    }
}

/// Rules that speak about a path, and rules that except it.
#[derive(Default)]
struct Hits {
    spoken: Vec<usize>,
    excepted: Vec<usize>,
    globs: Vec<usize>,
}

impl Hits {
    fn add(&mut self, entry: Entry) {
        match entry.role {
            Role::Pattern => self.spoken.push(entry.rule),
            Role::Exception => self.excepted.push(entry.rule),
        }
    }

    fn first(mut self, applies: impl Fn(usize) -> bool) -> Option<usize> {
        self.excepted.sort_unstable();
        let counts = |rule: &usize| self.excepted.binary_search(rule).is_err() && applies(*rule);
        self.spoken.iter().copied().filter(counts).min()
    }
}

impl Table {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty() && self.globs.is_empty()
    }

    fn find(&self, path: &[u8], hits: &mut Hits) {
        if !self.names.is_empty() {
            let named = path.split(|byte| *byte == b'/').filter_map(|name| self.names.get(name));
            named.flatten().for_each(|entry| hits.add(*entry));
        }
        if !self.paths.is_empty() {
            self.find_path(path, hits);
        }
        if !self.globs.is_empty() {
            let mut globs = std::mem::take(&mut hits.globs);
            self.globs.matches_candidate_into(&Candidate::from_bytes(path), &mut globs);
            let entries = globs.iter().filter_map(|glob| self.entries.get(*glob));
            entries.for_each(|entry| hits.add(*entry));
            hits.globs = globs;
        }
    }

    fn find_path(&self, path: &[u8], hits: &mut Hits) {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends) {
            let inside = path.get(..end).and_then(|above| self.paths.get(above)).into_iter().flatten();
            inside.for_each(|(entry, _)| hits.add(*entry));
        }
        let itself = self.paths.get(path).into_iter().flatten();
        itself.filter(|(_, span)| *span == Span::ItselfAndInside).for_each(|(entry, _)| hits.add(*entry));
    }
}

#[derive(Default)]
struct Draft {
    names: HashMap<Box<[u8]>, Vec<Entry>>,
    paths: HashMap<Box<[u8]>, Vec<(Entry, Span)>>,
    globs: Vec<Glob>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Folded,
    Exact,
}

fn fold_unless(opens: bool) -> Case {
    if opens { Case::Exact } else { Case::Folded }
}

impl Draft {
    fn add(&mut self, text: &str, entry: Entry, case: Case) -> Result<(), String> {
        let pattern = pattern::parse(text)?;
        let cased = |text: String| if case == Case::Folded { text.to_lowercase() } else { text };
        let bytes = |text: String| cased(text).into_bytes().into_boxed_slice();
        match pattern {
            Pattern::Name(name) => self.names.entry(bytes(name)).or_default().push(entry),
            Pattern::Path(path) => {
                self.paths.entry(bytes(path)).or_default().push((entry, Span::ItselfAndInside));
            }
            Pattern::Tree(path) => self.paths.entry(bytes(path)).or_default().push((entry, Span::Inside)),
            Pattern::Globs(globs) => {
                for glob in globs {
                    let glob = GlobBuilder::new(&cased(glob)).literal_separator(true).build();
                    self.globs.push(glob.map_err(|error| unreadable(text, error.kind()))?);
                    self.entries.push(entry);
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Table, PathRuleError> {
        let rule = self.entries.last().map_or(0, |entry| entry.rule);
        let mut set = GlobSetBuilder::new();
        for glob in self.globs {
            set.add(glob);
        }
        let globs = set.build().map_err(|error| {
            let message =
                format!("the patterns are too large together ({}); use fewer wildcards", error.kind());
            PathRuleError { rule, message }
        })?;
        Ok(Table { names: self.names, paths: self.paths, globs, entries: self.entries })
    }
}

fn unreadable(text: &str, why: &globset::ErrorKind) -> String {
    let shown = ringfence_types::Bytes::from(text).display();
    format!("`{shown}` is not a pattern: {why}; put a backslash before a character that stands for itself")
}

/// Without empty and `.` components.
fn plain(path: &Path) -> Cow<'_, [u8]> {
    let bytes = path.as_os_str().as_bytes();
    let mut parts = bytes.split(|byte| *byte == b'/');
    if parts.all(|part| !part.is_empty() && part != b".") {
        return Cow::Borrowed(bytes);
    }
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.as_bytes()),
        Component::ParentDir => Some(b"..".as_slice()),
        _ => None,
    });
    Cow::Owned(names.collect::<Vec<_>>().join(&b'/'))
}

/// Without letter case. Bytes that are not UTF-8 stay as they are.
fn fold(path: &[u8]) -> Cow<'_, [u8]> {
    if path.iter().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(path);
    }
    let mut folded = Vec::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        folded.extend_from_slice(chunk.valid().to_lowercase().as_bytes());
        folded.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(folded)
}

/// Some file systems do not see dots and spaces at the end of a name. `None` where there are none.
fn without_trailing_dots(path: &[u8]) -> Option<Vec<u8>> {
    let trimmed =
        |name: &[u8]| name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    let mut names = path.split(|byte| *byte == b'/');
    if names.all(|name| trimmed(name) == name.len()) {
        return None;
    }
    let bare = path.split(|byte| *byte == b'/').map(|name| name.get(..trimmed(name)).unwrap_or_default());
    Some(bare.collect::<Vec<_>>().join(&b'/'))
}
