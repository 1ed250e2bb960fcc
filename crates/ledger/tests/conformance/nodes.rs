//! Several nodes on one database.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use ringfence_ledger::{
    AppendError, ApprovalAnswer, ChainFlaw, ConnectError, DatabaseVerification, Event, ExpectedHead, Kind,
    Ledger, LedgerNode, LedgerOpenError, LedgerSettings, LifecycleError, VerifyError, verify_database,
};

use crate::bounded;
use crate::cluster::{Database, shared};
use crate::events::{answered, asked, battery, granted, ids, intent, intent_by, person, settled};

const CHILD: &str = "RINGFENCE_LEDGER_TEST_NODE";

/// What a child was told: the address, the directory of the node and its name.
#[expect(clippy::disallowed_methods, reason = "the test tells its own child what to do")]
fn told() -> Option<(String, PathBuf, String)> {
    let told = std::env::var(CHILD).ok()?;
    let mut words = told.split('\n').map(str::to_owned);
    Some((words.next()?, words.next()?.into(), words.next()?))
}

#[test]
fn eight_processes_on_two_nodes_make_two_chains_without_gaps() {
    if let Some((url, directory, name)) = told() {
        let node = LedgerNode::in_directory(&url, &directory, &name).unwrap();
        let ledger = Ledger::connect(&node, LedgerSettings::default()).unwrap();
        for number in 0..15 {
            let ids = ids();
            for event in [battery(number), intent(&ids), settled(&ids)] {
                ledger.append(&event).map(|receipt| receipt.seq()).unwrap();
            }
        }
        return;
    }
    let database = shared().database();
    let spawn = |number: usize| {
        let name = ["alpha", "beta"][number % 2];
        let told = format!("{}\n{}\n{name}", database.url("owner"), database.state(name).display());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "--test-threads=1",
            "nodes::eight_processes_on_two_nodes_make_two_chains_without_gaps",
        ]);
        command
            .env(CHILD, told)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..8).map(spawn).collect();
    for child in children {
        let output = bounded::collected(child);
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    let verified = database.verified();
    assert_eq!(verified.len(), 2);
    for chain in &verified {
        assert_eq!(chain.head.as_ref().unwrap().seq, chain.records);
        assert!(chain.records > 4 * 45, "{chain:?}");
    }
    assert_eq!(database.sql("SELECT count(*) FROM ringfence.record WHERE kind = 'battery-finished'"), "120");
    assert_eq!(
        database.sql("SELECT count(DISTINCT ids) FROM ringfence.record WHERE kind = 'call-settled'"),
        "120"
    );
}

#[test]
fn a_question_of_one_node_is_answered_on_another() {
    let database = shared().database();
    let (alpha, beta) = (database.open("alpha"), database.open("beta"));
    let ids = ids();
    // Numbers of the two chains are far apart.
    (0..20).for_each(|number| drop(beta.append(&battery(number)).unwrap()));
    alpha.append(&asked(&ids)).map(drop).unwrap();
    let seen = beta.reader().unwrap().of_kinds(&[Kind::ApprovalRequested], 10).unwrap();
    assert_eq!(seen.len(), 1);
    assert!(matches!(
        alpha.append(&intent(&ids)),
        Err(AppendError::OutOfOrder { why: LifecycleError::NotPermitted, .. })
    ));
    let waiting = alpha.reader().unwrap();
    let before = waiting.version().unwrap();
    beta.append(&answered(&ids, ApprovalAnswer::Once)).map(drop).unwrap();
    assert_ne!(waiting.version().unwrap(), before);
    assert_eq!(waiting.about(ids.transaction.as_str()).unwrap().len(), 2);
    alpha.append(&intent(&ids)).map(drop).unwrap();
    assert!(beta.append(&intent(&ids)).is_err());
    alpha.append(&settled(&ids)).map(drop).unwrap();
    let kinds: Vec<Kind> =
        waiting.show(ids.transaction.as_str()).unwrap().iter().map(|record| record.event.kind()).collect();
    assert_eq!(
        kinds,
        [Kind::ApprovalRequested, Kind::ApprovalDecided, Kind::CallIntended, Kind::CallSettled]
    );
    assert_eq!(database.verified().len(), 2);
}

#[test]
fn of_two_nodes_that_answer_at_once_one_wins() {
    let database = shared().database();
    let ledgers = [database.open("alpha"), database.open("beta")];
    let mut wins = [0, 0];
    for _ in 0..25 {
        let ids = ids();
        ledgers[0].append(&asked(&ids)).map(drop).unwrap();
        let won: Vec<bool> = thread::scope(|scope| {
            let answers = [ApprovalAnswer::Once, ApprovalAnswer::Deny];
            let threads: Vec<_> = ledgers
                .iter()
                .zip(answers)
                .map(|(ledger, answer)| {
                    let event = answered(&ids, answer);
                    scope.spawn(move || match ledger.append(&event) {
                        Ok(_) => true,
                        Err(AppendError::OutOfOrder { why: LifecycleError::AnsweredTwice, .. }) => false,
                        Err(error) => panic!("{error:?}"),
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
        wins[usize::from(won[1])] += 1;
    }
    assert_eq!(wins[0] + wins[1], 25);
    database.verified();
}

/// The claim alone, as if the nodes had not seen each other: what the database itself refuses.
#[test]
fn the_database_gives_a_claim_away_once() {
    let database = shared().database();
    let ids = ids();
    let ledger = database.open("alpha");
    ledger.append(&asked(&ids)).map(drop).unwrap();
    let claim = |suffix: &str| {
        let sql = format!("INSERT INTO ringfence.claim VALUES ('asked {}{suffix}', 1, 9)", ids.transaction);
        database.cluster.psql(&database.name, &sql).status.success()
    };
    assert!(!claim(""));
    assert!(claim("x"), "control: another one is free");
}

#[test]
fn a_grant_for_one_use_is_used_by_one_node() {
    let database = shared().database();
    let ledgers = [database.open("alpha"), database.open("beta")];
    for _ in 0..15 {
        let asker = ids();
        let (grant, made) = granted(&asker, Some(1));
        let events = [asked(&asker), answered(&asker, ApprovalAnswer::Session), made];
        events.iter().for_each(|event| drop(ledgers[0].append(event).unwrap()));
        let used: Vec<bool> = thread::scope(|scope| {
            let threads: Vec<_> = ledgers
                .iter()
                .map(|ledger| {
                    let event = intent_by(&ids(), Some(grant.clone()));
                    scope.spawn(move || ledger.append(&event).is_ok())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(used.iter().filter(|used| **used).count(), 1);
    }
    database.verified();
}

/// Cuts the chain of a node back to its third record and leaves nothing beside it that would tell: `seal` is what the node
/// has signed when that was the end.
fn cut_back(database: &Database<'_>, node: &str, seal: &str) {
    database.sql(&format!(
        "DELETE FROM ringfence.record USING ringfence.head h WHERE h.node = '{node}' AND h.chain = record.chain AND record.seq > 3;
         UPDATE ringfence.head h SET seq = r.seq, hash = r.hash, seal = '{seal}' FROM ringfence.record r
            WHERE h.node = '{node}' AND r.chain = h.chain AND r.seq = 3"
    ));
}

#[test]
fn a_chain_that_was_cut_back_is_found_through_another() {
    let database = shared().database();
    let mut seal = String::new();
    for number in 0..5 {
        database.open("beta").append(&battery(number)).map(drop).unwrap();
        database.open("alpha").append(&battery(number)).map(drop).unwrap();
        if number == 1 {
            seal = database.sql("SELECT seal FROM ringfence.head WHERE node = 'beta'");
        }
    }
    // Control: as long as nobody has witnessed it, a shorter chain is a chain.
    cut_back(&database, "beta", &seal);
    assert_eq!(database.verified().len(), 2);
    (0..5).for_each(|number| drop(database.open("beta").append(&battery(number)).unwrap()));
    assert!(database.open("alpha").checkpoint().unwrap().is_some());
    let verified = database.verified();
    assert_eq!(verified.iter().map(|chain| chain.records).collect::<Vec<_>>(), [8, 8]);
    cut_back(&database, "beta", &seal);
    let error = verify_database(&database.node("any"), ExpectedHead::default())
        .and_then(DatabaseVerification::whole)
        .unwrap_err();
    let VerifyError::Chain { node, source, .. } = error else { panic!("{error:?}") };
    assert_eq!(node, "beta");
    let VerifyError::Broken(broken) = *source else { panic!("{source:?}") };
    assert!(matches!(broken.what, ChainFlaw::Unwitnessed { .. }), "{broken:?}");
    assert_eq!(broken.seq, 3);
}

/// The next checkpoint of another node witnesses the shorter chain, and does not make it forget the longer one.
#[test]
fn a_chain_that_was_cut_back_is_found_after_its_new_end_was_witnessed() {
    let database = shared().database();
    let mut seal = String::new();
    for number in 0..5 {
        database.open("beta").append(&battery(number)).map(drop).unwrap();
        if number == 1 {
            seal = database.sql("SELECT seal FROM ringfence.head WHERE node = 'beta'");
        }
    }
    let alpha = database.open("alpha");
    let witnessed = || {
        alpha.append(&battery(1)).map(drop).unwrap();
        alpha.checkpoint().unwrap();
        let newest = alpha.reader().unwrap().of_kinds(&[Kind::ChainWitnessed], 1).unwrap();
        let [record] = newest.as_slice() else { panic!("{newest:?}") };
        let Event::ChainWitnessed { head, .. } = &record.event else { panic!("{record:?}") };
        head.seq
    };
    assert_eq!(witnessed(), 6);
    assert_eq!(database.verified().len(), 2, "control");
    cut_back(&database, "beta", &seal);
    assert_eq!(witnessed(), 3, "control: the shorter chain is witnessed now");
    let found = verify_database(&database.node("any"), ExpectedHead::default()).unwrap();
    let is_told = found.problems.iter().any(|problem| match problem {
        VerifyError::Chain { node, source, .. } if node == "beta" => {
            matches!(&**source, VerifyError::Broken(broken) if matches!(broken.what, ChainFlaw::Unwitnessed { .. }))
        }
        _ => false,
    });
    assert!(is_told, "{:?}", found.problems);
}

#[test]
fn a_chain_that_is_gone_is_found_through_another() {
    let database = shared().database();
    database.open("beta").append(&battery(1)).map(drop).unwrap();
    let alpha = database.open("alpha");
    alpha.append(&battery(1)).map(drop).unwrap();
    alpha.checkpoint().unwrap();
    assert_eq!(database.verified().len(), 2);
    database.sql(
        "DELETE FROM ringfence.record USING ringfence.head h WHERE h.node = 'beta' AND h.chain = record.chain;
         DELETE FROM ringfence.head WHERE node = 'beta'",
    );
    let error = verify_database(&database.node("any"), ExpectedHead::default())
        .and_then(DatabaseVerification::whole)
        .unwrap_err();
    assert!(matches!(error, VerifyError::Chain { .. }), "{error:?}");
}

#[test]
fn each_head_is_witnessed_once() {
    let database = shared().database();
    database.open("beta").append(&battery(1)).map(drop).unwrap();
    let alpha = database.open("alpha");
    for number in 0..3 {
        alpha.append(&battery(number)).map(drop).unwrap();
        alpha.checkpoint().unwrap();
    }
    let witnessed = alpha.reader().unwrap().of_kinds(&[Kind::ChainWitnessed], 10).unwrap();
    assert_eq!(witnessed.len(), 1, "beta has not moved");
    database.open("beta").append(&battery(2)).map(drop).unwrap();
    alpha.append(&battery(9)).map(drop).unwrap();
    alpha.checkpoint().unwrap();
    let witnessed = alpha.reader().unwrap().of_kinds(&[Kind::ChainWitnessed], 10).unwrap();
    assert_eq!(witnessed.len(), 2);
    assert!(matches!(&witnessed[1].event, Event::ChainWitnessed { head, .. } if head.seq == 3));
}

#[test]
fn a_broken_chain_is_put_aside_and_another_begins() {
    let database = shared().database();
    let ledger = database.open("alpha");
    let left = ids();
    for event in [battery(1), intent(&left), battery(3)] {
        ledger.append(&event).map(drop).unwrap();
    }
    drop(ledger);
    database.open("beta").append(&battery(1)).map(drop).unwrap();
    database.open("beta").checkpoint().unwrap();
    database
        .sql("UPDATE ringfence.record SET time = '2020-01-01T00:00:00.000000Z' WHERE seq = 4 AND chain = 1");
    let refused = database.open("alpha").append(&battery(4));
    assert!(matches!(refused, Err(AppendError::Broken(_))), "{refused:?}");
    let old = database.sql("SELECT id FROM ringfence.head WHERE node = 'alpha'");
    let new =
        database.node("alpha").restart(&LedgerSettings::default(), "the disk was bad", person(0)).unwrap();
    assert_ne!(new.as_str(), old);
    database.open("alpha").append(&battery(5)).map(drop).unwrap();
    let first = Ledger::connect_read(&database.node("alpha")).unwrap().beginning().unwrap();
    let Event::ChainStarted { chain, continues: Some(continued), .. } = first.event else {
        panic!("{first:?}")
    };
    assert_eq!((chain, continued.reason.as_deref()), (new, Some("the disk was bad")));
    assert_eq!(database.verified().len(), 2);
    assert_eq!(database.sql("SELECT count(*) FROM ringfence.record r JOIN ringfence.head h USING (chain) WHERE aside IS NOT NULL"), "4");
    // Nobody goes on with what is in a chain that does not hold.
    let refused = database.open("alpha").append(&settled(&left));
    assert!(
        matches!(refused, Err(AppendError::OutOfOrder { why: LifecycleError::NotIntended, .. })),
        "{refused:?}"
    );
}

#[test]
fn a_name_is_of_one_key() {
    let database = shared().database();
    database.open("alpha").append(&battery(1)).map(drop).unwrap();
    let elsewhere =
        LedgerNode::in_directory(&database.url("owner"), &database.state("elsewhere"), "alpha").unwrap();
    let impostor = Ledger::connect(&elsewhere, LedgerSettings::default());
    assert!(
        matches!(&impostor, Err(LedgerOpenError::Connect(error)) if matches!(**error, ConnectError::NameTaken { .. })),
        "{impostor:?}"
    );
    database.open("alpha").append(&battery(2)).map(drop).unwrap();
    assert_eq!(database.verified()[0].records, 3);
}

#[test]
fn tables_are_made_once() {
    let database = shared().database();
    thread::scope(|scope| {
        for number in 0..8 {
            let database = &database;
            let name = ["alpha", "beta"][number % 2];
            scope.spawn(move || database.open(name).append(&battery(1)).map(drop).unwrap());
        }
    });
    assert_eq!(database.sql("SELECT count(*) FROM ringfence.schema"), "1");
    assert_eq!(database.verified().iter().map(|chain| chain.records).sum::<u64>(), 10);
}
