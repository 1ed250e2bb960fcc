//! A session of the daemon for the tools: each call is a method of the table, admitted like every other request.

use std::path::Path;

use ringfence_api::methods::ApiRequest;
use ringfence_api::{Api, ApiError, ErrorCode, FetchResult, FetchUrl, Method};
use ringfence_mcp::result::{MOST, malformed};
use ringfence_mcp::{BuiltinTool, OutputTail, ToolSession};
use ringfence_runtime::{DryRunSubject, consider, tool_refused};
use ringfence_types::SessionId;
use rmcp::model::CallToolResult;
use serde::Serialize;
use serde_json::{Value, json};

use super::server::HttpMcpServer;
use crate::calls::handle::{MethodResponse, ask, blocking};
use crate::errors::{internal, malformed as no_sense};

impl Api for HttpMcpServer {
    async fn call<R: ApiRequest + Serialize>(&self, request: R) -> Result<R::Answer, ApiError> {
        let value = serde_json::to_value(request).map_err(|error| internal(&error))?;
        match ask(&self.visitor.line.daemon, self.visitor.arrived(R::METHOD, value)).await? {
            MethodResponse::Value(response, scale) => {
                self.visitor.keep(scale);
                R::answer(*response)
            }
            MethodResponse::Stream(..) => Err(no_sense("this is a stream")),
        }
    }
}

impl ToolSession for HttpMcpServer {
    fn id(&self) -> &SessionId {
        &self.visitor.session
    }

    fn workspace(&self) -> &Path {
        &self.workspace
    }

    async fn check_name(&self, tool: BuiltinTool) -> Result<(), ApiError> {
        let admitted = self.visitor.admit(Method::Mcp, json!({ "session": self.visitor.session })).await?;
        let daemon = std::sync::Arc::clone(&self.visitor.line.daemon);
        blocking(move || {
            let live = admitted.live.ok_or_else(|| no_sense("the request names no session"))?;
            let mut lane = live.bound.call_handle();
            let subject = DryRunSubject::Tool(tool.to_string());
            let judged =
                lane.renew().and_then(|()| consider(daemon.runtime.setup(), &lane.asked(), None, subject));
            let Some(refusal) = tool_refused(judged) else { return Ok(()) };
            lane.refuse(&refusal).map_err(|error| internal(&error))?;
            Err(refusal.into())
        })
        .await
    }

    async fn fetch(&self, url: String, method: Option<String>) -> Result<FetchResult, ApiError> {
        if method.is_some_and(|method| method != "GET") {
            return Err(ApiError::new(ErrorCode::InvalidArgument, "only `GET` is done here"));
        }
        self.call(FetchUrl { session: self.visitor.session.clone(), url }).await
    }

    /// The output so far. The client asks again for more.
    async fn tail(&self, call: u64) -> Result<OutputTail, ApiError> {
        let value = json!({ "session": self.visitor.session, "call": call });
        let admitted = self.visitor.admit(Method::CallOutput, value).await?;
        let live = admitted.live.ok_or_else(|| no_sense("the request names no session"))?;
        let call = live.find_call(call)?;
        let (output, truncated) = call.output.tail(MOST);
        Ok(OutputTail { output, truncated, info: call.info() })
    }

    /// Not offered over this transport.
    fn permission(&self, _arguments: &Value) -> CallToolResult {
        malformed("an agent of a session has no tools outside of it")
    }
}
