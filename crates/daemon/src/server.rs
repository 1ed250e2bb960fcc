//! The process: what it is made of, how it starts, serves and ends.

use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence_api::{ApiError, ErrorCode};
use ringfence_runtime::Runtime;
use ringfence_runtime::identity::{Denied, Identities, IdentityError, Known};
use ringfence_runtime::ledger::SessionEnd;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::answers::Answers;
use crate::authenticate::Entrance;
use crate::connection::Timing;
use crate::events::{self, Events};
use crate::exec::{Sink, Wired};
use crate::failure::internal;
use crate::http::{Line, answer};
use crate::intake::Intake;
use crate::metrics::Meters;
use crate::network::{self, Network};
use crate::peer::Peer;
use crate::places::{Place, Places};
use crate::quota::Quotas;
use crate::rate::{Rate, Rates};
use crate::session::{Live, TIME};
use crate::sessions::{self, Because, Sessions};
use crate::standing::{self, Standings};
use crate::strangers::Strangers;
use crate::telemetry::{Telemetry, TelemetryError};
use crate::turns::Turns;
use crate::{Governor, Serve, Settings, connection, door, mcp, reload, threads};

/// How long sessions may take to end when nothing is waited for any more.
const LAST: Duration = Duration::from_secs(30);
/// How often it is looked whether the time of a session is over.
const ROUND: Duration = Duration::from_millis(200);
/// Connections at once: to the socket of the operators, and to each door.
const CONNECTIONS: usize = 2048;
/// Of these at the socket of the operators, those of whoever is not its owner: a process in a fence that reaches it all the same does not
/// keep the owner from stopping it.
const CONNECTIONS_OF_OTHERS: usize = 128;
const CONNECTIONS_OF_A_DOOR: usize = 32;
/// Requests of one connection of HTTP/2 under way at once.
const STREAMS: u32 = 64;
const STREAMS_AT_A_DOOR: u32 = 8;
/// Threads besides those of calls, so that there is one for whoever answers, revokes or stops while all calls wait.
const THREADS: usize = 384;

/// Everything that requests share.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// As long as the process.
    pub(crate) runtime: &'static Runtime,
    pub(crate) identities: Identities,
    pub(crate) governor: Arc<dyn Governor>,
    pub(crate) doors: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) sessions: Sessions,
    pub(crate) events: Events,
    pub(crate) standings: Standings,
    pub(crate) strangers: Strangers,
    pub(crate) quotas: Quotas,
    pub(crate) meters: Meters,
    pub(crate) telemetry: Telemetry,
    pub(crate) tools_underway: mcp::Underway,
    pub(crate) intake: Intake,
    pub(crate) answers: Answers,
    pub(crate) rates: Rates,
    pub(crate) turns: Turns,
    /// Of those who show a password, one at a time: what was guessed wrong counts before the next is looked at.
    pub(crate) login: Arc<Semaphore>,
    /// Of those who are known, by a token or because they came in from there before: strangers do not stand before them.
    pub(crate) familiar: Arc<Semaphore>,
    /// Of those who answer, one at a time.
    pub(crate) answering: Mutex<()>,
    /// Calls of all sessions that are under way.
    pub(crate) calls: Places,
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
    /// The one thing that would change it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Telemetry(error) => error.hint(),
            _ => None,
        }
    }
}

/// Serves until a signal or an operator ends it. When this returns nothing of any session runs.
pub fn serve(serve: Serve) -> Result<(), ServeError> {
    door::clear(&serve.doors).map_err(ServeError::Doors)?;
    let threads = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(serve.settings.calls.saturating_add(THREADS))
        .thread_keep_alive(Duration::from_secs(5))
        .build()
        .map_err(ServeError::Start)?;
    // It is borrowed by every session, and sessions are on threads of their own: it lives as long as the process.
    let runtime: &'static Runtime = Box::leak(Box::new(serve.runtime));
    let identities = runtime.identities()?;
    // Whoever had them ended without a word, and nobody has revoked anything.
    let abandoned = ringfence_runtime::end_abandoned(runtime, &identities.live_sessions()?)?;
    identities.end_sessions(&abandoned.over)?;
    for session in abandoned.ended {
        tracing::warn!(%session, "a session ended with the daemon before this one");
    }
    let head = events::end_of(runtime.ledger()).map_err(ServeError::Ledger)?;
    let calls = Places::new(serve.settings.calls);
    let daemon = Arc::new(Daemon {
        runtime,
        identities,
        governor: serve.governor,
        doors: serve.doors,
        settings: serve.settings,
        sessions: Sessions::default(),
        events: Events::after_those(head),
        standings: Standings::default(),
        strangers: Strangers::default(),
        quotas: Quotas::default(),
        meters: Meters::default(),
        telemetry: Telemetry::default(),
        tools_underway: mcp::Underway::default(),
        intake: Intake::default(),
        answers: Answers::default(),
        rates: Rates::default(),
        turns: Turns::default(),
        login: Arc::new(Semaphore::new(1)),
        familiar: Arc::new(Semaphore::new(1)),
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
    // Before anything is served: an operator who wants to be told of everything is told of the first request, too.
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
    network: Option<Arc<Network>>,
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
    let _reloading = tokio::spawn(reload::look_after(Arc::clone(daemon), told));
    let _looking = tokio::spawn(standing::look_after(Arc::clone(daemon)));
    tracing::info!("serving");
    let serving = tokio::spawn(accept(Arc::clone(daemon), listener, (Entrance::Management, CONNECTIONS)));
    if let Some(network) = network {
        let daemon = Arc::clone(daemon);
        let _network = tokio::spawn(async move {
            if let Err(error) = network::accept(daemon, network).await {
                tracing::error!(why = %error, "nobody listens on TCP any more");
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

/// Nothing new begins; what runs may end by itself for a while, and is then made to.
async fn drain(daemon: &Arc<Daemon>) {
    daemon.ending.store(true, Ordering::SeqCst);
    let until = Instant::now() + daemon.settings.drain;
    while Instant::now() < until && !daemon.calls.are_free() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let all = Arc::clone(daemon);
    let stopped = tokio::task::spawn_blocking(move || {
        // Before any session ends: its parts and whoever waits at its door cancel what they have begun when it does.
        all.sessions.live().iter().for_each(|live| live.live_calls().iter().for_each(|call| call.leave()));
        let stop = |live: &Arc<Live>| sessions::stop_with_daemon(&all, live);
        threads::for_each(std::thread::Builder::new, (&all.sessions.live(), stop), || ());
    });
    let gone = async {
        if let Err(error) = stopped.await {
            tracing::error!(why = %error, "sessions were not ended in order");
        }
        while !daemon.sessions.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(LAST, gone).await.is_err() {
        let left = daemon.sessions.live().len();
        tracing::error!(left, "sessions did not end in time, and end with this process");
    }
    // The last answers are on their way.
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// Ends sessions whose time is over, and containers that rest while their session goes on.
async fn reap(daemon: Arc<Daemon>) {
    let mut round = tokio::time::interval(ROUND);
    loop {
        let _at = round.tick().await;
        for live in daemon.sessions.live() {
            if let Some(why) = live.overdue(Instant::now()) {
                let daemon = Arc::clone(&daemon);
                let _stopping =
                    tokio::task::spawn_blocking(move || sessions::stop(&daemon, &live, (why, None)));
            } else if live.bound.is_in_container() {
                let _resting = tokio::task::spawn_blocking(move || live.bound.rest());
            }
        }
    }
}

async fn accept(daemon: Arc<Daemon>, listener: UnixListener, (entrance, most): (Entrance, usize)) {
    let [places, of_others] = [most, CONNECTIONS_OF_OTHERS].map(|most| Arc::new(Semaphore::new(most)));
    loop {
        // Whoever comes when all places are taken waits in the kernel's queue.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(peer) = Peer::of(&stream) else { continue };
                // It is closed at once: were it to wait, it would wait in front of the owner.
                let Some(place) = place_of(peer, &entrance, (place, &of_others)) else {
                    tracing::debug!(uid = peer.uid, "too many connections of others than the owner");
                    continue;
                };
                let line = attend(Arc::clone(&daemon), stream, (entrance.clone(), Some(peer), None));
                let _line = tokio::spawn(async move {
                    line.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(why = %error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The place of somebody of whom it is known now who they are: whoever is not the owner gives the owner's back and has one of the others'.
fn place_of(
    peer: Peer,
    entrance: &Entrance,
    (place, of_others): (OwnedSemaphorePermit, &Arc<Semaphore>),
) -> Option<OwnedSemaphorePermit> {
    if peer.is_owner() || *entrance != Entrance::Management {
        return Some(place);
    }
    Arc::clone(of_others).try_acquire_owned().ok()
}

/// One connection, from its first request to its last.
pub(crate) async fn attend<S>(
    daemon: Arc<Daemon>,
    stream: S,
    (entrance, peer, network): (Entrance, Option<Peer>, Option<Arc<Network>>),
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let cut = Arc::new(Notify::new());
    let (held, mut over) = mpsc::channel(1);
    let rate = Rate::new(&daemon.rates, &entrance, peer);
    // What runs inside a fence has no more of the daemon's memory than it needs.
    let streams = if matches!(entrance, Entrance::Door(_)) { STREAMS_AT_A_DOOR } else { STREAMS };
    let line = Arc::new(Line { daemon, entrance, peer, network, rate, cut: Arc::clone(&cut), _held: held });
    let answers = move |request| answer(Arc::clone(&line), request);
    connection::serve((stream, streams), (&cut, Timing::default()), answers).await;
    let _over = over.recv().await;
}

impl Daemon {
    /// Serves the door of a session for as long as the session lasts.
    pub(crate) fn serve_door(self: &Arc<Self>, live: &Arc<Live>, listener: StdListener) {
        let (daemon, live) = (Arc::clone(self), Arc::clone(live));
        let _door = self.handle.spawn(async move {
            let listener = match UnixListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(why = %error, "a session has no door"),
            };
            let over = live.over.notified();
            tokio::pin!(over);
            let _registered = over.as_mut().enable();
            if live.has_ended() {
                return;
            }
            let entrance = Entrance::Door(live.id().clone());
            tokio::select! {
                () = accept(daemon, listener, (entrance, CONNECTIONS_OF_A_DOOR)) => {}
                () = over => {}
            }
        });
    }

    /// Without its token an agent can do nothing more at its door, and its session is over.
    pub(crate) fn end_with_token(self: &Arc<Self>, live: &Arc<Live>, known: Known) {
        let (daemon, live) = (Arc::clone(self), Arc::clone(live));
        let _watching = self.handle.spawn(async move {
            if let Some(why) = token_lost(&daemon, &live, &known).await {
                // A session and its token have the same time.
                let is_over = why.rule.as_deref() == Some(Denied::Expired.rule());
                let lost = format!("its token: {}", why.message);
                let stop = move || {
                    let why = if is_over { TIME } else { Because(SessionEnd::Revoked, &lost) };
                    sessions::stop(&daemon, &live, (why, None));
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

    /// Does a call, if there are not too many already.
    pub(crate) fn counted<T>(&self, live: &Live, call: impl FnOnce() -> T) -> Result<T, ApiError> {
        let place = self.place(live)?;
        let done = call();
        drop(place);
        Ok(done)
    }

    /// Does a call on a thread of its own.
    pub(crate) fn in_background(&self, live: Arc<Live>, wired: Wired, sink: Sink) -> Result<(), ApiError> {
        let place = self.place(&live)?;
        let work = move || {
            let _info = wired.run(&live, sink);
            drop(place);
        };
        let spawned = std::thread::Builder::new().name("call".to_owned()).spawn(work);
        spawned.map(drop).map_err(|error| internal(&error))
    }

    fn place(&self, live: &Live) -> Result<Place, ApiError> {
        let place = live.places.take()?;
        let _before = self.meters.calls.fetch_add(1, Ordering::Relaxed);
        Ok(place)
    }
}

/// Why the token of a session is worth nothing, unless the session ends first.
async fn token_lost(daemon: &Daemon, live: &Live, known: &Known) -> Option<ApiError> {
    let over = live.over.notified();
    tokio::pin!(over);
    let _registered = over.as_mut().enable();
    while !live.has_ended() {
        let mut standing = daemon.standings.hold(known);
        let why = tokio::select! {
            why = standing.lost() => why,
            () = &mut over => return None,
        };
        if why.code != ErrorCode::Unavailable {
            return Some(why);
        }
        tokio::time::sleep(ROUND).await;
    }
    None
}
