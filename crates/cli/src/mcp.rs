//! `ringfence mcp`: the tools of Ringfence for any client of the Model Context Protocol.
//!
//! The protocol is asynchronous and a session is not: one thread owns the session, calls come to it one after the other.

mod elicit;
mod jobs;
mod perform;
mod result;
mod retry;
mod server;
mod worker;

use std::process::ExitCode;

use rmcp::ServiceExt as _;

use crate::args::Mcp;
use crate::error;
use server::Server;
use worker::Worker;

pub(crate) fn run(arguments: &Mcp) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return error::failed(&error, None),
    };
    let worker = match Worker::start(arguments, runtime.handle()) {
        Ok(worker) => worker,
        Err(code) => return code,
    };
    let (calls, thread) = worker.split();
    let server = match Server::new(calls) {
        Ok(server) => server,
        Err(error) => return error::failed(&error, None),
    };
    let served = runtime.block_on(async {
        let service = match ringfence_mcp::Offered(server).serve(rmcp::transport::stdio()).await {
            Ok(service) => service,
            Err(error) => return error::failed(&error, None),
        };
        match service.waiting().await {
            Ok(_reason) => ExitCode::SUCCESS,
            Err(error) => error::failed(&error, None),
        }
    });
    // Nobody reads standard input any more that would keep this process.
    runtime.shutdown_background();
    let ended = thread.join().unwrap_or_else(|_| error::failed_text("the session broke", None));
    if served == ExitCode::SUCCESS { ended } else { served }
}
