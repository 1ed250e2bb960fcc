//! Finds layers.

use std::path::{Path, PathBuf};

use ringfence_layer::{Layer, LayerError, LayerState, LayerStore, LayerSummary};
use ringfence_ledger::{AppendError, Event, LedgerOpenError, LedgerReadError};
use ringfence_types::{ByteString, Principal, TransactionId};

use super::directory;
use crate::session::Runtime;

/// Candidates that an ambiguous id names.
const NAMED: usize = 10;

/// Which layer is meant.
#[derive(Clone, Copy, Debug)]
pub struct LayerQuery<'q> {
    /// The id of the layer or a beginning of it. `None`: the newest layer of the workspace.
    pub id: Option<&'q str>,
    pub workspace: &'q Path,
    pub wanted: WantedLayer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedLayer {
    /// Changes wait in it.
    Pending,
    /// Changes of it have landed.
    Landed,
    /// Either.
    Any,
}

impl WantedLayer {
    fn fits(self, state: LayerState) -> bool {
        match self {
            Self::Pending => state != LayerState::Landed,
            // A part of a pending layer may have landed.
            Self::Landed => matches!(state, LayerState::Landed | LayerState::Pending),
            Self::Any => true,
        }
    }
}

/// What a discard drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardExtent {
    /// What waits. What landed can still be taken back, and what is set aside stays.
    Waiting,
    /// The layer with all that is in it.
    Everything,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardOutcome {
    /// Number of changes that were dropped.
    pub changes: usize,
    /// The layer is still there: what landed from it can be taken back.
    pub keeps_landed: bool,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerLookupError {
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error("`{}` is no layer", ByteString::from(id.as_str()).display())]
    NotOne { id: String },
    #[error("`{}` could be {}", ByteString::from(id.as_str()).display(), candidates.join(", "))]
    Several { id: String, candidates: Vec<String> },
    #[error("no changes wait for the workspace `{}`", ByteString::from(workspace.as_path()).display())]
    NothingPending { workspace: PathBuf },
    #[error("nothing has landed in the workspace `{}` that could be taken back", ByteString::from(workspace.as_path()).display())]
    NothingLanded { workspace: PathBuf },
    #[error("the changes of `{id}` have landed already")]
    Landed { id: String },
    #[error("no change of `{id}` has landed")]
    NotLanded { id: String },
    #[error("the command of `{id}` still runs")]
    Running { id: String },
    #[error("`{id}` keeps versions of your files that may be nowhere else, in `{}`", ByteString::from(directory.as_path()).display())]
    SetAside { id: String, directory: PathBuf },
    #[error("the files from before `{id}` landed are in it alone, and a root of it is not there")]
    KeepsLanded { id: String },
    #[error("the ledger cannot be read")]
    Open(#[from] LedgerOpenError),
    #[error(transparent)]
    Read(#[from] LedgerReadError),
    #[error("cannot write to the ledger")]
    Ledger(#[from] AppendError),
}

impl LayerLookupError {
    /// The next step for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotOne { .. } | Self::Several { .. } => {
                "`ringfence changes --all` lists the layers of every workspace".to_owned()
            }
            Self::NothingPending { .. } => {
                "`ringfence try -- CMD` makes some; `ringfence changes --all` lists those of every workspace"
                    .to_owned()
            }
            Self::NothingLanded { .. } => {
                "`ringfence changes --all` lists the layers of every workspace".to_owned()
            }
            Self::Landed { id } => format!("`ringfence undo {id}` takes them back"),
            Self::NotLanded { id } => format!("`ringfence commit {id}` lets them land"),
            Self::SetAside { id, directory } => format!(
                "copy what you need out of `{}`; then `ringfence discard {id} --force` removes it with the layer",
                ByteString::from(directory.as_path()).display()
            ),
            Self::KeepsLanded { id } => {
                format!("move the root back to where it was; `ringfence discard {id} --force` removes them")
            }
            Self::Running { .. } => "wait until it has ended, or end it".to_owned(),
            Self::Layer(error) => return layer_hint(error).map(str::to_owned),
            Self::Ledger(error) => return error.hint().map(str::to_owned),
            Self::Open(error) => return error.hint(),
            Self::Read(_) => return None,
        })
    }
}

/// The next step after an error of a layer.
pub(crate) fn layer_hint(error: &LayerError) -> Option<&'static str> {
    match error {
        LayerError::RootReplaced { .. } => Some(
            "move the directory back that the command worked on, or drop the changes: `ringfence discard ID`",
        ),
        LayerError::InUse { .. } => Some("wait until the other process has ended"),
        LayerError::Unknown { .. } => Some("`ringfence changes --all` lists the layers that exist"),
        LayerError::Interrupted { .. } => Some("the next start of `ringfence` ends it"),
        LayerError::Io { .. } => Some("free some space, or look at who owns the file; then try again"),
        LayerError::NotPrivate { .. } => Some("make it yours alone (`chmod 700`), or move it away"),
        LayerError::NoExchange { .. } => {
            Some("copy the files by hand: `ringfence changes ID --patch` shows them")
        }
        _ => None,
    }
}

/// A layer that is locked for this process. It shows what is in it, and lands only through the pipeline.
#[derive(Debug)]
pub struct OpenLayer {
    pub(super) id: TransactionId,
    pub(super) layer: Layer,
}

impl OpenLayer {
    pub fn id(&self) -> &TransactionId {
        &self.id
    }

    pub fn state(&self) -> LayerState {
        self.layer.state()
    }

    pub fn roots(&self) -> Vec<PathBuf> {
        self.layer.roots()
    }

    /// The roots on another file system than the layer.
    pub fn roots_elsewhere(&self) -> Result<Vec<PathBuf>, LayerError> {
        self.layer.roots_elsewhere()
    }
}

impl Runtime {
    fn layer_store(&self) -> Result<Option<LayerStore>, LayerError> {
        let path = directory(&self.setup.state_dir);
        // Looking for layers makes no directory.
        if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Ok(None);
        }
        LayerStore::open(&path).map(Some)
    }

    /// Every layer, the newest first.
    pub fn layers(&self) -> Result<Vec<LayerSummary>, LayerLookupError> {
        Ok(self.layer_store()?.map(|store| store.list()).transpose()?.unwrap_or_default())
    }

    /// The layer that is meant.
    pub fn layer(&self, query: &LayerQuery<'_>) -> Result<LayerSummary, LayerLookupError> {
        let all = self.layers()?;
        let Some(id) = query.id else { return newest(all, query) };
        let mut found: Vec<LayerSummary> =
            all.into_iter().filter(|layer| !id.is_empty() && layer.id.starts_with(id)).collect();
        let layer = match found.len() {
            0 => return Err(LayerLookupError::NotOne { id: id.to_owned() }),
            1 => found.remove(0),
            _ => {
                let candidates = found.into_iter().take(NAMED).map(|layer| layer.id).collect();
                return Err(LayerLookupError::Several { id: id.to_owned(), candidates });
            }
        };
        let id = layer.id.clone();
        match query.wanted {
            wanted if wanted.fits(layer.state) => Ok(layer),
            WantedLayer::Pending => Err(LayerLookupError::Landed { id }),
            _ => Err(LayerLookupError::NotLanded { id }),
        }
    }

    /// Locks a layer. The view of a command whose process died is closed now.
    pub fn open_layer(&self, summary: &LayerSummary) -> Result<OpenLayer, LayerLookupError> {
        let id = || summary.id.clone();
        let transaction =
            TransactionId::parse(&summary.id).ok_or_else(|| LayerLookupError::NotOne { id: id() })?;
        let store = self.layer_store()?.ok_or_else(|| LayerLookupError::NotOne { id: id() })?;
        let mut layer = match store.open_layer(&summary.id) {
            Err(LayerError::InUse { id }) if summary.state == LayerState::Open => {
                return Err(LayerLookupError::Running { id });
            }
            opened => opened?,
        };
        if layer.state() == LayerState::Open {
            layer.close_view()?;
        }
        Ok(OpenLayer { id: transaction, layer })
    }

    /// Locks a layer that is to be discarded. Its roots may be gone.
    pub fn open_layer_to_discard(&self, summary: &LayerSummary) -> Result<OpenLayer, LayerLookupError> {
        let id = || summary.id.clone();
        let transaction =
            TransactionId::parse(&summary.id).ok_or_else(|| LayerLookupError::NotOne { id: id() })?;
        let store = self.layer_store()?.ok_or_else(|| LayerLookupError::NotOne { id: id() })?;
        match store.open_to_discard(&summary.id) {
            Err(LayerError::InUse { id }) if summary.state == LayerState::Open => {
                Err(LayerLookupError::Running { id })
            }
            opened => Ok(OpenLayer { id: transaction, layer: opened? }),
        }
    }

    /// The workspace of the command that worked on a layer.
    pub fn workspace_of(&self, layer: &OpenLayer) -> Result<Option<PathBuf>, LayerLookupError> {
        let records = self.ledger.reader()?.about(layer.id.as_str())?;
        let recorded = records.iter().find_map(|record| match &record.event {
            Event::CallIntended { roots, .. } => roots.first().map(|root| root.path.as_path().to_owned()),
            _ => None,
        });
        // The record may be pruned.
        Ok(recorded.or_else(|| layer.roots().into_iter().next()))
    }

    /// Drops what waits in a layer. The layer goes with it, unless something landed that can be taken back.
    pub fn discard_layer(
        &self,
        opened: OpenLayer,
        by: Principal,
        extent: DiscardExtent,
    ) -> Result<DiscardOutcome, LayerLookupError> {
        let OpenLayer { id, mut layer } = opened;
        let keeps_landed = extent == DiscardExtent::Waiting && layer.has_landed();
        if extent == DiscardExtent::Waiting
            && !keeps_landed
            && let Some(directory) = layer.set_aside()?
        {
            return Err(LayerLookupError::SetAside { id: id.to_string(), directory });
        }
        let is_gone = layer.roots().iter().any(|root| !root.is_dir()) || layer.replaced_root().is_some();
        if keeps_landed && is_gone {
            return Err(LayerLookupError::KeepsLanded { id: id.to_string() });
        }
        // Its roots may be gone.
        let changes = layer.count_waiting().unwrap_or_default();
        // Before it is removed: a record that fails keeps the layer.
        let event = Event::LayerDiscarded { layer: id, actor: by, changes: changes as u64 };
        let _receipt = self.ledger.append(&event)?;
        if keeps_landed {
            layer.drop_waiting()?
        } else {
            layer.discard()?
        }
        Ok(DiscardOutcome { changes, keeps_landed })
    }
}

fn newest(all: Vec<LayerSummary>, query: &LayerQuery<'_>) -> Result<LayerSummary, LayerLookupError> {
    let is_here = |layer: &LayerSummary| layer.roots.iter().any(|root| root == query.workspace);
    let mut here = all.into_iter().filter(|layer| is_here(layer) && query.wanted.fits(layer.state));
    let wanted = match query.wanted {
        // What landed last, also where only a part of its layer did.
        WantedLayer::Landed => {
            here.filter(|layer| layer.landed.is_some()).max_by_key(|layer| (layer.landed, layer.created))
        }
        WantedLayer::Pending | WantedLayer::Any => here.next(),
    };
    let workspace = query.workspace.to_owned();
    wanted.ok_or(match query.wanted {
        WantedLayer::Landed => LayerLookupError::NothingLanded { workspace },
        WantedLayer::Pending | WantedLayer::Any => LayerLookupError::NothingPending { workspace },
    })
}
