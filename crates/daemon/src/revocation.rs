//! Who was let in and would not be any more.
//!
//! A request is judged when it comes. What stays open after it, a stream or a socket, asks [`cut`] when to end.

use std::sync::Arc;
use std::time::Duration;

use ringfence_runtime::identity::{CredentialId, IdentityError};
use tokio::sync::watch;

use crate::server::Daemon;

/// How often it is looked whether any credential was changed, also by other processes.
const LOOK: Duration = Duration::from_millis(200);
/// How often a credential is looked at that nobody has changed: its time may be over.
const EXPIRY: Duration = Duration::from_secs(5);

/// The number of the last change to any credential.
#[derive(Debug)]
pub(crate) struct Revocations {
    generation: watch::Sender<u64>,
}

impl Revocations {
    pub(crate) fn new(generation: u64) -> Self {
        Self { generation: watch::Sender::new(generation) }
    }
}

/// Follows the store of identities for as long as the daemon lives.
pub(crate) async fn follow(daemon: Arc<Daemon>) {
    let mut round = tokio::time::interval(LOOK);
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let _at = round.tick().await;
        let shared = Arc::clone(&daemon);
        let looked = tokio::task::spawn_blocking(move || shared.identities.generation()).await;
        match looked {
            Ok(Ok(now)) => {
                let _changed = daemon.revocations.generation.send_if_modified(|known| {
                    let changed = *known != now;
                    *known = now;
                    changed
                });
            }
            Ok(Err(error)) => tracing::warn!(why = %error, "the identities cannot be looked at"),
            Err(error) => tracing::warn!(why = %error, "the identities were not looked at"),
        }
    }
}

/// Returns when the credential is worth nothing any more, or when nobody can say. Never for the owner of the socket, who has
/// none.
pub(crate) async fn cut(daemon: Arc<Daemon>, id: Option<CredentialId>) {
    let Some(id) = id else { return std::future::pending().await };
    let mut generation = daemon.revocations.generation.subscribe();
    // From before it was let in: a change in between is looked at.
    generation.mark_changed();
    loop {
        // Whether something changed or time has passed, the same is looked at.
        let _late = tokio::time::timeout(EXPIRY, generation.changed()).await;
        let (shared, id) = (Arc::clone(&daemon), id.clone());
        let good = tokio::task::spawn_blocking(move || shared.identities.is_good(&id)).await;
        if !is_good(good) {
            return;
        }
    }
}

fn is_good(looked: Result<Result<bool, IdentityError>, tokio::task::JoinError>) -> bool {
    match looked {
        Ok(Ok(good)) => good,
        Ok(Err(error)) => {
            tracing::warn!(why = %error, "a credential cannot be looked at");
            false
        }
        Err(error) => {
            tracing::warn!(why = %error, "a credential was not looked at");
            false
        }
    }
}
