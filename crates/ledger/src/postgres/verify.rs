//! Every chain of a database, and what they say about each other.

use std::collections::HashSet;

use ringfence_types::ChainId;

use crate::chain::{Break, Flaw, Head};
use crate::postgres::address::Address;
use crate::postgres::link::{Link, Purpose};
use crate::postgres::rows::{PostgresRows, chain_id, from_sql, get, to_sql};
use crate::postgres::schema;
use crate::store::{Rows as _, StoreError};
use crate::verify::{Expected, Verification, VerifyError, verify_links, verify_order};

/// Walks every chain in the database at `address` that was not put aside. Every head that one chain has
/// witnessed must still be in the other.
pub fn verify_database(address: &Address) -> Result<Vec<Verification>, VerifyError> {
    let mut link = Link::new(address.clone(), Purpose::Read)?;
    link.connect()?;
    schema::check(&mut link)?;
    let mut rows = PostgresRows::new(link, 0);
    let known = known(&rows)?;
    let mut verified = Vec::new();
    let mut witnessed = Vec::new();
    for chain in &known {
        rows.chain = chain.number;
        let expected = Expected { head: Some(&chain.head), ..Expected::default() };
        let (verification, seen) = verify_links(&rows, expected).map_err(|error| chain.broken(error))?;
        witnessed.extend(seen.into_iter().map(|(other, head)| Sight { by: chain.id.clone(), other, head }));
        verified.push(verification);
    }
    witnessed.iter().try_for_each(|sight| check_sight(&rows, &known, sight))?;
    let incomplete = check_order(&rows)?;
    // Nobody can say of which chain a transaction is; so it is said with the first.
    if let Some(first) = verified.first_mut() {
        first.incomplete = incomplete;
    }
    Ok(verified)
}

struct Known {
    number: i32,
    id: String,
    node: String,
    head: Head,
}

impl Known {
    fn broken(&self, source: VerifyError) -> VerifyError {
        VerifyError::Chain { node: self.node.clone(), chain: self.id.clone(), source: Box::new(source) }
    }
}

/// That chain `by` has seen where chain `other` was.
struct Sight {
    by: String,
    other: ChainId,
    head: Head,
}

fn known(rows: &PostgresRows) -> Result<Vec<Known>, StoreError> {
    let sql = "SELECT chain, id, node, seq, hash FROM ringfence.head WHERE aside IS NULL ORDER BY chain";
    let known = rows.read(sql, &[])?;
    known
        .iter()
        .map(|row| {
            let head = Head { seq: from_sql(get(row, 3)?), hash: get(row, 4)? };
            Ok(Known { number: get(row, 0)?, id: get(row, 1)?, node: get(row, 2)?, head })
        })
        .collect()
}

fn check_sight(rows: &PostgresRows, known: &[Known], sight: &Sight) -> Result<(), VerifyError> {
    let unwitnessed = |seq| {
        let what = Flaw::Unwitnessed { by: sight.by.clone(), head: sight.head.to_string() };
        VerifyError::Broken(Break { seq, what })
    };
    let Some(chain) = known.iter().find(|chain| chain_id(chain.id.clone()).as_ref() == Some(&sight.other))
    else {
        if is_aside(rows, &sight.other)? {
            return Ok(());
        }
        let gone = VerifyError::Chain {
            node: String::new(),
            chain: sight.other.to_string(),
            source: Box::new(unwitnessed(sight.head.seq)),
        };
        return Err(gone);
    };
    let sql = "SELECT seq FROM ringfence.record WHERE chain = $1 AND seq = $2 AND hash = $3";
    let found = rows.read(sql, &[&chain.number, &to_sql(sight.head.seq), &sight.head.hash])?;
    if found.is_empty() { Err(chain.broken(unwitnessed(chain.head.seq.min(sight.head.seq)))) } else { Ok(()) }
}

fn is_aside(rows: &PostgresRows, chain: &ChainId) -> Result<bool, StoreError> {
    let sql = "SELECT chain FROM ringfence.head WHERE id = $1 AND aside IS NOT NULL";
    Ok(!rows.read(sql, &[&chain.as_str()])?.is_empty())
}

fn check_order(rows: &PostgresRows) -> Result<Vec<ringfence_types::TransactionId>, VerifyError> {
    let mut checked = Ok(Vec::new());
    rows.at_once(&mut || checked = order_and_open(rows))?;
    checked
}

/// What is open by the records of all chains is what the table says.
fn order_and_open(rows: &PostgresRows) -> Result<Vec<ringfence_types::TransactionId>, VerifyError> {
    let (incomplete, open) = verify_order(rows)?;
    let said = rows.read("SELECT id FROM ringfence.open", &[])?;
    let said: Result<HashSet<String>, StoreError> = said.iter().map(|row| get(row, 0)).collect();
    if said? == open {
        return Ok(incomplete);
    }
    let what = Flaw::Index { table: "open".to_owned() };
    Err(VerifyError::Broken(Break { seq: 0, what }))
}
