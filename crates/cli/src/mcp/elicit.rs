//! Asking the person at the client, where the operator has said that the client may.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_runtime::approval::{Reply, Say, Waiting, card_text};
use ringfence_runtime::{Approver, Heard};
use ringfence_types::{Principal, Risk};
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// How often somebody who waits looks for an answer from elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// How a question of one call gets to the person at the client.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// The client cannot ask.
    None,
    /// By a request of the server, in the era with a handshake.
    Request(Peer<RoleServer>),
    /// As an answer to the call, which the client then repeats with what its user said, in the era without.
    Answer(mpsc::UnboundedSender<Form>),
}

/// A question that the call is answered with.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) params: ElicitRequestParams,
    /// How long an answer counts.
    pub(super) left: Duration,
    pub(super) reply: Sender<ElicitResult>,
}

/// The client of the call that is under way.
#[derive(Clone, Debug)]
pub(super) struct Client {
    operator: Principal,
    way: Arc<Mutex<Way>>,
    handle: Handle,
}

impl Client {
    pub(super) fn new(operator: Principal, way: Arc<Mutex<Way>>, handle: Handle) -> Self {
        Self { operator, way, handle }
    }

    fn way(&self) -> Way {
        self.way.lock().map_or(Way::None, |way| way.clone())
    }

    fn by_request(
        &self,
        peer: &Peer<RoleServer>,
        params: ElicitRequestParams,
        question: &Waiting<'_>,
    ) -> Spoken {
        let asked = peer.create_elicitation_with_timeout(params, Some(question.left()));
        self.handle.block_on(async {
            tokio::pin!(asked);
            let mut look = tokio::time::interval(LOOK);
            loop {
                tokio::select! {
                    answer = &mut asked => return answer.map_or(Spoken::Nothing, Spoken::Answer),
                    _ = look.tick() => if question.decided().is_some() { return Spoken::Elsewhere },
                }
            }
        })
    }
}

/// What came back.
enum Spoken {
    Answer(ElicitResult),
    Elsewhere,
    Nothing,
}

fn by_answer(
    forms: &mpsc::UnboundedSender<Form>,
    params: ElicitRequestParams,
    question: &Waiting<'_>,
) -> Spoken {
    let (reply, replied) = channel();
    if forms.send(Form { params, left: question.left(), reply }).is_err() {
        return Spoken::Nothing;
    }
    loop {
        match replied.recv_timeout(LOOK.min(question.left())) {
            Ok(answer) => return Spoken::Answer(answer),
            Err(RecvTimeoutError::Disconnected) => return Spoken::Nothing,
            Err(RecvTimeoutError::Timeout) if question.decided().is_some() => return Spoken::Elsewhere,
            Err(RecvTimeoutError::Timeout) if question.left().is_zero() => return Spoken::Nothing,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Approver for Client {
    fn is_there(&mut self) -> bool {
        !matches!(self.way(), Way::None)
    }

    fn ask(&mut self, question: &Waiting<'_>) -> Heard {
        let Some(params) = form(question) else { return Heard::Interrupted };
        let spoken = match self.way() {
            Way::None => Spoken::Nothing,
            Way::Request(peer) => self.by_request(&peer, params, question),
            Way::Answer(forms) => by_answer(&forms, params, question),
        };
        match spoken {
            Spoken::Elsewhere => Heard::Elsewhere,
            Spoken::Answer(answer) => {
                let say = said(&answer, question.request().risk);
                Heard::Reply(Reply { by: self.operator.clone(), say, reason: None })
            }
            Spoken::Nothing if question.left().is_zero() => Heard::Silence,
            Spoken::Nothing => Heard::Interrupted,
        }
    }
}

/// Flat, as the protocol wants it. Where much is at stake the word has to be typed.
fn form(question: &Waiting<'_>) -> Option<ElicitRequestParams> {
    let request = question.request();
    let answer = match request.risk {
        Risk::Low | Risk::Medium => {
            json!({ "type": "string", "title": "Answer", "enum": ["deny", "allow once"] })
        }
        Risk::High | Risk::Critical => json!({
            "type": "string", "title": "Answer", "description": "type `yes` to allow it once; anything else is no",
        }),
    };
    let form = json!({
        "mode": "form", "message": card_text(&request.card),
        "requestedSchema": { "type": "object", "properties": { "answer": answer }, "required": ["answer"] },
    });
    serde_json::from_value(form).ok()
}

/// Whatever is not a clear yes is a no.
fn said(answer: &ElicitResult, risk: Risk) -> Say {
    let word = answer.content.as_ref().and_then(|content| content.get("answer")).and_then(Value::as_str);
    let yes = match risk {
        Risk::Low | Risk::Medium => "allow once",
        Risk::High | Risk::Critical => "yes",
    };
    if answer.action == ElicitationAction::Accept && word == Some(yes) { Say::Once } else { Say::Deny }
}
