//! Credentials go into a request: placeholders are replaced, and what was signed with one is signed again.

use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http_body_util::{BodyExt as _, Full, Limited};
use ringfence_types::{Layer, Refusal, RefusalCode};

use crate::answer::Body;
use crate::credential::{Credential, Sight, Signing};
use crate::exchange::Outgoing;
use crate::shared::{FailureKind, Stopped};
use crate::sigv4::{Head, Payload, Signed, SigningError, encode, payload_hash};
use crate::watched::Watched;

/// A body whose hash is signed must be here before its first byte leaves.
const LARGEST_SIGNED: usize = 32 << 20;

/// The last changes to a request.
pub(crate) async fn apply(outgoing: &mut Outgoing, body: Watched, sight: &Sight) -> Result<Body, Stopped> {
    let signed = match sight.signings.is_empty() {
        true => None,
        false => Signed::of(outgoing.head()).map_err(refused)?,
    };
    let known = signed.as_ref().and_then(|signed| key_of(signed, sight));
    let (Some(signed), Some((signing, credential))) = (&signed, known) else {
        outgoing.prepare(sight);
        outgoing.inject(sight)?;
        return Ok(body.boxed());
    };
    let (payload, body) = payload(signed, body).await?;
    let inside = credential.placeholder.as_ref().map(|text| text.as_bytes()).unwrap_or_default();
    let spelling = signed.check(outgoing.head(), inside, &payload).map_err(refused)?;
    if signed.is_in_query() {
        outgoing.query = outgoing.query.take().map(|query| signed.query_with_id(&query, &signing.id));
    }
    outgoing.prepare(sight);
    outgoing.inject(sight)?;
    let signature =
        signed.signature(outgoing.head(), spelling, &credential.value, &payload).map_err(refused)?;
    if signed.is_in_query() {
        let query = outgoing.query.take().unwrap_or_default();
        outgoing.query = Some(format!("{query}&X-Amz-Signature={}", encode(signature.as_bytes())));
    } else {
        let value = signed.authorization(&signing.id, &signature).map_err(refused)?;
        outgoing.headers.insert(AUTHORIZATION, value);
    }
    Ok(body)
}

fn key_of<'s>(signed: &Signed, sight: &'s Sight) -> Option<(&'s Signing, &'s Arc<Credential>)> {
    let known = sight.signings.iter().find(|(signing, _)| signing.id_inside == signed.id)?;
    Some((&known.0, &known.1))
}

async fn payload(signed: &Signed, body: Watched) -> Result<(String, Body), Stopped> {
    if let Payload::Given(hash) = &signed.payload {
        return Ok((hash.clone(), body.boxed()));
    }
    let collected = Limited::new(body, LARGEST_SIGNED).collect().await;
    let too_large = |error| {
        let what = format!("its signed body is larger than {LARGEST_SIGNED} bytes or broke off: {error}");
        Stopped::failed(FailureKind::Peer, what)
    };
    let bytes: Bytes = collected.map_err(too_large)?.to_bytes();
    Ok((payload_hash(&bytes), Full::new(bytes).map_err(|never| match never {}).boxed()))
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
