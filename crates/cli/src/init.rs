//! `ringfence init` and `ringfence uninstall`: into the settings of agents and out again, without a trace.

mod configured;
mod diff;
mod entry;
mod hooks_json;
mod installed;
mod place;

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum as _;
use ringfence_types::Bytes;

use crate::approval::{self, Need};
use crate::args::{self, Agent, Init};
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::{aside, say};
use crate::own;
pub(crate) use configured::configured;
pub(crate) use entry::{MARK, command};
use installed::{Installed, Restored};

pub(crate) use place::{Found, directory, found, is_installed, programs};

/// Whether an agent asks us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    On,
    Off,
    /// There is a hook of ours, and it is not what `init` would write today.
    Outdated,
}

pub(crate) fn standing(agent: Agent, environment: &Environment) -> Result<Standing, InitError> {
    let (mut on, mut some) = (true, false);
    for file in entry::files(agent, environment)? {
        let now = current(&file.path)?;
        let wanted = file.with_ours(now.as_deref())?;
        on &= now.as_deref() == Some(wanted.as_slice());
        some |= now.is_some_and(|bytes| entry::has_mark(&bytes));
    }
    Ok(match (on, some) {
        (true, _) => Standing::On,
        (false, true) => Standing::Outdated,
        (false, false) => Standing::Off,
    })
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    #[error("neither HOME nor XDG_STATE_HOME says where things are")]
    NoHome,
    #[error("it is not known where the program ringfence is")]
    NoProgram(#[source] io::Error),
    #[error("`{0}` cannot be written into the settings of an agent: its name is no text")]
    NotText(String),
    #[error("`{0}` cannot be read")]
    Read(String, #[source] io::Error),
    #[error("`{0}` cannot be written")]
    Write(String, #[source] io::Error),
    #[error("`{0}` is not settings that can be edited: {1}")]
    Settings(String, String),
    #[error("`{0}` is not a file")]
    NotAFile(String),
}

impl InitError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Settings(..) => Some("correct the file, or add the hook by hand (docs/agents)"),
            _ => None,
        }
    }
}

pub(crate) fn shown(path: &Path) -> String {
    Bytes::from(path).display()
}

/// One file as it is and as it is to be. `None`: there is none.
#[derive(Debug)]
struct Change {
    agent: Agent,
    path: PathBuf,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    /// What of it is not ours, and is to be there when we are gone.
    foreign: Option<Vec<u8>>,
}

pub(crate) fn init(arguments: &Init) -> ExitCode {
    let extent = if arguments.exec_server { Extent::Everything } else { Extent::Hook };
    if extent == Extent::Everything && arguments.change.agent != Some(Agent::Codex) {
        return error::failed_text(
            "`--exec-server` is for codex",
            Some("`ringfence init codex --exec-server`"),
        );
    }
    performed(&arguments.change, Way::In(extent))
}

pub(crate) fn uninstall(arguments: &args::Change) -> ExitCode {
    performed(arguments, Way::Out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In(Extent),
    Out,
}

/// How much of what an agent does comes to us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// What it asks its hooks about.
    Hook,
    Everything,
}

/// What is to be done, and what cannot be: the settings of one agent say nothing about those of another.
#[derive(Debug, Default)]
struct Plan {
    changes: Vec<Change>,
    failed: Vec<InitError>,
    /// Files of which nothing is ours any more, whoever has seen to that.
    done: Vec<PathBuf>,
}

fn performed(arguments: &args::Change, way: Way) -> ExitCode {
    let environment = Environment::read();
    if let Err(code) = approval::require(&environment, Need::Nothing, "change the settings of agents") {
        return code;
    }
    let loaded = host::state_dir(&environment).map_err(|_none| InitError::NoHome);
    let mut installed = match loaded.and_then(|state_dir| Installed::load(&state_dir)) {
        Ok(installed) => installed,
        Err(error) => return error::failed(&error, error.hint()),
    };
    let Plan { mut changes, mut failed, done } = planned(arguments, way, (&environment, &installed));
    if changes.is_empty() && failed.is_empty() {
        say!("nothing to do");
    }
    if way == Way::Out && !arguments.dry_run {
        failed.extend(done.iter().rev().filter_map(|path| installed.settle(path).err()));
    }
    if matches!(way, Way::In(_)) {
        own::tell_where_it_lies();
    }
    let wanted = agreed(arguments, &changes);
    if wanted {
        changes.retain(|change| match apply(change, way, &mut installed) {
            Ok(()) => true,
            Err(error) => {
                failed.push(error);
                false
            }
        });
        told(&changes);
    }
    let mut code = ExitCode::SUCCESS;
    if !wanted && !changes.is_empty() && !arguments.dry_run {
        code = error::failed_text("nothing was changed", Some("`--yes` changes it without a question"));
    }
    for error in failed {
        code = error::failed(&error, error.hint());
    }
    code
}

fn planned(arguments: &args::Change, way: Way, (environment, installed): (&Environment, &Installed)) -> Plan {
    let agents = arguments.agent.map_or_else(|| Agent::value_variants().to_vec(), |agent| vec![agent]);
    // Somebody who names an agent wants it prepared; without a name only what is there is touched.
    let is_meant =
        |agent: &Agent| way == Way::Out || arguments.agent.is_some() || is_installed(*agent, environment);
    let mut plan = Plan::default();
    for agent in agents.into_iter().filter(is_meant) {
        let changes = match way {
            Way::In(extent) => planned_init((agent, extent), environment, installed),
            Way::Out => planned_uninstall(agent, (environment, installed), &mut plan.done),
        };
        match changes {
            Ok(changes) => plan.changes.extend(changes),
            Err(error) => plan.failed.push(error),
        }
    }
    plan
}

type Planned = Result<Vec<Change>, InitError>;

fn planned_init(
    (agent, extent): (Agent, Extent),
    environment: &Environment,
    installed: &Installed,
) -> Planned {
    let mut changes = Vec::new();
    let mut files = entry::files(agent, environment)?;
    if extent == Extent::Everything {
        files.extend(entry::environments(agent, environment)?);
    }
    for file in files {
        let before = current(&file.path)?;
        let after = file.with_ours(before.as_deref())?;
        if before.as_deref() == Some(after.as_slice()) {
            say!("{agent}: `{}` is as it should be already", shown(&file.path));
            continue;
        }
        let foreign = foreign(&file, before.as_deref(), installed)?;
        changes.push(Change { agent, path: file.path, before, after: Some(after), foreign });
    }
    Ok(changes)
}

fn planned_uninstall(
    agent: Agent,
    (environment, installed): (&Environment, &Installed),
    done: &mut Vec<PathBuf>,
) -> Planned {
    let mut changes = Vec::new();
    let files = entry::files(agent, environment)?;
    for file in files.into_iter().chain(entry::environments(agent, environment)?) {
        let before = current(&file.path)?;
        let after = foreign(&file, before.as_deref(), installed)?;
        if before != after {
            changes.push(Change { agent, path: file.path, before, after: after.clone(), foreign: after });
        } else {
            done.push(file.path);
        }
    }
    // What was made for the first of several files is empty when the last is gone.
    changes.reverse();
    Ok(changes)
}

/// What a file is without us: as it was, or as somebody has edited it since.
fn foreign(
    file: &entry::File,
    before: Option<&[u8]>,
    installed: &Installed,
) -> Result<Option<Vec<u8>>, InitError> {
    let Some(bytes) = before else { return Ok(None) };
    match installed.restored(&file.path, bytes)? {
        Restored::AsItWas(bytes) => Ok(bytes),
        Restored::Edited if file.is_alone() && !entry::has_mark(bytes) => Ok(Some(bytes.to_vec())),
        // All of it was ours, whatever has become of it.
        Restored::Edited if file.is_own() => installed.before(&file.path),
        // Where there was no file, nothing was set in it.
        Restored::Edited => {
            let original = installed.before(&file.path)?.unwrap_or_else(|| b"{}".to_vec());
            file.without_ours(bytes, Some(&original))
        }
        Restored::Unknown => file.without_ours(bytes, None),
    }
}

/// Shows what would change, and asks. Without a terminal nobody can be asked, and nothing is assumed.
fn agreed(arguments: &args::Change, changes: &[Change]) -> bool {
    for change in changes {
        let text = |bytes: &Option<Vec<u8>>| {
            bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
        };
        say!(
            "{}",
            diff::unified(&shown(&change.path), (&text(&change.before), &text(&change.after))).trim_end()
        );
    }
    if changes.is_empty() || arguments.dry_run {
        return false;
    }
    if arguments.yes {
        return true;
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    aside(format_args!("write this? [y/N] "));
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.is_ok() && matches!(line.trim(), "y" | "yes")
}

fn told(changes: &[Change]) {
    for change in changes {
        match &change.after {
            Some(_) => say!("{}: wrote `{}`", change.agent, shown(&change.path)),
            None => say!("{}: removed `{}`", change.agent, shown(&change.path)),
        }
    }
    let codex = |change: &Change| change.agent == Agent::Codex && change.after.is_some();
    if changes.iter().any(codex) {
        say!("codex runs a new hook only after you have looked at it: type `/hooks` there and trust it");
    }
    if changes.iter().any(|change| codex(change) && change.path.ends_with(entry::ENVIRONMENTS)) {
        say!(
            "codex works inside the fence from its next start on: start it in the directory that it is to work in"
        );
    }
}

/// What was there is kept before anything is written over it.
fn apply(change: &Change, way: Way, installed: &mut Installed) -> Result<(), InitError> {
    if way != Way::Out {
        // Whether our own hand made a directory is known only before it does.
        installed.note(change, &missing_parents(&change.path))?;
    }
    let real = fs::canonicalize(&change.path).unwrap_or_else(|_| change.path.clone());
    match &change.after {
        Some(bytes) => write_whole(&real, bytes),
        None => fs::remove_file(&real),
    }
    .map_err(|error| InitError::Write(shown(&change.path), error))?;
    if way == Way::Out { installed.settle(&change.path) } else { Ok(()) }
}

fn missing_parents(path: &Path) -> Vec<PathBuf> {
    let parents = path.ancestors().skip(1);
    parents.take_while(|parent| !parent.exists()).map(Path::to_owned).collect()
}

fn current(path: &Path) -> Result<Option<Vec<u8>>, InitError> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(InitError::NotAFile(shown(path))),
        Ok(_) => fs::read(path).map(Some).map_err(|error| InitError::Read(shown(path), error)),
        // A link that leads nowhere would be replaced by a file, and could not be put back.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            Err(InitError::NotAFile(shown(path)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(InitError::Read(shown(path), error)),
    }
}

/// All of it or nothing, with the permissions that it had.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    if let Ok(metadata) = fs::metadata(path) {
        file.as_file().set_permissions(metadata.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|error| error.error)
}
