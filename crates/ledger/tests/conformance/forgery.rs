//! What an attacker can do who has the rights of a node, an own key, and knows the format: chains made by hand that speak
//! about others. Each attack is done with exactly the rights of `docs/postgres.md`.

use std::fs;

use ringfence_ledger::{
    AppendError, ApprovalAnswer, ChainFlaw, ChainHead, Event, ExpectedHead, GrantRecord, Ledger, LedgerNode,
    LedgerSettings, LifecycleError, ProcessId, PruneRequest, RetentionClass, Timestamp, VerifyError,
    verify_database,
};
use ringfence_types::{ChainId, LeakAction};

use crate::events::{
    Ids, answered, asked, battery, granted, ids, intent, intent_by, person, settled, started,
};
use crate::forged::{Beginning, ForgedChain, continued};
use crate::tampering::{Nodes, SET_ASIDE};

/// A node of the attacker's own, in the same database.
fn attacker(nodes: &Nodes) -> LedgerNode {
    LedgerNode::in_directory(&nodes.database.url(&nodes.role), &nodes.database.state("eve"), "eve").unwrap()
}

/// The digest of a chain that was set aside, as every role that reads can compute it.
fn digest_of(nodes: &Nodes, chain: &ChainId) -> String {
    match attacker(nodes).acknowledging(chain.as_str(), "to learn its digest", person(9)).unwrap() {
        Event::ChainAcknowledged { digest, .. } => digest,
        other => panic!("{other:?}"),
    }
}

fn chain_id(text: &str) -> ChainId {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).unwrap()
}

fn set_aside(nodes: &Nodes, chain: &ChainId) {
    nodes.attack(&format!("UPDATE ringfence.head SET aside = 'x' WHERE id = '{chain}'"));
}

/// A chain of the attacker with `fill`, set aside with its own key in every form: `verify` accepts that.
fn planted_aside(nodes: &Nodes, fill: impl FnOnce(&mut ForgedChain)) -> ForgedChain {
    let mut old = ForgedChain::new("gamma", 1, |_| Beginning::default());
    fill(&mut old);
    nodes.attack(&old.sql());
    set_aside(nodes, &old.chain);
    let digest = digest_of(nodes, &old.chain);
    let new = ForgedChain::new("gamma", 1, |new| Beginning {
        continues: Some(old.sets_aside(&old.chain, &digest, new)),
        ..Beginning::default()
    });
    nodes.attack(&new.sql());
    new
}

fn finds(nodes: &Nodes, by: &str, is_it: impl Fn(&ChainFlaw) -> bool) {
    let found = nodes.found(by);
    let flaw = |problem: &VerifyError| match problem {
        VerifyError::Broken(broken) => Some(broken.what.clone()),
        VerifyError::Chain { source, .. } => match &**source {
            VerifyError::Broken(broken) => Some(broken.what.clone()),
            _ => None,
        },
        _ => None,
    };
    assert!(found.problems.iter().filter_map(flaw).any(|found| is_it(&found)), "{by}: {:?}", found.problems);
}

fn why(result: Result<ringfence_ledger::Receipt, AppendError>) -> LifecycleError {
    match result {
        Err(AppendError::OutOfOrder { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// A record about a transaction that changes nothing in its life.
fn found_nothing(ids: &Ids) -> Event {
    Event::SecretsFound {
        transaction: Some(ids.transaction.clone()),
        session: ids.session.clone(),
        action: LeakAction::Block,
        findings: Vec::new(),
        omitted: 0,
    }
}

fn append(ledger: &Ledger, event: &Event) {
    drop(ledger.append(event).unwrap());
}

/// A first record that says that it continues the chain of a node, and names that node's key, is no proof.
#[test]
fn a_node_takes_up_no_continuation_that_it_did_not_sign() {
    let nodes = Nodes::new();
    let old = chain_id(&nodes.chain_of("beta"));
    let key = nodes.found("beta").chains.into_iter().find(|chain| chain.node.as_deref() == Some("beta"));
    let key = key.unwrap().keys.remove(0);
    nodes.attack(SET_ASIDE);
    let digest = digest_of(&nodes, &old);
    let forged = ForgedChain::new("beta", 1, |_| Beginning {
        continues: Some(continued(&old, &digest, None)),
        named_key: Some(key),
    });
    nodes.attack(&forged.sql());
    let ledger = nodes.open("beta");
    let broken = ledger.broken();
    assert!(
        matches!(&broken, Some(broken) if matches!(broken.what, ChainFlaw::RolledBack { .. })),
        "it is told before anything is asked of it: {broken:?}"
    );
    assert!(ledger.append(&battery(1)).is_err());
    finds(&nodes, "beta", |flaw| matches!(flaw, ChainFlaw::RolledBack { .. }));
    finds(&nodes, "alpha", |flaw| matches!(flaw, ChainFlaw::SetAside));
}

/// Control of the test before: the node itself has set its chain aside, and was killed before it had written that down.
#[test]
fn a_node_takes_up_the_continuation_that_it_signed() {
    for is_key_lost in [false, true] {
        let nodes = Nodes::new();
        let kept = nodes.database.state("beta").join("node.chain");
        let before = fs::read(&kept).unwrap();
        nodes.attack(SET_ASIDE);
        if is_key_lost {
            fs::remove_file(nodes.database.state("beta").join("node.key")).unwrap();
        }
        nodes.node("beta").restart(&LedgerSettings::default(), "known", person(0)).unwrap();
        fs::write(&kept, &before).unwrap();
        let beta = nodes.open("beta");
        assert_eq!(beta.broken(), None);
        append(&beta, &battery(1));
        assert!(nodes.found("beta").problems.is_empty(), "{:?}", nodes.found("beta").problems);
    }
}

/// Whatever a chain says that was set aside, the lives that the other chains tell are checked as before.
#[test]
fn a_chain_that_was_set_aside_excuses_nothing() {
    let words: fn(&Ids, &mut ForgedChain) =
        |ids, forged| forged.add_raw("battery-finished", ids.transaction.as_str(), String::new());
    let records: fn(&Ids, &mut ForgedChain) = |ids, forged| {
        forged.add(&asked(ids));
        forged.add(&answered(ids, ApprovalAnswer::Once));
    };
    for fill in [words, records] {
        let nodes = Nodes::new();
        let running = ids();
        append(&nodes.open("beta"), &intent(&running));
        planted_aside(&nodes, |forged| fill(&running, forged));
        nodes.is_whole((3, 1));
        let id = &running.transaction;
        let open = nodes.database.sql(&format!("SELECT (chain, seq) FROM ringfence.open WHERE id = '{id}'"));
        nodes.attack(&format!("DELETE FROM ringfence.open WHERE id = '{id}'"));
        for by in ["alpha", "beta"] {
            finds(&nodes, by, |flaw| *flaw == ChainFlaw::Index { table: "open".to_owned() });
        }
        // And moved to another chain, whose node would close it.
        nodes.attack(&format!(
            "INSERT INTO ringfence.open SELECT '{id}', chain, seq FROM ringfence.head WHERE node = 'alpha'"
        ));
        finds(&nodes, "alpha", |flaw| *flaw == ChainFlaw::Index { table: "open".to_owned() });
        nodes.attack(&format!("DELETE FROM ringfence.open WHERE id = '{id}'"));
        // Control: with its row it is whole again.
        let row = open.trim_matches(['(', ')']);
        nodes.attack(&format!("INSERT INTO ringfence.open VALUES ('{id}', {row})"));
        nodes.is_whole((3, 1));
        // What a chain that grows says out of order.
        let mut second = ForgedChain::new("delta", 2, |_| Beginning::default());
        second.add(&intent(&running));
        nodes.attack(&second.sql());
        for by in ["alpha", "beta"] {
            finds(&nodes, by, |flaw| matches!(flaw, ChainFlaw::OutOfOrder { .. }));
        }
    }
}

/// `open` decides which node closes a transaction after a crash. It cannot be moved to a chain that did not begin it.
#[test]
fn what_is_open_stays_with_the_chain_that_began_it() {
    let nodes = Nodes::new();
    let running = ids();
    let beta = nodes.open("beta");
    append(&beta, &asked(&running));
    append(&nodes.open("alpha"), &answered(&running, ApprovalAnswer::Once));
    nodes.is_whole((2, 0));
    let id = &running.transaction;
    nodes.attack(&format!(
        "DELETE FROM ringfence.open WHERE id = '{id}';
        INSERT INTO ringfence.open SELECT m.id, m.chain, m.seq FROM ringfence.mention m
        JOIN ringfence.head h USING (chain) WHERE m.id = '{id}' AND h.node = 'alpha'"
    ));
    for by in ["alpha", "beta"] {
        finds(&nodes, by, |flaw| *flaw == ChainFlaw::Index { table: "open".to_owned() });
    }
}

/// After a crash a node closes what its own processes have left. It cannot see those of another node, and a row of `open` that was
/// moved to its chain does not make it record an end that is not true.
#[test]
fn a_node_closes_nothing_of_a_process_of_another_node() {
    for is_moved in [false, true] {
        let nodes = Nodes::new();
        let (alpha, beta) = (nodes.open("alpha"), nodes.open("beta"));
        let [running, dead] = [ids(), ids()];
        // Of two machines, so to each the processes of the other are none of this boot.
        for (ledger, about, boot) in [(&beta, &running, "of beta"), (&alpha, &dead, "before")] {
            append(ledger, &started(about, Some(process(boot))));
            append(ledger, &intent(about));
        }
        if is_moved {
            let id = &running.transaction;
            nodes.attack(&format!(
                "DELETE FROM ringfence.open WHERE id = '{id}';
                INSERT INTO ringfence.open SELECT '{id}', chain, seq FROM ringfence.head WHERE node = 'alpha'"
            ));
        }
        let closed = alpha.recover(&|process| process.boot_id == "of alpha").unwrap();
        let closed: Vec<_> = closed.into_iter().map(|orphan| orphan.transaction).collect();
        assert_eq!(closed, [dead.transaction], "control: what its own dead process has left is closed");
        append(&beta, &settled(&running));
    }
}

/// Nor does a record of another chain that names a dead session of the node.
#[test]
fn a_node_does_not_believe_another_chain_who_works_on_its_transaction() {
    for is_forged in [false, true] {
        let nodes = Nodes::new();
        let alpha = nodes.open("alpha");
        let [running, dead] = [ids(), ids()];
        for (about, boot) in [(&running, "of alpha"), (&dead, "before")] {
            append(&alpha, &started(about, Some(process(boot))));
            append(&alpha, &intent(about));
        }
        if is_forged {
            let mut forged = ForgedChain::new("delta", 2, |_| Beginning::default());
            let about = Ids { session: dead.session.clone(), transaction: running.transaction.clone() };
            forged.add(&found_nothing(&about));
            nodes.attack(&forged.sql());
        }
        let closed = alpha.recover(&|process| process.boot_id == "of alpha").unwrap();
        let closed: Vec<_> = closed.into_iter().map(|orphan| orphan.transaction).collect();
        assert_eq!(closed, [dead.transaction], "control: what its own dead process has left is closed");
        append(&alpha, &settled(&running));
    }
}

fn process(boot: &str) -> ProcessId {
    ProcessId { boot_id: boot.to_owned(), ..ProcessId::own().unwrap() }
}

/// Where the first record of a chain does not name its key any more, the word of another node is not enough.
#[test]
fn only_the_node_that_verifies_is_a_witness_of_a_lost_key() {
    for take_away in [
        "UPDATE ringfence.record SET body = NULL FROM ringfence.head h WHERE h.chain = record.chain AND h.node = 'NODE' AND record.seq = 1",
        // A body that does not match its digest names no key.
        "UPDATE ringfence.record SET body = regexp_replace(body, '\"key\":\"[0-9a-f]+\"', '\"key\":\"KEY\"')
            FROM ringfence.head h WHERE h.chain = record.chain AND h.node = 'NODE' AND record.seq = 1",
    ] {
        for (node, is_witnessed) in [("beta", true), ("delta", false)] {
            let nodes = Nodes::new();
            if !is_witnessed {
                let delta = nodes.open(node);
                (0..3).for_each(|number| append(&delta, &battery(number)));
                drop(delta);
            }
            let growing = if is_witnessed { 2 } else { 3 };
            nodes.is_whole((growing, 0));
            let victim = chain_id(&nodes.chain_of(node));
            let end: ChainHead = nodes
                .database
                .sql(&format!("SELECT seq || ':' || hash FROM ringfence.head WHERE id = '{victim}'"))
                .parse()
                .unwrap();
            let key = ForgedChain::new("gamma", 7, |_| Beginning::default()).public();
            nodes.attack(&take_away.replace("NODE", node).replace("KEY", &key));
            set_aside(&nodes, &victim);
            let digest = digest_of(&nodes, &victim);
            let mut forged = ForgedChain::new("gamma", 7, |new| {
                let signer = ForgedChain::new("gamma", 7, |_| Beginning::default());
                Beginning { continues: Some(signer.sets_aside(&victim, &digest, new)), named_key: None }
            });
            forged.add(&Event::ChainWitnessed { chain: victim.clone(), head: end, key });
            nodes.attack(&forged.sql());
            for by in ["alpha", "beta", node] {
                let found = nodes.found(by);
                assert!(found.aside.is_empty(), "{node}, {by}: {:?}", found.aside);
                finds(&nodes, by, |flaw| matches!(flaw, ChainFlaw::SetAside));
            }
            finds(&nodes, node, |flaw| matches!(flaw, ChainFlaw::RolledBack { .. }));
        }
    }
}

/// Control of the test before: the node has its key, and the others have seen it.
#[test]
fn a_node_can_set_a_chain_aside_whose_first_record_is_gone() {
    let nodes = Nodes::new();
    nodes.attack("UPDATE ringfence.record SET body = NULL FROM ringfence.head h WHERE h.chain = record.chain AND h.node = 'beta' AND record.seq = 1");
    nodes.node("beta").restart(&LedgerSettings::default(), "it lost its beginning", person(0)).unwrap();
    nodes.is_whole((2, 1));
    assert!(nodes.found("alpha").aside[0].is_signed);
}

/// A key that was rotated away sets nothing aside, whether the rotation was witnessed or not.
#[test]
fn a_key_that_was_rotated_away_sets_no_chain_aside() {
    for others in ["idle", "blocked", "active"] {
        let nodes = Nodes::new();
        let victim = chain_id(&nodes.chain_of("beta"));
        let mut thief = ForgedChain::new("beta", 7, |_| Beginning::default());
        thief.key = nodes.key("beta");
        nodes.open("beta").rotate_key().unwrap();
        let crime = ids();
        append(&nodes.open("beta"), &intent(&crime));
        append(&nodes.open("beta"), &settled(&crime));
        let seal = nodes.database.sql(&format!("SELECT seal FROM ringfence.head WHERE id = '{victim}'"));
        if others == "blocked" {
            nodes.attack(&format!("UPDATE ringfence.head SET seal = '' WHERE id = '{victim}'"));
        }
        if others != "idle" {
            append(&nodes.open("alpha"), &battery(1));
            nodes.open("alpha").checkpoint().unwrap();
        }
        nodes.attack(&format!("UPDATE ringfence.head SET seal = '{seal}' WHERE id = '{victim}'"));
        nodes.is_whole((2, 0));
        nodes.attack(&format!(
            "UPDATE ringfence.record SET body = NULL FROM ringfence.head h WHERE h.chain = record.chain
            AND h.id = '{victim}' AND record.kind IN ('ledger-key-rotated', 'call-intended', 'call-settled', 'checkpoint-signed')"
        ));
        set_aside(&nodes, &victim);
        let digest = digest_of(&nodes, &victim);
        let forged = ForgedChain::new("beta", 7, |new| Beginning {
            continues: Some(thief.sets_aside(&victim, &digest, new)),
            named_key: None,
        });
        nodes.attack(&forged.sql());
        for by in ["alpha", "beta"] {
            assert!(nodes.found(by).aside.is_empty(), "{others}, {by}: {:?}", nodes.found(by).aside);
            finds(&nodes, by, |flaw| matches!(flaw, ChainFlaw::SetAside));
        }
    }
}

/// Control of the test before: the key that the others have seen after the rotation does.
#[test]
fn the_key_after_a_rotation_sets_its_chain_aside() {
    let nodes = Nodes::new();
    nodes.open("beta").rotate_key().unwrap();
    nodes.open("alpha").checkpoint().unwrap();
    nodes.attack("UPDATE ringfence.record SET body = NULL WHERE kind = 'ledger-key-rotated'");
    nodes.node("beta").restart(&LedgerSettings::default(), "its rotation is gone", person(0)).unwrap();
    nodes.is_whole((2, 1));
    assert!(nodes.found("alpha").aside[0].is_signed);
}

/// Only the node of a chain can continue it: another node cannot leave a chain under its name.
#[test]
fn a_chain_is_not_continued_by_another_node() {
    let nodes = Nodes::new();
    let mut victim = ForgedChain::new("delta", 1, |_| Beginning::default());
    victim.add(&battery(1));
    nodes.attack(&victim.sql());
    nodes.is_whole((3, 0));
    set_aside(&nodes, &victim.chain);
    let digest = digest_of(&nodes, &victim.chain);
    let other = ForgedChain::new("gamma", 1, |new| Beginning {
        continues: Some(victim.sets_aside(&victim.chain, &digest, new)),
        ..Beginning::default()
    });
    nodes.attack(&other.sql());
    for by in ["alpha", "beta"] {
        finds(&nodes, by, |flaw| matches!(flaw, ChainFlaw::SetAside));
    }
}

/// The walk is of one moment, and what this node signs meanwhile is not in it.
#[test]
fn verifying_beside_a_node_that_signs_raises_no_alarm() {
    let nodes = Nodes::new();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let beta = nodes.open("beta");
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                append(&beta, &battery(1));
                beta.checkpoint().unwrap();
            }
        });
        let problems: Vec<VerifyError> = (0..12).flat_map(|_| nodes.found("beta").problems).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(problems.is_empty(), "{problems:?}");
    });
}

/// To hide the end of a chain for a moment gives no use back, and neither does it in a chain that was set aside.
#[test]
fn a_moved_end_gives_no_use_of_a_grant_back() {
    for is_aside in [false, true] {
        let nodes = Nodes::new();
        let (alpha, beta) = (nodes.open("alpha"), nodes.open("beta"));
        let here = ids();
        let (grant, made) = granted(&here, Some(1));
        append(&alpha, &asked(&here));
        append(&alpha, &answered(&here, ApprovalAnswer::Session));
        append(&alpha, &made);
        append(&beta, &intent_by(&ids(), Some(grant.clone())));
        let again = || why(alpha.append(&intent_by(&ids(), Some(grant.clone()))));
        assert_eq!(again(), LifecycleError::UsedUp, "control");
        drop(beta);
        let chain = nodes.chain_of("beta");
        if is_aside {
            nodes.attack(SET_ASIDE);
            nodes.node("beta").restart(&LedgerSettings::default(), "known", person(0)).unwrap();
        }
        nodes.attack(&format!("UPDATE ringfence.head SET seq = 1 WHERE id = '{chain}'"));
        assert_eq!(again(), LifecycleError::UsedUp, "aside: {is_aside}");
    }
}

/// `verify` finds a use above the limit of a grant, in the chain of any node.
#[test]
fn a_grant_that_was_used_too_often_is_found() {
    let nodes = Nodes::new();
    let here = ids();
    let (grant, made) = granted(&here, Some(1));
    for event in [asked(&here), answered(&here, ApprovalAnswer::Session), made] {
        append(&nodes.open("alpha"), &event);
    }
    // A chain that was set aside says that the same grant has no limit.
    planted_aside(&nodes, |forged| {
        let (other, Event::GrantCreated(unlimited)) = granted(&here, None) else { panic!() };
        assert_ne!(other, grant);
        forged.add(&Event::GrantCreated(Box::new(GrantRecord { grant: grant.clone(), ..*unlimited })));
    });
    for (seed, is_one_too_many) in [(3, false), (4, true)] {
        let running = ids();
        let mut forged = ForgedChain::new(&format!("node-{seed}"), seed, |_| Beginning::default());
        forged.add(&intent_by(&running, Some(grant.clone())));
        forged.add(&settled(&running));
        nodes.attack(&forged.sql());
        let used = |flaw: &ChainFlaw| matches!(flaw, ChainFlaw::OutOfOrder { transaction, .. } if *transaction == grant.to_string());
        let problems = nodes.found("alpha").problems;
        let is_found = problems
            .iter()
            .any(|problem| matches!(problem, VerifyError::Broken(broken) if used(&broken.what)));
        assert_eq!(is_found, is_one_too_many, "{problems:?}");
    }
}

/// To set a chain aside gives no use of a grant back.
#[test]
fn a_grant_keeps_its_limit_when_a_chain_is_set_aside() {
    let nodes = Nodes::new();
    let (alpha, beta) = (nodes.open("alpha"), nodes.open("beta"));
    let (there, here) = (ids(), ids());
    let ((of_beta, made_there), (of_alpha, made_here)) = (granted(&there, Some(1)), granted(&here, Some(1)));
    for (ledger, event) in [
        (&beta, asked(&there)),
        (&beta, answered(&there, ApprovalAnswer::Session)),
        (&beta, made_there),
        (&alpha, asked(&here)),
        (&alpha, answered(&here, ApprovalAnswer::Session)),
        (&alpha, made_here),
        (&alpha, intent_by(&ids(), Some(of_beta.clone()))),
        (&beta, intent_by(&ids(), Some(of_alpha.clone()))),
    ] {
        append(ledger, &event);
    }
    for grant in [&of_beta, &of_alpha] {
        assert_eq!(
            why(alpha.append(&intent_by(&ids(), Some(grant.clone())))),
            LifecycleError::UsedUp,
            "control"
        );
    }
    drop(beta);
    nodes.attack(SET_ASIDE);
    nodes.node("beta").restart(&LedgerSettings::default(), "known", person(0)).unwrap();
    let again = |grant: &ringfence_types::GrantId| why(alpha.append(&intent_by(&ids(), Some(grant.clone()))));
    assert_eq!(again(&of_beta), LifecycleError::NotGranted);
    assert_eq!(again(&of_alpha), LifecycleError::UsedUp);
}

/// A claim alone is no grant.
#[test]
fn a_grant_is_its_record() {
    let nodes = Nodes::new();
    let (grant, _) = granted(&ids(), None);
    nodes.attack(&format!("INSERT INTO ringfence.claim VALUES ('granted {grant}', 1, 2)"));
    let used = nodes.open("alpha").append(&intent_by(&ids(), Some(grant)));
    assert_eq!(why(used), LifecycleError::NotGranted);
}

fn prune_consent(ledger: &Ledger) -> u64 {
    let pruning = PruneRequest {
        before: Timestamp::now(),
        classes: vec![RetentionClass::Consent, RetentionClass::Activity],
    };
    ledger.prune(&pruning, &person(0)).unwrap()
}

/// An answer is needed as long as its question is open, on whichever node that is.
#[test]
fn a_no_to_a_question_of_another_node_is_not_pruned() {
    let nodes = Nodes::new();
    let (alpha, beta) = (nodes.open("alpha"), nodes.open("beta"));
    let (pending, over) = (ids(), ids());
    for (ledger, event) in [
        (&alpha, asked(&pending)),
        (&beta, answered(&pending, ApprovalAnswer::Deny)),
        (&alpha, asked(&over)),
        (&beta, answered(&over, ApprovalAnswer::Once)),
        (&alpha, intent(&over)),
        (&alpha, settled(&over)),
    ] {
        append(ledger, &event);
    }
    prune_consent(&beta);
    let body = |ids: &Ids| {
        let id = &ids.transaction;
        nodes.database.sql(&format!(
            "SELECT body IS NULL FROM ringfence.record WHERE kind = 'approval-decided' AND ids LIKE '%{id}%'"
        ))
    };
    assert_eq!((body(&pending).as_str(), body(&over).as_str()), ("f", "t"), "control: what is over goes");
    assert_eq!(why(alpha.append(&intent(&pending))), LifecycleError::NotPermitted);
    nodes.is_whole((2, 0));
}

/// A role that prunes can empty the body of a no. That does not make it a yes.
#[test]
fn an_answer_without_its_body_permits_nothing() {
    let nodes = Nodes::new();
    let (alpha, beta) = (nodes.open("alpha"), nodes.open("beta"));
    let (one, grants) = (ids(), ids());
    for ids in [&one, &grants] {
        append(&alpha, &asked(ids));
        append(&beta, &answered(ids, ApprovalAnswer::Deny));
    }
    let refused = |event: &Event| why(alpha.append(event));
    assert_eq!(refused(&intent(&one)), LifecycleError::NotPermitted, "control");
    nodes.attack("UPDATE ringfence.record SET body = NULL WHERE kind = 'approval-decided'");
    assert_eq!(refused(&intent(&one)), LifecycleError::NotPermitted);
    assert_eq!(refused(&granted(&grants, None).1), LifecycleError::NotPermitted);
}

/// A yes to one question is not found under another, and nothing behind the end of a chain is read as an answer.
#[test]
fn a_yes_is_not_moved_to_another_question() {
    let nodes = Nodes::new();
    let (alpha, beta) = (nodes.open("alpha"), nodes.open("beta"));
    let (before, now) = (ids(), ids());
    for (ledger, event) in [
        (&alpha, asked(&before)),
        (&beta, answered(&before, ApprovalAnswer::Once)),
        (&alpha, intent(&before)),
        (&alpha, settled(&before)),
        (&alpha, asked(&now)),
    ] {
        append(ledger, &event);
    }
    let (old, new) = (&before.transaction, &now.transaction);
    nodes.attack(&format!(
        "INSERT INTO ringfence.mention SELECT '{new}', 1000000, chain, seq FROM ringfence.record
        WHERE kind = 'approval-decided' AND ids LIKE '{old} %'"
    ));
    assert_eq!(why(alpha.append(&intent(&now))), LifecycleError::NotPermitted, "found under another id");
    let copied = format!(
        "WITH yes AS (SELECT chain, replace(body, '{old}', '{new}') AS body, replace(ids, '{old}', '{new}') AS ids
            FROM ringfence.record WHERE kind = 'approval-decided' AND ids LIKE '{old} %'),
        written AS (INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash, body)
            SELECT chain, 1000000, '2026-01-02T03:04:05.000000Z', 'approval-decided', ids,
                encode(sha256(convert_to(body, 'UTF8')), 'hex'), '', body FROM yes RETURNING chain, seq, place)
        INSERT INTO ringfence.mention SELECT '{new}', place, chain, seq FROM written"
    );
    nodes.attack(&copied);
    assert_eq!(why(alpha.append(&intent(&now))), LifecycleError::NotPermitted, "behind the end");
    let read = alpha.reader().unwrap().about(new.as_str()).unwrap();
    assert_eq!(read.len(), 1, "{read:?}");
    for by in ["alpha", "beta"] {
        assert!(nodes.found(by).problems.len() >= 2, "{:?}", nodes.found(by).problems);
    }
    // Control: an answer where it belongs.
    let mut honest = ForgedChain::new("delta", 3, |_| Beginning::default());
    honest.add(&answered(&now, ApprovalAnswer::Once));
    nodes.attack(&honest.sql());
    append(&alpha, &intent(&now));
}

/// One statement reads one page, however many rows other chains have: a server that ends statements after some time would end
/// one that reads a whole table.
#[test]
fn verifying_reads_in_pages() {
    let nodes = Nodes::new();
    let running = ids();
    append(&nodes.open("alpha"), &intent(&running));
    let tables = "('record', 'mention', 'claim', 'open')";
    // As the owner: rows of a chain that is not there, which the verifier has to find as well.
    nodes.database.sql(
        "INSERT INTO ringfence.mention SELECT 'tx_' || n, 1000000 + n, 99, n FROM generate_series(1, 60000) n;
        INSERT INTO ringfence.claim SELECT 'asked tx_' || n, 99, n FROM generate_series(1, 60000) n;
        INSERT INTO ringfence.open SELECT 'tx_' || n, 99, n FROM generate_series(1, 60000) n;
        INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash)
            SELECT 99, n, '', 'x', '', '', '' FROM generate_series(1, 60000) n;
        ANALYZE",
    );
    // A connection reports what it has read when it ends.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let counted = || {
        let patience = std::time::Instant::now();
        while nodes.database.sql(others) != "0" && patience.elapsed() < crate::bounded::PATIENCE {
            std::thread::yield_now();
        }
        nodes.database.sql(&format!(
            "SELECT string_agg(relname || ' ' || seq_scan, ', ' ORDER BY relname) FROM pg_stat_user_tables
            WHERE schemaname = 'ringfence' AND relname IN {tables}"
        ))
    };
    let before = counted();
    let problems = verify_database(&nodes.node("alpha"), ExpectedHead::default()).unwrap().problems;
    let mut strays: Vec<&str> = problems
        .iter()
        .filter_map(|problem| match problem {
            VerifyError::Stray { table } => Some(table.as_str()),
            _ => None,
        })
        .collect();
    strays.sort_unstable();
    assert_eq!(strays, ["claim", "mention", "open", "record"]);
    assert_eq!(counted(), before, "a table was read as a whole");
    nodes.database.sql("SELECT count(*) FROM ringfence.mention WHERE seq < 0");
    assert_ne!(counted(), before, "control: that is what this counts");
}
