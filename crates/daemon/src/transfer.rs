//! Files as bytes: without JSON around them, and so over HTTP alone.

use std::sync::Arc;

use http::Response;
use http::header::{HeaderName, HeaderValue};
use hyper::body::Incoming;
use ringfence_api::{ApiError, MOST_SENT, Method, Request};
use serde_json::Value;

use crate::ask::blocking;
use crate::dispatch::{Admitted, Arrived, admit};
use crate::failure::malformed;
use crate::files;
use crate::http::{Body, Line, collected, text, whole};
use crate::server::Daemon;

/// Of a file that was read: the body has no place for it.
const TRANSACTION: HeaderName = HeaderName::from_static("x-transaction");

/// Who may not is told so before anything of the file is taken in.
pub(crate) async fn upload(
    line: &Line,
    (token, value): (Option<String>, Value),
    body: Incoming,
) -> Result<Response<Body>, ApiError> {
    let (entrance, peer) = (line.entrance.clone(), line.peer);
    let arrived = Arrived { entrance, peer, token, method: Method::FileUpload, value };
    let daemon = Arc::clone(&line.daemon);
    let Admitted { request, live, .. } = blocking(move || admit(&daemon, arrived)).await?;
    let (Request::FileUpload(request), Some(live)) = (request, live) else {
        return Err(malformed("the request names no session"));
    };
    let content = collected(body, MOST_SENT as usize).await?;
    let written = blocking(move || files::write_bytes(&live, &request.path, &content)).await?;
    Ok(whole("application/json", text(&written).into_bytes()))
}

/// A file, with the transaction of its reading in the head.
pub(crate) async fn download(daemon: Arc<Daemon>, arrived: Arrived) -> Result<Response<Body>, ApiError> {
    let read = move || {
        let Admitted { request, live, .. } = admit(&daemon, arrived)?;
        let (Request::FileDownload(request), Some(live)) = (request, live) else {
            return Err(malformed("the request names no session"));
        };
        files::read_bytes(&live, &request.path)
    };
    let (transaction, content) = blocking(read).await?;
    let mut response = whole("application/octet-stream", content);
    if let Some(value) = transaction.and_then(|id| HeaderValue::from_str(&id).ok()) {
        let _new = response.headers_mut().insert(TRANSACTION, value);
    }
    Ok(response)
}
