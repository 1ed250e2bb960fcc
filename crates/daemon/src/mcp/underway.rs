//! Calls of tools that are under way, for whoever cancels them with another request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_types::SessionId;
use tokio::sync::Notify;

/// The session, the token (as a digest), the client, and the id it gave to its request.
pub(super) type Key = (SessionId, Option<Vec<u8>>, String, String);

/// As many as there are calls; nothing stays of one that is over.
#[derive(Debug, Default)]
pub(crate) struct Underway(Arc<Mutex<HashMap<Key, Arc<Notify>>>>);

/// A call from its beginning to its end.
#[derive(Debug)]
pub(super) struct Begun {
    all: Arc<Mutex<HashMap<Key, Arc<Notify>>>>,
    key: Key,
    cancel: Arc<Notify>,
}

impl Underway {
    pub(super) fn begin(&self, key: Key) -> Begun {
        let cancel = Arc::new(Notify::new());
        let _same_id = locked(&self.0).insert(key.clone(), Arc::clone(&cancel));
        Begun { all: Arc::clone(&self.0), key, cancel }
    }

    pub(super) fn cancel(&self, key: &Key) {
        if let Some(cancel) = locked(&self.0).get(key) {
            cancel.notify_one();
        }
    }
}

impl Begun {
    pub(super) async fn cancelled(&self) {
        self.cancel.notified().await;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut all = locked(&self.all);
        // A client may have given the id to another call meanwhile.
        if all.get(&self.key).is_some_and(|own| Arc::ptr_eq(own, &self.cancel)) {
            let _over = all.remove(&self.key);
        }
    }
}

fn locked(all: &Mutex<HashMap<Key, Arc<Notify>>>) -> MutexGuard<'_, HashMap<Key, Arc<Notify>>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}
