use std::collections::BTreeSet;

use ringfence_types::TransactionId;
use serde::{Deserialize, Serialize};

use crate::Event;
use crate::chain::{Break, Flaw, Row};

/// An entry as it was read: what the row says, not yet that the chain holds. [`crate::verify()`] says that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub seq: u64,
    /// RFC 3339 in UTC, as it was hashed.
    pub time: String,
    pub event: Event,
    pub hash: String,
}

impl Record {
    pub(crate) fn of_row(row: Row) -> Result<Self, Break> {
        let malformed = |reason| Break { seq: row.seq, what: Flaw::Malformed { reason } };
        let event: Event = serde_json::from_str(&row.body)
            .map_err(|error| malformed(format!("its body is no event: {error}")))?;
        if event.kind().word() != row.kind {
            return Err(malformed("its kind is not that of its body".to_owned()));
        }
        if let Err(error) = row.time.parse::<jiff::Timestamp>() {
            return Err(malformed(format!("its time is none: {error}")));
        }
        Ok(Self { seq: row.seq, time: row.time, event, hash: row.hash })
    }
}

/// Transactions among `records` that were intended and neither settled nor refused: running now, or a crash.
pub fn incomplete(records: &[Record]) -> Vec<&TransactionId> {
    let closed: BTreeSet<_> =
        records.iter().filter(|record| closes(&record.event)).filter_map(transaction).collect();
    let intents = records.iter().filter(|record| matches!(record.event, Event::Intent { .. }));
    intents.filter_map(transaction).filter(|id| !closed.contains(id)).collect()
}

pub(crate) fn closes(event: &Event) -> bool {
    matches!(event, Event::Settled { .. } | Event::Refused { .. } | Event::Interrupted { .. })
}

fn transaction(record: &Record) -> Option<&TransactionId> {
    record.event.transaction()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(time: &str, kind: &str, body: &str) -> String {
        let row = Row::after(None, time.to_owned(), kind, body.to_owned());
        match Record::of_row(row).unwrap_err().what {
            Flaw::Malformed { reason } => reason,
            other => panic!("{other}"),
        }
    }

    /// Rows with a right hash that nobody of us would write.
    #[test]
    fn a_row_must_be_an_event_of_its_kind_at_a_time() {
        const TIME: &str = "2026-01-02T03:04:05.000000Z";
        const BODY: &str = r#"{"kind":"session-ended","session":"ses_1"}"#;
        let good = Row::after(None, TIME.to_owned(), "session-ended", BODY.to_owned());
        assert_eq!(Record::of_row(good).unwrap().time, TIME);
        assert!(reason(TIME, "session-started", BODY).contains("kind"));
        assert!(reason("yesterday", "session-ended", BODY).contains("time"));
        assert!(reason(TIME, "session-ended", "{}").contains("body"));
    }
}
