//! The MCP server: requests and answers.

use std::sync::Arc;
use std::time::Duration;

use ringfence_mcp::{BuiltinTool, ToolBackend, tools};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ProgressNotificationParam, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::elicit::{ElicitChannel, ElicitForm};
use super::retry::{Retries, SealKeyError, bound};
use super::worker::{CallCanceller, WorkerJob};

/// Interval of progress notifications.
const TICK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct StdioMcpServer {
    calls: mpsc::UnboundedSender<WorkerJob>,
    retries: Retries,
}

/// A call that the session runs and has not answered yet.
#[derive(Debug)]
pub(super) struct PendingToolCall {
    answer: oneshot::Receiver<CallToolResult>,
    forms: mpsc::UnboundedReceiver<ElicitForm>,
    cancel: Arc<CallCanceller>,
}

impl StdioMcpServer {
    pub(super) fn new(calls: mpsc::UnboundedSender<WorkerJob>) -> Result<Self, SealKeyError> {
        Ok(Self { calls, retries: Retries::new()? })
    }

    fn begin(
        &self,
        tool: BuiltinTool,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<PendingToolCall, ErrorData> {
        let internal = |why: String| ErrorData::internal_error(why, None);
        let cancel = Arc::new(CallCanceller::new().map_err(|error| internal(error.to_string()))?);
        let (sender, answer) = oneshot::channel();
        let (asks, forms) = mpsc::unbounded_channel();
        let job = WorkerJob {
            tool,
            arguments: Value::Object(request.arguments.clone().unwrap_or_default()),
            cancel: Arc::clone(&cancel),
            answer: sender,
            way: way(context, asks),
        };
        self.calls.send(job).map_err(|_over| internal("the session has ended".to_owned()))?;
        Ok(PendingToolCall { answer, forms, cancel })
    }

    async fn finish(
        &self,
        mut underway: PendingToolCall,
        bound: &[u8],
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let over = |_gone| ErrorData::internal_error("the session has ended", None);
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
                    // A started call runs to its end and is recorded before the next call.
                    return underway.answer.await.map(Into::into).map_err(over);
                }
                _ = tick.tick() => {
                    seconds += TICK.as_secs_f64();
                    if let Some(token) = &token {
                        let progress = ProgressNotificationParam::new(token.clone(), seconds);
                        // A disconnected client is detected elsewhere.
                        let _unheard = context.peer.notify_progress(progress).await;
                    }
                }
            }
        }
    }
}

/// How this client can ask its user, by its capabilities.
fn way(context: &RequestContext<RoleServer>, asks: mpsc::UnboundedSender<ElicitForm>) -> ElicitChannel {
    let elicitation = context.client_capabilities().and_then(|client| client.elicitation);
    // A client that names neither forms nor URLs supports forms.
    let forms = elicitation.is_some_and(|can| can.form.is_some() || can.url.is_none());
    match context.meta.protocol_version() {
        _ if !forms => ElicitChannel::None,
        Some(_without_handshake) => ElicitChannel::Answer(asks),
        None => ElicitChannel::Request(context.peer.clone()),
    }
}

impl ToolBackend for StdioMcpServer {
    fn offers(&self) -> Vec<Tool> {
        tools::all()
    }

    async fn call(
        &self,
        tool: BuiltinTool,
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
