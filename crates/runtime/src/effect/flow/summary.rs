//! Summary of a session's flows for the caller. It is bounded; the ledger has every flow.

use std::net::IpAddr;

use ringfence_egress::Traffic;
use ringfence_types::{FlowCall, Refusal, RuleName, Way};
use serde::Serialize;

/// Limit of listed flows and of refused hosts; the rest is counted.
const MOST: usize = 500;

/// The flows of a session, allowed and refused, redacted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowSummary {
    pub flows: Vec<FlowCount>,
    pub refused: Vec<RefusedHostCount>,
    /// Number of entries not listed.
    pub omitted: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowCount {
    pub way: Way,
    pub host: String,
    pub port: u16,
    pub method: Option<String>,
    pub url: Option<String>,
    pub address: Option<IpAddr>,
    /// The rule that allowed it.
    pub rule: RuleName,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub failure: Option<String>,
}

impl FlowCount {
    pub(in crate::effect) fn new(
        call: &FlowCall,
        rule: &RuleName,
        traffic: Traffic,
        failure: Option<String>,
    ) -> Self {
        Self {
            way: call.way,
            host: call.host.clone(),
            port: call.port,
            method: call.request.as_ref().map(|request| request.method.clone()),
            url: call.request.as_ref().map(|request| request.url.clone()),
            address: call.address,
            rule: rule.clone(),
            bytes_out: traffic.up,
            bytes_in: traffic.down,
            failure,
        }
    }
}

/// Equal refusals of one host, counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedHostCount {
    pub host: String,
    pub port: u16,
    pub times: u64,
    pub refusal: Refusal,
}

impl FlowSummary {
    pub(in crate::effect) fn flow(&mut self, flow: FlowCount) {
        if self.flows.len() < MOST { self.flows.push(flow) } else { self.omitted += 1 }
    }

    pub(in crate::effect) fn refused(&mut self, call: &FlowCall, refusal: &Refusal) {
        let same = |known: &&mut RefusedHostCount| {
            known.host == call.host && known.port == call.port && known.refusal.rule == refusal.rule
        };
        if let Some(known) = self.refused.iter_mut().find(same) {
            known.times += 1;
            return;
        }
        if self.refused.len() >= MOST {
            self.omitted += 1;
            return;
        }
        let (host, port) = (call.host.clone(), call.port);
        self.refused.push(RefusedHostCount { host, port, times: 1, refusal: refusal.clone() });
    }

    /// Counts an entry beyond the limit.
    pub(in crate::effect) fn unlisted(&mut self) {
        self.omitted += 1;
    }

    /// Counts a refused name lookup. Returns whether to record it: only new names, and only up to the limit.
    pub(in crate::effect) fn unanswered(&mut self, call: &FlowCall, refusal: &Refusal) -> bool {
        let before = self.refused.len();
        self.refused(call, refusal);
        self.refused.len() > before
    }
}
