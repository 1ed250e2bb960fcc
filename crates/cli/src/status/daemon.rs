use ringfence_api::{CheckHealth, CheckReady, ListApprovals, ListSessions};
use ringfence_types::ByteString;
use serde::Serialize;

use crate::daemon_client::DaemonClient;
use crate::environment::Environment;
use crate::output::say;

/// A running daemon.
#[derive(Serialize)]
pub(super) struct DaemonStatus {
    socket: ByteString,
    version: String,
    /// Why it accepts no work, if so.
    unready: Vec<String>,
    /// `null`: unknown.
    sessions: Option<usize>,
    /// Number of pending approvals.
    pending_approvals: Option<usize>,
}

pub(super) fn of(environment: &Environment) -> Option<DaemonStatus> {
    let daemon = DaemonClient::find(environment)?;
    Some(DaemonStatus {
        socket: ByteString::from(daemon.socket.as_path()),
        version: daemon.ask(&CheckHealth {}).ok()?.version,
        unready: daemon.ask(&CheckReady {}).map_or_else(
            |_told| vec!["it does not say whether it takes any".to_owned()],
            |ready| ready.reasons,
        ),
        sessions: daemon.ask(&ListSessions { include_ended: false }).ok().map(|list| list.sessions.len()),
        pending_approvals: daemon.ask(&ListApprovals {}).ok().map(|list| list.approvals.len()),
    })
}

impl DaemonStatus {
    pub(super) fn print(&self) {
        let count = |count: Option<usize>| count.map_or("unknown".to_owned(), |count| count.to_string());
        say!(
            "  version {} runs at {}",
            ByteString::from(self.version.as_str()).display(),
            self.socket.display()
        );
        say!("  {} sessions, {} pending approvals", count(self.sessions), count(self.pending_approvals));
        for why in &self.unready {
            say!("  takes no work: {}", ByteString::from(why.as_str()).display());
        }
        if self.pending_approvals.is_some_and(|waiting| waiting > 0) {
            say!("  `ringfence approvals list` shows them");
        }
    }
}
