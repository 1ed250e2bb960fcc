//! `ringfence mcp`: Ringfence's tools for clients of the Model Context Protocol.
//!
//! The protocol is asynchronous and a session is not: one thread owns the session and runs the calls in
//! order.

mod elicit;
mod jobs;
mod retry;
mod run_tool;
mod server;
mod worker;

use std::process::ExitCode;

use rmcp::ServiceExt as _;

use crate::args::McpArgs;
use crate::error;
use server::StdioMcpServer;
use worker::SessionWorker;

pub(crate) fn run(arguments: &McpArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return error::failed(&error, None),
    };
    let worker = match SessionWorker::start(arguments, runtime.handle()) {
        Ok(worker) => worker,
        Err(code) => return code,
    };
    let (calls, thread) = worker.split();
    let server = match StdioMcpServer::new(calls) {
        Ok(server) => server,
        Err(error) => return error::failed(&error, None),
    };
    let served = runtime.block_on(async {
        let service = match ringfence_mcp::ToolServer(server).serve(rmcp::transport::stdio()).await {
            Ok(service) => service,
            Err(error) => return error::failed(&error, None),
        };
        match service.waiting().await {
            Ok(_reason) => ExitCode::SUCCESS,
            Err(error) => error::failed(&error, None),
        }
    });
    // Does not wait for the thread that reads standard input, which would block the exit.
    runtime.shutdown_background();
    let ended = thread.join().unwrap_or_else(|_| error::failed_text("the session failed", None));
    if served == ExitCode::SUCCESS { ended } else { served }
}
