//! Policy reload: policy and configuration that change while the daemon runs.
//!
//! The operator's files are applied as a whole or not at all. An invalid file leaves its last valid version in force,
//! each file for itself. A running session is held to what it started with: restrictions apply from its next call,
//! extensions only to later sessions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_policy::{ApprovalSettings, PolicyFile, overlapping};
use ringfence_runtime::operator_file::OperatorFileUpdate;
use ringfence_runtime::{PolicySource, SessionSpec};
use ringfence_types::Refusal;
use tokio::signal::unix::Signal;
use tokio::task::JoinError;

use crate::errors::chain;
use crate::observe::telemetry::TelemetryUpdate;
use crate::server::Daemon;
use crate::sessions::registry::bounded;
use crate::{
    PolicyProvider, PolicyVersion, PreviousPolicy, ReloadOutcome, SessionPolicy, SessionPolicyRequest,
    admit::ceiling, sessions::child_session,
};

/// Poll interval for the operator's files.
const ROUND: Duration = Duration::from_millis(500);

/// The policy of one session, read again when it changed.
#[derive(Debug)]
pub(crate) struct SessionPolicySource {
    governor: Arc<dyn PolicyProvider>,
    wanted: SessionPolicyRequest,
    began: SessionSpec,
    files: Vec<PolicyFile>,
    last: Mutex<LastPolicy>,
    above: Option<ParentPolicy>,
    place: WorkspaceConstraint,
}

/// Where the workspace of the session may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkspaceConstraint {
    /// Anywhere: the caller may choose, or the parent's constraint applies.
    Any,
    /// Only where no part belongs to a workspace with a policy of its own.
    Undivided,
}

/// The upper bound of a session besides its own policy.
#[derive(Clone, Debug)]
pub(crate) enum ParentPolicy {
    /// The parent session.
    Whole(Arc<SessionPolicySource>),
    /// What policy gives to the same session without wishes. It is held to the parent in turn.
    Given(Arc<SessionPolicySource>),
}

impl ParentPolicy {
    fn again(&self) -> &SessionPolicySource {
        match self {
            Self::Whole(again) | Self::Given(again) => again,
        }
    }
}

#[derive(Clone, Debug)]
struct LastPolicy {
    /// The versions of the policy and of all its upper bounds.
    edition: Vec<PolicyVersion>,
    /// The last valid files.
    files: Vec<PolicyFile>,
}

impl SessionPolicySource {
    pub(crate) fn new(
        governor: &Arc<dyn PolicyProvider>,
        wanted: SessionPolicyRequest,
        above: Option<ParentPolicy>,
    ) -> Result<Self, Refusal> {
        // Taken before the policy is read, so that the first call sees a change in between.
        let edition = edition(&**governor, &wanted, above.as_ref());
        let SessionPolicy { asked, files } = governor.govern(&wanted)?;
        let began = bounded(asked);
        let last = Mutex::new(LastPolicy { edition, files: files.clone() });
        let place = WorkspaceConstraint::Any;
        Ok(Self { governor: Arc::clone(governor), wanted, began, files, last, above, place })
    }

    /// The same for a caller that may only ask for less than policy gives.
    pub(crate) fn within_given(
        governor: &Arc<dyn PolicyProvider>,
        wanted: SessionPolicyRequest,
        above: Option<ParentPolicy>,
    ) -> Result<Self, Refusal> {
        // A child is held to its parent, whose workspace was checked.
        let place = if above.is_some() { WorkspaceConstraint::Any } else { WorkspaceConstraint::Undivided };
        let Some(given) = ceiling::without_wishes(&wanted) else {
            return Ok(Self { place, ..Self::new(governor, wanted, above)? });
        };
        let given = Self { place, ..Self::new(governor, given, above)? };
        Self::new(governor, wanted, Some(ParentPolicy::Given(Arc::new(given))))
    }

    /// A workspace inside or around this one for which the operator's files have a policy of their own, if the caller
    /// is held to it.
    pub(crate) fn overlap(&self) -> Option<PathBuf> {
        match &self.above {
            Some(ParentPolicy::Given(given)) => given.overlap(),
            Some(ParentPolicy::Whole(_)) | None => self.overlap_in(&self.files),
        }
    }

    fn overlap_in(&self, files: &[PolicyFile]) -> Option<PathBuf> {
        let SessionSpec { workspace, policy, .. } = &self.began;
        match self.place {
            WorkspaceConstraint::Any => None,
            WorkspaceConstraint::Undivided => overlapping(workspace, policy.home.as_ref(), files),
        }
    }

    /// Whether this is the directory the policy was read for.
    pub(crate) fn is_for(&self, workspace: &Path) -> bool {
        let given = match &self.above {
            Some(ParentPolicy::Given(given)) => given.is_for(workspace),
            Some(ParentPolicy::Whole(_)) | None => true,
        };
        given && self.began.workspace == workspace
    }

    /// The session's specification at its start, if it is within its upper bounds.
    pub(crate) fn began(&self) -> Result<SessionSpec, Refusal> {
        self.check(self)?;
        self.within(self.began.clone())
    }

    /// Whether `asked` is within all upper bounds of this source.
    fn check(&self, asked: &Self) -> Result<(), Refusal> {
        match &self.above {
            None => Ok(()),
            Some(ParentPolicy::Whole(whole)) => child_session::check(&asked.began, &whole.now()?),
            Some(ParentPolicy::Given(given)) => {
                ceiling::check(&asked.wanted, &asked.began, &given.began)?;
                given.check(asked)
            }
        }
    }

    fn last(&self) -> MutexGuard<'_, LastPolicy> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, asked: SessionSpec) -> SessionSpec {
        let mut asked = bounded(asked);
        hold(&mut asked.settings, &self.began.settings);
        asked
    }

    /// The current policy. It does not mark the change as seen by the session, because children read it too.
    fn now(&self) -> Result<SessionSpec, Refusal> {
        let last = self.last().files.clone();
        let earlier = PreviousPolicy { began: &self.files, last: &last };
        let SessionPolicy { asked, files } = self.governor.govern_again(&self.wanted, earlier)?;
        if asked.workspace != self.began.workspace {
            return Err(ceiling::moved());
        }
        if self.overlap_in(&files).is_some() {
            return Err(ceiling::overlap(None));
        }
        let asked = self.within(self.held(asked))?;
        self.last().files = files;
        Ok(asked)
    }

    fn within(&self, asked: SessionSpec) -> Result<SessionSpec, Refusal> {
        match &self.above {
            Some(above) => child_session::held(asked, above.again().now()?),
            None => Ok(asked),
        }
    }
}

/// The versions of the policy and of all its upper bounds.
fn edition(
    governor: &dyn PolicyProvider,
    wanted: &SessionPolicyRequest,
    above: Option<&ParentPolicy>,
) -> Vec<PolicyVersion> {
    let mut edition = vec![governor.edition(wanted)];
    if let Some(SessionPolicySource { governor, wanted, above, .. }) = above.map(ParentPolicy::again) {
        edition.extend(self::edition(&**governor, wanted, above.as_ref()));
    }
    edition
}

/// Makes the approval settings at least as strict as `most`.
pub(crate) fn hold(settings: &mut ApprovalSettings, most: &ApprovalSettings) {
    settings.quorum.approve = settings.quorum.approve.max(most.quorum.approve);
    settings.quorum.deny = settings.quorum.deny.min(most.quorum.deny);
    settings.reason_required |= most.reason_required;
}

impl PolicySource for SessionPolicySource {
    fn read(&self) -> Result<SessionSpec, Refusal> {
        let edition = edition(&*self.governor, &self.wanted, self.above.as_ref());
        let asked = self.now()?;
        self.last().edition = edition;
        Ok(asked)
    }

    fn has_changed(&self) -> bool {
        let now = edition(&*self.governor, &self.wanted, self.above.as_ref());
        self.last().edition != now
    }
}

/// Polls the operator's files as long as the daemon runs, and at once on SIGHUP.
pub(crate) async fn run(daemon: Arc<Daemon>, mut told: Signal) {
    let mut round = tokio::time::interval(ROUND);
    loop {
        tokio::select! {
            _at = round.tick() => {}
            _told = told.recv() => tracing::info!("reloading the configuration"),
        }
        if let Err(error) = check_files(&daemon).await {
            tracing::error!(error = %error, "cannot check the configuration");
        }
    }
}

async fn check_files(daemon: &Arc<Daemon>) -> Result<(), JoinError> {
    let all = Arc::clone(daemon);
    let looked = tokio::task::spawn_blocking(move || all.governor.reload());
    let Some(mut reload) = looked.await? else { return Ok(()) };
    if reload.taken {
        reload.change.push_str(&telemetry(daemon).await);
    }
    let all = Arc::clone(daemon);
    tokio::task::spawn_blocking(move || record_change(&all, reload)).await
}

/// Applies changed telemetry settings. If that fails, the previous ones stay in force.
async fn telemetry(daemon: &Arc<Daemon>) -> String {
    match daemon.telemetry.apply(daemon, daemon.governor.telemetry()).await {
        Ok(TelemetryUpdate::Unchanged) => String::new(),
        Ok(TelemetryUpdate::On) => "; `[telemetry]` counts from now on".to_owned(),
        Ok(TelemetryUpdate::Off) => "; nothing more is sent as telemetry".to_owned(),
        Err(error) => format!("; `[telemetry]` is not taken, and what held before holds: {}", chain(&error)),
    }
}

fn record_change(daemon: &Daemon, reload: ReloadOutcome) {
    let ReloadOutcome { file, sha256, change, taken } = reload;
    if taken {
        tracing::info!(file = %file.display(), sha256, "configuration applied: {change}");
    } else {
        tracing::error!(file = %file.display(), "configuration rejected: {change}");
    }
    if let Err(error) = daemon.runtime.policy_changed(&OperatorFileUpdate { file, sha256 }, &change) {
        tracing::error!(error = %error, "cannot record a change of the configuration");
    }
}
