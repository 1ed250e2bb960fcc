//! Property tests for request and response bodies: the result does not depend on how a body is cut into chunks or where it pauses.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use ringfence_types::Refusal;

use crate::content_encoding::ContentEncoding;
use crate::credential::tests::{credential, target};
use crate::credential::{CredentialScheme, CredentialSet, CredentialView};
use crate::error_response::{HttpBodyError, ProxyBody};
use crate::flow_gate::{
    DialPermit, Flow, FlowEnd, FlowGate, FlowIngress, FlowVerdict, LeakLocation, LeakReport, Traffic,
};
use crate::leak_check::{LeakCheck, blocks};
use crate::live_flow::{LiveFlow, ProxyState};
use crate::redacted_body::{RedactedBody, RedactionContext};
use crate::scanned_body::ScannedBody;
use crate::settings::{NameServers, ProxySettings};

struct NoLeakGate;

impl FlowGate for NoLeakGate {
    fn judge(&self, _flow: &Flow) -> FlowVerdict {
        FlowVerdict::Refuse(refusal())
    }

    fn answers(&self, _name: &str) -> bool {
        false
    }

    fn opens(&self, _flow: &Flow, _address: std::net::IpAddr) -> Result<Box<dyn DialPermit>, Refusal> {
        Err(refusal())
    }

    fn finding(&self, _flow: &Flow, _leak: &LeakReport) {}

    fn malformed(&self, _way: FlowIngress, _why: &str) {}

    fn ended(&self, _flow: &Flow, _traffic: Traffic, _end: &FlowEnd) {}
}

fn refusal() -> Refusal {
    Refusal {
        code: ringfence_types::RefusalCode::Network,
        layer: ringfence_types::PolicyLayer::Floor,
        rule: ringfence_types::RuleId::NetworkGate.into(),
        message: String::new(),
        hint: None,
    }
}

/// One step of a test body: bytes, or a pause.
#[derive(Clone, Debug)]
enum BodyStep {
    Data(Vec<u8>),
    Nothing,
}

struct BodySteps(VecDeque<BodyStep>);

impl HttpBody for BodySteps {
    type Data = Bytes;
    type Error = HttpBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpBodyError>>> {
        match self.0.pop_front() {
            None => Poll::Ready(None),
            Some(BodyStep::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes.into())))),
            Some(BodyStep::Nothing) => {
                // Stands for a timer that fires: the next poll finds that the pause is over.
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

fn body(text: &[u8], cuts: &[(usize, bool)]) -> ProxyBody {
    let mut rest = text;
    let mut steps = VecDeque::new();
    for (length, pause) in cuts.iter().cycle().take(text.len() + 1) {
        let (now, later) = rest.split_at((*length).min(rest.len()));
        steps.push_back(BodyStep::Data(now.to_vec()));
        if *pause {
            steps.push_back(BodyStep::Nothing);
        }
        rest = later;
    }
    BodySteps(steps).boxed()
}

struct BodyFixture {
    runtime: tokio::runtime::Runtime,
    live: Arc<LiveFlow>,
    here: Arc<CredentialView>,
    elsewhere: Arc<CredentialView>,
    value: String,
    placeholder: String,
}

fn scene() -> BodyFixture {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let one = credential("one", &["one.example"]);
    let value = String::from_utf8(one.value.to_vec()).unwrap();
    let placeholder = one.placeholder.clone().unwrap().to_string();
    let secrets = CredentialSet::new(vec![one], Vec::new(), None).unwrap();
    let here = secrets.sight(&target("one.example"), CredentialScheme::Https).unwrap();
    let elsewhere = secrets.sight(&target("two.example"), CredentialScheme::Https).unwrap();
    let settings = ProxySettings { names: NameServers::Only(Vec::new()), ..ProxySettings::default() };
    let (records, _received) = mpsc::channel();
    let live = {
        let _inside = runtime.enter();
        let shared = Arc::new(ProxyState::new(Arc::new(NoLeakGate), settings, records));
        Arc::new(shared.open_flow(FlowIngress::Connect, target("two.example"), None).unwrap())
    };
    BodyFixture { runtime, live, here, elsewhere, value, placeholder }
}

/// Returns the bytes of a request that left, and whether the body was aborted.
async fn sent(text: &[u8], cuts: &[(usize, bool)], scene: &BodyFixture) -> (Vec<u8>, bool) {
    let look = Arc::new(LeakCheck {
        sight: scene.elsewhere.clone(),
        live: scene.live.clone(),
        told: Arc::default(),
    });
    let mut watched = ScannedBody::new(body(text, cuts), look, ContentEncoding::Identity);
    let mut out = Vec::new();
    while let Some(frame) = watched.frame().await {
        match frame {
            Ok(frame) => out.extend_from_slice(&frame.into_data().unwrap()),
            Err(_) => return (out, true),
        }
    }
    (out, false)
}

async fn received(text: &[u8], cuts: &[(usize, bool)], scene: &BodyFixture) -> Vec<u8> {
    let about = RedactionContext { sight: scene.here.clone(), live: scene.live.clone() };
    let echo = scene.here.echo.clone().unwrap();
    RedactedBody::new(body(text, cuts), &echo, ContentEncoding::Identity, about)
        .collect()
        .await
        .unwrap()
        .to_bytes()
        .to_vec()
}

/// During a pause the redactor may already have sent up to three bytes of a secret, because so few bytes do not identify one.
fn without_beginnings(text: &str, scene: &BodyFixture) -> String {
    (1..=3).rev().fold(text.to_owned(), |text, length| {
        let begun = scene.value.get(..length).unwrap();
        text.replace(&format!("{begun}{}", scene.placeholder), &scene.placeholder)
    })
}

fn texts() -> impl Strategy<Value = String> {
    let part =
        prop_oneof!["[ -~]{0,40}", "[A-Za-z0-9+/]{0,60}", Just("@".to_owned()), Just("real-one-".to_owned())];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn cuts() -> impl Strategy<Value = Vec<(usize, bool)>> {
    prop::collection::vec((1_usize..50, any::<bool>()), 1..6)
}

#[test]
fn bodies_do_not_depend_on_how_they_come() {
    let scene = scene();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        cases: 128,
        ..ProptestConfig::default()
    });
    let checked = runner.run(&(texts(), cuts()), |(text, cuts)| {
        let leaking = text.replace('@', &scene.value);
        let expected = leaking.replace(&scene.value, &scene.placeholder);
        let answer = scene.runtime.block_on(received(leaking.as_bytes(), &cuts, &scene));
        let answer = String::from_utf8(answer).unwrap();
        prop_assert!(!answer.contains(&scene.value));
        prop_assert_eq!(without_beginnings(&answer, &scene), without_beginnings(&expected, &scene));
        let (out, broken) = scene.runtime.block_on(sent(leaking.as_bytes(), &cuts, &scene));
        let findings = scene.elsewhere.foreign.scan(leaking.as_bytes());
        prop_assert_eq!(broken, findings.iter().any(|finding| blocks(finding, &LeakLocation::Body)));
        prop_assert!(broken || !leaking.contains(&scene.value));
        if broken {
            prop_assert!(leaking.as_bytes().starts_with(&out));
            prop_assert!(!String::from_utf8_lossy(&out).contains(&scene.value));
        } else {
            prop_assert_eq!(out, leaking.into_bytes());
        }
        Ok(())
    });
    checked.unwrap();
}
