//! The daemon process: start, accept loops, drain and shutdown.

use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence_api::{ApiError, ErrorCode};
use ringfence_ledger::SessionEndReason;
use ringfence_runtime::Runtime;
use ringfence_runtime::identity::{AuthError, Identities, IdentityError, KnownIdentity};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};

use crate::admit::authenticate::ListenerKind;
use crate::admit::peer::UnixPeer;
use crate::admit::revocation::{self, RevocationWatch};
use crate::admit::unauthenticated_log::UnauthenticatedLog;
use crate::calls::exec::{OutputSink, PreparedExec};
use crate::errors::internal;
use crate::limits::audit_rate::AuditRateLimiter;
use crate::limits::budget::{Budget, Permit};
use crate::limits::call_slots::CallSlots;
use crate::limits::request_memory::RequestMemory;
use crate::limits::request_rate::{ConnectionRate, RequestRateLimiter};
use crate::limits::response_memory::ResponseBudgets;
use crate::limits::worker_permits::WorkerPool;
use crate::observe::events::{self, EventFeed};
use crate::observe::metrics::MetricCounters;
use crate::observe::telemetry::{Telemetry, TelemetryError};
use crate::sessions::live_session::{LiveSession, TIME};
use crate::sessions::registry::{self, EndReason, SessionRegistry};
use crate::transport::connection::ConnectionTiming;
use crate::transport::http::{HttpConnection, answer};
use crate::transport::tcp_listener::{self, TcpListenerConfig};
use crate::{
    DaemonConfig, DaemonLimits, PolicyProvider, limits::threads, sessions::policy_reload,
    sessions::session_socket, transport::connection, transport::mcp,
};

/// How long sessions may take to end after the drain.
const LAST: Duration = Duration::from_secs(30);
/// Interval of the check for expired sessions.
const ROUND: Duration = Duration::from_millis(200);
/// Concurrent connections to the operators' socket.
const CONNECTIONS: usize = 2048;
/// Concurrent connections of peers that are not the owner. A fenced process that reaches the operators' socket must not
/// keep the owner from stopping it.
const CONNECTIONS_OF_OTHERS: usize = 128;
const CONNECTIONS_OF_A_DOOR: usize = 32;
/// Concurrent HTTP/2 streams of one connection.
const STREAMS: u32 = 64;
const STREAMS_AT_A_DOOR: u32 = 8;
/// Blocking threads besides those of calls, so that one is free to answer, revoke or stop while all calls wait.
const THREADS: usize = 384;

/// State shared by all requests.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// Lives as long as the process.
    pub(crate) runtime: &'static Runtime,
    pub(crate) identities: Identities,
    pub(crate) governor: Arc<dyn PolicyProvider>,
    pub(crate) doors: PathBuf,
    pub(crate) settings: DaemonLimits,
    pub(crate) sessions: SessionRegistry,
    pub(crate) events: EventFeed,
    pub(crate) standings: RevocationWatch,
    pub(crate) strangers: UnauthenticatedLog,
    pub(crate) quotas: AuditRateLimiter,
    pub(crate) meters: MetricCounters,
    pub(crate) telemetry: Telemetry,
    pub(crate) tools_underway: mcp::InflightCalls,
    pub(crate) intake: RequestMemory,
    pub(crate) answers: ResponseBudgets,
    pub(crate) rates: RequestRateLimiter,
    pub(crate) turns: WorkerPool,
    /// Serializes password checks: a failed guess counts before the next one is checked.
    pub(crate) login: Budget,
    /// The same for familiar clients, with a token or from a known source, so that strangers cannot queue in front of
    /// them.
    pub(crate) familiar: Budget,
    /// Serializes answers to approvals.
    pub(crate) answering: Mutex<()>,
    /// Slots for the calls of all sessions.
    pub(crate) calls: CallSlots,
    requests: AtomicU64,
    ending: AtomicBool,
    ended: AtomicBool,
    end: Notify,
    pub(crate) handle: tokio::runtime::Handle,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    #[error("cannot start to serve")]
    Start(#[source] std::io::Error),
    #[error("cannot open the identities")]
    Identities(#[from] IdentityError),
    #[error("cannot end what was left by the daemon before this one")]
    Left(#[from] ringfence_runtime::OpenSessionError),
    #[error("cannot make a place for the doors of sessions")]
    Doors(#[source] std::io::Error),
    #[error("cannot read the ledger")]
    Ledger(#[source] ApiError),
    #[error("cannot send what `[telemetry]` of the configuration asks for")]
    Telemetry(#[from] TelemetryError),
}

impl ServeError {
    /// The next step for the operator, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Telemetry(error) => error.hint(),
            _ => None,
        }
    }
}

/// Serves until a signal or an operator ends the daemon. No process of a session runs when this returns.
pub fn serve(serve: DaemonConfig) -> Result<(), ServeError> {
    session_socket::clear(&serve.doors).map_err(ServeError::Doors)?;
    let threads = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(serve.settings.calls.saturating_add(THREADS))
        .thread_keep_alive(Duration::from_secs(5))
        .build()
        .map_err(ServeError::Start)?;
    // Sessions on their own threads borrow the runtime, so it lives as long as the process.
    let runtime: &'static Runtime = Box::leak(Box::new(serve.runtime));
    let identities = runtime.identities()?;
    // Sessions of a daemon that crashed still have valid tokens: end both.
    let abandoned = ringfence_runtime::end_abandoned(runtime, &identities.live_sessions()?)?;
    identities.end_sessions(&abandoned.over)?;
    for session in abandoned.ended {
        tracing::warn!(%session, "a session ended with the previous daemon");
    }
    let head = events::end_of(runtime.ledger()).map_err(ServeError::Ledger)?;
    let calls = CallSlots::new(serve.settings.calls);
    let daemon = Arc::new(Daemon {
        runtime,
        identities,
        governor: serve.governor,
        doors: serve.doors,
        sessions: SessionRegistry::new(serve.settings.sessions),
        settings: serve.settings,
        events: EventFeed::after_those(head),
        standings: RevocationWatch::default(),
        strangers: UnauthenticatedLog::default(),
        quotas: AuditRateLimiter::new(&Default::default()),
        meters: MetricCounters::default(),
        telemetry: Telemetry::default(),
        tools_underway: mcp::InflightCalls::default(),
        intake: RequestMemory::default(),
        answers: ResponseBudgets::default(),
        rates: RequestRateLimiter::default(),
        turns: WorkerPool::default(),
        login: Budget::new(1),
        familiar: Budget::new(1),
        answering: Mutex::default(),
        calls,
        requests: AtomicU64::new(0),
        ending: AtomicBool::new(false),
        ended: AtomicBool::new(false),
        end: Notify::new(),
        handle: threads.handle().clone(),
    });
    let listening = serve.listening;
    let network = serve.network.map(Arc::new);
    // Before the first request, so that telemetry covers it too.
    threads.block_on(daemon.telemetry.apply(&daemon, daemon.governor.telemetry()))?;
    let served = threads.block_on(run(&daemon, &listening.listener, network));
    drop(listening);
    daemon.ended.store(true, Ordering::SeqCst);
    threads.shutdown_timeout(Duration::from_secs(1));
    served.map_err(ServeError::Start)
}

async fn run(
    daemon: &Arc<Daemon>,
    listener: &StdListener,
    network: Option<Arc<TcpListenerConfig>>,
) -> std::io::Result<()> {
    let listener = listener.try_clone()?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let follower = Arc::clone(daemon);
    let _follower =
        std::thread::Builder::new().name("events".to_owned()).spawn(move || events::follow(&follower))?;
    let _reaper = tokio::spawn(reap(Arc::clone(daemon)));
    let told = signal(SignalKind::hangup())?;
    let _reloading = tokio::spawn(policy_reload::run(Arc::clone(daemon), told));
    let _looking = tokio::spawn(revocation::run(Arc::clone(daemon)));
    tracing::info!("serving");
    let serving = tokio::spawn(accept(Arc::clone(daemon), listener, ListenerKind::Management, CONNECTIONS));
    if let Some(network) = network {
        let daemon = Arc::clone(daemon);
        let _network = tokio::spawn(async move {
            if let Err(error) = tcp_listener::accept(daemon, network).await {
                tracing::error!(error = %error, "the TCP listener failed");
            }
        });
    }
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        () = daemon.end.notified() => {}
    }
    tracing::info!("draining");
    drain(daemon).await;
    daemon.telemetry.end(daemon).await;
    serving.abort();
    Ok(())
}

/// Accepts no new work, waits for running calls, then stops the sessions.
async fn drain(daemon: &Arc<Daemon>) {
    daemon.ending.store(true, Ordering::SeqCst);
    let until = Instant::now() + daemon.settings.drain;
    while Instant::now() < until && !daemon.calls.is_idle() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let all = Arc::clone(daemon);
    let stopped = tokio::task::spawn_blocking(move || {
        // Before any session ends: child sessions and waiting clients cancel their calls when it does.
        all.sessions.live().iter().for_each(|live| live.live_calls().iter().for_each(|call| call.leave()));
        let stop = |live: &Arc<LiveSession>| registry::stop_with_daemon(&all, live);
        threads::for_each(std::thread::Builder::new, &all.sessions.live(), stop, || ());
    });
    let gone = async {
        if let Err(error) = stopped.await {
            tracing::error!(error = %error, "cannot end sessions cleanly");
        }
        while !daemon.sessions.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(LAST, gone).await.is_err() {
        let left = daemon.sessions.live().len();
        tracing::error!(left, "sessions did not end in time; they end with this process");
    }
    // Lets the last responses leave.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// Ends expired sessions, and idle containers of sessions that go on.
async fn reap(daemon: Arc<Daemon>) {
    let mut round = tokio::time::interval(ROUND);
    let mut writing = None;
    loop {
        let _at = round.tick().await;
        if writing.as_ref().is_none_or(tokio::task::JoinHandle::is_finished) {
            // One try at a time: each may wait for the ledger as long as an append does.
            let all = Arc::clone(&daemon);
            writing = Some(tokio::task::spawn_blocking(move || all.runtime.ledger().write_late()));
        }
        for live in daemon.sessions.live() {
            if let Some(why) = live.overdue(Instant::now()) {
                let daemon = Arc::clone(&daemon);
                let _stopping =
                    tokio::task::spawn_blocking(move || registry::stop(&daemon, &live, why, None));
            } else if live.bound.is_in_container() {
                let _resting = tokio::task::spawn_blocking(move || live.bound.rest());
            }
        }
    }
}

async fn accept(daemon: Arc<Daemon>, listener: UnixListener, entrance: ListenerKind, most: usize) {
    let [places, of_others] = [most, CONNECTIONS_OF_OTHERS].map(Budget::new);
    loop {
        // Without a free slot, connections wait in the kernel's queue.
        let Some(place) = places.acquire(1).await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(peer) = UnixPeer::of(&stream) else { continue };
                // Closed at once: a waiting connection would queue in front of the owner.
                let Some(place) = place_of(peer, &entrance, place, &of_others) else {
                    tracing::debug!(uid = peer.uid, "too many connections of other users");
                    continue;
                };
                let line = attend(Arc::clone(&daemon), stream, entrance.clone(), Some(peer), None);
                let _line = tokio::spawn(async move {
                    line.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(error = %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The slot of an identified peer. A peer that is not the owner returns its slot and takes one of the others' slots.
fn place_of(peer: UnixPeer, entrance: &ListenerKind, place: Permit, of_others: &Budget) -> Option<Permit> {
    if peer.is_owner() || *entrance != ListenerKind::Management {
        return Some(place);
    }
    of_others.try_acquire(1)
}

/// Serves one connection until it closes.
pub(crate) async fn attend<S>(
    daemon: Arc<Daemon>,
    stream: S,
    entrance: ListenerKind,
    peer: Option<UnixPeer>,
    network: Option<Arc<TcpListenerConfig>>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let cut = Arc::new(Notify::new());
    let (held, mut over) = mpsc::channel(1);
    let rate = ConnectionRate::new(&daemon.rates, &entrance, peer);
    // A fenced process gets fewer streams, and so less of the daemon's memory.
    let streams = if matches!(entrance, ListenerKind::Door(_)) { STREAMS_AT_A_DOOR } else { STREAMS };
    let line = Arc::new(HttpConnection {
        daemon,
        entrance,
        peer,
        network,
        rate,
        cut: Arc::clone(&cut),
        _held: held,
    });
    let answers = move |request| answer(Arc::clone(&line), request);
    connection::serve(stream, streams, &cut, ConnectionTiming::default(), answers).await;
    let _over = over.recv().await;
}

impl Daemon {
    /// Serves the socket of a session until the session ends.
    pub(crate) fn serve_door(self: &Arc<Self>, live: &Arc<LiveSession>, listener: StdListener) {
        let (daemon, live) = (Arc::clone(self), Arc::clone(live));
        let _door = self.handle.spawn(async move {
            let listener = match UnixListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(error = %error, "cannot open the session socket"),
            };
            let over = live.over.notified();
            tokio::pin!(over);
            let _registered = over.as_mut().enable();
            if live.has_ended() {
                return;
            }
            let entrance = ListenerKind::Door(live.id().clone());
            tokio::select! {
                () = accept(daemon, listener, entrance, CONNECTIONS_OF_A_DOOR) => {}
                () = over => {}
            }
        });
    }

    /// Ends the session when its token is revoked or expires: without it the agent can do nothing at its socket.
    pub(crate) fn end_with_token(self: &Arc<Self>, live: &Arc<LiveSession>, known: KnownIdentity) {
        let (daemon, live) = (Arc::clone(self), Arc::clone(live));
        let _watching = self.handle.spawn(async move {
            if let Some(why) = token_lost(&daemon, &live, &known).await {
                // A session and its token expire together.
                let is_over = why.rule.as_ref().is_some_and(|rule| *rule == AuthError::Expired.rule());
                let lost = format!("its token: {}", why.message);
                let stop = move || {
                    let why = if is_over { TIME } else { EndReason(SessionEndReason::Revoked, &lost) };
                    registry::stop(&daemon, &live, why, None);
                };
                let _stopping = tokio::task::spawn_blocking(stop);
            }
        });
    }

    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.end.notify_one();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    pub(crate) fn takes_work(&self) -> Result<(), ApiError> {
        if self.ending.load(Ordering::SeqCst) {
            return Err(ApiError::new(ErrorCode::Unavailable, "the daemon is about to end"));
        }
        Ok(())
    }

    pub(crate) fn request_id(&self) -> String {
        format!("req_{:x}_{:x}", std::process::id(), self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Runs a call in a call slot.
    pub(crate) fn counted<T>(&self, live: &LiveSession, call: impl FnOnce() -> T) -> Result<T, ApiError> {
        let place = self.place(live)?;
        let done = call();
        drop(place);
        Ok(done)
    }

    /// Runs a call on its own thread.
    pub(crate) fn in_background(
        &self,
        live: Arc<LiveSession>,
        wired: PreparedExec,
        sink: OutputSink,
    ) -> Result<(), ApiError> {
        let place = self.place(&live)?;
        let work = move || {
            let _info = wired.run(&live, sink);
            drop(place);
        };
        let spawned = std::thread::Builder::new().name("call".to_owned()).spawn(work);
        spawned.map(drop).map_err(|error| internal(&error))
    }

    fn place(&self, live: &LiveSession) -> Result<Permit, ApiError> {
        let place = live.places.acquire()?;
        let _before = self.meters.calls.fetch_add(1, Ordering::Relaxed);
        Ok(place)
    }
}

/// Why the token of a session became invalid. `None` if the session ends first.
async fn token_lost(daemon: &Daemon, live: &LiveSession, known: &KnownIdentity) -> Option<ApiError> {
    let over = live.over.notified();
    tokio::pin!(over);
    let _registered = over.as_mut().enable();
    while !live.has_ended() {
        let mut standing = daemon.standings.watch(known);
        let why = tokio::select! {
            why = standing.revoked() => why,
            () = &mut over => return None,
        };
        if why.code != ErrorCode::Unavailable {
            return Some(why);
        }
        tokio::time::sleep(ROUND).await;
    }
    None
}
