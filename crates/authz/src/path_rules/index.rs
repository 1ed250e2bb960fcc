//! The rules of one layer, found by path: what has no wildcard by hash, the rest by one pass over a glob set.

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use ringfence_types::Decision;

use super::built_in::bare;
use super::pattern::{self, PathPattern, PathPatternError};
use super::{PathRule, PathRuleError};

#[derive(Debug)]
pub(super) struct PathRuleIndex {
    /// What closes: compared without letter case, because a workspace may lie on a file system that does so.
    folded: PatternTable,
    /// What opens: exactly.
    exact: PatternTable,
    /// Every pattern, in the order of the rules.
    patterns: Vec<(IndexedPattern, PathPattern)>,
}

#[derive(Debug, Default)]
struct PatternTable {
    /// By name and by path; an entry speaks about everything in it, and about the thing itself unless it says otherwise.
    names: HashMap<Box<[u8]>, Vec<(IndexedPattern, MatchSpan)>>,
    paths: HashMap<Box<[u8]>, Vec<(IndexedPattern, MatchSpan)>>,
    globs: GlobSet,
    /// One for each glob.
    entries: Vec<(IndexedPattern, DirectoryReach)>,
}

/// Whether a match says something about everything else in the same directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirectoryReach {
    Directory,
    Path,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchSpan {
    ItselfAndInside,
    Inside,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexedPattern {
    rule: usize,
    role: PatternRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternRole {
    Pattern,
    Exception,
}

impl PathRuleIndex {
    pub(super) fn new<'a>(rules: impl Iterator<Item = (usize, &'a PathRule)>) -> Result<Self, PathRuleError> {
        let mut draft = IndexBuilder::default();
        for (rule, written) in rules {
            let error = |why: PathPatternError| PathRuleError { rule, message: why.to_string() };
            let (patterns, exceptions) = match written.decision {
                Decision::Allow => (CaseSensitivity::Exact, CaseSensitivity::Folded),
                Decision::Ask | Decision::Deny => (CaseSensitivity::Folded, CaseSensitivity::Exact),
            };
            for text in &written.patterns {
                draft
                    .add(text, IndexedPattern { rule, role: PatternRole::Pattern }, patterns)
                    .map_err(error)?;
            }
            for text in &written.except {
                draft
                    .add(text, IndexedPattern { rule, role: PatternRole::Exception }, exceptions)
                    .map_err(error)?;
            }
        }
        Ok(Self { folded: draft.folded.finish()?, exact: draft.exact.finish()?, patterns: draft.patterns })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.folded.is_empty() && self.exact.is_empty()
    }

    /// The first rule that speaks about `relative`, among those that `applies` says.
    pub(super) fn first(&self, relative: &Path, applies: impl Fn(usize) -> bool) -> Option<usize> {
        self.hits(relative).first(applies)
    }

    /// The same, among rules that speak about all that is beside `relative`.
    pub(super) fn first_for_directory(
        &self,
        relative: &Path,
        applies: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut hits = self.hits(relative);
        hits.spoken.retain(|(_, reach)| *reach == DirectoryReach::Directory);
        hits.first(applies)
    }

    fn hits(&self, relative: &Path) -> RuleHits {
        let path = plain(relative);
        let mut hits = RuleHits::default();
        self.exact.find(&path, &mut hits);
        let folded = fold(&path);
        self.folded.find(&folded, &mut hits);
        if let Some(bare) = without_trailing_dots(&folded) {
            self.folded.find(&bare, &mut hits);
        }
        hits
    }

    /// Whether something in `directory` could escape `rule`: by an exception of it, or by a rule before it that `opens`.
    pub(super) fn excepts_in(&self, directory: &Path, rule: usize, opens: impl Fn(usize) -> bool) -> bool {
        let before = self.patterns.iter().take_while(|(entry, _)| entry.rule <= rule);
        let mut escapes = before.filter(|(entry, _)| match entry.role {
            PatternRole::Exception => entry.rule == rule,
            PatternRole::Pattern => entry.rule < rule && opens(entry.rule),
        });
        escapes.any(|(_, pattern)| pattern.may_match_in(directory))
    }
}

/// Rules that speak about a path, and rules that except it.
#[derive(Default)]
struct RuleHits {
    spoken: Vec<(usize, DirectoryReach)>,
    excepted: Vec<usize>,
    globs: Vec<usize>,
}

impl RuleHits {
    fn add(&mut self, entry: IndexedPattern, reach: DirectoryReach) {
        match entry.role {
            PatternRole::Pattern => self.spoken.push((entry.rule, reach)),
            PatternRole::Exception => self.excepted.push(entry.rule),
        }
    }

    /// `reach` is `Path` for what is found by the path itself, `Directory` for what is found by something above it.
    fn add_all(&mut self, found: Option<&Vec<(IndexedPattern, MatchSpan)>>, reach: DirectoryReach) {
        let speaking = found.into_iter().flatten();
        let speaking = speaking
            .filter(|(_, span)| reach == DirectoryReach::Directory || *span == MatchSpan::ItselfAndInside);
        speaking.for_each(|(entry, _)| self.add(*entry, reach));
    }

    fn first(mut self, applies: impl Fn(usize) -> bool) -> Option<usize> {
        self.excepted.sort_unstable();
        let counts = |rule: &usize| self.excepted.binary_search(rule).is_err() && applies(*rule);
        self.spoken.iter().map(|(rule, _)| *rule).filter(counts).min()
    }
}

impl PatternTable {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty() && self.globs.is_empty()
    }

    fn find(&self, path: &[u8], hits: &mut RuleHits) {
        if !self.names.is_empty() {
            self.find_names(path, hits);
        }
        if !self.paths.is_empty() {
            self.find_path(path, hits);
        }
        if !self.globs.is_empty() {
            let mut globs = std::mem::take(&mut hits.globs);
            self.globs.matches_candidate_into(&Candidate::from_bytes(path), &mut globs);
            let entries = globs.iter().filter_map(|glob| self.entries.get(*glob));
            entries.for_each(|(entry, reach)| hits.add(*entry, *reach));
            hits.globs = globs;
        }
    }

    fn find_names(&self, path: &[u8], hits: &mut RuleHits) {
        let mut names = path.rsplit(|byte| *byte == b'/');
        hits.add_all(names.next().and_then(|name| self.names.get(name)), DirectoryReach::Path);
        names.for_each(|name| hits.add_all(self.names.get(name), DirectoryReach::Directory));
    }

    fn find_path(&self, path: &[u8], hits: &mut RuleHits) {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in std::iter::once(0).chain(ends) {
            hits.add_all(path.get(..end).and_then(|above| self.paths.get(above)), DirectoryReach::Directory);
        }
        hits.add_all(self.paths.get(path), DirectoryReach::Path);
    }
}

#[derive(Default)]
struct IndexBuilder {
    folded: PatternTableBuilder,
    exact: PatternTableBuilder,
    patterns: Vec<(IndexedPattern, PathPattern)>,
}

impl IndexBuilder {
    fn add(
        &mut self,
        text: &str,
        entry: IndexedPattern,
        case: CaseSensitivity,
    ) -> Result<(), PathPatternError> {
        let pattern = pattern::parse(text)?;
        let table = match case {
            CaseSensitivity::Folded => &mut self.folded,
            CaseSensitivity::Exact => &mut self.exact,
        };
        table.add(&pattern, entry, case).map_err(|why| PathPatternError::Glob {
            shown: ringfence_types::ByteString::from(text).display(),
            why: why.kind().clone(),
        })?;
        self.patterns.push((entry, pattern));
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CaseSensitivity {
    Folded,
    Exact,
}

impl CaseSensitivity {
    fn of_text(self, text: &str) -> String {
        if self == Self::Folded { text.to_lowercase() } else { text.to_owned() }
    }
}

#[derive(Default)]
struct PatternTableBuilder {
    names: HashMap<Box<[u8]>, Vec<(IndexedPattern, MatchSpan)>>,
    paths: HashMap<Box<[u8]>, Vec<(IndexedPattern, MatchSpan)>>,
    globs: Vec<Glob>,
    entries: Vec<(IndexedPattern, DirectoryReach)>,
}

impl PatternTableBuilder {
    fn add(
        &mut self,
        pattern: &PathPattern,
        entry: IndexedPattern,
        case: CaseSensitivity,
    ) -> Result<(), globset::Error> {
        let (map, text, span) = match pattern {
            PathPattern::Name(name) => (&mut self.names, name, MatchSpan::ItselfAndInside),
            PathPattern::InName(name) => (&mut self.names, name, MatchSpan::Inside),
            PathPattern::Path(path) => (&mut self.paths, path, MatchSpan::ItselfAndInside),
            PathPattern::Tree(path) => (&mut self.paths, path, MatchSpan::Inside),
            PathPattern::Globs(globs) => {
                for glob in globs {
                    self.globs.push(GlobBuilder::new(&case.of_text(glob)).literal_separator(true).build()?);
                    let reach =
                        if glob.ends_with("/**") { DirectoryReach::Directory } else { DirectoryReach::Path };
                    self.entries.push((entry, reach));
                }
                return Ok(());
            }
        };
        let key = case.of_text(text).into_bytes().into_boxed_slice();
        map.entry(key).or_default().push((entry, span));
        Ok(())
    }

    fn finish(self) -> Result<PatternTable, PathRuleError> {
        let rule = self.entries.last().map_or(0, |(entry, _)| entry.rule);
        let mut set = GlobSetBuilder::new();
        for glob in self.globs {
            set.add(glob);
        }
        let globs = set.build().map_err(|error| {
            let message =
                format!("the patterns are too large together ({}); use fewer wildcards", error.kind());
            PathRuleError { rule, message }
        })?;
        Ok(PatternTable { names: self.names, paths: self.paths, globs, entries: self.entries })
    }
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
    let mut names = path.split(|byte| *byte == b'/');
    if names.all(|name| bare(name).len() == name.len()) {
        return None;
    }
    Some(path.split(|byte| *byte == b'/').map(bare).collect::<Vec<_>>().join(&b'/'))
}
