//! Examines what this machine enforces, by starting a sandbox of each backend.

use std::io;
use std::path::Path;

use ringfence_authz::{DangerFlags, Policy};
use ringfence_sandbox::{CommandIo, OutputTarget, StdinSource, landlock_abi, placeholders};
use ringfence_types::{
    Backend, ByteString, Call, Control, ControlLevel, ExecCall, NetMode, Posture, Profile, StandardInput,
};
use serde::Serialize;

use crate::home;
use crate::images::ImageRequest;
use crate::pipeline::{CallEnd, Settled};
use crate::session::{Runtime, SessionSpec};

/// The report about the machine.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    pub kernel: String,
    pub landlock_abi: Option<u32>,
    pub uid: u32,
    pub backends: Vec<BackendReport>,
    /// The backend that `ringfence run` uses here: the first of the ladder with a complete posture.
    pub chosen: Option<Backend>,
    /// Number of placeholders of killed sessions that were removed.
    pub swept: usize,
}

/// Result for one backend.
#[derive(Debug, Serialize)]
pub struct BackendReport {
    pub backend: Backend,
    pub posture: Option<Posture>,
    /// How the backend enforces `--net filtered`; `None` without a posture.
    pub filtered: Option<ControlLevel>,
    /// Why there is no posture.
    pub failure: Option<String>,
    pub hint: Option<String>,
}

/// The backends that `run` may choose by itself: those of `LADDER` in `effect/exec/start.rs`.
pub const TRIED: [Backend; 3] = [Backend::Native, Backend::Bubblewrap, Backend::Landlock];

/// Starts each backend once, in an empty workspace below `base`.
pub fn examine(
    runtime: &Runtime,
    base: &Path,
    wanted: &[Backend],
    image: Option<&ImageRequest>,
) -> io::Result<DoctorReport> {
    let swept =
        placeholders::sweep(&runtime.setup.state_dir.join("placeholders")).map_err(io::Error::other)?;
    let trial = BackendTrial { runtime, base, image };
    let backends: Vec<BackendReport> = wanted.iter().map(|backend| trial.report(*backend)).collect();
    let whole = |examined: &&BackendReport| {
        let floor = Control::ALL;
        examined.posture.as_ref().is_some_and(|posture| posture.below(floor).next().is_none())
    };
    let chosen = backends.iter().find(whole).map(|examined| examined.backend);
    let system = rustix::system::uname();
    Ok(DoctorReport {
        kernel: system.release().to_string_lossy().into_owned(),
        landlock_abi: landlock_abi(),
        uid: rustix::process::geteuid().as_raw(),
        backends,
        chosen,
        swept,
    })
}

/// How one sandbox after the other is tried.
struct BackendTrial<'a> {
    runtime: &'a Runtime,
    /// Where each gets an empty workspace.
    base: &'a Path,
    /// For the backend `container`.
    image: Option<&'a ImageRequest>,
}

impl BackendTrial<'_> {
    fn report(&self, backend: Backend) -> BackendReport {
        let settled = self.run_true(backend, NetMode::None);
        let (posture, failure, hint) = match settled {
            Err(error) => (None, Some(error.to_string()), None),
            Ok(Settled { ended: CallEnd::Executed(outcome), posture, .. }) if outcome.exit.code() == 0 => {
                (posture, None, None)
            }
            Ok(Settled { ended, .. }) => {
                let (failure, hint) = describe(ended);
                (None, Some(failure), hint)
            }
        };
        let filtered = posture.as_ref().map(|_| self.filtered(backend));
        BackendReport { backend, posture, filtered, failure, hint }
    }

    fn filtered(&self, backend: Backend) -> ControlLevel {
        let absent = |reason: String, fix: Option<String>| ControlLevel::Absent {
            reason,
            fix: fix.unwrap_or_default(),
        };
        match self.run_true(backend, NetMode::Filtered) {
            Err(error) => absent(error.to_string(), None),
            Ok(Settled { ended: CallEnd::Executed(_), posture: Some(mut posture), .. }) => posture
                .controls
                .remove(&Control::Net)
                .unwrap_or_else(|| absent("not reported".to_owned(), None)),
            Ok(Settled { ended, .. }) => {
                let (reason, fix) = describe(ended);
                absent(reason, fix)
            }
        }
    }

    fn run_true(&self, backend: Backend, net: NetMode) -> io::Result<Settled> {
        let mut policy = Policy::new(Profile::Workspace);
        policy.net = net;
        policy.backend = Some(backend);
        // No floor: the report shows whatever is reached.
        policy.floor.clear();
        policy.danger = danger_flags(backend);
        let workspace = tempfile::Builder::new().prefix("doctor-").tempdir_in(self.base)?;
        let mut asked = SessionSpec::new(workspace.path().to_owned(), policy);
        asked.image = self.image.filter(|_| backend == Backend::Container).cloned();
        let session = match self.runtime.session(asked).map_err(io::Error::other)? {
            Ok(session) => session,
            Err(refusal) => return Err(io::Error::other(refusal)),
        };
        let call = Call::Exec(ExecCall {
            argv: vec![ByteString::from("/bin/true")],
            cwd: ByteString::from(session.workspace().path.as_path()),
            env: Vec::new(),
            ceiling: None,
            net,
            stdin: StandardInput::None,
        });
        let home = session.workspace().home.clone();
        let settled = session.last_call(call, silent());
        // The probe workspace is temporary, so no later session would use or remove its home.
        home::discard(&home)?;
        Ok(settled)
    }
}

fn describe(ended: CallEnd) -> (String, Option<String>) {
    match ended {
        CallEnd::Refused(refusal) => (refusal.message, refusal.hint),
        CallEnd::Failed { what, hint } => (what, hint),
        CallEnd::Executed(outcome) => (format!("/bin/true ended with {:?}", outcome.exit), None),
        CallEnd::Touched(_) => ("not a command".to_owned(), None),
    }
}

/// What a trial of a backend may do: it may use backends that need a flag, and only reaches its own scratch directory.
pub fn danger_flags(backend: Backend) -> DangerFlags {
    let danger = matches!(backend, Backend::External | Backend::None);
    DangerFlags { danger, allow_sensitive_roots: backend == Backend::None, ..DangerFlags::default() }
}

fn silent() -> CommandIo<'static> {
    CommandIo {
        stdin: StdinSource::Empty,
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    }
}
