//! In-flight tool calls, so that another request can cancel them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_types::SessionId;
use tokio::sync::Notify;

/// Session, digest of the token, client id, and the client's request id.
pub(super) type InflightKey = (SessionId, Option<Vec<u8>>, String, String);

/// The map has one entry per running call.
#[derive(Debug, Default)]
pub(crate) struct InflightCalls(Arc<Mutex<HashMap<InflightKey, Arc<Notify>>>>);

/// A running call. Its entry is removed when this is dropped.
#[derive(Debug)]
pub(super) struct InflightGuard {
    all: Arc<Mutex<HashMap<InflightKey, Arc<Notify>>>>,
    key: InflightKey,
    cancel: Arc<Notify>,
}

impl InflightCalls {
    pub(super) fn begin(&self, key: InflightKey) -> InflightGuard {
        let cancel = Arc::new(Notify::new());
        let _same_id = locked(&self.0).insert(key.clone(), Arc::clone(&cancel));
        InflightGuard { all: Arc::clone(&self.0), key, cancel }
    }

    pub(super) fn cancel(&self, key: &InflightKey) {
        if let Some(cancel) = locked(&self.0).get(key) {
            cancel.notify_one();
        }
    }
}

impl InflightGuard {
    pub(super) async fn cancelled(&self) {
        self.cancel.notified().await;
    }
}

impl Drop for InflightGuard {
    fn drop(&mut self) {
        let mut all = locked(&self.all);
        // The client may have reused the id for another call.
        if all.get(&self.key).is_some_and(|own| Arc::ptr_eq(own, &self.cancel)) {
            let _over = all.remove(&self.key);
        }
    }
}

fn locked(
    all: &Mutex<HashMap<InflightKey, Arc<Notify>>>,
) -> MutexGuard<'_, HashMap<InflightKey, Arc<Notify>>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}
