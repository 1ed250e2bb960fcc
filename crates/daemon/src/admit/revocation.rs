//! Closes every connection and stream whose credential was revoked, rotated or has expired, on all transports.
//!
//! A transport takes a [`CredentialLease`] for each long request, and ends the request when
//! [`CredentialLease::revoked`] returns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_api::ApiError;
use ringfence_runtime::identity::{CredentialId, Identities, IdentityError, KnownIdentity, StoreMoment};
use tokio::sync::{Notify, watch};

use crate::admit::authenticate::authentication_failed;
use crate::errors::unavailable;
use crate::server::Daemon;

/// Poll interval for revocations by other processes and for expiry. Only runs while a lease is held.
const ROUND: Duration = Duration::from_millis(100);

/// All leases, by credential.
#[derive(Debug, Default)]
pub(crate) struct RevocationWatch {
    held: Mutex<HashMap<CredentialId, Vec<WatchedCredential>>>,
    more: Notify,
}

/// The leases of one secret of one credential.
#[derive(Debug)]
struct WatchedCredential {
    known: KnownIdentity,
    /// The store generation at which the credential was last valid.
    good_at: Option<u64>,
    lost: watch::Sender<Option<ApiError>>,
}

impl WatchedCredential {
    fn needs_check(&self, moment: StoreMoment) -> bool {
        self.good_at != Some(moment.generation) || self.known.expires_at.is_some_and(|end| end <= moment.now)
    }
}

/// The right to keep a request open while its credential is valid.
#[derive(Clone, Debug)]
pub(crate) struct CredentialLease(Option<watch::Receiver<Option<ApiError>>>);

impl CredentialLease {
    /// For the owner of the socket, which has no token to revoke.
    pub(crate) fn of_owner() -> Self {
        Self(None)
    }

    /// Returns the reason once the credential is invalid.
    pub(crate) async fn revoked(&mut self) -> ApiError {
        if let Some(lost) = &mut self.0
            && let Ok(why) = lost.wait_for(Option::is_some).await
            && let Some(why) = why.clone()
        {
            return why;
        }
        std::future::pending().await
    }
}

impl RevocationWatch {
    /// Watches a credential. The next round checks it in any case, because it may have changed since authentication.
    pub(crate) fn watch(&self, known: &KnownIdentity) -> CredentialLease {
        let mut held = self.held();
        let of_credential = held.entry(known.id.clone()).or_default();
        if let Some(same) = of_credential.iter().find(|held| held.known.is_same_visitor(known)) {
            return CredentialLease(Some(same.lost.subscribe()));
        }
        let (lost, receiver) = watch::channel(None);
        of_credential.push(WatchedCredential { known: known.clone(), good_at: None, lost });
        drop(held);
        self.more.notify_one();
        CredentialLease(Some(receiver))
    }

    /// Checks all leases. When this returns, every lease of an invalid credential is revoked.
    pub(crate) fn check(&self, identities: &Identities) {
        if let Err(error) = self.judge(identities) {
            // A credential that cannot be checked counts as revoked.
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
                    gone.for_each(|held| tell(&held, &authentication_failed(&denied)));
                }
            }
        }
        Ok(())
    }

    fn due(&self, moment: StoreMoment) -> Vec<KnownIdentity> {
        let mut held = self.held();
        held.retain(|_, all| {
            all.retain(|held| held.lost.receiver_count() > 0);
            !all.is_empty()
        });
        held.values()
            .flatten()
            .filter(|held| held.needs_check(moment))
            .map(|held| held.known.clone())
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.held().is_empty()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<CredentialId, Vec<WatchedCredential>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(held: &WatchedCredential, why: &ApiError) {
    held.lost.send_replace(Some(why.clone()));
}

/// Runs as long as the daemon. Methods that change credentials call [`RevocationWatch::check`] themselves.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    loop {
        if daemon.standings.is_empty() {
            daemon.standings.more.notified().await;
        }
        let all = Arc::clone(&daemon);
        let looked = tokio::task::spawn_blocking(move || all.standings.check(&all.identities));
        if let Err(error) = looked.await {
            tracing::error!(error = %error, "token revocation check failed; retrying");
        }
        tokio::time::sleep(ROUND).await;
    }
}
