//! What somebody can do who has the rights of a node in the database and not its key. Each attack is done with exactly the rights
//! of `docs/postgres.md`; the control is the database before it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ringfence_ledger::{
    AppendError, ApprovalAnswer, ChainFlaw, ChainHead, ConnectError, DatabaseVerification, Event,
    ExpectedHead, Kind, Ledger, LedgerNode, LedgerOpenError, LedgerSettings, VerifyError, verify_database,
};
use ringfence_types::hex;
use sha2::{Digest as _, Sha256};

use crate::access::granted;
use crate::cluster::{Database, shared, succeeded};
use crate::events::{answered, asked, battery, granted as grant, ids, intent, person, settled};

/// Two nodes with records of their own, each of which has seen the other, and a role with the rights of the manual.
pub(crate) struct Nodes {
    pub(crate) database: Database<'static>,
    pub(crate) role: String,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        let database = shared().database();
        drop(database.open("alpha"));
        let role = granted(&database);
        let nodes = Self { database, role };
        for name in ["alpha", "beta"] {
            let ledger = nodes.open(name);
            (0..3).for_each(|number| drop(ledger.append(&battery(number)).unwrap()));
            ledger.checkpoint().unwrap();
        }
        nodes.open("alpha").append(&battery(9)).map(drop).unwrap();
        nodes.open("alpha").checkpoint().unwrap();
        nodes
    }

    pub(crate) fn node(&self, name: &str) -> LedgerNode {
        self.database.node_as(name, &self.role)
    }

    pub(crate) fn open(&self, name: &str) -> Ledger {
        Ledger::connect(&self.node(name), LedgerSettings::default()).unwrap()
    }

    /// The key of a node, in the hands of an attacker.
    pub(crate) fn key(&self, name: &str) -> ed25519_dalek::SigningKey {
        let text = fs::read_to_string(self.database.state(name).join("node.key")).unwrap();
        let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2).unwrap(), 16).unwrap();
        ed25519_dalek::SigningKey::from_bytes(&std::array::from_fn(byte))
    }

    /// As somebody who has the rights of a node and nothing else.
    pub(crate) fn attack(&self, sql: &str) {
        let sql = format!("SET ROLE {}; {sql}", self.role);
        succeeded(&self.database.cluster.psql(&self.database.name, &sql));
    }

    pub(crate) fn found(&self, by: &str) -> DatabaseVerification {
        verify_database(&self.node(by), ExpectedHead::default()).unwrap()
    }

    /// Everybody finds the database whole, and says how many chains grow and how many were set aside.
    pub(crate) fn is_whole(&self, (growing, aside): (usize, usize)) {
        for by in ["alpha", "beta"] {
            let found = self.found(by);
            assert!(found.problems.is_empty(), "{by}: {:?}", found.problems);
            assert_eq!((found.chains.len(), found.aside.len()), (growing, aside), "{by}");
        }
    }

    /// Every node finds a flaw of this kind in the chain of `node`.
    pub(crate) fn everybody_finds(&self, node: &str, is_it: fn(&ChainFlaw) -> bool) {
        for by in ["alpha", "beta"] {
            let found = self.found(by);
            let is_told = found.problems.iter().any(|problem| match problem {
                VerifyError::Chain { node: named, source, .. } if named == node => {
                    matches!(&**source, VerifyError::Broken(broken) if is_it(&broken.what))
                }
                _ => false,
            });
            assert!(is_told, "{by}: {:?}", found.problems);
        }
    }

    pub(crate) fn chain_of(&self, node: &str) -> String {
        let sql = format!("SELECT id FROM ringfence.head WHERE node = '{node}' ORDER BY chain DESC LIMIT 1");
        self.database.sql(&sql)
    }
}

pub(crate) const SET_ASIDE: &str = "UPDATE ringfence.head SET aside = 'x' WHERE node = 'beta'";

#[test]
fn a_chain_is_not_set_aside_by_a_word_in_a_table() {
    let nodes = Nodes::new();
    nodes.is_whole((2, 0));
    nodes.attack(SET_ASIDE);
    nodes.everybody_finds("beta", |flaw| matches!(flaw, ChainFlaw::SetAside));
    let refused = Ledger::connect(&nodes.node("beta"), LedgerSettings::default());
    assert!(
        matches!(&refused, Err(LedgerOpenError::Connect(error)) if matches!(**error, ConnectError::SetAside { .. })),
        "no new chain begins without a word: {refused:?}"
    );
    // A chain that claims to continue it, of somebody without its key.
    let forger =
        LedgerNode::in_directory(&nodes.database.url(&nodes.role), &nodes.database.state("forger"), "gamma");
    drop(Ledger::connect(&forger.unwrap(), LedgerSettings::default()).unwrap());
    nodes.everybody_finds("beta", |flaw| matches!(flaw, ChainFlaw::SetAside));
    // The node itself can, with its key, and says why.
    nodes
        .node("beta")
        .restart(&LedgerSettings::default(), "somebody wrote into the table", person(0))
        .unwrap();
    nodes.is_whole((3, 1));
    let aside = nodes.found("alpha").aside;
    assert_eq!((aside[0].node.as_str(), aside[0].is_signed), ("beta", true));
    assert_eq!(aside[0].reason.as_deref(), Some("somebody wrote into the table"));
    nodes.open("beta").append(&battery(7)).map(drop).unwrap();
    nodes.is_whole((3, 1));
}

#[test]
fn what_is_in_a_chain_that_was_set_aside_stays_as_it_was() {
    for (what, attack) in [
        ("an emptied body", "UPDATE ringfence.record SET body = NULL WHERE chain = CHAIN AND seq = 3"),
        (
            "a body",
            "UPDATE ringfence.record SET body = replace(body, 'passed', 'failed') WHERE chain = CHAIN",
        ),
        (
            "one more record",
            "INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash) VALUES (CHAIN, 99, '', 'x', '', '', '')",
        ),
        ("one more claim", "INSERT INTO ringfence.claim VALUES ('decided tx_1', CHAIN, 3)"),
    ] {
        let nodes = Nodes::new();
        let number = nodes.database.sql("SELECT chain FROM ringfence.head WHERE node = 'beta'");
        nodes.attack(SET_ASIDE);
        nodes.node("beta").restart(&LedgerSettings::default(), "known", person(0)).unwrap();
        nodes.is_whole((2, 1));
        nodes.attack(&attack.replace("CHAIN", &number));
        for by in ["alpha", "beta"] {
            let problems = nodes.found(by).problems;
            let is_told = problems.iter().any(|problem| {
                matches!(problem, VerifyError::Chain { source, .. }
                    if matches!(&**source, VerifyError::Broken(broken) if broken.what == ChainFlaw::ChangedAside))
            });
            assert!(is_told, "{what}, {by}: {problems:?}");
        }
    }
}

/// Who sets a chain aside signs what is in it. What a role has taken out of it before is told first, and stays told.
#[test]
fn what_was_changed_before_a_chain_was_set_aside_is_told() {
    for (attack, flaw) in [
        ("UPDATE ringfence.record SET body = NULL WHERE chain = CHAIN AND seq = 3", Some("lost its body")),
        ("INSERT INTO ringfence.claim VALUES ('closed tx_1', CHAIN, 3)", Some("`claim`")),
        ("SELECT", None),
    ] {
        let nodes = Nodes::new();
        let number = nodes.database.sql("SELECT chain FROM ringfence.head WHERE node = 'beta'");
        nodes.attack(SET_ASIDE);
        nodes.attack(&attack.replace("CHAIN", &number));
        let problems = nodes.found("alpha").problems;
        let told: Vec<String> = problems.iter().map(|problem| ringfence_types::chain(problem)).collect();
        let is_told = told.iter().any(|text| flaw.is_some_and(|flaw| text.contains(flaw)));
        assert_eq!(is_told, flaw.is_some(), "{told:?}");
        nodes.node("beta").restart(&LedgerSettings::default(), "known", person(0)).unwrap();
        nodes.is_whole((2, 1));
        for by in ["alpha", "beta"] {
            let aside = nodes.found(by).aside.remove(0);
            let problem = aside.problem.unwrap();
            assert!(problem.contains("without its key"), "{problem}");
            match flaw {
                None => assert_eq!((aside.flaw, problem.contains(';')), (None, false), "control: {problem}"),
                Some(flaw) => {
                    assert!(aside.flaw.unwrap().contains(flaw) && problem.contains(flaw), "{problem}")
                }
            }
        }
    }
}

/// The old chain is taken back into use, and the one that continues it is set aside.
#[test]
fn the_chain_before_cannot_be_put_in_the_place_of_the_one_after() {
    let nodes = Nodes::new();
    let old = nodes.chain_of("beta");
    nodes.attack(SET_ASIDE);
    let new = nodes.node("beta").restart(&LedgerSettings::default(), "known", person(0)).unwrap();
    nodes.is_whole((2, 1));
    nodes.attack(&format!(
        "UPDATE ringfence.head SET aside = 'x' WHERE id = '{new}'; UPDATE ringfence.head SET aside = NULL WHERE id = '{old}'"
    ));
    nodes.everybody_finds("beta", |flaw| matches!(flaw, ChainFlaw::SetAside));
    let refused = nodes.open("beta").append(&battery(1));
    assert!(matches!(refused, Err(AppendError::Broken(_))), "the node knows its chain: {refused:?}");
}

/// A record that follows by its hash, as anybody can make it: here a pruning that would explain emptied bodies.
#[test]
fn a_record_that_the_node_did_not_write_is_found() {
    let nodes = Nodes::new();
    let beta = nodes.open("beta");
    let copied = "WITH head AS (SELECT * FROM ringfence.head WHERE node = 'beta'),
        parts AS (SELECT chain, hash AS before, seq + 1 AS seq, '2026-01-02T03:04:05.000000Z' AS time, 'ledger-pruned' AS kind,
            '{\"kind\":\"ledger-pruned\",\"actor\":{\"principal\":\"system\"},\"before\":4,\"records\":1,\"classes\":[\"activity\"],\"ranges\":[[2,2]]}' AS body FROM head),
        digested AS (SELECT *, encode(sha256(convert_to(body, 'UTF8')), 'hex') AS digest FROM parts),
        hashed AS (SELECT *, encode(sha256(convert_to('ringfence ledger v2', 'UTF8') || '\\x00'::bytea || convert_to(
            before || length(seq::text) || ':' || seq || length(time) || ':' || time || length(kind) || ':' || kind ||
            '0:' || length(digest) || ':' || digest, 'UTF8')), 'hex') AS hash FROM digested),
        written AS (INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash, body)
            SELECT chain, seq, time, kind, '', digest, hash, body FROM hashed RETURNING chain, seq, hash)
        UPDATE ringfence.head SET seq = written.seq, hash = written.hash FROM written WHERE head.chain = written.chain";
    nodes.attack(copied);
    nodes.attack("UPDATE ringfence.record SET body = NULL FROM ringfence.head h WHERE h.node = 'beta' AND h.chain = record.chain AND record.seq = 2");
    nodes.everybody_finds("beta", |flaw| matches!(flaw, ChainFlaw::Unsealed));
    let refused = beta.append(&battery(1)).map(drop);
    assert!(matches!(refused, Err(AppendError::Broken(_))), "who has it open: {refused:?}");
    let refused = nodes.open("beta").append(&battery(1)).map(drop);
    assert!(matches!(refused, Err(AppendError::Broken(_))), "who opens it: {refused:?}");
    // It is not witnessed either: nobody is accused later of a head that was never theirs.
    let alpha = nodes.open("alpha");
    alpha.append(&battery(1)).map(drop).unwrap();
    alpha.checkpoint().unwrap();
    nodes.node("beta").restart(&LedgerSettings::default(), "not ours", person(0)).unwrap();
    nodes.is_whole((2, 1));
}

#[test]
fn the_end_in_the_table_is_the_end_of_the_chain() {
    for attack in [
        "UPDATE ringfence.head SET seal = '' WHERE node = 'beta'",
        "UPDATE ringfence.head h SET seq = r.seq, hash = r.hash FROM ringfence.record r WHERE h.node = 'beta' AND r.chain = h.chain AND r.seq = 2",
    ] {
        let nodes = Nodes::new();
        nodes.attack(attack);
        nodes.everybody_finds("beta", |flaw| matches!(flaw, ChainFlaw::Unsealed | ChainFlaw::OtherEnd));
    }
}

#[test]
fn rows_of_a_chain_that_is_not_there_are_found() {
    for (table, attack) in [
        ("claim", "INSERT INTO ringfence.claim VALUES ('revoked gr_1', 99, 1)"),
        ("mention", "INSERT INTO ringfence.mention VALUES ('tx_1', -1, 99, 1)"),
        (
            "record",
            "INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash) VALUES (99, 1, '', 'x', '', '', '')",
        ),
    ] {
        let nodes = Nodes::new();
        nodes.is_whole((2, 0));
        nodes.attack(attack);
        for by in ["alpha", "beta"] {
            let problems = nodes.found(by).problems;
            let is_told = problems
                .iter()
                .any(|found| matches!(found, VerifyError::Stray { table: found } if found == table));
            assert!(is_told, "{table}, {by}: {problems:?}");
        }
    }
}

/// A pruned body is brought back from a copy, and another one goes instead: as many are gone as were pruned.
#[test]
fn a_pruning_explains_exactly_what_it_took() {
    let nodes = Nodes::new();
    let of_beta = "FROM ringfence.head h WHERE h.node = 'beta' AND h.chain = record.chain AND record.seq";
    let kept = nodes.database.sql("SELECT body FROM ringfence.record JOIN ringfence.head h USING (chain) WHERE h.node = 'beta' AND record.seq = 2");
    let beta = nodes.open("beta");
    let now = ringfence_ledger::Timestamp::now();
    let pruning = ringfence_ledger::PruneRequest {
        before: now,
        classes: vec![ringfence_ledger::RetentionClass::Activity],
    };
    assert_eq!(beta.prune(&pruning, &person(0)).unwrap(), 3);
    beta.append(&battery(1)).map(drop).unwrap();
    let last = nodes.database.sql("SELECT seq FROM ringfence.head WHERE node = 'beta'");
    nodes.is_whole((2, 0));
    nodes.attack(&format!("UPDATE ringfence.record SET body = '{kept}' {of_beta} = 2"));
    nodes.is_whole((2, 0));
    nodes.attack(&format!("UPDATE ringfence.record SET body = NULL {of_beta} = {last}"));
    nodes.everybody_finds("beta", |flaw| matches!(flaw, ChainFlaw::BodyGone));
}

/// One flaw does not hide another.
#[test]
fn everything_that_does_not_hold_is_told() {
    let nodes = Nodes::new();
    nodes.attack(SET_ASIDE);
    nodes.attack("UPDATE ringfence.record SET body = NULL FROM ringfence.head h WHERE h.node = 'alpha' AND h.chain = record.chain AND record.seq = 2");
    nodes.everybody_finds("beta", |flaw| matches!(flaw, ChainFlaw::SetAside));
    nodes.everybody_finds("alpha", |flaw| matches!(flaw, ChainFlaw::BodyGone));
}

#[test]
fn a_restarted_chain_does_not_break_the_answers_of_other_nodes() {
    let nodes = Nodes::new();
    let (alpha, beta) = (nodes.open("alpha"), nodes.open("beta"));
    let (answered_there, asked_here, open) = (ids(), ids(), ids());
    for (ledger, event) in [
        (&beta, asked(&answered_there)),
        (&alpha, answered(&answered_there, ApprovalAnswer::Once)),
        (&beta, intent(&answered_there)),
        (&alpha, asked(&asked_here)),
        (&beta, answered(&asked_here, ApprovalAnswer::Session)),
        (&alpha, grant(&asked_here, Some(1)).1),
        (&alpha, intent(&asked_here)),
        (&alpha, settled(&asked_here)),
        (&beta, asked(&open)),
        (&alpha, answered(&open, ApprovalAnswer::Once)),
    ] {
        ledger.append(&event).map(drop).unwrap();
    }
    nodes.is_whole((2, 0));
    drop(beta);
    nodes.attack(SET_ASIDE);
    nodes.node("beta").restart(&LedgerSettings::default(), "known", person(0)).unwrap();
    nodes.is_whole((2, 1));
    alpha.append(&battery(1)).map(drop).unwrap();
    alpha.recover(&|_| false).unwrap();
    nodes.is_whole((2, 1));
}

#[test]
fn a_valid_chain_cannot_be_restarted() {
    let nodes = Nodes::new();
    let refused = nodes.node("beta").restart(&LedgerSettings::default(), "no reason", person(0));
    assert!(matches!(refused, Err(ConnectError::Whole { .. })), "{refused:?}");
    nodes.is_whole((2, 0));
}

#[test]
fn a_second_machine_of_the_same_name_takes_nothing_from_the_first() {
    let nodes = Nodes::new();
    let url = nodes.database.url(&nodes.role);
    let elsewhere = nodes.database.state("elsewhere");
    let second = LedgerNode::in_directory(&url, &elsewhere, "beta").unwrap();
    let refused = Ledger::connect(&second, LedgerSettings::default());
    let Err(LedgerOpenError::Connect(error)) = refused else { panic!("{refused:?}") };
    let hint = error.hint().unwrap();
    assert!(matches!(*error, ConnectError::NameTaken { .. }), "{error:?}");
    assert!(hint.contains("node = ") && !hint.contains("restart"), "{hint}");
    let refused = second.restart(&LedgerSettings::default(), "I was told to", person(0));
    assert!(matches!(refused, Err(ConnectError::NameTaken { .. })), "{refused:?}");
    nodes.open("beta").append(&battery(1)).map(drop).unwrap();
    // It gets a name of its own in the same directory.
    let renamed = LedgerNode::in_directory(&url, &elsewhere, "delta").unwrap();
    drop(Ledger::connect(&renamed, LedgerSettings::default()).unwrap().append(&battery(1)).unwrap());
    nodes.is_whole((3, 0));
    let kept = LedgerNode::in_directory(&url, &elsewhere, "beta");
    assert!(matches!(kept, Err(ConnectError::OtherNode { .. })), "{kept:?}");
}

/// Without its key a chain can only be set aside by the word of its node. Everybody else has to accept that for themselves.
#[test]
fn a_chain_whose_key_is_lost_is_accepted_by_each_node_for_itself() {
    let nodes = Nodes::new();
    let old = nodes.chain_of("beta");
    fs::remove_file(nodes.database.state("beta").join("node.key")).unwrap();
    let refused = Ledger::connect(&nodes.node("beta"), LedgerSettings::default());
    assert!(
        matches!(&refused, Err(LedgerOpenError::Connect(error)) if matches!(**error, ConnectError::Key(..)))
    );
    nodes.node("beta").restart(&LedgerSettings::default(), "the key is lost", person(0)).unwrap();
    nodes.open("beta").append(&battery(1)).map(drop).unwrap();
    assert!(nodes.found("beta").problems.is_empty(), "{:?}", nodes.found("beta").problems);
    assert_eq!(nodes.found("alpha").problems.len(), 1, "another node has only the word of a stranger");
    let event = nodes.node("alpha").acknowledging(&old, "asked them", person(0)).unwrap();
    assert!(matches!(event, Event::ChainAcknowledged { .. }));
    nodes.open("alpha").append(&event).map(drop).unwrap();
    nodes.is_whole((2, 1));
    let aside = nodes.found("alpha").aside;
    assert!(!aside[0].is_signed);
}

/// An attacker who spoils the seal of a chain keeps it from being witnessed. That it was tried stays in the ledger after the seal
/// is back.
#[test]
fn a_head_that_is_not_witnessed_is_recorded() {
    let nodes = Nodes::new();
    let chain = nodes.chain_of("beta");
    let refused = || -> usize {
        let records =
            nodes.open("alpha").reader().unwrap().of_kinds(&[Kind::ChainWitnessRefused], 10).unwrap();
        let is_beta = |event: &Event| matches!(event, Event::ChainWitnessRefused { chain: of, .. } if of.as_str() == chain);
        records.iter().filter(|record| is_beta(&record.event)).count()
    };
    let grow = |number| {
        nodes.open("beta").append(&battery(number)).map(drop).unwrap();
        nodes.database.sql("SELECT seal FROM ringfence.head WHERE node = 'beta'")
    };
    grow(1);
    nodes.open("alpha").checkpoint().unwrap();
    assert_eq!(refused(), 0, "control");
    let seal = grow(2);
    nodes.attack("UPDATE ringfence.head SET seal = 'x' WHERE node = 'beta'");
    nodes.open("alpha").checkpoint().unwrap();
    nodes.open("alpha").checkpoint().unwrap();
    assert_eq!(refused(), 1, "one head, one record");
    nodes.attack(&format!("UPDATE ringfence.head SET seal = '{seal}' WHERE node = 'beta'"));
    nodes.open("alpha").checkpoint().unwrap();
    nodes.is_whole((2, 0));
    assert_eq!(refused(), 1);
    // A record that names a key, without its body, keeps the chain from being witnessed as well.
    grow(3);
    nodes.attack(
        "UPDATE ringfence.record r SET body = NULL FROM ringfence.head h
         WHERE r.chain = h.chain AND h.node = 'beta' AND r.seq = 1",
    );
    nodes.open("alpha").checkpoint().unwrap();
    assert_eq!(refused(), 2);
}

#[test]
fn a_node_without_its_key_is_told_so_by_verify() {
    let nodes = Nodes::new();
    nodes.is_whole((2, 0));
    let key = nodes.database.state("beta").join("node.key");
    let kept = fs::read(&key).unwrap();
    let is_told = || {
        let is_key = |problem: &VerifyError| match problem {
            VerifyError::Chain { source, .. } => {
                matches!(&**source, VerifyError::Broken(broken) if matches!(broken.what, ChainFlaw::Key { .. }))
            }
            _ => false,
        };
        nodes.found("beta").problems.iter().any(is_key)
    };
    fs::write(&key, fs::read(nodes.database.state("alpha").join("node.key")).unwrap()).unwrap();
    assert!(is_told(), "the key of another node");
    fs::remove_file(&key).unwrap();
    assert!(is_told());
    assert!(nodes.found("alpha").problems.is_empty(), "the chain itself is whole");
    fs::write(&key, kept).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    nodes.is_whole((2, 0));
}

/// Somebody who rules the database and no node.
#[test]
fn a_node_knows_after_a_restart_what_it_has_signed() {
    let nodes = Nodes::new();
    nodes.database.sql(
        "DELETE FROM ringfence.record USING ringfence.head h WHERE h.chain = record.chain AND record.seq > 2;
         UPDATE ringfence.head h SET seq = r.seq, hash = r.hash FROM ringfence.record r WHERE r.chain = h.chain AND r.seq = 2",
    );
    for name in ["alpha", "beta"] {
        let broken = nodes.open(name).broken();
        assert!(
            matches!(&broken, Some(broken) if matches!(broken.what, ChainFlaw::RolledBack { .. })),
            "{broken:?}"
        );
    }
    nodes
        .database
        .sql("TRUNCATE ringfence.head, ringfence.record, ringfence.mention, ringfence.claim, ringfence.open");
    let refused = Ledger::connect(&nodes.node("beta"), LedgerSettings::default());
    assert!(
        matches!(&refused, Err(LedgerOpenError::Connect(error)) if matches!(**error, ConnectError::Gone { .. }))
    );
    assert!(!nodes.found("beta").problems.is_empty());
}

#[test]
fn what_is_known_from_elsewhere_may_be_of_any_node() {
    let nodes = Nodes::new();
    let beta = nodes.open("beta");
    let (head, kept) =
        (beta.reader().unwrap().head().unwrap().unwrap(), beta.checkpoint().unwrap().unwrap().checkpoint);
    let check =
        |expected: ExpectedHead<'_>| verify_database(&nodes.node("alpha"), expected).unwrap().problems;
    assert!(check(ExpectedHead { head: Some(&head), ..ExpectedHead::default() }).is_empty());
    assert!(
        check(ExpectedHead { checkpoint: Some(&kept), key: Some(&kept.key), ..ExpectedHead::default() })
            .is_empty()
    );
    let mut other = head.clone();
    other.hash = "0".repeat(64);
    let problems = check(ExpectedHead { head: Some(&other), ..ExpectedHead::default() });
    assert!(matches!(problems[..], [VerifyError::NoSuchHead(_)]), "{problems:?}");
    let problems = check(ExpectedHead { key: Some(&"0".repeat(64)), ..ExpectedHead::default() });
    assert!(matches!(problems[..], [VerifyError::OtherKey]), "{problems:?}");
}

/// A record behind the last one of a chain, with the right hash: everybody can compute it.
fn appended(nodes: &Nodes, node: &str, event: &Event) {
    let of_chain = format!("chain = (SELECT chain FROM ringfence.head WHERE node = '{node}')");
    let last = format!("SELECT seq || ' ' || hash || ' ' || chain FROM ringfence.record WHERE {of_chain}");
    let last = nodes.database.sql(&format!("{last} ORDER BY seq DESC LIMIT 1"));
    let [seq, before, chain] = last.split(' ').collect::<Vec<_>>()[..] else { panic!("{last}") };
    let seq = seq.parse::<u64>().unwrap() + 1;
    let (body, time) = (serde_json::to_string(event).unwrap(), "2026-01-02T03:04:05.000000Z");
    let (kind, digest) = (event.kind().word(), hex(Sha256::digest(&body)));
    let mut bytes = [b"ringfence ledger v2\0", before.as_bytes()].concat();
    for field in [seq.to_string().as_str(), time, kind, "", &digest] {
        bytes.extend(format!("{}:{field}", field.len()).bytes());
    }
    let hash = hex(Sha256::digest(bytes));
    nodes.attack(&format!(
        "INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash, body)
         VALUES ({chain}, {seq}, '{time}', '{kind}', '', '{digest}', '{hash}', '{body}')"
    ));
}

const ALPHA_EMPTIED: &str = "UPDATE ringfence.record SET body = NULL
    WHERE seq = NUMBER AND chain = (SELECT chain FROM ringfence.head WHERE node = 'alpha')";

/// A client that breaks the chain of a witness makes its node set it aside. That takes back nothing of what it has seen.
#[test]
fn what_a_chain_that_was_set_aside_has_witnessed_counts() {
    // Of a record in the middle, and of the one that names the key.
    for number in ["4", "1"] {
        let nodes = Nodes::new();
        let chain = nodes.chain_of("beta");
        nodes.attack(&ALPHA_EMPTIED.replace("NUMBER", number));
        let is_lost = |problem: &VerifyError| matches!(problem, VerifyError::Chain { chain: lost, .. } if *lost == chain);
        assert!(!nodes.found("alpha").problems.iter().any(is_lost), "control: it is there");
        nodes.database.sql(
            "DELETE FROM ringfence.record USING ringfence.head h WHERE h.node = 'beta' AND h.chain = record.chain;
             DELETE FROM ringfence.head WHERE node = 'beta'",
        );
        nodes.node("alpha").restart(&LedgerSettings::default(), "an empty body", person(0)).unwrap();
        for by in ["alpha", "gamma"] {
            let found = nodes.found(by);
            // Of a chain without its first record only its own node knows the key.
            let is_known = by == "alpha" || number == "4";
            assert_eq!(found.problems.iter().any(is_lost), is_known, "{number} {by}: {:?}", found.problems);
        }
    }
}

/// A role that appends can write into the chain before it is set aside, and so accuse another node.
#[test]
fn what_was_written_without_the_key_witnesses_nothing() {
    let nodes = Nodes::new();
    let head = ChainHead { seq: 99, hash: "0".repeat(64) };
    let chain = serde_json::from_value(serde_json::Value::String(nodes.chain_of("beta"))).unwrap();
    let key = hex(nodes.key("beta").verifying_key().to_bytes());
    appended(&nodes, "alpha", &Event::ChainWitnessed { chain, head, key });
    let found = nodes.found("alpha");
    assert!(!found.problems.is_empty(), "control: nobody has signed it");
    nodes.node("alpha").restart(&LedgerSettings::default(), "a forged record", person(0)).unwrap();
    nodes.is_whole((2, 1));
}
