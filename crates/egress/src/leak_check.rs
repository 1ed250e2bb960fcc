//! Leak check of requests: a finding blocks the request or is only reported.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, HeaderName};
use ringfence_scan::{Confidence, Finding, ScanStream};
use ringfence_types::{PolicyLayer, Refusal, RefusalCode, RuleId, RuleName};

use crate::credential::CredentialView;
use crate::flow_gate::{LeakLocation, LeakReport, LeakResponse};
use crate::live_flow::LiveFlow;

/// Headers that carry a key of the client itself.
const FOR_KEYS: &[&str] = &[
    "authorization",
    "cookie",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "x-auth-token",
    "private-token",
    "x-amz-security-token",
];

/// Reports each leak once per session.
#[derive(Debug, Default)]
pub(crate) struct LeakDedup(Mutex<HashSet<u64>>);

const MOST_TOLD: usize = 4096;

impl LeakDedup {
    fn is_new(&self, about: &impl std::hash::Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        about.hash(&mut hasher);
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MOST_TOLD {
            told.clear();
        }
        told.insert(hasher.finish())
    }
}

/// Leak check of one request.
#[derive(Debug)]
pub(crate) struct LeakCheck {
    pub(crate) sight: Arc<CredentialView>,
    pub(crate) live: Arc<LiveFlow>,
    pub(crate) told: Arc<LeakDedup>,
}

impl LeakCheck {
    pub(crate) fn stream(&self) -> ScanStream {
        self.sight.foreign.stream()
    }

    /// Scans the request target and the headers in one pass.
    pub(crate) fn head(&self, target: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut text = format!("{target}\n").into_bytes();
        let mut places: Vec<(Range<usize>, &HeaderName)> = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            let start = text.len();
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            places.push((start..text.len(), name));
            text.push(b'\n');
        }
        let searched = self.sight.foreign.search(&text);
        for finding in &searched.findings {
            self.apply_policy(finding, place(&places, finding))?;
        }
        if searched.refused > 0 {
            Err(self.scan_failed("its head is more than can be searched"))
        } else {
            Ok(())
        }
    }

    pub(crate) fn trailers(&self, trailers: &HeaderMap) -> Result<(), Refusal> {
        self.head("", trailers)
    }

    /// Reports a finding, and refuses the request if policy blocks it.
    pub(crate) fn apply_policy(&self, finding: &Finding, place: LeakLocation) -> Result<(), Refusal> {
        let known = finding.confidence < Confidence::Exact && self.sight.expects(finding.fingerprint);
        // A value beside the word `authorization` is expected in such a header.
        if known || (finding.confidence == Confidence::Context && is_key_location(&place)) {
            return Ok(());
        }
        if blocks(finding, &place) {
            let refusal = self.refusal(finding, &place);
            self.live.found(leak(finding, place, LeakResponse::Blocked));
            return Err(refusal);
        }
        let told = leak(finding, place, LeakResponse::Flagged);
        let target = self.live.flow().target.to_string();
        if self.told.is_new(&(&told.rule, &told.fingerprint, format!("{:?}", told.place), target)) {
            self.live.found(told);
        }
        Ok(())
    }

    fn refusal(&self, finding: &Finding, place: &LeakLocation) -> Refusal {
        let place = match place {
            LeakLocation::Url => "the URL".to_owned(),
            LeakLocation::Header(name) | LeakLocation::ResponseHeader(name) => format!("the header `{name}`"),
            LeakLocation::HeaderName => "the name of a header".to_owned(),
            LeakLocation::Body | LeakLocation::ResponseBody => "the body".to_owned(),
        };
        let (rule, target) = (&finding.rule, &self.live.flow().target);
        let (what, hint) = match finding.confidence {
            Confidence::Exact => (
                "a secret of the session",
                "leave it out, or let an operator add this host to the hosts of the secret",
            ),
            _ => (
                "something that looks like a secret",
                "leave it out, or register it as a secret of this host",
            ),
        };
        Refusal {
            code: RefusalCode::Secret,
            layer: PolicyLayer::Floor,
            rule: RuleName::of_scanner(rule),
            message: format!(
                "{place} has {what} in it ({rule}, {}), which may not go to `{target}`",
                finding.layers
            ),
            hint: Some(hint.to_owned()),
        }
    }

    /// A request that cannot be scanned is refused.
    pub(crate) fn scan_failed(&self, why: &str) -> Refusal {
        let target = &self.live.flow().target;
        Refusal {
            code: RefusalCode::Secret,
            layer: PolicyLayer::Floor,
            rule: RuleId::NetworkScan.into(),
            message: format!("the request to `{target}` cannot be searched for secrets: {why}"),
            hint: Some(
                "send it uncompressed, or let an operator tunnel this host instead of inspecting it"
                    .to_owned(),
            ),
        }
    }
}

/// The shape of an unregistered secret blocks a request in URLs and bodies. In a header made for keys it is reported (C-15).
pub(crate) fn blocks(finding: &Finding, place: &LeakLocation) -> bool {
    match finding.confidence {
        Confidence::Exact => true,
        // A value beside a word like `password` has too many false positives.
        Confidence::Context => false,
        Confidence::Shape | Confidence::Checksum => !is_key_location(place),
    }
}

fn is_key_location(place: &LeakLocation) -> bool {
    matches!(place, LeakLocation::Header(name) if FOR_KEYS.contains(&name.as_str()))
}

pub(crate) fn leak(finding: &Finding, place: LeakLocation, action: LeakResponse) -> LeakReport {
    LeakReport {
        rule: finding.rule.to_string(),
        place,
        encoding: finding.layers.to_string(),
        fingerprint: finding.fingerprint.map(|fingerprint| fingerprint.to_string()),
        action,
    }
}

fn place(places: &[(Range<usize>, &HeaderName)], finding: &Finding) -> LeakLocation {
    let Some((range, name)) = places.iter().find(|(range, _)| range.end > finding.start) else {
        return LeakLocation::Url;
    };
    if finding.start < places.first().map_or(0, |(first, _)| first.start) {
        return LeakLocation::Url;
    }
    // A header name that contains the secret is not repeated.
    if finding.start < range.start + name.as_str().len() {
        return LeakLocation::HeaderName;
    }
    LeakLocation::Header(name.as_str().to_owned())
}
