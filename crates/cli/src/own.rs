//! What the host runs or obeys next on behalf of Ringfence: its program, and the files in which agents name it.
//!
//! A command that could replace one of them would run on the host with the next hook. In a session they are read-only wherever
//! they lie, and where a backend cannot hold them there is no session.

use std::path::{Path, PathBuf};

use clap::ValueEnum as _;

use crate::args::Agent;
use crate::environment::Environment;
use crate::host;
use crate::init;
use crate::output::note;

/// Files in the settings directory of an agent that name a program to run.
const SETTINGS: [&str; 8] = [
    "settings.json",
    "settings.local.json",
    "hooks.json",
    "hooks/hooks.json",
    "config.toml",
    "environments.toml",
    "plugin.json",
    "plugin/ringfence.js",
];

/// Each as it was named and as it is.
pub(crate) fn files(environment: &Environment) -> Vec<PathBuf> {
    let directories = Agent::value_variants().iter().filter_map(|agent| init::directory(*agent, environment));
    let settings = directories.flat_map(|directory| SETTINGS.map(|name| directory.join(name)));
    programs().into_iter().chain(settings.filter(|file| file.is_file())).collect()
}

/// The program that runs, by where it is and by the name it was started with, which can be a link.
fn programs() -> Vec<PathBuf> {
    let started = std::env::args_os().next().map(PathBuf::from);
    let named = started.and_then(|name| match name.components().count() {
        1 => host::on_path(&name),
        _ => std::path::absolute(&name).ok(),
    });
    std::env::current_exe().ok().into_iter().chain(named).filter(|path| path.is_file()).collect()
}

/// Says where the program is something that agents work on.
pub(crate) fn tell_where_it_lies() {
    if let Some((program, repository)) = programs().iter().find_map(|program| in_repository(program)) {
        let (program, repository) = (init::shown(program), init::shown(&repository));
        note!("ringfence: this program, `{program}`, lies in the repository `{repository}`");
        note!(
            "  in a session there it is read-only, so that nothing inside can replace what the host runs next"
        );
        note!(
            "  hint: install it elsewhere (`cargo install --path crates/cli`), and run `ringfence init` with that one"
        );
    }
}

fn in_repository(program: &Path) -> Option<(&Path, PathBuf)> {
    let around = program.ancestors().skip(1).find(|directory| directory.join(".git").exists())?;
    Some((program, around.to_owned()))
}
