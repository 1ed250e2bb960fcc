//! The changes of a layer as a unified diff in git's format.

use std::collections::BTreeSet;
use std::path::Path;

use ringfence_authz::ApprovalNeeded;
use ringfence_layer::{ChangeSide, EntryContent, EntryState, Layer, LayerChange, LayerError};
use ringfence_types::{ByteString, Decision, EntryKind, Landing, LandingAction};
use zeroize::Zeroizing;

use super::OpenLayer;
use crate::proposal::{hunks, quoted_name};

/// Limit of bytes of a file in a diff, on each side.
const SHOWN: u64 = 4 * 1024 * 1024;
/// Limit of bytes of the diff in a prompt, which has less room anyway.
const IN_A_PROMPT: usize = 1024 * 1024;
/// Where git, too, looks for a byte that no text has.
const TEXT: usize = 8000;

/// One change as a diff.
#[derive(Clone, Debug)]
pub struct ChangeDiff {
    /// In git's format, unescaped.
    pub patch: Zeroizing<Vec<u8>>,
    /// Lines.
    pub added: u64,
    pub removed: u64,
    pub form: DiffForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffForm {
    Text,
    Binary,
    TooLarge,
}

impl OpenLayer {
    /// What landing the change would do. Names in `workspace` are relative to it, so that `git apply` takes the diff there.
    pub fn diff(&self, change: &LayerChange, workspace: &Path) -> Result<ChangeDiff, LayerError> {
        let scene = DiffScene { layer: &self.layer, workspace, action: LandingAction::Commit };
        scene.diff(change)
    }
}

/// The diff of a landing, what is asked about first: a prompt has room for the beginning.
pub(crate) fn patch_of_landing(
    layer: &Layer,
    changes: &[LayerChange],
    landing: &Landing,
    question: &ApprovalNeeded,
) -> Result<Zeroizing<Vec<u8>>, LayerError> {
    let parts = question.judgement().parts().iter();
    let asked: BTreeSet<&Path> = parts
        .filter(|part| part.decision == Decision::Ask)
        .filter_map(|part| part.path.as_ref().map(ByteString::as_path))
        .collect();
    let wanted: BTreeSet<&Path> = landing.entries.iter().map(|entry| entry.path.as_path()).collect();
    let mut changes: Vec<&LayerChange> =
        changes.iter().filter(|change| wanted.contains(change.absolute().as_path())).collect();
    changes.sort_by_key(|change| !asked.contains(change.absolute().as_path()));
    let workspace = question.permissions().roots.first().map_or(Path::new("/"), |root| root.path.as_path());
    let scene = DiffScene { layer, workspace, action: landing.action };
    let mut out = Zeroizing::new(Vec::new());
    let mut left = changes.len();
    for change in changes {
        if out.len() > IN_A_PROMPT {
            out.extend_from_slice(format!("({left} more changes are not in this diff)\n").as_bytes());
            break;
        }
        out.extend_from_slice(&scene.diff(change)?.patch);
        left -= 1;
    }
    Ok(out)
}

struct DiffScene<'l> {
    layer: &'l Layer,
    workspace: &'l Path,
    action: LandingAction,
}

impl DiffScene<'_> {
    fn diff(&self, change: &LayerChange) -> Result<ChangeDiff, LayerError> {
        let content = |side, state: &Option<EntryState>| match state {
            Some(state) if state.kind != EntryKind::Directory => self.layer.content(change, side, SHOWN),
            _ => Ok(None),
        };
        let before = DiffedState {
            state: change.before.as_ref(),
            content: content(ChangeSide::Before, &change.before)?,
        };
        let after =
            DiffedState { state: change.after.as_ref(), content: content(ChangeSide::After, &change.after)? };
        let path = change.absolute();
        let below = path.strip_prefix(self.workspace).ok().filter(|below| !below.as_os_str().is_empty());
        // git's names begin with `a/` and `b/`, and the path follows without its first slash.
        let name = below.unwrap_or_else(|| path.strip_prefix("/").unwrap_or(&path));
        let name = ByteString::from(name);
        Ok(match self.action {
            LandingAction::Commit => written(&name, &before, &after),
            LandingAction::Undo | LandingAction::ForcedUndo => written(&name, &after, &before),
        })
    }
}

struct DiffedState<'s> {
    state: Option<&'s EntryState>,
    content: Option<EntryContent>,
}

impl DiffedState<'_> {
    fn bytes(&self) -> &[u8] {
        self.content.as_ref().map_or(&[], |content| &content.bytes)
    }

    fn is_whole(&self) -> bool {
        self.content.as_ref().is_none_or(|content| content.total == content.bytes.len() as u64)
    }

    fn is_text(&self) -> bool {
        let bytes = self.bytes();
        !bytes.get(..TEXT).unwrap_or(bytes).contains(&0)
    }

    /// A directory, or nothing.
    fn is_directory(&self) -> bool {
        self.state.is_none_or(|state| state.kind == EntryKind::Directory)
    }

    /// As git writes it: `100644`, `120000`.
    fn mode(&self) -> Option<String> {
        let state = self.state?;
        let kind = match state.kind {
            EntryKind::Directory => 0o40_000,
            EntryKind::Link => return Some("120000".to_owned()),
            EntryKind::File | EntryKind::Other => 0o100_000,
        };
        Some(format!("{:o}", kind | state.mode & 0o7777))
    }
}

/// git has no directories, and reads over a line that begins like this one.
fn of_directory(name: &ByteString, before: &DiffedState<'_>, after: &DiffedState<'_>) -> ChangeDiff {
    let mode = |state: &EntryState| format!("{:o}", state.mode);
    let what = match (before.state.map(mode), after.state.map(mode)) {
        (None, Some(mode)) => format!("new, mode {mode}"),
        (Some(_), None) => "deleted".to_owned(),
        (Some(one), Some(other)) if one != other => format!("mode {one} becomes {other}"),
        _ => "other times or attributes".to_owned(),
    };
    let patch = [b"directory ", quoted_name(b"", name).as_slice(), b": ", what.as_bytes(), b"\n"].concat();
    ChangeDiff { patch: Zeroizing::new(patch), added: 0, removed: 0, form: DiffForm::Text }
}

fn written(name: &ByteString, before: &DiffedState<'_>, after: &DiffedState<'_>) -> ChangeDiff {
    if before.is_directory() && after.is_directory() {
        return of_directory(name, before, after);
    }
    let (old, new) = (quoted_name(b"a/", name), quoted_name(b"b/", name));
    let mut patch = Zeroizing::new([b"diff --git ", old.as_slice(), b" ", &new, b"\n"].concat());
    match (before.mode(), after.mode()) {
        (None, Some(mode)) => patch.extend_from_slice(format!("new file mode {mode}\n").as_bytes()),
        (Some(mode), None) => patch.extend_from_slice(format!("deleted file mode {mode}\n").as_bytes()),
        (Some(one), Some(other)) if one != other => {
            patch.extend_from_slice(format!("old mode {one}\nnew mode {other}\n").as_bytes());
        }
        _ => {}
    }
    let mut diff = ChangeDiff { patch, added: 0, removed: 0, form: DiffForm::Text };
    if before.bytes() == after.bytes() && before.is_whole() && after.is_whole() {
        return diff;
    }
    diff.form = match () {
        () if !before.is_whole() || !after.is_whole() => DiffForm::TooLarge,
        () if !before.is_text() || !after.is_text() => DiffForm::Binary,
        () => DiffForm::Text,
    };
    if diff.form != DiffForm::Text {
        let what = if diff.form == DiffForm::Binary { "Binary files" } else { "Large files" };
        diff.patch.extend_from_slice(format!("{what} ").as_bytes());
        diff.patch.extend_from_slice(&[old.as_slice(), b" and ", &new, b" differ\n"].concat());
        return diff;
    }
    let side = |name: Vec<u8>, state: &DiffedState<'_>| match state.content {
        Some(_) => name,
        None => b"/dev/null".to_vec(),
    };
    diff.patch.extend_from_slice(&[b"--- ", side(old, before).as_slice(), b"\n"].concat());
    diff.patch.extend_from_slice(&[b"+++ ", side(new, after).as_slice(), b"\n"].concat());
    let body = Zeroizing::new(hunks(before.bytes(), after.bytes()));
    for line in body.split(|byte| *byte == b'\n') {
        match line.first() {
            Some(b'+') => diff.added += 1,
            Some(b'-') => diff.removed += 1,
            _ => {}
        }
    }
    diff.patch.extend_from_slice(&body);
    diff
}
