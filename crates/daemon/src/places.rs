//! How many calls are under way at once, of everybody together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence_api::ApiError;

use crate::failure::exhausted;

/// Places for calls. Each call waits for a person, a disk, a server or a command, and has a thread while it does.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// One of the calls that are under way at once.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// Nobody waits for a place: whoever gets none is told so.
    pub(crate) fn take(&self) -> Result<Place, ApiError> {
        let before = self.taken.fetch_add(1, Ordering::SeqCst);
        let place = Place(Arc::clone(&self.taken));
        if before >= self.most {
            drop(place);
            return Err(exhausted(format!("{before} calls are under way")));
        }
        Ok(place)
    }

    pub(crate) fn are_free(&self) -> bool {
        self.taken.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _before = self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
