//! Files that the host runs or obeys next for Ringfence: its program, and the agent settings that name it.
//!
//! A command that could replace one of them would run on the host with the next hook. In a session they are
//! read-only, and a backend that cannot protect them is refused. A missing file counts too, because an agent
//! obeys it as soon as it exists.

use std::ffi::OsStr;
use std::io::{self, Read as _};
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
    let Ok(content) = read(settings) else { return Vec::new() };
    let mut programs = paths_of_ours(&content);
    programs.retain(|program| program.is_file());
    programs
}

/// Everything in a text that can be the path of a program called `ringfence`. A path can have blanks in it, so each word before
/// the name can be where it begins.
fn paths_of_ours(text: &[u8]) -> Vec<PathBuf> {
    const NAME: &[u8] = b"/ringfence";
    /// Of the paths with one end.
    const MOST_BEGINNINGS: usize = 16;
    let is_end =
        |byte: Option<&u8>| byte.is_none_or(|byte| byte.is_ascii_whitespace() || b"'\"`\\=,;".contains(byte));
    let mut paths = Vec::new();
    for end in memchr::memmem::find_iter(text, NAME).map(|at| at + NAME.len()) {
        let line =
            text.get(..end).unwrap_or_default().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let begins = |at: &usize| {
            line.get(*at) == Some(&b'/') && is_end(at.checked_sub(1).and_then(|before| line.get(before)))
        };
        if is_end(text.get(end)) {
            let beginnings = (0..line.len()).rev().filter(begins).take(MOST_BEGINNINGS);
            paths.extend(
                beginnings.filter_map(|at| line.get(at..)).map(|path| PathBuf::from(OsStr::from_bytes(path))),
            );
        }
    }
    paths.sort();
    paths.dedup();
    paths
}

fn read(settings: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    host::open_regular(settings)?.take(MOST).read_to_end(&mut content)?;
    Ok(content)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_wherever_a_setting_names_it() {
        for (text, path) in [
            ("/opt/ringfence hook x", "/opt/ringfence"),
            (r#"{"command": "HOME='/h' '/opt/ringfence' hook x"}"#, "/opt/ringfence"),
            (
                r#"{"command": "HOME='/h' '/home/a b/my tools/ringfence' hook x"}"#,
                "/home/a b/my tools/ringfence",
            ),
            (r#"program = "/home/a=b,c/ringfence""#, "/home/a=b,c/ringfence"),
        ] {
            assert!(paths_of_ours(text.as_bytes()).contains(&PathBuf::from(path)), "{text}");
        }
        for text in ["", "ringfence", "/opt/ringfence-old", "/opt/ringfence/x", "x/ringfence"] {
            assert_eq!(paths_of_ours(text.as_bytes()), Vec::<PathBuf>::new(), "{text}");
        }
    }

    #[test]
    fn a_pipe_in_the_place_of_settings_does_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("hooks.json");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        let (done, waits) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(named_in(&pipe)));
        assert_eq!(waits.recv_timeout(std::time::Duration::from_secs(10)), Ok(Vec::new()));
    }
}
