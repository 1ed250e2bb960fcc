//! The proxy of a session, from start to stop.

use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::dns::{AddressFamilies, StubResolver};
use crate::fetch::{self, FetchError, FetchRequest, FetchResponse};
use crate::flow_gate::FlowGate;
use crate::listeners;
use crate::live_flow::{GateMessage, ProxyState, RECORDING};
use crate::resign;
use crate::settings::ProxySettings;

/// Listeners inside the network namespace.
#[derive(Debug)]
pub struct ProxyListeners {
    /// HTTP proxy and SOCKS.
    pub proxy: TcpListener,
    /// Redirected connections. Names get IPv6 addresses only if this is an IPv6 socket.
    pub transparent: Option<TcpListener>,
    pub dns: UdpSocket,
    pub dns_stream: TcpListener,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyStartError {
    #[error("the threads of the proxy cannot be started")]
    Threads(#[source] std::io::Error),
    #[error("cannot use a listener of the proxy")]
    Door(#[source] std::io::Error),
}

/// A running proxy. Dropping it closes every connection, reports the end of every flow and joins the threads. Only a gate call that
/// does not return, and the end of its flow, may outlive it.
#[derive(Debug)]
pub struct Proxy {
    runtime: Option<Runtime>,
    shared: Arc<ProxyState>,
    records: mpsc::Sender<Option<GateMessage>>,
    recorder: Option<JoinHandle<()>>,
}

const WORKERS: usize = 2;
/// How long a gate call may delay the stop.
const LAST_CALL: Duration = Duration::from_millis(500);

impl Proxy {
    pub fn start(
        doors: ProxyListeners,
        gate: Arc<dyn FlowGate>,
        settings: ProxySettings,
    ) -> Result<Self, ProxyStartError> {
        Self::run(Some(doors), gate, settings)
    }

    /// A proxy without listeners, for fetches only.
    pub(crate) fn without_doors(
        gate: Arc<dyn FlowGate>,
        settings: ProxySettings,
    ) -> Result<Self, ProxyStartError> {
        Self::run(None, gate, settings)
    }

    fn run(
        doors: Option<ProxyListeners>,
        gate: Arc<dyn FlowGate>,
        settings: ProxySettings,
    ) -> Result<Self, ProxyStartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(settings.limits.deciding + RECORDING + resign::THREADS)
            .thread_name("ringfence-egress")
            .enable_all()
            .build()
            .map_err(ProxyStartError::Threads)?;
        let (records, received) = mpsc::channel();
        let shared = {
            let _inside = runtime.enter();
            let shared = Arc::new(ProxyState::new(Arc::clone(&gate), settings, records.clone()));
            if let Some(doors) = doors {
                open(doors, &shared).map_err(ProxyStartError::Door)?;
            }
            shared
        };
        let recorder = std::thread::Builder::new()
            .name("ringfence-flows".to_owned())
            .spawn(move || record(&*gate, &received))
            .map_err(ProxyStartError::Threads)?;
        Ok(Self { runtime: Some(runtime), shared, records, recorder: Some(recorder) })
    }

    /// Performs a fetch. Blocks until it is complete.
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
        // Tasks and their flows end first, then the thread that reports their ends.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(LAST_CALL);
        }
        let _stopped = self.records.send(None);
        if let Some(recorder) = self.recorder.take() {
            let _panicked = recorder.join();
        }
    }
}

/// Reports the ends of flows to the gate, in a thread that dropped tasks do not affect.
fn record(gate: &dyn FlowGate, records: &mpsc::Receiver<Option<GateMessage>>) {
    // A message holds the slot of its flow until the gate was told.
    while let Ok(Some(entry)) = records.recv() {
        entry.tell(gate);
    }
}

fn open(doors: ProxyListeners, shared: &Arc<ProxyState>) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(shared.settings.limits.connections));
    let led_to = doors.transparent.as_ref().map(TcpListener::local_addr).transpose()?;
    let families =
        if led_to.is_some_and(|door| door.is_ipv6()) { AddressFamilies::Both } else { AddressFamilies::V4 };
    let names = Arc::new(StubResolver::new(Arc::clone(shared), families));
    doors.dns.set_nonblocking(true)?;
    tokio::spawn(Arc::clone(&names).serve_datagrams(tokio::net::UdpSocket::from_std(doors.dns)?));
    let name_stream = move |client| Arc::clone(&names).serve_stream(client);
    tokio::spawn(accept(listener(doors.dns_stream)?, Arc::clone(&places), name_stream));
    if let (Some(transparent), Some(door)) = (doors.transparent, led_to) {
        let shared = Arc::clone(shared);
        let led_here = move |client| listeners::transparent(client, door, Arc::clone(&shared));
        tokio::spawn(accept(listener(transparent)?, Arc::clone(&places), led_here));
    }
    let shared = Arc::clone(shared);
    let explicit = move |client| listeners::explicit(client, Arc::clone(&shared));
    tokio::spawn(accept(listener(doors.proxy)?, places, explicit));
    Ok(())
}

fn listener(listener: TcpListener) -> std::io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Accepts connections. A connection without a free slot is closed at once.
async fn accept<F>(
    listener: tokio::net::TcpListener,
    places: Arc<Semaphore>,
    serve: impl Fn(tokio::net::TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    /// Delay after running out of descriptors.
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
