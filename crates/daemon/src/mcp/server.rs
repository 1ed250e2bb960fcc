//! The protocol side: what a client says in one request, and what it is told.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_mcp::result::malformed;
use ringfence_mcp::{introduction, tools};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;

use super::{Visitor, perform};

/// How often a client that wants to know is told that a call goes on.
const TICK: Duration = Duration::from_secs(1);

/// The tools of one session, for one request.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) visitor: Visitor,
    pub(super) workspace: PathBuf,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        introduction(env!("CARGO_PKG_VERSION"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::of_session()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::of_session().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.get_tool(&request.name).is_none() {
            return Err(ErrorData::invalid_params(format!("there is no tool `{}`", request.name), None));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let id = serde_json::to_value(&context.id).unwrap_or_default();
        let begun = self.visitor.line.daemon.tools_underway.begin(self.visitor.key(&id));
        // Whoever goes away or cancels drops what is done for them, which ends it.
        let result = tokio::select! {
            result = perform::perform(self, &request.name, &arguments) => result,
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
        // A client that does not listen any more is noticed elsewhere.
        let _unheard =
            context.peer.notify_progress(ProgressNotificationParam::new(token.clone(), seconds)).await;
    }
}
