//! A node: one of several writers of a database, with its own name, key and chain.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use ringfence_types::{ByteString, ChainId, Principal, chain};

use crate::chain::{ChainBreak, ChainFlaw, ChainHead};
use crate::event::{AsideProof, Event, PreviousChain};
use crate::key::{LedgerKey, LedgerKeyError};
use crate::postgres::address::PostgresAddress;
use crate::postgres::aside::Content;
use crate::postgres::connection::{ConnectionPurpose, PostgresConnection};
use crate::postgres::error::{ConnectError, ConnectionFault};
use crate::postgres::local_head::LocalHead;
use crate::postgres::rows::{PostgresRows, chain_id, from_sql, get, to_sql};
use crate::postgres::{PostgresStore, schema};
use crate::seal::{self, KeyLine};
use crate::settings::LedgerSettings;
use crate::sqlite::open::LedgerOpenError;
use crate::store::{BatchRow, ChainStoreError, StoreFault};
use crate::verify::{VerifyError, verify_link};
use crate::writer::{Elsewhere, Keyring, Memory, PreparedEvent, check_elsewhere};

const LONGEST_NAME: usize = 64;

const WITHOUT_KEY: &str = "the chain was set aside without its key";

/// Database, name and key of a node. Several processes of one machine are one node.
#[derive(Clone, Debug)]
pub struct LedgerNode {
    pub(crate) address: PostgresAddress,
    pub(crate) name: String,
    pub(crate) key: PathBuf,
}

impl LedgerNode {
    /// The node whose name and key are in `directory`. The first use stores `name` there; later uses must pass the same name.
    pub fn in_directory(url: &str, directory: &Path, name: &str) -> Result<Self, ConnectError> {
        let address: PostgresAddress = url.parse()?;
        check_name(name)?;
        let kept = keep_name(directory, name).map_err(|source| ConnectError::Directory {
            path: directory.to_owned(),
            source: StoreFault::new(source),
        })?;
        if kept != name {
            return Err(ConnectError::OtherNode { kept, given: name.to_owned() });
        }
        Ok(Self { address, name: name.to_owned(), key: directory.join("node.key") })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn address(&self) -> &PostgresAddress {
        &self.address
    }

    /// What this node keeps about its own chain.
    pub(crate) fn local_head(&self) -> io::Result<Option<LocalHead>> {
        LocalHead::load(&self.local_head_path())
    }

    /// [`LedgerNode::local_head`] with the keys of this node. `None`: nothing was kept yet.
    pub(crate) fn memory(&self) -> Option<Memory> {
        let head = self.local_head().transpose()?;
        Some(Memory { head, keyring: Keyring::new(self.key.clone()) })
    }

    pub(crate) fn local_head_path(&self) -> PathBuf {
        self.key.with_extension("chain")
    }

    /// Opens the store with the chain of this node. Starts the chain if there never was one.
    pub(crate) fn open(&self) -> Result<PostgresStore, ConnectError> {
        let mut link = self.connect()?;
        let chain = match self.chain(&mut link)? {
            Some(chain) => chain,
            None => self.begin_first(&mut link)?,
        };
        let store = PostgresStore::new(link, chain);
        self.check_key(&store.rows)?;
        Ok(store)
    }

    fn connect(&self) -> Result<PostgresConnection, ConnectError> {
        let mut link = PostgresConnection::new(self.address.clone(), ConnectionPurpose::Append)?;
        link.connect()?;
        schema::migrate(&mut link)?;
        Ok(link)
    }

    /// Detects a name that another machine already uses: its key differs.
    fn check_key(&self, rows: &PostgresRows) -> Result<(), ConnectError> {
        let mut before: Option<KeyLine> = None;
        loop {
            // A chain without a key is broken; the append reports that.
            let Some(line) = rows.key_line(rows.chain).map_err(ConnectError::Store)? else { return Ok(()) };
            let Some(public) = line.keys.last() else { return Ok(()) };
            match Keyring::new(self.key.clone()).find(public) {
                Ok(_) => return Ok(()),
                // Another process has rotated the key between the look at the chain and the look at the file.
                Err(LedgerKeyError::Other { .. })
                    if before.as_ref().is_none_or(|before| before.keys != line.keys) =>
                {
                    before = Some(line);
                }
                Err(LedgerKeyError::Missing { .. } | LedgerKeyError::Other { .. })
                    if !self.remembers(&line.chain) =>
                {
                    return Err(ConnectError::NameTaken { node: self.name.clone() });
                }
                Err(error) => return Err(ConnectError::key(error)),
            }
        }
    }

    fn remembers(&self, chain: &ChainId) -> bool {
        matches!(self.local_head(), Ok(Some(kept)) if kept.chain == *chain)
    }

    pub(crate) fn read(&self) -> Result<PostgresRows, ConnectError> {
        let mut link = PostgresConnection::new(self.address.clone(), ConnectionPurpose::Read)?;
        link.connect()?;
        schema::check(&mut link)?;
        let node = self.name.clone();
        let chain = match self.chain(&mut link)? {
            Some(chain) => chain,
            // A chain that was hidden is different from one that never existed.
            None if self.had_chain(&mut link)? => return Err(ConnectError::SetAside { node }),
            None => return Err(ConnectError::NoChain { node }),
        };
        Ok(PostgresRows::new(link, chain))
    }

    fn had_chain(&self, link: &mut PostgresConnection) -> Result<bool, ConnectError> {
        let sql = "SELECT chain FROM ringfence.head WHERE node = $1 LIMIT 1";
        let rows = link.read(sql, &[&self.name]).map_err(|trouble| self.failed(trouble))?;
        Ok(!rows.is_empty())
    }

    /// The active chain, by its number in the database.
    fn chain(&self, link: &mut PostgresConnection) -> Result<Option<i32>, ConnectError> {
        let sql = "SELECT chain FROM ringfence.head WHERE node = $1 AND aside IS NULL";
        let rows = link.read(sql, &[&self.name]).map_err(|trouble| self.failed(trouble))?;
        rows.first().map(|row| get(row, 0)).transpose().map_err(ConnectError::Store)
    }

    /// A node that had a chain gets another one only through `restart`, which records the reason: a role that may append can
    /// also write `aside`.
    fn begin_first(&self, link: &mut PostgresConnection) -> Result<i32, ConnectError> {
        // In this order: another process that begins the chain in between writes the database first.
        let local = self.local_head().map_err(|source| self.directory(source))?;
        let had_chain = self.had_chain(link)?;
        // Another process may have begun it meanwhile.
        if had_chain && self.chain(link)?.is_none() {
            return Err(ConnectError::SetAside { node: self.name.clone() });
        }
        if !had_chain && let Some(kept) = local {
            return Err(ConnectError::Gone { node: self.name.clone(), chain: kept.chain.to_string() });
        }
        let id = ChainId::random().map_err(ConnectError::Random)?;
        let first = self.begin(link, &id, None)?;
        let chain = self.chain(link)?.ok_or_else(|| ConnectError::NoChain { node: self.name.clone() })?;
        self.remember(link, chain, LocalHead { chain: id, head: first })?;
        Ok(chain)
    }

    /// If several processes start a chain at once, one wins and all use its chain.
    fn begin(
        &self,
        link: &mut PostgresConnection,
        id: &ChainId,
        continues: Option<PreviousChain>,
    ) -> Result<ChainHead, ConnectError> {
        let key = LedgerKey::load_or_create(&self.key).map_err(ConnectError::key)?;
        let event = Event::ChainStarted {
            chain: id.clone(),
            node: self.name.clone(),
            key: key.public(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            continues,
        };
        let prepared = PreparedEvent::new(&event, Timestamp::now())
            .map_err(|error| ConnectError::Encode(StoreFault::new(error)))?;
        let first = prepared.after(None);
        let head = first.row.head();
        self.insert(link, id, &key.sign(&seal::end(id, &head)), &first)?;
        Ok(head)
    }

    fn insert(
        &self,
        link: &mut PostgresConnection,
        id: &ChainId,
        seal: &str,
        first: &BatchRow,
    ) -> Result<(), ConnectError> {
        let row = &first.row;
        let sql = "WITH begun AS (
                INSERT INTO ringfence.head (id, node, seq, hash, seal) VALUES ($1, $2, $3, $4, $10)
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
                &seal,
            ],
        );
        answer.map(drop).map_err(|trouble| self.failed(trouble))
    }

    /// Stores which chain belongs to this node, if the database agrees.
    fn remember(
        &self,
        link: &mut PostgresConnection,
        number: i32,
        begun: LocalHead,
    ) -> Result<(), ConnectError> {
        let sql = "SELECT chain FROM ringfence.head WHERE chain = $1 AND id = $2";
        let rows =
            link.read(sql, &[&number, &begun.chain.as_str()]).map_err(|trouble| self.failed(trouble))?;
        if rows.is_empty() {
            return Ok(());
        }
        begun.keep(&self.local_head_path()).map_err(|source| self.directory(source))
    }

    /// Sets the chain of this node aside, readable and verifiable, and starts one that records this.
    pub fn restart(
        &self,
        settings: &LedgerSettings,
        reason: &str,
        by: Principal,
    ) -> Result<ChainId, ConnectError> {
        let mut link = self.connect()?;
        link.begin("SELECT").map_err(|trouble| self.failed(trouble))?;
        let mut rows = PostgresRows::new(link, 0);
        let put = self.set_aside(&mut rows, settings, reason, by);
        rows.link.get_mut().roll_back();
        put
    }

    fn set_aside(
        &self,
        rows: &mut PostgresRows,
        settings: &LedgerSettings,
        reason: &str,
        by: Principal,
    ) -> Result<ChainId, ConnectError> {
        let old = self.newest(rows)?;
        let line = rows.key_line(rows.chain).map_err(ConnectError::Store)?;
        let key = self.own_key(&old, line.as_ref())?;
        let problem = self.problem(rows, &old, settings)?;
        if let Err(LedgerKeyError::NotAKey { .. }) = LedgerKey::load(&self.key) {
            let unusable = self.key.with_extension("key.broken");
            fs::rename(&self.key, unusable).map_err(|source| self.directory(source))?;
        }
        let failed = |trouble| self.failed(trouble);
        let number = rows.chain;
        let link = rows.link.get_mut();
        let sql = "UPDATE ringfence.head SET aside = $2 WHERE chain = $1";
        link.once(sql, &[&number, &reason]).map_err(failed)?;
        // Open transactions of the old chain are not continued.
        link.once("DELETE FROM ringfence.open WHERE chain = $1", &[&number]).map_err(failed)?;
        let content = Content::read(rows).map_err(ConnectError::Store)?;
        let new = ChainId::random().map_err(ConnectError::Random)?;
        let signature = key.map(|key| key.sign(&seal::aside(&old.id, &content.digest, &new)));
        let continues = PreviousChain {
            file: ByteString::from(old.id.as_str()),
            head: Some(old.head),
            problem: Some(problem),
            actor: by,
            reason: Some(reason.to_owned()),
            chain: settings.anchored_chain(),
            proof: Some(AsideProof { chain: old.id, digest: content.digest, signature }),
        };
        let link = rows.link.get_mut();
        let head = self.begin(link, &new, Some(continues))?;
        link.commit().map_err(failed)?;
        // Should this not be reached, the next start sees that the new chain continues what is remembered.
        let begun = LocalHead { chain: new.clone(), head };
        begun.keep(&self.local_head_path()).map_err(|source| self.directory(source))?;
        Ok(new)
    }

    /// The chain to set aside: the active one, or the last one if it was hidden. Locked against appends until the end of the
    /// transaction.
    fn newest(&self, rows: &mut PostgresRows) -> Result<Newest, ConnectError> {
        let sql = "SELECT chain, id, seq, hash, seal, aside IS NOT NULL FROM ringfence.head WHERE node = $1
            ORDER BY aside IS NULL DESC, chain DESC LIMIT 1 FOR UPDATE";
        let found = rows.link.get_mut().once(sql, &[&self.name]).map_err(|trouble| self.failed(trouble))?;
        let no_chain = || ConnectError::NoChain { node: self.name.clone() };
        let row = found.first().ok_or_else(no_chain)?;
        let mut read = |row: &tokio_postgres::Row| -> Result<Option<Newest>, ChainStoreError> {
            rows.chain = get(row, 0)?;
            let head = ChainHead { seq: from_sql(get(row, 2)?), hash: get(row, 3)? };
            let (seal, is_aside) = (get(row, 4)?, get(row, 5)?);
            Ok(chain_id(get(row, 1)?).map(|id| Newest { id, head, seal, is_aside }))
        };
        read(row).map_err(ConnectError::Store)?.ok_or_else(no_chain)
    }

    /// The key of the chain, if this node still has it. A chain of another machine is refused, because setting it aside would lock
    /// its node out.
    fn own_key(&self, old: &Newest, line: Option<&KeyLine>) -> Result<Option<LedgerKey>, ConnectError> {
        let keyring = Keyring::new(self.key.clone());
        let current = line.filter(|line| line.chain == old.id).and_then(|line| line.keys.last());
        if let Some(Ok(key)) = current.map(|public| keyring.find(public)) {
            return Ok(Some(key));
        }
        if keyring.has_signed(&seal::end(&old.id, &old.head), &old.seal) {
            return Ok(LedgerKey::load(&self.key).ok());
        }
        if self.remembers(&old.id) {
            return Ok(None);
        }
        Err(ConnectError::NameTaken { node: self.name.clone() })
    }

    /// The reason why the chain is broken. An intact chain is not set aside.
    fn problem(
        &self,
        rows: &PostgresRows,
        old: &Newest,
        settings: &LedgerSettings,
    ) -> Result<String, ConnectError> {
        // A role that has set it aside may also have changed it, and this node signs what is left of it.
        match (old.is_aside, self.flaw(rows, old, settings)?) {
            (true, None) => Ok(WITHOUT_KEY.to_owned()),
            (true, Some(flaw)) => Ok(format!("{WITHOUT_KEY}; {flaw}")),
            (false, Some(flaw)) => Ok(flaw),
            (false, None) => Err(ConnectError::Whole { node: self.name.clone() }),
        }
    }

    /// What does not hold in the chain, besides that it was set aside.
    fn flaw(
        &self,
        rows: &PostgresRows,
        old: &Newest,
        settings: &LedgerSettings,
    ) -> Result<Option<String>, ConnectError> {
        let found = match verify_link(rows) {
            Err(VerifyError::Open(LedgerOpenError::Connect(error))) => return Err(*error),
            Err(error) => return Ok(Some(chain(&error))),
            Ok(link) => link.verification,
        };
        let broken = |what| Ok(Some(ChainBreak { seq: old.head.seq, what }.to_string()));
        let keyring = Keyring::new(self.key.clone());
        let key = found.keys.last().map(|public| keyring.find(public));
        if let Some(Err(error)) = key {
            return Ok(Some(chain(&error)));
        }
        if found.head.as_ref() != Some(&old.head) {
            return broken(ChainFlaw::OtherEnd);
        }
        if !keyring.has_signed(&seal::end(&old.id, &old.head), &old.seal) {
            return broken(ChainFlaw::Unsealed);
        }
        let elsewhere = Elsewhere { anchor: settings.anchor.as_ref(), memory: self.memory() };
        let found = check_elsewhere(rows, &old.head, &elsewhere).map_err(ConnectError::Store)?;
        Ok(found.map(|broken| broken.to_string()))
    }

    /// The record with which this node accepts a chain that was set aside without a signature of its key.
    pub fn acknowledging(&self, chain: &str, reason: &str, by: Principal) -> Result<Event, ConnectError> {
        let link = self.connect()?;
        let mut rows = PostgresRows::new(link, 0);
        let sql =
            "SELECT chain, id, node FROM ringfence.head WHERE id = $1 AND aside IS NOT NULL AND node <> $2";
        let found = rows.read(sql, &[&chain, &self.name]).map_err(ConnectError::Store)?;
        let not_aside = || ConnectError::NotAside { chain: chain.to_owned() };
        let row = found.first().ok_or_else(not_aside)?;
        rows.chain = get(row, 0).map_err(ConnectError::Store)?;
        let node: String = get(row, 2).map_err(ConnectError::Store)?;
        let digest = Content::read(&rows).map_err(ConnectError::Store)?.digest;
        let chain = chain_id(chain.to_owned()).ok_or_else(not_aside)?;
        Ok(Event::ChainAcknowledged { chain, node, digest, actor: by, reason: reason.to_owned() })
    }

    fn directory(&self, source: io::Error) -> ConnectError {
        let path = self.key.parent().unwrap_or(&self.key).to_owned();
        ConnectError::Directory { path, source: StoreFault::new(source) }
    }

    fn failed(&self, trouble: ConnectionFault) -> ConnectError {
        trouble.into_connect(self.address.to_string())
    }
}

/// The chain of a node as the table `head` has it.
struct Newest {
    id: ChainId,
    head: ChainHead,
    seal: String,
    is_aside: bool,
}

fn check_name(name: &str) -> Result<(), ConnectError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(ConnectError::NodeName { node: name.to_owned() })
}

/// Reads the name from the directory, or stores `name` atomically.
fn keep_name(directory: &Path, name: &str) -> io::Result<String> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join("node");
    // Without a key nothing was written under the stored name: the name was taken, and the operator chose another.
    let is_unused = !directory.join("node.key").exists();
    if is_unused && path.exists() && fs::read_to_string(&path)?.trim_end() != name {
        fs::remove_file(&path)?;
    }
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
        let node = |name: &str| LedgerNode::in_directory("postgres://me@localhost/d", &state, name);
        assert_eq!(node("taken").unwrap().name(), "taken");
        assert_eq!(node("alpha").unwrap().name(), "alpha", "nothing was written as the first");
        fs::write(state.join("node.key"), "").unwrap();
        assert_eq!(node("alpha").unwrap().name(), "alpha");
        assert!(matches!(node("beta"), Err(ConnectError::OtherNode { .. })));
        for bad in ["", "a b", "é", "a/b", &"x".repeat(65)] {
            assert!(matches!(node(bad), Err(ConnectError::NodeName { .. })), "{bad}");
        }
    }
}
