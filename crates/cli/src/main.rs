//! The command line: argv, environment, terminal, exit codes. Nothing below this crate reads any of them.

mod approval;
mod args;
mod asked;
mod commands;
mod environment;
mod error;
mod explain;
mod host;
mod leaks;
mod output;
mod secret_input;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // Before anything else: an attempt of the escape battery must run in a process that has done nothing yet.
    if let [_, word, rest @ ..] = arguments.as_slice()
        && word == "__attempt"
    {
        return ExitCode::from(ringfence_runtime::attack::attempt_main(rest, &mut std::io::stdout()));
    }
    terminal::survive_file_size_limit();
    terminal::leave_no_core();
    match args::parse(&arguments) {
        Ok(command) => output::settle(commands::dispatch(command)),
        Err(error) => args::explain(&error),
    }
}
