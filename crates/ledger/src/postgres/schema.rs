//! Tables of the ledger in a database, and their migrations.

use crate::postgres::connection::PostgresConnection;
use crate::postgres::error::{ConnectError, ConnectionFault};

/// One migration per version. A released migration is never changed.
const STEPS: &[&str] = &[FIRST];

/// `place` is the causal order of commits: a writer that answers a record has read it and so gets a higher place. It is not hashed.
/// `fence` is increased to declare earlier statements void. `seal` is the signature of the node over the head of its chain.
///
/// WHY NOT a foreign key from `record` to `head`: it would lock and look up a row that the same statement has just locked.
const FIRST: &str = "
    CREATE TABLE ringfence.head (
        chain integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id    text COLLATE \"C\" NOT NULL UNIQUE,
        node  text COLLATE \"C\" NOT NULL,
        seq   bigint NOT NULL,
        hash  text COLLATE \"C\" NOT NULL,
        fence bigint NOT NULL DEFAULT 0,
        seal  text COLLATE \"C\" NOT NULL DEFAULT '',
        aside text
    ) WITH (fillfactor = 20);
    CREATE UNIQUE INDEX head_node ON ringfence.head (node) WHERE aside IS NULL;
    CREATE TABLE ringfence.record (
        chain  integer NOT NULL,
        seq    bigint NOT NULL,
        place  bigint GENERATED ALWAYS AS IDENTITY,
        time   text COLLATE \"C\" NOT NULL,
        kind   text COLLATE \"C\" NOT NULL,
        ids    text COLLATE \"C\" NOT NULL,
        digest text COLLATE \"C\" NOT NULL,
        hash   text COLLATE \"C\" NOT NULL,
        body   text COLLATE \"C\",
        PRIMARY KEY (chain, seq)
    );
    CREATE UNIQUE INDEX record_place ON ringfence.record (place);
    CREATE INDEX record_kind ON ringfence.record (chain, kind, seq);
    CREATE INDEX record_time ON ringfence.record (chain, time, seq);
    CREATE TABLE ringfence.mention (
        id    text COLLATE \"C\" NOT NULL,
        place bigint NOT NULL,
        chain integer NOT NULL,
        seq   bigint NOT NULL,
        PRIMARY KEY (id, place)
    );
    CREATE TABLE ringfence.claim (
        key   text COLLATE \"C\" CONSTRAINT claim_once PRIMARY KEY,
        chain integer NOT NULL,
        seq   bigint NOT NULL
    );
    CREATE TABLE ringfence.open (
        id    text COLLATE \"C\" PRIMARY KEY,
        chain integer NOT NULL,
        seq   bigint NOT NULL
    );
";

/// Lock for migrations, so that of several starting processes one migrates.
const LOCK: i64 = 0x5246_4c31;

/// Migrates the tables to this version.
pub(crate) fn migrate(link: &mut PostgresConnection) -> Result<(), ConnectError> {
    match standing(link)? {
        SchemaStatus::Current => Ok(()),
        SchemaStatus::Behind(_) => with_lock(link),
    }
}

/// For readers: checks that the tables exist and have a known version.
pub(crate) fn check(link: &mut PostgresConnection) -> Result<(), ConnectError> {
    match standing(link)? {
        SchemaStatus::Current => Ok(()),
        SchemaStatus::Behind(_) => Err(ConnectError::NoSchema { source: None }),
    }
}

/// WHY NOT `to_regclass`: it caches the result from before the lock.
const IS_THERE: &str = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'ringfence' AND c.relname = 'schema')";

enum SchemaStatus {
    Current,
    /// Number of applied migrations.
    Behind(usize),
}

fn known() -> i32 {
    i32::try_from(STEPS.len()).unwrap_or(i32::MAX)
}

fn standing(link: &mut PostgresConnection) -> Result<SchemaStatus, ConnectError> {
    let address = link.address.to_string();
    let rows = link.read(IS_THERE, &[]);
    let rows = rows.map_err(|trouble| trouble.into_connect(address.clone()))?;
    let is_there = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false);
    if !is_there {
        return Ok(SchemaStatus::Behind(0));
    }
    let rows = link.read("SELECT coalesce(max(version), 0) FROM ringfence.schema", &[]);
    let rows = rows.map_err(|trouble| trouble.into_connect(address))?;
    let found: i32 = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0);
    match found {
        found if found > known() => Err(ConnectError::Newer { found, known: known() }),
        found if found == known() => Ok(SchemaStatus::Current),
        found => Ok(SchemaStatus::Behind(usize::try_from(found).unwrap_or(0))),
    }
}

fn with_lock(link: &mut PostgresConnection) -> Result<(), ConnectError> {
    let migrated = link
        .begin(&format!("SELECT pg_advisory_xact_lock({LOCK})"))
        .map_err(|trouble| refused(trouble, link))
        .and_then(|()| steps(link));
    if migrated.is_err() {
        link.roll_back();
    }
    migrated
}

fn steps(link: &mut PostgresConnection) -> Result<(), ConnectError> {
    // Another process may have migrated meanwhile.
    if let SchemaStatus::Behind(done) = standing(link)? {
        let mut all = "CREATE SCHEMA IF NOT EXISTS ringfence;
            CREATE TABLE IF NOT EXISTS ringfence.schema (version integer NOT NULL);"
            .to_owned();
        for (at, step) in STEPS.iter().enumerate().skip(done) {
            all.push_str(step);
            all.push_str(&format!(
                "INSERT INTO ringfence.schema (version) VALUES ({});",
                at.saturating_add(1)
            ));
        }
        link.batch(&all).map_err(|trouble| refused(trouble, link))?;
    }
    link.commit().map_err(|trouble| refused(trouble, link))
}

fn refused(trouble: ConnectionFault, link: &PostgresConnection) -> ConnectError {
    match trouble.into_connect(link.address.to_string()) {
        ConnectError::Denied { source } => ConnectError::NoSchema { source: Some(source) },
        other => other,
    }
}
