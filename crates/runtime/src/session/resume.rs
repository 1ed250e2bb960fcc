//! Sessions with a name: a later process goes on where an earlier one was.

use std::collections::HashSet;
use std::path::Path;

use jiff::SignedDuration;
use ringfence_ledger::{Event, Kind, Ledger, LedgerReader, ReadError, Record, SessionEnd, Timestamp};
use ringfence_types::{Bytes, Root, SessionId, WorkspaceId};

use super::{Asked, OpenSessionError, Runtime};
use crate::approval::{Inbox, Memory};
use crate::workspace::Workspace;

/// A session in which nothing happened for this long is over.
const IDLE: SignedDuration = SignedDuration::from_hours(24);
/// Older sessions than these are not looked for.
const NEWEST: u32 = 5000;

/// The session with the name that is asked for, and what it remembers.
pub(super) fn named(
    (ledger, state_dir): (&Ledger, &Path),
    workspace: &Workspace,
    asked: &Asked,
) -> Result<Option<(SessionId, Memory)>, OpenSessionError> {
    let Some(name) = &asked.name else { return Ok(None) };
    // What an earlier process of it left open is no part of how it goes on.
    Inbox::new(ledger, state_dir).sweep()?;
    let reader = ledger.reader()?;
    let Some((id, records)) = live(&reader, &workspace.id, name)? else { return Ok(None) };
    let path = Bytes::from(workspace.path.as_path());
    let mut roots = vec![Root { path, access: asked.policy.access }];
    roots.extend(asked.roots.iter().cloned());
    Ok(Some((id, Memory::of_records(&records, &roots))))
}

/// Ends the session with this name in a workspace. Its id, or `None` where there is none.
pub fn end_session(
    ledger: &Ledger,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<Option<SessionId>, OpenSessionError> {
    let Some((id, _)) = live(&ledger.reader()?, workspace, name)? else { return Ok(None) };
    let _receipt =
        ledger.append(&Event::SessionEnded { session: id.clone(), reason: Some(SessionEnd::Stopped) })?;
    Ok(Some(id))
}

/// Writes down the end of questions and sessions whose process is gone without a word; which sessions they were.
pub fn end_abandoned(runtime: &Runtime) -> Result<Vec<SessionId>, OpenSessionError> {
    let ledger = runtime.ledger();
    Inbox::new(ledger, &runtime.setup().state_dir).sweep()?;
    let records = ledger.reader()?.of_kinds(&[Kind::SessionStarted, Kind::SessionEnded], NEWEST)?;
    let ended: HashSet<&SessionId> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::SessionEnded { session, .. } => Some(session),
            _ => None,
        })
        .collect();
    let abandoned = records.iter().filter_map(|record| match &record.event {
        Event::SessionStarted { session, process: Some(process), .. }
            if !ended.contains(session) && !process.is_alive() =>
        {
            Some(session.clone())
        }
        _ => None,
    });
    let abandoned: Vec<SessionId> = abandoned.collect();
    let events: Vec<Event> = abandoned.iter().map(gone).collect();
    if !events.is_empty() {
        let _receipts = ledger.append_all(&events)?;
    }
    Ok(abandoned)
}

/// Whether a session goes on: it has not ended, and the process that it lives in is there. The end of one that was left is
/// written down, however long ago it began.
pub fn goes_on(runtime: &Runtime, session: &SessionId) -> Result<bool, OpenSessionError> {
    let records = runtime.ledger().reader()?.about(session.as_str())?;
    let ended = records.iter().any(|record| matches!(record.event, Event::SessionEnded { .. }));
    let lives = records.iter().any(|record| match &record.event {
        Event::SessionStarted { process: Some(process), .. } => process.is_alive(),
        _ => false,
    });
    if !ended && !lives && !records.is_empty() {
        let _receipt = runtime.ledger().append(&gone(session))?;
    }
    Ok(lives && !ended)
}

fn gone(session: &SessionId) -> Event {
    Event::SessionEnded { session: session.clone(), reason: Some(SessionEnd::DaemonGone) }
}

fn live(
    reader: &LedgerReader,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<Option<(SessionId, Vec<Record>)>, ReadError> {
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

fn is_live(reader: &LedgerReader, records: &[Record]) -> Result<bool, ReadError> {
    let ended = records.iter().any(|record| matches!(record.event, Event::SessionEnded { .. }));
    let last = records.last().and_then(|last| Some((last.seq, last.time.parse::<Timestamp>().ok()?)));
    let over = last.and_then(|(seq, last)| Some((seq, last.checked_add(IDLE).ok()?)));
    match over {
        Some((seq, over)) if !ended && Timestamp::now() < over => Ok(!reader.has_reached(over, seq)?),
        _ => Ok(false),
    }
}
