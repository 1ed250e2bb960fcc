//! Upload and download of files as raw bytes, over HTTP only.

use std::sync::Arc;

use http::Response;
use http::header::{HeaderName, HeaderValue};
use ringfence_api::{ApiError, MOST_SENT, Request};

use crate::admit::dispatch::{AuthorizedRequest, IncomingRequest, audit_refusal};
use crate::calls::files;
use crate::calls::handle::{admit_elsewhere, blocking};
use crate::calls::request_scope::{CancelOnDrop, SessionScope};
use crate::errors::malformed;
use crate::server::Daemon;
use crate::transport::http::{HttpConnection, collected, drain_body, short, text, whole};
use crate::transport::http_body::ResponseBody;
use crate::transport::request_body::RequestBody;

/// Header with the transaction of a read, because the body is the file.
const TRANSACTION: HeaderName = HeaderName::from_static("x-transaction");

/// Authorizes the caller before the file is read from the connection.
pub(crate) async fn upload(
    line: &HttpConnection,
    arrived: IncomingRequest,
    body: RequestBody,
) -> Result<Response<ResponseBody>, ApiError> {
    let token = arrived.token.clone();
    spanned(&line.daemon, arrived, async |arrived| {
        let mut admitted = match admit_elsewhere(&line.daemon, arrived).await {
            Ok(admitted) => admitted,
            Err(why) => {
                drain_body(body).await;
                return Err(why);
            }
        };
        let (content, _places) = tokio::select! {
            biased;
            why = admitted.standing.revoked() => return Err(why),
            content = collected(line, token.as_deref(), body, MOST_SENT as usize) => content?,
        };
        let written = for_who_waits(&line.daemon, admitted, move |visit, request| match request {
            Request::FileUpload(request) => files::write_bytes(visit, &request.path, &content),
            _ => Err(malformed("this is no upload")),
        });
        Ok(short("application/json", text(&written.await?)))
    })
    .await
}

/// Sends a file, with the transaction of the read in a header.
pub(crate) async fn download(
    line: &HttpConnection,
    arrived: IncomingRequest,
) -> Result<Response<ResponseBody>, ApiError> {
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

/// Gives a transfer a telemetry span, because it does not go through `calls::handle`.
async fn spanned<T>(
    daemon: &Arc<Daemon>,
    mut arrived: IncomingRequest,
    answer: impl AsyncFnOnce(IncomingRequest) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let span = daemon.telemetry.request(&daemon.sessions, &mut arrived);
    let answer = answer(arrived).await;
    if let Some(span) = span {
        span.ended(&answer);
    }
    answer
}

/// Runs the work until the client disconnects or its credential is revoked.
async fn for_who_waits<T: Send + 'static>(
    daemon: &Arc<Daemon>,
    admitted: AuthorizedRequest,
    work: impl FnOnce(SessionScope<'_>, Request) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let AuthorizedRequest { caller, by, request, live, work: done, mut standing, parent, .. } = admitted;
    let daemon = Arc::clone(daemon);
    let live = live.ok_or_else(|| malformed("the request names no session"))?;
    let _waiter = CancelOnDrop::of(&done);
    tokio::select! {
        // A lease that is already revoked must start no work.
        biased;
        why = standing.revoked() => Err(why),
        done = blocking(move || {
            let (left, telemetry) = (&caller.attenuation, &daemon.telemetry);
            let visit = SessionScope { live: &live, work: &done, left, by: &by, telemetry, parent };
            let method = request.method();
            audit_refusal(&daemon, &caller.principal, method, work(visit, request))
        }) => done,
    }
}
