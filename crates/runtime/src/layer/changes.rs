//! What waits in a layer or has landed from it, as policy sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ringfence_authz::{Action, judge};
use ringfence_layer::{
    ChangeSide, EntryState, Layer, LayerChange, LayerError, RefusedEntry, UnlandableReason,
};
use ringfence_scan::Scanner;
use ringfence_types::{
    ByteString, Call, Decision, EntryKind, IntroducedSecret, LandedEntry, LandedState, Landing,
    LandingAction, Refusal, RuleName,
};

use super::OpenLayer;
use crate::pipeline::CallContext as _;
use crate::proposal::introduced_secrets;
use crate::session::AgentSession;

/// Limit of bytes that are scanned of a file, before or after. Of a longer one a person is told.
const SCANNED: u64 = 25 * 1024 * 1024;

/// One change, and what landing it would meet.
#[derive(Clone, Debug)]
pub struct JudgedChange {
    pub change: LayerChange,
    pub decision: Decision,
    pub rule: RuleName,
    pub reason: String,
}

/// The changes of a layer, and what landing them would meet.
#[derive(Clone, Debug)]
pub struct JudgedChanges {
    pub changes: Vec<JudgedChange>,
    /// What never lands, with the reason.
    pub refused: Vec<RefusedEntry>,
    /// Why nothing of it could land.
    pub refusal: Option<Refusal>,
}

impl JudgedChange {
    pub fn path(&self) -> PathBuf {
        self.change.absolute()
    }
}

impl OpenLayer {
    /// What has landed and was not taken back.
    pub fn landed(&self) -> Result<Vec<LayerChange>, LayerError> {
        self.layer.landed()
    }
}

impl AgentSession<'_> {
    /// What waits in a layer, and what this session's policy says of each change. Nothing is recorded.
    pub fn judged_changes(&self, layer: &OpenLayer) -> Result<JudgedChanges, LayerError> {
        let all = layer.layer.changes()?;
        if all.changes.is_empty() {
            return Ok(JudgedChanges { changes: Vec::new(), refused: all.refused, refusal: None });
        }
        let entries = entries(&all.changes, LandingAction::Commit);
        let landing = Landing { layer: layer.id.clone(), action: LandingAction::Commit, entries };
        let action = Action::new(Call::Land(landing), self.all_roots());
        let (judgement, refusal) = match judge(&self.policy, &action, &self.facts()) {
            Ok(judgement) => (Some(judgement), None),
            Err(refusal) => (None, Some(refusal)),
        };
        let mut strictest: BTreeMap<&Path, &ringfence_authz::JudgementPart> = BTreeMap::new();
        for part in judgement.iter().flat_map(|judgement| judgement.parts()) {
            let Some(path) = part.path.as_ref().map(ByteString::as_path) else { continue };
            let known = strictest.entry(path).or_insert(part);
            if part.decision > known.decision {
                *known = part;
            }
        }
        let judged = |change: LayerChange| {
            let part = strictest.get(change.absolute().as_path());
            JudgedChange {
                decision: part.map_or(Decision::Deny, |part| part.decision),
                rule: part.map_or_else(|| denied(refusal.as_ref()), |part| part.rule.clone()),
                reason: part.map(|part| part.reason.clone().into_owned()).unwrap_or_default(),
                change,
            }
        };
        let changes = all.changes.into_iter().map(judged).collect();
        Ok(JudgedChanges { changes, refused: all.refused, refusal })
    }
}

fn denied(refusal: Option<&Refusal>) -> RuleName {
    refusal.map_or_else(|| ringfence_types::RuleId::LandingNothing.into(), |refusal| refusal.rule.clone())
}

/// Why an entry of a layer never lands.
pub fn refused_reason(reason: UnlandableReason) -> &'static str {
    match reason {
        UnlandableReason::Fifo => "it is a FIFO",
        UnlandableReason::Socket => "it is a socket",
        UnlandableReason::Device => "it is a device",
        UnlandableReason::Privileged => "it has a set-user-id or set-group-id bit or file capabilities",
        UnlandableReason::HostSpecial => "a FIFO, a socket or a device is there",
        UnlandableReason::PathTooLong => "its path is too long",
        UnlandableReason::UnknownOverlay => "it has an attribute of overlayfs that is not known",
        UnlandableReason::OtherFileSystem => "another file system is mounted there",
        UnlandableReason::Unreadable => "its permissions keep Ringfence from reading it",
    }
}

/// The changes as a landing has them: sorted, no path twice.
pub(super) fn entries(changes: &[LayerChange], action: LandingAction) -> Vec<LandedEntry> {
    let repositories = match action {
        LandingAction::Commit => repositories(changes),
        LandingAction::Undo | LandingAction::ForcedUndo => BTreeSet::new(),
    };
    let mut entries: Vec<LandedEntry> = changes.iter().map(|change| entry(change, action)).collect();
    for entry in &mut entries {
        let above = entry.path.as_path().ancestors().skip(1).find(|above| repositories.contains(*above));
        entry.repository = above.map(ByteString::from);
    }
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    entries.dedup_by(|one, other| one.path == other.path);
    entries
}

fn entry(change: &LayerChange, action: LandingAction) -> LandedEntry {
    let (before, after) = (change.before.as_ref().map(state), change.after.as_ref().map(state));
    let (before, after) = match action {
        LandingAction::Commit => (before, after),
        LandingAction::Undo | LandingAction::ForcedUndo => (after, before),
    };
    let path = ByteString::from(change.absolute().as_path());
    LandedEntry { path, before, after, repository: None, secrets: Vec::new() }
}

fn state(state: &EntryState) -> LandedState {
    let EntryState { kind, mode, digest, bytes, .. } = state;
    LandedState { kind: *kind, mode: *mode, sha256: digest.clone(), bytes: *bytes }
}

/// Directories that git takes for a repository once everything has landed, but for those called `.git`.
fn repositories(changes: &[LayerChange]) -> BTreeSet<PathBuf> {
    let after: BTreeMap<PathBuf, bool> =
        changes.iter().map(|change| (change.absolute(), change.after.is_some())).collect();
    let is_there =
        |path: PathBuf| after.get(&path).copied().unwrap_or_else(|| path.symlink_metadata().is_ok());
    let mut looked = BTreeMap::new();
    for change in changes {
        let path = change.absolute();
        let inside = path.ancestors().skip(1).take_while(|above| above.starts_with(change.root.as_path()));
        for above in inside.filter(|above| !above.ends_with(".git")) {
            if looked.contains_key(above) {
                break;
            }
            let has = |name: &str| is_there(above.join(name));
            let is_one = has("HEAD") && ((has("objects") && has("refs")) || has("commondir"));
            looked.insert(above.to_owned(), is_one);
        }
    }
    looked.into_iter().filter_map(|(path, is_one)| is_one.then_some(path)).collect()
}

/// Adds the secrets that arrive.
pub(super) fn scanned(
    layer: &Layer,
    changes: &[LayerChange],
    entries: &mut [LandedEntry],
    scanner: &Scanner,
) -> Result<(), LayerError> {
    let by_path: BTreeMap<PathBuf, &LayerChange> =
        changes.iter().map(|change| (change.absolute(), change)).collect();
    for entry in entries {
        let is_file = |state: &LandedState| state.kind == EntryKind::File;
        let Some(change) = by_path.get(entry.path.as_path()) else { continue };
        let same = entry.before.as_ref().and_then(|state| state.sha256.as_ref())
            == entry.after.as_ref().and_then(|state| state.sha256.as_ref());
        if same || !entry.after.as_ref().is_some_and(is_file) {
            continue;
        }
        let after = layer.content(change, ChangeSide::After, SCANNED)?;
        let Some(after) = after else { continue };
        let before = match entry.before.as_ref().is_some_and(is_file) {
            true => layer.content(change, ChangeSide::Before, SCANNED)?,
            false => None,
        };
        let base = before.as_ref().map(|content| content.bytes.as_slice());
        let found = introduced_secrets::introduced(scanner, base, Some(&after.bytes));
        entry.secrets = found.into_iter().map(|(introduced, _)| introduced).collect();
        if after.total > after.bytes.len() as u64 {
            // What was not scanned may have one, so the approver is told.
            let rule = introduced_secrets::LIMIT.to_owned();
            entry.secrets.insert(0, IntroducedSecret { rule, line: 1 });
        }
    }
    Ok(())
}
