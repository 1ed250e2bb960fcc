//! What this machine enforces, found out by starting sandboxes on it and attacking them.

use std::io;
use std::path::{Path, PathBuf};

use ringfence_authz::{DangerFlags, Policy, env::Attendance};
use ringfence_ledger::{BatteryEntry, Event, Verdict as Recorded};
use ringfence_sandbox::{Io, Source, Target, landlock_abi, placeholders};
use ringfence_types::{Backend, Bytes, Call, Control, Exec, Level, NetMode, Posture, Profile, StandardInput};
use serde::Serialize;

use crate::attack::{Answer, BatteryReport, Fence, Output, Request, Verdict};
use crate::images::InImage;
use crate::pipeline::{Ended, Settled};
use crate::session::{Asked, Runtime, Setup};

/// What was found out about the machine.
#[derive(Debug, Serialize)]
pub struct Examination {
    pub kernel: String,
    pub landlock_abi: Option<u32>,
    pub uid: u32,
    pub backends: Vec<Examined>,
    /// What `ringfence run` uses here: the first of the ladder whose posture is whole.
    pub chosen: Option<Backend>,
    /// Placeholders of killed sessions that were found and removed.
    pub swept: usize,
}

/// One backend, tried.
#[derive(Debug, Serialize)]
pub struct Examined {
    pub backend: Backend,
    pub posture: Option<Posture>,
    /// How `--net filtered` is held; what it was not asked of when there is no posture.
    pub filtered: Option<Level>,
    /// Why there is no posture.
    pub failure: Option<String>,
    pub hint: Option<String>,
}

/// Backends that an examination tries: those that `run` may choose by itself.
pub const TRIED: [Backend; 3] = [Backend::Native, Backend::Bubblewrap, Backend::Landlock];

/// Starts each backend once, in an empty workspace below `base`.
pub fn examine(
    runtime: &Runtime,
    base: &Path,
    wanted: &[Backend],
    image: Option<&InImage>,
) -> io::Result<Examination> {
    let swept =
        placeholders::sweep(&runtime.setup.state_dir.join("placeholders")).map_err(io::Error::other)?;
    let backends: Vec<Examined> =
        wanted.iter().map(|backend| try_backend(runtime, base, (*backend, image))).collect();
    let whole = |examined: &&Examined| {
        let floor = Control::ALL;
        examined.posture.as_ref().is_some_and(|posture| posture.below(floor).next().is_none())
    };
    let chosen = backends.iter().find(whole).map(|examined| examined.backend);
    let system = rustix::system::uname();
    Ok(Examination {
        kernel: system.release().to_string_lossy().into_owned(),
        landlock_abi: landlock_abi(),
        uid: rustix::process::geteuid().as_raw(),
        backends,
        chosen,
        swept,
    })
}

fn try_backend(runtime: &Runtime, base: &Path, (backend, image): (Backend, Option<&InImage>)) -> Examined {
    let settled = run_true(runtime, base, (backend, NetMode::None, image));
    let (posture, failure, hint) = match settled {
        Err(error) => (None, Some(error.to_string()), None),
        Ok(Settled { ended: Ended::Executed(outcome), posture, .. }) if outcome.exit.code() == 0 => {
            (posture, None, None)
        }
        Ok(Settled { ended, .. }) => {
            let (failure, hint) = describe(ended);
            (None, Some(failure), hint)
        }
    };
    let filtered = posture.as_ref().map(|_| try_filtered(runtime, base, (backend, image)));
    Examined { backend, posture, filtered, failure, hint }
}

fn try_filtered(runtime: &Runtime, base: &Path, (backend, image): (Backend, Option<&InImage>)) -> Level {
    let absent = |reason: String, fix: Option<String>| Level::Absent { reason, fix: fix.unwrap_or_default() };
    match run_true(runtime, base, (backend, NetMode::Filtered, image)) {
        Err(error) => absent(error.to_string(), None),
        Ok(Settled { ended: Ended::Executed(_), posture: Some(mut posture), .. }) => {
            posture.controls.remove(&Control::Net).unwrap_or_else(|| absent("not reported".to_owned(), None))
        }
        Ok(Settled { ended, .. }) => {
            let (reason, fix) = describe(ended);
            absent(reason, fix)
        }
    }
}

fn describe(ended: Ended) -> (String, Option<String>) {
    match ended {
        Ended::Refused(refusal) => (refusal.message, refusal.hint),
        Ended::Failed { what, hint } => (what, hint),
        Ended::Executed(outcome) => (format!("/bin/true ended with {:?}", outcome.exit), None),
        Ended::Touched(_) => ("not a command".to_owned(), None),
    }
}

fn run_true(
    runtime: &Runtime,
    base: &Path,
    (backend, net, image): (Backend, NetMode, Option<&InImage>),
) -> io::Result<Settled> {
    let mut policy = Policy::new(Profile::Workspace);
    policy.net = net;
    policy.backend = Some(backend);
    // Whatever it reaches is the answer.
    policy.floor.clear();
    policy.danger = flags_for(backend);
    let workspace = tempfile::Builder::new().prefix("doctor-").tempdir_in(base)?;
    let mut asked = Asked::new(workspace.path().to_owned(), policy);
    asked.image = image.filter(|_| backend == Backend::Container).cloned();
    let session = match runtime.session(asked).map_err(io::Error::other)? {
        Ok(session) => session,
        Err(refusal) => return Err(io::Error::other(refusal)),
    };
    let call = exec(vec![Bytes::from("/bin/true")], &session.workspace().path, net);
    Ok(session.last_call(call, silent()))
}

/// An examination may look at what a run needs a flag for; nothing but our own scratch directory is in its reach.
fn flags_for(backend: Backend) -> DangerFlags {
    let danger = matches!(backend, Backend::External | Backend::None);
    DangerFlags { danger, allow_sensitive_roots: backend == Backend::None, ..DangerFlags::default() }
}

fn exec(argv: Vec<Bytes>, cwd: &Path, net: NetMode) -> Call {
    Call::Exec(Exec { argv, cwd: Bytes::from(cwd), env: Vec::new(), net, stdin: StandardInput::None })
}

fn silent() -> Io<'static> {
    Io {
        stdin: Source::Empty,
        stdout: Target::Discard,
        stderr: Target::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    }
}

/// The product itself as the fence of the battery: every attempt takes the whole pipeline.
#[derive(Debug)]
pub struct Product {
    /// Keeps its own ledger, so that attempts do not fill the operator's.
    pub state_dir: PathBuf,
    pub backend: Backend,
    /// For the backend `container`; on the list in `Product::config_dir`.
    pub image: Option<InImage>,
    /// The real home, which must stay out of sight.
    pub home: Option<PathBuf>,
}

impl Fence for Product {
    fn networks(&self) -> &'static [NetMode] {
        match self.backend {
            Backend::Native | Backend::Bubblewrap | Backend::Container => &[NetMode::None, NetMode::Filtered],
            Backend::Landlock | Backend::External | Backend::None => &[NetMode::None],
        }
    }

    fn run(&self, request: &Request<'_>) -> io::Result<Answer> {
        let runtime = Runtime::open(self.setup(request)).map_err(io::Error::other)?;
        let mut policy = Policy::new(Profile::Workspace);
        policy.backend = Some(self.backend);
        policy.limits = request.limits.clone();
        policy.net = request.net;
        policy.home = self.home.as_deref().map(Bytes::from);
        policy.floor.clear();
        policy.danger = flags_for(self.backend);
        let mut asked = Asked::new(request.workspace.to_owned(), policy);
        asked.image.clone_from(&self.image);
        let session = match runtime.session(asked).map_err(io::Error::other)? {
            Ok(session) => session,
            Err(refusal) => return Ok(Answer::Refused(refusal.message)),
        };
        let argv = request.argv.iter().map(|argument| Bytes::from(argument.as_os_str())).collect();
        let call = exec(argv, &session.workspace().path, request.net);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let io = Io { stdout: Target::Buffer(&mut stdout), stderr: Target::Buffer(&mut stderr), ..silent() };
        let settled = session.last_call(call, io);
        Ok(match settled.ended {
            Ended::Executed(outcome) => Answer::Ran(Output { stdout, stderr, exit: outcome.exit }),
            ended => Answer::Refused(describe(ended).0),
        })
    }
}

impl Product {
    /// Its own as well: what the operator has configured is about the operator's ledger.
    pub fn config_dir(&self) -> PathBuf {
        self.state_dir.join("config")
    }

    fn setup(&self, request: &Request<'_>) -> Setup {
        let pairs = request.caller_env.iter();
        Setup {
            state_dir: self.state_dir.clone(),
            config_dir: self.config_dir(),
            home: self.home.clone(),
            host_env: pairs
                .map(|(name, value)| (Bytes::from(name.as_os_str()), Bytes::from(value.as_os_str())))
                .collect(),
            attendance: Attendance::Unattended,
            toolchains: Vec::new(),
            files: Vec::new(),
            sweeper: None,
            own: Vec::new(),
        }
    }
}

/// The battery's result as the ledger keeps it.
pub fn battery_event(report: &BatteryReport, backend: Backend) -> Event {
    let attempts = report.results.iter().filter_map(|result| {
        let (verdict, detail) = match &result.verdict {
            Verdict::Held => (Recorded::Held, String::new()),
            Verdict::Escaped { what } => (Recorded::Escaped, what.join(", ")),
            Verdict::ControlFailed { why } | Verdict::NotRun { why } => {
                (Recorded::ControlFailed, why.clone())
            }
            Verdict::NotApplicable { .. } => return None,
        };
        Some(BatteryEntry { id: result.id.to_owned(), verdict, detail })
    });
    Event::Battery {
        passed: u32::try_from(report.held).unwrap_or(u32::MAX),
        total: u32::try_from(report.total_applicable).unwrap_or(u32::MAX),
        backend,
        attempts: attempts.collect(),
    }
}
