//! One policy file with everything it is made of, read and checked.

use std::io;
use std::path::{Component, Path, PathBuf};

use ringfence_types::{PolicyLayer, Profile};
use toml::de::DeTable;

use super::check;
use super::format::{ApprovalsTable, Body, DaemonTable, TelemetryTable, Top, WorkspaceTable};
use super::problem::{FileProblems, PolicyError};
use super::rules::{self, RuleSet};
use super::source_text::{PolicySourceText, TextSpan, WithSpan, sha256};
use super::toml_reader::{OneOrMany, read_table, shorten};

/// Whose file it is. It decides what a file can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyFileRole {
    /// Of the person who runs Ringfence: it has authority up to the floor.
    Operator,
    /// Of the workspace, and so within reach of the authors of its files: it narrows, and asks for the rest.
    Workspace,
    /// Of one session: it narrows.
    Session,
}

impl PolicyFileRole {
    pub fn layer(self) -> PolicyLayer {
        match self {
            Self::Operator => PolicyLayer::Operator,
            Self::Workspace => PolicyLayer::Workspace,
            Self::Session => PolicyLayer::Session,
        }
    }

    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Operator => "an operator file",
            Self::Workspace => "a workspace file",
            Self::Session => "a session file",
        }
    }
}

/// Reads another file that a policy names. The caller decides what may be read.
pub type PolicyLoader<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

/// A file, read and checked, with the files it extends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    role: PolicyFileRole,
    /// Itself, then what it extends, the nearest first.
    documents: Vec<PolicyDocument>,
    /// `sha256:…` of everything it was made from.
    digests: Vec<String>,
}

/// One text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyDocument {
    pub(super) source: PolicySourceText,
    pub(super) profile: Option<WithSpan<Profile>>,
    pub(super) minimum_profile: Option<WithSpan<Profile>>,
    pub(super) section: PolicySection,
    pub(super) agents: Vec<(WithSpan<String>, PolicySection)>,
    pub(super) workspaces: Vec<(WithSpan<String>, WorkspaceSection)>,
    pub(super) approvals: ApprovalsTable,
    pub(super) daemon: DaemonTable,
    pub(super) telemetry: TelemetryTable,
}

/// What a file, an agent's part or a workspace's part says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicySection {
    pub(super) body: Body,
    pub(super) rules: RuleSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkspaceSection {
    pub(super) profile: Option<WithSpan<Profile>>,
    pub(super) minimum_profile: Option<WithSpan<Profile>>,
    pub(super) section: PolicySection,
    pub(super) approved: Vec<String>,
}

impl WorkspaceSection {
    /// What `ringfence policy approve` writes takes nothing away from any session.
    pub(super) fn says_more_than_approved(&self) -> bool {
        let body = &self.section.body;
        let silent = Body { head: body.head, ..Body::default() };
        self.profile.is_some() || self.minimum_profile.is_some() || *body != silent
    }
}

impl PolicyFile {
    /// Reads a file and everything it names. Total: any bytes give a file or an error.
    pub fn load(
        role: PolicyFileRole,
        path: &Path,
        bytes: &[u8],
        loader: PolicyLoader<'_>,
    ) -> Result<Self, PolicyError> {
        let mut loading = PolicyLoadState {
            role,
            loader,
            documents: Vec::new(),
            digests: Vec::new(),
            errors: Vec::new(),
            files: 1,
        };
        loading.add(path, bytes, &mut Vec::new());
        match PolicyError::all(loading.errors) {
            Some(error) => Err(error),
            None => Ok(Self { role, documents: loading.documents, digests: loading.digests }),
        }
    }

    /// Reads a file that names no other.
    pub fn parse(role: PolicyFileRole, path: &Path, bytes: &[u8]) -> Result<Self, PolicyError> {
        Self::load(role, path, bytes, &|_| Err(io::Error::from(io::ErrorKind::NotFound)))
    }

    pub fn role(&self) -> PolicyFileRole {
        self.role
    }

    pub fn path(&self) -> &Path {
        self.documents.first().map_or(Path::new(""), |document| document.source.path())
    }

    /// Itself and what it extends.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.documents.iter().map(|document| document.source.path())
    }

    /// What an operator approves: `sha256:…` of the file, or of it with everything that it names, in order. A part of
    /// what was approved is not approved by itself.
    pub fn seal(&self) -> String {
        match self.digests.as_slice() {
            [one] => one.clone(),
            all => sha256(all.join("\n").as_bytes()),
        }
    }

    #[cfg(test)]
    pub(super) fn digests(&self) -> &[String] {
        &self.digests
    }

    pub(super) fn documents(&self) -> &[PolicyDocument] {
        &self.documents
    }
}

/// How far `extends` goes before it is a mistake.
const MAX_DEPTH: usize = 8;
const MAX_FILES: usize = 64;

struct PolicyLoadState<'a> {
    role: PolicyFileRole,
    loader: PolicyLoader<'a>,
    documents: Vec<PolicyDocument>,
    digests: Vec<String>,
    errors: Vec<PolicyError>,
    /// Read so far.
    files: usize,
}

impl PolicyLoadState<'_> {
    /// `above` are the files that led here. Its length bounds the recursion.
    fn add(&mut self, path: &Path, bytes: &[u8], above: &mut Vec<PathBuf>) {
        let source = match PolicySourceText::new(path, bytes) {
            Ok(source) => source,
            Err(error) => return self.errors.push(error),
        };
        self.digests.push(source.sha256().to_owned());
        let mut problems = FileProblems::new(&source);
        let Some(top) = read(&mut problems) else {
            self.errors.extend(problems.finish().err());
            return;
        };
        let extends = top.extends.clone();
        let document = self.document(&source, top, &mut problems);
        self.documents.push(document);
        above.push(folded(path));
        let bases = extends.map(|extends| self.bases(&extends, above, &mut problems)).unwrap_or_default();
        self.errors.extend(problems.finish().err());
        for (base, bytes) in bases {
            self.add(&base, &bytes, above);
        }
        above.pop();
    }

    fn document(
        &mut self,
        source: &PolicySourceText,
        top: Top,
        problems: &mut FileProblems<'_>,
    ) -> PolicyDocument {
        check::top(self.role, &top, problems);
        let workspaces = top.workspaces.map(|named| named.0).unwrap_or_default();
        let agents = top.agents.map(|named| named.0).unwrap_or_default();
        PolicyDocument {
            source: source.clone(),
            profile: top.profile,
            minimum_profile: top.minimum_profile,
            section: self.section(top.body, rules::RuleSection::Whole, problems),
            agents: agents
                .into_iter()
                .map(|(name, body)| {
                    let section = self.section(body, rules::RuleSection::Agent(&name.value), problems);
                    (name, section)
                })
                .collect(),
            workspaces: workspaces
                .into_iter()
                .map(|(path, table)| (path, self.workspace(table, problems)))
                .collect(),
            approvals: top.approvals.unwrap_or_default(),
            daemon: top.daemon.unwrap_or_default(),
            telemetry: top.telemetry.unwrap_or_default(),
        }
    }

    fn section(
        &mut self,
        body: Body,
        place: rules::RuleSection<'_>,
        problems: &mut FileProblems<'_>,
    ) -> PolicySection {
        let mut converting = rules::RuleConverter {
            role: self.role,
            place,
            loader: self.loader,
            digests: &mut self.digests,
            problems,
        };
        let rules = converting.rules(&body);
        PolicySection { body, rules }
    }

    fn workspace(&mut self, table: WorkspaceTable, problems: &mut FileProblems<'_>) -> WorkspaceSection {
        let approved = table.approved_digests.map(|digests| digests.items).unwrap_or_default();
        WorkspaceSection {
            profile: table.profile,
            minimum_profile: table.minimum_profile,
            section: self.section(table.body, rules::RuleSection::Whole, problems),
            approved: approved.into_iter().map(|digest| digest.value.0).collect(),
        }
    }

    /// The files of `extends` that were not read yet.
    fn bases(
        &mut self,
        extends: &OneOrMany<String>,
        above: &[PathBuf],
        problems: &mut FileProblems<'_>,
    ) -> Vec<(PathBuf, Vec<u8>)> {
        let mut bases: Vec<(PathBuf, Vec<u8>)> = Vec::new();
        for name in &extends.items {
            let Some(path) = named_file(self.role, name, problems) else { continue };
            let same = folded(&path);
            if let Some(message) = endless(&same, above, self.files) {
                problems.add(name.span, message, "leave it out");
                continue;
            }
            let known = self.documents.iter().any(|document| folded(document.source.path()) == same);
            if known || bases.iter().any(|(base, _)| folded(base) == same) {
                continue;
            }
            self.files += 1;
            match (self.loader)(&path) {
                Ok(bytes) => bases.push((path, bytes)),
                Err(error) => unreadable(name, &error, problems),
            }
        }
        bases
    }
}

pub(super) fn read(problems: &mut FileProblems<'_>) -> Option<Top> {
    let (table, errors) = DeTable::parse_recoverable(problems.source().text());
    for error in &errors {
        let span = error.span().map_or(TextSpan::default(), TextSpan::from);
        problems.add(span, format!("not TOML: {}", error.message()), toml_fix(error.message()));
    }
    // What was saved from a broken text would be full of problems that are none.
    errors.is_empty().then(|| read_table(table.get_ref(), TextSpan::default(), problems))
}

fn toml_fix(message: &str) -> &'static str {
    if message.contains("must be quoted") {
        "put it in double quotes"
    } else if message.contains("duplicate") {
        "write it once"
    } else {
        "write `key = \"text\"`, `key = 5`, `key = [\"a\", \"b\"]` or `[table]`, one on each line"
    }
}

fn endless(path: &Path, above: &[PathBuf], files: usize) -> Option<String> {
    let shown = shorten(&path.to_string_lossy());
    if above.iter().any(|file| file == path) {
        return Some(format!("`{shown}` extends itself"));
    }
    if above.len() > MAX_DEPTH {
        return Some(format!("`{shown}` is extended through more than {MAX_DEPTH} files"));
    }
    (files >= MAX_FILES).then(|| format!("more than {MAX_FILES} files"))
}

/// The path of a file that a policy names. A file that others can write must not make us read (and quote) whatever it
/// likes.
pub(super) fn named_file(
    role: PolicyFileRole,
    name: &WithSpan<String>,
    problems: &mut FileProblems<'_>,
) -> Option<PathBuf> {
    let given = Path::new(&name.value);
    let below = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    if role != PolicyFileRole::Operator && !given.components().all(below) {
        let message = format!("`{}` is not below the directory of this file", shorten(&name.value));
        problems.add(name.span, message, format!("{} names only files beside or below it", role.noun()));
        return None;
    }
    let dir = problems.source().path().parent().unwrap_or(Path::new(""));
    Some(dir.join(given))
}

pub(super) fn unreadable(name: &WithSpan<String>, error: &io::Error, problems: &mut FileProblems<'_>) {
    let message = format!("`{}` cannot be read: {error}", shorten(&name.value));
    problems.add(name.span, message, "name a file that exists, relative to this one");
}

/// Without `.` and `..`, by name alone: enough to see that two names are the same.
fn folded(path: &Path) -> PathBuf {
    let mut folded = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(folded.components().next_back(), Some(Component::Normal(_))) => {
                folded.pop();
            }
            other => folded.push(other),
        }
    }
    folded
}
