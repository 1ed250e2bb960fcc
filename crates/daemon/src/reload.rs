//! Policy and configuration that change while the daemon runs.
//!
//! The operator's files are taken whole or not at all; what is wrong leaves what held before in force, each file for itself. A session that runs is
//! held to what it began with: what takes away counts with its next call, what gives more is for sessions that begin later.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_runtime::authz::policy::{ApprovalSettings, PolicyFile, overlapping};
use ringfence_runtime::standing::Stored;
use ringfence_runtime::{Asked, PolicySource};
use ringfence_types::Refusal;
use tokio::signal::unix::Signal;
use tokio::task::JoinError;

use crate::failure::chain;
use crate::server::Daemon;
use crate::sessions::bounded;
use crate::telemetry::Applied;
use crate::{Earlier, Edition, Governed, Governor, Reload, Wanted, ceiling, parts};

/// How often the operator's files are looked at. Looking costs one `stat` per file, works on every file system, and sees also a
/// file that is replaced, linked elsewhere, or not there yet, which watches of a directory entry do not.
const ROUND: Duration = Duration::from_millis(500);

/// What policy says to one session, read again when it has changed.
#[derive(Debug)]
pub(crate) struct Again {
    governor: Arc<dyn Governor>,
    wanted: Wanted,
    began: Asked,
    files: Vec<PolicyFile>,
    last: Mutex<Last>,
    above: Option<Above>,
    place: Place,
}

/// Where the session may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Wherever somebody says who may choose, or where the whole may be.
    Any,
    /// Where nothing is by the policy of another workspace.
    Undivided,
}

/// What a session is held to besides its own policy.
#[derive(Clone, Debug)]
pub(crate) enum Above {
    /// The session that this one is a part of.
    Whole(Arc<Again>),
    /// What policy gives to the same session when nothing is asked for; held to the whole in turn.
    Given(Arc<Again>),
}

impl Above {
    fn again(&self) -> &Again {
        match self {
            Self::Whole(again) | Self::Given(again) => again,
        }
    }
}

#[derive(Clone, Debug)]
struct Last {
    edition: Edition,
    /// As they were when they were right.
    files: Vec<PolicyFile>,
}

impl Again {
    pub(crate) fn new(
        governor: &Arc<dyn Governor>,
        wanted: Wanted,
        above: Option<Above>,
    ) -> Result<Self, Refusal> {
        // Before it is read: what changes meanwhile is seen with the first call.
        let edition = edition(&**governor, &wanted, above.as_ref());
        let Governed { asked, files } = governor.govern(&wanted)?;
        let began = bounded(asked);
        let last = Mutex::new(Last { edition, files: files.clone() });
        let place = Place::Any;
        Ok(Self { governor: Arc::clone(governor), wanted, began, files, last, above, place })
    }

    /// The same for somebody who may ask for less than policy gives, and for nothing more.
    pub(crate) fn within_given(
        governor: &Arc<dyn Governor>,
        wanted: Wanted,
        above: Option<Above>,
    ) -> Result<Self, Refusal> {
        // A part is held to its whole, whose place was looked at.
        let place = if above.is_some() { Place::Any } else { Place::Undivided };
        let Some(given) = ceiling::without_wishes(&wanted) else {
            return Ok(Self { place, ..Self::new(governor, wanted, above)? });
        };
        let given = Self { place, ..Self::new(governor, given, above)? };
        Self::new(governor, wanted, Some(Above::Given(Arc::new(given))))
    }

    /// Where the operator's files say something else of the same files, to somebody who is not to have them by what is said here.
    pub(crate) fn overlap(&self) -> Option<PathBuf> {
        match &self.above {
            Some(Above::Given(given)) => given.overlap(),
            Some(Above::Whole(_)) | None => self.overlap_in(&self.files),
        }
    }

    fn overlap_in(&self, files: &[PolicyFile]) -> Option<PathBuf> {
        let Asked { workspace, policy, .. } = &self.began;
        match self.place {
            Place::Any => None,
            Place::Undivided => overlapping(workspace, policy.home.as_ref(), files),
        }
    }

    /// Whether this is the directory that policy was read for.
    pub(crate) fn is_for(&self, workspace: &Path) -> bool {
        let given = match &self.above {
            Some(Above::Given(given)) => given.is_for(workspace),
            Some(Above::Whole(_)) | None => true,
        };
        given && self.began.workspace == workspace
    }

    /// What the session is asked to be, where that is at most what it may be.
    pub(crate) fn began(&self) -> Result<Asked, Refusal> {
        self.check(self)?;
        self.within(self.began.clone())
    }

    /// Whether `asked` is at most what all above this has.
    fn check(&self, asked: &Self) -> Result<(), Refusal> {
        match &self.above {
            None => Ok(()),
            Some(Above::Whole(whole)) => parts::check(&asked.began, &whole.now()?),
            Some(Above::Given(given)) => {
                ceiling::check(&asked.wanted, &asked.began, &given.began)?;
                given.check(asked)
            }
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, asked: Asked) -> Asked {
        let mut asked = bounded(asked);
        hold(&mut asked.settings, &self.began.settings);
        asked
    }

    /// What policy says by now. The session itself has not heard of it by that: a part asks for its whole as well.
    fn now(&self) -> Result<Asked, Refusal> {
        let last = self.last().files.clone();
        let earlier = Earlier { began: &self.files, last: &last };
        let Governed { asked, files } = self.governor.govern_again(&self.wanted, earlier)?;
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

    fn within(&self, asked: Asked) -> Result<Asked, Refusal> {
        match &self.above {
            Some(above) => parts::held(asked, above.again().now()?),
            None => Ok(asked),
        }
    }
}

/// Also of what is above it.
fn edition(governor: &dyn Governor, wanted: &Wanted, above: Option<&Above>) -> Edition {
    let mut edition = governor.edition(wanted);
    if let Some(Again { governor, wanted, above, .. }) = above.map(Above::again) {
        edition.extend(self::edition(&**governor, wanted, above.as_ref()));
    }
    edition
}

/// Questions are asked at least as strictly as in `most`.
pub(crate) fn hold(settings: &mut ApprovalSettings, most: &ApprovalSettings) {
    settings.quorum.approve = settings.quorum.approve.max(most.quorum.approve);
    settings.quorum.deny = settings.quorum.deny.min(most.quorum.deny);
    settings.reason_required |= most.reason_required;
}

impl PolicySource for Again {
    fn read(&self) -> Result<Asked, Refusal> {
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

/// Looks at the operator's files for as long as the daemon lives, at once when it is told to.
pub(crate) async fn look_after(daemon: Arc<Daemon>, mut told: Signal) {
    let mut round = tokio::time::interval(ROUND);
    loop {
        tokio::select! {
            _at = round.tick() => {}
            _told = told.recv() => tracing::info!("told to read the configuration again"),
        }
        if let Err(error) = look(&daemon).await {
            tracing::error!(why = %error, "the configuration is not looked at");
        }
    }
}

async fn look(daemon: &Arc<Daemon>) -> Result<(), JoinError> {
    let all = Arc::clone(daemon);
    let looked = tokio::task::spawn_blocking(move || all.governor.reload());
    let Some(mut reload) = looked.await? else { return Ok(()) };
    if reload.taken {
        reload.change.push_str(&telemetry(daemon).await);
    }
    let all = Arc::clone(daemon);
    tokio::task::spawn_blocking(move || write_down(&all, reload)).await
}

/// What becomes of where traces and logs are sent. What cannot be begun leaves what was there.
async fn telemetry(daemon: &Arc<Daemon>) -> String {
    match daemon.telemetry.apply(daemon, daemon.governor.telemetry()).await {
        Ok(Applied::Unchanged) => String::new(),
        Ok(Applied::On) => "; `[telemetry]` counts from now on".to_owned(),
        Ok(Applied::Off) => "; nothing more is sent as telemetry".to_owned(),
        Err(error) => format!("; `[telemetry]` is not taken, and what held before holds: {}", chain(&error)),
    }
}

fn write_down(daemon: &Daemon, reload: Reload) {
    let Reload { file, sha256, change, taken } = reload;
    if taken {
        tracing::info!(file = %file.display(), sha256, "configuration taken: {change}");
    } else {
        tracing::error!(file = %file.display(), "configuration not taken: {change}");
    }
    if let Err(error) = daemon.runtime.policy_changed(&Stored { file, sha256 }, &change) {
        tracing::error!(why = %error, "a change of the configuration is not in the ledger");
    }
}
