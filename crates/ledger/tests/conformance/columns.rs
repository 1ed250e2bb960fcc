//! Every table and every column of the database: one mutation each, by the owner of the tables, and the verifier says so on every
//! node. A column that is added without a mutation here makes the test fail.

use std::collections::BTreeSet;

use ringfence_ledger::{ApprovalAnswer, ExpectedHead, verify_database};

use crate::events::{answered, asked, granted, ids, intent, settled};
use crate::tampering::Nodes;

/// What becomes of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerifierAnswer {
    Reported,
    /// The tables are refused before anything is read.
    Refused,
    /// `docs/postgres.md` says why nothing hangs on it.
    Trusted,
}

struct Mutation {
    table: &'static str,
    column: &'static str,
    set: &'static str,
    answer: VerifierAnswer,
}

const fn mutation(table: &'static str, column: &'static str, set: &'static str) -> Mutation {
    Mutation { table, column, set, answer: VerifierAnswer::Reported }
}

/// `$BETA`: the number of the chain that is attacked; `$ALPHA`: that of the other.
const COLUMNS: &[Mutation] = &[
    Mutation {
        answer: VerifierAnswer::Refused,
        ..mutation("schema", "version", "UPDATE ringfence.schema SET version = 99")
    },
    mutation("head", "chain", "UPDATE ringfence.head SET chain = DEFAULT WHERE chain = $BETA"),
    mutation(
        "head",
        "id",
        "UPDATE ringfence.head SET id = 'ch_000000000000000000000000' WHERE chain = $BETA",
    ),
    mutation("head", "node", "UPDATE ringfence.head SET node = 'delta' WHERE chain = $BETA"),
    mutation("head", "seq", "UPDATE ringfence.head SET seq = seq - 1 WHERE chain = $BETA"),
    mutation("head", "hash", "UPDATE ringfence.head SET hash = repeat('0', 64) WHERE chain = $BETA"),
    Mutation {
        answer: VerifierAnswer::Trusted,
        ..mutation("head", "fence", "UPDATE ringfence.head SET fence = fence + 7 WHERE chain = $BETA")
    },
    mutation("head", "seal", "UPDATE ringfence.head SET seal = reverse(seal) WHERE chain = $BETA"),
    mutation("head", "aside", "UPDATE ringfence.head SET aside = 'x' WHERE chain = $BETA"),
    mutation("record", "chain", "UPDATE ringfence.record SET chain = 99 WHERE chain = $BETA AND seq = 3"),
    mutation("record", "seq", "UPDATE ringfence.record SET seq = 99 WHERE chain = $BETA AND seq = 3"),
    mutation(
        "record",
        "place",
        "UPDATE ringfence.record SET place = DEFAULT WHERE chain = $BETA AND seq = 3",
    ),
    mutation(
        "record",
        "time",
        "UPDATE ringfence.record SET time = '2020-01-01T00:00:00.000000Z' WHERE chain = $BETA AND seq = 3",
    ),
    mutation(
        "record",
        "kind",
        "UPDATE ringfence.record SET kind = 'call-settled' WHERE chain = $BETA AND seq = 3",
    ),
    mutation("record", "ids", "UPDATE ringfence.record SET ids = 'tx_1' WHERE chain = $BETA AND seq = 3"),
    mutation(
        "record",
        "digest",
        "UPDATE ringfence.record SET digest = reverse(digest) WHERE chain = $BETA AND seq = 3",
    ),
    mutation(
        "record",
        "hash",
        "UPDATE ringfence.record SET hash = reverse(hash) WHERE chain = $BETA AND seq = 3",
    ),
    mutation(
        "record",
        "body",
        "UPDATE ringfence.record SET body = body || ' ' WHERE chain = $BETA AND seq = 3",
    ),
    mutation("record", "body", "UPDATE ringfence.record SET body = NULL WHERE chain = $BETA AND seq = 3"),
    mutation(
        "mention",
        "id",
        "UPDATE ringfence.mention SET id = id || 'x' WHERE chain = $BETA AND id LIKE 'tx_%'",
    ),
    mutation(
        "mention",
        "place",
        "UPDATE ringfence.mention SET place = place + 1000000 WHERE chain = $BETA AND id LIKE 'tx_%'",
    ),
    mutation(
        "mention",
        "chain",
        "UPDATE ringfence.mention SET chain = $ALPHA WHERE chain = $BETA AND id LIKE 'tx_%'",
    ),
    mutation("mention", "seq", "UPDATE ringfence.mention SET seq = 2 WHERE chain = $BETA AND id LIKE 'tx_%'"),
    mutation("claim", "key", "UPDATE ringfence.claim SET key = key || 'x' WHERE chain = $BETA"),
    mutation("claim", "chain", "UPDATE ringfence.claim SET chain = $ALPHA WHERE chain = $BETA"),
    mutation("claim", "seq", "UPDATE ringfence.claim SET seq = 2 WHERE chain = $BETA"),
    mutation("open", "id", "UPDATE ringfence.open SET id = id || 'x'"),
    mutation("open", "chain", "UPDATE ringfence.open SET chain = $ALPHA"),
    mutation("open", "seq", "UPDATE ringfence.open SET seq = seq + 1"),
];

/// Rows that go, come or change places.
const ROWS: &[Mutation] = &[
    mutation("head", "", "DELETE FROM ringfence.head WHERE chain = $BETA"),
    mutation("record", "", "DELETE FROM ringfence.record WHERE chain = $BETA AND seq = 3"),
    mutation("record", "", "DELETE FROM ringfence.record WHERE chain = $BETA AND seq = (SELECT seq FROM ringfence.head WHERE chain = $BETA)"),
    mutation("mention", "", "DELETE FROM ringfence.mention WHERE chain = $BETA"),
    mutation("claim", "", "DELETE FROM ringfence.claim WHERE chain = $BETA"),
    mutation("open", "", "DELETE FROM ringfence.open"),
    mutation("head", "", "INSERT INTO ringfence.head (id, node, seq, hash, aside) VALUES ('ch_000000000000000000000000', 'beta', 1, '', 'x')"),
    mutation("head", "", "INSERT INTO ringfence.head (id, node, seq, hash) VALUES ('ch_000000000000000000000000', 'delta', 1, '')"),
    mutation("record", "", "INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash) VALUES ($BETA, 99, '', 'x', '', '', '')"),
    mutation("record", "", "INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash) VALUES ($BETA, -1, '', 'x', '', '', '')"),
    mutation("mention", "", "INSERT INTO ringfence.mention SELECT 'tx_other', place, chain, seq FROM ringfence.record WHERE chain = $BETA AND seq = 3"),
    mutation("claim", "", "INSERT INTO ringfence.claim VALUES ('decided tx_1', $BETA, 3)"),
    mutation("open", "", "INSERT INTO ringfence.open VALUES ('tx_1', $BETA, 3)"),
    // The rows of two nodes are exchanged.
    mutation("record", "", "UPDATE ringfence.record SET chain = CASE chain WHEN $BETA THEN 999 ELSE chain END WHERE seq = 2;
        UPDATE ringfence.record SET chain = $BETA WHERE chain = $ALPHA AND seq = 2; UPDATE ringfence.record SET chain = $ALPHA WHERE chain = 999"),
    mutation("head", "", "UPDATE ringfence.head SET node = 'x' WHERE chain = $BETA; UPDATE ringfence.head SET node = 'beta' WHERE chain = $ALPHA;
        UPDATE ringfence.head SET node = 'alpha' WHERE chain = $BETA"),
    // An old checkpoint again, at the end.
    mutation("record", "", "INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash, body)
        SELECT chain, (SELECT seq + 1 FROM ringfence.head WHERE chain = $BETA), time, kind, ids, digest, hash, body
        FROM ringfence.record WHERE chain = $BETA AND kind = 'checkpoint-signed' ORDER BY seq LIMIT 1"),
];

const TABLES: [&str; 6] = ["schema", "head", "record", "mention", "claim", "open"];

fn keep(nodes: &Nodes) {
    let copies = TABLES.map(|table| format!("CREATE TABLE public.{table} AS TABLE ringfence.{table}"));
    nodes.database.sql(&copies.join("; "));
}

fn restore(nodes: &Nodes) {
    let back = TABLES.map(|table| {
        format!("TRUNCATE ringfence.{table}; INSERT INTO ringfence.{table} OVERRIDING SYSTEM VALUE TABLE public.{table}")
    });
    nodes.database.sql(&back.join("; "));
}

#[test]
fn every_column_and_row_is_held_by_something_signed() {
    let nodes = Nodes::new();
    let (beta, alpha) = (nodes.open("beta"), nodes.open("alpha"));
    let (running, over) = (ids(), ids());
    for (ledger, event) in [
        (&beta, asked(&over)),
        (&alpha, answered(&over, ApprovalAnswer::Session)),
        (&alpha, granted(&over, Some(3)).1),
        (&beta, intent(&over)),
        (&beta, settled(&over)),
        (&beta, intent(&running)),
    ] {
        drop(ledger.append(&event).unwrap());
    }
    drop((alpha, beta));
    nodes.is_whole((2, 0));
    keep(&nodes);
    let number =
        |node| nodes.database.sql(&format!("SELECT chain FROM ringfence.head WHERE node = '{node}'"));
    let (beta, alpha) = (number("beta"), number("alpha"));
    for mutation in COLUMNS.iter().chain(ROWS) {
        let set = mutation.set.replace("$BETA", &beta).replace("$ALPHA", &alpha);
        nodes.database.sql(&set);
        for by in ["alpha", "beta"] {
            let answer = match verify_database(&nodes.node(by), ExpectedHead::default()) {
                Err(_) => VerifierAnswer::Refused,
                Ok(found) if found.problems.is_empty() => VerifierAnswer::Trusted,
                Ok(_) => VerifierAnswer::Reported,
            };
            assert_eq!(answer, mutation.answer, "{by}: {} {}: {set}", mutation.table, mutation.column);
        }
        restore(&nodes);
        nodes.is_whole((2, 0));
    }
    let found = nodes.database.sql(
        "SELECT table_name || ' ' || column_name FROM information_schema.columns WHERE table_schema = 'ringfence'",
    );
    let tried: BTreeSet<String> =
        COLUMNS.iter().map(|mutation| format!("{} {}", mutation.table, mutation.column)).collect();
    assert_eq!(found.lines().map(str::to_owned).collect::<BTreeSet<_>>(), tried);
}
