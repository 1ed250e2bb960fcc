//! Changes that were held, as they are written down and told.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_authz::Grant;
use ringfence_ledger::Event;
use ringfence_sandbox::{Before, Session as Sandbox};
use ringfence_types::{Access, Bytes, Call, FileCall, HeldChange};

use super::settled::Settled;
use crate::leaks::LeakScanner;
use crate::session::AgentSession;

/// The most that one record, and one result, names.
const MOST: usize = 100;
/// The most that a sentence names.
const MOST_TOLD: usize = 3;

/// From now on each change that is held is in the ledger when it is found.
pub(super) fn record(session: &AgentSession<'_>, sandbox: &Sandbox) {
    let (ledger, leaks) = (Arc::clone(&session.runtime.ledger), session.leaks.clone());
    let id = session.id.clone();
    sandbox.report_held(move |changes| {
        let event = Event::Held { session: id.clone(), changes: cleaned(changes, &leaks) };
        if let Err(error) = ledger.append(&event) {
            tracing::error!(why = %error, "held changes are not in the ledger");
        }
    });
}

/// Looks at what is around the paths that a call of this process is about to touch.
pub(super) fn before(grant: &Grant, session: &AgentSession<'_>) -> Option<Before> {
    let path = |bytes: &Bytes| session.workspace.path.join(bytes.as_path());
    let touched: Vec<PathBuf> = match grant.action().call() {
        Call::File(FileCall::Write { path: written, .. }) => vec![path(written)],
        Call::File(FileCall::Symlink { path: link, .. }) => vec![path(link)],
        Call::File(FileCall::Move { path: from, to }) => vec![path(from), path(to)],
        Call::Apply(patch) => patch.files.iter().map(|file| path(&file.path)).collect(),
        _ => return None,
    };
    let writable = grant.permissions().roots.iter().filter(|root| root.access == Access::Write);
    let roots: Vec<PathBuf> = writable.map(|root| root.path.as_path().to_owned()).collect();
    let outside = [session.runtime.setup.state_dir.clone(), session.workspace.home.clone()];
    Some(ringfence_sandbox::before(&roots, &outside, touched))
}

/// What the call has made is made ineffective where the host would execute it.
pub(super) fn after(before: Option<Before>, session: &mut AgentSession<'_>) -> Vec<HeldChange> {
    let changes = before.map(Before::after).unwrap_or_default();
    if !changes.is_empty() {
        let event = Event::Held { session: session.id.clone(), changes: cleaned(&changes, &session.leaks) };
        if let Err(error) = session.append(vec![event]) {
            tracing::error!(why = %error, "held changes are not in the ledger");
        }
    }
    changes
}

/// Names of files can hold secrets.
fn cleaned(changes: &[HeldChange], leaks: &LeakScanner) -> Vec<HeldChange> {
    let path = |path: &Bytes| Bytes::from(leaks.text(&path.display()).as_str());
    let clean = |change: &HeldChange| HeldChange {
        path: path(&change.path),
        what: leaks.text(&change.what),
        kept: change.kept.as_ref().map(path),
        rule: change.rule.clone(),
    };
    let mut clean: Vec<HeldChange> = changes.iter().take(MOST).map(clean).collect();
    if let (Some(more), Some(last)) = (changes.len().checked_sub(MOST + 1), clean.last_mut()) {
        last.what.push_str(&format!("; {} more were held", more + 1));
    }
    clean
}

impl Settled {
    /// With what was held while the call was made.
    pub(super) fn with_held(mut self, changes: &[HeldChange], leaks: &LeakScanner) -> Self {
        self.held = cleaned(changes, leaks);
        if !changes.is_empty() {
            let held = told(&self.held, changes.len());
            self.note = Some(self.note.map_or_else(|| held.clone(), |note| format!("{note}; {held}")));
        }
        self
    }
}

fn told(changes: &[HeldChange], all: usize) -> String {
    let named: Vec<String> = changes
        .iter()
        .take(MOST_TOLD)
        .map(|change| {
            let kept = change.kept.as_ref().map(|kept| format!(", kept as `{}`", kept.display()));
            format!(
                "`{}`: {} [{}]{}",
                change.path.display(),
                change.what,
                change.rule,
                kept.unwrap_or_default()
            )
        })
        .collect();
    let more = all.saturating_sub(MOST_TOLD);
    let more = if more > 0 { format!(" | and {more} more") } else { String::new() };
    format!("held, because a program of the host would execute or obey it: {}{more}", named.join(" | "))
}
