//! The flow effect: connections from inside the fence, and the hops of a fetch.
//!
//! The proxy calls [`SessionGate`] from its threads. A flow is decided before its name is resolved. It is
//! admitted before the proxy dials an address or forwards a request, and settled when it ends.
//!
//! INVARIANT: the intent is durable before any connection is made or any request is forwarded. A flow that
//! cannot be evaluated, approved or recorded is refused. A connection takes a [`FlowPermit`], and only an
//! `Admitted` flow gives one.

mod approvals;
mod context;
mod permit;
mod summary;

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringfence_authz::hosts::{handling, is_unknown, may_resolve};
use ringfence_authz::{ApprovalNeeded, Policy};
use ringfence_egress::{
    AddressScope, DialPermit, Flow, FlowEnd, FlowGate, FlowId, FlowIngress as Door, FlowTerms, FlowTreatment,
    FlowVerdict, LeakLocation, LeakReport, LeakResponse, Traffic,
};
use ringfence_ledger::{AppendError, ApprovalRequest, Event, Ledger, RecordedFinding};
use ringfence_sandbox::{RelayPause, StdinSource};
use ringfence_types::{
    AllOrOnly, ByteString, Call, Decision, FetchCall, FlowCall, Host, HostPattern, HostRestriction,
    LeakAction as Done, PolicyLayer, Refusal, RefusalCode, RuleId, RuleName, SessionId, TransactionId, Way,
};

use super::Effect;
use crate::leaks::{LeakScanner, in_name_refusal};
use crate::pipeline::{
    self, Admitted, AskContext, Decided, Intake, Received, RefusedCall, chain, for_the_record,
};
use crate::policy_reload::PolicyCache;
use crate::session::{HostSetup, SharedMemory};
use context::FlowContext;

pub(crate) use approvals::SharedApprover;
pub(crate) use context::FlowRequester;
pub use permit::FlowPermit;
pub use summary::{FlowCount, FlowSummary, RefusedHostCount};

/// A connection to a host, or one request in it.
#[derive(Debug)]
pub struct FlowEffect {
    /// The call in the intent record. An approval concerns the host, and the address is known last.
    call: FlowCall,
}

impl Effect for FlowEffect {
    /// Only the connection that the program requested can be made for it.
    fn can_become(_call: &Call) -> bool {
        false
    }

    /// Asks once per host, not once per request.
    fn asked_instead(&self, question: &ApprovalNeeded) -> Option<Call> {
        let about_the_host = self.call.request.is_some() && is_about_the_host(question);
        about_the_host.then(|| Call::Flow(FlowCall { request: None, ..self.call.clone() }))
    }

    fn recorded<'c>(&'c self, _judged: &'c Call) -> Cow<'c, Call> {
        Cow::Owned(Call::Flow(self.call.clone()))
    }
}

/// Evaluates and records the flows of one session, on the threads of its proxy.
#[derive(Debug)]
pub(crate) struct SessionGate {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) setup: HostSetup,
    pub(crate) session: SessionId,
    pub(crate) leaks: LeakScanner,
    pub(crate) policy: PolicyCache,
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) approver: Arc<SharedApprover>,
    /// Pauses the foreground command, which shares the terminal; `None` if there is none.
    pub(crate) hold: Option<RelayPause>,
    pub(crate) requester: FlowRequester,
    /// Hosts that get a credential from the proxy, so the proxy inspects their TLS.
    pub(crate) inspected: Vec<HostPattern>,
    /// Hosts within the rights of the call's origin.
    pub(crate) left: AllOrOnly<HostRestriction>,
    /// Hosts within the ceiling of the call that this gate serves.
    pub(crate) ceiling: AllOrOnly<HostRestriction>,
    pub(crate) flows: Flows,
}

/// Current flows of a gate.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    open: Mutex<HashMap<FlowId, OpenFlow>>,
    seen: Mutex<FlowSummary>,
    questions: Mutex<HashMap<TransactionId, ApprovalRequest>>,
    closing: AtomicBool,
}

/// A flow that was allowed or asked about.
#[derive(Debug)]
struct OpenFlow {
    call: FlowCall,
    began: Instant,
    stage: Stage,
    rule: RuleName,
}

#[derive(Debug)]
enum Stage {
    /// Nothing is recorded yet, or only the approval.
    Decided(Box<Decided<FlowEffect>>),
    Admitted(Box<Admitted<FlowEffect>>),
    /// Refused. The transaction of an approval still needs an end.
    Refused(Option<TransactionId>),
}

impl Stage {
    /// The recorded transaction that needs an end.
    fn begun(&self) -> Option<&TransactionId> {
        match self {
            Self::Decided(decided) => {
                let asked = decided.decision == Decision::Ask && decided.stored.is_none();
                asked.then_some(&decided.transaction)
            }
            Self::Admitted(admitted) => Some(admitted.transaction()),
            Self::Refused(transaction) => transaction.as_ref(),
        }
    }
}

impl SessionGate {
    /// The summary so far.
    pub(crate) fn seen(&self) -> FlowSummary {
        locked(&self.flows.seen).clone()
    }

    fn judged(&self, flow: &Flow) -> Result<FlowTerms, Refusal> {
        let call = flow_call(flow);
        let mut context = FlowContext::new(self);
        let mut intake = Intake::new(StdinSource::Empty);
        let asking = AskContext { interrupts: &[], intake: &mut intake };
        let received = Received::new(FlowEffect { call: call.clone() }, Call::Flow(call.clone()));
        let decided = pipeline::decide(received, &mut context, asking);
        let decided = decided.map_err(|refused| self.refused(flow, &call, refused))?;
        let rule = decided.rule().clone();
        let passage = self.passage(context.current(), flow);
        // Written before its name is asked for: a name is chosen inside, and the question tells it to a name server. A connection
        // that is looked into leads nowhere by itself, and each request in it has an intent of its own.
        let stage = if call.request.is_some() || passage.treatment == FlowTreatment::Tunnel {
            let admitted = decided.admit(&mut context);
            Stage::Admitted(Box::new(admitted.map_err(|refused| self.refused(flow, &call, refused))?))
        } else {
            Stage::Decided(Box::new(decided))
        };
        let open = OpenFlow { call, began: Instant::now(), stage, rule };
        locked(&self.flows.open).insert(flow.id, open);
        Ok(passage)
    }

    /// Keeps the refusal until the proxy reports the end of the flow, and records it then.
    fn refused(&self, flow: &Flow, call: &FlowCall, refused: RefusedCall) -> Refusal {
        let (began, rule, stage) =
            (Instant::now(), refused.refusal.rule.clone(), Stage::Refused(refused.transaction));
        let open = OpenFlow { call: call.clone(), began, stage, rule };
        locked(&self.flows.open).insert(flow.id, open);
        refused.refusal
    }

    /// Admits a flow for a known address and returns the permit to dial it.
    fn dialled(&self, stage: Stage, address: SocketAddr) -> (Stage, Result<FlowPermit, Refusal>) {
        match stage {
            Stage::Decided(mut decided) => {
                decided.effect.call.address = Some(address.ip());
                match decided.admit(&mut FlowContext::new(self)) {
                    Ok(admitted) => {
                        let permit = FlowPermit::of(&admitted, address);
                        (Stage::Admitted(Box::new(admitted)), permit)
                    }
                    Err(RefusedCall { refusal, transaction, .. }) => {
                        (Stage::Refused(transaction), Err(refusal))
                    }
                }
            }
            Stage::Admitted(mut admitted) => {
                let written = self.write(&Event::FlowOpened {
                    transaction: admitted.transaction().clone(),
                    session: self.session.clone(),
                    address: address.ip(),
                });
                let permit = written.and_then(|()| {
                    admitted.effect_mut().call.address = Some(address.ip());
                    FlowPermit::of(&admitted, address)
                });
                (Stage::Admitted(admitted), permit)
            }
            refused @ Stage::Refused(_) => (refused, Err(unjudged())),
        }
    }

    fn passage(&self, policy: &Policy, flow: &Flow) -> FlowTerms {
        let (host, port) = (&flow.target.host, flow.target.port);
        let handling = handling(policy, host, port);
        let inspected = handling.inspected || self.inspected.iter().any(|rule| is_about(rule, host, port));
        FlowTerms {
            treatment: if inspected { FlowTreatment::Inspect } else { FlowTreatment::Tunnel },
            reach: if handling.may_be_local { AddressScope::Special } else { AddressScope::Internet },
        }
    }

    fn write(&self, event: &Event) -> Result<(), Refusal> {
        let written = self.ledger.append(event);
        written.map(drop).map_err(|error: AppendError| unwritable(&chain(&error), error.hint()))
    }

    /// The redacted flow, and the findings.
    fn for_the_record(&self, call: &FlowCall) -> (Call, Vec<RecordedFinding>) {
        let recorded = for_the_record(&Call::Flow(call.clone()), &self.leaks);
        (recorded.call.bounded(), recorded.findings)
    }

    fn note_refusal(&self, flow: &Flow, transaction: Option<TransactionId>, refusal: &Refusal) {
        let refusal = self.leaks.refusal_about(refusal, &flow.target.host.to_string());
        let (call, _) = self.for_the_record(&flow_call(flow));
        if let Call::Flow(flow) = &call {
            locked(&self.flows.seen).refused(flow, &refusal);
        }
        let (session, by) = (Some(self.session.clone()), self.requester.by.clone());
        // The flow had no effect, and its caller is gone.
        let _unwritten = self.write(&Event::CallRefused {
            transaction,
            session,
            call: Some(call),
            refusal,
            call_origin: by,
        });
    }

    fn note_end(&self, open: &OpenFlow, traffic: Traffic, failure: Option<String>) {
        let Stage::Admitted(admitted) = &open.stage else { return };
        let transaction = admitted.transaction().clone();
        let (call, _) = self.for_the_record(&open.call);
        let Call::Flow(call) = call else { return };
        let duration_ms = u64::try_from(open.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let failure = failure.map(|failure| self.leaks.text_about(&failure, &open.call.host));
        locked(&self.flows.seen).flow(FlowCount::new(&call, &open.rule, traffic, failure.clone()));
        // Without this record the intent shows as incomplete.
        let _unwritten = self.write(&Event::FlowEnded {
            transaction,
            session: self.session.clone(),
            bytes_out: traffic.up,
            bytes_in: traffic.down,
            duration_ms,
            failure,
        });
    }
}

impl FlowGate for SessionGate {
    fn judge(&self, flow: &Flow) -> FlowVerdict {
        match self.judged(flow) {
            Ok(passage) => FlowVerdict::Pass(passage),
            Err(refusal) => FlowVerdict::Refuse(refusal),
        }
    }

    fn answers(&self, name: &str) -> bool {
        let Ok(current) = self.policy.now(&self.ledger) else { return false };
        let Ok(rule) = HostPattern::parse(name) else { return false };
        if let Some(found) = self.leaks.in_name(name, &current.policy.leaks) {
            self.note_unanswered(name, |_clean| in_name_refusal(&found));
            return false;
        }
        let resolves = rule.port().is_none()
            && may_resolve(&current.policy, rule.host())
            && is_kept(&self.ceiling, rule.host());
        if !resolves {
            self.note_unanswered(name, unanswered);
        }
        resolves
    }

    fn opens(&self, flow: &Flow, address: IpAddr) -> Result<Box<dyn DialPermit>, Refusal> {
        let taken = locked(&self.flows.open).remove(&flow.id);
        let Some(open) = taken else { return Err(unjudged()) };
        let (stage, permit) = self.dialled(open.stage, SocketAddr::new(address, flow.target.port));
        let call = match &stage {
            Stage::Admitted(admitted) => admitted.effect().call.clone(),
            Stage::Decided(_) | Stage::Refused(_) => open.call,
        };
        locked(&self.flows.open).insert(flow.id, OpenFlow { call, stage, ..open });
        permit.map(|permit| Box::new(permit) as Box<dyn DialPermit>)
    }

    fn finding(&self, flow: &Flow, leak: &LeakReport) {
        let admitted = |open: &OpenFlow| match &open.stage {
            Stage::Admitted(admitted) => Some(admitted.transaction().clone()),
            Stage::Decided(_) | Stage::Refused(_) => None,
        };
        let transaction = locked(&self.flows.open).get(&flow.id).and_then(admitted);
        let finding = RecordedFinding {
            rule: leak.rule.clone(),
            location: self.leaks.text(&format!(
                "{} of {}",
                self.leaks.name(&place(&leak.place)),
                self.leaks.name(&flow.target.host.to_string())
            )),
            fingerprint: leak.fingerprint.clone().unwrap_or_default(),
            encoding: (leak.encoding != "plain").then(|| leak.encoding.clone()),
        };
        let action = match leak.action {
            LeakResponse::Blocked => Done::Block,
            LeakResponse::Flagged => Done::Flag,
            LeakResponse::Redacted => Done::Redact,
        };
        let session = self.session.clone();
        // The block holds even if the record fails.
        let _unwritten = self.write(&Event::SecretsFound {
            transaction,
            session,
            action,
            findings: vec![finding],
            omitted: 0,
        });
    }

    fn malformed(&self, door: Door, why: &str) {
        let refusal = self.leaks.refusal(&nonsense(way(door), why));
        locked(&self.flows.seen).unlisted();
        let session = Some(self.session.clone());
        // The proxy answers with an error even if the record fails.
        let _unwritten = self.write(&Event::CallRefused {
            transaction: None,
            session,
            call: None,
            refusal,
            call_origin: None,
        });
    }

    fn ended(&self, flow: &Flow, traffic: Traffic, end: &FlowEnd) {
        let open = locked(&self.flows.open).remove(&flow.id);
        match (open, end) {
            (open, FlowEnd::Refused(refusal)) => {
                let begun = open.and_then(|open| open.stage.begun().cloned());
                self.note_refusal(flow, begun, refusal);
            }
            (Some(open @ OpenFlow { stage: Stage::Admitted(_), .. }), FlowEnd::Done) => {
                self.note_end(&open, traffic, None);
            }
            (Some(open @ OpenFlow { stage: Stage::Admitted(_), .. }), FlowEnd::Failed(why)) => {
                self.note_end(&open, traffic, Some(why.clone()));
            }
            (Some(open), FlowEnd::Done) => self.note_unmade(flow, &open, "nothing was sent"),
            (Some(open), FlowEnd::Failed(why)) => self.note_unmade(flow, &open, why),
            (None, FlowEnd::Done | FlowEnd::Failed(_)) => {}
        }
    }
}

impl SessionGate {
    /// Records each name once, up to the limit.
    fn note_unanswered(&self, name: &str, refusal: impl FnOnce(&str) -> Refusal) {
        let way = Way::Transparent;
        let call = FlowCall { way, host: name.to_owned(), port: 53, request: None, address: None };
        let (call, _) = self.for_the_record(&call);
        let Call::Flow(flow) = &call else { return };
        let refusal = refusal(&flow.host);
        if locked(&self.flows.seen).unanswered(flow, &refusal) {
            let session = Some(self.session.clone());
            // The name stays unresolved even if the record fails.
            let _unwritten = self.write(&Event::CallRefused {
                transaction: None,
                session,
                call: Some(call),
                refusal,
                call_origin: None,
            });
        }
    }

    /// Records an allowed flow without a connection.
    fn note_unmade(&self, flow: &Flow, open: &OpenFlow, why: &str) {
        let transaction = open.stage.begun().cloned();
        let refusal = Refusal {
            code: RefusalCode::Network,
            layer: PolicyLayer::Floor,
            rule: RuleId::FlowUnmade.into(),
            message: format!("`{}:{}`: {why}", flow.target.host, flow.target.port),
            hint: None,
        };
        self.note_refusal(flow, transaction, &refusal);
    }
}

fn is_about_the_host(question: &ApprovalNeeded) -> bool {
    question.judgement().decisive().is_some_and(|part| is_unknown(&part.rule))
}

/// Whether the ceiling includes a host at any port.
fn is_kept(ceiling: &AllOrOnly<HostRestriction>, host: &Host) -> bool {
    match ceiling {
        AllOrOnly::Any => true,
        AllOrOnly::Only(hosts) => hosts
            .iter()
            .filter_map(HostRestriction::rule)
            .any(|rule| is_about(&rule, host, rule.port().unwrap_or(0))),
    }
}

/// Whether a rule matches a host and port.
fn is_about(rule: &HostPattern, host: &Host, port: u16) -> bool {
    let named = match (rule.host(), host) {
        (Host::Below(above), Host::Name(name)) => {
            name.strip_suffix(above.as_str()).is_some_and(|rest| rest.ends_with('.'))
        }
        (rule, host) => rule == host,
    };
    named && rule.port().is_none_or(|own| own == port)
}

fn flow_call(flow: &Flow) -> FlowCall {
    FlowCall {
        way: way(flow.way),
        host: flow.target.host.to_string(),
        port: flow.target.port,
        request: flow
            .request
            .as_ref()
            .map(|request| FetchCall::new(request.method.clone(), request.url.clone())),
        address: None,
    }
}

fn way(door: Door) -> Way {
    match door {
        Door::Connect => Way::Connect,
        Door::Forward => Way::Forward,
        Door::Socks => Way::Socks,
        Door::Transparent => Way::Transparent,
        Door::Reverse => Way::Reverse,
        Door::Fetch => Way::Fetch,
    }
}

fn place(place: &LeakLocation) -> String {
    match place {
        LeakLocation::Url => "url".to_owned(),
        LeakLocation::Header(name) => format!("header {}", ByteString::from(name.as_str()).display()),
        LeakLocation::HeaderName => "name of a header".to_owned(),
        LeakLocation::Body => "body".to_owned(),
        LeakLocation::ResponseHeader(name) => {
            format!("response header {}", ByteString::from(name.as_str()).display())
        }
        LeakLocation::ResponseBody => "response body".to_owned(),
    }
}

fn unwritable(why: &str, hint: Option<&str>) -> Refusal {
    Refusal {
        code: RefusalCode::Ledger,
        layer: PolicyLayer::Floor,
        rule: RuleId::LedgerWrittenBeforeDone.into(),
        message: format!("the flow could not be written to the ledger, so it does not happen: {why}"),
        hint: hint.map(str::to_owned),
    }
}

fn nonsense(way: Way, why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkMalformed.into(),
        message: format!("invalid request to the proxy ({way}): {why}"),
        hint: None,
    }
}

fn unanswered(name: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Floor,
        rule: RuleId::HostUnlisted.into(),
        message: format!("`{name}`: no rule allows this host, so its name has no address inside"),
        hint: Some(format!("start with `--allow-host {name}`")),
    }
}

fn unjudged() -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Floor,
        rule: RuleId::FlowUnjudged.into(),
        message: "this flow has no decision".to_owned(),
        hint: None,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
