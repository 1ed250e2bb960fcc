//! Ringfence as the fence of the battery: every attempt goes through the whole pipeline.

use std::io;
use std::path::PathBuf;

use ringfence_authz::Policy;
use ringfence_authz::env::ApproverPresence;
use ringfence_battery::{
    AttemptVerdict, BatteryReport, FenceOutput, FenceRequest, FenceResponse, FenceUnderTest,
};
use ringfence_ledger::{AttemptRecord, AttemptVerdictWord as Recorded, Event};
use ringfence_runtime::images::ImageRequest;
use ringfence_runtime::{
    CallEnd, CommandIo, HostSetup, OutputTarget, Runtime, SessionSpec, StdinSource, doctor,
};
use ringfence_types::{Backend, ByteString, Call, ExecCall, NetMode, Profile, StandardInput};

#[derive(Debug)]
pub(super) struct ProductFence {
    /// A separate ledger, so that attempts do not fill the operator's.
    pub(super) state_dir: PathBuf,
    pub(super) backend: Backend,
    /// For the backend `container`; listed in `ProductFence::config_dir`.
    pub(super) image: Option<ImageRequest>,
    /// The real home, which must stay hidden.
    pub(super) home: Option<PathBuf>,
}

impl FenceUnderTest for ProductFence {
    fn networks(&self) -> &'static [NetMode] {
        match self.backend {
            Backend::Native | Backend::Bubblewrap | Backend::Container => &[NetMode::None, NetMode::Filtered],
            Backend::Landlock | Backend::External | Backend::None => &[NetMode::None],
        }
    }

    fn run(&self, request: &FenceRequest<'_>) -> io::Result<FenceResponse> {
        let runtime = Runtime::open(self.setup(request)).map_err(io::Error::other)?;
        let mut asked = SessionSpec::new(request.workspace.to_owned(), self.policy(request));
        asked.image.clone_from(&self.image);
        let session = match runtime.session(asked).map_err(io::Error::other)? {
            Ok(session) => session,
            Err(refusal) => return Ok(FenceResponse::Refused(refusal.message)),
        };
        let call = Call::Exec(ExecCall {
            argv: request.argv.iter().map(|argument| ByteString::from(argument.as_os_str())).collect(),
            cwd: ByteString::from(session.workspace().path.as_path()),
            env: Vec::new(),
            ceiling: None,
            net: request.net,
            stdin: StandardInput::None,
        });
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let io = CommandIo {
            stdin: StdinSource::Empty,
            stdout: OutputTarget::Buffer(&mut stdout),
            stderr: OutputTarget::Buffer(&mut stderr),
            interrupts: &[],
            timeout: None,
            output_bytes: 0,
        };
        Ok(match session.last_call(call, io).ended {
            CallEnd::Executed(outcome) => {
                FenceResponse::Ran(FenceOutput { stdout, stderr, exit: outcome.exit })
            }
            CallEnd::Refused(refusal) => FenceResponse::Refused(refusal.message),
            CallEnd::Failed { what, .. } => FenceResponse::Refused(what),
            CallEnd::Touched(_) => FenceResponse::Refused("not a command".to_owned()),
        })
    }
}

impl ProductFence {
    /// Separate too: the operator's configuration concerns the operator's ledger.
    pub(super) fn config_dir(&self) -> PathBuf {
        self.state_dir.join("config")
    }

    fn policy(&self, request: &FenceRequest<'_>) -> Policy {
        let mut policy = Policy::new(Profile::Workspace);
        policy.backend = Some(self.backend);
        policy.limits = request.limits.clone();
        policy.net = request.net;
        policy.home = self.home.as_deref().map(ByteString::from);
        policy.floor.clear();
        policy.danger = doctor::danger_flags(self.backend);
        policy
    }

    fn setup(&self, request: &FenceRequest<'_>) -> HostSetup {
        let pairs = request.caller_env.iter();
        HostSetup {
            state_dir: self.state_dir.clone(),
            config_dir: self.config_dir(),
            home: self.home.clone(),
            host_env: pairs
                .map(|(name, value)| {
                    (ByteString::from(name.as_os_str()), ByteString::from(value.as_os_str()))
                })
                .collect(),
            attendance: ApproverPresence::Unattended,
            toolchains: Vec::new(),
            files: Vec::new(),
            sweeper: None,
            own: Vec::new(),
        }
    }
}

/// The battery's result as recorded in the ledger.
pub(super) fn battery_event(report: &BatteryReport, backend: Backend) -> Event {
    let attempts = report.results.iter().filter_map(|result| {
        let (verdict, detail) = match &result.verdict {
            AttemptVerdict::Held => (Recorded::Held, String::new()),
            AttemptVerdict::Escaped { what } => (Recorded::Escaped, what.join(", ")),
            AttemptVerdict::ControlFailed { why } | AttemptVerdict::NotRun { why } => {
                (Recorded::ControlFailed, why.clone())
            }
            AttemptVerdict::NotApplicable { .. } => return None,
        };
        Some(AttemptRecord { id: result.id.to_owned(), verdict, detail })
    });
    Event::BatteryFinished {
        passed: u32::try_from(report.held).unwrap_or(u32::MAX),
        total: u32::try_from(report.total_applicable).unwrap_or(u32::MAX),
        backend,
        attempts: attempts.collect(),
    }
}
