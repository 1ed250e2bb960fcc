//! Asks the client's user for approval, if the operator allows the client to.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_runtime::approvals::{ApprovalWait, OperatorDecision, OperatorReply, render_prompt};
use ringfence_runtime::{Approver, ApproverReply};
use ringfence_types::{Principal, Risk};
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Poll interval for decisions made elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// How an approval of one call reaches the client's user.
#[derive(Clone, Debug)]
pub(super) enum ElicitChannel {
    /// The client cannot ask.
    None,
    /// By a server request, in protocol versions with a handshake.
    Request(Peer<RoleServer>),
    /// As the answer to the call, which the client repeats with its user's reply, in versions without a
    /// handshake.
    Answer(mpsc::UnboundedSender<ElicitForm>),
}

/// A form that a call is answered with.
#[derive(Debug)]
pub(super) struct ElicitForm {
    pub(super) params: ElicitRequestParams,
    /// How long the reply counts.
    pub(super) left: Duration,
    pub(super) reply: Sender<ElicitResult>,
}

/// The client of the current call.
#[derive(Clone, Debug)]
pub(super) struct McpPeer {
    operator: Principal,
    way: Arc<Mutex<ElicitChannel>>,
    handle: Handle,
}

impl McpPeer {
    pub(super) fn new(operator: Principal, way: Arc<Mutex<ElicitChannel>>, handle: Handle) -> Self {
        Self { operator, way, handle }
    }

    fn way(&self) -> ElicitChannel {
        self.way.lock().map_or(ElicitChannel::None, |way| way.clone())
    }

    fn by_request(
        &self,
        peer: &Peer<RoleServer>,
        params: ElicitRequestParams,
        question: &ApprovalWait<'_>,
    ) -> ElicitReply {
        let asked = peer.create_elicitation_with_timeout(params, Some(question.left()));
        self.handle.block_on(async {
            tokio::pin!(asked);
            let mut look = tokio::time::interval(LOOK);
            loop {
                tokio::select! {
                    answer = &mut asked => return answer.map_or(ElicitReply::Nothing, ElicitReply::Answer),
                    _ = look.tick() => if question.decided().is_some() { return ElicitReply::Elsewhere },
                }
            }
        })
    }
}

/// The reply.
enum ElicitReply {
    Answer(ElicitResult),
    Elsewhere,
    Nothing,
}

fn by_answer(
    forms: &mpsc::UnboundedSender<ElicitForm>,
    params: ElicitRequestParams,
    question: &ApprovalWait<'_>,
) -> ElicitReply {
    let (reply, replied) = channel();
    if forms.send(ElicitForm { params, left: question.left(), reply }).is_err() {
        return ElicitReply::Nothing;
    }
    loop {
        match replied.recv_timeout(LOOK.min(question.left())) {
            Ok(answer) => return ElicitReply::Answer(answer),
            Err(RecvTimeoutError::Disconnected) => return ElicitReply::Nothing,
            Err(RecvTimeoutError::Timeout) if question.decided().is_some() => return ElicitReply::Elsewhere,
            Err(RecvTimeoutError::Timeout) if question.left().is_zero() => return ElicitReply::Nothing,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Approver for McpPeer {
    fn is_there(&mut self) -> bool {
        !matches!(self.way(), ElicitChannel::None)
    }

    fn ask(&mut self, question: &ApprovalWait<'_>) -> ApproverReply {
        let Some(params) = form(question) else { return ApproverReply::Interrupted };
        let spoken = match self.way() {
            ElicitChannel::None => ElicitReply::Nothing,
            ElicitChannel::Request(peer) => self.by_request(&peer, params, question),
            ElicitChannel::Answer(forms) => by_answer(&forms, params, question),
        };
        match spoken {
            ElicitReply::Elsewhere => ApproverReply::Elsewhere,
            ElicitReply::Answer(answer) => {
                let say = said(&answer, question.request().risk);
                ApproverReply::Reply(OperatorReply { by: self.operator.clone(), say, reason: None })
            }
            ElicitReply::Nothing if question.left().is_zero() => ApproverReply::Silence,
            ElicitReply::Nothing => ApproverReply::Interrupted,
        }
    }
}

/// A flat form, as the protocol requires. For a high risk the word must be typed.
fn form(question: &ApprovalWait<'_>) -> Option<ElicitRequestParams> {
    let request = question.request();
    let answer = match request.risk {
        Risk::Low | Risk::Medium => {
            json!({ "type": "string", "title": "Answer", "enum": ["deny", "allow once"] })
        }
        Risk::High | Risk::Critical => json!({
            "type": "string", "title": "Answer", "description": "type `yes` to allow this call once; anything else denies",
        }),
    };
    let form = json!({
        "mode": "form", "message": render_prompt(&request.prompt),
        "requestedSchema": { "type": "object", "properties": { "answer": answer }, "required": ["answer"] },
    });
    serde_json::from_value(form).ok()
}

/// Any reply but a clear yes is a no.
fn said(answer: &ElicitResult, risk: Risk) -> OperatorDecision {
    let word = answer.content.as_ref().and_then(|content| content.get("answer")).and_then(Value::as_str);
    let yes = match risk {
        Risk::Low | Risk::Medium => "allow once",
        Risk::High | Risk::Critical => "yes",
    };
    if answer.action == ElicitationAction::Accept && word == Some(yes) {
        OperatorDecision::Once
    } else {
        OperatorDecision::Deny
    }
}
