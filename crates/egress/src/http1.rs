//! Plain HTTP/1 from inside: `CONNECT` opens a tunnel; every other request is a flow of its own.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::error_response::{self, ProxyBody};
use crate::exchange;
use crate::flow_gate::{FlowIngress, FlowTarget};
use crate::live_flow::ProxyState;
use crate::relay::{authorize_flow, relay};
use crate::rewind_stream::RewindStream;
use crate::target::TargetError;

/// Connection that a request arrived on.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) way: FlowIngress,
    /// Target of the connection; `None` at the listener for proxy requests.
    pub(crate) origin: Option<FlowTarget>,
}

const LONGEST_HEAD: usize = 64 * 1024;

/// Serves one connection until either side closes it. Boxed because a tunnel that turns out to be HTTP recurses into this function.
pub(crate) fn serve(client: RewindStream, context: RequestContext, shared: Arc<ProxyState>) -> ServeFuture {
    Box::pin(serve_connection(client, context, shared))
}

type ServeFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn serve_connection(client: RewindStream, context: RequestContext, shared: Arc<ProxyState>) {
    let head = shared.settings.times.head;
    let (way, told) = (context.way, Arc::clone(&shared));
    let service = service_fn(move |request| {
        let (context, shared) = (context.clone(), Arc::clone(&shared));
        async move { Ok::<_, Infallible>(answer(request, context, shared).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .max_header_size(LONGEST_HEAD)
        .max_buf_size(2 * LONGEST_HEAD)
        .half_close(false)
        .serve_connection(TokioIo::new(client), service);
    // Errors here are caused by the client, which already got a response if one was possible.
    if let Err(error) = connection.with_upgrades().await
        && error.is_parse()
    {
        told.malformed(way, &format!("the request cannot be read: {error}"));
    }
}

async fn answer(
    request: Request<Incoming>,
    context: RequestContext,
    shared: Arc<ProxyState>,
) -> Response<ProxyBody> {
    if request.method() != Method::CONNECT {
        return exchange::handle(request, context, &shared).await;
    }
    match context.origin {
        None => connect(request, shared).await,
        Some(_) => {
            let message = "CONNECT inside a connection that has a target already";
            shared.malformed(context.way, message);
            error_response::malformed(message)
        }
    }
}

async fn connect(request: Request<Incoming>, shared: Arc<ProxyState>) -> Response<ProxyBody> {
    let target = match connect_target(&request) {
        Ok(target) => target,
        Err(why) => {
            let message = why.to_string();
            shared.malformed(FlowIngress::Connect, &message);
            return error_response::malformed(&message);
        }
    };
    let named = target.clone().named(&shared.names);
    let begun = shared.open_flow(FlowIngress::Connect, named.clone().unwrap_or(target), None);
    let live = match begun {
        Ok(live) => live,
        Err(denied) => return error_response::denied(&denied),
    };
    let course = match named {
        Ok(_) => authorize_flow(&live, &shared).await,
        Err(refusal) => Err(refusal.into()),
    };
    match course {
        Ok(course) => {
            tokio::spawn(async move {
                if let Some(client) = upgraded(request).await {
                    relay(client, live, course, shared).await;
                }
            });
            Response::new(error_response::empty())
        }
        Err(stopped) => {
            let response = error_response::stopped(&stopped, live.flow().id, &live.flow().target);
            live.end(stopped.end());
            response
        }
    }
}

/// Reason why a `CONNECT` is invalid.
#[derive(Debug, thiserror::Error)]
enum ConnectRequestError {
    #[error("CONNECT needs host:port")]
    NoTarget,
    #[error("CONNECT needs host:port and nothing else")]
    MoreThanTarget,
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("CONNECT has no body")]
    Body,
    #[error("more than one Host")]
    Hosts,
    #[error("Host is not text")]
    NoText,
    #[error("Host says `{host}` and the request says `{target}`")]
    Differ { host: String, target: FlowTarget },
}

/// Reads the target. A `Host` header must agree with it, and a body is not allowed.
fn connect_target(request: &Request<Incoming>) -> Result<FlowTarget, ConnectRequestError> {
    let authority = request.uri().authority().ok_or(ConnectRequestError::NoTarget)?;
    if request.uri().scheme().is_some() || request.uri().path_and_query().is_some() {
        return Err(ConnectRequestError::MoreThanTarget);
    }
    let target = FlowTarget::from_authority(authority.as_str())?;
    check_host(request.headers(), &target)?;
    let headers = request.headers();
    let empty = headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
    if !empty || headers.contains_key(TRANSFER_ENCODING) {
        return Err(ConnectRequestError::Body);
    }
    Ok(target)
}

fn check_host(headers: &HeaderMap, target: &FlowTarget) -> Result<(), ConnectRequestError> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return if headers.contains_key(HOST) { Err(ConnectRequestError::Hosts) } else { Ok(()) };
    };
    let host = host.to_str().map_err(|_error| ConnectRequestError::NoText)?;
    let same = target.is_called(host) || FlowTarget::from_authority(host).is_ok_and(|host| host == *target);
    if same {
        Ok(())
    } else {
        Err(ConnectRequestError::Differ { host: host.to_owned(), target: target.clone() })
    }
}

async fn upgraded(request: Request<Incoming>) -> Option<RewindStream> {
    let upgraded = hyper::upgrade::on(request).await.ok()?;
    let parts = upgraded.downcast::<TokioIo<RewindStream>>().ok()?;
    Some(parts.io.into_inner().unread(parts.read_buf))
}
