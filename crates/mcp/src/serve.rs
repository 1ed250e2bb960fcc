//! Protocol handling that every tool server shares, whatever its transport.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::{BuiltinTool, introduction};

/// Executes tool calls.
pub trait ToolBackend: Send + Sync + 'static {
    /// Tools in a fixed order.
    fn offers(&self) -> Vec<Tool>;

    /// Calls one of the offered tools.
    fn call(
        &self,
        tool: BuiltinTool,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<CallToolResponse, ErrorData>> + Send;
}

/// The MCP server over a [`ToolBackend`].
#[derive(Clone, Debug)]
pub struct ToolServer<S>(pub S);

impl<S: ToolBackend> ToolServer<S> {
    fn find(&self, name: &str) -> Result<BuiltinTool, ErrorData> {
        let is_offered = self.0.offers().iter().any(|tool| tool.name == name);
        BuiltinTool::of_word(name)
            .filter(|_| is_offered)
            .ok_or_else(|| ErrorData::invalid_params(format!("there is no tool `{name}`"), None))
    }
}

impl<S: ToolBackend> ServerHandler for ToolServer<S> {
    fn get_info(&self) -> ServerConfig {
        introduction(env!("CARGO_PKG_VERSION"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.offers()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.offers().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.find(&request.name)?;
        self.0.call(tool, request, context).await
    }
}
