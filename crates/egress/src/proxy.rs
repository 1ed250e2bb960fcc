//! The life of a session's proxy.

use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::dns::{Families, NameServer};
use crate::door;
use crate::fetch::{self, FetchError, FetchRequest, FetchResponse};
use crate::gate::Gate;
use crate::settings::Settings;
use crate::shared::{Entry, RECORDING, Shared};
use crate::sign;

/// The sockets inside the namespace that lead here.
#[derive(Debug)]
pub struct Doors {
    /// HTTP proxy and SOCKS.
    pub proxy: TcpListener,
    /// Connections to any address, led here by the namespace. IPv6 addresses are given to names only if this is a socket of
    /// version 6.
    pub transparent: Option<TcpListener>,
    pub dns: UdpSocket,
    pub dns_stream: TcpListener,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error("the threads of the proxy cannot be started")]
    Threads(#[source] std::io::Error),
    #[error("a door of the proxy cannot be used")]
    Door(#[source] std::io::Error),
}

/// A running proxy. When it is dropped, every connection is closed, every flow has ended for the gate, and its threads are gone;
/// only a call of the gate that does not return may outlive it, and the end of its flow with it.
#[derive(Debug)]
pub struct Proxy {
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
    records: mpsc::Sender<Option<Entry>>,
    recorder: Option<JoinHandle<()>>,
}

const WORKERS: usize = 2;
/// How long a call of the gate may hold up the end.
const LAST_CALL: Duration = Duration::from_millis(500);

impl Proxy {
    pub fn start(doors: Doors, gate: Arc<dyn Gate>, settings: Settings) -> Result<Self, StartError> {
        Self::run(Some(doors), gate, settings)
    }

    /// Nobody comes in; fetches go out.
    pub(crate) fn without_doors(gate: Arc<dyn Gate>, settings: Settings) -> Result<Self, StartError> {
        Self::run(None, gate, settings)
    }

    fn run(doors: Option<Doors>, gate: Arc<dyn Gate>, settings: Settings) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(settings.limits.deciding + RECORDING + sign::THREADS)
            .thread_name("ringfence-egress")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let (records, received) = mpsc::channel();
        let shared = {
            let _inside = runtime.enter();
            let shared = Arc::new(Shared::new(Arc::clone(&gate), settings, records.clone()));
            if let Some(doors) = doors {
                open(doors, &shared).map_err(StartError::Door)?;
            }
            shared
        };
        let recorder = std::thread::Builder::new()
            .name("ringfence-flows".to_owned())
            .spawn(move || record(&*gate, &received))
            .map_err(StartError::Threads)?;
        Ok(Self { runtime: Some(runtime), shared, records, recorder: Some(recorder) })
    }

    /// A request of the session's own. Blocks until it is over.
    pub fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let ended = || FetchError::Failed("the proxy has ended".to_owned());
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        let (answer, answered) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        runtime.spawn(async move { answer.send(fetch::fetch(request, &shared).await) });
        answered.recv().unwrap_or_else(|_gone| Err(ended()))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // First every task and with it every flow, then whoever is told of their ends.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(LAST_CALL);
        }
        let _stopped = self.records.send(None);
        if let Some(recorder) = self.recorder.take() {
            let _panicked = recorder.join();
        }
    }
}

/// Tells the gate how flows ended, one after the other, in a thread that a dropped task cannot take along.
fn record(gate: &dyn Gate, records: &mpsc::Receiver<Option<Entry>>) {
    // An entry has its place among the flows until the gate was told.
    while let Ok(Some(entry)) = records.recv() {
        entry.tell(gate);
    }
}

fn open(doors: Doors, shared: &Arc<Shared>) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(shared.settings.limits.connections));
    let led_to = doors.transparent.as_ref().map(TcpListener::local_addr).transpose()?;
    let families = if led_to.is_some_and(|door| door.is_ipv6()) { Families::Both } else { Families::V4 };
    let names = Arc::new(NameServer::new(Arc::clone(shared), families));
    doors.dns.set_nonblocking(true)?;
    tokio::spawn(Arc::clone(&names).serve_datagrams(tokio::net::UdpSocket::from_std(doors.dns)?));
    let name_stream = move |client| Arc::clone(&names).serve_stream(client);
    tokio::spawn(accept(listener(doors.dns_stream)?, Arc::clone(&places), name_stream));
    if let (Some(transparent), Some(door)) = (doors.transparent, led_to) {
        let shared = Arc::clone(shared);
        let led_here = move |client| door::transparent(client, door, Arc::clone(&shared));
        tokio::spawn(accept(listener(transparent)?, Arc::clone(&places), led_here));
    }
    let shared = Arc::clone(shared);
    let explicit = move |client| door::explicit(client, Arc::clone(&shared));
    tokio::spawn(accept(listener(doors.proxy)?, places, explicit));
    Ok(())
}

fn listener(listener: TcpListener) -> std::io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Accepts for ever. What cannot have a place is closed at once.
async fn accept<F>(
    listener: tokio::net::TcpListener,
    places: Arc<Semaphore>,
    serve: impl Fn(tokio::net::TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    /// Descriptors are short: whoever ends one lets the next in.
    const SHORT: Duration = Duration::from_millis(20);
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(SHORT).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let _refused = client.set_nodelay(true);
        let served = serve(client);
        tokio::spawn(async move {
            served.await;
            drop(place);
        });
    }
}
