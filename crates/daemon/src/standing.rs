//! Whoever is let in once may stay only as long as they would be let in again: what a revoked, rotated or expired token
//! holds open is cut, on every transport.
//!
//! A transport takes a [`Standing`] with each request that lasts, and ends it when [`Standing::lost`] says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_api::ApiError;
use ringfence_runtime::identity::{CredentialId, Identities, IdentityError, Known, Moment};
use tokio::sync::{Notify, watch};

use crate::authenticate::not_let_in;
use crate::failure::unavailable;
use crate::server::Daemon;

/// How often it is looked at what other processes changed, and whether a time is over, while anybody holds anything.
const ROUND: Duration = Duration::from_millis(100);

/// Everybody who holds something open by the right of a token.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    held: Mutex<HashMap<CredentialId, Vec<Held>>>,
    more: Notify,
}

/// All that came with one secret of one credential.
#[derive(Debug)]
struct Held {
    known: Known,
    /// The generation that it was last found good at.
    good_at: Option<u64>,
    lost: watch::Sender<Option<ApiError>>,
}

impl Held {
    fn is_due(&self, moment: Moment) -> bool {
        self.good_at != Some(moment.generation) || self.known.expires.is_some_and(|end| end <= moment.now)
    }
}

/// The right of somebody to what they hold open.
#[derive(Clone, Debug)]
pub(crate) struct Standing(Option<watch::Receiver<Option<ApiError>>>);

impl Standing {
    /// Of the owner of the socket, who has no token that could end.
    pub(crate) fn of_owner() -> Self {
        Self(None)
    }

    /// Why it is over, once it is.
    pub(crate) async fn lost(&mut self) -> ApiError {
        if let Some(lost) = &mut self.0
            && let Ok(why) = lost.wait_for(Option::is_some).await
            && let Some(why) = why.clone()
        {
            return why;
        }
        std::future::pending().await
    }
}

impl Standings {
    /// From now on `known` is looked after. It was let in before, so the next round looks at it in any case.
    pub(crate) fn hold(&self, known: &Known) -> Standing {
        let mut held = self.held();
        let of_credential = held.entry(known.id.clone()).or_default();
        if let Some(same) = of_credential.iter().find(|held| held.known.is_same_visitor(known)) {
            return Standing(Some(same.lost.subscribe()));
        }
        let (lost, receiver) = watch::channel(None);
        of_credential.push(Held { known: known.clone(), good_at: None, lost });
        drop(held);
        self.more.notify_one();
        Standing(Some(receiver))
    }

    /// Cuts what is not good any more. When this returns everybody who lost their right has been told.
    pub(crate) fn look(&self, identities: &Identities) {
        if let Err(error) = self.judge(identities) {
            // Whoever cannot be judged is not let in either.
            let why = unavailable(&error);
            self.held().drain().flat_map(|(_, all)| all).for_each(|held| tell(&held, &why));
        }
    }

    fn judge(&self, identities: &Identities) -> Result<(), IdentityError> {
        let moment = identities.moment()?;
        for known in self.due(moment) {
            let denied = identities.standing(&known)?;
            let mut held = self.held();
            let Some(of_credential) = held.get_mut(&known.id) else { continue };
            match denied {
                None => {
                    for held in of_credential.iter_mut().filter(|held| held.known.is_same_visitor(&known)) {
                        held.good_at = Some(moment.generation);
                    }
                }
                Some(denied) => {
                    let gone = of_credential.extract_if(.., |held| held.known.is_same_visitor(&known));
                    gone.for_each(|held| tell(&held, &not_let_in(&denied)));
                }
            }
        }
        Ok(())
    }

    fn due(&self, moment: Moment) -> Vec<Known> {
        let mut held = self.held();
        held.retain(|_, all| {
            all.retain(|held| held.lost.receiver_count() > 0);
            !all.is_empty()
        });
        held.values().flatten().filter(|held| held.is_due(moment)).map(|held| held.known.clone()).collect()
    }

    fn is_empty(&self) -> bool {
        self.held().is_empty()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<CredentialId, Vec<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(held: &Held, why: &ApiError) {
    held.lost.send_replace(Some(why.clone()));
}

/// Looks for as long as the daemon lives. What the daemon itself changes is looked at by whoever changes it.
pub(crate) async fn look_after(daemon: Arc<Daemon>) {
    loop {
        if daemon.standings.is_empty() {
            daemon.standings.more.notified().await;
        }
        let all = Arc::clone(&daemon);
        let looked = tokio::task::spawn_blocking(move || all.standings.look(&all.identities));
        if let Err(error) = looked.await {
            tracing::error!(why = %error, "nobody looks whether tokens are still good");
        }
        tokio::time::sleep(ROUND).await;
    }
}
