//! One file per subcommand.

mod doctor;
mod file;
mod ledger;
mod run;

use std::process::ExitCode;

use crate::args::{self, Command};

pub(crate) fn dispatch(command: Command) -> ExitCode {
    match command {
        Command::Run(run) => run::run(*run),
        Command::File(file) => file::run(file),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Ledger(ledger) => ledger::run(&ledger),
        Command::Completions { shell } => {
            args::completions(shell);
            ExitCode::SUCCESS
        }
    }
}
