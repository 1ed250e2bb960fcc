//! The command line: argv, environment, terminal, exit codes. No crate below reads any of them.
//!
//! What it is not: it decides nothing about an agent's call, and has no other way to an effect than the runtime or the daemon.

mod approval;
mod args;
mod commands;
mod daemon_client;
mod daemon_policy;
mod engine;
mod environment;
mod error;
mod exec_server;
mod explain;
mod hook;
mod host;
mod init;
mod leaks;
mod logging;
mod mcp;
mod operator_api;
mod output;
mod own;
mod panic_hook;
mod policy_resolution;
mod redactor;
mod secret_input;
mod shell_prefix;
mod spill;
mod status;
mod surroundings;
mod terminal;
#[cfg(test)]
mod testing;
mod whole_agent;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;

use ringfence_runtime::sweeper;

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    // Before anything else: an attempt of the escape battery needs an untouched process.
    if let [_, word, rest @ ..] = arguments.as_slice()
        && word == "__attempt"
    {
        return ExitCode::from(ringfence_battery::attempt_main(rest, &mut std::io::stdout()));
    }
    if let [_, word] = arguments.as_slice()
        && word == sweeper::WORD
    {
        let swept = sweeper::serve(std::io::stdin().as_fd(), Path::new("."));
        // The sweeper has no output. The next session removes what is left.
        return ExitCode::from(u8::from(swept.is_err()));
    }
    terminal::be_known_as_supervisor();
    terminal::survive_file_size_limit();
    terminal::leave_no_core();
    terminal::open_many_files();
    panic_hook::tell();
    if let [program, word, line] = arguments.as_slice()
        && word == shell_prefix::WORD
    {
        arguments = match shell_prefix::arguments(program, line) {
            Ok(arguments) => arguments,
            Err(code) => return code,
        };
    }
    match args::parse(&arguments) {
        Ok((logs, command)) => match logging::begin(logs, command.logs()) {
            Ok(()) => output::settle(commands::dispatch(command)),
            Err(code) => code,
        },
        Err(error) => args::explain(&error),
    }
}
