//! Lets changes of a layer land, and takes them back.

use std::path::{Path, PathBuf};

use ringfence_layer::{ConflictReason, LandingConflict, LandingReport, LayerChange, LayerError, UndoReport};
use ringfence_sandbox::CommandIo;
use ringfence_scan::RegisteredSecretError;
use ringfence_types::{
    ByteString, Call, Landing, LandingAction, PolicyLayer, Refusal, RefusalCode, RuleId, UnlandedEntry,
};

use super::OpenLayer;
use super::changes::{entries, refused_reason, scanned};
use super::lookup::layer_hint;
use crate::effect::LandEffect;
use crate::finding_salt::StateSalt;
use crate::pipeline::{self, Received, Settled};
use crate::proposal::introduced_secrets;
use crate::session::AgentSession;

/// What an operator wants to land, or to have back.
#[derive(Clone, Copy, Debug)]
pub struct LandingRequest<'p> {
    pub action: LandingAction,
    /// Absolute paths of changes or of directories with changes. Empty: everything.
    pub only: &'p [PathBuf],
    /// Absolute paths that are left out, with everything below them.
    pub except: &'p [PathBuf],
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct LandingOutcome {
    /// Number of paths that landed, or were taken back.
    pub landed: usize,
    /// Both versions are kept: the host's where it is, the layer's in the layer.
    pub conflicts: Vec<UnlandedEntry>,
    /// What never lands.
    pub refused: Vec<UnlandedEntry>,
    /// What changed after it had landed, and where it is now.
    pub set_aside: Vec<(PathBuf, PathBuf)>,
}

/// Why nothing landed, besides a refusal by the pipeline.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LandError {
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error("nothing in `{}` has changed", ByteString::from(path.as_path()).display())]
    NothingThere { path: PathBuf },
    #[error("there is nothing to land")]
    Nothing,
    #[error("the root `{}` is not there any more", ByteString::from(root.as_path()).display())]
    RootGone { root: PathBuf },
    #[error("`{}` is another directory than the one that the command worked on", ByteString::from(root.as_path()).display())]
    RootReplaced { root: PathBuf },
    #[error("a stored secret cannot be looked for")]
    Secret(#[from] RegisteredSecretError),
    #[error("cannot read the salt of fingerprints")]
    Salt(#[source] std::io::Error),
}

impl LandError {
    /// The next step for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Layer(error) => layer_hint(error).map(str::to_owned),
            Self::NothingThere { .. } | Self::Nothing => {
                Some("`ringfence changes` lists what there is".to_owned())
            }
            Self::RootGone { .. } | Self::RootReplaced { .. } => {
                Some("move it back to where it was, or drop the changes: `ringfence discard ID`".to_owned())
            }
            Self::Secret(_) | Self::Salt(_) => None,
        }
    }

    /// The error as a refusal, if it is one.
    pub fn refusal(&self) -> Option<Refusal> {
        let (code, rule) = match self {
            Self::NothingThere { .. } | Self::Nothing => (RefusalCode::Malformed, RuleId::LandingNothing),
            Self::RootGone { .. } | Self::RootReplaced { .. } => {
                (RefusalCode::Workspace, RuleId::LandingWorkspace)
            }
            _ => return None,
        };
        let (rule, message) = (rule.into(), self.to_string());
        Some(Refusal { code, layer: PolicyLayer::Floor, rule, message, hint: self.hint() })
    }
}

impl LandingOutcome {
    /// Every path that did not land.
    pub fn unlanded(&self) -> impl Iterator<Item = &UnlandedEntry> {
        self.conflicts.iter().chain(&self.refused)
    }
}

impl AgentSession<'_> {
    /// Lets changes of a layer land in the roots, or takes them back, as an operator's call through the pipeline.
    pub fn land(
        &mut self,
        opened: OpenLayer,
        request: &LandingRequest<'_>,
        io: CommandIo<'_>,
    ) -> Result<Settled, LandError> {
        opened.check_roots()?;
        let OpenLayer { id, layer } = opened;
        let changes = match request.action {
            LandingAction::Commit => selected(&layer, request)?,
            LandingAction::Undo | LandingAction::ForcedUndo => layer.landed()?,
        };
        if changes.is_empty() {
            return Err(LandError::Nothing);
        }
        let mut entries = entries(&changes, request.action);
        if request.action == LandingAction::Commit {
            let salt = StateSalt::load(&self.runtime.setup.state_dir).map_err(LandError::Salt)?;
            let scanner = introduced_secrets::scanner(salt.of_scanner(), &self.secrets.all)?;
            scanned(&layer, &changes, &mut entries, &scanner)?;
        }
        let landing = Landing { layer: id, action: request.action, entries };
        let effect = LandEffect::new(layer, changes);
        Ok(pipeline::run(Received::new(effect, Call::Land(landing)), self, io))
    }
}

impl OpenLayer {
    /// Fails if a root was moved or deleted, or another directory is at its path.
    pub fn check_roots(&self) -> Result<(), LandError> {
        if let Some(root) = self.layer.roots().into_iter().find(|root| !root.is_dir()) {
            return Err(LandError::RootGone { root });
        }
        self.layer.replaced_root().map_or(Ok(()), |root| Err(LandError::RootReplaced { root }))
    }
}

fn selected(
    layer: &ringfence_layer::Layer,
    request: &LandingRequest<'_>,
) -> Result<Vec<LayerChange>, LandError> {
    let all = layer.changes()?;
    let mut changes = if request.only.is_empty() {
        all.changes.clone()
    } else {
        let is_there = |path: &&PathBuf| all.changes.iter().any(|change| change.absolute().starts_with(path));
        if let Some(path) = request.only.iter().find(|path| !is_there(path)) {
            return Err(LandError::NothingThere { path: path.clone() });
        }
        all.below(&request.only.iter().map(PathBuf::as_path).collect::<Vec<&Path>>())
    };
    changes.retain(|change| !request.except.iter().any(|except| change.absolute().starts_with(except)));
    Ok(changes)
}

pub(crate) fn report_of_landing(report: &LandingReport) -> LandingOutcome {
    let refused = report.refused.iter().map(|refused| UnlandedEntry {
        path: joined(&refused.root, &refused.path),
        reason: refused_reason(refused.reason).to_owned(),
    });
    LandingOutcome {
        landed: report.landed.len(),
        conflicts: conflicts(&report.conflicts).collect(),
        refused: refused.collect(),
        set_aside: Vec::new(),
    }
}

pub(crate) fn report_of_undo(report: &UndoReport) -> LandingOutcome {
    let aside = |entry: &ringfence_layer::SetAsideEntry| {
        (joined(&entry.root, &entry.path).as_path().to_owned(), entry.kept.clone())
    };
    LandingOutcome {
        landed: report.undone.len(),
        conflicts: conflicts(&report.conflicts).collect(),
        refused: Vec::new(),
        set_aside: report.set_aside.iter().map(aside).collect(),
    }
}

pub(super) fn conflicts(conflicts: &[LandingConflict]) -> impl Iterator<Item = UnlandedEntry> + '_ {
    conflicts.iter().map(|conflict| UnlandedEntry {
        path: joined(&conflict.root, &conflict.path),
        reason: why(conflict.reason).to_owned(),
    })
}

fn joined(root: &ByteString, path: &ByteString) -> ByteString {
    match path.as_slice() {
        [] => root.clone(),
        _ => ByteString::from(root.as_path().join(path.as_path()).as_path()),
    }
}

fn why(reason: ConflictReason) -> &'static str {
    match reason {
        ConflictReason::ChangedOnHost => "it was changed on the host meanwhile",
        ConflictReason::RemovedOnHost => "it was removed on the host meanwhile",
        ConflictReason::CreatedOnHost => "something was made there on the host meanwhile",
        ConflictReason::ParentReplaced => "a directory above it is not what it was",
        ConflictReason::NotEmpty => "the directory has entries that the layer does not know",
        ConflictReason::MountPoint => "something is mounted there on the host",
        ConflictReason::KeptChanged => {
            "the version from before the landing was written since, through another name of the file"
        }
        ConflictReason::NotAsSelected => "the layer has something else there than what was looked at",
    }
}

/// Nothing was taken back, because these changed after they had landed.
pub(crate) fn changed_since(changed: &[LandingConflict]) -> Refusal {
    const NAMED: usize = 10;
    let name = |conflict: &LandingConflict| {
        let path = joined(&conflict.root, &conflict.path);
        match conflict.reason {
            // A forced undo brings back what there is, so a person should know.
            reason @ ConflictReason::KeptChanged => format!("`{}`: {}", path.display(), why(reason)),
            _ => format!("`{}`", path.display()),
        }
    };
    let mut names: Vec<String> = changed.iter().take(NAMED).map(name).collect();
    let more = changed.len().saturating_sub(NAMED);
    names.extend((more > 0).then(|| format!("{more} more")));
    Refusal {
        code: RefusalCode::Conflict,
        layer: PolicyLayer::Floor,
        rule: RuleId::LandingConflict.into(),
        message: format!(
            "nothing was taken back, because something has changed since it landed: {}",
            names.join(", ")
        ),
        hint: Some(
            "`ringfence undo ID --force` takes it back all the same and keeps what is there now aside"
                .to_owned(),
        ),
    }
}
