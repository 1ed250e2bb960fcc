//! The tables of the ledger in a database: how they are made, and how one version becomes the next.

use crate::postgres::error::{ConnectError, Trouble};
use crate::postgres::link::Link;

/// One step per version. A step that was ever released is never changed.
const STEPS: &[&str] = &[FIRST];

/// `place` is the order of commits as far as one caused another: whoever answers a record has read it, so it gets a
/// higher one. It is not hashed. `fence` grows when somebody must be sure that what they sent before is void. `seal` is the
/// signature of the node over the end of its chain.
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

/// Held while tables are made, so that of several programs that start at once one does it.
const LOCK: i64 = 0x5246_4c31;

/// Makes the tables what this version needs.
pub(crate) fn migrate(link: &mut Link) -> Result<(), ConnectError> {
    match standing(link)? {
        Standing::Current => Ok(()),
        Standing::Behind(_) => with_lock(link),
    }
}

/// For those who only read: the tables are there and known.
pub(crate) fn check(link: &mut Link) -> Result<(), ConnectError> {
    match standing(link)? {
        Standing::Current => Ok(()),
        Standing::Behind(_) => Err(ConnectError::NoSchema { source: None }),
    }
}

/// WHY NOT `to_regclass`: it remembers from before the lock that there was nothing.
const IS_THERE: &str = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'ringfence' AND c.relname = 'schema')";

enum Standing {
    Current,
    /// How many steps were made.
    Behind(usize),
}

fn known() -> i32 {
    i32::try_from(STEPS.len()).unwrap_or(i32::MAX)
}

fn standing(link: &mut Link) -> Result<Standing, ConnectError> {
    let address = link.address.to_string();
    let rows = link.read(IS_THERE, &[]);
    let rows = rows.map_err(|trouble| trouble.into_connect(address.clone()))?;
    let is_there = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false);
    if !is_there {
        return Ok(Standing::Behind(0));
    }
    let rows = link.read("SELECT coalesce(max(version), 0) FROM ringfence.schema", &[]);
    let rows = rows.map_err(|trouble| trouble.into_connect(address))?;
    let found: i32 = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0);
    match found {
        found if found > known() => Err(ConnectError::Newer { found, known: known() }),
        found if found == known() => Ok(Standing::Current),
        found => Ok(Standing::Behind(usize::try_from(found).unwrap_or(0))),
    }
}

fn with_lock(link: &mut Link) -> Result<(), ConnectError> {
    let migrated = link
        .begin(&format!("SELECT pg_advisory_xact_lock({LOCK})"))
        .map_err(|trouble| refused(trouble, link))
        .and_then(|()| steps(link));
    if migrated.is_err() {
        link.roll_back();
    }
    migrated
}

fn steps(link: &mut Link) -> Result<(), ConnectError> {
    // Somebody else may have done it while this one waited.
    if let Standing::Behind(done) = standing(link)? {
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

fn refused(trouble: Trouble, link: &Link) -> ConnectError {
    match trouble.into_connect(link.address.to_string()) {
        ConnectError::Denied { source } => ConnectError::NoSchema { source: Some(source) },
        other => other,
    }
}
