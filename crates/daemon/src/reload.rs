//! Policy and configuration that change while the daemon runs.
//!
//! The operator's files are taken whole or not at all; what is wrong leaves what held before in force. A session that runs is
//! held to what it began with: what takes away counts with its next call, what gives more is for sessions that begin later.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_runtime::authz::policy::PolicyFile;
use ringfence_runtime::standing::Stored;
use ringfence_runtime::{Asked, PolicySource};
use ringfence_types::Refusal;
use tokio::signal::unix::Signal;

use crate::server::Daemon;
use crate::sessions::bounded;
use crate::{Edition, Governed, Governor, Reload, Wanted};

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
}

#[derive(Clone, Debug)]
struct Last {
    edition: Edition,
    asked: Asked,
}

impl Again {
    pub(crate) fn new(governor: &Arc<dyn Governor>, wanted: Wanted) -> Result<Self, Refusal> {
        // Before it is read: what changes meanwhile is seen with the first call.
        let edition = governor.edition(&wanted);
        let Governed { asked, files } = governor.govern(&wanted)?;
        let began = bounded(asked);
        let last = Mutex::new(Last { edition, asked: began.clone() });
        Ok(Self { governor: Arc::clone(governor), wanted, began, files, last })
    }

    pub(crate) fn began(&self) -> Asked {
        self.began.clone()
    }

    fn held(&self, asked: Asked) -> Asked {
        let mut asked = bounded(asked);
        let (settings, began) = (&mut asked.settings, &self.began.settings);
        settings.quorum.approve = settings.quorum.approve.max(began.quorum.approve);
        settings.quorum.deny = settings.quorum.deny.min(began.quorum.deny);
        settings.reason_required |= began.reason_required;
        asked
    }
}

impl PolicySource for Again {
    fn read(&self) -> Result<Asked, Refusal> {
        let edition = self.governor.edition(&self.wanted);
        let Some(read) = self.governor.govern_again(&self.wanted, &self.files) else {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.edition = edition;
            return Ok(last.asked.clone());
        };
        let asked = self.held(read?);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Last { edition, asked: asked.clone() };
        Ok(asked)
    }

    fn has_changed(&self) -> bool {
        let now = self.governor.edition(&self.wanted);
        self.last.lock().unwrap_or_else(PoisonError::into_inner).edition != now
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
        let all = Arc::clone(&daemon);
        let looked = tokio::task::spawn_blocking(move || {
            if let Some(reload) = all.governor.reload() {
                write_down(&all, reload);
            }
        });
        if let Err(error) = looked.await {
            tracing::error!(why = %error, "the configuration is not looked at");
        }
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
