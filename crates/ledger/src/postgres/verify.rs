//! Every chain of a database, and what they say about each other.
//!
//! Whoever may append may write the tables `head`, `mention`, `claim` and `open`, and empty bodies. So nothing in them is
//! believed here that the records, with the signatures of their nodes, do not say as well.

use std::collections::{HashMap, HashSet};

use ringfence_types::{ChainId, TransactionId};

use crate::chain::{Break, Flaw, Head};
use crate::event::{AsideProof, Checkpoint, Continued};
use crate::key;
use crate::postgres::aside::{Content, SetAside};
use crate::postgres::link::{Link as Connection, Purpose};
use crate::postgres::node::Node;
use crate::postgres::rows::{PostgresRows, chain_id, from_sql, get, to_sql};
use crate::postgres::schema;
use crate::seal;
use crate::store::{StoreError, WitnessedHead};
use crate::verify::{Expected, Link, Verification, VerifyError, verify_link, verify_order};
use crate::writer::{Elsewhere, Keyring, check_elsewhere};

/// What was found in a database.
#[derive(Debug, Default)]
pub struct DatabaseVerification {
    /// The chains that grow and hold.
    pub chains: Vec<Verification>,
    /// The chains that were set aside in a way that holds.
    pub aside: Vec<SetAside>,
    /// Everything that does not hold.
    pub problems: Vec<VerifyError>,
}

impl DatabaseVerification {
    /// The chains, or the first thing that does not hold.
    pub fn whole(self) -> Result<Vec<Verification>, VerifyError> {
        match self.problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(self.chains),
        }
    }
}

/// Walks every chain in the database of `node`, also those that were set aside. Every head that one chain has witnessed must
/// still be in the other, and what is known from elsewhere must be in one of them.
pub fn verify_database(node: &Node, expected: Expected<'_>) -> Result<DatabaseVerification, VerifyError> {
    let mut connection = Connection::new(node.address.clone(), Purpose::Read)?;
    connection.connect()?;
    schema::check(&mut connection)?;
    let rows = PostgresRows::new(connection, 0);
    // Otherwise the end of a chain would have moved on since its row in `head` was read.
    rows.hold_moment()?;
    let mut check = Check::new(rows, node)?;
    check.live()?;
    check.set_aside()?;
    check.sights()?;
    check.order()?;
    check.strays()?;
    check.own()?;
    check.expected(expected)?;
    check.rows.leave_moment()?;
    Ok(check.found)
}

/// A row of the table `head`.
struct HeadRow {
    number: i32,
    id: String,
    node: String,
    head: Head,
    seal: String,
    is_aside: bool,
}

impl HeadRow {
    fn broken(&self, source: VerifyError) -> VerifyError {
        VerifyError::Chain { node: self.node.clone(), chain: self.id.clone(), source: Box::new(source) }
    }

    fn flawed(&self, what: Flaw) -> VerifyError {
        self.broken(VerifyError::Broken(Break { seq: self.head.seq, what }))
    }
}

struct Check<'a> {
    rows: PostgresRows,
    node: &'a Node,
    heads: Vec<HeadRow>,
    /// What the chains say that grow and hold, by their numbers.
    links: HashMap<i32, Link>,
    /// What is in the chains that were set aside.
    contents: HashMap<i32, Content>,
    found: DatabaseVerification,
}

/// Who says that a chain was set aside, and as what.
struct Voucher {
    /// The chain in which it is said.
    number: i32,
    digest: String,
    continues: Option<Continued>,
    is_signed: bool,
}

impl<'a> Check<'a> {
    fn new(rows: PostgresRows, node: &'a Node) -> Result<Self, StoreError> {
        let sql =
            "SELECT chain, id, node, seq, hash, seal, aside IS NOT NULL FROM ringfence.head ORDER BY chain";
        let head = |row: &tokio_postgres::Row| -> Result<HeadRow, StoreError> {
            Ok(HeadRow {
                number: get(row, 0)?,
                id: get(row, 1)?,
                node: get(row, 2)?,
                head: Head { seq: from_sql(get(row, 3)?), hash: get(row, 4)? },
                seal: get(row, 5)?,
                is_aside: get(row, 6)?,
            })
        };
        let heads: Result<Vec<HeadRow>, StoreError> = rows.read(sql, &[])?.iter().map(head).collect();
        Ok(Self {
            rows,
            node,
            heads: heads?,
            links: HashMap::new(),
            contents: HashMap::new(),
            found: DatabaseVerification::default(),
        })
    }

    fn problem(&mut self, problem: VerifyError) {
        self.found.problems.push(problem);
    }

    /// Walks the chains that grow.
    fn live(&mut self) -> Result<(), VerifyError> {
        for head in self.heads.iter().filter(|head| !head.is_aside) {
            self.rows.chain = head.number;
            match verify_link(&self.rows) {
                Err(VerifyError::Open(error)) => return Err(VerifyError::Open(error)),
                Err(error) => self.found.problems.push(head.broken(error)),
                Ok(link) => {
                    self.found
                        .problems
                        .extend(check_head(head, &link.verification).map(|what| head.flawed(what)));
                    self.found.chains.push(link.verification.clone());
                    self.links.insert(head.number, link);
                }
            }
        }
        Ok(())
    }

    /// Looks at the chains that were set aside, until nobody who is believed says anything new about them.
    fn set_aside(&mut self) -> Result<(), VerifyError> {
        let mut open: Vec<usize> = Vec::new();
        for (at, head) in self.heads.iter().enumerate().filter(|(_, head)| head.is_aside) {
            self.rows.chain = head.number;
            self.contents.insert(head.number, Content::read(&self.rows)?);
            open.push(at);
        }
        let mut believed: HashSet<i32> = self.own_chain().into_iter().collect();
        loop {
            let vouched: Vec<(usize, Voucher)> =
                open.iter().filter_map(|at| Some((*at, self.voucher(*at, &believed)?))).collect();
            if vouched.is_empty() {
                break;
            }
            for (at, voucher) in vouched {
                open.retain(|other| *other != at);
                self.accept(at, &voucher, &mut believed);
            }
        }
        for head in open.iter().filter_map(|at| self.heads.get(*at)) {
            self.found.problems.push(head.flawed(Flaw::SetAside));
        }
        Ok(())
    }

    /// The chain of the node that verifies: its own key has signed the end.
    fn own_chain(&self) -> Option<i32> {
        let keyring = Keyring::new(self.node.key.clone());
        let is_own = |head: &&HeadRow| {
            let chain = chain_id(head.id.clone()).filter(|_| !head.is_aside && head.node == self.node.name);
            chain.is_some_and(|chain| keyring.has_signed(&seal::end(&chain, &head.head), &head.seal))
        };
        self.heads.iter().find(is_own).map(|head| head.number)
    }

    fn voucher(&self, at: usize, believed: &HashSet<i32>) -> Option<Voucher> {
        let chain = chain_id(self.heads.get(at)?.id.clone())?;
        let key = self.key_of(at, &chain);
        let continuing = self.heads.iter().filter_map(|other| {
            let continues = self.continues(other.number)?;
            let proof = continues.proof.as_ref().filter(|proof| proof.chain == chain)?;
            let is_signed = key.as_deref().is_some_and(|key| is_signed(key, proof, &other.id));
            (is_signed || believed.contains(&other.number)).then(|| Voucher {
                number: other.number,
                digest: proof.digest.clone(),
                continues: Some(continues.clone()),
                is_signed,
            })
        });
        let acknowledging = believed.iter().filter_map(|number| {
            let (_, digest) = self.acknowledged(*number).iter().rfind(|(other, _)| *other == chain)?;
            Some(Voucher { number: *number, digest: digest.clone(), continues: None, is_signed: false })
        });
        continuing.chain(acknowledging).next()
    }

    fn continues(&self, number: i32) -> Option<&Continued> {
        match self.links.get(&number) {
            Some(link) => link.continues.as_ref(),
            None => self.contents.get(&number)?.continues.as_ref(),
        }
    }

    fn acknowledged(&self, number: i32) -> &[(ChainId, String)] {
        match (self.links.get(&number), self.contents.get(&number)) {
            (Some(link), _) => &link.acknowledged,
            (None, Some(content)) => &content.acknowledged,
            (None, None) => &[],
        }
    }

    /// The key that vouched for a chain last: by its own records, which the witnesses must know, or else by the witnesses.
    fn key_of(&self, at: usize, chain: &ChainId) -> Option<String> {
        let number = self.heads.get(at)?.number;
        let seen: Vec<&str> = self
            .links
            .values()
            .flat_map(|link| &link.witnessed)
            .filter(|seen| seen.chain == *chain)
            .map(|seen| seen.key.as_str())
            .collect();
        match self.contents.get(&number)?.line.as_ref().filter(|line| line.chain == *chain) {
            Some(line) if seen.iter().all(|key| line.keys.iter().any(|known| known == key)) => {
                line.keys.last().cloned()
            }
            Some(_) => None,
            // Witnesses that contradict each other prove nothing.
            None => {
                let first = seen.first()?;
                seen.iter().all(|key| key == first).then(|| (*first).to_owned())
            }
        }
    }

    fn accept(&mut self, at: usize, voucher: &Voucher, believed: &mut HashSet<i32>) {
        let Some(head) = self.heads.get(at) else { return };
        let Some(content) = self.contents.get(&head.number) else { return };
        if content.digest != voucher.digest {
            self.found.problems.push(head.flawed(Flaw::ChangedAside));
            return;
        }
        if believed.contains(&voucher.number) {
            believed.insert(head.number);
        }
        let continued = voucher.continues.as_ref();
        let by = self.heads.iter().find(|head| head.number == voucher.number).map(|head| head.id.clone());
        self.found.aside.push(SetAside {
            chain: head.id.clone(),
            node: head.node.clone(),
            records: content.records,
            continued_by: by.filter(|_| continued.is_some()),
            by: continued.map(|continued| continued.by.clone()),
            reason: continued.and_then(|continued| continued.reason.clone()),
            is_signed: voucher.is_signed,
        });
    }

    /// Every head that was witnessed last is still there.
    fn sights(&mut self) -> Result<(), VerifyError> {
        let by = |number| self.heads.iter().find(|head| head.number == number).map(|head| head.id.clone());
        let mut sights: Vec<(String, WitnessedHead)> = Vec::new();
        for (number, link) in &self.links {
            let by = by(*number).unwrap_or_default();
            sights.extend(link.witnessed.iter().map(|seen| (by.clone(), seen.clone())));
        }
        for (by, seen) in sights {
            if let Some(problem) = self.check_sight(&by, &seen)? {
                self.problem(problem);
            }
        }
        Ok(())
    }

    fn check_sight(&self, by: &str, seen: &WitnessedHead) -> Result<Option<VerifyError>, StoreError> {
        let unwitnessed = |seq| {
            let what = Flaw::Unwitnessed { by: by.to_owned(), head: seen.head.to_string() };
            VerifyError::Broken(Break { seq, what })
        };
        let Some(head) = self.heads.iter().find(|head| head.id == seen.chain.as_str()) else {
            return Ok(Some(VerifyError::Chain {
                node: String::new(),
                chain: seen.chain.to_string(),
                source: Box::new(unwitnessed(seen.head.seq)),
            }));
        };
        // What was lost before a chain was set aside is why it was; what is there since then has a digest.
        if head.is_aside {
            return Ok(None);
        }
        if !self.is_there(Some(head.number), &seen.head)? {
            return Ok(Some(head.broken(unwitnessed(head.head.seq.min(seen.head.seq)))));
        }
        let link = self.links.get(&head.number);
        Ok(link.filter(|link| !link.verification.keys.contains(&seen.key)).map(|_| {
            let what = Flaw::OtherKey { by: by.to_owned(), key: seen.key.clone() };
            head.broken(VerifyError::Broken(Break { seq: seen.head.seq, what }))
        }))
    }

    /// `None`: in any chain.
    fn is_there(&self, chain: Option<i32>, head: &Head) -> Result<bool, StoreError> {
        let sql = "SELECT seq FROM ringfence.record WHERE seq = $2 AND hash = $3 AND chain = ANY($1)";
        let chains: Vec<i32> = match chain {
            Some(chain) => vec![chain],
            None => self.heads.iter().map(|head| head.number).collect(),
        };
        Ok(!self.rows.read(sql, &[&chains, &to_sql(head.seq), &head.hash])?.is_empty())
    }

    /// The lives of all transactions, and what is open.
    fn order(&mut self) -> Result<(), VerifyError> {
        let excused: HashSet<String> =
            self.contents.values().flat_map(|content| content.transactions.iter().cloned()).collect();
        match order_and_open(&self.rows, excused) {
            // Nobody can say of which chain a transaction is; so it is said with the first.
            Ok(incomplete) => {
                if let Some(first) = self.found.chains.first_mut() {
                    first.incomplete = incomplete;
                }
            }
            Err(VerifyError::Open(error)) => return Err(VerifyError::Open(error)),
            Err(error) => self.problem(error),
        }
        Ok(())
    }

    /// Rows of a chain that is not there would block claims and be found under ids, and no walk would meet them.
    fn strays(&mut self) -> Result<(), VerifyError> {
        // WHY NOT `DISTINCT` over the records: it would read all of them.
        let sql = "WITH RECURSIVE numbers (chain) AS (
                SELECT min(chain) FROM ringfence.record
                UNION ALL
                SELECT (SELECT min(chain) FROM ringfence.record r WHERE r.chain > numbers.chain)
                FROM numbers WHERE numbers.chain IS NOT NULL
            ), used (part, chain) AS (
                SELECT 'record', chain FROM numbers WHERE chain IS NOT NULL
                UNION SELECT 'mention', chain FROM ringfence.mention
                UNION SELECT 'claim', chain FROM ringfence.claim
                UNION SELECT 'open', chain FROM ringfence.open
            ) SELECT DISTINCT part FROM used WHERE chain NOT IN (SELECT chain FROM ringfence.head) ORDER BY part";
        for row in self.rows.read(sql, &[])? {
            let table = get(&row, 0)?;
            self.problem(VerifyError::Stray { table });
        }
        Ok(())
    }

    /// What this node keeps about its own chain outside the database.
    fn own(&mut self) -> Result<(), VerifyError> {
        let Some(remembered) = self.node.remembered().transpose() else { return Ok(()) };
        let gone = remembered.as_ref().ok().map(|kept| kept.chain.to_string());
        let elsewhere = Elsewhere { anchor: None, remembered: Some(remembered) };
        let own = self.heads.iter().find(|head| !head.is_aside && head.node == self.node.name);
        let Some(own) = own else {
            // A chain that was set aside is told already.
            if let Some(chain) = gone.filter(|chain| self.heads.iter().all(|head| head.id != *chain)) {
                let what = Flaw::RolledBack { anchored: format!("chain {chain}") };
                self.problem(VerifyError::Broken(Break { seq: 0, what }));
            }
            return Ok(());
        };
        self.rows.chain = own.number;
        if let Some(broken) = check_elsewhere(&self.rows, &own.head, &elsewhere)? {
            let problem = own.broken(VerifyError::Broken(broken));
            self.problem(problem);
        }
        Ok(())
    }

    /// A head, a checkpoint or a key from elsewhere may be of any node.
    fn expected(&mut self, expected: Expected<'_>) -> Result<(), VerifyError> {
        if let Some(head) = expected.head
            && !self.is_there(None, head)?
        {
            self.problem(VerifyError::NoSuchHead(head.clone()));
        }
        if let Some(checkpoint) = expected.checkpoint
            && let Some(problem) = self.check_checkpoint(checkpoint)?
        {
            self.problem(problem);
        }
        if let Some(key) = expected.key {
            let mut signers = self.links.values().flat_map(|link| &link.signers);
            if !signers.any(|signer| signer.eq_ignore_ascii_case(key)) {
                self.problem(VerifyError::OtherKey);
            }
        }
        Ok(())
    }

    fn check_checkpoint(&self, checkpoint: &Checkpoint) -> Result<Option<VerifyError>, StoreError> {
        if !checkpoint.is_signed() {
            return Ok(Some(VerifyError::Unsigned));
        }
        let covered = Head { seq: checkpoint.last, hash: checkpoint.head.clone() };
        let Some(head) = self.heads.iter().find(|head| head.id == checkpoint.chain.as_str()) else {
            return Ok(Some(VerifyError::NoSuchHead(covered)));
        };
        let keys = match (self.links.get(&head.number), self.contents.get(&head.number)) {
            (Some(link), _) => link.verification.keys.clone(),
            (None, content) => {
                content.and_then(|content| content.line.clone()).map(|line| line.keys).unwrap_or_default()
            }
        };
        if !keys.contains(&checkpoint.key) {
            return Ok(Some(VerifyError::OtherKey));
        }
        Ok((!self.is_there(Some(head.number), &covered)?).then_some(VerifyError::NoSuchHead(covered)))
    }
}

/// That the row in `head` says what the chain says, and the key of the chain has signed it.
fn check_head(head: &HeadRow, found: &Verification) -> Option<Flaw> {
    let Some(chain) = found.chain.as_ref().filter(|chain| chain.as_str() == head.id) else {
        return Some(Flaw::OtherName);
    };
    if found.node.as_deref() != Some(head.node.as_str()) {
        return Some(Flaw::OtherName);
    }
    if found.head.as_ref() != Some(&head.head) {
        return Some(Flaw::OtherEnd);
    }
    let is_signed = |key: &String| key::is_signed(key, &seal::end(chain, &head.head), &head.seal);
    (!found.keys.last().is_some_and(is_signed)).then_some(Flaw::Unsealed)
}

fn is_signed(key: &str, proof: &AsideProof, new: &str) -> bool {
    let Some(new) = chain_id(new.to_owned()) else { return false };
    let signature = proof.signature.as_deref().unwrap_or_default();
    key::is_signed(key, &seal::aside(&proof.chain, &proof.digest, &new), signature)
}

/// What is open by the records of all chains is what the table says.
fn order_and_open(rows: &PostgresRows, excused: HashSet<String>) -> Result<Vec<TransactionId>, VerifyError> {
    let said = rows.read("SELECT id FROM ringfence.open", &[])?;
    let said: Result<HashSet<String>, StoreError> = said.iter().map(|row| get(row, 0)).collect();
    let said: HashSet<String> = said?.into_iter().filter(|id| !excused.contains(id)).collect();
    let (incomplete, open) = verify_order(rows, excused)?;
    if said == open {
        return Ok(incomplete);
    }
    let what = Flaw::Index { table: "open".to_owned() };
    Err(VerifyError::Broken(Break { seq: 0, what }))
}
