//! What all flows of a session share, and the life of one flow.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use ringfence_types::{Layer, Refusal, RefusalCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::gate::{Flow, FlowEnd, FlowId, Gate, Leak, Passage, Request, Target, Traffic, Verdict, Way};
use crate::inspection::Inspection;
use crate::limits::{Direction, Limit, Meter, Rate};
use crate::names::Names;
use crate::resolve::Resolver;
use crate::settings::Settings;
use crate::sign::Signers;

/// Gate calls that nobody waits long for: a record, a lookup in a list.
pub(crate) const RECORDING: usize = 32;

/// Directions of tunnels that may have one at the same time.
const LARGE_BUFFERS: usize = 32;

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) resolver: Resolver,
    pub(crate) names: Names,
    pub(crate) inspection: Inspection,
    gate: Arc<dyn Gate>,
    records: mpsc::Sender<Option<Entry>>,
    flow_ids: AtomicU64,
    session: Meter,
    flows: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    rate: Rate,
    overruns: Rate,
    nonsense: Rate,
    deciding: Arc<Semaphore>,
    recording: Arc<Semaphore>,
    large_buffers: Semaphore,
    pub(crate) signers: Signers,
}

/// What the gate is told when there is time for it.
pub(crate) enum Entry {
    Ended(Box<Record>),
    Malformed(Way, String),
}

impl Entry {
    pub(crate) fn tell(&self, gate: &dyn Gate) {
        match self {
            Self::Ended(record) => record.tell(gate),
            Self::Malformed(way, why) => gate.malformed(*way, why),
        }
    }
}

/// How a flow ended, on its way to the gate.
pub(crate) struct Record {
    pub(crate) flow: Flow,
    pub(crate) traffic: Traffic,
    /// What was found in it, before it ended.
    pub(crate) leaks: Vec<Leak>,
    pub(crate) end: FlowEnd,
    /// Its place among those that are open, until the gate has been told: ends that wait are no more than flows may be.
    #[expect(dead_code, reason = "held for its drop: a place for the next flow")]
    pub(crate) place: Option<Places>,
}

/// What a flow takes of what there is for all.
#[derive(Debug)]
#[expect(dead_code, reason = "held for their drop")]
pub(crate) struct Places {
    flow: OwnedSemaphorePermit,
    request: Option<OwnedSemaphorePermit>,
}

impl Record {
    fn tell(&self, gate: &dyn Gate) {
        for leak in &self.leaks {
            gate.finding(&self.flow, leak);
        }
        gate.ended(&self.flow, self.traffic, &self.end);
    }
}

/// A flow that finds secrets without end is as good as one that finds these.
const MOST_LEAKS: usize = 64;

/// Why there is no connection: somebody said no, or it did not work.
#[derive(Debug)]
pub(crate) enum Stopped {
    Refused(Refusal),
    Failed(Failure),
}

/// What went wrong outside.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The name has no address.
    Name,
    /// Nobody accepts, or the peer broke the connection or its protocol.
    Peer,
    /// It took too long.
    Late,
}

impl Stopped {
    pub(crate) fn failed(kind: FailureKind, message: impl Into<String>) -> Self {
        Self::Failed(Failure { kind, message: message.into() })
    }

    pub(crate) fn end(&self) -> FlowEnd {
        match self {
            Self::Refused(refusal) => FlowEnd::Refused(refusal.clone()),
            Self::Failed(failure) => FlowEnd::Failed(failure.message.clone()),
        }
    }
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Shared {
    pub(crate) fn new(gate: Arc<dyn Gate>, settings: Settings, records: mpsc::Sender<Option<Entry>>) -> Self {
        let limits = settings.limits;
        Self {
            resolver: Resolver::new(&settings),
            names: Names::new(limits.names),
            inspection: Inspection::new(&settings.http),
            gate,
            records,
            flow_ids: AtomicU64::new(0),
            session: Meter::new(limits.session),
            flows: Arc::new(Semaphore::new(limits.flows)),
            requests: Arc::new(Semaphore::new(limits.requests)),
            rate: Rate::new(limits.flows_per_second),
            overruns: Rate::new(1),
            nonsense: Rate::new(1),
            deciding: Arc::new(Semaphore::new(limits.deciding)),
            recording: Arc::new(Semaphore::new(RECORDING)),
            large_buffers: Semaphore::new(LARGE_BUFFERS),
            signers: Signers::new(limits.signed_bytes),
            settings,
        }
    }

    /// Begins a flow: it has a number, a place among those that may be open, and an end that is told to the gate.
    pub(crate) fn begin(
        self: &Arc<Self>,
        way: Way,
        target: Target,
        request: Option<Request>,
    ) -> Result<Live, Denied> {
        let id = FlowId(self.flow_ids.fetch_add(1, Ordering::Relaxed) + 1);
        let flow = Flow { id, way, target, request };
        match self.places(&flow) {
            Ok(place) => Ok(Live(Arc::new(Begun {
                flow,
                shared: Arc::clone(self),
                meter: Meter::new(self.settings.limits.flow),
                leaks: Mutex::default(),
                end: OnceLock::new(),
                place: Some(place),
            }))),
            Err(limit) => Err(self.deny(flow, limit)),
        }
    }

    /// Its place among the flows, and for a request that is looked at, which takes memory for it, one among these.
    fn places(&self, flow: &Flow) -> Result<Places, Limit> {
        if !self.rate.admits() {
            return Err(Limit::FlowsPerSecond);
        }
        let taken = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        let request =
            flow.request.as_ref().map(|_| taken(&self.requests).ok_or(Limit::Requests)).transpose()?;
        Ok(Places { flow: taken(&self.flows).ok_or(Limit::Flows)?, request })
    }

    /// A client above a limit would fill the ledger with its own refusals: one a second is written.
    fn deny(&self, flow: Flow, limit: Limit) -> Denied {
        let refusal = limit.refusal(&self.settings.limits);
        let denied = Denied { id: flow.id, target: flow.target.clone(), refusal: refusal.clone() };
        if self.overruns.admits() {
            let end = FlowEnd::Refused(refusal);
            let (traffic, leaks) = (Traffic::default(), Vec::new());
            self.record(Entry::Ended(Box::new(Record { flow, traffic, leaks, end, place: None })));
        }
        denied
    }

    /// Somebody came with what is no flow. It costs nothing to send such: a few a second are written.
    pub(crate) fn malformed(&self, way: Way, why: &str) {
        const LONGEST: usize = 256;
        if self.nonsense.admits() {
            let why = why.chars().take(LONGEST).flat_map(char::escape_debug).collect();
            self.record(Entry::Malformed(way, why));
        }
    }

    fn record(&self, entry: Entry) {
        if let Err(mpsc::SendError(Some(late))) = self.records.send(Some(entry)) {
            // The proxy has ended while the gate decided, in whose thread this is.
            late.tell(&*self.gate);
        }
    }

    /// Whether the gate decides about a flow right now.
    pub(crate) fn is_deciding(&self) -> bool {
        self.deciding.available_permits() < self.settings.limits.deciding
    }

    /// Whether a name may be answered inside. A gate that breaks answers nothing.
    pub(crate) async fn answers(&self, name: &str) -> bool {
        let name = name.to_owned();
        self.ask(&self.recording, move |gate| gate.answers(&name)).await.unwrap_or(false)
    }

    /// Runs one call of the gate where it holds up nobody else. `None`: it broke.
    ///
    /// The place goes with the call, not with whoever waits for it: a client that goes away frees nothing before the gate
    /// has answered.
    async fn ask<T: Send + 'static>(
        &self,
        places: &Arc<Semaphore>,
        call: impl FnOnce(&dyn Gate) -> T + Send + 'static,
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

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("flows", &self.flow_ids).finish_non_exhaustive()
    }
}

/// A flow that was over before it began. Already counted and written.
#[derive(Debug)]
pub(crate) struct Denied {
    pub(crate) id: FlowId,
    pub(crate) target: Target,
    pub(crate) refusal: Refusal,
}

/// A flow between its beginning and its end. However it is dropped, the gate learns of its end, once.
#[derive(Debug)]
pub(crate) struct Live(Arc<Begun>);

/// Held by the flow and by each call of the gate for it: a client that goes away during such a call ends the flow after it,
/// so that the gate never writes something for a flow whose end it has been told before.
#[derive(Debug)]
struct Begun {
    flow: Flow,
    shared: Arc<Shared>,
    meter: Meter,
    leaks: Mutex<Vec<Leak>>,
    end: OnceLock<FlowEnd>,
    place: Option<Places>,
}

impl Live {
    pub(crate) fn flow(&self) -> &Flow {
        &self.0.flow
    }

    /// Asks the gate. It may take as long as a person does.
    pub(crate) async fn judge(&self) -> Result<Passage, Refusal> {
        let begun = Arc::clone(&self.0);
        let shared = &self.0.shared;
        let asked = shared.ask(&shared.deciding, move |gate| gate.judge(&begun.flow));
        match tokio::time::timeout(shared.settings.times.decision, asked).await {
            Ok(Some(Verdict::Pass(passage))) => Ok(passage),
            Ok(Some(Verdict::Refuse(refusal))) => Err(refusal),
            Ok(None) => Err(broken("decide about the flow")),
            Err(_elapsed) if shared.deciding.available_permits() == 0 => {
                Err(Limit::Deciding.refusal(&shared.settings.limits))
            }
            Err(_elapsed) => Err(undecided()),
        }
    }

    /// To be called before a connection is made to `address`.
    pub(crate) async fn opens(&self, address: IpAddr) -> Result<(), Refusal> {
        let begun = Arc::clone(&self.0);
        let shared = &self.0.shared;
        let asked = shared.ask(&shared.recording, move |gate| gate.opens(&begun.flow, address));
        asked.await.unwrap_or_else(|| Err(broken("record the flow")))
    }

    /// Counts bytes that are about to pass. What is above a budget must not.
    pub(crate) fn charge(&self, direction: Direction, bytes: u64) -> Result<(), Refusal> {
        let limits = &self.0.shared.settings.limits;
        if !self.0.meter.adds(direction, bytes) {
            return Err(Limit::FlowBytes(direction).refusal(limits));
        }
        if !self.0.shared.session.adds(direction, bytes) {
            return Err(Limit::SessionBytes(direction).refusal(limits));
        }
        Ok(())
    }

    /// A place among those that have a large buffer; `None`: there is none left.
    pub(crate) fn large_buffer(&self) -> Option<SemaphorePermit<'_>> {
        self.0.shared.large_buffers.try_acquire().ok()
    }

    /// Why it ends, where that is a refusal and known already.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self.0.end.get() {
            Some(FlowEnd::Refused(refusal)) => Some(refusal.clone()),
            Some(FlowEnd::Done | FlowEnd::Failed(_)) | None => None,
        }
    }

    /// Something was found in it. The gate is told when it ends.
    pub(crate) fn found(&self, leak: Leak) {
        let mut leaks = self.0.leaks.lock().unwrap_or_else(PoisonError::into_inner);
        if leaks.len() < MOST_LEAKS && !leaks.contains(&leak) {
            leaks.push(leak);
        }
    }

    /// Ends the flow. Dropping it instead means that the client went away.
    pub(crate) fn end(self, end: FlowEnd) {
        self.conclude(end);
    }

    /// How it ends, known before the last part of it is gone. The first to know is right.
    pub(crate) fn conclude(&self, end: FlowEnd) {
        let _known = self.0.end.set(end);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| FlowEnd::Failed("the client went away".to_owned()));
        let leaks = std::mem::take(&mut *self.leaks.lock().unwrap_or_else(PoisonError::into_inner));
        let (flow, traffic, place) = (self.flow.clone(), self.meter.traffic(), self.place.take());
        self.shared.record(Entry::Ended(Box::new(Record { flow, traffic, leaks, end, place })));
    }
}

fn broken(what: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Ledger,
        layer: Layer::Floor,
        rule: "network.gate".to_owned(),
        message: format!("nobody could {what}, so it does not happen"),
        hint: None,
    }
}

fn undecided() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Floor,
        rule: "network.decision".to_owned(),
        message: "nobody decided about the flow in time".to_owned(),
        hint: None,
    }
}
