//! One connection: its requests, and how long it stays without any. Places are for those who ask.

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

use crate::linger::{Lent, Linger, linger};
use crate::stream::Body;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// The head of a request, and the first one of a connection.
    head: Duration,
    /// How long a connection stays on which nothing is under way.
    idle: Duration,
    /// How often the other side of HTTP/2 is asked whether it is there.
    round: Duration,
    /// How long it may take to say so.
    silence: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let [head, idle, round, silence] = [10, 120, 20, 20].map(Duration::from_secs);
        Self { head, idle, round, silence }
    }
}

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Answers the requests of a connection until it is over. `streams` of them are under way at once with HTTP/2. What a connection has
/// become by then, if it was not for requests, goes on elsewhere.
pub(crate) async fn serve<S, F, A>((stream, streams): (S, u32), (cut, timing): (&Notify, Timing), answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let activity = Arc::new(Activity::new(timing));
    let (stream, mut returned) = Lent::new(stream);
    let end = requests(stream, streams, cut, &activity, answer).await;
    // The stream of a connection that became something else does not come back.
    if let (End::Served, Ok(stream)) = (end, returned.try_recv()) {
        linger(stream, Linger::default()).await;
    }
}

/// How a connection came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// After the last answer of HTTP/1, which the client may not have read yet.
    Served,
    /// Nothing is on its way to the client that it has to get.
    Over,
}

async fn requests<S, F, A>(
    stream: Lent<S>,
    streams: u32,
    cut: &Notify,
    activity: &Arc<Activity>,
    answer: F,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let (timing, own) = (activity.timing, Arc::clone(activity));
    let service = service_fn(move |request| {
        let (under_way, answer) = (UnderWay::begin(&own, &request), answer(request));
        async move { Ok::<_, Infallible>(answer.await.map(|body| Counted { body, _under_way: under_way })) }
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
                tracing::debug!(why = %error, "a connection ended badly");
            }
            return if is_late || activity.state().is_http2 { End::Over } else { End::Served };
        }
        () = cut.notified() => {
            tracing::debug!("a connection was cut");
            return End::Over;
        }
        () = activity.idle() => tracing::debug!("nothing was asked for on a connection"),
    }
    // Whoever asks at this moment is told that it was not heard, and asks again.
    connection.as_mut().graceful_shutdown();
    let _gone = timeout(GOODBYE, connection).await;
    End::Over
}

fn is_timeout(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
}

/// What is under way on a connection.
#[derive(Debug)]
struct Activity {
    state: Mutex<State>,
    timing: Timing,
}

#[derive(Clone, Copy, Debug)]
struct State {
    under_way: usize,
    /// Nothing, for so long.
    since: Instant,
    has_asked: bool,
    /// An answer of HTTP/2 has an end of its own, which a client does not take from the connection.
    is_http2: bool,
}

impl Activity {
    fn new(timing: Timing) -> Self {
        let state = State { under_way: 0, since: Instant::now(), has_asked: false, is_http2: false };
        Self { state: Mutex::new(state), timing }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when nothing was under way for too long.
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

/// One request, from its head to the last byte of its answer.
#[derive(Debug)]
struct UnderWay(Arc<Activity>);

impl UnderWay {
    fn begin(activity: &Arc<Activity>, request: &Request<Incoming>) -> Self {
        let mut state = activity.state();
        state.under_way += 1;
        state.has_asked = true;
        state.is_http2 = request.version() == Version::HTTP_2;
        drop(state);
        Self(Arc::clone(activity))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        state.since = Instant::now();
    }
}

/// An answer that is under way until it was sent.
struct Counted {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Counted {
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
    use crate::answers::Slices;
    use crate::standing::Standing;
    use crate::stream::{Form, Held, Pieces};

    const SHORT: Duration = Duration::from_millis(100);
    /// Longer than anything takes here.
    const LONG: Duration = Duration::from_secs(60);

    type Client = http2::SendRequest<Empty<Bytes>>;

    /// A connection that is answered with what `pieces` has, and with nothing where that is `None`.
    fn served(pieces: Option<mpsc::Receiver<Bytes>>, timing: Timing) -> (DuplexStream, JoinHandle<()>) {
        let (here, there) = duplex(64 * 1024);
        let pieces = Mutex::new(pieces);
        let serving = tokio::spawn(async move {
            let cut = Arc::new(Notify::new());
            let held = Arc::clone(&cut);
            serve((here, 8), (&cut, timing), move |_request| {
                let pieces = pieces.lock().unwrap().take();
                let held = Held::new(Standing::of_owner(), Arc::clone(&held));
                let body = match pieces {
                    Some(pieces) => Body::Pieces(Pieces::new(pieces, Form::Lines, held)),
                    None => Body::Whole(Slices::default()),
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
        let (stream, serving) = served(None, Timing { idle: SHORT, ..Timing::default() });
        let mut one = client(stream).await;
        for _ in 0..5 {
            let _all = ask(&mut one).await.into_body().collect().await.unwrap();
        }
        assert!(is_let_go(serving).await);
        assert!(one.is_closed() || one.ready().await.is_err(), "it was told");
        let (mut stream, serving) = served(None, Timing { head: SHORT, ..Timing::default() });
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        assert!(is_let_go(serving).await, "nor one that has asked for nothing");
    }

    #[tokio::test]
    async fn an_answer_that_goes_on_keeps_its_connection() {
        let (pieces, receiver) = mpsc::channel(1);
        let (stream, serving) = served(Some(receiver), Timing { idle: SHORT, ..Timing::default() });
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
        let timing = Timing { round: SHORT, silence: SHORT, ..Timing::default() };
        let (mut stream, serving) = served(Some(receiver), timing);
        // A request for what has no end, of somebody who says no word after it.
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let head = [0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 1, b'x'];
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&[settings.as_slice(), &head].concat()).await.unwrap();
        assert!(is_let_go(serving).await);
        let mut told = Vec::new();
        let _reset = stream.read_to_end(&mut told).await;
        // The head of an answer on the first stream.
        assert!(told.windows(6).any(|window| window == [1, 4, 0, 0, 0, 1]), "it was answered");
    }
}
