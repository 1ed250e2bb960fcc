//! What is found in a request is weighed: it stops the request, or it is only told.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, HeaderName};
use ringfence_scan::{Confidence, Finding, Stream};
use ringfence_types::{Layer, Refusal, RefusalCode};

use crate::credential::Sight;
use crate::gate::{Leak, LeakAction, Place};
use crate::shared::Live;

/// Headers whose business is to carry a key of the client's own.
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

/// What was told once in a session is not told with every request.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<HashSet<u64>>);

const MOST_TOLD: usize = 4096;

impl Told {
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

/// How one request is looked at.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) sight: Arc<Sight>,
    pub(crate) live: Arc<Live>,
    pub(crate) told: Arc<Told>,
}

impl Look {
    pub(crate) fn stream(&self) -> Stream {
        self.sight.foreign.stream()
    }

    /// The target of a request and its headers, in one pass.
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
            self.weigh(finding, place(&places, finding))?;
        }
        if searched.refused > 0 {
            Err(self.unsearchable("its head is more than can be searched"))
        } else {
            Ok(())
        }
    }

    pub(crate) fn trailers(&self, trailers: &HeaderMap) -> Result<(), Refusal> {
        self.head("", trailers)
    }

    /// A finding in a request: told, and a refusal if it must not leave.
    pub(crate) fn weigh(&self, finding: &Finding, place: Place) -> Result<(), Refusal> {
        let known = finding.confidence < Confidence::Exact && self.sight.expects(finding.fingerprint);
        // What stands beside the word `authorization` is where it belongs.
        if known || (finding.confidence == Confidence::Context && is_for_keys(&place)) {
            return Ok(());
        }
        if blocks(finding, &place) {
            let refusal = self.refusal(finding, &place);
            self.live.found(leak(finding, place, LeakAction::Blocked));
            return Err(refusal);
        }
        let told = leak(finding, place, LeakAction::Flagged);
        let target = self.live.flow().target.to_string();
        if self.told.is_new(&(&told.rule, &told.fingerprint, format!("{:?}", told.place), target)) {
            self.live.found(told);
        }
        Ok(())
    }

    fn refusal(&self, finding: &Finding, place: &Place) -> Refusal {
        let place = match place {
            Place::Url => "the URL".to_owned(),
            Place::Header(name) | Place::ResponseHeader(name) => format!("the header `{name}`"),
            Place::HeaderName => "the name of a header".to_owned(),
            Place::Body | Place::ResponseBody => "the body".to_owned(),
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
            layer: Layer::Floor,
            rule: rule.to_string(),
            message: format!(
                "{place} has {what} in it ({rule}, {}), which may not go to `{target}`",
                finding.layers
            ),
            hint: Some(hint.to_owned()),
        }
    }

    /// What cannot be looked at does not leave.
    pub(crate) fn unsearchable(&self, why: &str) -> Refusal {
        let target = &self.live.flow().target;
        Refusal {
            code: RefusalCode::Secret,
            layer: Layer::Floor,
            rule: "network.scan".to_owned(),
            message: format!("the request to `{target}` cannot be searched for secrets: {why}"),
            hint: Some(
                "send it uncompressed, or let an operator tunnel this host instead of inspecting it"
                    .to_owned(),
            ),
        }
    }
}

/// The shape of a secret nobody registered stops a request in URLs and bodies; in a header that is made for keys it is told
/// (C-15).
pub(crate) fn blocks(finding: &Finding, place: &Place) -> bool {
    match finding.confidence {
        Confidence::Exact => true,
        // What only stands beside a word like `password` is too often none.
        Confidence::Context => false,
        Confidence::Shape | Confidence::Checksum => !is_for_keys(place),
    }
}

fn is_for_keys(place: &Place) -> bool {
    matches!(place, Place::Header(name) if FOR_KEYS.contains(&name.as_str()))
}

pub(crate) fn leak(finding: &Finding, place: Place, action: LeakAction) -> Leak {
    Leak {
        rule: finding.rule.to_string(),
        place,
        encoding: finding.layers.to_string(),
        fingerprint: finding.fingerprint.map(|fingerprint| fingerprint.to_string()),
        action,
    }
}

fn place(places: &[(Range<usize>, &HeaderName)], finding: &Finding) -> Place {
    let Some((range, name)) = places.iter().find(|(range, _)| range.end > finding.start) else {
        return Place::Url;
    };
    if finding.start < places.first().map_or(0, |(first, _)| first.start) {
        return Place::Url;
    }
    // A name that holds the secret is not repeated.
    if finding.start < range.start + name.as_str().len() {
        return Place::HeaderName;
    }
    Place::Header(name.as_str().to_owned())
}
