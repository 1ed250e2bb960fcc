//! What sessions of a daemon are asked to be: policy as `ringfence run` would read it, read again when its files change.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_daemon::{Earlier, Edition, Governed, Governor, Reload, Wanted};
use ringfence_runtime::authz::policy::{
    DaemonSettings, Flags, LimitFlags, PolicyFile, Role, Settings, TelemetrySettings, roots_held_to,
    settings as settings_of,
};
use ringfence_runtime::authz::{DangerFlags, Policy};
use ringfence_runtime::policy_files::{
    IN_WORKSPACE, LoadPolicyError, OperatorFile, check_outside, load_operator, load_workspaces,
};
use ringfence_runtime::standing::Stored;
use ringfence_runtime::{Asked, Setup};
use ringfence_types::units::{Duration, Size};
use ringfence_types::{Backend, Bytes, Profile, Refusal, Root};

use crate::args::Place;
use crate::asked::{self, Ungoverned};
use crate::commands::run::unreadable_policy;
use crate::environment::Environment;
use crate::error;

#[derive(Debug)]
pub(crate) struct HostGovernor {
    named: Option<PathBuf>,
    default: PathBuf,
    environment: Environment,
    setup: Setup,
    /// Of the command line that started the daemon: no file that is read again, and nothing that is asked for, changes them.
    danger: DangerFlags,
    taken: Mutex<Taken>,
}

/// The operator's files as they were last taken: whole, and right.
#[derive(Debug)]
struct Taken {
    file: Option<PolicyFile>,
    /// How often they were.
    times: i64,
    /// What was looked at last, right or not.
    seen: Vec<Edition>,
}

impl HostGovernor {
    pub(crate) fn new(
        named: Option<PathBuf>,
        environment: Environment,
        setup: Setup,
        danger: DangerFlags,
    ) -> Result<Self, ExitCode> {
        let default = setup.config_dir.join("config.toml");
        let taken = Mutex::new(Taken { file: None, times: 0, seen: Vec::new() });
        let governor = Self { named, default, environment, setup, danger, taken };
        let file = governor.read().map_err(|error| error::failed(&error, error.hint().as_deref()))?;
        let seen = governor.stamps(file.as_ref());
        *governor.taken() = Taken { file, times: 1, seen };
        Ok(governor)
    }

    pub(crate) fn settings(&self) -> DaemonSettings {
        self.settings_of(self.taken().file.as_ref())
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The operator's file as it was last taken.
    pub(crate) fn stored(&self) -> Stored {
        Stored { file: self.path().to_owned(), sha256: seal(self.taken().file.as_ref()) }
    }

    fn settings_of(&self, file: Option<&PolicyFile>) -> DaemonSettings {
        self.all_settings_of(file).daemon
    }

    fn all_settings_of(&self, file: Option<&PolicyFile>) -> Settings {
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

    /// Of everything that the operator's file is made of.
    fn stamps(&self, file: Option<&PolicyFile>) -> Vec<Edition> {
        let mut paths = vec![self.path().to_owned()];
        paths.extend(file.into_iter().flat_map(PolicyFile::paths).map(Path::to_owned));
        paths.iter().map(|path| stamp(path)).collect()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `read` gives, as a session of this kind would have it.
    fn with(
        &self,
        wanted: &Wanted,
        read: impl Fn(&Flags) -> Result<Vec<PolicyFile>, Ungoverned>,
    ) -> Result<Governed, Ungoverned> {
        let mut governed = self.with_flags(wanted, self.danger, &read)?;
        if self.danger.allow_sensitive_roots && !is_open(&governed.asked.policy) {
            let closed = DangerFlags { allow_sensitive_roots: false, ..self.danger };
            governed = self.with_flags(wanted, closed, &read)?;
        }
        Ok(governed)
    }

    fn with_flags(
        &self,
        wanted: &Wanted,
        danger: DangerFlags,
        read: impl Fn(&Flags) -> Result<Vec<PolicyFile>, Ungoverned>,
    ) -> Result<Governed, Ungoverned> {
        let place = Place {
            profile: wanted.profile,
            workspace: Some(wanted.workspace.clone()),
            policy: self.named.clone(),
            agent: wanted.agent.clone(),
        };
        let flags = Flags { net: wanted.net, limits: limits(wanted), danger, ..Flags::default() };
        let governed = asked::governed_by(&place, (&self.environment, &self.setup), flags, read)?;
        let mut asked = governed.asked();
        // Where it was found to be when its part of the files was looked for.
        asked.workspace.clone_from(&governed.flags.workspace);
        asked.worked_in = vec![governed.flags.workspace.clone()];
        Ok(Governed { asked, files: governed.read_files })
    }

    /// The operator's file as it was taken, and the workspace's as it is.
    fn files(&self, flags: &Flags) -> Result<Vec<PolicyFile>, Ungoverned> {
        let mut files = self.operator_with(flags, &[])?;
        let home = self.environment.home.as_deref();
        files.extend(load_workspaces(&flags.workspace, home).map_err(failed)?);
        Ok(files)
    }

    /// The operator's file as it was taken, and the workspace's as it was `last`.
    fn operator_with(&self, flags: &Flags, last: &[PolicyFile]) -> Result<Vec<PolicyFile>, Ungoverned> {
        let operator = self.taken().file.clone();
        if let Some(file) = &operator {
            check_outside(file, std::slice::from_ref(&flags.workspace))
                .map_err(|error| failed(error.into()))?;
        }
        let workspace = last.iter().filter(|file| file.role() != Role::Operator).cloned();
        Ok(operator.into_iter().chain(workspace).collect())
    }
}

/// Where commands see the machine as it is, and the second flag says that its credential stores are a part of that. Nobody
/// else is shown them, by whatever root.
fn is_open(policy: &Policy) -> bool {
    policy.profile == Profile::Danger || policy.backend == Some(Backend::None)
}

fn failed(error: LoadPolicyError) -> Ungoverned {
    Ungoverned::Failed(error::failed(&error, error.hint().as_deref()))
}

/// What is wrong was said where the daemon writes its words.
fn refusal(why: Ungoverned) -> Refusal {
    match why {
        Ungoverned::Refused(refusal) => refusal,
        Ungoverned::Failed(_) => unreadable_policy(),
    }
}

fn limits(wanted: &Wanted) -> LimitFlags {
    LimitFlags {
        memory: wanted.limits.memory_bytes.map(Size),
        processes: wanted.limits.processes,
        cpu_time: wanted.limits.cpu_seconds.map(|seconds| Duration(seconds.saturating_mul(1000))),
        open_files: wanted.limits.open_files,
        file_size: wanted.limits.file_size_bytes.map(Size),
        ..LimitFlags::default()
    }
}

/// What tells two states of a file apart.
fn stamp(path: &Path) -> Edition {
    let Ok(metadata) = fs::metadata(path) else { return Vec::new() };
    let inode = metadata.ino().cast_signed();
    let size = metadata.size().cast_signed();
    vec![inode, size, metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()]
}

impl Governor for HostGovernor {
    fn govern(&self, wanted: &Wanted) -> Result<Governed, Refusal> {
        self.with(wanted, |flags| self.files(flags)).map_err(refusal)
    }

    fn govern_again(&self, wanted: &Wanted, files: Earlier<'_>) -> Result<Governed, Refusal> {
        let Earlier { began, last } = files;
        // Stored answers are read with either: what a person gave since counts, what they took back does not.
        let before = self.with(wanted, |_| Ok(began.to_vec())).map_err(refusal)?.asked;
        let now = match self.with(wanted, |flags| self.files(flags)) {
            // Whoever breaks the workspace's file does not keep what the operator takes away.
            Err(Ungoverned::Failed(_)) => self.with(wanted, |flags| self.operator_with(flags, last)),
            now => now,
        };
        let Governed { asked: now, files } = now.map_err(refusal)?;
        let seals = |files: &[PolicyFile]| files.iter().map(PolicyFile::seal).collect::<Vec<_>>();
        if seals(&files) == seals(began) {
            return Ok(Governed { asked: before, files });
        }
        let mut roots = roots_held_to(&all_roots(&now), &all_roots(&before));
        let policy = now.policy.held_to(&before.policy);
        // The workspace has its access from the policy.
        let _workspace = roots.remove(0);
        Ok(Governed { asked: Asked { policy, roots, image: before.image, ..now }, files })
    }

    fn edition(&self, wanted: &Wanted) -> Edition {
        let mut edition = vec![self.taken().times];
        // Also where there is none yet: one that appears counts.
        for directory in asked::real(&wanted.workspace).ancestors() {
            edition.extend(stamp(&directory.join(IN_WORKSPACE)));
        }
        edition
    }

    fn grant_expiry(&self) -> Option<std::time::Duration> {
        let expiry = self.all_settings_of(self.taken().file.as_ref()).approvals.grant_expiry;
        expiry.map(|time| std::time::Duration::from_millis(time.0))
    }

    fn telemetry(&self) -> Option<TelemetrySettings> {
        self.all_settings_of(self.taken().file.as_ref()).telemetry
    }

    fn reload(&self) -> Option<Reload> {
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
                // Of what it is made of now: the next look compares with that.
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
        Some(Reload { file: self.path().to_owned(), sha256, change, taken: is_taken })
    }
}

fn seal(file: Option<&PolicyFile>) -> String {
    file.map_or_else(|| "none".to_owned(), PolicyFile::seal)
}

/// With the workspace first.
fn all_roots(asked: &Asked) -> Vec<Root> {
    let workspace = Root { path: Bytes::from(asked.workspace.as_path()), access: asked.policy.access };
    [&[workspace], asked.roots.as_slice()].concat()
}
