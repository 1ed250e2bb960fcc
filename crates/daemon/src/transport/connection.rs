//! One HTTP connection: its requests, and its idle timeout. An idle connection must not hold a slot.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::transport::http_body::ResponseBody;
use crate::transport::linger::{Lent, Linger, linger};

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTiming {
    /// For the head of a request, and for the first request of a connection.
    head: Duration,
    /// For a connection without a request in flight.
    idle: Duration,
    /// Interval of HTTP/2 keep-alive pings.
    round: Duration,
    /// Longest wait for the reply to a ping.
    silence: Duration,
}

impl Default for ConnectionTiming {
    fn default() -> Self {
        let [head, idle, round, silence] = [10, 120, 20, 20].map(Duration::from_secs);
        Self { head, idle, round, silence }
    }
}

/// Longest wait for a graceful shutdown.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves a connection until it closes, with up to `streams` concurrent HTTP/2 streams. An upgraded connection goes on
/// elsewhere.
pub(crate) async fn serve<S, F, A>(stream: S, streams: u32, cut: &Notify, timing: ConnectionTiming, answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
    A: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let activity = Arc::new(ConnectionActivity::new(timing));
    let (stream, mut returned) = Lent::new(stream);
    let end = requests(stream, streams, cut, &activity, answer).await;
    // The stream of an upgraded connection is not returned.
    if let (End::Served, Ok(stream)) = (end, returned.try_recv()) {
        linger(stream, Linger::default()).await;
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// After the last HTTP/1 response, which the client may not have read yet.
    Served,
    /// No response is on its way to the client.
    Over,
}

async fn requests<S, F, A>(
    stream: Lent<S>,
    streams: u32,
    cut: &Notify,
    activity: &Arc<ConnectionActivity>,
    answer: F,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
    A: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let (timing, own) = (activity.timing, Arc::clone(activity));
    let service = service_fn(move |request| {
        let (under_way, answer) = (RequestGuard::begin(&own, &request), answer(request));
        async move { Ok::<_, Infallible>(answer.await.map(|body| CountedBody { body, _under_way: under_way })) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let _http1 =
        builder.http1().timer(TokioTimer::new()).header_read_timeout(timing.head).max_buf_size(64 * 1024);
    let _http2 = builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        .max_header_list_size(32 * 1024)
        .keep_alive_interval(timing.round)
        .keep_alive_timeout(timing.silence);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => {
            let is_late = served.as_ref().is_err_and(|error| is_timeout(error.as_ref()));
            if let Err(error) = served {
                tracing::debug!(error = %error, "a connection failed");
            }
            return if is_late || activity.state().is_http2 { End::Over } else { End::Served };
        }
        () = cut.notified() => {
            tracing::debug!("closed a connection");
            return End::Over;
        }
        () = activity.idle() => tracing::debug!("a connection sent no request"),
    }
    // A client that sends a request at this moment learns that it was not processed, and retries.
    connection.as_mut().graceful_shutdown();
    let _gone = timeout(GOODBYE, connection).await;
    End::Over
}

fn is_timeout(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
}

/// The requests in flight on a connection.
#[derive(Debug)]
struct ConnectionActivity {
    state: Mutex<ActivityState>,
    timing: ConnectionTiming,
}

#[derive(Clone, Copy, Debug)]
struct ActivityState {
    under_way: usize,
    /// Start of the idle time.
    since: Instant,
    has_asked: bool,
    /// Over HTTP/2 a response has its own end, independent of the end of the connection.
    is_http2: bool,
}

impl ConnectionActivity {
    fn new(timing: ConnectionTiming) -> Self {
        let state = ActivityState { under_way: 0, since: Instant::now(), has_asked: false, is_http2: false };
        Self { state: Mutex::new(state), timing }
    }

    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the connection was idle for too long.
    async fn idle(&self) {
        loop {
            let (state, now) = (*self.state(), Instant::now());
            let patience = if state.has_asked { self.timing.idle } else { self.timing.head };
            let until = if state.under_way > 0 { now } else { state.since } + patience;
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// One request, from its head to the last byte of its response.
#[derive(Debug)]
struct RequestGuard(Arc<ConnectionActivity>);

impl RequestGuard {
    fn begin(activity: &Arc<ConnectionActivity>, request: &Request<Incoming>) -> Self {
        let mut state = activity.state();
        state.under_way += 1;
        state.has_asked = true;
        state.is_http2 = request.version() == Version::HTTP_2;
        drop(state);
        Self(Arc::clone(activity))
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        state.since = Instant::now();
    }
}

/// A response body that counts as in flight until it is sent.
struct CountedBody {
    body: ResponseBody,
    _under_way: RequestGuard,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Empty};
    use hyper::client::conn::http2;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::admit::revocation::CredentialLease;
    use crate::limits::response_memory::ResponseSlices;
    use crate::transport::http_body::{RevocableBody, StreamBody, StreamFormat};

    const SHORT: Duration = Duration::from_millis(100);
    /// Longer than any step of these tests takes.
    const LONG: Duration = Duration::from_secs(60);

    type Client = http2::SendRequest<Empty<Bytes>>;

    /// A connection that responds with `pieces`, or never if that is `None`.
    fn served(
        pieces: Option<mpsc::Receiver<Bytes>>,
        timing: ConnectionTiming,
    ) -> (DuplexStream, JoinHandle<()>) {
        let (here, there) = duplex(64 * 1024);
        let pieces = Mutex::new(pieces);
        let serving = tokio::spawn(async move {
            let cut = Arc::new(Notify::new());
            let held = Arc::clone(&cut);
            serve(here, 8, &cut, timing, move |_request| {
                let pieces = pieces.lock().unwrap().take();
                let held = RevocableBody::new(CredentialLease::of_owner(), Arc::clone(&held));
                let body = match pieces {
                    Some(pieces) => ResponseBody::Pieces(StreamBody::new(pieces, StreamFormat::Lines, held)),
                    None => ResponseBody::Whole(ResponseSlices::default()),
                };
                std::future::ready(Response::new(body))
            })
            .await;
        });
        (there, serving)
    }

    async fn client(stream: DuplexStream) -> Client {
        let (client, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let _connection = tokio::spawn(connection);
        client
    }

    async fn ask(client: &mut Client) -> Response<Incoming> {
        let request = Request::get("http://x/").body(Empty::new()).unwrap();
        client.send_request(request).await.unwrap()
    }

    async fn is_let_go(serving: JoinHandle<()>) -> bool {
        timeout(LONG, serving).await.is_ok()
    }

    #[tokio::test]
    async fn a_connection_without_requests_is_closed_also_after_some() {
        let (stream, serving) = served(None, ConnectionTiming { idle: SHORT, ..ConnectionTiming::default() });
        let mut one = client(stream).await;
        for _ in 0..5 {
            let _all = ask(&mut one).await.into_body().collect().await.unwrap();
        }
        assert!(is_let_go(serving).await);
        assert!(one.is_closed() || one.ready().await.is_err(), "it was told");
        let (mut stream, serving) =
            served(None, ConnectionTiming { head: SHORT, ..ConnectionTiming::default() });
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        assert!(is_let_go(serving).await, "nor one that has asked for nothing");
    }

    #[tokio::test]
    async fn an_answer_that_goes_on_keeps_its_connection() {
        let (pieces, receiver) = mpsc::channel(1);
        let (stream, serving) =
            served(Some(receiver), ConnectionTiming { idle: SHORT, ..ConnectionTiming::default() });
        let mut one = client(stream).await;
        let mut answer = ask(&mut one).await.into_body();
        tokio::time::sleep(5 * SHORT).await;
        assert!(!serving.is_finished());
        pieces.send(Bytes::from_static(b"on")).await.unwrap();
        assert!(answer.frame().await.is_some());
        drop(pieces);
        assert!(is_let_go(serving).await, "until it is over");
    }

    #[tokio::test]
    async fn whoever_is_not_there_any_more_is_let_go() {
        let (_pieces, receiver) = mpsc::channel(1);
        let timing = ConnectionTiming { round: SHORT, silence: SHORT, ..ConnectionTiming::default() };
        let (mut stream, serving) = served(Some(receiver), timing);
        // A request for an endless response, from a client that falls silent afterwards.
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let head = [0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 1, b'x'];
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&[settings.as_slice(), &head].concat()).await.unwrap();
        assert!(is_let_go(serving).await);
        let mut told = Vec::new();
        let _reset = stream.read_to_end(&mut told).await;
        // The head of the response on the first stream.
        assert!(told.windows(6).any(|window| window == [1, 4, 0, 0, 0, 1]), "it was answered");
    }
}
