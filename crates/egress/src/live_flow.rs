//! Live flows: state that all flows of a session share, and the life of one flow.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use ringfence_types::{PolicyLayer, Refusal, RefusalCode, RuleId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::flow_gate::{
    DialPermit, Flow, FlowEnd, FlowGate, FlowId, FlowIngress, FlowRequest, FlowTarget, FlowTerms,
    FlowVerdict, LeakReport, Traffic,
};
use crate::inspection_settings::Inspection;
use crate::limits::{ByteMeter, FlowLimit, FlowRate, TrafficDirection};
use crate::resign::SignerPool;
use crate::resolve::Resolver;
use crate::settings::ProxySettings;
use crate::synthetic_addresses::SyntheticNames;

/// Concurrent short calls of the gate: records and lookups.
pub(crate) const RECORDING: usize = 32;

/// Tunnel directions that may have a large buffer at the same time.
const LARGE_BUFFERS: usize = 32;

pub(crate) struct ProxyState {
    pub(crate) settings: ProxySettings,
    pub(crate) resolver: Resolver,
    pub(crate) names: SyntheticNames,
    pub(crate) inspection: Inspection,
    gate: Arc<dyn FlowGate>,
    records: mpsc::Sender<Option<GateMessage>>,
    flow_ids: AtomicU64,
    session: ByteMeter,
    flows: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    rate: FlowRate,
    overruns: FlowRate,
    nonsense: FlowRate,
    deciding: Arc<Semaphore>,
    recording: Arc<Semaphore>,
    large_buffers: Semaphore,
    pub(crate) signers: SignerPool,
}

/// A message to the gate that no flow waits for.
pub(crate) enum GateMessage {
    Ended(Box<FlowRecord>),
    Malformed(FlowIngress, String),
}

impl GateMessage {
    pub(crate) fn tell(&self, gate: &dyn FlowGate) {
        match self {
            Self::Ended(record) => record.tell(gate),
            Self::Malformed(way, why) => gate.malformed(*way, why),
        }
    }
}

/// End of a flow, queued for the gate.
pub(crate) struct FlowRecord {
    pub(crate) flow: Flow,
    pub(crate) traffic: Traffic,
    /// Findings of the flow.
    pub(crate) leaks: Vec<LeakReport>,
    pub(crate) end: FlowEnd,
    /// The flow's slot, held until the gate knows the end. This bounds the queue by the number of flows.
    #[expect(dead_code, reason = "held for its drop: a place for the next flow")]
    pub(crate) place: Option<FlowSlots>,
}

/// Slots that a flow occupies.
#[derive(Debug)]
#[expect(dead_code, reason = "held for their drop")]
pub(crate) struct FlowSlots {
    flow: OwnedSemaphorePermit,
    request: Option<OwnedSemaphorePermit>,
}

impl FlowRecord {
    fn tell(&self, gate: &dyn FlowGate) {
        for leak in &self.leaks {
            gate.finding(&self.flow, leak);
        }
        gate.ended(&self.flow, self.traffic, &self.end);
    }
}

/// Findings kept per flow; further ones are dropped.
const MOST_LEAKS: usize = 64;

/// Reason why there is no connection: a refusal or a failure.
#[derive(Debug)]
pub(crate) enum FlowStop {
    Refused(Refusal),
    Failed(UpstreamFailure),
}

/// An upstream error.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamFailure {
    pub(crate) kind: UpstreamFailureKind,
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamFailureKind {
    /// The name did not resolve.
    Name,
    /// The peer refused or broke the connection or its protocol.
    Peer,
    /// Timeout.
    Late,
}

impl FlowStop {
    pub(crate) fn failed(kind: UpstreamFailureKind, message: impl Into<String>) -> Self {
        Self::Failed(UpstreamFailure { kind, message: message.into() })
    }

    pub(crate) fn end(&self) -> FlowEnd {
        match self {
            Self::Refused(refusal) => FlowEnd::Refused(refusal.clone()),
            Self::Failed(failure) => FlowEnd::Failed(failure.message.clone()),
        }
    }
}

impl From<Refusal> for FlowStop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl ProxyState {
    pub(crate) fn new(
        gate: Arc<dyn FlowGate>,
        settings: ProxySettings,
        records: mpsc::Sender<Option<GateMessage>>,
    ) -> Self {
        let limits = settings.limits;
        Self {
            resolver: Resolver::new(&settings),
            names: SyntheticNames::new(limits.names),
            inspection: Inspection::new(&settings.http),
            gate,
            records,
            flow_ids: AtomicU64::new(0),
            session: ByteMeter::new(limits.session),
            flows: Arc::new(Semaphore::new(limits.flows)),
            requests: Arc::new(Semaphore::new(limits.requests)),
            rate: FlowRate::new(limits.flows_per_second),
            overruns: FlowRate::new(1),
            nonsense: FlowRate::new(1),
            deciding: Arc::new(Semaphore::new(limits.deciding)),
            recording: Arc::new(Semaphore::new(RECORDING)),
            large_buffers: Semaphore::new(LARGE_BUFFERS),
            signers: SignerPool::new(limits.signed_bytes),
            settings,
        }
    }

    /// Opens a flow: assigns its number, acquires its slots, and guarantees that the gate is told the end.
    pub(crate) fn open_flow(
        self: &Arc<Self>,
        way: FlowIngress,
        target: FlowTarget,
        request: Option<FlowRequest>,
    ) -> Result<LiveFlow, DeniedFlow> {
        let id = FlowId(self.flow_ids.fetch_add(1, Ordering::Relaxed) + 1);
        let flow = Flow { id, way, target, request };
        match self.places(&flow) {
            Ok(place) => Ok(LiveFlow(Arc::new(FlowGuard {
                flow,
                shared: Arc::clone(self),
                meter: ByteMeter::new(self.settings.limits.flow),
                leaks: Mutex::default(),
                end: OnceLock::new(),
                place: Some(place),
            }))),
            Err(limit) => Err(self.deny(flow, limit)),
        }
    }

    /// Acquires a slot for the flow, and one for a scanned request, which needs memory.
    fn places(&self, flow: &Flow) -> Result<FlowSlots, FlowLimit> {
        if !self.rate.admits() {
            return Err(FlowLimit::FlowsPerSecond);
        }
        let taken = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        let request =
            flow.request.as_ref().map(|_| taken(&self.requests).ok_or(FlowLimit::Requests)).transpose()?;
        Ok(FlowSlots { flow: taken(&self.flows).ok_or(FlowLimit::Flows)?, request })
    }

    /// Refuses a flow above a limit. Records one such refusal per second, so that a client cannot fill the ledger.
    fn deny(&self, flow: Flow, limit: FlowLimit) -> DeniedFlow {
        let refusal = limit.refusal(&self.settings.limits);
        let denied = DeniedFlow { id: flow.id, target: flow.target.clone(), refusal: refusal.clone() };
        if self.overruns.admits() {
            let end = FlowEnd::Refused(refusal);
            let (traffic, leaks) = (Traffic::default(), Vec::new());
            self.record(GateMessage::Ended(Box::new(FlowRecord { flow, traffic, leaks, end, place: None })));
        }
        denied
    }

    /// Reports a connection without a valid target. Rate limited, because such a connection costs the client nothing.
    pub(crate) fn malformed(&self, way: FlowIngress, why: &str) {
        const LONGEST: usize = 256;
        if self.nonsense.admits() {
            let why = why.chars().take(LONGEST).flat_map(char::escape_debug).collect();
            self.record(GateMessage::Malformed(way, why));
        }
    }

    fn record(&self, entry: GateMessage) {
        if let Err(mpsc::SendError(Some(late))) = self.records.send(Some(entry)) {
            // The proxy stopped while the gate was deciding in this thread.
            late.tell(&*self.gate);
        }
    }

    /// Whether the gate is deciding about a flow now.
    pub(crate) fn is_deciding(&self) -> bool {
        self.deciding.available_permits() < self.settings.limits.deciding
    }

    /// Whether the stub resolver may answer a name. A panic of the gate counts as no.
    pub(crate) async fn answers(&self, name: &str) -> bool {
        let name = name.to_owned();
        self.send_to_gate(&self.recording, move |gate| gate.answers(&name)).await.unwrap_or(false)
    }

    /// Runs one call of the gate on a blocking thread. `None`: the call panicked.
    ///
    /// The permit belongs to the call and not to the flow. A client that disconnects frees it only when the gate has answered.
    async fn send_to_gate<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        call: impl FnOnce(&dyn FlowGate) -> T + Send + 'static,
    ) -> Option<T> {
        let place = Arc::clone(places).acquire_owned().await.ok()?;
        let gate = Arc::clone(&self.gate);
        let answer = tokio::task::spawn_blocking(move || {
            let answer = call(&*gate);
            drop(place);
            answer
        });
        answer.await.ok()
    }
}

impl std::fmt::Debug for ProxyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("flows", &self.flow_ids).finish_non_exhaustive()
    }
}

/// A flow that was refused before it began. Already counted and recorded.
#[derive(Debug)]
pub(crate) struct DeniedFlow {
    pub(crate) id: FlowId,
    pub(crate) target: FlowTarget,
    pub(crate) refusal: Refusal,
}

/// An open flow. However it is dropped, the gate is told the end exactly once.
#[derive(Debug)]
pub(crate) struct LiveFlow(Arc<FlowGuard>);

/// Shared by the flow and its gate calls. If the client disconnects during a gate call, the flow ends after that call, so the gate
/// never gets an event after the end.
#[derive(Debug)]
struct FlowGuard {
    flow: Flow,
    shared: Arc<ProxyState>,
    meter: ByteMeter,
    leaks: Mutex<Vec<LeakReport>>,
    end: OnceLock<FlowEnd>,
    place: Option<FlowSlots>,
}

impl LiveFlow {
    pub(crate) fn flow(&self) -> &Flow {
        &self.0.flow
    }

    /// Asks the gate for a decision. May take as long as an approval.
    pub(crate) async fn authorize(&self) -> Result<FlowTerms, Refusal> {
        let begun = Arc::clone(&self.0);
        let shared = &self.0.shared;
        let asked = shared.send_to_gate(&shared.deciding, move |gate| gate.judge(&begun.flow));
        match tokio::time::timeout(shared.settings.times.decision, asked).await {
            Ok(Some(FlowVerdict::Pass(passage))) => Ok(passage),
            Ok(Some(FlowVerdict::Refuse(refusal))) => Err(refusal),
            Ok(None) => Err(broken("decide about the flow")),
            Err(_elapsed) if shared.deciding.available_permits() == 0 => {
                Err(FlowLimit::Deciding.refusal(&shared.settings.limits))
            }
            Err(_elapsed) => Err(undecided()),
        }
    }

    /// Acquires the permit to dial `address`.
    pub(crate) async fn opens(&self, address: IpAddr) -> Result<Box<dyn DialPermit>, Refusal> {
        let begun = Arc::clone(&self.0);
        let shared = &self.0.shared;
        let asked = shared.send_to_gate(&shared.recording, move |gate| gate.opens(&begun.flow, address));
        asked.await.unwrap_or_else(|| Err(broken("record the flow")))
    }

    /// Counts bytes before they are sent. Bytes above a budget are refused.
    pub(crate) fn charge(&self, direction: TrafficDirection, bytes: u64) -> Result<(), Refusal> {
        let limits = &self.0.shared.settings.limits;
        if !self.0.meter.adds(direction, bytes) {
            return Err(FlowLimit::FlowBytes(direction).refusal(limits));
        }
        if !self.0.shared.session.adds(direction, bytes) {
            return Err(FlowLimit::SessionBytes(direction).refusal(limits));
        }
        Ok(())
    }

    /// Permit for a large buffer; `None`: all are in use.
    pub(crate) fn large_buffer(&self) -> Option<SemaphorePermit<'_>> {
        self.0.shared.large_buffers.try_acquire().ok()
    }

    /// Refusal that ends the flow, if it is already known.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self.0.end.get() {
            Some(FlowEnd::Refused(refusal)) => Some(refusal.clone()),
            Some(FlowEnd::Done | FlowEnd::Failed(_)) | None => None,
        }
    }

    /// Adds a finding. The gate is told at the end of the flow.
    pub(crate) fn found(&self, leak: LeakReport) {
        let mut leaks = self.0.leaks.lock().unwrap_or_else(PoisonError::into_inner);
        if leaks.len() < MOST_LEAKS && !leaks.contains(&leak) {
            leaks.push(leak);
        }
    }

    /// Ends the flow. Dropping it instead means that the client disconnected.
    pub(crate) fn end(self, end: FlowEnd) {
        self.conclude(end);
    }

    /// Sets the end before the last bytes have passed. The first value is kept.
    pub(crate) fn conclude(&self, end: FlowEnd) {
        let _known = self.0.end.set(end);
    }
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| FlowEnd::Failed("the client went away".to_owned()));
        let leaks = std::mem::take(&mut *self.leaks.lock().unwrap_or_else(PoisonError::into_inner));
        let (flow, traffic, place) = (self.flow.clone(), self.meter.traffic(), self.place.take());
        self.shared.record(GateMessage::Ended(Box::new(FlowRecord { flow, traffic, leaks, end, place })));
    }
}

fn broken(what: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Ledger,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkGate.into(),
        message: format!("Ringfence could not {what}, so the flow is refused"),
        hint: None,
    }
}

fn undecided() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkDecision.into(),
        message: "no decision about the flow in time".to_owned(),
        hint: None,
    }
}
