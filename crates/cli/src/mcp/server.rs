//! The protocol side: what a client says, and what it is told.

use std::sync::Arc;
use std::time::Duration;

use ringfence_mcp::{BuiltIn, Serves, tools};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ProgressNotificationParam, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::elicit::{Form, Way};
use super::retry::{Retries, SealKeyError, bound};
use super::worker::{Cancel, Job};

/// How often a client that wants to know is told that a call goes on.
const TICK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Server {
    calls: mpsc::UnboundedSender<Job>,
    retries: Retries,
}

/// A call that the session has, and that nobody has an answer to yet.
#[derive(Debug)]
pub(super) struct Underway {
    answer: oneshot::Receiver<CallToolResult>,
    forms: mpsc::UnboundedReceiver<Form>,
    cancel: Arc<Cancel>,
}

impl Server {
    pub(super) fn new(calls: mpsc::UnboundedSender<Job>) -> Result<Self, SealKeyError> {
        Ok(Self { calls, retries: Retries::new()? })
    }

    fn begin(
        &self,
        tool: BuiltIn,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Underway, ErrorData> {
        let internal = |why: String| ErrorData::internal_error(why, None);
        let cancel = Arc::new(Cancel::new().map_err(|error| internal(error.to_string()))?);
        let (sender, answer) = oneshot::channel();
        let (asks, forms) = mpsc::unbounded_channel();
        let job = Job {
            tool,
            arguments: Value::Object(request.arguments.clone().unwrap_or_default()),
            cancel: Arc::clone(&cancel),
            answer: sender,
            way: way(context, asks),
        };
        self.calls.send(job).map_err(|_over| internal("the session is over".to_owned()))?;
        Ok(Underway { answer, forms, cancel })
    }

    async fn finish(
        &self,
        mut underway: Underway,
        bound: &[u8],
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let over = |_gone| ErrorData::internal_error("the session is over", None);
        let token = context.meta.get_progress_token();
        let mut seconds = 0.0;
        let mut tick = tokio::time::interval(TICK);
        tick.tick().await;
        loop {
            tokio::select! {
                answer = &mut underway.answer => return answer.map(Into::into).map_err(over),
                Some(form) = underway.forms.recv() => {
                    return self.retries.park(form, bound, underway).map(Into::into);
                }
                () = context.ct.cancelled() => {
                    underway.cancel.cancel();
                    // What was begun comes to its end, and into the ledger, before the next call.
                    return underway.answer.await.map(Into::into).map_err(over);
                }
                _ = tick.tick() => {
                    seconds += TICK.as_secs_f64();
                    if let Some(token) = &token {
                        let progress = ProgressNotificationParam::new(token.clone(), seconds);
                        // A client that does not listen any more is noticed elsewhere.
                        let _unheard = context.peer.notify_progress(progress).await;
                    }
                }
            }
        }
    }
}

/// How this client could ask its user, by what it says of itself.
fn way(context: &RequestContext<RoleServer>, asks: mpsc::UnboundedSender<Form>) -> Way {
    let elicitation = context.client_capabilities().and_then(|client| client.elicitation);
    // Whoever names neither form nor address means forms.
    let forms = elicitation.is_some_and(|can| can.form.is_some() || can.url.is_none());
    match context.meta.protocol_version() {
        _ if !forms => Way::None,
        Some(_without_handshake) => Way::Answer(asks),
        None => Way::Request(context.peer.clone()),
    }
}

impl Serves for Server {
    fn offers(&self) -> Vec<Tool> {
        tools::all()
    }

    async fn call(
        &self,
        tool: BuiltIn,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let underway = match request.request_state {
            None => self.begin(tool, &request, &context)?,
            Some(_) => self.retries.resume(&request)?,
        };
        self.finish(underway, &bound(&request), &context).await
    }
}
