//! Bodies of requests and responses, cut anywhere and with any pauses: a property that both directions have.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use ringfence_types::Refusal;

use crate::answer::{Body, BodyError};
use crate::coding::Coding;
use crate::credential::tests::{credential, target};
use crate::credential::{Scheme, Secrets, Sight};
use crate::gate::{Flow, FlowEnd, Gate, Leak, Place, Traffic, Verdict, Way};
use crate::look::{Look, blocks};
use crate::redacted::{About, Redacted};
use crate::settings::{NameServers, Settings};
use crate::shared::{Live, Shared};
use crate::watched::Watched;

struct Nobody;

impl Gate for Nobody {
    fn judge(&self, _flow: &Flow) -> Verdict {
        Verdict::Refuse(Refusal {
            code: ringfence_types::RefusalCode::Network,
            layer: ringfence_types::Layer::Floor,
            rule: String::new(),
            message: String::new(),
            hint: None,
        })
    }

    fn answers(&self, _name: &str) -> bool {
        false
    }

    fn opens(&self, _flow: &Flow, _address: std::net::IpAddr) -> Result<(), Refusal> {
        Ok(())
    }

    fn finding(&self, _flow: &Flow, _leak: &Leak) {}

    fn malformed(&self, _way: Way, _why: &str) {}

    fn ended(&self, _flow: &Flow, _traffic: Traffic, _end: &FlowEnd) {}
}

/// What comes: bytes, or a while in which nothing does.
#[derive(Clone, Debug)]
enum Step {
    Data(Vec<u8>),
    Nothing,
}

struct Steps(VecDeque<Step>);

impl HttpBody for Steps {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.0.pop_front() {
            None => Poll::Ready(None),
            Some(Step::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes.into())))),
            Some(Step::Nothing) => {
                // As if a timer had rung: whoever asks again finds the pause over.
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

fn body(text: &[u8], cuts: &[(usize, bool)]) -> Body {
    let mut rest = text;
    let mut steps = VecDeque::new();
    for (length, pause) in cuts.iter().cycle().take(text.len() + 1) {
        let (now, later) = rest.split_at((*length).min(rest.len()));
        steps.push_back(Step::Data(now.to_vec()));
        if *pause {
            steps.push_back(Step::Nothing);
        }
        rest = later;
    }
    Steps(steps).boxed()
}

struct Scene {
    runtime: tokio::runtime::Runtime,
    live: Arc<Live>,
    here: Arc<Sight>,
    elsewhere: Arc<Sight>,
    value: String,
    placeholder: String,
}

fn scene() -> Scene {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let one = credential("one", &["one.example"]);
    let value = String::from_utf8(one.value.to_vec()).unwrap();
    let placeholder = one.placeholder.clone().unwrap().to_string();
    let secrets = Secrets::new(vec![one], Vec::new(), None).unwrap();
    let here = secrets.sight(&target("one.example"), Scheme::Https).unwrap();
    let elsewhere = secrets.sight(&target("two.example"), Scheme::Https).unwrap();
    let settings = Settings { names: NameServers::Only(Vec::new()), ..Settings::default() };
    let (records, _received) = mpsc::channel();
    let live = {
        let _inside = runtime.enter();
        let shared = Arc::new(Shared::new(Arc::new(Nobody), settings, records));
        Arc::new(shared.begin(Way::Connect, target("two.example"), None).unwrap())
    };
    Scene { runtime, live, here, elsewhere, value, placeholder }
}

/// What leaves of a request, and whether it was broken off.
async fn sent(text: &[u8], cuts: &[(usize, bool)], scene: &Scene) -> (Vec<u8>, bool) {
    let look =
        Arc::new(Look { sight: scene.elsewhere.clone(), live: scene.live.clone(), told: Arc::default() });
    let mut watched = Watched::new(body(text, cuts), look, Coding::Identity);
    let mut out = Vec::new();
    while let Some(frame) = watched.frame().await {
        match frame {
            Ok(frame) => out.extend_from_slice(&frame.into_data().unwrap()),
            Err(_) => return (out, true),
        }
    }
    (out, false)
}

async fn received(text: &[u8], cuts: &[(usize, bool)], scene: &Scene) -> Vec<u8> {
    let about = About { sight: scene.here.clone(), live: scene.live.clone() };
    let echo = scene.here.echo.clone().unwrap();
    Redacted::new(body(text, cuts), &echo, Coding::Identity, about)
        .collect()
        .await
        .unwrap()
        .to_bytes()
        .to_vec()
}

/// In a pause, three bytes may have been given before anybody could know what they begin.
fn without_beginnings(text: &str, scene: &Scene) -> String {
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
        prop_assert_eq!(broken, findings.iter().any(|finding| blocks(finding, &Place::Body)));
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
