//! Writing a batch as one statement: atomic, and only if the head is where the batch expects it.

use std::collections::BTreeMap;

use tokio_postgres::types::ToSql;

use crate::postgres::rows::{ChainTail, to_sql};
use crate::store::{Batch, BatchRow, ChainStoreError, OpenTableChange};

/// A batch in the form in which it is sent.
pub(crate) struct WireBatch {
    pub(crate) sql: String,
    values: Vec<Box<dyn ToSql + Sync>>,
}

impl WireBatch {
    /// A batch of entries behind `tail`.
    pub(crate) fn new(batch: &Batch, chain: i32, tail: &ChainTail) -> Self {
        let mut sent = Self { sql: String::new(), values: Vec::new() };
        let parts = [
            sent.ahead(batch, chain, tail),
            sent.written(&batch.entries),
            sent.mentioned(&batch.entries),
            sent.claimed(&batch.entries),
            sent.lives(&batch.entries),
            sent.forgotten(&batch.forget),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        sent.sql = format!("WITH {} SELECT count(*) FROM ahead", parts.join(",\n"));
        sent
    }

    pub(crate) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(AsRef::as_ref).collect()
    }

    fn value(&mut self, value: impl ToSql + Sync + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    /// Moves the head if it has not moved: according to the table `head`, the record itself, and the fence. The rest of the
    /// statement depends on this.
    fn ahead(&mut self, batch: &Batch, chain: i32, tail: &ChainTail) -> Option<String> {
        let before = tail.rows.first()?;
        let after = batch.entries.last().map_or(before, |entry| &entry.row);
        let chain = self.value(chain);
        let (seq, hash) = (self.value(to_sql(before.seq)), self.value(before.hash.clone()));
        let fence = self.value(tail.fence);
        let (new_seq, new_hash) = (self.value(to_sql(after.seq)), self.value(after.hash.clone()));
        let seal =
            if batch.entries.is_empty() { tail.seal.clone() } else { batch.seal.clone().unwrap_or_default() };
        let seal = self.value(seal);
        Some(format!(
            "ahead AS (
                UPDATE ringfence.head SET seq = {new_seq}, hash = {new_hash}, seal = {seal}
                WHERE chain = {chain} AND seq = {seq} AND hash = {hash} AND fence = {fence} AND aside IS NULL
                    AND EXISTS (SELECT FROM ringfence.record r WHERE r.chain = {chain} AND r.seq = {seq} AND r.hash = {hash})
                RETURNING chain)"
        ))
    }

    fn written(&mut self, entries: &[BatchRow]) -> Option<String> {
        if entries.is_empty() {
            return None;
        }
        let numbers: Vec<i64> = entries.iter().map(|entry| to_sql(entry.row.seq)).collect();
        let column =
            |of: fn(&BatchRow) -> &String| entries.iter().map(|entry| of(entry).clone()).collect::<Vec<_>>();
        let numbers = self.value(numbers);
        let texts = [
            column(|entry| &entry.row.time),
            column(|entry| &entry.row.kind),
            column(|entry| &entry.row.ids),
            column(|entry| &entry.row.digest),
            column(|entry| &entry.row.hash),
        ];
        let texts: Vec<String> =
            texts.into_iter().map(|text| format!("{}::text[]", self.value(text))).collect();
        let bodies: Vec<Option<String>> = entries.iter().map(|entry| entry.row.body.clone()).collect();
        let bodies = self.value(bodies);
        Some(format!(
            "written AS (
                INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash, body)
                SELECT ahead.chain, new.* FROM ahead, unnest({numbers}::bigint[], {}, {bodies}::text[])
                    AS new (seq, time, kind, ids, digest, hash, body)
                ORDER BY new.seq
                RETURNING chain, seq, place, ids)",
            texts.join(", ")
        ))
    }

    fn mentioned(&mut self, entries: &[BatchRow]) -> Option<String> {
        entries.iter().any(|entry| entry.mentions().next().is_some()).then(|| {
            "mentioned AS (
                INSERT INTO ringfence.mention (id, place, chain, seq)
                SELECT DISTINCT id, place, chain, seq FROM written, string_to_table(ids, ' ') AS id WHERE id <> '')"
                .to_owned()
        })
    }

    /// Sorted, so that two batches with the same claims cannot deadlock.
    fn claimed(&mut self, entries: &[BatchRow]) -> Option<String> {
        let claims: BTreeMap<&str, i64> = entries
            .iter()
            .filter_map(|entry| Some((entry.claim.as_deref()?, to_sql(entry.row.seq))))
            .collect();
        if claims.is_empty() {
            return None;
        }
        let (keys, numbers): (Vec<String>, Vec<i64>) =
            claims.into_iter().map(|(key, seq)| (key.to_owned(), seq)).unzip();
        let (keys, numbers) = (self.value(keys), self.value(numbers));
        Some(format!(
            "claimed AS (
                INSERT INTO ringfence.claim (key, chain, seq)
                SELECT new.key, ahead.chain, new.seq FROM ahead, unnest({keys}::text[], {numbers}::bigint[]) AS new (key, seq)
                ORDER BY new.key)"
        ))
    }

    fn lives(&mut self, entries: &[BatchRow]) -> Option<String> {
        let (opened, closed) = changes(entries);
        let mut parts = Vec::new();
        if !opened.is_empty() {
            let (ids, numbers): (Vec<String>, Vec<i64>) = opened.into_iter().unzip();
            let (ids, numbers) = (self.value(ids), self.value(numbers));
            parts.push(format!(
                "opened AS (
                    INSERT INTO ringfence.open (id, chain, seq)
                    SELECT new.id, ahead.chain, new.seq FROM ahead, unnest({ids}::text[], {numbers}::bigint[]) AS new (id, seq)
                    ORDER BY new.id ON CONFLICT DO NOTHING)"
            ));
        }
        if !closed.is_empty() {
            let ids = self.value(closed);
            parts.push(format!(
                "closed AS (DELETE FROM ringfence.open USING ahead WHERE open.id = ANY({ids}::text[]))"
            ));
        }
        (!parts.is_empty()).then(|| parts.join(",\n"))
    }

    fn forgotten(&mut self, forget: &[u64]) -> Option<String> {
        if forget.is_empty() {
            return None;
        }
        let numbers: Vec<i64> = forget.iter().copied().map(to_sql).collect();
        let numbers = self.value(numbers);
        Some(format!(
            "forgotten AS (
                UPDATE ringfence.record SET body = NULL FROM ahead
                WHERE record.chain = ahead.chain AND record.seq = ANY({numbers}::bigint[]))"
        ))
    }
}

/// The net effect of a batch on the table `open`: parts of one statement do not see each other's changes.
fn changes(entries: &[BatchRow]) -> (BTreeMap<String, i64>, Vec<String>) {
    let (mut opened, mut closed) = (BTreeMap::new(), Vec::new());
    for entry in entries {
        match &entry.life {
            Some(OpenTableChange::Opens(id)) => {
                opened.entry(id.clone()).or_insert(to_sql(entry.row.seq));
            }
            Some(OpenTableChange::Closes(id)) => {
                opened.remove(id);
                closed.push(id.clone());
            }
            None => {}
        }
    }
    (opened, closed)
}

/// The first claim that the batch itself makes twice.
pub(crate) fn check_claims(batch: &Batch) -> Result<(), ChainStoreError> {
    let mut seen = std::collections::HashSet::new();
    match batch.entries.iter().filter_map(|entry| entry.claim.as_ref()).find(|key| !seen.insert(key.as_str()))
    {
        Some(key) => Err(ChainStoreError::Taken { key: key.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Row;

    fn entry(seq: u64, life: OpenTableChange) -> BatchRow {
        let row = Row {
            seq,
            time: String::new(),
            kind: String::new(),
            ids: String::new(),
            digest: String::new(),
            body: None,
            hash: String::new(),
        };
        BatchRow { row, claim: None, life: Some(life) }
    }

    #[test]
    fn what_opens_and_closes_in_one_batch_is_closed() {
        let opens = |seq, id: &str| entry(seq, OpenTableChange::Opens(id.to_owned()));
        let closes = |seq, id: &str| entry(seq, OpenTableChange::Closes(id.to_owned()));
        let (opened, closed) =
            changes(&[opens(1, "a"), opens(2, "b"), opens(3, "b"), closes(4, "a"), closes(5, "c")]);
        assert_eq!(opened.into_iter().collect::<Vec<_>>(), [("b".to_owned(), 2)]);
        assert_eq!(closed, ["a", "c"]);
    }
}
