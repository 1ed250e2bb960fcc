//! Credentials go into a request: placeholders are replaced, and what was signed with one is signed again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full, Limited};
use ringfence_types::{Layer, Refusal, RefusalCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::answer::Body;
use crate::credential::{Credential, Sight, Signing};
use crate::exchange::{Outgoing, uninjected};
use crate::limits::Limit;
use crate::metered::Metered;
use crate::shared::{FailureKind, Shared, Stopped};
use crate::sigv4::{Head, Payload, Signed, SigningError, encode, payload_hash};
use crate::watched::Watched;

/// A body whose hash is signed must be here before its first byte leaves.
const LARGEST_SIGNED: usize = 32 << 20;
/// Room is counted in these.
const UNIT: usize = 1 << 10;
/// How many requests are signed at the same time.
pub(crate) const THREADS: usize = 2;
/// How long a request waits for others to be sent that were signed before it.
const PATIENCE: Duration = Duration::from_secs(10);

/// What signing may take of this process.
#[derive(Debug)]
pub(crate) struct Signers {
    room: Arc<Semaphore>,
    most: usize,
    threads: Arc<Semaphore>,
}

impl Signers {
    pub(crate) fn new(bytes: usize) -> Self {
        let most = bytes / UNIT;
        Self { room: Arc::new(Semaphore::new(most)), most, threads: Arc::new(Semaphore::new(THREADS)) }
    }

    /// Room for a body of so many bytes, until what is returned is dropped. `None`: there is none.
    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT).max(1);
        let wanted = u32::try_from(units).ok().filter(|_| units <= self.most)?;
        timeout(PATIENCE, Arc::clone(&self.room).acquire_many_owned(wanted)).await.ok()?.ok()
    }

    /// Hashes and signatures of what somebody inside has sent take their time, and none of that of others.
    async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let place = Arc::clone(&self.threads).acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        done.await.ok()
    }
}

/// The last changes to a request.
pub(crate) async fn apply(
    mut outgoing: Outgoing,
    body: Metered<Watched>,
    sight: &Arc<Sight>,
    shared: &Shared,
) -> Result<(Outgoing, Body), Stopped> {
    let signed = match sight.signings.is_empty() {
        true => None,
        false => Signed::of(outgoing.head()).map_err(refused)?,
    };
    let Some(again) = signed.and_then(|signed| Again::of(signed, sight)) else {
        outgoing.prepare(sight);
        outgoing.inject(sight).map_err(|error| uninjected(&error))?;
        return Ok((outgoing, body.boxed()));
    };
    let (payload, body) = again.payload(&outgoing, body, shared).await?;
    let signed = shared.signers.work(move || again.sign(outgoing, &payload)).await;
    let outgoing =
        signed.ok_or_else(|| Stopped::failed(FailureKind::Peer, "the request was not signed"))??;
    Ok((outgoing, body))
}

/// A request that is to be signed again.
struct Again {
    signed: Signed,
    signing: Signing,
    credential: Arc<Credential>,
    sight: Arc<Sight>,
}

impl Again {
    /// `None`: it was signed with a key that is none of ours.
    fn of(signed: Signed, sight: &Arc<Sight>) -> Option<Self> {
        let known = sight.signings.iter().find(|(signing, _)| signing.id_inside == signed.id)?;
        let (signing, credential) = known.clone();
        Some(Self { signed, signing, credential, sight: Arc::clone(sight) })
    }

    async fn payload(
        &self,
        outgoing: &Outgoing,
        body: Metered<Watched>,
        shared: &Shared,
    ) -> Result<(String, Body), Stopped> {
        if let Payload::Given(hash) = &self.signed.payload {
            return Ok((hash.clone(), body.boxed()));
        }
        let length = length(outgoing, &body);
        if length.is_some_and(|length| length > LARGEST_SIGNED) {
            return Err(too_large(&"too much"));
        }
        let room = shared.signers.room(length.unwrap_or(LARGEST_SIGNED)).await;
        let room = room.ok_or_else(|| Limit::SignedBytes.refusal(&shared.settings.limits))?;
        let collected = Limited::new(body, length.unwrap_or(LARGEST_SIGNED)).collect().await;
        let bytes: Bytes = collected.map_err(|error| too_large(&error))?.to_bytes();
        let hashed = bytes.clone();
        let hash = shared.signers.work(move || payload_hash(&hashed)).await;
        let hash = hash.ok_or_else(|| Stopped::failed(FailureKind::Peer, "the body was not hashed"))?;
        let held = Full::new(bytes).map_frame(move |frame| {
            // The room is taken for as long as there is a body to send.
            let _taken = &room;
            frame
        });
        Ok((hash, held.map_err(|never| match never {}).boxed()))
    }

    fn sign(self, mut outgoing: Outgoing, payload: &str) -> Result<Outgoing, Stopped> {
        let Self { signed, signing, credential, sight } = self;
        let inside = credential.placeholder.as_ref().map(|text| text.as_bytes()).unwrap_or_default();
        let spelling = signed.check(outgoing.head(), inside, payload).map_err(refused)?;
        if signed.is_in_query() {
            outgoing.query = outgoing.query.take().map(|query| signed.query_with_id(&query, &signing.id));
        } else {
            // It names the id that is known inside, and is made anew.
            outgoing.headers.remove(AUTHORIZATION);
        }
        outgoing.prepare(&sight);
        outgoing.inject(&sight).map_err(|error| uninjected(&error))?;
        let signature =
            signed.signature(outgoing.head(), spelling, &credential.value, payload).map_err(refused)?;
        if signed.is_in_query() {
            let query = outgoing.query.take().unwrap_or_default();
            outgoing.query = Some(format!("{query}&X-Amz-Signature={}", encode(signature.as_bytes())));
        } else {
            let value = signed.authorization(&signing.id, &signature).map_err(refused)?;
            outgoing.headers.insert(AUTHORIZATION, value);
        }
        Ok(outgoing)
    }
}

/// How much will come, where that is known.
fn length(outgoing: &Outgoing, body: &Metered<Watched>) -> Option<usize> {
    let declared = || outgoing.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    body.size_hint().exact().or_else(declared).and_then(|length| usize::try_from(length).ok())
}

fn too_large(error: &dyn std::fmt::Display) -> Stopped {
    let what = format!("its signed body is larger than {LARGEST_SIGNED} bytes or broke off: {error}");
    Stopped::failed(FailureKind::Peer, what)
}

impl Outgoing {
    fn head(&self) -> Head<'_> {
        Head {
            method: self.method.as_str(),
            path: &self.path,
            query: self.query.as_deref().unwrap_or_default(),
            host: &self.host,
            headers: &self.headers,
        }
    }
}

fn refused(error: SigningError) -> Stopped {
    Stopped::Refused(Refusal {
        code: RefusalCode::Secret,
        layer: Layer::Floor,
        rule: "network.signing".to_owned(),
        message: format!("the request cannot be signed again: {error}"),
        hint: None,
    })
}
