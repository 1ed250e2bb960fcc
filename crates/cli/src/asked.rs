//! From what was typed, and from policy files, to what a session is asked to be.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_runtime::approval::{Here, grant_files, live_grants};
use ringfence_runtime::authz::policy::{
    Effective, Flags, PolicyError, PolicyFile, Problem, Request, Settings, effective, settings as settings_of,
};
use ringfence_runtime::images::InImage;
use ringfence_runtime::ledger::{Location, OpenError, Settings as LedgerSettings, Timestamp};
use ringfence_runtime::policy_files::{
    IN_WORKSPACE, OperatorFile, PolicyPlaces, load, load_operator, policy_directories,
};
use ringfence_runtime::{Asked, PolicySource, Runtime, Setup};
use ringfence_types::{Access, Backend, Bytes, HostRule, Layer, Refusal, RefusalCode, WorkspaceId};

use crate::approval;
use crate::args::{Network, Place};
use crate::commands::run::unreadable_policy;
use crate::engine;
use crate::environment::Environment;
use crate::error;
use crate::output::note;
use crate::surroundings::Surroundings;

/// A policy that holds, with the files it was made from.
pub(crate) struct Governed {
    pub(crate) effective: Effective,
    pub(crate) files: Vec<PolicyFile>,
    /// Without the stored answers.
    pub(crate) read_files: Vec<PolicyFile>,
    pub(crate) flags: Flags,
    pub(crate) cwd: PathBuf,
    pub(crate) settings: Settings,
    operator_file: PathBuf,
    /// As it was asked for; whether it can be a workspace is judged later.
    workspace: PathBuf,
    /// Where it runs in a container.
    image: Option<InImage>,
}

impl Governed {
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            policy_digest: self.effective.digest(),
            policy_files: self.policy_files(),
            settings: self.settings.approvals.clone(),
            roots: self.effective.roots.clone(),
            worked_in: vec![real(&self.cwd)],
            agent: self.flags.agent.clone(),
            started_by: approval::here(),
            image: self.image.clone(),
            ..Asked::new(self.workspace.clone(), self.effective.policy.clone())
        }
    }
}

impl Governed {
    /// What the policy was read from, and what it would have been read from: a file that appears counts as well.
    fn policy_files(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.operator_file.clone()];
        let home = self.flags.home.as_ref().map(Bytes::as_path);
        let directories = policy_directories(&self.flags.workspace, home);
        paths.extend(directories.map(|directory| directory.join(IN_WORKSPACE)));
        let read = self.files.iter().flat_map(PolicyFile::paths).filter(|path| path.is_absolute());
        paths.extend(read.map(Path::to_owned));
        paths.sort();
        paths.dedup();
        paths
    }
}

/// Why there is no policy to work under.
pub(crate) enum Ungoverned {
    /// A file or a flag is wrong; it was said on standard error.
    Failed(ExitCode),
    /// The files are right, and what was asked for is more than they give.
    Refused(Refusal),
}

/// What a session was asked to be by, to ask for it again when something that a question or a flow depends on has changed.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    pub(crate) place: Place,
    pub(crate) flags: Flags,
    pub(crate) environment: Environment,
    pub(crate) setup: Setup,
}

impl Again {
    /// For the first time: a refusal is written down and said.
    pub(crate) fn governed(&self, runtime: &Runtime) -> Result<Governed, ExitCode> {
        match governed(&self.place, &self.environment, &self.setup, self.flags.clone()) {
            Ok(governed) => Ok(governed),
            Err(Ungoverned::Failed(code)) => Err(code),
            Err(Ungoverned::Refused(refusal)) => match runtime.refuse(&refusal) {
                Ok(()) => Err(error::refused(&refusal)),
                Err(error) => Err(error::failed(&error, None)),
            },
        }
    }
}

impl PolicySource for Again {
    fn read(&self) -> Result<Asked, Refusal> {
        match governed(&self.place, &self.environment, &self.setup, self.flags.clone()) {
            Ok(governed) => Ok(governed.asked()),
            Err(Ungoverned::Refused(refusal)) => Err(refusal),
            // What is wrong was said.
            Err(Ungoverned::Failed(_)) => Err(unreadable_policy()),
        }
    }
}

/// The current directory, or the exit code that says why there is none.
pub(crate) fn current_dir() -> Result<PathBuf, ExitCode> {
    std::env::current_dir()
        .map_err(|error| error::failed_text(&format!("cannot tell the current directory: {error}"), None))
}

/// The policy for `place`, narrowed or chosen by `flags`.
pub(crate) fn governed(
    place: &Place,
    environment: &Environment,
    setup: &Setup,
    flags: Flags,
) -> Result<Governed, Ungoverned> {
    governed_by(place, (environment, setup), flags, |flags| {
        files(place, setup, flags).map_err(Ungoverned::Failed)
    })
}

/// The same, with the files that `read` gives.
pub(crate) fn governed_by(
    place: &Place,
    (environment, setup): (&Environment, &Setup),
    flags: Flags,
    read: impl FnOnce(&Flags) -> Result<Vec<PolicyFile>, Ungoverned>,
) -> Result<Governed, Ungoverned> {
    let cwd = current_dir().map_err(Ungoverned::Failed)?;
    let workspace = named_workspace(place, environment, &cwd);
    let flags = Flags {
        workspace: real(&workspace),
        profile: place.profile,
        agent: place.agent.clone(),
        home: environment.home.as_deref().map(Bytes::from),
        ..flags
    };
    let mut files = read(&flags)?;
    let read_files = files.clone();
    let settings = settings_of(&files, environment.home.as_deref());
    files.extend(grants(setup, &flags.workspace).map_err(Ungoverned::Failed)?);
    match effective(&flags, &files, &|path| real(path)) {
        Ok(effective) => Ok(Governed {
            image: image(&effective, environment),
            effective,
            files,
            read_files,
            flags,
            cwd,
            settings,
            operator_file: place.policy.clone().unwrap_or_else(|| setup.config_dir.join("config.toml")),
            workspace,
        }),
        // What is shown with its source is wrong by itself, whatever was asked for.
        Err(error) if error.problems().iter().any(|problem| problem.excerpt.is_some()) => {
            Err(Ungoverned::Failed(error::failed(&error, None)))
        }
        Err(error) => Err(Ungoverned::Refused(beyond(&error))),
    }
}

/// The first image of the policy: a flag has made it the only one.
fn image(effective: &Effective, environment: &Environment) -> Option<InImage> {
    let policy = &effective.policy;
    let container = &policy.container;
    let name = container.images.as_ref()?.first().filter(|_| policy.backend == Some(Backend::Container))?;
    let engine = container.engine.as_deref().map_or_else(|| engine::usual(environment), engine::absolute);
    Some(InImage { name: name.clone(), engine, runtime: container.runtime })
}

/// The directory to work in, canonical where it exists.
pub(crate) fn workspace(place: &Place, environment: &Environment) -> Result<PathBuf, ExitCode> {
    Ok(real(&named_workspace(place, environment, &current_dir()?)))
}

fn named_workspace(place: &Place, environment: &Environment, cwd: &Path) -> PathBuf {
    let default = || Surroundings::new(place.policy.as_deref(), environment).workspace(cwd);
    place.workspace.clone().unwrap_or_else(default)
}

/// What the operator's file says besides policy, whatever the workspace; `named` instead of the usual one.
pub(crate) fn settings(
    environment: &Environment,
    setup: &Setup,
    named: Option<&Path>,
) -> Result<Settings, ExitCode> {
    let default = setup.config_dir.join("config.toml");
    let operator = named.map_or(OperatorFile::Default(&default), OperatorFile::Named);
    let file =
        load_operator(operator, &[]).map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    Ok(settings_of(file.as_slice(), environment.home.as_deref()))
}

/// Stored answers that hold in a workspace, each as a file of the operator.
fn grants(setup: &Setup, workspace: &Path) -> Result<Vec<PolicyFile>, ExitCode> {
    let unreadable = |error: OpenError| error::failed(&error, error.hint().as_deref());
    let kept = LedgerSettings::load(&setup.config_dir.join("ledger.toml"));
    let kept = kept.map_err(|error| unreadable(error.into()))?;
    let location = Location::of(&setup.state_dir, &kept).map_err(unreadable)?;
    let Some(reader) = location.read().map_err(unreadable)? else { return Ok(Vec::new()) };
    let id = WorkspaceId::of_canonical_path(workspace);
    let live = live_grants(&reader, Here::In(&id), Timestamp::now());
    let live = live.map_err(|error| error::failed(&error, None))?;
    grant_files(&live).map_err(|error| error::failed(&error, None))
}

fn files(place: &Place, setup: &Setup, flags: &Flags) -> Result<Vec<PolicyFile>, ExitCode> {
    let default = setup.config_dir.join("config.toml");
    let writable: Vec<PathBuf> = flags
        .roots
        .iter()
        .filter(|root| root.access == Access::Write)
        .map(|root| root.path.as_path().to_owned())
        .collect();
    let operator = place.policy.as_deref().map_or(OperatorFile::Default(&default), OperatorFile::Named);
    let home = flags.home.as_ref().map(Bytes::as_path);
    load(PolicyPlaces { operator, workspace: &flags.workspace, home, writable: &writable })
        .map_err(|error| error::failed(&error, error.hint().as_deref()))
}

/// Asking for more than the files give is answered with no, like any other action.
fn beyond(error: &PolicyError) -> Refusal {
    let placed = |problem: &Problem| match &problem.origin {
        Some(origin) => format!("{origin}: {}", problem.message),
        None => problem.message.clone(),
    };
    let messages: Vec<String> = error.problems().iter().map(placed).collect();
    Refusal {
        code: RefusalCode::Profile,
        layer: Layer::Operator,
        rule: "policy.ceiling".to_owned(),
        message: messages.join("; "),
        hint: error.problems().iter().find_map(|problem| problem.fix.clone()),
    }
}

pub(crate) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// A workspace that asks for more than it has is told once, in one line.
pub(crate) fn tell_requests(requests: &[Request]) {
    if let Some(first) = requests.first() {
        let more = match requests.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let what = Bytes::from(first.what.as_str()).display();
        note!("ringfence: the policy of this workspace asks for more than it is given: {what}{more}");
        note!("  hint: `ringfence policy show` lists it, `ringfence policy approve` grants it");
    }
}

/// Flags about hosts. What is no host is a mistake in the command line.
pub(crate) fn hosts(network: &Network) -> Result<Vec<HostRule>, ExitCode> {
    let parse = |host: &String| HostRule::parse(host).map_err(|wrong| error::failed(&wrong, None));
    network.allow_hosts.iter().map(parse).collect()
}
