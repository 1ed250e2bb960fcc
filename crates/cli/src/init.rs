//! `ringfence init` and `ringfence uninstall`: add Ringfence to agent settings, and remove it again without a
//! trace.

mod backup;
mod detect;
mod diff;
mod hook_commands;
mod hooks_json;
mod settings_entry;

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum as _;
use ringfence_types::ByteString;

use crate::approval::{self, OperatorRequirement};
use crate::args::{self, AgentKind, InitArgs};
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::output::{aside, say};
use crate::own;
use backup::{RestoreAction, SettingsBackup};
pub(crate) use hook_commands::hook_commands;
pub(crate) use settings_entry::{MARK, command};

pub(crate) use detect::{AgentDetection, directory, found, is_installed, programs};

/// Whether an agent calls Ringfence's hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookStatus {
    On,
    Off,
    /// The hook exists but differs from what `init` would write now.
    Outdated,
}

pub(crate) fn standing(agent: AgentKind, environment: &Environment) -> Result<HookStatus, InitError> {
    let (mut on, mut some) = (true, false);
    for file in settings_entry::files(agent, environment)? {
        let now = current(&file.path)?;
        let wanted = file.with_ours(now.as_deref())?;
        on &= now.as_deref() == Some(wanted.as_slice());
        some |= now.is_some_and(|bytes| settings_entry::has_mark(&bytes));
    }
    Ok(match (on, some) {
        (true, _) => HookStatus::On,
        (false, true) => HookStatus::Outdated,
        (false, false) => HookStatus::Off,
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
    ByteString::from(path).display()
}

/// One file before and after the change. `None`: no file.
#[derive(Debug)]
struct FileChange {
    agent: AgentKind,
    path: PathBuf,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    /// The content without Ringfence's part, to be left by `uninstall`.
    foreign: Option<Vec<u8>>,
}

pub(crate) fn init(arguments: &InitArgs) -> ExitCode {
    let extent = if arguments.exec_server { HookCoverage::Everything } else { HookCoverage::Hook };
    if extent == HookCoverage::Everything && arguments.change.agent != Some(AgentKind::Codex) {
        return error::failed_text(
            "`--exec-server` is for codex",
            Some("`ringfence init codex --exec-server`"),
        );
    }
    performed(&arguments.change, InitDirection::In(extent))
}

pub(crate) fn uninstall(arguments: &args::SettingsChangeArgs) -> ExitCode {
    performed(arguments, InitDirection::Out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InitDirection {
    In(HookCoverage),
    Out,
}

/// How much of an agent's work Ringfence sees.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HookCoverage {
    /// What the agent asks its hooks about.
    Hook,
    Everything,
}

/// The changes and the failures: the agents are independent of each other.
#[derive(Debug, Default)]
struct InitPlan {
    changes: Vec<FileChange>,
    failed: Vec<InitError>,
    /// Files that contain nothing of Ringfence any more.
    done: Vec<PathBuf>,
}

fn performed(arguments: &args::SettingsChangeArgs, way: InitDirection) -> ExitCode {
    let environment = Environment::read();
    if let Err(code) =
        approval::require(&environment, OperatorRequirement::Nothing, "change the settings of agents")
    {
        return code;
    }
    let loaded = host::state_dir(&environment).map_err(|_none| InitError::NoHome);
    let mut installed = match loaded.and_then(|state_dir| SettingsBackup::load(&state_dir)) {
        Ok(installed) => installed,
        Err(error) => return error::failed(&error, error.hint()),
    };
    let InitPlan { mut changes, mut failed, done } = planned(arguments, way, &environment, &installed);
    if changes.is_empty() && failed.is_empty() {
        say!("nothing to do");
    }
    if way == InitDirection::Out && !arguments.dry_run {
        failed.extend(done.iter().rev().filter_map(|path| installed.settle(path).err()));
    }
    if matches!(way, InitDirection::In(_)) {
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
        code = error::failed_text("nothing was changed", Some("`--yes` changes it without asking"));
    }
    for error in failed {
        code = error::failed(&error, error.hint());
    }
    code
}

fn planned(
    arguments: &args::SettingsChangeArgs,
    way: InitDirection,
    environment: &Environment,
    installed: &SettingsBackup,
) -> InitPlan {
    let agents = arguments.agent.map_or_else(|| AgentKind::value_variants().to_vec(), |agent| vec![agent]);
    // A named agent is prepared in any case; without a name only installed agents are.
    let is_meant = |agent: &AgentKind| {
        way == InitDirection::Out || arguments.agent.is_some() || is_installed(*agent, environment)
    };
    let mut plan = InitPlan::default();
    for agent in agents.into_iter().filter(is_meant) {
        let changes = match way {
            InitDirection::In(extent) => planned_init(agent, extent, environment, installed),
            InitDirection::Out => planned_uninstall(agent, environment, installed, &mut plan.done),
        };
        match changes {
            Ok(changes) => plan.changes.extend(changes),
            Err(error) => plan.failed.push(error),
        }
    }
    plan
}

type PlanResult = Result<Vec<FileChange>, InitError>;

fn planned_init(
    agent: AgentKind,
    extent: HookCoverage,
    environment: &Environment,
    installed: &SettingsBackup,
) -> PlanResult {
    let mut changes = Vec::new();
    let mut files = settings_entry::files(agent, environment)?;
    if extent == HookCoverage::Everything {
        files.extend(settings_entry::environments(agent, environment)?);
    }
    for file in files {
        let before = current(&file.path)?;
        let after = file.with_ours(before.as_deref())?;
        if before.as_deref() == Some(after.as_slice()) {
            say!("{agent}: `{}` is as it should be already", shown(&file.path));
            continue;
        }
        let foreign = foreign(&file, before.as_deref(), installed)?;
        changes.push(FileChange { agent, path: file.path, before, after: Some(after), foreign });
    }
    Ok(changes)
}

fn planned_uninstall(
    agent: AgentKind,
    environment: &Environment,
    installed: &SettingsBackup,
    done: &mut Vec<PathBuf>,
) -> PlanResult {
    let mut changes = Vec::new();
    let files = settings_entry::files(agent, environment)?;
    for file in files.into_iter().chain(settings_entry::environments(agent, environment)?) {
        let before = current(&file.path)?;
        let after = foreign(&file, before.as_deref(), installed)?;
        if before != after {
            changes.push(FileChange { agent, path: file.path, before, after: after.clone(), foreign: after });
        } else {
            done.push(file.path);
        }
    }
    // Removes the last file first, so that directories made for the first one are empty at the end.
    changes.reverse();
    Ok(changes)
}

/// A file without Ringfence's part: as it was, or as edited since.
fn foreign(
    file: &settings_entry::SettingsFile,
    before: Option<&[u8]>,
    installed: &SettingsBackup,
) -> Result<Option<Vec<u8>>, InitError> {
    let Some(bytes) = before else { return Ok(None) };
    match installed.restored(&file.path, bytes)? {
        RestoreAction::AsItWas(bytes) => Ok(bytes),
        RestoreAction::Edited if file.is_alone() && !settings_entry::has_mark(bytes) => {
            Ok(Some(bytes.to_vec()))
        }
        // The whole file belongs to Ringfence, even if it was edited.
        RestoreAction::Edited if file.is_own() => installed.before(&file.path),
        // A missing original counts as empty settings.
        RestoreAction::Edited => {
            let original = installed.before(&file.path)?.unwrap_or_else(|| b"{}".to_vec());
            file.without_ours(bytes, Some(&original))
        }
        RestoreAction::Unknown => file.without_ours(bytes, None),
    }
}

/// Shows the changes and asks. Without a terminal the answer is no.
fn agreed(arguments: &args::SettingsChangeArgs, changes: &[FileChange]) -> bool {
    for change in changes {
        let text = |bytes: &Option<Vec<u8>>| {
            bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
        };
        say!(
            "{}",
            diff::unified(&shown(&change.path), &text(&change.before), &text(&change.after)).trim_end()
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

fn told(changes: &[FileChange]) {
    for change in changes {
        match &change.after {
            Some(_) => say!("{}: wrote `{}`", change.agent, shown(&change.path)),
            None => say!("{}: removed `{}`", change.agent, shown(&change.path)),
        }
    }
    let codex = |change: &FileChange| change.agent == AgentKind::Codex && change.after.is_some();
    if changes.iter().any(codex) {
        say!("codex runs a new hook only after you have looked at it: type `/hooks` there and trust it");
    }
    if changes.iter().any(|change| codex(change) && change.path.ends_with(settings_entry::ENVIRONMENTS)) {
        say!(
            "codex works inside the fence from its next start on: start it in the directory that it is to work in"
        );
    }
}

/// Saves the old content before it is overwritten.
fn apply(change: &FileChange, way: InitDirection, installed: &mut SettingsBackup) -> Result<(), InitError> {
    if way != InitDirection::Out {
        // Which directories are missing is known only before they are made.
        installed.note(change, &missing_parents(&change.path))?;
    }
    let real = fs::canonicalize(&change.path).unwrap_or_else(|_| change.path.clone());
    match &change.after {
        Some(bytes) => write_whole(&real, bytes),
        None => fs::remove_file(&real),
    }
    .map_err(|error| InitError::Write(shown(&change.path), error))?;
    if way == InitDirection::Out { installed.settle(&change.path) } else { Ok(()) }
}

fn missing_parents(path: &Path) -> Vec<PathBuf> {
    let parents = path.ancestors().skip(1);
    parents.take_while(|parent| !parent.exists()).map(Path::to_owned).collect()
}

fn current(path: &Path) -> Result<Option<Vec<u8>>, InitError> {
    let read = || {
        let mut content = Vec::new();
        host::open_regular(path)?.read_to_end(&mut content)?;
        Ok(content)
    };
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(InitError::NotAFile(shown(path))),
        Ok(_) => read().map(Some).map_err(|error| InitError::Read(shown(path), error)),
        // A dangling link would be replaced by a file and could not be restored.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            Err(InitError::NotAFile(shown(path)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(InitError::Read(shown(path), error)),
    }
}

/// Writes atomically and keeps the permissions.
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
