//! What the proxy asks: whether a flow may be, and that it is written down before it is.
//!
//! INVARIANT: no connection is made and no request is passed on before its intent is durable. What cannot be judged, asked or
//! written is refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringfence_authz::hosts::{handling, is_unknown, may_resolve, sought};
use ringfence_authz::{Action, Grant, Question, Verdict as Decided, decide};
use ringfence_egress::{
    Flow, FlowEnd, FlowId, Gate, Leak, LeakAction, Passage, Place, Reach, Traffic, Treatment, Verdict,
    Way as Door,
};
use ringfence_ledger::{AppendError, Event, Finding, Ledger};
use ringfence_types::{
    Bytes, Call, Decision, Fetch, Fingerprint, FlowCall, GrantId, Host, HostLimit, HostRule, Layer,
    LeakAction as Done, Refusal, RefusalCode, SessionId, TransactionId, Way, Within,
};

use super::desk::{Asked, Desk};
use super::in_force::{InForce, Standing};
use super::seen::{Seen, SeenFlow};
use crate::approval::{Held, Lease, lease};
use crate::facts::Machine;
use crate::leaks::{LeakScanner, in_name_refusal};
use crate::pipeline::{chain, for_the_record};
use crate::session::Setup;

/// Judges and records the flows of one session, from the threads of its proxy.
#[derive(Debug)]
pub(crate) struct SessionGate {
    pub(super) ledger: Arc<Ledger>,
    pub(super) setup: Setup,
    pub(super) session: SessionId,
    pub(super) leaks: LeakScanner,
    pub(super) standing: Standing,
    pub(super) desk: Desk,
    /// Whose credentials the proxy puts in: it has to look inside.
    pub(super) inspected: Vec<HostRule>,
    /// What of the hosts is left to whoever makes the call.
    left: Within<HostLimit>,
    open: Mutex<HashMap<FlowId, Open>>,
    seen: Mutex<Seen>,
}

/// A flow that may be, or was asked about.
#[derive(Debug)]
struct Open {
    transaction: TransactionId,
    call: FlowCall,
    began: Instant,
    stage: Stage,
    rule: String,
}

#[derive(Debug)]
enum Stage {
    /// Judged; nothing of it is written, or only the question.
    Permitted(Box<Permitted>),
    /// The intent is on disk.
    Intended,
    /// It was asked about, and the answer was no.
    Denied,
}

/// A yes to one flow.
#[derive(Debug)]
pub(super) struct Permitted {
    pub(super) grant: Grant,
    pub(super) transaction: TransactionId,
    /// What policy said before anybody was asked.
    pub(super) decision: Decision,
    /// The answer for the session that allows it.
    pub(super) stored: Option<GrantId>,
    #[expect(dead_code, reason = "held for its drop: this process is about to use an answer")]
    pub(super) held: Option<Held>,
}

impl SessionGate {
    pub(super) fn new(
        (ledger, setup): (Arc<Ledger>, Setup),
        (session, leaks): (SessionId, LeakScanner),
        (standing, desk): (Standing, Desk),
        inspected: Vec<HostRule>,
    ) -> Self {
        let (open, seen) = (Mutex::default(), Mutex::default());
        Self { ledger, setup, session, leaks, standing, desk, inspected, left: Within::Any, open, seen }
    }

    /// For somebody who may reach only these of them.
    pub(super) fn leaving(self, left: Within<HostLimit>) -> Self {
        Self { left, ..self }
    }

    /// What there was to see so far.
    pub(super) fn seen(&self) -> Seen {
        locked(&self.seen).clone()
    }

    fn judged(&self, flow: &Flow) -> Result<Passage, Refusal> {
        let in_force = self.standing.now(&self.ledger)?;
        let call = flow_call(flow);
        self.refuse_secret(&in_force, &call.host)?;
        self.refuse_beyond(&call)?;
        let permitted = match self.decided(&in_force, &call)? {
            Answer::Permitted(permitted) => permitted,
            Answer::Ask(question) => match self.asks(&in_force, *question) {
                Asked::Permitted(permitted) => permitted,
                Asked::Refused { refusal, transaction } => {
                    self.keep_denied(flow, call, transaction);
                    return Err(refusal);
                }
            },
        };
        self.admit(flow, call, (*permitted, &in_force))?;
        Ok(self.passage(&in_force, flow))
    }

    /// INVARIANT: every way out is judged here before its name is resolved, so no name with a secret in it gets to a resolver.
    fn refuse_secret(&self, in_force: &InForce, host: &str) -> Result<(), Refusal> {
        let Some(found) = self.leaks.in_name(host, &in_force.policy.leaks) else { return Ok(()) };
        self.write(&Event::Found {
            transaction: None,
            session: self.session.clone(),
            action: Done::Block,
            findings: vec![found.finding.clone()],
            more: 0,
        })?;
        Err(in_name_refusal(&found))
    }

    /// Each hop of a fetch comes by here, also those that a server leads to.
    fn refuse_beyond(&self, call: &FlowCall) -> Result<(), Refusal> {
        let host = sought(&Call::Flow(call.clone())).map(|host| HostLimit::new(&host));
        if self.left.is_any() || host.is_some_and(|host| self.left.has(&host)) {
            return Ok(());
        }
        Err(Refusal {
            code: RefusalCode::Network,
            layer: Layer::Operator,
            rule: "host.not-left".to_owned(),
            message: format!("`{}` is none of the hosts that were left to whoever asks", call.host),
            hint: Some("stay with the hosts that the token was handed on with".to_owned()),
        })
    }

    fn decided(&self, in_force: &InForce, call: &FlowCall) -> Result<Answer, Refusal> {
        let facts = Machine::new(&self.setup);
        let action = |call: FlowCall| Action::new(Call::Flow(call), in_force.roots.clone());
        let mut verdict = decide(&in_force.policy, action(call.clone()), &facts);
        if matches!(&verdict, Decided::Ask(question) if call.request.is_some() && is_about_the_host(question))
        {
            // One question for the host, whatever is asked of it.
            let whole = FlowCall { request: None, ..call.clone() };
            verdict = decide(&in_force.policy, action(whole), &facts);
        }
        match verdict {
            Decided::Allow(grant) => {
                let transaction =
                    TransactionId::random().map_err(|error| unwritable(&error.to_string(), None))?;
                let (decision, stored, held) = (Decision::Allow, None, None);
                let permitted = Permitted { grant: *grant, transaction, decision, stored, held };
                Ok(Answer::Permitted(Box::new(permitted)))
            }
            Decided::Ask(question) => Ok(Answer::Ask(question)),
            Decided::Deny(refusal) => Err(refusal),
        }
    }

    /// A request may go over a connection that stands: its intent is written now. That of a connection is written with the
    /// address, before it is made.
    fn admit(
        &self,
        flow: &Flow,
        call: FlowCall,
        (permitted, in_force): (Permitted, &InForce),
    ) -> Result<(), Refusal> {
        let rule = permitted.grant.rule().to_owned();
        let transaction = permitted.transaction.clone();
        let stage = if call.request.is_some() {
            self.write_intent(&call, &permitted, in_force)?;
            Stage::Intended
        } else {
            Stage::Permitted(Box::new(permitted))
        };
        let open = Open { transaction, call, began: Instant::now(), stage, rule };
        locked(&self.open).insert(flow.id, open);
        Ok(())
    }

    fn keep_denied(&self, flow: &Flow, call: FlowCall, transaction: Option<TransactionId>) {
        let Some(transaction) = transaction else { return };
        let (began, rule) = (Instant::now(), String::new());
        let open = Open { transaction, call, began, stage: Stage::Denied, rule };
        locked(&self.open).insert(flow.id, open);
    }

    fn write_intent(
        &self,
        call: &FlowCall,
        permitted: &Permitted,
        in_force: &InForce,
    ) -> Result<(), Refusal> {
        let lease = self.lease(permitted)?;
        let action = permitted.grant.action();
        let (call, findings) = self.for_the_record(call);
        let event = Event::Intent {
            transaction: permitted.transaction.clone(),
            session: self.session.clone(),
            call,
            fingerprint: action.fingerprint().clone(),
            decision: permitted.decision,
            layer: permitted.grant.layer(),
            rule: permitted.grant.rule().to_owned(),
            grant: lease.as_ref().map(|lease| lease.grant.clone()),
            profile: in_force.policy.profile,
            policy: in_force.digest.clone(),
            roots: action.roots().to_vec(),
            limits: permitted.grant.permissions().limits.clone(),
            findings,
            by: self.desk.who.by.clone(),
        };
        self.write(&event)
    }

    /// Held until the use of a stored answer is written down.
    fn lease(&self, permitted: &Permitted) -> Result<Option<Lease>, Refusal> {
        let stored = permitted.stored.as_ref().map(GrantId::as_str);
        let ids: Vec<&str> =
            stored.into_iter().chain(permitted.grant.stored().iter().map(String::as_str)).collect();
        if ids.is_empty() {
            return Ok(None);
        }
        match lease(&self.ledger, &self.setup.state_dir, &ids) {
            Ok(Ok(lease)) => Ok(Some(lease)),
            Ok(Err(refusal)) => Err(refusal),
            Err(error) => Err(unwritable(&chain(&error), None)),
        }
    }

    fn passage(&self, in_force: &InForce, flow: &Flow) -> Passage {
        let (host, port) = (&flow.target.host, flow.target.port);
        let handling = handling(&in_force.policy, host, port);
        let inspected = handling.inspected || self.inspected.iter().any(|rule| is_about(rule, host, port));
        Passage {
            treatment: if inspected { Treatment::Inspect } else { Treatment::Tunnel },
            reach: if handling.may_be_local { Reach::Special } else { Reach::Internet },
        }
    }

    pub(super) fn write(&self, event: &Event) -> Result<(), Refusal> {
        let written = self.ledger.append(event);
        written.map(drop).map_err(|error: AppendError| unwritable(&chain(&error), error.hint()))
    }

    /// A flow without secrets, and where they were.
    pub(super) fn for_the_record(&self, call: &FlowCall) -> (Call, Vec<Finding>) {
        let recorded = for_the_record(&Call::Flow(call.clone()), &self.leaks);
        (recorded.call.bounded(), recorded.findings)
    }

    fn note_refusal(&self, flow: &Flow, transaction: Option<TransactionId>, refusal: &Refusal) {
        let refusal = self.leaks.refusal_about(refusal, &flow.target.host.to_string());
        let (call, _) = self.for_the_record(&flow_call(flow));
        if let Call::Flow(flow) = &call {
            locked(&self.seen).refused(flow, &refusal);
        }
        let (session, by) = (Some(self.session.clone()), self.desk.who.by.clone());
        // Nothing was done, and there is nobody left to tell.
        let _unwritten = self.write(&Event::Refused { transaction, session, call: Some(call), refusal, by });
    }

    fn note_end(&self, open: &Open, traffic: Traffic, failure: Option<String>) {
        let (call, _) = self.for_the_record(&open.call);
        let Call::Flow(call) = call else { return };
        let duration_ms = u64::try_from(open.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let failure = failure.map(|failure| self.leaks.text_about(&failure, &open.call.host));
        locked(&self.seen).flow(SeenFlow::new(&call, &open.rule, traffic, failure.clone()));
        // The intent is there: the record shows it as incomplete.
        let _unwritten = self.write(&Event::FlowEnded {
            transaction: open.transaction.clone(),
            session: self.session.clone(),
            up: traffic.up,
            down: traffic.down,
            duration_ms,
            failure,
        });
    }
}

impl Gate for SessionGate {
    fn judge(&self, flow: &Flow) -> Verdict {
        match self.judged(flow) {
            Ok(passage) => Verdict::Pass(passage),
            Err(refusal) => Verdict::Refuse(refusal),
        }
    }

    fn answers(&self, name: &str) -> bool {
        let Ok(in_force) = self.standing.now(&self.ledger) else { return false };
        let Ok(rule) = HostRule::parse(name) else { return false };
        if let Some(found) = self.leaks.in_name(name, &in_force.policy.leaks) {
            self.note_unanswered(name, |_clean| in_name_refusal(&found));
            return false;
        }
        let resolves = rule.port().is_none() && may_resolve(&in_force.policy, rule.host());
        if !resolves {
            self.note_unanswered(name, unanswered);
        }
        resolves
    }

    fn opens(&self, flow: &Flow, address: IpAddr) -> Result<(), Refusal> {
        let taken = locked(&self.open).remove(&flow.id);
        let Some(mut open) = taken else { return Err(unjudged()) };
        let written = match &open.stage {
            Stage::Permitted(permitted) => {
                open.call.address = Some(address);
                self.standing.now(&self.ledger).and_then(|now| self.write_intent(&open.call, permitted, &now))
            }
            Stage::Intended => self.write(&Event::FlowOpened {
                transaction: open.transaction.clone(),
                session: self.session.clone(),
                address,
            }),
            Stage::Denied => Err(unjudged()),
        };
        if written.is_ok() {
            open.call.address = Some(address);
            open.stage = Stage::Intended;
        }
        locked(&self.open).insert(flow.id, open);
        written
    }

    fn finding(&self, flow: &Flow, leak: &Leak) {
        let intended = |open: &Open| matches!(open.stage, Stage::Intended).then(|| open.transaction.clone());
        let transaction = locked(&self.open).get(&flow.id).and_then(intended);
        let finding = Finding {
            rule: leak.rule.clone(),
            place: self.leaks.text(&format!(
                "{} of {}",
                self.leaks.name(&place(&leak.place)),
                self.leaks.name(&flow.target.host.to_string())
            )),
            fingerprint: leak.fingerprint.clone().unwrap_or_default(),
            encoding: (leak.encoding != "plain").then(|| leak.encoding.clone()),
        };
        let action = match leak.action {
            LeakAction::Blocked => Done::Block,
            LeakAction::Flagged => Done::Flag,
            LeakAction::Redacted => Done::Redact,
        };
        let session = self.session.clone();
        // What was blocked stays blocked.
        let _unwritten =
            self.write(&Event::Found { transaction, session, action, findings: vec![finding], more: 0 });
    }

    fn malformed(&self, door: Door, why: &str) {
        let refusal = self.leaks.refusal(&nonsense(way(door), why));
        locked(&self.seen).unlisted();
        let session = Some(self.session.clone());
        // It was answered with an error, whether that is written down or not.
        let _unwritten =
            self.write(&Event::Refused { transaction: None, session, call: None, refusal, by: None });
    }

    fn ended(&self, flow: &Flow, traffic: Traffic, end: &FlowEnd) {
        let open = locked(&self.open).remove(&flow.id);
        match (open, end) {
            (Some(open), FlowEnd::Refused(refusal)) => {
                let begun = !matches!(open.stage, Stage::Permitted(_)) || asked_about(&open);
                self.note_refusal(flow, begun.then_some(open.transaction), refusal);
            }
            (None, FlowEnd::Refused(refusal)) => self.note_refusal(flow, None, refusal),
            (Some(open), FlowEnd::Done) => match open.stage {
                Stage::Intended => self.note_end(&open, traffic, None),
                Stage::Permitted(_) | Stage::Denied => self.note_unmade(flow, open, "nothing was sent"),
            },
            (Some(open), FlowEnd::Failed(why)) => match open.stage {
                Stage::Intended => self.note_end(&open, traffic, Some(why.clone())),
                Stage::Permitted(_) | Stage::Denied => self.note_unmade(flow, open, why),
            },
            (None, FlowEnd::Done | FlowEnd::Failed(_)) => {}
        }
    }
}

impl SessionGate {
    /// Once for each name, and for so many of them.
    fn note_unanswered(&self, name: &str, refusal: impl FnOnce(&str) -> Refusal) {
        let way = Way::Transparent;
        let call = FlowCall { way, host: name.to_owned(), port: 53, request: None, address: None };
        let (call, _) = self.for_the_record(&call);
        let Call::Flow(flow) = &call else { return };
        let refusal = refusal(&flow.host);
        if locked(&self.seen).unanswered(flow, &refusal) {
            let session = Some(self.session.clone());
            // It is not answered, whether that is written down or not.
            let _unwritten = self.write(&Event::Refused {
                transaction: None,
                session,
                call: Some(call),
                refusal,
                by: None,
            });
        }
    }

    /// It was allowed, and no connection was made.
    fn note_unmade(&self, flow: &Flow, open: Open, why: &str) {
        let transaction = asked_about(&open).then_some(open.transaction);
        let refusal = Refusal {
            code: RefusalCode::Network,
            layer: Layer::Floor,
            rule: "flow.unmade".to_owned(),
            message: format!("`{}:{}`: {why}", flow.target.host, flow.target.port),
            hint: None,
        };
        self.note_refusal(flow, transaction, &refusal);
    }
}

enum Answer {
    Permitted(Box<Permitted>),
    Ask(Box<Question>),
}

/// Whether its question is written, so that its transaction needs an end.
fn asked_about(open: &Open) -> bool {
    match &open.stage {
        Stage::Permitted(permitted) => permitted.decision == Decision::Ask && permitted.stored.is_none(),
        Stage::Intended | Stage::Denied => true,
    }
}

fn is_about_the_host(question: &Question) -> bool {
    question.judgement().decisive().is_some_and(|part| is_unknown(&part.rule))
}

/// Whether a rule speaks about a host and port.
fn is_about(rule: &HostRule, host: &Host, port: u16) -> bool {
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
        request: flow.request.as_ref().map(|request| Fetch::new(request.method.clone(), request.url.clone())),
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

fn place(place: &Place) -> String {
    match place {
        Place::Url => "url".to_owned(),
        Place::Header(name) => format!("header {}", Bytes::from(name.as_str()).display()),
        Place::HeaderName => "name of a header".to_owned(),
        Place::Body => "body".to_owned(),
        Place::ResponseHeader(name) => format!("response header {}", Bytes::from(name.as_str()).display()),
        Place::ResponseBody => "response body".to_owned(),
    }
}

pub(super) fn unwritable(why: &str, hint: Option<&str>) -> Refusal {
    Refusal {
        code: RefusalCode::Ledger,
        layer: Layer::Floor,
        rule: "ledger.written-before-done".to_owned(),
        message: format!("the flow could not be written to the ledger, so it does not happen: {why}"),
        hint: hint.map(str::to_owned),
    }
}

fn nonsense(way: Way, why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        layer: Layer::Floor,
        rule: "network.malformed".to_owned(),
        message: format!("a request to the proxy ({way}) makes no sense: {why}"),
        hint: None,
    }
}

fn unanswered(name: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: Layer::Floor,
        rule: "host.unlisted".to_owned(),
        message: format!("`{name}`: no rule allows this host, so its name has no address inside"),
        hint: Some(format!("start with `--allow-host {name}`")),
    }
}

fn unjudged() -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: Layer::Floor,
        rule: "flow.unjudged".to_owned(),
        message: "nobody has judged this flow".to_owned(),
        hint: None,
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of a question.
pub(super) fn key(question: &Question) -> Fingerprint {
    question.action().fingerprint().clone()
}
