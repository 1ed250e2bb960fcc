//! The layer of a session whose commands write into a view.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_layer::{Layer, LayerError, LayerStore, PruneLimits};
use ringfence_sandbox::{LayerMountPaths, LayerSource};
use ringfence_types::TransactionId;

use super::directory;
use crate::pipeline::{Settled, chain};
use crate::session::AgentSession;

/// How long an undo is possible.
const LANDED_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What layers may take before the oldest landed ones go.
const BYTES: u64 = 8 << 30;

/// Where the commands of a session write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CommandWrites {
    /// Into the roots.
    #[default]
    Direct,
    /// Into a view, one layer for each command.
    Layered,
}

/// The layer of the command that runs.
#[derive(Debug)]
pub(crate) struct SessionLayer {
    directory: PathBuf,
    /// `None`: its view is closed.
    layer: Mutex<Option<Layer>>,
}

impl SessionLayer {
    /// Where everything that the command writes is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn layer(&self) -> MutexGuard<'_, Option<Layer>> {
        self.layer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LayerSource for SessionLayer {
    fn mount_of(&self, root: &Path) -> io::Result<LayerMountPaths> {
        let mut layer = self.layer();
        let layer = layer.as_mut().ok_or_else(|| io::Error::other("the view of the layer is closed"))?;
        let mount = layer.add_root(root).map_err(io::Error::other)?;
        Ok(LayerMountPaths { upper: mount.upper, work: mount.work })
    }
}

impl AgentSession<'_> {
    /// From now on commands write into a view of the writable roots, and their changes wait in a layer that has the id of the
    /// transaction. Each command has a sandbox of its own.
    pub fn set_layered(&mut self) {
        self.writes = CommandWrites::Layered;
    }

    /// Makes the layer of the command that is about to run.
    pub(crate) fn begin_layer(&mut self, transaction: &TransactionId) -> Result<(), LayerError> {
        if self.writes == CommandWrites::Direct {
            return Ok(());
        }
        let layers = directory(&self.runtime.setup.state_dir);
        let store = LayerStore::open(&layers)?;
        let limits = PruneLimits { landed_age: Some(LANDED_AGE), pending_age: None, bytes: Some(BYTES) };
        if let Err(error) = store.prune(&limits) {
            tracing::warn!(error = %chain(&error), "cannot remove old layers");
        }
        let layer = store.create(transaction.as_str())?;
        self.layer = Some(Arc::new(SessionLayer {
            directory: layers.join(transaction.as_str()),
            layer: Mutex::new(Some(layer)),
        }));
        Ok(())
    }

    pub(crate) fn layer_source(&self) -> Option<Arc<dyn LayerSource>> {
        self.layer.clone().map(|layer| layer as Arc<dyn LayerSource>)
    }

    /// Ends the sandbox with the view in it, and keeps the layer if something waits in it.
    pub(crate) fn end_layer(&mut self, mut settled: Settled) -> Settled {
        let Some(layer) = self.layer.take() else { return settled };
        // Nothing may write into the view any more, and nothing of it may stay in the next command's.
        self.end_sandbox();
        let Some(layer) = layer.layer().take() else { return settled };
        if let Err(error) = closed(layer) {
            let why = format!(
                "the changes of the command are in its layer, which is not closed: {}",
                chain(&error)
            );
            settled.notice =
                Some(settled.notice.map_or_else(|| why.clone(), |note| format!("{note}; {why}")));
        }
        settled
    }
}

fn closed(mut layer: Layer) -> Result<(), LayerError> {
    if layer.roots().is_empty() {
        return layer.discard();
    }
    layer.close_view()?;
    if layer.changes()?.is_empty() { layer.discard() } else { Ok(()) }
}
