//! The MCP server of one request.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_mcp::result::malformed;
use ringfence_mcp::{BuiltinTool, ToolBackend, perform, tools};
use rmcp::model::{CallToolRequestParams, CallToolResponse, ProgressNotificationParam, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use super::McpCaller;

/// Interval of progress notifications.
const TICK: Duration = Duration::from_secs(1);

/// The tools of one session, for one request.
#[derive(Clone, Debug)]
pub(super) struct HttpMcpServer {
    pub(super) visitor: McpCaller,
    pub(super) workspace: PathBuf,
}

impl ToolBackend for HttpMcpServer {
    fn offers(&self) -> Vec<Tool> {
        tools::of_session()
    }

    async fn call(
        &self,
        tool: BuiltinTool,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let id = serde_json::to_value(&context.id).unwrap_or_default();
        let begun = self.visitor.line.daemon.tools_underway.begin(self.visitor.key(&id));
        // A disconnect or a cancellation drops the call's future, which ends the call.
        let result = tokio::select! {
            result = perform(self, tool, &arguments) => result,
            () = begun.cancelled() => malformed("the call was cancelled"),
            () = context.ct.cancelled() => malformed("the call was cancelled"),
            never = tell_progress(&context) => match never {},
        };
        Ok(result.into())
    }
}

async fn tell_progress(context: &RequestContext<RoleServer>) -> Infallible {
    let Some(token) = context.meta.get_progress_token() else { return std::future::pending().await };
    let mut seconds = 0.0;
    let mut tick = tokio::time::interval(TICK);
    let _at_once = tick.tick().await;
    loop {
        let _at = tick.tick().await;
        seconds += TICK.as_secs_f64();
        // A disconnected client is detected elsewhere.
        let _unheard =
            context.peer.notify_progress(ProgressNotificationParam::new(token.clone(), seconds)).await;
    }
}
