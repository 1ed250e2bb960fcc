//! What clients of the Model Context Protocol are offered, on standard input and output and over HTTP alike: the tools, what
//! they take, and how results look. What a tool does is elsewhere, behind the door of whoever serves it.
//!
//! What the attacker controls here: every argument of every tool.

mod built_in;
pub mod input;
pub mod result;
mod serve;
pub mod tools;

pub use built_in::BuiltIn;
pub use serve::{Offered, Serves};

use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};

/// How the server introduces itself.
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

/// What a search is, before the path: a program inside the fence, so that what is hidden there is hidden from it.
pub fn search(pattern: &str) -> [&str; 5] {
    ["grep", "-rnIE", "-e", pattern, "--"]
}

/// A command as an agent writes it, for a shell.
pub fn shell(command: &str) -> [&str; 3] {
    const BASH: &str = "/bin/bash";
    let shell = if std::path::Path::new(BASH).exists() { BASH } else { "/bin/sh" };
    [shell, "-c", command]
}
