//! What is the same for every server of tools, whatever it does for a call and however its messages come.

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::{BuiltIn, introduction};

/// Somebody who does what tools are for.
pub trait Serves: Send + Sync + 'static {
    /// In a fixed order.
    fn offers(&self) -> Vec<Tool>;

    /// A call of one of those that are offered.
    fn call(
        &self,
        tool: BuiltIn,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<CallToolResponse, ErrorData>> + Send;
}

/// The protocol side of them.
#[derive(Clone, Debug)]
pub struct Offered<S>(pub S);

impl<S: Serves> Offered<S> {
    fn find(&self, name: &str) -> Result<BuiltIn, ErrorData> {
        let is_offered = self.0.offers().iter().any(|tool| tool.name == name);
        BuiltIn::of_word(name)
            .filter(|_| is_offered)
            .ok_or_else(|| ErrorData::invalid_params(format!("there is no tool `{name}`"), None))
    }
}

impl<S: Serves> ServerHandler for Offered<S> {
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
