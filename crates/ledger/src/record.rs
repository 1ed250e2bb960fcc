//! Records: entries of the ledger as they are read.

use std::collections::BTreeSet;

use jiff::Timestamp;
use ringfence_types::TransactionId;
use serde::{Deserialize, Serialize};

use crate::chain::{ChainBreak, ChainFlaw, HexDigest, Row};
use crate::claim;
use crate::event::{Event, Kind};

/// An entry as read. [`crate::verify()`] tells whether the chain is intact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub seq: u64,
    /// RFC 3339 in UTC, as it was hashed.
    pub time: String,
    pub event: Event,
    pub hash: String,
}

/// An entry whose body was pruned: existence, time and ids remain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrunedRecord {
    pub seq: u64,
    pub time: String,
    pub kind: String,
    pub ids: Vec<String>,
    /// SHA-256 of the removed body.
    pub digest: String,
    pub hash: String,
}

/// An entry with or without its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum RecordOrPruned {
    Whole(Box<Record>),
    Pruned(PrunedRecord),
}

impl RecordOrPruned {
    pub(crate) fn of_row(row: Row) -> Result<Self, ChainBreak> {
        if row.body.is_some() {
            return Record::of_row(row).map(|record| Self::Whole(Box::new(record)));
        }
        let ids = row.ids.split_ascii_whitespace().map(str::to_owned).collect();
        let Row { seq, time, kind, digest, hash, .. } = row;
        Ok(Self::Pruned(PrunedRecord { seq, time, kind, ids, digest, hash }))
    }

    pub fn seq(&self) -> u64 {
        match self {
            Self::Whole(record) => record.seq,
            Self::Pruned(pruned) => pruned.seq,
        }
    }

    pub fn whole(self) -> Option<Record> {
        match self {
            Self::Whole(record) => Some(*record),
            Self::Pruned(_) => None,
        }
    }
}

impl Record {
    pub(crate) fn of_row(row: Row) -> Result<Self, ChainBreak> {
        let malformed = |reason| ChainBreak { seq: row.seq, what: ChainFlaw::Malformed { reason } };
        let body = row.body.as_deref().ok_or(ChainBreak { seq: row.seq, what: ChainFlaw::BodyGone })?;
        // Users of a single record, such as a grant, have not verified the chain.
        if HexDigest::of(body.as_bytes()).to_string() != row.digest {
            return Err(ChainBreak { seq: row.seq, what: ChainFlaw::BodyMismatch });
        }
        let event: Event = serde_json::from_str(body)
            .map_err(|error| malformed(format!("its body is no event: {error}")))?;
        if Kind::of_word(&row.kind) != Some(event.kind()) {
            return Err(malformed("its kind is not that of its body".to_owned()));
        }
        if let Err(error) = row.time.parse::<Timestamp>() {
            return Err(malformed(format!("its time is none: {error}")));
        }
        Ok(Self { seq: row.seq, time: row.time, event, hash: row.hash })
    }

    /// Time of the record.
    pub fn timestamp(&self) -> Timestamp {
        self.time.parse().unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// Transactions among `records` with an intent and no end: running, or interrupted by a crash.
pub fn incomplete(records: &[Record]) -> Vec<&TransactionId> {
    let closing = records.iter().filter(|record| claim::closes(record.event.kind()));
    let closed: BTreeSet<_> = closing.filter_map(transaction).collect();
    let intents = records.iter().filter(|record| matches!(record.event, Event::CallIntended { .. }));
    intents.filter_map(transaction).filter(|id| !closed.contains(id)).collect()
}

fn transaction(record: &Record) -> Option<&TransactionId> {
    record.event.transaction()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::RowDraft;

    fn row(time: &str, kind: &str, body: &str) -> Row {
        let [time, kind, body] = [time, kind, body].map(str::to_owned);
        Row::after(
            None,
            RowDraft {
                time,
                kind,
                ids: String::new(),
                digest: HexDigest::of(body.as_bytes()).to_string(),
                body,
            },
        )
    }

    fn reason(time: &str, kind: &str, body: &str) -> String {
        match Record::of_row(row(time, kind, body)).unwrap_err().what {
            ChainFlaw::Malformed { reason } => reason,
            other => panic!("{other}"),
        }
    }

    /// Rows with a valid hash that Ringfence would not write.
    #[test]
    fn a_row_must_be_an_event_of_its_kind_at_a_time() {
        const TIME: &str = "2026-01-02T03:04:05.000000Z";
        const BODY: &str = r#"{"kind":"session-ended","session":"ses_1"}"#;
        assert_eq!(Record::of_row(row(TIME, "session-ended", BODY)).unwrap().time, TIME);
        assert!(reason(TIME, "session-started", BODY).contains("kind"));
        assert!(reason("yesterday", "session-ended", BODY).contains("time"));
        assert!(reason(TIME, "session-ended", "{}").contains("body"));
    }

    #[test]
    fn a_body_that_was_edited_is_no_record() {
        const TIME: &str = "2026-01-02T03:04:05.000000Z";
        let mut row = row(TIME, "session-ended", r#"{"kind":"session-ended","session":"ses_1"}"#);
        row.body = Some(r#"{"kind":"session-ended","session":"ses_2"}"#.to_owned());
        assert_eq!(Record::of_row(row).unwrap_err().what, ChainFlaw::BodyMismatch);
    }
}
