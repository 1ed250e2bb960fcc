//! Files and flags as one policy.
//!
//! INVARIANT: only operator files, and workspace files whose digest an operator approved, have authority. Everything else
//! narrows: a value or rule of it that would give more is a request without effect (workspace) or an error (session,
//! agent). A flag chooses within what the operator's files leave. Property tests hold this for random stacks.
//!
//! INVARIANT: what was written for a directory holds in every directory below it. A session in a part of a workspace,
//! chosen by the operator or because a file makes that part look like a project of its own, has at most what the whole has.

mod container;
mod merge;
mod merge_state;
mod roots;
mod setting_slot;

use std::path::{Path, PathBuf};

use ringfence_authz::{DangerFlags, Policy, RuleLocation};
use ringfence_types::{
    Access, Backend, ByteString, Control, HostPattern, ImageName, NetMode, OciRuntime, PolicyLayer, Profile,
    Root,
};

use super::file::{PolicyDocument, PolicyFile, PolicyFileRole, PolicySection};
use super::limits::LimitFlags;
use super::problem::PolicyError;
use super::source_text::{WithSpan, sha256};
use merge_state::MergeState;

/// What was said at startup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartupFlags {
    /// Canonical.
    pub workspace: PathBuf,
    pub profile: Option<Profile>,
    /// Of the workspace itself.
    pub access: Option<Access>,
    pub net: Option<NetMode>,
    pub hosts: Vec<HostPattern>,
    pub backend: Option<Backend>,
    /// Of the operator's list, for the backend `container`.
    pub image: Option<ImageName>,
    /// The socket of the engine.
    pub engine: Option<PathBuf>,
    pub runtime: Option<OciRuntime>,
    pub limits: LimitFlags,
    /// `--danger-required-controls`.
    pub floor: Option<Vec<Control>>,
    pub danger: DangerFlags,
    /// Besides the workspace; canonical.
    pub roots: Vec<Root>,
    /// Whose `[agents.NAME]` counts.
    pub agent: Option<String>,
    pub home: Option<ByteString>,
}

/// What holds, and where each part of it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectivePolicy {
    pub policy: Policy,
    /// Besides the workspace, whose access is in the policy.
    pub roots: Vec<Root>,
    pub settings: Vec<EffectiveSetting>,
    /// What an unapproved workspace file asks for. It has no effect.
    pub requests: Vec<WideningRequest>,
}

impl EffectivePolicy {
    /// What an answer is bound to: the same digest, the same values, rules and roots, from the same places. Stored
    /// answers are left out: that one more was given changes nothing about the others.
    pub fn digest(&self) -> String {
        let mut text = String::from("ringfence policy v1\n");
        let own =
            |setting: &&EffectiveSetting| setting.origin.as_ref().and_then(RuleLocation::grant).is_none();
        for setting in self.settings.iter().filter(own) {
            let origin = setting.origin.as_ref().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("{:?}\n", (&setting.key, &setting.value, setting.layer, origin)));
        }
        text.push_str(&format!("{:?}\n", (self.policy.danger, &self.policy.home, &self.roots)));
        sha256(text.as_bytes())
    }
}

/// One effective value or rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// As in a file: `limits.memory`, `command.deny`.
    pub key: String,
    pub value: String,
    pub layer: PolicyLayer,
    /// `None`: a flag, a profile or a default.
    pub origin: Option<RuleLocation>,
}

/// A part of a workspace file that would give more than there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WideningRequest {
    pub what: String,
    pub origin: RuleLocation,
    /// Why it has no effect.
    pub why: String,
}

/// Whether a file has authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAuthority {
    Operator,
    /// A workspace file whose seal an operator approved for this workspace.
    Approved,
    Unapproved,
}

/// One policy from all that was said. `resolve` says where an absolute path leads when every link is followed: a root
/// that is a link must not be more than it seems.
pub fn effective(
    flags: &StartupFlags,
    files: &[PolicyFile],
    resolve: &dyn Fn(&Path) -> PathBuf,
) -> Result<EffectivePolicy, PolicyError> {
    let stack = stack(flags, files);
    let mut state = MergeState::new(flags, resolve, &stack);
    let (authority, below): (Vec<&LayerStep<'_>>, Vec<&LayerStep<'_>>) =
        stack.iter().partition(|step| step.standing == SectionAuthority::Authority);
    authority.iter().for_each(|step| state.apply(step));
    state.hold_profile();
    state.apply_flags();
    state.hold_narrowed_profiles();
    below.iter().for_each(|step| state.apply(step));
    state.finish(&stack, files)
}

/// Whether `file` has authority over the workspace of `flags`.
pub fn trust(flags: &StartupFlags, files: &[PolicyFile], file: &PolicyFile) -> FileAuthority {
    let operators = files.iter().filter(|file| file.role() == PolicyFileRole::Operator);
    let sections = operators.flat_map(PolicyFile::documents).flat_map(|document| &document.workspaces);
    let own = sections.filter(|(path, _)| flags.is_workspace(&path.value));
    let approved: Vec<&String> = own.flat_map(|(_, part)| &part.approved).collect();
    match file.role() {
        PolicyFileRole::Operator => FileAuthority::Operator,
        PolicyFileRole::Workspace if flags.distance_of(file) > 0 => FileAuthority::Unapproved,
        PolicyFileRole::Workspace if approved.contains(&&file.seal()) => FileAuthority::Approved,
        PolicyFileRole::Workspace | PolicyFileRole::Session => FileAuthority::Unapproved,
    }
}

/// The place of an operator's part for another workspace that holds files of this one: nearest around it, where it has no part of
/// its own, or below it. A session here would have those files by what is said here.
pub fn overlapping(workspace: &Path, home: Option<&ByteString>, files: &[PolicyFile]) -> Option<PathBuf> {
    let flags =
        StartupFlags { workspace: workspace.to_owned(), home: home.cloned(), ..StartupFlags::default() };
    let operators = files.iter().filter(|file| file.role() == PolicyFileRole::Operator);
    let parts = operators.flat_map(PolicyFile::documents).flat_map(|document| &document.workspaces);
    let ruled = parts.filter(|(_, part)| part.says_more_than_approved());
    let places: Vec<PathBuf> = ruled.filter_map(|(path, _)| flags.expanded(&path.value)).collect();
    let is_own = places.iter().any(|place| place == workspace);
    let around = places.iter().filter(|place| !is_own && workspace.starts_with(place));
    let below = || places.iter().find(|place| *place != workspace && place.starts_with(workspace));
    around.max_by_key(|place| place.components().count()).or_else(below).cloned()
}

impl StartupFlags {
    /// By its canonical name alone: a link that is moved must not move a permission.
    fn is_workspace(&self, named: &str) -> bool {
        self.expanded(named).is_some_and(|path| path == self.workspace)
    }

    /// How far above the workspace a directory is; `None` if it is not above it.
    fn distance(&self, directory: &Path) -> Option<usize> {
        self.workspace.ancestors().position(|above| above == directory)
    }

    fn above(&self, distance: usize) -> &Path {
        self.workspace.ancestors().nth(distance).unwrap_or(&self.workspace)
    }

    /// `~/` is the home; what is relative is relative to the workspace (C-7).
    fn expanded(&self, path: &str) -> Option<PathBuf> {
        self.expanded_from(&self.workspace, path)
    }

    /// The same for what was written for another directory.
    fn expanded_from(&self, directory: &Path, path: &str) -> Option<PathBuf> {
        match path.strip_prefix("~/") {
            Some(rest) => self.home.as_ref().map(|home| home.as_path().join(rest)),
            None => Some(directory.join(path)),
        }
    }

    /// How far above the workspace the directory is that a file was written for.
    fn distance_of(&self, file: &PolicyFile) -> usize {
        let is_named = file.path().ends_with(IN_WORKSPACE);
        let directory =
            file.path().ancestors().nth(2).filter(|_| is_named && file.role() == PolicyFileRole::Workspace);
        directory.and_then(|directory| self.distance(directory)).unwrap_or(0)
    }
}

/// Where a workspace keeps its own policy.
pub const IN_WORKSPACE: &str = ".ringfence/policy.toml";

/// The directories that an operator's file has a part for. One that is named relative to a workspace is the workspace.
pub fn configured_workspaces(file: &PolicyFile, home: Option<&ByteString>) -> Vec<PathBuf> {
    let flags = StartupFlags { home: home.cloned(), ..StartupFlags::default() };
    let named = file.documents().iter().flat_map(|document| &document.workspaces);
    let places = named.filter_map(|(path, _)| flags.expanded(&path.value));
    places.filter(|place| place.is_absolute()).collect()
}

/// One part of one file, in the order in which parts are heard.
struct LayerStep<'a> {
    document: &'a PolicyDocument,
    section: &'a PolicySection,
    profile: Option<&'a WithSpan<Profile>>,
    minimum_profile: Option<&'a WithSpan<Profile>>,
    layer: PolicyLayer,
    standing: SectionAuthority,
    place: SectionScope,
    /// How far above the workspace it was written for.
    distance: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectionScope {
    Whole,
    Agent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectionAuthority {
    /// What it says holds, instead of what was said before.
    Authority,
    /// It narrows; what would give more is a request.
    Asks,
    /// It narrows; what would give more is an error.
    Narrows,
    /// It was written for a directory around the workspace. It narrows; what would give more is meant for that directory alone.
    Around,
}

/// Authority first, the most general first; then what narrows.
fn stack<'a>(flags: &StartupFlags, files: &'a [PolicyFile]) -> Vec<LayerStep<'a>> {
    let of = |role: PolicyFileRole| files.iter().filter(move |file| file.role() == role);
    let mut stack = Vec::new();
    of(PolicyFileRole::Operator).for_each(|file| stack.extend(whole(file, SectionAuthority::Authority)));
    of(PolicyFileRole::Operator).for_each(|file| stack.extend(own_workspace(flags, file)));
    let (approved, unapproved): (Vec<_>, Vec<_>) =
        of(PolicyFileRole::Workspace).partition(|file| trust(flags, files, file) == FileAuthority::Approved);
    approved.into_iter().for_each(|file| stack.extend(whole(file, SectionAuthority::Authority)));
    for file in unapproved {
        let distance = flags.distance_of(file);
        let standing = if distance == 0 { SectionAuthority::Asks } else { SectionAuthority::Around };
        stack.extend(whole(file, standing).map(|step| LayerStep { distance, ..step }));
    }
    of(PolicyFileRole::Session).for_each(|file| stack.extend(whole(file, SectionAuthority::Narrows)));
    files.iter().for_each(|file| stack.extend(own_agent(flags, file)));
    stack
}

/// What a file extends before itself: what is heard later counts.
fn whole(file: &PolicyFile, standing: SectionAuthority) -> impl Iterator<Item = LayerStep<'_>> {
    file.documents().iter().rev().map(move |document| LayerStep {
        document,
        section: &document.section,
        profile: document.profile.as_ref(),
        minimum_profile: document.minimum_profile.as_ref(),
        layer: file.role().layer(),
        standing,
        place: SectionScope::Whole,
        distance: 0,
    })
}

/// Its own part, and those of the directories around it.
fn own_workspace<'a>(flags: &StartupFlags, file: &'a PolicyFile) -> impl Iterator<Item = LayerStep<'a>> {
    let parts = file
        .documents()
        .iter()
        .rev()
        .flat_map(|document| document.workspaces.iter().map(move |(path, part)| (document, path, part)));
    let at = |path: &str| flags.distance(&flags.expanded(path)?);
    parts.filter_map(move |(document, path, part)| {
        let distance = at(&path.value)?;
        Some(LayerStep {
            document,
            section: &part.section,
            profile: part.profile.as_ref(),
            minimum_profile: part.minimum_profile.as_ref(),
            layer: PolicyLayer::Operator,
            standing: if distance == 0 { SectionAuthority::Authority } else { SectionAuthority::Around },
            place: SectionScope::Whole,
            distance,
        })
    })
}

fn own_agent<'a>(flags: &StartupFlags, file: &'a PolicyFile) -> impl Iterator<Item = LayerStep<'a>> {
    let parts =
        file.documents().iter().rev().flat_map(|document| {
            document.agents.iter().map(move |(name, section)| (document, name, section))
        });
    let distance = flags.distance_of(file);
    let standing = match file.role() {
        _ if distance > 0 => SectionAuthority::Around,
        PolicyFileRole::Workspace => SectionAuthority::Asks,
        PolicyFileRole::Operator | PolicyFileRole::Session => SectionAuthority::Narrows,
    };
    parts.filter(|(_, name, _)| flags.agent.as_ref() == Some(&name.value)).map(
        move |(document, _, section)| LayerStep {
            document,
            section,
            profile: None,
            minimum_profile: None,
            layer: PolicyLayer::Session,
            standing,
            place: SectionScope::Agent,
            distance,
        },
    )
}
