//! Held changes, as the ledger and results show them.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_authz::Authorization;
use ringfence_ledger::Event;
use ringfence_sandbox::{After, Before, ExaminationError, Sandbox};
use ringfence_types::{Access, ByteString, Call, FileCall, HeldChange};

use crate::leaks::LeakScanner;
use crate::pipeline::{CallContext as _, CallEnd, Settled, chain};
use crate::session::AgentSession;

/// Limit of changes named in one record or result.
const MOST: usize = 100;
/// Limit of changes named in a sentence.
const MOST_TOLD: usize = 3;

/// Records each held change when the sandbox finds it.
pub(super) fn record(session: &AgentSession<'_>, sandbox: &Sandbox) {
    let (ledger, leaks) = (Arc::clone(&session.runtime.ledger), session.leaks.clone());
    let id = session.id.clone();
    sandbox.report_held(move |changes| {
        let event = Event::ChangesHeld { session: id.clone(), changes: cleaned(changes, &leaks) };
        if let Err(error) = ledger.append(&event) {
            tracing::error!(error = %error, "cannot record held changes");
        }
    });
}

/// Reads the state of the roots before an in-process call changes them.
pub(super) fn before(grant: &Authorization, session: &AgentSession<'_>) -> Result<Option<Before>, CallEnd> {
    match grant.action().call() {
        Call::File(FileCall::Write { .. } | FileCall::Symlink { .. } | FileCall::Move { .. }) => {}
        Call::Apply(_) | Call::Land(_) => {}
        _ => return Ok(None),
    }
    let writable = grant.permissions().roots.iter().filter(|root| root.access == Access::Write);
    let roots: Vec<PathBuf> = writable.map(|root| root.path.as_path().to_owned()).collect();
    let outside = [session.runtime.setup.state_dir.clone(), session.workspace.home.clone()];
    let before = ringfence_sandbox::before(&roots, &outside);
    before.map(Some).map_err(|error| CallEnd::Failed { what: chain(&error), hint: None })
}

/// Holds the changes of the call that the host would execute. If that check fails, the call fails.
pub(super) fn after(
    before: Option<Before>,
    session: &mut AgentSession<'_>,
) -> (Vec<HeldChange>, Result<(), CallEnd>) {
    let Some(After { changes, looked }) = before.map(Before::after) else { return (Vec::new(), Ok(())) };
    if !changes.is_empty() {
        let event =
            Event::ChangesHeld { session: session.id.clone(), changes: cleaned(&changes, &session.leaks) };
        if let Err(error) = session.append(vec![event]) {
            tracing::error!(error = %error, "cannot record held changes");
        }
    }
    let failed = |unfinished: ExaminationError| CallEnd::Failed {
        what: unfinished.to_string(),
        hint: Some(ExaminationError::HINT.to_owned()),
    };
    (changes, looked.map_err(failed))
}

/// File names may contain secrets.
fn cleaned(changes: &[HeldChange], leaks: &LeakScanner) -> Vec<HeldChange> {
    let path = |path: &ByteString| ByteString::from(leaks.text(&path.display()).as_str());
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
    /// Adds the changes that were held during the call.
    pub(super) fn with_held(mut self, changes: &[HeldChange], leaks: &LeakScanner) -> Self {
        self.held = cleaned(changes, leaks);
        if !changes.is_empty() {
            let held = told(&self.held, changes.len());
            self.notice = Some(self.notice.map_or_else(|| held.clone(), |note| format!("{note}; {held}")));
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
