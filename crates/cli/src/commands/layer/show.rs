//! Shows layers to people and to programs (JSON, schema 1).
//!
//! INVARIANT: names and contents come from an agent, and are escaped here.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use ringfence_ledger::Timestamp;
use ringfence_runtime::AgentSession;
use ringfence_runtime::layer::{
    ChangeDiff, ChangeKind, DiffForm, JudgedChange, JudgedChanges, LayerChange, LayerState, LayerSummary,
    OpenLayer, RefusedEntry, refused_reason,
};
use ringfence_types::{ByteString, Decision, EntryKind, RuleId, chain};
use serde::Serialize;

use super::counted;
use crate::commands::proposal;
use crate::commands::run::print_json;
use crate::error;
use crate::explain::TextStyle;
use crate::output::{OutputFormat, note, say};

/// Columns for the pluses and minuses of the longest change.
const BAR: u64 = 40;
/// Paths that a summary names.
const NAMED: usize = 3;

/// A layer with what policy says of it.
pub(super) struct LayerScene<'s, 'r> {
    pub(super) found: &'s LayerSummary,
    pub(super) layer: &'s OpenLayer,
    pub(super) session: &'s AgentSession<'r>,
    pub(super) judged: &'s JudgedChanges,
}

fn state(state: LayerState) -> &'static str {
    match state {
        LayerState::Open => "open",
        LayerState::Pending => "pending",
        LayerState::Landed => "landed",
        LayerState::Undone => "undone",
    }
}

fn time(time: SystemTime) -> String {
    Timestamp::try_from(time).map(|time| format!("{time:.0}")).unwrap_or_default()
}

/// What `changes --all --json` prints, schema 1. Fields are added, never renamed or removed.
#[derive(Serialize)]
struct LayerListJson {
    schema: u32,
    layers: Vec<LayerJson>,
}

#[derive(Serialize)]
struct LayerJson {
    id: String,
    state: &'static str,
    created: String,
    roots: Vec<ByteString>,
    /// What it takes on disk.
    bytes: u64,
    in_use: bool,
}

impl LayerJson {
    fn of(layer: &LayerSummary) -> Self {
        Self {
            id: layer.id.clone(),
            state: state(layer.state),
            created: time(layer.created),
            roots: layer.roots.iter().map(|root| ByteString::from(root.as_path())).collect(),
            bytes: layer.bytes,
            in_use: layer.in_use,
        }
    }
}

pub(super) fn list(layers: &[LayerSummary], format: OutputFormat) {
    if format == OutputFormat::Json {
        let layers = layers.iter().map(LayerJson::of).collect();
        return print_json(&LayerListJson { schema: 1, layers });
    }
    if layers.is_empty() {
        note!("no layers; `ringfence try -- CMD` makes one");
    }
    for layer in layers {
        let roots: Vec<String> =
            layer.roots.iter().map(|root| ByteString::from(root.as_path()).display()).collect();
        let busy = if layer.in_use { "  (in use)" } else { "" };
        let (id, created, state) = (&layer.id, time(layer.created), state(layer.state));
        say!("{id}  {created}  {state:<7}  {}{busy}", roots.join(", "));
    }
}

/// What `changes --json` prints, schema 1.
#[derive(Serialize)]
struct ChangesJson {
    schema: u32,
    #[serde(flatten)]
    layer: LayerJson,
    /// What waits.
    changes: Vec<ChangeJson>,
    /// What never lands.
    refused: Vec<RefusedJson>,
    /// What has landed.
    landed: Vec<ChangeJson>,
}

#[derive(Serialize)]
struct ChangeJson {
    path: ByteString,
    /// `created`, `modified`, `deleted`, `metadata` or `replaced`.
    change: &'static str,
    before: Option<StateJson>,
    after: Option<StateJson>,
    /// What landing it meets: `allow`, `ask` or `deny`. Absent for what has landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct StateJson {
    kind: EntryKind,
    /// Octal.
    mode: String,
    sha256: Option<String>,
    bytes: u64,
}

#[derive(Serialize)]
struct RefusedJson {
    path: ByteString,
    reason: &'static str,
}

impl ChangeJson {
    fn of(change: &LayerChange) -> Self {
        let state = |state: &ringfence_runtime::layer::EntryState| StateJson {
            kind: state.kind,
            mode: format!("{:o}", state.mode),
            sha256: state.digest.clone(),
            bytes: state.bytes,
        };
        Self {
            path: ByteString::from(change.absolute().as_path()),
            change: change.kind.word(),
            before: change.before.as_ref().map(state),
            after: change.after.as_ref().map(state),
            decision: None,
            rule: None,
            reason: None,
        }
    }

    fn judged(judged: &JudgedChange) -> Self {
        Self {
            decision: Some(judged.decision),
            rule: Some(judged.rule.to_string()),
            reason: Some(judged.reason.clone()),
            ..Self::of(&judged.change)
        }
    }
}

fn refused(entry: &RefusedEntry) -> RefusedJson {
    let path = ByteString::from(entry.root.as_path().join(entry.path.as_path()).as_path());
    RefusedJson { path, reason: refused_reason(entry.reason) }
}

/// What `try --json` adds to the result of the command.
#[derive(Serialize)]
pub(crate) struct TriedJson {
    id: String,
    changes: Vec<ChangeJson>,
    refused: Vec<RefusedJson>,
}

impl TriedJson {
    pub(super) fn of(layer: &OpenLayer, judged: &JudgedChanges) -> Self {
        Self {
            id: layer.id().to_string(),
            changes: judged.changes.iter().map(ChangeJson::judged).collect(),
            refused: judged.refused.iter().map(refused).collect(),
        }
    }
}

pub(super) fn json(scene: &LayerScene<'_, '_>) -> Result<(), ExitCode> {
    print_json(&ChangesJson {
        schema: 1,
        layer: LayerJson::of(scene.found),
        changes: scene.judged.changes.iter().map(ChangeJson::judged).collect(),
        refused: scene.judged.refused.iter().map(refused).collect(),
        landed: scene.landed()?.iter().map(ChangeJson::of).collect(),
    });
    Ok(())
}

impl LayerScene<'_, '_> {
    fn landed(&self) -> Result<Vec<LayerChange>, ExitCode> {
        self.layer.landed().map_err(|error| unreadable(&error))
    }

    fn workspace(&self) -> &Path {
        &self.session.workspace().path
    }
}

fn unreadable(error: &dyn std::error::Error) -> ExitCode {
    error::failed_text(&format!("the layer cannot be read: {}", chain(error)), None)
}

/// Relative to the workspace, if it is in there.
fn name(path: &Path, workspace: &Path) -> String {
    let shown = path.strip_prefix(workspace).ok().filter(|rest| !rest.as_os_str().is_empty());
    ByteString::from(shown.unwrap_or(path)).display()
}

/// One line for each change, with its size, as `git diff --stat --compact-summary` has them.
pub(super) fn stat(scene: &LayerScene<'_, '_>, style: TextStyle) -> Result<(), ExitCode> {
    let (found, judged) = (scene.found, scene.judged);
    say!("{}  {}  {}", found.id, state(scene.layer.state()), time(found.created));
    let mut rows = Vec::with_capacity(judged.changes.len());
    for judged in &judged.changes {
        let diff = scene.layer.diff(&judged.change, scene.workspace()).map_err(|error| unreadable(&error))?;
        rows.push(StatRow::of(judged, diff, scene.workspace()));
    }
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default().min(80);
    let most = rows.iter().map(|row| row.added + row.removed).max().unwrap_or_default();
    for row in &rows {
        row.print(width, most, style);
    }
    for entry in &judged.refused {
        let refused = refused(entry);
        say!(" {} never lands: {}", name(refused.path.as_path(), scene.workspace()), refused.reason);
    }
    let (added, removed) =
        rows.iter().fold((0_u64, 0_u64), |(added, removed), row| (added + row.added, removed + row.removed));
    if !rows.is_empty() {
        let (added, removed) = (plural(added, "insertion"), plural(removed, "deletion"));
        say!(" {}, {added}(+), {removed}(-)", counted(rows.len(), "change"));
        tell_judgement(judged, scene.workspace());
    }
    let landed = scene.landed()?;
    if !landed.is_empty() {
        say!(" {} landed:", counted(landed.len(), "change"));
        for change in &landed {
            say!("   {:<9} {}", change.kind.word(), name(&change.absolute(), scene.workspace()));
        }
        note!("  undo     ringfence undo {}", found.id);
    }
    if !rows.is_empty() {
        next_steps(&found.id);
    }
    Ok(())
}

fn plural(count: u64, noun: &str) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), noun)
}

struct StatRow {
    name: String,
    size: String,
    added: u64,
    removed: u64,
    remark: Option<String>,
}

impl StatRow {
    fn of(judged: &JudgedChange, diff: ChangeDiff, workspace: &Path) -> Self {
        let change = &judged.change;
        let mark = match change.kind {
            ChangeKind::Created => " (new)".to_owned(),
            ChangeKind::Deleted => " (gone)".to_owned(),
            ChangeKind::Replaced => " (replaced)".to_owned(),
            ChangeKind::Metadata | ChangeKind::Modified => modes(change),
        };
        let directory = [&change.before, &change.after].into_iter().flatten();
        let slash =
            if directory.last().is_some_and(|state| state.kind == EntryKind::Directory) { "/" } else { "" };
        let bytes = |state: &Option<_>| {
            state.as_ref().map_or(0, |state: &ringfence_runtime::layer::EntryState| state.bytes)
        };
        let size = match diff.form {
            DiffForm::Text => (diff.added + diff.removed).to_string(),
            DiffForm::Binary | DiffForm::TooLarge => {
                format!("Bin {} -> {} bytes", bytes(&change.before), bytes(&change.after))
            }
        };
        let remark = remark(judged);
        let name = format!("{}{slash}{mark}", name(&judged.path(), workspace));
        Self { name, size, added: diff.added, removed: diff.removed, remark }
    }

    fn print(&self, width: usize, most: u64, style: TextStyle) {
        let scaled = |count: u64| match most {
            0..=BAR => count,
            // Never nothing for something.
            _ => (count * BAR).div_ceil(most),
        };
        let bar = |sign: &str, count: u64| sign.repeat(usize::try_from(scaled(count)).unwrap_or_default());
        let plus = style.decision(Decision::Allow, &bar("+", self.added));
        let minus = style.decision(Decision::Deny, &bar("-", self.removed));
        let pad = " ".repeat(width.saturating_sub(self.name.chars().count()));
        let remark = self.remark.as_ref().map(|remark| format!("  {remark}")).unwrap_or_default();
        let row =
            format!(" {}{pad} | {:>4} {plus}{minus}{remark}", style.spelled(self.name.clone()), self.size);
        say!("{}", row.trim_end());
    }
}

fn modes(change: &LayerChange) -> String {
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if before.mode != after.mode => {
            format!(" (mode {:o} -> {:o})", before.mode, after.mode)
        }
        _ => String::new(),
    }
}

/// What lets it wait for a person.
fn remark(judged: &JudgedChange) -> Option<String> {
    match judged.decision {
        Decision::Allow => None,
        Decision::Ask if judged.rule == RuleId::LandingProtected => Some("[protected]".to_owned()),
        Decision::Ask if judged.rule == RuleId::LandingHidden => Some("[hidden]".to_owned()),
        Decision::Ask => Some("[asks]".to_owned()),
        Decision::Deny => Some("[denied]".to_owned()),
    }
}

/// What needs an approval and what cannot land, with the reason.
fn tell_judgement(judged: &JudgedChanges, workspace: &Path) {
    if let Some(refusal) = &judged.refusal {
        note!("ringfence: it cannot land: {}", refusal.message);
        if let Some(hint) = &refusal.hint {
            note!("  hint: {hint}");
        }
        return;
    }
    for decision in [Decision::Ask, Decision::Deny] {
        let these: Vec<&JudgedChange> =
            judged.changes.iter().filter(|change| change.decision == decision).collect();
        let verb = if decision == Decision::Ask { "needs an approval" } else { "is denied" };
        for change in these.iter().take(NAMED) {
            let (path, rule) = (name(&change.path(), workspace), &change.rule);
            let reason = ByteString::from(change.reason.as_str()).display();
            note!("ringfence: `{path}` {verb}: {reason} [{rule}]");
        }
        let more = these.len().saturating_sub(NAMED);
        if more > 0 {
            note!("ringfence: {} {verb} too", counted(more, "more change"));
        }
    }
}

pub(super) fn next_steps(id: &str) {
    note!("  see      ringfence changes {id} --patch");
    note!("  land     ringfence commit {id}");
    note!("  drop     ringfence discard {id}");
}

/// `3 files changed, 1 created, 1 deleted; 1 is protected: .git/hooks/pre-commit`.
pub(super) fn summary(judged: &JudgedChanges, workspace: &Path) -> String {
    let is_directory = |change: &LayerChange| {
        let mut states = [&change.before, &change.after].into_iter().flatten();
        states.all(|state| state.kind == EntryKind::Directory)
    };
    let (directories, files): (Vec<&JudgedChange>, Vec<&JudgedChange>) =
        judged.changes.iter().partition(|judged| is_directory(&judged.change));
    let mut parts = kinds(&files, "file");
    parts.extend(kinds(&directories, "directory").into_iter().filter(|_| files.is_empty()));
    if parts.is_empty() && !judged.refused.is_empty() {
        parts.push("nothing that could land".to_owned());
    }
    let mut text = parts.join(", ");
    let mut tell = |what: &str, paths: Vec<PathBuf>| {
        if paths.is_empty() {
            return;
        }
        let named: Vec<String> = paths.iter().take(NAMED).map(|path| name(path, workspace)).collect();
        let more = paths.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let is = if paths.len() == 1 { "is" } else { "are" };
        text.push_str(&format!("; {} {is} {what}: {}{more}", paths.len(), named.join(", ")));
    };
    let of_rule = |wanted: &dyn Fn(&JudgedChange) -> bool| {
        judged.changes.iter().filter(|change| wanted(change)).map(JudgedChange::path).collect::<Vec<_>>()
    };
    tell(
        "protected",
        of_rule(&|change| change.decision == Decision::Ask && change.rule == RuleId::LandingProtected),
    );
    tell(
        "hidden",
        of_rule(&|change| change.decision == Decision::Ask && change.rule == RuleId::LandingHidden),
    );
    tell(
        "asked about",
        of_rule(&|change| {
            let other = change.rule != RuleId::LandingProtected && change.rule != RuleId::LandingHidden;
            change.decision == Decision::Ask && other
        }),
    );
    tell("denied", of_rule(&|change| change.decision == Decision::Deny));
    let refused =
        judged.refused.iter().map(|entry| entry.root.as_path().join(entry.path.as_path())).collect();
    tell("left out for good", refused);
    text
}

/// `3 files changed`, `1 created`; only the first part says of what.
fn kinds(changes: &[&JudgedChange], noun: &str) -> Vec<String> {
    let count =
        |wanted: &[ChangeKind]| changes.iter().filter(|judged| wanted.contains(&judged.change.kind)).count();
    let counts = [
        ("changed", count(&[ChangeKind::Modified, ChangeKind::Metadata, ChangeKind::Replaced])),
        ("created", count(&[ChangeKind::Created])),
        ("deleted", count(&[ChangeKind::Deleted])),
    ];
    let mut parts: Vec<String> = Vec::new();
    for (verb, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        let noun = match (parts.is_empty(), count, noun) {
            (false, ..) => String::new(),
            (true, 1, noun) => format!(" {noun}"),
            (true, _, "directory") => " directories".to_owned(),
            (true, _, noun) => format!(" {noun}s"),
        };
        parts.push(format!("{count}{noun} {verb}"));
    }
    parts
}

pub(super) fn patch(scene: &LayerScene<'_, '_>, style: TextStyle) -> Result<(), ExitCode> {
    diffs(scene.layer, scene.judged, scene.workspace(), style)
}

/// Every change as a unified diff, with everything that a terminal would interpret as a visible escape.
pub(super) fn diffs(
    layer: &OpenLayer,
    judged: &JudgedChanges,
    workspace: &Path,
    style: TextStyle,
) -> Result<(), ExitCode> {
    for judged in &judged.changes {
        let diff = layer.diff(&judged.change, workspace).map_err(|error| unreadable(&error))?;
        proposal::print_diff(&diff.patch, style);
    }
    Ok(())
}
