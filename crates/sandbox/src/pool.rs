//! Containers that are made before they are needed. They belong to this process and end with it.
//!
//! What waits is a container with our launcher in it and nothing else: no command, no secret, no plan. Which one may be used
//! is decided when it is needed, by all that it was made from.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::backend::container::{self, Draft, Vessel};
use crate::session::StartError;
use crate::spec::Spec;
use crate::survey::Rules;

/// What containers have in common that can stand for each other: all that they were made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind(String);

#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Shelf>>);

#[derive(Debug, Default)]
struct Shelf {
    waiting: Vec<Vessel>,
    making: Vec<Making>,
}

/// A thread that makes one.
#[derive(Debug)]
struct Making {
    config: String,
    thread: JoinHandle<()>,
}

impl Pool {
    /// Sees to it that `count` containers wait that are what `spec` asks for. Returns before they do.
    pub fn keep(&self, spec: &Spec, rules: &dyn Rules, count: usize) -> Result<Kind, StartError> {
        let draft = container::draft(spec, rules)?;
        let mut shelf = self.shelf();
        shelf.making.retain(|making| !making.thread.is_finished());
        let waiting =
            shelf.waiting.iter().filter(|vessel| vessel.config == draft.config && vessel.is_alive());
        let making = shelf.making.iter().filter(|making| making.config == draft.config);
        for _missing in waiting.count() + making.count()..count {
            let (config, draft, shelf_again) = (draft.config.clone(), draft.clone(), Arc::downgrade(&self.0));
            let thread = thread::Builder::new().name("pool".to_owned());
            let thread = thread.spawn(move || add(&draft, &shelf_again)).map_err(StartError::Spawn)?;
            shelf.making.push(Making { config, thread });
        }
        Ok(Kind(draft.config))
    }

    /// Removes what waits of this kind, and what is being made as soon as it is there. When this returns nothing of it is left.
    pub fn forget(&self, Kind(config): &Kind) {
        let (making, waiting): (Vec<Making>, Vec<Vessel>) = {
            let mut shelf = self.shelf();
            let making = shelf.making.extract_if(.., |making| making.config == *config).collect();
            let waiting = shelf.waiting.extract_if(.., |vessel| vessel.config == *config).collect();
            (making, waiting)
        };
        drop(waiting);
        for making in making {
            // It finds nobody to give it to. A thread that panicked has made nothing.
            let _ended = making.thread.join();
        }
    }

    /// Removes what has waited longer than this, and what has died meanwhile.
    pub fn prune(&self, oldest: Duration) {
        let old = |vessel: &mut Vessel| vessel.made.elapsed() > oldest || !vessel.is_alive();
        // An engine takes its time to remove one: not while others wait for the pool.
        let gone: Vec<Vessel> = self.shelf().waiting.extract_if(.., old).collect();
        drop(gone);
    }

    /// How many wait now, for whatever session.
    pub fn waiting(&self) -> usize {
        self.shelf().waiting.len()
    }

    /// The one that has waited longest.
    pub(crate) fn take(&self, config: &str) -> Option<Vessel> {
        let mut shelf = self.shelf();
        let found = shelf.waiting.iter().position(|vessel| vessel.config == config && vessel.is_alive())?;
        Some(shelf.waiting.remove(found))
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that cannot be made is missing when it is needed, and that is where it is told why.
fn add(draft: &Draft, shelf: &Weak<Mutex<Shelf>>) {
    match Vessel::make(draft) {
        Ok(vessel) => {
            let Some(shelf) = shelf.upgrade() else { return };
            let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            if shelf.making.iter().any(|making| making.config == vessel.config) {
                shelf.waiting.push(vessel);
            }
        }
        Err(error) => tracing::warn!(why = %error, "no container for the pool"),
    }
}

impl Drop for Shelf {
    /// What is being made is removed by its thread, which finds nobody to give it to.
    fn drop(&mut self) {
        for making in self.making.drain(..) {
            if making.thread.thread().id() != thread::current().id() {
                // A thread that panicked has made nothing.
                let _ended = making.thread.join();
            }
        }
    }
}
