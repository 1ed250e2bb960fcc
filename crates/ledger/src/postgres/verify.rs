//! Verification of a database: every chain, and what chains say about each other.
//!
//! A role that may append can write the tables `head`, `mention`, `claim` and `open`, and can empty bodies. So the verifier
//! believes nothing in them that the signed records do not confirm.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use ringfence_types::ChainId;

use crate::chain::{ChainBreak, ChainFlaw, ChainHead};
use crate::event::{AsideProof, Checkpoint, Event, Kind, PreviousChain};
use crate::key;
use crate::postgres::aside::{Content, SetAside, said};
use crate::postgres::connection::{ConnectionPurpose, PostgresConnection as Connection};
use crate::postgres::node::LedgerNode;
use crate::postgres::rows::{PostgresRows, chain_id, from_sql, get, to_sql};
use crate::postgres::schema;
use crate::seal;
use crate::store::{ChainRows as _, ChainStoreError, ClaimKind, RowQuery, WitnessedHead};
use crate::verify::{
    ChainState, ExpectedHead, LifeWalk, Link, TransactionLives, Verification, VerifyError, verify_link,
};
use crate::writer::{Elsewhere, Keyring, Memory, check_elsewhere, lost_key};

/// Witnessed heads that are looked up in one statement.
const SIGHTS: usize = 1000;

/// Result for a database.
#[derive(Debug, Default)]
pub struct DatabaseVerification {
    /// Active chains that verify.
    pub chains: Vec<Verification>,
    /// Chains that were validly set aside.
    pub aside: Vec<SetAside>,
    /// All problems.
    pub problems: Vec<VerifyError>,
}

impl DatabaseVerification {
    /// The chains, or the first problem.
    pub fn whole(self) -> Result<Vec<Verification>, VerifyError> {
        match self.problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(self.chains),
        }
    }
}

/// Verifies every chain in the database of `node`, also those set aside. Every witnessed head must still be in its chain, and
/// `expected` must be in one of them.
pub fn verify_database(
    node: &LedgerNode,
    expected: ExpectedHead<'_>,
) -> Result<DatabaseVerification, VerifyError> {
    let mut connection = Connection::new(node.address.clone(), ConnectionPurpose::Read)?;
    connection.connect()?;
    schema::check(&mut connection)?;
    let rows = PostgresRows::new(connection, 0);
    // Before the snapshot: later signatures of this node are not in it.
    let memory = node.memory();
    // Otherwise the end of a chain would have moved on since its row in `head` was read.
    rows.hold_moment()?;
    let mut check = Check::new(rows, node)?;
    check.memory = memory;
    check.live()?;
    check.set_aside()?;
    check.sights()?;
    check.order()?;
    check.strays()?;
    check.own()?;
    check.expected(expected)?;
    check.rows.leave_moment()?;
    check.own_key()?;
    Ok(check.found)
}

/// A row of the table `head`.
struct HeadRow {
    number: i32,
    id: String,
    node: String,
    head: ChainHead,
    seal: String,
    is_aside: bool,
}

impl HeadRow {
    fn standing(&self) -> ChainState {
        if self.is_aside { ChainState::Aside } else { ChainState::Growing }
    }

    fn broken(&self, source: VerifyError) -> VerifyError {
        VerifyError::Chain { node: self.node.clone(), chain: self.id.clone(), source: Box::new(source) }
    }

    fn flawed(&self, what: ChainFlaw) -> VerifyError {
        self.broken(VerifyError::Broken(ChainBreak { seq: self.head.seq, what }))
    }
}

struct Check<'a> {
    rows: PostgresRows,
    node: &'a LedgerNode,
    heads: Vec<HeadRow>,
    /// Verified active chains, by number.
    links: HashMap<i32, Link>,
    /// Content of the chains that were set aside.
    contents: HashMap<i32, Content>,
    /// The first flaw of each of these that does not verify.
    flaws: HashMap<i32, VerifyError>,
    found: DatabaseVerification,
    /// What chains that were validly set aside have witnessed.
    witnesses: Vec<ChainWitness>,
    /// Local memory of this node when verification began.
    memory: Option<Memory>,
}

/// A chain that has witnessed others, with the numbers of its records that its node has signed.
struct ChainWitness {
    number: i32,
    id: String,
    signed: Vec<(u64, u64)>,
}

/// A statement that a chain was set aside.
struct Voucher {
    /// The chain that contains the statement.
    number: i32,
    digest: String,
    continues: Option<PreviousChain>,
    is_signed: bool,
}

impl<'a> Check<'a> {
    fn new(rows: PostgresRows, node: &'a LedgerNode) -> Result<Self, ChainStoreError> {
        let sql =
            "SELECT chain, id, node, seq, hash, seal, aside IS NOT NULL FROM ringfence.head ORDER BY chain";
        let head = |row: &tokio_postgres::Row| -> Result<HeadRow, ChainStoreError> {
            Ok(HeadRow {
                number: get(row, 0)?,
                id: get(row, 1)?,
                node: get(row, 2)?,
                head: ChainHead { seq: from_sql(get(row, 3)?), hash: get(row, 4)? },
                seal: get(row, 5)?,
                is_aside: get(row, 6)?,
            })
        };
        let heads: Result<Vec<HeadRow>, ChainStoreError> = rows.read(sql, &[])?.iter().map(head).collect();
        Ok(Self {
            rows,
            node,
            heads: heads?,
            links: HashMap::new(),
            contents: HashMap::new(),
            flaws: HashMap::new(),
            found: DatabaseVerification::default(),
            witnesses: Vec::new(),
            memory: None,
        })
    }

    fn problem(&mut self, problem: VerifyError) {
        self.found.problems.push(problem);
    }

    /// Verifies the active chains.
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

    /// Checks the chains that were set aside until no trusted chain adds a statement about them.
    fn set_aside(&mut self) -> Result<(), VerifyError> {
        let mut open: Vec<usize> = Vec::new();
        for (at, head) in self.heads.iter().enumerate().filter(|(_, head)| head.is_aside) {
            self.rows.chain = head.number;
            self.contents.insert(head.number, Content::read(&self.rows)?);
            match verify_link(&self.rows) {
                Err(VerifyError::Open(error)) => return Err(VerifyError::Open(error)),
                Err(error) => drop(self.flaws.insert(head.number, error)),
                Ok(_) => {}
            }
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
            self.found.problems.push(head.flawed(ChainFlaw::SetAside));
            // An operator who sets it aside or accepts it signs its content, so the operator sees first what is wrong with it.
            self.found.problems.extend(self.flaws.remove(&head.number).map(|flaw| head.broken(flaw)));
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
        let key = self.key_of(at, &chain, believed);
        let node = &self.heads.get(at)?.node;
        // Only its own node continues a chain; otherwise any node's name could be attached to it.
        let continuing = self.heads.iter().filter(|other| other.node == *node).filter_map(|other| {
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

    fn continues(&self, number: i32) -> Option<&PreviousChain> {
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
    ///
    /// A role that can begin a chain can write into it that it has witnessed something. So where the chain itself does not
    /// name its key, only the node that verifies is a witness, and no other may contradict it.
    fn key_of(&self, at: usize, chain: &ChainId, believed: &HashSet<i32>) -> Option<String> {
        let number = self.heads.get(at)?.number;
        let content = self.contents.get(&number)?;
        let (line, since) = match &content.line {
            Some(line) => (Some(line.clone()).filter(|line| line.chain == *chain)?, 0),
            None => {
                let links = believed.iter().filter_map(|number| self.links.get(number));
                let newest = links.flat_map(|link| seen_in(link, chain)).max_by_key(|seen| seen.head.seq)?;
                (content.keys_since(newest)?, newest.head.seq)
            }
        };
        let mut seen =
            self.links.values().flat_map(|link| seen_in(link, chain)).filter(|seen| seen.head.seq >= since);
        seen.all(|seen| line.keys.contains(&seen.key)).then(|| line.keys.last().cloned()).flatten()
    }

    fn accept(&mut self, at: usize, voucher: &Voucher, believed: &mut HashSet<i32>) {
        let Some(head) = self.heads.get(at) else { return };
        let Some(content) = self.contents.get(&head.number) else { return };
        if content.digest != voucher.digest {
            self.found.problems.push(head.flawed(ChainFlaw::ChangedAside));
            return;
        }
        let signed = self.signed_parts(at, voucher, believed);
        self.witnesses.push(ChainWitness { number: head.number, id: head.id.clone(), signed });
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
            by: continued.map(|continued| continued.actor.clone()),
            reason: continued.and_then(|continued| continued.reason.clone()),
            problem: continued.and_then(|continued| continued.problem.clone()),
            flaw: self.flaws.get(&head.number).map(|flaw| ringfence_types::chain(flaw)),
            is_signed: voucher.is_signed,
        });
    }

    /// The records of a chain that was set aside which one of its keys has signed.
    fn signed_parts(&self, at: usize, voucher: &Voucher, believed: &HashSet<i32>) -> Vec<(u64, u64)> {
        let Some((head, chain)) =
            self.heads.get(at).and_then(|head| Some((head, chain_id(head.id.clone())?)))
        else {
            return Vec::new();
        };
        let Some(content) = self.contents.get(&head.number) else { return Vec::new() };
        // A record that names a key can have lost its body. The chain that continues this one mostly has the same key.
        let of_next = voucher.continues.is_some().then(|| self.links.get(&voucher.number)).flatten();
        let mut keys: Vec<String> = of_next.map(|link| link.verification.keys.clone()).unwrap_or_default();
        keys.extend(
            content.line.iter().filter(|line| line.chain == chain).flat_map(|line| line.keys.clone()),
        );
        keys.extend(self.key_of(at, &chain, believed));
        let parts = content.signed.iter().filter(|part| part.chain == chain && keys.contains(&part.key));
        parts.map(|part| (part.first, part.last)).collect()
    }

    /// Every witnessed head must still exist. WHY NOT the last one of each chain alone: after a chain was cut back, the next checkpoint
    /// of another node witnesses the shorter chain.
    fn sights(&mut self) -> Result<(), VerifyError> {
        let is_walked = |head: &&HeadRow| self.links.contains_key(&head.number);
        let all = || vec![(0, u64::MAX)];
        let active = self.heads.iter().filter(is_walked);
        let active =
            active.map(|head| ChainWitness { number: head.number, id: head.id.clone(), signed: all() });
        // What was set aside has seen what it has seen.
        let witnesses: Vec<ChainWitness> = active.chain(self.witnesses.drain(..)).collect();
        for witness in witnesses {
            let (newest, lost) = self.checked_sights(&witness)?;
            let found: Vec<VerifyError> =
                newest.iter().filter_map(|seen| self.check_sight(&witness.id, seen)).collect();
            self.found.problems.extend(found);
            let lost = lost.iter().filter_map(|(chain, seen)| {
                let head = self.heads.iter().find(|head| head.number == *chain)?;
                Some(head.broken(unwitnessed(&witness.id, seen, head.head.seq.min(seen.seq))))
            });
            self.found.problems.extend(lost);
        }
        Ok(())
    }

    /// Whether the chain is there at all, and under the key that was witnessed.
    fn check_sight(&self, by: &str, seen: &WitnessedHead) -> Option<VerifyError> {
        let Some(head) = self.heads.iter().find(|head| head.id == seen.chain.as_str()) else {
            return Some(VerifyError::Chain {
                node: String::new(),
                chain: seen.chain.to_string(),
                source: Box::new(unwitnessed(by, &seen.head, seen.head.seq)),
            });
        };
        let link = self.links.get(&head.number)?;
        (!link.verification.keys.contains(&seen.key)).then(|| {
            let what = ChainFlaw::OtherKey { by: by.to_owned(), key: seen.key.clone() };
            head.broken(VerifyError::Broken(ChainBreak { seq: seen.head.seq, what }))
        })
    }

    /// The newest head that this chain has witnessed of each chain under each of its keys, and the first one of each chain that
    /// is not there any more.
    fn checked_sights(
        &mut self,
        witness: &ChainWitness,
    ) -> Result<(Vec<WitnessedHead>, BTreeMap<i32, ChainHead>), VerifyError> {
        self.rows.chain = witness.number;
        // A loss before a chain was set aside is the reason for it; later losses change its digest.
        let growing = self.heads.iter().filter(|head| !head.is_aside);
        let numbers: HashMap<&str, i32> = growing.map(|head| (head.id.as_str(), head.number)).collect();
        let (mut lost, mut failed) = (BTreeMap::new(), Ok(()));
        let mut newest: BTreeMap<(String, String), WitnessedHead> = BTreeMap::new();
        let mut page: Vec<(i32, ChainHead)> = Vec::new();
        for (first, last) in &witness.signed {
            let query = RowQuery::numbered(*first, *last).kinds(&[Kind::ChainWitnessed]);
            self.rows.scan(&query, &mut |row| {
                let event = row.body.and_then(|body| said(body, row.digest));
                let Some(Event::ChainWitnessed { chain, head, key }) = event else {
                    return ControlFlow::Continue(());
                };
                if let Some(number) = numbers.get(chain.as_str()) {
                    page.push((*number, head.clone()));
                }
                newest.insert((chain.to_string(), key.clone()), WitnessedHead { chain, head, key });
                if page.len() >= SIGHTS {
                    failed = self.rows.keep_lost(&mut page, &mut lost);
                }
                if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        failed?;
        self.rows.keep_lost(&mut page, &mut lost)?;
        Ok((newest.into_values().collect(), lost))
    }

    /// `None`: in any chain.
    fn is_there(&self, chain: Option<i32>, head: &ChainHead) -> Result<bool, ChainStoreError> {
        let sql = "SELECT seq FROM ringfence.record WHERE seq = $2 AND hash = $3 AND chain = ANY($1)";
        let chains: Vec<i32> = match chain {
            Some(chain) => vec![chain],
            None => self.heads.iter().map(|head| head.number).collect(),
        };
        Ok(!self.rows.read(sql, &[&chains, &to_sql(head.seq), &head.hash])?.is_empty())
    }

    /// Verifies the order of all transactions, and the table `open`.
    fn order(&mut self) -> Result<(), VerifyError> {
        let together = match self.lives() {
            Ok(together) => together,
            Err(VerifyError::Open(error)) => return Err(VerifyError::Open(error)),
            Err(error) => {
                self.problem(error);
                return Ok(());
            }
        };
        if !self.is_open_right(&together)? {
            let what = ChainFlaw::Index { table: "open".to_owned() };
            self.problem(VerifyError::Broken(ChainBreak { seq: 0, what }));
        }
        // The result belongs to all chains, so it is reported with the first.
        if let Some(first) = self.found.chains.first_mut() {
            first.incomplete = together.incomplete;
        }
        Ok(())
    }

    /// The table `open` decides what a node recovers after a crash. It must contain exactly the transactions without an end, each
    /// with its first record.
    fn is_open_right(&self, together: &TransactionLives) -> Result<bool, ChainStoreError> {
        let (mut open, mut is_right) = (0_usize, true);
        self.rows.open_rows(&mut |id, first| {
            if !together.unknown.contains(id) {
                open += 1;
                is_right &= together.open.get(id) == Some(&first);
            }
        })?;
        Ok(is_right && open == together.open.len())
    }

    /// Takes the records of all chains in the order of `place`. In one chain that is the order of their numbers.
    fn lives(&mut self) -> Result<TransactionLives, VerifyError> {
        let parted = self.contents.values().flat_map(|content| content.transactions.iter().cloned());
        let mut lives = LifeWalk::new(parted.collect());
        let mut last: HashMap<i32, u64> = HashMap::new();
        let standings: HashMap<i32, ChainState> =
            self.heads.iter().map(|head| (head.number, head.standing())).collect();
        let (mut broken, mut misplaced) = (None, HashSet::new());
        self.rows.scan_places(&mut |chain, row| {
            // A missing chain is reported separately.
            let Some(standing) = standings.get(&chain) else { return ControlFlow::Continue(()) };
            if last.insert(chain, row.seq).is_some_and(|before| before >= row.seq) {
                misplaced.insert(chain);
            }
            match lives.add(chain, *standing, row) {
                Ok(()) => ControlFlow::Continue(()),
                Err(found) => {
                    broken = Some(found);
                    ControlFlow::Break(())
                }
            }
        })?;
        for head in self.heads.iter().filter(|head| misplaced.contains(&head.number)) {
            let what = ChainFlaw::Index { table: "record".to_owned() };
            self.found.problems.push(head.flawed(what));
        }
        broken.map_or_else(|| lives.finish(), |broken| Err(VerifyError::Broken(broken)))
    }

    /// Rows of a chain that does not exist would block claims and appear under ids, and no walk would find them.
    fn strays(&mut self) -> Result<(), VerifyError> {
        // WHY NOT `DISTINCT` over the records: it would read all of them.
        let sql = "WITH RECURSIVE numbers (chain) AS (
                SELECT min(chain) FROM ringfence.record
                UNION ALL
                SELECT (SELECT min(chain) FROM ringfence.record r WHERE r.chain > numbers.chain)
                FROM numbers WHERE numbers.chain IS NOT NULL
            ) SELECT chain FROM numbers WHERE chain IS NOT NULL";
        let records: Result<BTreeSet<i32>, ChainStoreError> =
            self.rows.read(sql, &[])?.iter().map(|row| get(row, 0)).collect();
        self.check_strays("record", &records?);
        let mut open = BTreeSet::new();
        self.rows.open_rows(&mut |_, first| {
            open.insert(first.chain);
        })?;
        self.check_strays(ClaimKind::Open.word(), &open);
        for table in [ClaimKind::Mention, ClaimKind::Claim] {
            let found = self.rows.chains_beside(table)?;
            self.check_strays(table.word(), &found.named);
            for head in self.heads.iter().filter(|head| found.lost.contains(&head.number)) {
                let what = ChainFlaw::Index { table: table.word().to_owned() };
                self.found.problems.push(head.flawed(what));
            }
        }
        Ok(())
    }

    fn check_strays(&mut self, table: &str, numbers: &BTreeSet<i32>) {
        if numbers.iter().any(|number| self.heads.iter().all(|head| head.number != *number)) {
            self.problem(VerifyError::Stray { table: table.to_owned() });
        }
    }

    /// Compares the local memory of this node with its chain.
    fn own(&mut self) -> Result<(), VerifyError> {
        let Some(memory) = self.memory.take() else { return Ok(()) };
        let own = self.heads.iter().find(|head| !head.is_aside && head.node == self.node.name);
        let Some(own) = own else {
            // Setting a chain aside starts the next one in the same transaction.
            let kept = memory.head.map_or_else(|why| why.to_string(), |kept| kept.chain.to_string());
            let what = ChainFlaw::RolledBack { anchored: format!("chain {kept}") };
            self.problem(VerifyError::Broken(ChainBreak { seq: 0, what }));
            return Ok(());
        };
        let elsewhere = Elsewhere { anchor: None, memory: Some(memory) };
        self.rows.chain = own.number;
        if let Some(broken) = check_elsewhere(&self.rows, &own.head, &elsewhere)? {
            let problem = own.broken(VerifyError::Broken(broken));
            self.problem(problem);
        }
        Ok(())
    }

    /// Without the key of its chain this node can record nothing more. A node that never wrote has no key yet.
    fn own_key(&mut self) -> Result<(), VerifyError> {
        let own = self.heads.iter().find(|head| !head.is_aside && head.node == self.node.name);
        let Some(own) = own.filter(|_| self.node.memory().is_some()) else { return Ok(()) };
        self.rows.chain = own.number;
        if let Some(lost) = lost_key(&self.rows, &Keyring::new(self.node.key.clone()))? {
            let problem = own.broken(VerifyError::Broken(lost));
            self.problem(problem);
        }
        Ok(())
    }

    /// An expected head, checkpoint or key may belong to any node.
    fn expected(&mut self, expected: ExpectedHead<'_>) -> Result<(), VerifyError> {
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

    fn check_checkpoint(&self, checkpoint: &Checkpoint) -> Result<Option<VerifyError>, ChainStoreError> {
        if !checkpoint.is_signed() {
            return Ok(Some(VerifyError::Unsigned));
        }
        let covered = ChainHead { seq: checkpoint.last, hash: checkpoint.head.clone() };
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

fn unwitnessed(by: &str, seen: &ChainHead, seq: u64) -> VerifyError {
    let what = ChainFlaw::Unwitnessed { by: by.to_owned(), head: seen.to_string() };
    VerifyError::Broken(ChainBreak { seq, what })
}

/// Where a chain was seen by another one.
fn seen_in<'l>(link: &'l Link, chain: &ChainId) -> impl Iterator<Item = &'l WitnessedHead> {
    link.witnessed.iter().filter(move |seen| seen.chain == *chain)
}

/// The row in `head` must agree with the chain and be signed by its key.
fn check_head(head: &HeadRow, found: &Verification) -> Option<ChainFlaw> {
    let Some(chain) = found.chain.as_ref().filter(|chain| chain.as_str() == head.id) else {
        return Some(ChainFlaw::OtherName);
    };
    if found.node.as_deref() != Some(head.node.as_str()) {
        return Some(ChainFlaw::OtherName);
    }
    if found.head.as_ref() != Some(&head.head) {
        return Some(ChainFlaw::OtherEnd);
    }
    let is_signed = |key: &String| key::is_signed(key, &seal::end(chain, &head.head), &head.seal);
    (!found.keys.last().is_some_and(is_signed)).then_some(ChainFlaw::Unsealed)
}

fn is_signed(key: &str, proof: &AsideProof, new: &str) -> bool {
    let Some(new) = chain_id(new.to_owned()) else { return false };
    let signature = proof.signature.as_deref().unwrap_or_default();
    key::is_signed(key, &seal::aside(&proof.chain, &proof.digest, &new), signature)
}
