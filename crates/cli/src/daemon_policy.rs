//! The policy of daemon sessions: read like that of `ringfence run`, and reloaded when its files change.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_authz::{DangerFlags, Policy, roots_held_to};
use ringfence_daemon::{
    PolicyProvider, PolicyVersion, PreviousPolicy, ReloadOutcome, SessionPolicy, SessionPolicyRequest,
};
use ringfence_policy::{
    DaemonSettings, IN_WORKSPACE, LimitFlags, OperatorSettings, PolicyFile, PolicyFileRole, StartupFlags,
    TelemetrySettings, settings as settings_of,
};
use ringfence_runtime::operator_file::OperatorFileUpdate;
use ringfence_runtime::policy_files::{
    LoadPolicyError, OperatorFile, check_outside, load_operator, load_workspaces,
};
use ringfence_runtime::{FileStamps, HostSetup, SessionSpec};
use ringfence_types::units::{ByteSize, HumanDuration};
use ringfence_types::{Backend, ByteString, Profile, Refusal, Root};

use crate::args::PolicyArgs;
use crate::commands::run::unreadable_policy;
use crate::environment::Environment;
use crate::error;
use crate::policy_resolution::{self, PolicyResolutionError};

#[derive(Debug)]
pub(crate) struct HostPolicyProvider {
    named: Option<PathBuf>,
    default: PathBuf,
    environment: Environment,
    setup: HostSetup,
    /// From the daemon's command line: neither a reload nor a request changes them.
    danger: DangerFlags,
    taken: Mutex<LoadedConfig>,
}

/// The operator's files as last loaded, complete and valid.
#[derive(Debug)]
struct LoadedConfig {
    file: Option<PolicyFile>,
    /// Number of loads.
    times: u64,
    /// The files at the last look, valid or not.
    seen: FileStamps,
}

impl HostPolicyProvider {
    pub(crate) fn new(
        named: Option<PathBuf>,
        environment: Environment,
        setup: HostSetup,
        danger: DangerFlags,
    ) -> Result<Self, ExitCode> {
        let default = setup.config_dir.join("config.toml");
        let taken = Mutex::new(LoadedConfig { file: None, times: 0, seen: FileStamps::default() });
        let governor = Self { named, default, environment, setup, danger, taken };
        let file = governor.read().map_err(|error| error::failed(&error, error.hint().as_deref()))?;
        let seen = governor.stamps(file.as_ref());
        *governor.taken() = LoadedConfig { file, times: 1, seen };
        Ok(governor)
    }

    pub(crate) fn settings(&self) -> DaemonSettings {
        self.settings_of(self.taken().file.as_ref())
    }

    pub(crate) fn setup(&self) -> &HostSetup {
        &self.setup
    }

    /// The operator's file as last loaded.
    pub(crate) fn stored(&self) -> OperatorFileUpdate {
        OperatorFileUpdate { file: self.path().to_owned(), sha256: seal(self.taken().file.as_ref()) }
    }

    fn settings_of(&self, file: Option<&PolicyFile>) -> DaemonSettings {
        self.all_settings_of(file).daemon
    }

    fn all_settings_of(&self, file: Option<&PolicyFile>) -> OperatorSettings {
        let files: Vec<PolicyFile> = file.cloned().into_iter().collect();
        settings_of(&files, self.environment.home.as_deref())
    }

    fn read(&self) -> Result<Option<PolicyFile>, LoadPolicyError> {
        let file = self.named.as_deref().map_or(OperatorFile::Default(&self.default), OperatorFile::Named);
        load_operator(file, &[])
    }

    fn path(&self) -> &Path {
        self.named.as_deref().unwrap_or(&self.default)
    }

    /// The operator's file, and every file that it includes.
    fn stamps(&self, file: Option<&PolicyFile>) -> FileStamps {
        FileStamps::of([self.path()].into_iter().chain(file.into_iter().flat_map(PolicyFile::paths)))
    }

    fn taken(&self) -> MutexGuard<'_, LoadedConfig> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The policy of such a session, from the files that `read` returns.
    fn with(
        &self,
        wanted: &SessionPolicyRequest,
        read: impl Fn(&StartupFlags) -> Result<Vec<PolicyFile>, PolicyResolutionError>,
    ) -> Result<SessionPolicy, PolicyResolutionError> {
        let mut governed = self.with_flags(wanted, self.danger, &read)?;
        if self.danger.allow_sensitive_roots && !is_open(&governed.asked.policy) {
            let closed = DangerFlags { allow_sensitive_roots: false, ..self.danger };
            governed = self.with_flags(wanted, closed, &read)?;
        }
        Ok(governed)
    }

    fn with_flags(
        &self,
        wanted: &SessionPolicyRequest,
        danger: DangerFlags,
        read: impl Fn(&StartupFlags) -> Result<Vec<PolicyFile>, PolicyResolutionError>,
    ) -> Result<SessionPolicy, PolicyResolutionError> {
        let place = PolicyArgs {
            profile: wanted.profile,
            workspace: Some(wanted.workspace.clone()),
            policy: self.named.clone(),
            agent: wanted.agent.clone(),
        };
        let flags =
            StartupFlags { net: wanted.net, limits: limits(wanted), danger, ..StartupFlags::default() };
        let governed = policy_resolution::resolve_with(&place, &self.environment, &self.setup, flags, read)?;
        let mut asked = governed.session_spec();
        // The real path, as found when the policy was resolved.
        asked.workspace.clone_from(&governed.flags.workspace);
        asked.worked_in = vec![governed.flags.workspace.clone()];
        Ok(SessionPolicy { asked, files: governed.read_files })
    }

    /// The operator's file as last loaded, and the workspace's current file.
    fn files(&self, flags: &StartupFlags) -> Result<Vec<PolicyFile>, PolicyResolutionError> {
        let mut files = self.operator_with(flags, &[])?;
        let home = self.environment.home.as_deref();
        files.extend(load_workspaces(&flags.workspace, home).map_err(failed)?);
        Ok(files)
    }

    /// The operator's file as last loaded, and the workspace's file as it was `last`.
    fn operator_with(
        &self,
        flags: &StartupFlags,
        last: &[PolicyFile],
    ) -> Result<Vec<PolicyFile>, PolicyResolutionError> {
        let operator = self.taken().file.clone();
        if let Some(file) = &operator {
            check_outside(file, std::slice::from_ref(&flags.workspace))
                .map_err(|error| failed(error.into()))?;
        }
        let workspace = last.iter().filter(|file| file.role() != PolicyFileRole::Operator).cloned();
        Ok(operator.into_iter().chain(workspace).collect())
    }
}

/// Whether commands see the whole machine, so that the second flag may show its credential stores. No other
/// session sees them, by any root.
fn is_open(policy: &Policy) -> bool {
    policy.profile == Profile::Danger || policy.backend == Some(Backend::None)
}

fn failed(error: LoadPolicyError) -> PolicyResolutionError {
    PolicyResolutionError::Failed(error::failed(&error, error.hint().as_deref()))
}

/// The cause is in the daemon's log.
fn refusal(why: PolicyResolutionError) -> Refusal {
    match why {
        PolicyResolutionError::Refused(refusal) => refusal,
        PolicyResolutionError::Failed(_) => unreadable_policy(),
    }
}

fn limits(wanted: &SessionPolicyRequest) -> LimitFlags {
    LimitFlags {
        memory: wanted.limits.memory_bytes.map(ByteSize),
        processes: wanted.limits.processes,
        cpu_time: wanted.limits.cpu_seconds.map(|seconds| HumanDuration(seconds.saturating_mul(1000))),
        max_open_files: wanted.limits.open_files,
        file_size: wanted.limits.file_size_bytes.map(ByteSize),
        ..LimitFlags::default()
    }
}

impl PolicyProvider for HostPolicyProvider {
    fn govern(&self, wanted: &SessionPolicyRequest) -> Result<SessionPolicy, Refusal> {
        self.with(wanted, |flags| self.files(flags)).map_err(refusal)
    }

    fn govern_again(
        &self,
        wanted: &SessionPolicyRequest,
        files: PreviousPolicy<'_>,
    ) -> Result<SessionPolicy, Refusal> {
        let PreviousPolicy { began, last } = files;
        // Both use the current grants: new grants count, revoked ones do not.
        let before = self.with(wanted, |_| Ok(began.to_vec())).map_err(refusal)?.asked;
        let now = match self.with(wanted, |flags| self.files(flags)) {
            // Breaking the workspace's file must not preserve rights that the operator removed.
            Err(PolicyResolutionError::Failed(_)) => {
                self.with(wanted, |flags| self.operator_with(flags, last))
            }
            now => now,
        };
        let SessionPolicy { asked: now, files } = now.map_err(refusal)?;
        let seals = |files: &[PolicyFile]| files.iter().map(PolicyFile::seal).collect::<Vec<_>>();
        if seals(&files) == seals(began) {
            return Ok(SessionPolicy { asked: before, files });
        }
        let mut roots = roots_held_to(&all_roots(&now), &all_roots(&before));
        let policy = now.policy.held_to(&before.policy);
        // The policy sets the access of the workspace.
        let _workspace = roots.remove(0);
        Ok(SessionPolicy { asked: SessionSpec { policy, roots, image: before.image, ..now }, files })
    }

    fn edition(&self, wanted: &SessionPolicyRequest) -> PolicyVersion {
        let workspace = policy_resolution::real(&wanted.workspace);
        let files = FileStamps::of(workspace.ancestors().map(|directory| directory.join(IN_WORKSPACE)));
        PolicyVersion { loads: self.taken().times, files }
    }

    fn grant_lifetime(&self) -> Option<std::time::Duration> {
        let expiry = self.all_settings_of(self.taken().file.as_ref()).approvals.grant_lifetime;
        expiry.map(|time| std::time::Duration::from_millis(time.0))
    }

    fn telemetry(&self) -> Option<TelemetrySettings> {
        self.all_settings_of(self.taken().file.as_ref()).telemetry
    }

    fn reload(&self) -> Option<ReloadOutcome> {
        let mut taken = self.taken();
        let seen = self.stamps(taken.file.as_ref());
        if seen == taken.seen {
            return None;
        }
        let read = self.read();
        let (change, is_taken) = match read {
            Ok(file) if seal(file.as_ref()) == seal(taken.file.as_ref()) => {
                taken.seen = seen;
                return None;
            }
            Ok(file) => {
                let restart = self.settings_of(file.as_ref()) != self.settings_of(taken.file.as_ref());
                // The new set of files, for the next comparison.
                taken.seen = self.stamps(file.as_ref());
                taken.file = file;
                taken.times = taken.times.saturating_add(1);
                let later = if restart { "; `[daemon]` counts with the next start" } else { "" };
                (
                    format!(
                        "read again: counts for sessions that begin, and takes away from those that run{later}"
                    ),
                    true,
                )
            }
            Err(error) => {
                taken.seen = seen;
                let what = error::chain(&error);
                (format!("not taken, and what was read before holds: {what}"), false)
            }
        };
        let sha256 = seal(taken.file.as_ref());
        Some(ReloadOutcome { file: self.path().to_owned(), sha256, change, taken: is_taken })
    }
}

fn seal(file: Option<&PolicyFile>) -> String {
    file.map_or_else(|| "none".to_owned(), PolicyFile::seal)
}

/// All roots, the workspace first.
fn all_roots(asked: &SessionSpec) -> Vec<Root> {
    let workspace = Root { path: ByteString::from(asked.workspace.as_path()), access: asked.policy.access };
    [&[workspace], asked.roots.as_slice()].concat()
}
