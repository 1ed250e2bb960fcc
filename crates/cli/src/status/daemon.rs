use ringfence_api::{CheckHealth, CheckReady, ListApprovals, ListSessions};
use ringfence_types::Bytes;
use serde::Serialize;

use crate::daemon::Daemon;
use crate::environment::Environment;
use crate::output::say;

/// A daemon that runs.
#[derive(Serialize)]
pub(super) struct Served {
    socket: Bytes,
    version: String,
    /// Why it takes no work, if it does not.
    unready: Vec<String>,
    /// `null`: it did not say.
    sessions: Option<usize>,
    /// That wait for an answer.
    questions: Option<usize>,
}

pub(super) fn of(environment: &Environment) -> Option<Served> {
    let daemon = Daemon::find(environment)?;
    Some(Served {
        socket: Bytes::from(daemon.socket.as_path()),
        version: daemon.ask(&CheckHealth {}).ok()?.version,
        unready: daemon.ask(&CheckReady {}).map_or_else(
            |_told| vec!["it does not say whether it takes any".to_owned()],
            |ready| ready.because,
        ),
        sessions: daemon.ask(&ListSessions { all: false }).ok().map(|list| list.sessions.len()),
        questions: daemon.ask(&ListApprovals {}).ok().map(|list| list.questions.len()),
    })
}

impl Served {
    pub(super) fn print(&self) {
        let count = |count: Option<usize>| count.map_or("unknown".to_owned(), |count| count.to_string());
        say!("  version {} runs at {}", Bytes::from(self.version.as_str()).display(), self.socket.display());
        say!("  {} sessions, {} questions wait", count(self.sessions), count(self.questions));
        for why in &self.unready {
            say!("  takes no work: {}", Bytes::from(why.as_str()).display());
        }
        if self.questions.is_some_and(|waiting| waiting > 0) {
            say!("  `ringfence approvals list` shows them");
        }
    }
}
