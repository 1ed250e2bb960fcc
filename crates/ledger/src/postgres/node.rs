//! A node: one writer of a database that has several, with a name, a key and a chain of its own.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use ringfence_types::{Bytes, ChainId, Principal};

use crate::chain::Head;
use crate::event::{Continued, Event};
use crate::key::Key;
use crate::postgres::address::Address;
use crate::postgres::error::{ConnectError, Trouble};
use crate::postgres::link::{Link, Purpose};
use crate::postgres::rows::{from_sql, get, to_sql};
use crate::postgres::{PostgresStore, rows::PostgresRows, schema};
use crate::store::{Entry, Fault};
use crate::writer::{self, Keyring, Prepared};

const LONGEST_NAME: usize = 64;

/// Where a node keeps its ledger, as whom, and with which key. Several processes of one machine are one node.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) address: Address,
    pub(crate) name: String,
    pub(crate) key: PathBuf,
}

impl Node {
    /// The node whose name and key are in `directory`. The name is kept there when it is used first; `name`: the one it
    /// gets then, and has to have later.
    pub fn in_directory(url: &str, directory: &Path, name: &str) -> Result<Self, ConnectError> {
        let address: Address = url.parse()?;
        check_name(name)?;
        let kept = keep_name(directory, name).map_err(|source| ConnectError::Directory {
            path: directory.to_owned(),
            source: Fault::new(source),
        })?;
        if kept != name {
            return Err(ConnectError::OtherNode { kept, given: name.to_owned() });
        }
        Ok(Self { address, name: name.to_owned(), key: directory.join("node.key") })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The store with the chain of this node, which begins if there is none.
    pub(crate) fn open(&self) -> Result<PostgresStore, ConnectError> {
        let mut link = Link::new(self.address.clone(), Purpose::Append)?;
        link.connect()?;
        schema::migrate(&mut link)?;
        let chain = match self.chain(&mut link)? {
            Some(chain) => chain,
            None => self.begin(&mut link, None)?,
        };
        let store = PostgresStore::new(link, chain);
        self.check_key(&store)?;
        Ok(store)
    }

    /// A name that somebody else uses already, on another machine, shows here: their key is another.
    fn check_key(&self, store: &PostgresStore) -> Result<(), ConnectError> {
        match writer::current_key(store).map_err(ConnectError::Store)? {
            Some(public) => Keyring::new(self.key.clone()).find(&public).map(drop).map_err(ConnectError::key),
            // The chain is broken, which is said by whoever appends.
            None => Ok(()),
        }
    }

    pub(crate) fn read(&self) -> Result<PostgresRows, ConnectError> {
        let mut link = Link::new(self.address.clone(), Purpose::Read)?;
        link.connect()?;
        schema::check(&mut link)?;
        let chain =
            self.chain(&mut link)?.ok_or_else(|| ConnectError::NoChain { node: self.name.clone() })?;
        Ok(PostgresRows::new(link, chain))
    }

    /// The chain that grows, by its number in the database.
    fn chain(&self, link: &mut Link) -> Result<Option<i32>, ConnectError> {
        let sql = "SELECT chain FROM ringfence.head WHERE node = $1 AND aside IS NULL";
        let rows = link.read(sql, &[&self.name]).map_err(|trouble| self.failed(trouble))?;
        rows.first().map(|row| get(row, 0)).transpose().map_err(ConnectError::Store)
    }

    /// Of several processes that begin a chain at once, one wins and all use its chain.
    fn begin(&self, link: &mut Link, continues: Option<Continued>) -> Result<i32, ConnectError> {
        let key = Key::load_or_create(&self.key).map_err(ConnectError::key)?;
        let id = ChainId::random().map_err(ConnectError::Random)?;
        let event = Event::ChainStarted {
            chain: id.clone(),
            node: self.name.clone(),
            key: key.public(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            continues,
        };
        let prepared = Prepared::new(&event, Timestamp::now())
            .map_err(|error| ConnectError::Encode(Fault::new(error)))?;
        self.insert(link, &id, &prepared.after(None))?;
        self.chain(link)?.ok_or_else(|| ConnectError::NoChain { node: self.name.clone() })
    }

    fn insert(&self, link: &mut Link, id: &ChainId, first: &Entry) -> Result<(), ConnectError> {
        let row = &first.row;
        let sql = "WITH begun AS (
                INSERT INTO ringfence.head (id, node, seq, hash) VALUES ($1, $2, $3, $4)
                ON CONFLICT (node) WHERE aside IS NULL DO NOTHING RETURNING chain)
            INSERT INTO ringfence.record (chain, seq, time, kind, ids, digest, hash, body)
            SELECT chain, $3, $5, $6, $7, $8, $4, $9 FROM begun";
        let answer = link.once(
            sql,
            &[
                &id.as_str(),
                &self.name,
                &to_sql(row.seq),
                &row.hash,
                &row.time,
                &row.kind,
                &row.ids,
                &row.digest,
                &row.body,
            ],
        );
        answer.map(drop).map_err(|trouble| self.failed(trouble))
    }

    /// Puts the chain of this node aside whole, where it can still be read and verified, and begins one that says so.
    pub fn acknowledge(&self, reason: &str, by: Principal) -> Result<ChainId, ConnectError> {
        let mut link = Link::new(self.address.clone(), Purpose::Append)?;
        link.connect()?;
        schema::migrate(&mut link)?;
        link.begin("SELECT").map_err(|trouble| self.failed(trouble))?;
        let put = self.put_aside(&mut link, reason, by);
        link.roll_back();
        put
    }

    fn put_aside(&self, link: &mut Link, reason: &str, by: Principal) -> Result<ChainId, ConnectError> {
        let sql = "UPDATE ringfence.head SET aside = $2 WHERE node = $1 AND aside IS NULL RETURNING id, seq, hash, chain";
        let rows = link.once(sql, &[&self.name, &reason]).map_err(|trouble| self.failed(trouble))?;
        let row = rows.first().ok_or_else(|| ConnectError::NoChain { node: self.name.clone() })?;
        let read = || -> Result<_, crate::store::StoreError> {
            Ok((get::<String>(row, 0)?, Head { seq: from_sql(get(row, 1)?), hash: get(row, 2)? }))
        };
        let (old, head) = read().map_err(ConnectError::Store)?;
        // What it left open is left to whoever looks at it; nobody goes on with it here.
        let number: i32 = get(row, 3).map_err(ConnectError::Store)?;
        let closed = link.once("DELETE FROM ringfence.open WHERE chain = $1", &[&number]);
        closed.map_err(|trouble| self.failed(trouble))?;
        let continues = Continued {
            file: Bytes::from(old.as_str()),
            head: Some(head),
            problem: Some("put aside by an operator".to_owned()),
            by,
            reason: Some(reason.to_owned()),
        };
        let chain = self.begin(link, Some(continues))?;
        let rows = link.once("SELECT id FROM ringfence.head WHERE chain = $1", &[&chain]);
        let rows = rows.map_err(|trouble| self.failed(trouble))?;
        let id = rows.first().map(|row| get(row, 0)).transpose().map_err(ConnectError::Store)?;
        link.commit().map_err(|trouble| self.failed(trouble))?;
        id.and_then(crate::postgres::rows::chain_id)
            .ok_or_else(|| ConnectError::NoChain { node: self.name.clone() })
    }

    fn failed(&self, trouble: Trouble) -> ConnectError {
        trouble.into_connect(self.address.to_string())
    }
}

fn check_name(name: &str) -> Result<(), ConnectError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(ConnectError::NodeName { node: name.to_owned() })
}

/// The name in the directory, which is `name` if there was none. It appears whole or not at all.
fn keep_name(directory: &Path, name: &str) -> io::Result<String> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join("node");
    if !path.exists() {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let draft = directory.join(format!("node.{:016x}.new", u64::from_le_bytes(random)));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        writeln!(file, "{name}")?;
        file.sync_all()?;
        let linked = fs::hard_link(&draft, &path);
        fs::remove_file(&draft)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(fs::read_to_string(&path)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let node = |name: &str| Node::in_directory("postgres://me@localhost/d", &state, name);
        assert_eq!(node("alpha").unwrap().name(), "alpha");
        assert_eq!(node("alpha").unwrap().name(), "alpha");
        assert!(matches!(node("beta"), Err(ConnectError::OtherNode { .. })));
        for bad in ["", "a b", "é", "a/b", &"x".repeat(65)] {
            assert!(matches!(node(bad), Err(ConnectError::NodeName { .. })), "{bad}");
        }
    }
}
