//! Asking the person at the client, where the operator has said that the client may.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_runtime::approval::{Reply, Say, Waiting, card_text};
use ringfence_runtime::{Approver, Heard};
use ringfence_types::{Principal, Risk};
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use rmcp::service::ElicitationMode;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::runtime::Handle;

/// How often somebody who waits looks for an answer from elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// The client of the call that is under way.
#[derive(Clone, Debug)]
pub(super) struct Client {
    operator: Principal,
    peer: Arc<Mutex<Option<Peer<RoleServer>>>>,
    handle: Handle,
}

impl Client {
    pub(super) fn new(
        operator: Principal,
        peer: Arc<Mutex<Option<Peer<RoleServer>>>>,
        handle: Handle,
    ) -> Self {
        Self { operator, peer, handle }
    }

    fn peer(&self) -> Option<Peer<RoleServer>> {
        let peer = self.peer.lock().ok()?.clone()?;
        peer.supported_elicitation_modes().contains(&ElicitationMode::Form).then_some(peer)
    }
}

impl Approver for Client {
    fn is_there(&mut self) -> bool {
        self.peer().is_some()
    }

    fn ask(&mut self, question: &Waiting<'_>) -> Heard {
        let Some(peer) = self.peer() else { return Heard::Interrupted };
        let Some(form) = form(question) else { return Heard::Interrupted };
        let asked = peer.create_elicitation_with_timeout(form, Some(question.left()));
        let heard = self.handle.block_on(async {
            tokio::pin!(asked);
            let mut look = tokio::time::interval(LOOK);
            loop {
                tokio::select! {
                    answer = &mut asked => return Some(answer),
                    _ = look.tick() => if question.decided().is_some() { return None },
                }
            }
        });
        match heard {
            None => Heard::Elsewhere,
            Some(Ok(answer)) => {
                let say = said(&answer, question.request().risk);
                Heard::Reply(Reply { by: self.operator.clone(), say, reason: None })
            }
            Some(Err(_)) if question.left().is_zero() => Heard::Silence,
            Some(Err(_)) => Heard::Interrupted,
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
