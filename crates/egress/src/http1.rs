//! Plain HTTP/1 from inside: `CONNECT` opens a tunnel, everything else is one request that is judged alone.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::answer::{self, Body};
use crate::carry::{carry, prepare};
use crate::exchange;
use crate::gate::{Target, Way};
use crate::prefixed::Prefixed;
use crate::shared::Shared;
use crate::target::TargetError;

/// Where a request came from.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) way: Way,
    /// The target of the connection that the request came over; `None` at the door for proxy requests.
    pub(crate) origin: Option<Target>,
}

const LONGEST_HEAD: usize = 64 * 1024;

/// Serves one connection until either side ends it. Boxed, because a tunnel that turns out to be HTTP comes back here.
pub(crate) fn serve(client: Prefixed, context: Context, shared: Arc<Shared>) -> Served {
    Box::pin(serve_connection(client, context, shared))
}

type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn serve_connection(client: Prefixed, context: Context, shared: Arc<Shared>) {
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
    // What breaks here is the client's own doing, and it has been told what could be told.
    if let Err(error) = connection.with_upgrades().await
        && error.is_parse()
    {
        told.malformed(way, &format!("the request cannot be read: {error}"));
    }
}

async fn answer(request: Request<Incoming>, context: Context, shared: Arc<Shared>) -> Response<Body> {
    if request.method() != Method::CONNECT {
        return exchange::handle(request, context, &shared).await;
    }
    match context.origin {
        None => connect(request, shared).await,
        Some(_) => {
            let message = "CONNECT inside a connection that has a target already";
            shared.malformed(context.way, message);
            answer::malformed(message)
        }
    }
}

async fn connect(request: Request<Incoming>, shared: Arc<Shared>) -> Response<Body> {
    let target = match connect_target(&request) {
        Ok(target) => target,
        Err(why) => {
            let message = why.to_string();
            shared.malformed(Way::Connect, &message);
            return answer::malformed(&message);
        }
    };
    let named = target.clone().named(&shared.names);
    let begun = shared.begin(Way::Connect, named.clone().unwrap_or(target), None);
    let live = match begun {
        Ok(live) => live,
        Err(denied) => return answer::denied(&denied),
    };
    let course = match named {
        Ok(_) => prepare(&live, &shared).await,
        Err(refusal) => Err(refusal.into()),
    };
    match course {
        Ok(course) => {
            tokio::spawn(async move {
                if let Some(client) = upgraded(request).await {
                    carry(client, live, course, shared).await;
                }
            });
            Response::new(answer::empty())
        }
        Err(stopped) => {
            let response = answer::stopped(&stopped, live.flow().id, &live.flow().target);
            live.end(stopped.end());
            response
        }
    }
}

/// Why a CONNECT leads nowhere.
#[derive(Debug, thiserror::Error)]
enum NoWay {
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
    Differ { host: String, target: Target },
}

/// The authority is the target; a `Host` beside it must say the same, and there is no body.
fn connect_target(request: &Request<Incoming>) -> Result<Target, NoWay> {
    let authority = request.uri().authority().ok_or(NoWay::NoTarget)?;
    if request.uri().scheme().is_some() || request.uri().path_and_query().is_some() {
        return Err(NoWay::MoreThanTarget);
    }
    let target = Target::from_authority(authority.as_str())?;
    check_host(request.headers(), &target)?;
    let headers = request.headers();
    let empty = headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
    if !empty || headers.contains_key(TRANSFER_ENCODING) {
        return Err(NoWay::Body);
    }
    Ok(target)
}

fn check_host(headers: &HeaderMap, target: &Target) -> Result<(), NoWay> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return if headers.contains_key(HOST) { Err(NoWay::Hosts) } else { Ok(()) };
    };
    let host = host.to_str().map_err(|_error| NoWay::NoText)?;
    let same = target.is_called(host) || Target::from_authority(host).is_ok_and(|host| host == *target);
    if same { Ok(()) } else { Err(NoWay::Differ { host: host.to_owned(), target: target.clone() }) }
}

async fn upgraded(request: Request<Incoming>) -> Option<Prefixed> {
    let upgraded = hyper::upgrade::on(request).await.ok()?;
    let parts = upgraded.downcast::<TokioIo<Prefixed>>().ok()?;
    Some(parts.io.into_inner().unread(parts.read_buf))
}
