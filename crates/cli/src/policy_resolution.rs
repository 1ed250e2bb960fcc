//! Resolves command-line flags and policy files into a session specification.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_ledger::{LedgerLocation, LedgerOpenError, LedgerSettings, Timestamp};
use ringfence_policy::{
    EffectivePolicy, IN_WORKSPACE, OperatorSettings, PolicyError, PolicyFile, PolicyProblem, StartupFlags,
    WideningRequest, effective, settings as settings_of,
};
use ringfence_runtime::approvals::{GrantScope, grant_files, live_grants};
use ringfence_runtime::images::ImageRequest;
use ringfence_runtime::policy_files::{OperatorFile, PolicyPaths, load, load_operator, policy_directories};
use ringfence_runtime::{HostSetup, PolicySource, Runtime, SessionSpec};
use ringfence_types::{
    Access, Backend, ByteString, HostPattern, NetMode, PolicyLayer, Refusal, RefusalCode, RuleId, WorkspaceId,
};

use crate::approval;
use crate::args::{NetworkArgs, PolicyArgs};
use crate::commands::run::{RunOptions, unreadable_policy};
use crate::engine;
use crate::environment::Environment;
use crate::error;
use crate::output::note;
use crate::surroundings::Surroundings;

/// A valid policy, with the files it was made from.
pub(crate) struct ResolvedPolicy {
    pub(crate) effective: EffectivePolicy,
    pub(crate) files: Vec<PolicyFile>,
    /// Without the grants.
    pub(crate) read_files: Vec<PolicyFile>,
    pub(crate) flags: StartupFlags,
    pub(crate) cwd: PathBuf,
    pub(crate) settings: OperatorSettings,
    operator_file: PathBuf,
    /// As requested; checked later.
    workspace: PathBuf,
    /// Set for a session in a container.
    image: Option<ImageRequest>,
}

impl ResolvedPolicy {
    pub(crate) fn session_spec(&self) -> SessionSpec {
        SessionSpec {
            policy_digest: self.effective.digest(),
            policy_files: self.policy_files(),
            settings: self.settings.approvals.clone(),
            roots: self.effective.roots.clone(),
            worked_in: vec![real(&self.cwd)],
            agent: self.flags.agent.clone(),
            started_by: approval::here(),
            image: self.image.clone(),
            ..SessionSpec::new(self.workspace.clone(), self.effective.policy.clone())
        }
    }
}

impl ResolvedPolicy {
    /// The policy files, including missing ones: a file that appears counts as well.
    fn policy_files(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.operator_file.clone()];
        let home = self.flags.home.as_ref().map(ByteString::as_path);
        let directories = policy_directories(&self.flags.workspace, home);
        paths.extend(directories.map(|directory| directory.join(IN_WORKSPACE)));
        let read = self.files.iter().flat_map(PolicyFile::paths).filter(|path| path.is_absolute());
        paths.extend(read.map(Path::to_owned));
        paths.sort();
        paths.dedup();
        paths
    }
}

/// Why the policy cannot be resolved.
pub(crate) enum PolicyResolutionError {
    /// A file or a flag is invalid; the error is on standard error.
    Failed(ExitCode),
    /// The files are valid, but the request exceeds them.
    Refused(Refusal),
}

/// The inputs of a session specification, for resolving it again when the policy changes.
#[derive(Clone, Debug)]
pub(crate) struct CliPolicySource {
    pub(crate) place: PolicyArgs,
    pub(crate) flags: StartupFlags,
    pub(crate) environment: Environment,
    pub(crate) setup: HostSetup,
    /// What the command changes in the specification that policy gives.
    pub(crate) changes: SpecChanges,
}

/// What a command changes in the specification of its session, also after a reload.
#[derive(Clone, Debug)]
pub(crate) enum SpecChanges {
    None,
    /// `run`: the arguments about the session besides policy.
    Run(RunOptions),
    /// `exec-server`: a session has at most this access and network.
    AtMost {
        access: Access,
        net: NetMode,
    },
}

impl SpecChanges {
    pub(crate) fn made_in(&self, mut spec: SessionSpec) -> SessionSpec {
        match self {
            Self::None => {}
            Self::Run(options) => options.change(&mut spec),
            Self::AtMost { access, net } => {
                spec.policy.access = spec.policy.access.min(*access);
                spec.policy.net = spec.policy.net.min(*net);
                spec.roots.iter_mut().for_each(|root| root.access = root.access.min(*access));
            }
        }
        spec
    }
}

impl CliPolicySource {
    /// Resolves the policy for the first time. Records and prints a refusal.
    pub(crate) fn resolve(&self, runtime: &Runtime) -> Result<ResolvedPolicy, ExitCode> {
        match resolve(&self.place, &self.environment, &self.setup, self.flags.clone()) {
            Ok(governed) => Ok(governed),
            Err(PolicyResolutionError::Failed(code)) => Err(code),
            Err(PolicyResolutionError::Refused(refusal)) => match runtime.refuse(&refusal) {
                Ok(()) => Err(error::refused(&refusal)),
                Err(error) => Err(error::failed(&error, None)),
            },
        }
    }
}

impl PolicySource for CliPolicySource {
    fn read(&self) -> Result<SessionSpec, Refusal> {
        match resolve(&self.place, &self.environment, &self.setup, self.flags.clone()) {
            Ok(governed) => Ok(self.changes.made_in(governed.session_spec())),
            Err(PolicyResolutionError::Refused(refusal)) => Err(refusal),
            // The error is already printed.
            Err(PolicyResolutionError::Failed(_)) => Err(unreadable_policy()),
        }
    }
}

/// The current directory, or the exit code after printing why there is none.
pub(crate) fn current_dir() -> Result<PathBuf, ExitCode> {
    std::env::current_dir()
        .map_err(|error| error::failed_text(&format!("cannot tell the current directory: {error}"), None))
}

/// The policy for `place`, narrowed or chosen by `flags`.
pub(crate) fn resolve(
    place: &PolicyArgs,
    environment: &Environment,
    setup: &HostSetup,
    flags: StartupFlags,
) -> Result<ResolvedPolicy, PolicyResolutionError> {
    resolve_with(place, environment, setup, flags, |flags| {
        files(place, setup, flags).map_err(PolicyResolutionError::Failed)
    })
}

/// Like [`resolve`], with the files that `read` returns.
pub(crate) fn resolve_with(
    place: &PolicyArgs,
    environment: &Environment,
    setup: &HostSetup,
    flags: StartupFlags,
    read: impl FnOnce(&StartupFlags) -> Result<Vec<PolicyFile>, PolicyResolutionError>,
) -> Result<ResolvedPolicy, PolicyResolutionError> {
    let cwd = current_dir().map_err(PolicyResolutionError::Failed)?;
    let workspace = named_workspace(place, environment, &cwd);
    let flags = StartupFlags {
        workspace: real(&workspace),
        profile: place.profile,
        agent: place.agent.clone(),
        home: environment.home.as_deref().map(ByteString::from),
        ..flags
    };
    let mut files = read(&flags)?;
    let read_files = files.clone();
    let settings = settings_of(&files, environment.home.as_deref());
    files.extend(grants(setup, &flags.workspace).map_err(PolicyResolutionError::Failed)?);
    match effective(&flags, &files, &|path| real(path)) {
        Ok(effective) => Ok(ResolvedPolicy {
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
        // A problem with an excerpt is in the file itself, independent of the request.
        Err(error) if error.problems().iter().any(|problem| problem.excerpt.is_some()) => {
            Err(PolicyResolutionError::Failed(error::failed(&error, None)))
        }
        Err(error) => Err(PolicyResolutionError::Refused(over_ceiling(&error))),
    }
}

/// The first image of the policy; a flag has made it the only one.
fn image(effective: &EffectivePolicy, environment: &Environment) -> Option<ImageRequest> {
    let policy = &effective.policy;
    let container = &policy.container;
    let name = container.images.as_ref()?.first().filter(|_| policy.backend == Some(Backend::Container))?;
    let engine =
        container.engine_socket.as_deref().map_or_else(|| engine::usual(environment), engine::absolute);
    Some(ImageRequest { name: name.clone(), engine, runtime: container.runtime })
}

/// The workspace, canonical if it exists.
pub(crate) fn workspace(place: &PolicyArgs, environment: &Environment) -> Result<PathBuf, ExitCode> {
    Ok(real(&named_workspace(place, environment, &current_dir()?)))
}

fn named_workspace(place: &PolicyArgs, environment: &Environment, cwd: &Path) -> PathBuf {
    let default = || Surroundings::new(place.policy.as_deref(), environment).workspace(cwd);
    place.workspace.clone().unwrap_or_else(default)
}

/// The operator's settings besides policy; from `named` instead of the default file.
pub(crate) fn settings(
    environment: &Environment,
    setup: &HostSetup,
    named: Option<&Path>,
) -> Result<OperatorSettings, ExitCode> {
    let default = setup.config_dir.join("config.toml");
    let operator = named.map_or(OperatorFile::Default(&default), OperatorFile::Named);
    let file =
        load_operator(operator, &[]).map_err(|error| error::failed(&error, error.hint().as_deref()))?;
    Ok(settings_of(file.as_slice(), environment.home.as_deref()))
}

/// Active grants of a workspace, each as an operator file.
fn grants(setup: &HostSetup, workspace: &Path) -> Result<Vec<PolicyFile>, ExitCode> {
    let unreadable = |error: LedgerOpenError| error::failed(&error, error.hint().as_deref());
    let kept = LedgerSettings::load(&setup.config_dir.join("ledger.toml"));
    let kept = kept.map_err(|error| unreadable(error.into()))?;
    let location = LedgerLocation::of(&setup.state_dir, &kept).map_err(unreadable)?;
    let Some(reader) = location.read().map_err(unreadable)? else { return Ok(Vec::new()) };
    let id = WorkspaceId::of_canonical_path(workspace);
    let live = live_grants(&reader, GrantScope::In(&id), Timestamp::now());
    let live = live.map_err(|error| error::failed(&error, None))?;
    grant_files(&live).map_err(|error| error::failed(&error, None))
}

fn files(place: &PolicyArgs, setup: &HostSetup, flags: &StartupFlags) -> Result<Vec<PolicyFile>, ExitCode> {
    let default = setup.config_dir.join("config.toml");
    let writable: Vec<PathBuf> = flags
        .roots
        .iter()
        .filter(|root| root.access == Access::Write)
        .map(|root| root.path.as_path().to_owned())
        .collect();
    let operator = place.policy.as_deref().map_or(OperatorFile::Default(&default), OperatorFile::Named);
    let home = flags.home.as_ref().map(ByteString::as_path);
    load(PolicyPaths { operator, workspace: &flags.workspace, home, writable: &writable })
        .map_err(|error| error::failed(&error, error.hint().as_deref()))
}

/// Requesting more than the files allow is a refusal, like that of any call.
fn over_ceiling(error: &PolicyError) -> Refusal {
    let placed = |problem: &PolicyProblem| match &problem.origin {
        Some(origin) => format!("{origin}: {}", problem.message),
        None => problem.message.clone(),
    };
    let messages: Vec<String> = error.problems().iter().map(placed).collect();
    Refusal {
        code: RefusalCode::Profile,
        layer: PolicyLayer::Operator,
        rule: RuleId::PolicyCeiling.into(),
        message: messages.join("; "),
        hint: error.problems().iter().find_map(|problem| problem.fix.clone()),
    }
}

pub(crate) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Prints one line about the unapproved requests of a workspace file.
pub(crate) fn print_widening_requests(requests: &[WideningRequest]) {
    if let Some(first) = requests.first() {
        let more = match requests.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let what = ByteString::from(first.what.as_str()).display();
        note!("ringfence: the policy of this workspace requests more than it has: {what}{more}");
        note!("  hint: `ringfence policy show` lists the requests, `ringfence policy approve` approves them");
    }
}

/// Parses host flags. An invalid host is a command-line error.
pub(crate) fn hosts(network: &NetworkArgs) -> Result<Vec<HostPattern>, ExitCode> {
    let parse = |host: &String| HostPattern::parse(host).map_err(|wrong| error::failed(&wrong, None));
    network.allow_hosts.iter().map(parse).collect()
}
