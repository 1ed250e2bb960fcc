//! Credentials of a request: injects secrets, and signs again what was signed with a placeholder.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full, Limited};
use ringfence_types::{PolicyLayer, Refusal, RefusalCode, RuleId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::credential::{AwsSigningKey, CredentialView, SessionCredential};
use crate::error_response::ProxyBody;
use crate::exchange::{OutgoingRequest, uninjected};
use crate::limits::FlowLimit;
use crate::live_flow::{FlowStop, ProxyState, UpstreamFailureKind};
use crate::metered_body::MeteredBody;
use crate::scanned_body::ScannedBody;
use crate::sigv4::{SigV4Claim, SigV4Payload, SignedHead, SigningError, encode, payload_hash};

/// Largest body with a signed hash. It is buffered whole before its first byte is sent.
const LARGEST_SIGNED: usize = 32 << 20;
/// Unit of the memory budget.
const UNIT: usize = 1 << 10;
/// Threads that sign.
pub(crate) const THREADS: usize = 2;
/// How long a request waits for memory that other signed requests hold.
const PATIENCE: Duration = Duration::from_secs(10);

/// Limits of signing in this process.
#[derive(Debug)]
pub(crate) struct SignerPool {
    room: Arc<Semaphore>,
    most: usize,
    threads: Arc<Semaphore>,
}

impl SignerPool {
    pub(crate) fn new(bytes: usize) -> Self {
        let most = bytes / UNIT;
        Self { room: Arc::new(Semaphore::new(most)), most, threads: Arc::new(Semaphore::new(THREADS)) }
    }

    /// Reserves memory for a body; `None`: the budget stays exhausted.
    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT).max(1);
        let wanted = u32::try_from(units).ok().filter(|_| units <= self.most)?;
        timeout(PATIENCE, Arc::clone(&self.room).acquire_many_owned(wanted)).await.ok()?.ok()
    }

    /// Hashes and signs on the signer threads, so that large bodies do not delay other flows.
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

/// Applies credentials to a request.
pub(crate) async fn apply(
    mut outgoing: OutgoingRequest,
    body: MeteredBody<ScannedBody>,
    sight: &Arc<CredentialView>,
    shared: &ProxyState,
) -> Result<(OutgoingRequest, ProxyBody), FlowStop> {
    let signed = match sight.signings.is_empty() {
        true => None,
        false => SigV4Claim::of(outgoing.head()).map_err(refused)?,
    };
    let Some(again) = signed.and_then(|signed| ResignRequest::of(signed, sight)) else {
        outgoing.prepare(sight);
        outgoing.inject(sight).map_err(|error| uninjected(&error))?;
        return Ok((outgoing, body.boxed()));
    };
    let (payload, body) = again.payload(&outgoing, body, shared).await?;
    let signed = shared.signers.work(move || again.sign(outgoing, &payload)).await;
    let outgoing =
        signed.ok_or_else(|| FlowStop::failed(UpstreamFailureKind::Peer, "the request was not signed"))??;
    Ok((outgoing, body))
}

/// A request that has to be signed again.
struct ResignRequest {
    signed: SigV4Claim,
    signing: AwsSigningKey,
    credential: Arc<SessionCredential>,
    sight: Arc<CredentialView>,
}

impl ResignRequest {
    /// `None`: the signing key is not one of the session's.
    fn of(signed: SigV4Claim, sight: &Arc<CredentialView>) -> Option<Self> {
        let known = sight.signings.iter().find(|(signing, _)| signing.id_inside == signed.id)?;
        let (signing, credential) = known.clone();
        Some(Self { signed, signing, credential, sight: Arc::clone(sight) })
    }

    async fn payload(
        &self,
        outgoing: &OutgoingRequest,
        body: MeteredBody<ScannedBody>,
        shared: &ProxyState,
    ) -> Result<(String, ProxyBody), FlowStop> {
        if let SigV4Payload::Given(hash) = &self.signed.payload {
            return Ok((hash.clone(), body.boxed()));
        }
        let length = length(outgoing, &body);
        if length.is_some_and(|length| length > LARGEST_SIGNED) {
            return Err(too_large(&"too much"));
        }
        let room = shared.signers.room(length.unwrap_or(LARGEST_SIGNED)).await;
        let room = room.ok_or_else(|| FlowLimit::SignedBytes.refusal(&shared.settings.limits))?;
        let collected = Limited::new(body, length.unwrap_or(LARGEST_SIGNED)).collect().await;
        let bytes: Bytes = collected.map_err(|error| too_large(&error))?.to_bytes();
        let hashed = bytes.clone();
        let hash = shared.signers.work(move || payload_hash(&hashed)).await;
        let hash =
            hash.ok_or_else(|| FlowStop::failed(UpstreamFailureKind::Peer, "the body was not hashed"))?;
        let held = Full::new(bytes).map_frame(move |frame| {
            // The reservation lasts as long as the body.
            let _taken = &room;
            frame
        });
        Ok((hash, held.map_err(|never| match never {}).boxed()))
    }

    fn sign(self, mut outgoing: OutgoingRequest, payload: &str) -> Result<OutgoingRequest, FlowStop> {
        let Self { signed, signing, credential, sight } = self;
        let inside = credential.placeholder.as_ref().map(|text| text.as_bytes()).unwrap_or_default();
        let spelling = signed.check(outgoing.head(), inside, payload).map_err(refused)?;
        if signed.is_in_query() {
            outgoing.query = outgoing.query.take().map(|query| signed.query_with_id(&query, &signing.id));
        } else {
            // It names the access key id from inside and is rebuilt.
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

/// Length of the body, if known.
fn length(outgoing: &OutgoingRequest, body: &MeteredBody<ScannedBody>) -> Option<usize> {
    let declared = || outgoing.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    body.size_hint().exact().or_else(declared).and_then(|length| usize::try_from(length).ok())
}

fn too_large(error: &dyn std::fmt::Display) -> FlowStop {
    let what = format!("its signed body is larger than {LARGEST_SIGNED} bytes or was interrupted: {error}");
    FlowStop::failed(UpstreamFailureKind::Peer, what)
}

impl OutgoingRequest {
    fn head(&self) -> SignedHead<'_> {
        SignedHead {
            method: self.method.as_str(),
            path: &self.path,
            query: self.query.as_deref().unwrap_or_default(),
            host: &self.host,
            headers: &self.headers,
        }
    }
}

fn refused(error: SigningError) -> FlowStop {
    FlowStop::Refused(Refusal {
        code: RefusalCode::Secret,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkSigning.into(),
        message: format!("the request cannot be signed again: {error}"),
        hint: None,
    })
}
