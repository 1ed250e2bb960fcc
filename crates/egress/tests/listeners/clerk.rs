//! A gate that does what a test says and remembers what it was told.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use ringfence_egress::{
    AddressScope, DialPermit, Flow, FlowEnd, FlowGate, FlowId, FlowIngress, FlowTerms, FlowTreatment,
    FlowVerdict, LeakReport, Traffic,
};
use ringfence_types::{Host, PolicyLayer, Refusal, RefusalCode, RuleFamily};

pub(crate) type Rule = Box<dyn Fn(&Flow) -> FlowVerdict + Send + Sync>;
type Opens = Box<dyn Fn(&Flow, IpAddr) -> Result<(), Refusal> + Send + Sync>;

pub(crate) struct Clerk {
    rule: Rule,
    names: Vec<String>,
    opens: Opens,
    book: Mutex<Book>,
    written: Condvar,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    pub(crate) judged: Vec<Flow>,
    pub(crate) opened: Vec<(FlowId, IpAddr)>,
    pub(crate) ended: Vec<(Flow, Traffic, FlowEnd)>,
    pub(crate) malformed: Vec<(FlowIngress, String)>,
}

pub(crate) const PASS: FlowTerms =
    FlowTerms { treatment: FlowTreatment::Tunnel, reach: AddressScope::Special };

impl Clerk {
    /// Lets flows to these names pass, wherever they lead.
    pub(crate) fn allowing(names: &[&str]) -> Self {
        Self::reaching(names, AddressScope::Special)
    }

    pub(crate) fn reaching(names: &[&str], reach: AddressScope) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let allowed = names.clone();
        let rule = move |flow: &Flow| match &flow.target.host {
            Host::Below(_) => refuse(),
            host if allowed.contains(&host.to_string()) => FlowVerdict::Pass(FlowTerms { reach, ..PASS }),
            _ => refuse(),
        };
        Self { names, ..Self::with(Box::new(rule)) }
    }

    pub(crate) fn with(rule: Rule) -> Self {
        Self {
            rule,
            names: Vec::new(),
            opens: Box::new(|_, _| Ok(())),
            book: Mutex::default(),
            written: Condvar::new(),
        }
    }

    pub(crate) fn judging(mut self, rule: impl Fn(&Flow) -> FlowVerdict + Send + Sync + 'static) -> Self {
        self.rule = Box::new(rule);
        self
    }

    pub(crate) fn opening(
        mut self,
        opens: impl Fn(&Flow, IpAddr) -> Result<(), Refusal> + Send + Sync + 'static,
    ) -> Self {
        self.opens = Box::new(opens);
        self
    }

    pub(crate) fn book(&self) -> Book {
        self.book.lock().unwrap().clone()
    }

    /// The book once so many flows have ended.
    pub(crate) fn after(&self, ends: usize) -> Book {
        self.wait(|book| book.ended.len() >= ends)
    }

    pub(crate) fn wait(&self, enough: impl Fn(&Book) -> bool) -> Book {
        let book = self.book.lock().unwrap();
        let (book, late) =
            self.written.wait_timeout_while(book, Duration::from_secs(60), |book| !enough(book)).unwrap();
        assert!(!late.timed_out(), "{book:?}");
        book.clone()
    }

    fn write(&self, write: impl FnOnce(&mut Book)) {
        write(&mut self.book.lock().unwrap());
        self.written.notify_all();
    }
}

/// Leave to dial, of a gate that keeps no record.
#[derive(Debug)]
struct PlainPermit(SocketAddr);

impl DialPermit for PlainPermit {
    fn address(&self) -> SocketAddr {
        self.0
    }
}

impl FlowGate for Clerk {
    fn judge(&self, flow: &Flow) -> FlowVerdict {
        self.write(|book| book.judged.push(flow.clone()));
        (self.rule)(flow)
    }

    fn answers(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    fn opens(&self, flow: &Flow, address: IpAddr) -> Result<Box<dyn DialPermit>, Refusal> {
        self.write(|book| book.opened.push((flow.id, address)));
        (self.opens)(flow, address)?;
        Ok(Box::new(PlainPermit(SocketAddr::new(address, flow.target.port))))
    }

    fn finding(&self, _flow: &Flow, _leak: &LeakReport) {}

    fn malformed(&self, way: FlowIngress, why: &str) {
        self.book.lock().unwrap().malformed.push((way, why.to_owned()));
        self.written.notify_all();
    }

    fn ended(&self, flow: &Flow, traffic: Traffic, end: &FlowEnd) {
        self.write(|book| book.ended.push((flow.clone(), traffic, end.clone())));
    }
}

pub(crate) fn refuse() -> FlowVerdict {
    FlowVerdict::Refuse(refusal())
}

pub(crate) fn refusal() -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Flags,
        rule: RuleFamily::Hosts.member("any"),
        message: "the host is on no list".to_owned(),
        hint: Some("ringfence run --allow-host".to_owned()),
    }
}

/// What became of the only flow.
pub(crate) fn only_end(book: &Book) -> (FlowIngress, String, FlowEnd) {
    let [(flow, _, end)] = book.ended.as_slice() else { panic!("{book:?}") };
    (flow.way, flow.target.to_string(), end.clone())
}
