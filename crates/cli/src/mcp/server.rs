//! The protocol side: what a client says, and what it is told.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::tools;
use super::worker::{Cancel, Job};

/// How often a client that wants to know is told that a call goes on.
const TICK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Server {
    calls: mpsc::UnboundedSender<Job>,
}

impl Server {
    pub(super) fn new(calls: mpsc::UnboundedSender<Job>) -> Self {
        Self { calls }
    }

    async fn performed(
        &self,
        job: Job,
        mut answer: oneshot::Receiver<CallToolResult>,
        context: &RequestContext<RoleServer>,
    ) -> Option<CallToolResult> {
        let cancel = Arc::clone(&job.cancel);
        self.calls.send(job).ok()?;
        let token = context.meta.get_progress_token();
        let mut seconds = 0.0;
        let mut tick = tokio::time::interval(TICK);
        tick.tick().await;
        loop {
            tokio::select! {
                answer = &mut answer => return answer.ok(),
                () = context.ct.cancelled() => {
                    cancel.cancel();
                    // What was begun comes to its end, and into the ledger, before the next call.
                    return answer.await.ok();
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

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("ringfence", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(
            "Commands and file operations inside a kernel-enforced fence. A result with `ended: refused` did nothing; its \
             `denial` says by which rule, what can be done instead and what only the user can do."
                .to_owned(),
        );
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.into_owned();
        if self.get_tool(&name).is_none() {
            return Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let cancel = Cancel::new().map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let (answer, answered) = oneshot::channel();
        let job = Job { name, arguments, cancel: Arc::new(cancel), answer, peer: context.peer.clone() };
        match self.performed(job, answered, &context).await {
            Some(result) => Ok(result.into()),
            None => Err(ErrorData::internal_error("the session is over", None)),
        }
    }
}
