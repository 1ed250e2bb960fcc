//! Files as bytes: without JSON around them, and so over HTTP alone.

use std::sync::Arc;

use http::Response;
use http::header::{HeaderName, HeaderValue};
use ringfence_api::{ApiError, MOST_SENT, Method, Request};
use serde_json::Value;

use crate::ask::{admit_elsewhere, blocking};
use crate::dispatch::{Admitted, Arrived, told_no};
use crate::failure::malformed;
use crate::files;
use crate::http::{Line, collected, hear_out, short, text, whole};
use crate::request_body::RequestBody;
use crate::server::Daemon;
use crate::stream::Body;
use crate::telemetry::Context;
use crate::waiter::{Visit, Waiter};

/// Of a file that was read: the body has no place for it.
const TRANSACTION: HeaderName = HeaderName::from_static("x-transaction");

/// Who may not is told so before anything of the file is taken in.
pub(crate) async fn upload(
    line: &Line,
    (token, value, parent): (Option<String>, Value, Option<Context>),
    body: RequestBody,
) -> Result<Response<Body>, ApiError> {
    let (entrance, peer) = (line.entrance.clone(), line.peer);
    let (method, shown) = (Method::FileUpload, token.clone());
    let arrived = Arrived { entrance, peer, token, method, value, places: Vec::new(), parent };
    spanned(&line.daemon, arrived, async |arrived| {
        let mut admitted = match admit_elsewhere(&line.daemon, arrived).await {
            Ok(admitted) => admitted,
            Err(why) => {
                hear_out(body).await;
                return Err(why);
            }
        };
        let (content, _places) = tokio::select! {
            biased;
            why = admitted.standing.lost() => return Err(why),
            content = collected(line, shown.as_deref(), body, MOST_SENT as usize) => content?,
        };
        let written = for_who_waits(&line.daemon, admitted, move |visit, request| match request {
            Request::FileUpload(request) => files::write_bytes(visit, &request.path, &content),
            _ => Err(malformed("this is no upload")),
        });
        Ok(short("application/json", text(&written.await?)))
    })
    .await
}

/// A file, with the transaction of its reading in the head.
pub(crate) async fn download(line: &Line, arrived: Arrived) -> Result<Response<Body>, ApiError> {
    let read = spanned(&line.daemon, arrived, async |arrived| {
        let admitted = admit_elsewhere(&line.daemon, arrived).await?;
        let scale = admitted.work.scale.clone();
        let read = for_who_waits(&line.daemon, admitted, |visit, request| match request {
            Request::FileDownload(request) => files::read_bytes(visit, &request.path),
            _ => Err(malformed("this is no download")),
        });
        let (transaction, content) = read.await?;
        Ok((transaction, scale.answer(content.into(), &line.cut).await?))
    });
    let (transaction, content) = read.await?;
    let mut response = whole("application/octet-stream", content);
    if let Some(value) = transaction.and_then(|id| HeaderValue::from_str(&id).ok()) {
        let _new = response.headers_mut().insert(TRANSACTION, value);
    }
    Ok(response)
}

/// What has no other way to its answer has a span all the same.
async fn spanned<T>(
    daemon: &Arc<Daemon>,
    mut arrived: Arrived,
    answer: impl AsyncFnOnce(Arrived) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let span = daemon.telemetry.request(&daemon.sessions, &mut arrived);
    let answer = answer(arrived).await;
    if let Some(span) = span {
        span.ended(&answer);
    }
    answer
}

/// Does it for as long as they wait and may have it.
async fn for_who_waits<T: Send + 'static>(
    daemon: &Arc<Daemon>,
    admitted: Admitted,
    work: impl FnOnce(Visit<'_>, Request) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let Admitted { caller, by, request, live, work: done, mut standing, parent, .. } = admitted;
    let daemon = Arc::clone(daemon);
    let live = live.ok_or_else(|| malformed("the request names no session"))?;
    let _waiter = Waiter::of(&done);
    tokio::select! {
        // Whoever has lost it before it begins has nothing begun.
        biased;
        why = standing.lost() => Err(why),
        done = blocking(move || {
            let (left, telemetry) = (&caller.attenuation, &daemon.telemetry);
            let visit = Visit { live: &live, work: &done, left, by: &by, telemetry, parent };
            let method = request.method();
            told_no(&daemon, (&caller.principal, method), work(visit, request))
        }) => done,
    }
}
