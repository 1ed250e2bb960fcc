//! Who gets in, how, and what they may do there.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use ringfence_ledger::{
    AppendError, ConnectError, DatabaseVerification, ExpectedHead, Ledger, LedgerNode, LedgerOpenError,
    LedgerSettings, verify_database,
};

use crate::bounded;
use crate::cluster::{Cluster, Database, OWNER, shared, succeeded, write_private};
use crate::events::{battery, ids, intent, settled};

fn refused(node: &LedgerNode) -> ConnectError {
    match Ledger::connect(node, LedgerSettings::default()) {
        Err(LedgerOpenError::Connect(error)) => {
            assert!(error.hint().is_some(), "{error:?}");
            *error
        }
        other => panic!("{other:?}"),
    }
}

/// A role of the test's own: roles are of the whole server.
fn role(database: &Database<'_>, options: &str) -> String {
    let role = format!("role_{}", database.name);
    database.sql(&format!("CREATE ROLE {role} LOGIN {options}"));
    role
}

/// What `docs/postgres.md` grants to a node.
fn rights(role: &str) -> String {
    let page = include_str!("../../../../docs/postgres.md");
    let (_, rest) = page.split_once("CREATE ROLE ringfence_node LOGIN;\n").unwrap();
    rest.split_once("```").unwrap().0.replace("ringfence_node", role)
}

pub(crate) fn granted(database: &Database<'_>) -> String {
    let role = role(database, "");
    database.sql(&rights(&role));
    role
}

#[test]
fn the_rights_in_the_manual_are_enough_and_no_more() {
    let database = shared().database();
    drop(database.open("alpha"));
    let role = role(&database, "");
    assert!(matches!(refused(&database.node_as("alpha", &role)), ConnectError::Denied { .. }));
    database.sql(&rights(&role));
    let ledger = Ledger::connect(&database.node_as("alpha", &role), LedgerSettings::default()).unwrap();
    let ids = ids();
    for event in [battery(1), intent(&ids), settled(&ids)] {
        drop(ledger.append(&event).unwrap());
    }
    let new = Ledger::connect(&database.node_as("beta", &role), LedgerSettings::default()).unwrap();
    drop(new.append(&battery(1)).unwrap());
    assert_eq!(
        verify_database(&database.node_as("alpha", &role), ExpectedHead::default())
            .and_then(DatabaseVerification::whole)
            .unwrap()
            .len(),
        2
    );
    for (attempt, name) in [
        ("DELETE FROM ringfence.record WHERE seq = 2", "delete"),
        ("UPDATE ringfence.record SET kind = 'x' WHERE seq = 2", "edit"),
        ("DELETE FROM ringfence.claim", "claims"),
        ("UPDATE ringfence.claim SET key = key || 'x'", "claims"),
        ("DELETE FROM ringfence.head", "chain"),
        ("TRUNCATE ringfence.record", "all"),
        ("DROP TABLE ringfence.mention", "table"),
        ("INSERT INTO ringfence.record (chain, seq, place, time, kind, ids, digest, hash) OVERRIDING SYSTEM VALUE
            VALUES (9, 9, -9, '', '', '', '', '')", "a place of one's choice"),
        ("INSERT INTO ringfence.head (chain, id, node, seq, hash) OVERRIDING SYSTEM VALUE VALUES (9, 'x', 'x', 1, '')", "a number"),
        ("INSERT INTO ringfence.schema VALUES (99)", "version"),
        ("CREATE FUNCTION ringfence.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'", "function"),
        ("ALTER TABLE ringfence.record DISABLE TRIGGER ALL", "triggers"),
        ("ALTER TABLE ringfence.record ENABLE ROW LEVEL SECURITY", "row security"),
        ("SELECT setval('ringfence.record_place_seq', 1)", "sequence"),
    ] {
        let as_role = format!("SET ROLE {role}; {attempt}");
        assert!(!database.cluster.psql(&database.name, &as_role).status.success(), "{name}");
        // Control: the owner can, in a transaction that is given up.
        database.sql(&format!("BEGIN; {attempt}; ROLLBACK"));
    }
}

#[test]
fn who_may_only_read_reads() {
    let database = shared().database();
    drop(database.open("alpha").append(&battery(1)).unwrap());
    let role = role(&database, "");
    database.sql(&format!(
        "GRANT USAGE ON SCHEMA ringfence TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA ringfence TO {role}"
    ));
    let reader = Ledger::connect_read(&database.node_as("alpha", &role)).unwrap();
    assert_eq!(reader.tail(1).unwrap()[0].event, battery(1));
    let ledger = Ledger::connect(&database.node_as("alpha", &role), LedgerSettings::default()).unwrap();
    let error = ledger.append(&battery(2)).unwrap_err();
    assert!(matches!(&error, AppendError::Server(_)) && error.hint().is_some(), "{error:?}");
    assert_eq!(reader.tail(5).unwrap().len(), 2);
}

#[test]
fn tables_that_are_not_ours_are_refused() {
    let newer = shared().database();
    drop(newer.open("alpha"));
    newer.sql("INSERT INTO ringfence.schema VALUES (99)");
    assert!(matches!(refused(&newer.node("alpha")), ConnectError::Newer { found: 99, .. }));
    let without = shared().database();
    let role = role(&without, "");
    assert!(matches!(refused(&without.node_as("alpha", &role)), ConnectError::NoSchema { .. }));
    let none = Ledger::connect_read(&without.node("alpha"));
    assert!(
        matches!(&none, Err(LedgerOpenError::Connect(error)) if matches!(**error, ConnectError::NoSchema { .. })),
        "{none:?}"
    );
    let other = shared().database();
    drop(other.open("alpha"));
    other.sql("ALTER TABLE ringfence.head RENAME COLUMN node TO knot");
    assert!(matches!(refused(&other.node("alpha")), ConnectError::WrongSchema { .. }));
    let lost = shared().database();
    let ledger = lost.open("alpha");
    lost.sql("DROP TABLE ringfence.claim");
    let error = ledger.append(&intent(&ids())).unwrap_err();
    assert!(matches!(error, AppendError::Storage(_)), "{error:?}");
}

#[test]
fn a_server_that_takes_no_writes_is_refused() {
    let database = shared().database();
    let role = granted_after_begin(&database);
    let ledger = Ledger::connect(&database.node_as("alpha", &role), LedgerSettings::default()).unwrap();
    drop(ledger.append(&battery(1)).unwrap());
    database.sql(&format!("ALTER ROLE {role} SET default_transaction_read_only = on"));
    assert!(matches!(refused(&database.node_as("alpha", &role)), ConnectError::ReadOnly));
    let reader = Ledger::connect_read(&database.node_as("alpha", &role)).unwrap();
    assert_eq!(reader.tail(9).unwrap().len(), 2);
    // Whoever is connected learns of it with the next connection.
    let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'");
    database.sql(&end);
    let error = ledger.append(&battery(2)).unwrap_err();
    assert!(matches!(&error, AppendError::Server(_)), "{error:?}");
    assert_eq!(database.verified()[0].records, 2);
}

fn granted_after_begin(database: &Database<'_>) -> String {
    drop(database.open("alpha"));
    granted(database)
}

#[test]
fn too_many_connections_are_said_to_be_that() {
    let database = shared().database();
    let role = granted_after_begin(&database);
    database.sql(&format!("ALTER ROLE {role} CONNECTION LIMIT 1"));
    let node = database.node_as("alpha", &role);
    let first = Ledger::connect(&node, LedgerSettings::default()).unwrap();
    assert!(matches!(refused(&node), ConnectError::Crowded { .. }));
    drop(first);
}

#[test]
fn what_is_not_there_is_said_to_be_missing() {
    let database = shared().database();
    let node = |url: String| LedgerNode::in_directory(&url, &database.state("alpha"), "alpha").unwrap();
    let directory = database.cluster.directory.display();
    let no_database = node(format!("postgres://{OWNER}@/nothing?host={directory}"));
    assert!(matches!(refused(&no_database), ConnectError::NoDatabase { .. }));
    let nobody = node(format!("postgres://stranger@/{}?host={directory}", database.name));
    assert!(matches!(refused(&nobody), ConnectError::NotLetIn { .. }));
    let no_server = node(format!("postgres://{OWNER}@/{}?host=/nonexistent", database.name));
    assert!(matches!(refused(&no_server), ConnectError::Unreachable { .. }));
    let missing = Ledger::connect_read(&database.node("alpha"));
    assert!(missing.is_err());
}

#[test]
fn a_server_that_can_lose_records_is_refused() {
    let cluster = Cluster::new("-c fsync=off");
    let database = cluster.database();
    let error = refused(&database.node("alpha"));
    assert!(matches!(error, ConnectError::NotDurable { setting: "fsync", .. }), "{error:?}");
    // What a role or a database says about commits makes no difference.
    let database = shared().database();
    database.sql(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name));
    drop(database.open("alpha").append(&battery(1)).unwrap());
}

#[test]
fn the_password_comes_from_a_file_and_is_never_said() {
    let database = shared().database();
    let secret = format!("s3:{}", "cret\\".repeat(2));
    let exists = "SELECT count(*) FROM pg_roles WHERE rolname = 'guarded'";
    if database.sql(exists) == "0" {
        database.sql("CREATE ROLE guarded LOGIN SUPERUSER");
    }
    database.sql(&format!("SET standard_conforming_strings = on; ALTER ROLE guarded PASSWORD '{secret}'"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("passwords");
    let node = || {
        let url = format!("{}&passfile={}", database.url("guarded"), file.display());
        LedgerNode::in_directory(&url, &database.state("alpha"), "alpha").unwrap()
    };
    let without = database.node_as("alpha", "guarded");
    assert!(matches!(refused(&without), ConnectError::NotLetIn { .. }));
    write_private(&file, "*:*:*:guarded:wrong\n");
    let error = refused(&node());
    assert!(matches!(error, ConnectError::NotLetIn { .. }), "{error:?}");
    assert!(!format!("{error:?} {error}").contains("wrong"));
    let escaped = secret.replace('\\', "\\\\").replace(':', "\\:");
    write_private(&file, &format!("*:*:other:guarded:wrong\n*:*:*:guarded:{escaped}\n"));
    let ledger = Ledger::connect(&node(), LedgerSettings::default()).unwrap();
    drop(ledger.append(&battery(1)).unwrap());
    assert!(!format!("{ledger:?} {:?}", node()).contains("cret"));
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert!(matches!(refused(&node()), ConnectError::Password(..)));
}

/// A certificate for `localhost` that vouches for itself, and its key.
fn certificate(directory: &Path) {
    let mut openssl = Command::new("/usr/bin/openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args([
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]);
    openssl.arg("-keyout").arg(directory.join("server.key")).arg("-out").arg(directory.join("server.crt"));
    succeeded(&bounded::output(openssl.env_clear().env("PATH", "/usr/bin").env("HOME", directory)));
}

#[test]
fn over_the_network_the_server_has_to_show_who_it_is() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificate(ours.path());
    certificate(theirs.path());
    let cluster = Cluster::with_certificate(ours.path(), port);
    let database = cluster.database();
    let node = |host: &str, options: &str| {
        let url = format!("postgres://{OWNER}@{host}:{port}/{}?{options}", database.name);
        LedgerNode::in_directory(&url, &database.state("alpha"), "alpha").unwrap()
    };
    let trusted =
        |directory: &Path| format!("sslmode=verify-full&sslrootcert={}/server.crt", directory.display());
    let ledger =
        Ledger::connect(&node("localhost", &trusted(ours.path())), LedgerSettings::default()).unwrap();
    drop(ledger.append(&battery(1)).unwrap());
    assert_eq!(database.sql("SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE s.ssl AND a.application_name = 'ringfence'"), "1");
    for (host, options) in [("localhost", trusted(theirs.path())), ("127.0.0.1", trusted(ours.path()))] {
        let error = refused(&node(host, &options));
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    }
    // The server takes nobody without TLS.
    assert!(matches!(refused(&node("127.0.0.1", "")), ConnectError::NotLetIn { .. }));
}
