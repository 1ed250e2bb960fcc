//! What flows there were, for whoever started the command. The ledger has all of them; this is bounded.

use std::net::IpAddr;

use ringfence_egress::Traffic;
use ringfence_types::{FlowCall, Refusal, Way};
use serde::Serialize;

/// Flows, and hosts that were refused, that are kept; the rest is counted.
const MOST: usize = 500;

/// What went through the network of a session, and what did not. Without secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    pub flows: Vec<SeenFlow>,
    pub refused: Vec<SeenRefusal>,
    /// How many of both are not listed.
    pub more: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeenFlow {
    pub way: Way,
    pub host: String,
    pub port: u16,
    pub method: Option<String>,
    pub url: Option<String>,
    pub address: Option<IpAddr>,
    /// Which allowed it.
    pub rule: String,
    pub up: u64,
    pub down: u64,
    pub failure: Option<String>,
}

impl SeenFlow {
    pub(super) fn new(call: &FlowCall, rule: &str, traffic: Traffic, failure: Option<String>) -> Self {
        Self {
            way: call.way,
            host: call.host.clone(),
            port: call.port,
            method: call.request.as_ref().map(|request| request.method.clone()),
            url: call.request.as_ref().map(|request| request.url.clone()),
            address: call.address,
            rule: rule.to_owned(),
            up: traffic.up,
            down: traffic.down,
            failure,
        }
    }
}

/// The same no to the same host, however often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeenRefusal {
    pub host: String,
    pub port: u16,
    pub times: u64,
    pub refusal: Refusal,
}

impl Seen {
    pub(super) fn flow(&mut self, flow: SeenFlow) {
        if self.flows.len() < MOST { self.flows.push(flow) } else { self.more += 1 }
    }

    pub(super) fn refused(&mut self, call: &FlowCall, refusal: &Refusal) {
        let same = |known: &&mut SeenRefusal| {
            known.host == call.host && known.port == call.port && known.refusal.rule == refusal.rule
        };
        if let Some(known) = self.refused.iter_mut().find(same) {
            known.times += 1;
            return;
        }
        if self.refused.len() >= MOST {
            self.more += 1;
            return;
        }
        let (host, port) = (call.host.clone(), call.port);
        self.refused.push(SeenRefusal { host, port, times: 1, refusal: refusal.clone() });
    }

    /// Something that there is no place for in the lists.
    pub(super) fn unlisted(&mut self) {
        self.more += 1;
    }

    /// A name that was not answered. Whether it is worth a record: it is new, and not one of very many.
    pub(super) fn unanswered(&mut self, call: &FlowCall, refusal: &Refusal) -> bool {
        let before = self.refused.len();
        self.refused(call, refusal);
        self.refused.len() > before
    }
}
