//! Named sessions: a later process resumes the session of an earlier one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::SignedDuration;
use ringfence_ledger::{
    AppendError, Event, Kind, Ledger, LedgerReadError, LedgerReader, Record, SessionEndReason, Timestamp,
};
use ringfence_types::{ByteString, Root, SessionId, WorkspaceId};

use super::memory::SessionMemory;
use super::{OpenSessionError, Runtime, SessionSpec};
use crate::approvals::ApprovalInbox;
use crate::workspace::Workspace;

/// A session expires after this idle time.
const IDLE: SignedDuration = SignedDuration::from_hours(24);
/// Older sessions are not searched.
const NEWEST: u32 = 5000;

/// The session with the requested name, and its session memory.
pub(super) fn named(
    ledger: &Ledger,
    state_dir: &Path,
    workspace: &Workspace,
    asked: &SessionSpec,
) -> Result<Option<(SessionId, SessionMemory)>, OpenSessionError> {
    let Some(name) = &asked.name else { return Ok(None) };
    // Approvals that an earlier process left open must not be resumed.
    ApprovalInbox::new(ledger, state_dir).sweep()?;
    let reader = ledger.reader()?;
    let Some((id, records)) = live(&reader, &workspace.id, name)? else { return Ok(None) };
    let path = ByteString::from(workspace.path.as_path());
    let mut roots = vec![Root { path, access: asked.policy.access }];
    roots.extend(asked.roots.iter().cloned());
    Ok(Some((id, SessionMemory::of_records(&records, &roots))))
}

/// Ends the session with this name in a workspace. Returns its id, or `None` if there is none.
pub fn end_session(
    ledger: &Ledger,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<Option<SessionId>, OpenSessionError> {
    let Some((id, _)) = live(&ledger.reader()?, workspace, name)? else { return Ok(None) };
    let _receipt = ledger
        .append(&Event::SessionEnded { session: id.clone(), reason: Some(SessionEndReason::Stopped) })?;
    Ok(Some(id))
}

/// Sessions whose process is gone.
#[derive(Debug)]
pub struct AbandonedSessions {
    /// Sessions whose end was recorded now.
    pub ended: Vec<SessionId>,
    /// Of the requested sessions, those that have ended, whenever that was.
    pub over: BTreeSet<SessionId>,
}

/// Records the end of approvals and sessions of this node whose process is gone. Checks the sessions in `asked`
/// whatever their age. Whether a process of another node lives is unknown here.
pub fn end_abandoned(
    runtime: &Runtime,
    asked: &BTreeSet<SessionId>,
) -> Result<AbandonedSessions, OpenSessionError> {
    let ledger = runtime.ledger();
    ApprovalInbox::new(ledger, &runtime.setup().state_dir).sweep()?;
    let reader = ledger.reader()?;
    let mut lives = Lives::default();
    lives.add(&reader.own_of_kinds(&[Kind::SessionStarted, Kind::SessionEnded], NEWEST)?);
    for session in asked {
        if lives.of.contains_key(session) {
            continue;
        }
        let records = reader.own_about(session.as_str())?;
        lives.add(&records);
        if !records.is_empty() {
            // The record of its start may be pruned.
            let _known = lives.of.entry(session.clone()).or_insert(Life::Abandoned);
        }
    }
    let ended: Vec<SessionId> = lives.with(Life::Abandoned).cloned().collect();
    end_all(ledger, &ended)?;
    let over = asked.iter().filter(|session| lives.of.get(*session) != Some(&Life::GoesOn)).cloned();
    Ok(AbandonedSessions { ended, over: over.collect() })
}

/// Records the end of all sessions in one step, or of each by itself if another node has ended one of them.
fn end_all(ledger: &Ledger, sessions: &[SessionId]) -> Result<(), AppendError> {
    let events: Vec<Event> = sessions.iter().map(gone).collect();
    if events.is_empty() {
        return Ok(());
    }
    match ledger.append_all(&events) {
        Ok(_receipts) => return Ok(()),
        Err(AppendError::OutOfOrder { .. }) => {}
        Err(error) => return Err(error),
    }
    events.iter().try_for_each(|event| match ledger.append(event) {
        Ok(_) | Err(AppendError::OutOfOrder { .. }) => Ok(()),
        Err(error) => Err(error),
    })
}

/// The state of a session by the ledger and the process table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    /// The process is gone, and no end is recorded.
    Abandoned,
    GoesOn,
    Over,
}

/// The state of each daemon session. Sessions without a daemon are resumed by name and have no process here.
#[derive(Debug, Default)]
struct Lives {
    of: BTreeMap<SessionId, Life>,
}

impl Lives {
    fn add(&mut self, records: &[Record]) {
        for record in records {
            let (session, life) = match &record.event {
                Event::SessionStarted { session, process: Some(process), .. } if process.is_alive() => {
                    (session, Life::GoesOn)
                }
                Event::SessionStarted { session, process: Some(_), .. } => (session, Life::Abandoned),
                Event::SessionEnded { session, .. } => (session, Life::Over),
                _ => continue,
            };
            let known = self.of.entry(session.clone()).or_insert(life);
            *known = (*known).max(life);
        }
    }

    fn with(&self, life: Life) -> impl Iterator<Item = &SessionId> {
        self.of.iter().filter(move |(_, own)| **own == life).map(|(session, _)| session)
    }
}

fn gone(session: &SessionId) -> Event {
    Event::SessionEnded { session: session.clone(), reason: Some(SessionEndReason::DaemonLost) }
}

fn live(
    reader: &LedgerReader,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<Option<(SessionId, Vec<Record>)>, LedgerReadError> {
    let started = reader.of_kinds(&[Kind::SessionStarted], NEWEST)?;
    let newest = started.iter().rev().find_map(|record| match &record.event {
        Event::SessionStarted { session, name: Some(known), workspace_id, .. }
            if known == name && workspace_id == workspace =>
        {
            Some(session.clone())
        }
        _ => None,
    });
    let Some(id) = newest else { return Ok(None) };
    let records = reader.about(id.as_str())?;
    Ok(is_live(reader, &records)?.then_some((id, records)))
}

fn is_live(reader: &LedgerReader, records: &[Record]) -> Result<bool, LedgerReadError> {
    let ended = records.iter().any(|record| matches!(record.event, Event::SessionEnded { .. }));
    let last = records.last().and_then(|last| Some((last.seq, last.time.parse::<Timestamp>().ok()?)));
    let over = last.and_then(|(seq, last)| Some((seq, last.checked_add(IDLE).ok()?)));
    match over {
        Some((seq, over)) if !ended && Timestamp::now() < over => Ok(!reader.has_reached(over, seq)?),
        _ => Ok(false),
    }
}
