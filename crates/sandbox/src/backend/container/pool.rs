//! Containers that are made before they are needed. They belong to this process and end with it.
//!
//! What waits is a container with our launcher in it and nothing else: no command, no secret, no plan. Which one may be used
//! is decided when it is needed, by all that it was made from.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{ContainerMaker, ContainerTemplate, ReadyContainer, template};
use crate::sandbox::SandboxStartError;
use crate::spec::SandboxSpec;
use crate::survey::SurveyRules;

/// What containers have in common that can stand for each other: all that they were made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPoolKey(String);

#[derive(Clone, Debug)]
pub struct ContainerPool {
    maker: Arc<dyn ContainerMaker>,
    state: Arc<Mutex<ContainerPoolState>>,
}

#[derive(Debug, Default)]
struct ContainerPoolState {
    waiting: Vec<ReadyContainer>,
    making: Vec<ContainerPoolTask>,
}

/// A thread that makes one.
#[derive(Debug)]
struct ContainerPoolTask {
    config: String,
    thread: JoinHandle<()>,
}

impl ContainerPool {
    /// An empty pool, of containers that `maker` makes.
    pub fn new(maker: impl ContainerMaker + 'static) -> Self {
        Self { maker: Arc::new(maker), state: Arc::default() }
    }

    /// Sees to it that `count` containers wait that are what `spec` asks for. Returns before they do.
    pub fn keep(
        &self,
        spec: &SandboxSpec,
        rules: &dyn SurveyRules,
        count: usize,
    ) -> Result<ContainerPoolKey, SandboxStartError> {
        let template = template(spec, rules)?;
        let mut shelf = self.shelf();
        shelf.making.retain(|making| !making.thread.is_finished());
        let waiting =
            shelf.waiting.iter().filter(|ready| ready.config == template.config && ready.is_alive());
        let making = shelf.making.iter().filter(|making| making.config == template.config);
        for _missing in waiting.count() + making.count()..count {
            let (config, template) = (template.config.clone(), template.clone());
            let (maker, shelf_again) = (Arc::clone(&self.maker), Arc::downgrade(&self.state));
            let thread = thread::Builder::new().name("pool".to_owned());
            let thread = thread
                .spawn(move || add(ReadyContainer::make(&template, &*maker), &shelf_again))
                .map_err(SandboxStartError::Spawn)?;
            shelf.making.push(ContainerPoolTask { config, thread });
        }
        Ok(ContainerPoolKey(template.config))
    }

    /// Removes what waits of this kind, and what is being made as soon as it is there. When this returns nothing of it is left.
    pub fn forget(&self, ContainerPoolKey(config): &ContainerPoolKey) {
        let (making, waiting): (Vec<ContainerPoolTask>, Vec<ReadyContainer>) = {
            let mut shelf = self.shelf();
            let making = shelf.making.extract_if(.., |making| making.config == *config).collect();
            let waiting = shelf.waiting.extract_if(.., |ready| ready.config == *config).collect();
            (making, waiting)
        };
        drop(waiting);
        for making in making {
            // The thread removes the container that it made: its entry is gone. A thread that panicked has made none.
            let _ended = making.thread.join();
        }
    }

    /// Removes what has waited longer than this, and what has died meanwhile.
    pub fn prune(&self, oldest: Duration) {
        let old = |ready: &mut ReadyContainer| ready.made.elapsed() > oldest || !ready.is_alive();
        // An engine takes its time to remove one: not while others wait for the pool.
        let gone: Vec<ReadyContainer> = self.shelf().waiting.extract_if(.., old).collect();
        drop(gone);
    }

    /// How many wait now, for whatever session.
    pub fn waiting(&self) -> usize {
        self.shelf().waiting.len()
    }

    /// The one that has waited longest.
    pub(super) fn take(&self, config: &str) -> Option<ReadyContainer> {
        let mut shelf = self.shelf();
        let found = shelf.waiting.iter().position(|ready| ready.config == config && ready.is_alive())?;
        Some(shelf.waiting.remove(found))
    }

    /// A new one, which does not wait.
    pub(super) fn make(&self, template: &ContainerTemplate) -> Result<ReadyContainer, SandboxStartError> {
        ReadyContainer::make(template, &*self.maker)
    }

    fn shelf(&self) -> MutexGuard<'_, ContainerPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that cannot be made is missing when it is needed, and that is where it is told why.
fn add(made: Result<ReadyContainer, SandboxStartError>, shelf: &Weak<Mutex<ContainerPoolState>>) {
    match made {
        Ok(ready) => {
            let Some(shelf) = shelf.upgrade() else { return };
            let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            if shelf.making.iter().any(|making| making.config == ready.config) {
                shelf.waiting.push(ready);
            }
        }
        Err(error) => tracing::warn!(error = %error, "cannot create a warm container"),
    }
}

impl Drop for ContainerPoolState {
    /// A thread that still makes a container removes it itself, because the pool is gone.
    fn drop(&mut self) {
        for making in self.making.drain(..) {
            if making.thread.thread().id() != thread::current().id() {
                // A thread that panicked has made nothing.
                let _ended = making.thread.join();
            }
        }
    }
}
