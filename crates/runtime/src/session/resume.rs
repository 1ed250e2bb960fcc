//! Sessions with a name: a later process goes on where an earlier one was.

use std::collections::{BTreeMap, BTreeSet};
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

/// Sessions whose process is gone.
#[derive(Debug)]
pub struct Abandoned {
    /// Their end was written down now.
    pub ended: Vec<SessionId>,
    /// Of those that were asked about, all that are over, whenever they ended.
    pub over: BTreeSet<SessionId>,
}

/// Writes down the end of approvals and sessions whose process is gone without a word. The sessions in `asked` are looked at however
/// long ago they began.
pub fn end_abandoned(runtime: &Runtime, asked: &BTreeSet<SessionId>) -> Result<Abandoned, OpenSessionError> {
    let ledger = runtime.ledger();
    Inbox::new(ledger, &runtime.setup().state_dir).sweep()?;
    let reader = ledger.reader()?;
    let mut lives = Lives::default();
    lives.add(&reader.of_kinds(&[Kind::SessionStarted, Kind::SessionEnded], NEWEST)?);
    for session in asked {
        if lives.of.contains_key(session) {
            continue;
        }
        let records = reader.about(session.as_str())?;
        lives.add(&records);
        if !records.is_empty() {
            // Its beginning may have been pruned.
            let _known = lives.of.entry(session.clone()).or_insert(Life::Abandoned);
        }
    }
    let ended: Vec<SessionId> = lives.with(Life::Abandoned).cloned().collect();
    let events: Vec<Event> = ended.iter().map(gone).collect();
    if !events.is_empty() {
        let _receipts = ledger.append_all(&events)?;
    }
    let over = asked.iter().filter(|session| lives.of.get(*session) != Some(&Life::GoesOn)).cloned();
    Ok(Abandoned { ended, over: over.collect() })
}

/// What the ledger and the process table say of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    /// Its process is gone, and nothing says that it ended.
    Abandoned,
    GoesOn,
    Over,
}

/// What is known of each session that a daemon had. What a process without a daemon began is resumed by name, and has no process here.
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
