//! Files that the host runs or obeys next for Ringfence: its program, and the agent settings that name it.
//!
//! A command that could replace one of them would run on the host with the next hook. In a session they are
//! read-only, and a backend that cannot protect them is refused. A missing file counts too, because an agent
//! obeys it as soon as it exists.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;

use crate::args::AgentKind;
use crate::environment::Environment;
use crate::host;
use crate::init;
use crate::output::note;

/// Files in an agent's settings directory that name a program to run.
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

/// Limit of bytes read from a settings file. `init` writes files a thousand times smaller.
const MOST: u64 = 4 << 20;

/// The paths as named, existing or not.
pub(crate) fn files(environment: &Environment) -> Vec<PathBuf> {
    let directories =
        AgentKind::value_variants().iter().filter_map(|agent| init::directory(*agent, environment));
    let settings: Vec<PathBuf> =
        directories.flat_map(|directory| SETTINGS.map(|name| directory.join(name))).collect();
    let named: Vec<PathBuf> = settings.iter().flat_map(|file| named_in(file)).collect();
    let mut files: Vec<PathBuf> = programs().into_iter().chain(named).chain(settings).collect();
    files.sort();
    files.dedup();
    files
}

/// Ringfence programs that a settings file names; they may differ from the running program.
fn named_in(settings: &Path) -> Vec<PathBuf> {
    let mut content = Vec::new();
    let read = File::open(settings).and_then(|file| file.take(MOST).read_to_end(&mut content));
    if read.is_err() {
        return Vec::new();
    }
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"'\"`\\=,;".contains(byte);
    let words = content.split(is_end).map(|word| Path::new(OsStr::from_bytes(word)));
    let ours = words.filter(|word| word.is_absolute() && word.file_name() == Some(OsStr::new("ringfence")));
    ours.filter(|program| program.is_file()).map(Path::to_owned).collect()
}

/// The running program, by its real path and by the name it was started with, which can be a link.
fn programs() -> Vec<PathBuf> {
    let started = std::env::args_os().next().map(PathBuf::from);
    let named = started.and_then(|name| match name.components().count() {
        1 => host::on_path(&name),
        _ => std::path::absolute(&name).ok(),
    });
    std::env::current_exe().ok().into_iter().chain(named).filter(|path| path.is_file()).collect()
}

/// Warns if the program lies in a repository, where agents work.
pub(crate) fn tell_where_it_lies() {
    if let Some((program, repository)) = programs().iter().find_map(|program| in_repository(program)) {
        let (program, repository) = (init::shown(program), init::shown(&repository));
        note!("ringfence: this program, `{program}`, is in the repository `{repository}`");
        note!("  in sessions there it is read-only, so that an agent cannot replace it");
        note!(
            "  hint: install it elsewhere (`cargo install --path crates/cli`), and run `ringfence init` with that one"
        );
    }
}

fn in_repository(program: &Path) -> Option<(&Path, PathBuf)> {
    let around = program.ancestors().skip(1).find(|directory| directory.join(".git").exists())?;
    Some((program, around.to_owned()))
}
