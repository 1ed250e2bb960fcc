//! The MCP interface, over standard streams and HTTP: the tools, their input, and the form of results. Each tool is one or two
//! methods of a session, called through [`ringfence_api::Api`].
//!
//! What it is not: it has no effect itself. What implements the trait, in `cli` and `daemon`, takes the pipeline.
//!
//! The attacker controls every argument of every tool.

mod builtin;
pub mod input;
mod perform;
pub mod result;
mod serve;
pub mod tools;

pub use builtin::BuiltinTool;
pub use perform::{OutputTail, ToolSession, perform};
pub use serve::{ToolBackend, ToolServer};

use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};

/// Name and capabilities of the server.
pub fn introduction(version: &str) -> ServerConfig {
    let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
    info.server_info = Implementation::new("ringfence", version);
    info.instructions = Some(
        "Commands and file operations inside a kernel-enforced fence. A result with `ended: refused` did nothing; its \
         `denial` says by which rule, what can be done instead and what only the user can do."
            .to_owned(),
    );
    info
}

/// Command line of a search, before the path. It runs inside the fence, so hidden paths stay hidden.
pub fn search(pattern: &str) -> [&str; 5] {
    ["grep", "-rnIE", "-e", pattern, "--"]
}

/// Wraps a command of an agent for a shell.
pub fn shell(command: &str) -> [&str; 3] {
    const BASH: &str = "/bin/bash";
    let shell = if std::path::Path::new(BASH).exists() { BASH } else { "/bin/sh" };
    [shell, "-c", command]
}
