//! Verification: walks a chain and checks hashes, order, claims, signatures and side tables.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::mem;
use std::ops::ControlFlow;
use std::path::Path;

use ringfence_types::{ByteString, ChainId, TransactionId};
use serde::{Deserialize, Serialize};

use crate::chain::{ChainBreak, ChainFlaw, ChainHead, GENESIS, HexDigest, RowRef, unhex};
use crate::claim::ClaimSubject;
use crate::event::{Checkpoint, Event, Kind, PreviousChain, RetentionClass};
use crate::key;
use crate::lifecycle::{Lifecycle, LifecycleError, LifecycleStep, TransactionStatus};
use crate::merkle::MerkleFrontier;
use crate::reader::transaction_id;
use crate::sqlite::open::{self, LedgerOpenError, SCHEMA_VERSION};
use crate::sqlite::{archive, format1, rows::SqliteRows};
use crate::store::{
    ChainRows, ChainSelection, ChainStoreError, ClaimKind, RowQuery, StoreFault, WitnessedHead,
};
use crate::writer::{Keyring, lost_key};

/// Records between two progress reports.
const NEWS: u64 = 4096;

/// A chain that verifies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    pub records: u64,
    /// `None`: empty chain. Kept elsewhere and passed to a later [`verify()`], it detects truncation.
    pub head: Option<ChainHead>,
    /// Transactions with an intent and no end: running, or interrupted by a crash. In the order of their intents.
    pub incomplete: Vec<TransactionId>,
    pub format: i64,
    /// `None`: format 1.
    pub chain: Option<ChainId>,
    /// Node that wrote it, according to the chain itself.
    pub node: Option<String>,
    /// All keys of the chain, newest last.
    pub keys: Vec<String>,
    pub checkpoints: u64,
    /// The last record that a checkpoint covers.
    pub signed: u64,
    /// Records whose bodies were pruned.
    pub pruned: u64,
}

/// Facts about a chain that are known from elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExpectedHead<'a> {
    /// Must be in the chain.
    pub head: Option<&'a ChainHead>,
    /// Must be signed, and what it covers must be in the chain.
    pub checkpoint: Option<&'a Checkpoint>,
    /// Must be a key of the chain that has signed something.
    pub key: Option<&'a str>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    #[error(transparent)]
    Open(#[from] LedgerOpenError),
    #[error("the ledger is broken: {0}")]
    Broken(ChainBreak),
    #[error("the file is damaged after record {after}")]
    Damaged { after: u64, source: StoreFault },
    #[error("the checkpoint to compare with is not signed by the key it names")]
    Unsigned,
    #[error("the checkpoint to compare with is of chain {expected}, and this is {found}")]
    OtherChain { expected: String, found: String },
    #[error("no checkpoint of this chain is signed by the expected key")]
    OtherKey,
    #[error("no chain of the database has record {0}: records were cut off or rewritten")]
    NoSuchHead(ChainHead),
    #[error("the database has rows of a chain that is not there, in the table `{table}`")]
    Stray { table: String },
    #[error("chain {chain} of node `{}` does not hold", ByteString::from(node.as_str()).display())]
    Chain { node: String, chain: String, source: Box<VerifyError> },
}

/// Verifies the whole chain. The head `expected`, if given, must be in it.
pub fn verify(path: &Path, expected: Option<&ChainHead>) -> Result<Verification, VerifyError> {
    verify_with(path, ExpectedHead { head: expected, ..ExpectedHead::default() }, &mut |_| {})
}

/// [`verify()`] with all facts known from elsewhere. `news` gets the number of checked records at intervals.
pub fn verify_with(
    path: &Path,
    expected: ExpectedHead<'_>,
    news: &mut dyn FnMut(u64),
) -> Result<Verification, VerifyError> {
    match open::open_to_read(path)? {
        (connection, SCHEMA_VERSION) => {
            let mut walk = VerifyWalk::new(expected);
            walk.whole(&SqliteRows::new(connection), news)?;
            walk.finish()
        }
        (connection, format) => {
            let head = format1::walk(&connection, expected.head)?.map_err(VerifyError::Broken)?;
            let records = head.as_ref().map_or(0, |head| head.seq);
            Ok(Verification { records, head, format, ..Verification::default() })
        }
    }
}

/// Whether the key beside the file at `path` is the one that its chain names last. Otherwise every append is refused, although the
/// chain verifies.
pub fn verify_key(path: &Path) -> Result<(), VerifyError> {
    let (connection, SCHEMA_VERSION) = open::open_to_read(path)? else { return Ok(()) };
    let keyring = Keyring::new(archive::key_of(path));
    lost_key(&SqliteRows::new(connection), &keyring)?.map_or(Ok(()), |lost| Err(VerifyError::Broken(lost)))
}

/// [`verify_with`] over any store.
pub fn verify_rows(rows: &dyn ChainRows, expected: ExpectedHead<'_>) -> Result<Verification, VerifyError> {
    let mut walk = VerifyWalk::new(expected);
    walk.whole(rows, &mut |_| {})?;
    walk.finish()
}

/// A verified chain of several, and its statements about the others.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) verification: Verification,
    /// The newest witnessed head of each other chain under each of its keys, and what was witnessed later but is older: the other
    /// chain was cut back.
    pub(crate) witnessed: Vec<WitnessedHead>,
    /// Acknowledged chains with their digests.
    pub(crate) acknowledged: Vec<(ChainId, String)>,
    pub(crate) continues: Option<PreviousChain>,
    /// Every key that has signed something.
    pub(crate) signers: Vec<String>,
}

/// Verifies one chain of several, without the order of transactions. The caller holds the snapshot.
pub(crate) fn verify_link(rows: &dyn ChainRows) -> Result<Link, VerifyError> {
    let mut walk = VerifyWalk::new(ExpectedHead::default());
    walk.part = VerifyAspect::Link;
    walk.chain(rows, &mut |_| {})?;
    let mut link = mem::take(&mut walk.link);
    link.signers = mem::take(&mut walk.signers);
    link.verification = walk.finish()?;
    Ok(link)
}

/// Whether a chain is active or was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainState {
    Growing,
    Aside,
}

/// Where a transaction began: the number of a chain in the database, and of a record in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstRecord {
    pub(crate) chain: i32,
    pub(crate) seq: u64,
}

/// Walks the transactions of all chains together, record by record.
pub(crate) struct LifeWalk {
    walk: VerifyWalk<'static>,
}

/// Result of a [`LifeWalk`].
#[derive(Debug, Default)]
pub(crate) struct TransactionLives {
    /// Begun and without an end.
    pub(crate) incomplete: Vec<TransactionId>,
    /// Without an end, with the first record about each.
    pub(crate) open: HashMap<String, FirstRecord>,
    /// Started or ended in chains that were set aside: whether they are open is unknown.
    pub(crate) unknown: HashSet<String>,
}

impl LifeWalk {
    /// `parted`: transactions with records in a chain that was set aside.
    pub(crate) fn new(parted: HashSet<String>) -> Self {
        let mut walk = VerifyWalk::new(ExpectedHead::default());
        walk.part = VerifyAspect::Order;
        walk.parted = parted.into_iter().map(|id| (id.into(), SplitLife::default())).collect();
        Self { walk }
    }

    /// Adds the next record, of the chain with this number.
    pub(crate) fn add(
        &mut self,
        chain: i32,
        standing: ChainState,
        row: RowRef<'_>,
    ) -> Result<(), ChainBreak> {
        match standing {
            ChainState::Growing => {
                self.walk.number = chain;
                self.walk.step_order(row)
            }
            ChainState::Aside => {
                self.walk.step_aside(row);
                Ok(())
            }
        }
    }

    pub(crate) fn finish(self) -> Result<TransactionLives, VerifyError> {
        let mut together = TransactionLives::default();
        for (id, known) in self.walk.lives.iter().filter(|(_, known)| !known.life.is_over()) {
            together.open.insert(id.to_string(), FirstRecord { chain: known.chain, seq: known.first });
        }
        for (id, parted) in &self.walk.parted {
            match parted.openness() {
                Openness::Open(first) => drop(together.open.insert(id.to_string(), first)),
                Openness::Unknown => drop(together.unknown.insert(id.to_string())),
                Openness::Over => {}
            }
        }
        together.incomplete = self.walk.finish()?.incomplete;
        Ok(together)
    }
}

/// The last valid head, and the problem after it.
pub(crate) fn upto(path: &Path) -> (Option<ChainHead>, Result<(), VerifyError>) {
    match open::open_to_read(path) {
        Ok((connection, SCHEMA_VERSION)) => {
            let mut walk = VerifyWalk::new(ExpectedHead::default());
            let walked = walk.whole(&SqliteRows::new(connection), &mut |_| {});
            (walk.head(), walked)
        }
        Ok((connection, _)) => match format1::walk(&connection, None) {
            Ok(Ok(head)) => (head, Ok(())),
            Ok(Err(broken)) => (None, Err(VerifyError::Broken(broken))),
            Err(error) => (None, Err(error.into())),
        },
        Err(error) => (None, Err(error.into())),
    }
}

/// The parts of a body that determine order. Ids need no unescaping, so nothing is copied.
#[derive(Deserialize)]
struct EventOutline<'a> {
    kind: &'a str,
    transaction: Option<&'a str>,
    session: Option<&'a str>,
    grant: Option<&'a str>,
    fingerprint: Option<&'a str>,
}

struct VerifyWalk<'a> {
    expected: ExpectedHead<'a>,
    seq: u64,
    hash: String,
    lives: HashMap<Box<str>, TrackedLifecycle>,
    tree: MerkleFrontier,
    result: Verification,
    gone: Vec<(u64, RetentionClass)>,
    prunings: Vec<SeenPruning>,
    signers: Vec<String>,
    hasher: RandomState,
    mentions: u64,
    /// Of all claims but those of votes.
    claims: u64,
    votes: u64,
    /// Which transaction was voted about in which record, which is known also without the body.
    voted: u64,
    /// A pruned vote made a claim that is no longer known.
    votes_gone: bool,
    part: VerifyAspect,
    link: Link,
    parted: HashMap<Box<str>, SplitLife>,
    grants: HashMap<Box<str>, GrantTally>,
    /// Of the chain that the next record is of, where there are several.
    number: i32,
}

/// What is checked of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerifyAspect {
    Everything,
    /// Its place in the chain.
    Link,
    /// Its place in the life of its transaction, of which other chains may have a part.
    Order,
}

struct TrackedLifecycle {
    life: Lifecycle,
    /// Where there are several chains.
    chain: i32,
    first: u64,
}

/// Lifecycle of a transaction with records in a chain that was set aside.
///
/// Such records are used only where they fit: the chain may be damaged, and a role that can start a chain can set it aside. A
/// record of an active chain must fit either the records of active chains, or all records.
struct SplitLife {
    /// According to active chains. `None`: they do not form a valid lifecycle alone.
    alone: Option<Lifecycle>,
    joined: Option<Lifecycle>,
    /// The first record in an active chain.
    first: Option<FirstRecord>,
    /// Which kind of chain has the first record.
    began: Option<ChainState>,
}

/// Whether a transaction belongs into the table `open`.
enum Openness {
    Open(FirstRecord),
    Over,
    Unknown,
}

impl Default for SplitLife {
    fn default() -> Self {
        let life = Some(Lifecycle::default());
        Self { alone: life.clone(), joined: life, first: None, began: None }
    }
}

impl SplitLife {
    fn step(&mut self, at: FirstRecord, step: &LifecycleStep<'_>) -> Result<(), LifecycleError> {
        self.first.get_or_insert(at);
        self.began.get_or_insert(ChainState::Growing);
        let mut why = LifecycleError::Closed;
        for life in [&mut self.alone, &mut self.joined] {
            if let Some(Err(found)) = life.as_mut().map(|life| life.step(step.clone())) {
                why = found;
                *life = None;
            }
        }
        if self.alone.is_none() && self.joined.is_none() { Err(why) } else { Ok(()) }
    }

    fn step_aside(&mut self, step: LifecycleStep<'_>) {
        if let Some(life) = &mut self.joined {
            // What does not fit is left out.
            let _fits = life.step(step);
        }
    }

    fn life(&self) -> Option<&Lifecycle> {
        self.alone.as_ref().or(self.joined.as_ref())
    }

    fn openness(&self) -> Openness {
        let Some(alone) = &self.alone else { return Openness::Unknown };
        let is_ended_aside = self.joined.as_ref().is_some_and(Lifecycle::is_over);
        match self.first.filter(|_| !alone.is_over()) {
            None => Openness::Over,
            // Setting a chain aside closes what it began, and its records may have ended what another chain began.
            Some(_) if is_ended_aside || self.began == Some(ChainState::Aside) => Openness::Unknown,
            Some(first) => Openness::Open(first),
        }
    }
}

/// Uses of a grant in all chains together.
#[derive(Default)]
struct GrantTally {
    used: u64,
    is_made: bool,
    /// `None`: unlimited, or its record was pruned.
    limit: Option<u64>,
    is_revoked: bool,
}

/// Use limit in the record of a grant.
#[derive(Deserialize)]
struct GrantLimit {
    max_uses: Option<u32>,
}

struct SeenPruning {
    classes: Vec<RetentionClass>,
    /// In order.
    ranges: Vec<(u64, u64)>,
}

impl SeenPruning {
    fn names(&self, seq: u64) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= seq);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, last)| seq <= *last)
    }
}

impl<'a> VerifyWalk<'a> {
    fn new(expected: ExpectedHead<'a>) -> Self {
        Self {
            expected,
            seq: 0,
            hash: GENESIS.to_owned(),
            lives: HashMap::new(),
            tree: MerkleFrontier::default(),
            result: Verification { format: SCHEMA_VERSION, ..Verification::default() },
            gone: Vec::new(),
            prunings: Vec::new(),
            signers: Vec::new(),
            hasher: RandomState::new(),
            mentions: 0,
            claims: 0,
            votes: 0,
            voted: 0,
            votes_gone: false,
            part: VerifyAspect::Everything,
            link: Link::default(),
            parted: HashMap::new(),
            grants: HashMap::new(),
            number: 0,
        }
    }

    fn head(&self) -> Option<ChainHead> {
        (self.seq > 0).then(|| ChainHead { seq: self.seq, hash: self.hash.clone() })
    }

    fn whole(&mut self, rows: &dyn ChainRows, news: &mut dyn FnMut(u64)) -> Result<(), VerifyError> {
        let mut walked = Ok(());
        let read = rows.at_once(&mut || walked = self.all(rows, news));
        walked?;
        Ok(read?)
    }

    fn all(&mut self, rows: &dyn ChainRows, news: &mut dyn FnMut(u64)) -> Result<(), VerifyError> {
        if rows.chains() == ChainSelection::This {
            self.chain(rows, news)?;
            return self.check_open(rows);
        }
        self.part = VerifyAspect::Link;
        self.chain(rows, news)?;
        self.part = VerifyAspect::Order;
        self.order(rows)
    }

    /// Verifies the lifecycles of all transactions.
    fn order(&mut self, rows: &dyn ChainRows) -> Result<(), VerifyError> {
        let mut broken = None;
        rows.scan(&RowQuery::default().everywhere(), &mut |row| match self.step_order(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(found) => {
                broken = Some(found);
                ControlFlow::Break(())
            }
        })?;
        broken.map_or(Ok(()), |broken| Err(VerifyError::Broken(broken)))
    }

    fn step_order(&mut self, row: RowRef<'_>) -> Result<(), ChainBreak> {
        let Some(kind) = Kind::of_word(row.kind).filter(|kind| kind.class() != RetentionClass::Ledger) else {
            return Ok(());
        };
        match row.body {
            Some(body) => self.body(row, kind, body),
            None => {
                let subject = ClaimSubject::of_ids(kind, row.ids);
                self.follow(row, &subject, LifecycleStep::Forgotten(kind))
                    .map_err(|what| ChainBreak { seq: row.seq, what })
            }
        }
    }

    fn chain(&mut self, rows: &dyn ChainRows, news: &mut dyn FnMut(u64)) -> Result<(), VerifyError> {
        let mut broken = None;
        let read = rows.scan(&RowQuery::default(), &mut |row| match self.step(row) {
            Ok(()) => {
                if self.seq.is_multiple_of(NEWS) {
                    news(self.seq);
                }
                ControlFlow::Continue(())
            }
            Err(found) => {
                broken = Some(found);
                ControlFlow::Break(())
            }
        });
        if let Some(broken) = broken {
            return Err(VerifyError::Broken(broken));
        }
        match read {
            Err(ChainStoreError::Malformed { seq, reason }) => {
                let seq = if seq == 0 { self.seq + 1 } else { seq };
                return Err(VerifyError::Broken(ChainBreak { seq, what: ChainFlaw::Malformed { reason } }));
            }
            Err(
                ChainStoreError::Failed(source)
                | ChainStoreError::Busy(source)
                | ChainStoreError::Full(source)
                | ChainStoreError::Unreachable(source)
                | ChainStoreError::Denied(source),
            ) => {
                return Err(VerifyError::Damaged { after: self.seq, source });
            }
            read => read?,
        }
        self.check_gone().map_err(VerifyError::Broken)?;
        self.check_sides(rows)
    }

    fn step(&mut self, row: RowRef<'_>) -> Result<(), ChainBreak> {
        row.check_after(self.seq, &self.hash)?;
        self.check_expected(row)?;
        let flawed = |what| ChainBreak { seq: row.seq, what };
        let malformed = |reason: &str| flawed(ChainFlaw::Malformed { reason: reason.to_owned() });
        let kind = Kind::of_word(row.kind).ok_or_else(|| malformed("its kind is none"))?;
        if !is_time(row.time) {
            return Err(malformed("its time is none"));
        }
        if (row.seq == 1) != (kind == Kind::ChainStarted) {
            return Err(flawed(ChainFlaw::NoBeginning));
        }
        match row.body {
            Some(body) => self.body(row, kind, body)?,
            None => self.forgotten(row, kind).map_err(flawed)?,
        }
        self.tree.push(&unhex(row.hash).ok_or_else(|| flawed(ChainFlaw::HashMismatch))?);
        self.seq = row.seq;
        self.hash.clear();
        self.hash.push_str(row.hash);
        Ok(())
    }

    fn check_expected(&self, row: RowRef<'_>) -> Result<(), ChainBreak> {
        let checkpoint =
            self.expected.checkpoint.map(|checkpoint| (checkpoint.last, checkpoint.head.as_str()));
        let head = self.expected.head.map(|head| (head.seq, head.hash.as_str()));
        for (seq, hash) in [head, checkpoint].into_iter().flatten() {
            if seq == row.seq && hash != row.hash {
                return Err(ChainBreak { seq: row.seq, what: ChainFlaw::Rewritten });
            }
        }
        Ok(())
    }

    fn body(&mut self, row: RowRef<'_>, kind: Kind, body: &str) -> Result<(), ChainBreak> {
        let flawed = |what| ChainBreak { seq: row.seq, what };
        let no_event = |error: serde_json::Error| {
            flawed(ChainFlaw::Malformed { reason: format!("its body is no event: {error}") })
        };
        let light: EventOutline<'_> = serde_json::from_str(body).map_err(no_event)?;
        if light.kind != row.kind {
            return Err(flawed(ChainFlaw::Malformed {
                reason: "its kind is not that of its body".to_owned(),
            }));
        }
        let ids = [light.transaction, light.session, light.grant];
        if !ids.into_iter().flatten().eq(row.ids.split_ascii_whitespace()) {
            return Err(flawed(ChainFlaw::IdsMismatch));
        }
        let [transaction, session, grant] = ids;
        let mut subject = ClaimSubject { kind, transaction, session, grant, voter: None };
        let step = match kind {
            Kind::CallIntended => {
                LifecycleStep::Intend { fingerprint: light.fingerprint.unwrap_or_default() }
            }
            Kind::ApprovalVoted | Kind::ApprovalDecided => {
                let event: Event = serde_json::from_str(body).map_err(no_event)?;
                return self.answer(row, &event);
            }
            Kind::CheckpointSigned
            | Kind::LedgerKeyRotated
            | Kind::ChainStarted
            | Kind::LedgerPruned
            | Kind::ChainWitnessed
            | Kind::ChainAcknowledged => {
                let event: Event = serde_json::from_str(body).map_err(no_event)?;
                self.of_the_ledger(row, event).map_err(flawed)?;
                LifecycleStep::None
            }
            kind => LifecycleStep::of_kind(kind),
        };
        subject.voter = None;
        self.follow(row, &subject, step).map_err(flawed)
    }

    fn answer(&mut self, row: RowRef<'_>, event: &Event) -> Result<(), ChainBreak> {
        self.follow(row, &ClaimSubject::of(event), LifecycleStep::of(event))
            .map_err(|what| ChainBreak { seq: row.seq, what })
    }

    fn forgotten(&mut self, row: RowRef<'_>, kind: Kind) -> Result<(), ChainFlaw> {
        if kind.class() == RetentionClass::Ledger {
            return Err(ChainFlaw::BodyGone);
        }
        self.gone.push((row.seq, kind.class()));
        self.result.pruned += 1;
        self.votes_gone |= kind == Kind::ApprovalVoted;
        self.follow(row, &ClaimSubject::of_ids(kind, row.ids), LifecycleStep::Forgotten(kind))
    }

    fn follow(
        &mut self,
        row: RowRef<'_>,
        subject: &ClaimSubject<'_>,
        step: LifecycleStep<'_>,
    ) -> Result<(), ChainFlaw> {
        if self.part != VerifyAspect::Order {
            self.note(row, subject);
        }
        if self.part == VerifyAspect::Link {
            return Ok(());
        }
        self.tally(row, subject)?;
        self.live(row, subject, step)
    }

    /// The writer enforces the limit of a grant, but a role that can move the head of a chain may have hidden uses from it.
    fn tally(&mut self, row: RowRef<'_>, subject: &ClaimSubject<'_>) -> Result<(), ChainFlaw> {
        let Some(grant) = subject.grant else { return Ok(()) };
        let out_of_order = |why: LifecycleError| ChainFlaw::OutOfOrder {
            transaction: grant.to_owned(),
            why: why.to_string(),
        };
        match subject.kind {
            Kind::GrantCreated => {
                let said = row.body.and_then(|body| serde_json::from_str::<GrantLimit>(body).ok());
                let tally = self.grants.entry(grant.into()).or_default();
                // A chain that was set aside may say later that the grant has another limit.
                if !tally.is_made {
                    tally.limit = said.and_then(|said| said.max_uses).map(u64::from);
                }
                tally.is_made = true;
            }
            Kind::GrantRevoked => self.grants.entry(grant.into()).or_default().is_revoked = true,
            Kind::CallIntended => {
                let tally = self.grants.entry(grant.into()).or_default();
                tally.used = tally.used.saturating_add(1);
                if tally.is_revoked {
                    return Err(out_of_order(LifecycleError::RevokedTwice));
                }
                if tally.limit.is_some_and(|limit| tally.used > limit) {
                    return Err(out_of_order(LifecycleError::UsedUp));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn note(&mut self, row: RowRef<'_>, subject: &ClaimSubject<'_>) {
        for id in row.ids.split_ascii_whitespace() {
            self.mentions = self.mentions.wrapping_add(self.hasher.hash_one((id, row.seq)));
        }
        if let (Kind::ApprovalVoted, Some(id)) = (subject.kind, subject.transaction) {
            self.voted = self.voted.wrapping_add(self.hasher.hash_one((id, row.seq)));
        }
        if let Some(key) = subject.claim() {
            let sum = if is_vote(&key) { &mut self.votes } else { &mut self.claims };
            *sum = sum.wrapping_add(self.hasher.hash_one((key.as_str(), row.seq)));
        }
    }

    fn live(
        &mut self,
        row: RowRef<'_>,
        subject: &ClaimSubject<'_>,
        step: LifecycleStep<'_>,
    ) -> Result<(), ChainFlaw> {
        let Some(id) = subject.transaction else { return Ok(()) };
        let out_of_order =
            |why: LifecycleError| ChainFlaw::OutOfOrder { transaction: id.to_owned(), why: why.to_string() };
        if let Some(parted) = self.parted.get_mut(id) {
            let at = FirstRecord { chain: self.number, seq: row.seq };
            return parted.step(at, &step).map_err(out_of_order);
        }
        if !self.lives.contains_key(id) {
            self.lives.insert(
                id.into(),
                TrackedLifecycle { life: Lifecycle::default(), chain: self.number, first: row.seq },
            );
        }
        let Some(tracked) = self.lives.get_mut(id) else { return Ok(()) };
        tracked.life.step(step).map_err(out_of_order)
    }

    /// A record of a chain that was set aside. Its body counts only if the digest matches.
    fn step_aside(&mut self, row: RowRef<'_>) {
        let Some(kind) = Kind::of_word(row.kind) else { return };
        let body = row.body.filter(|body| row.digest.as_bytes() == HexDigest::of(body.as_bytes()).0);
        let row = RowRef { body, ..row };
        let subject = ClaimSubject::of_ids(kind, row.ids);
        // Its uses count; an excess is reported for an active chain.
        let _counted = self.tally(row, &subject);
        let Some(id) = subject.transaction else { return };
        let Some(parted) = self.parted.get_mut(id) else { return };
        parted.began.get_or_insert(ChainState::Aside);
        match body.map(serde_json::from_str::<Event>) {
            Some(Ok(event)) if event.transaction().is_some_and(|about| about.as_str() == id) => {
                parted.step_aside(LifecycleStep::of(&event));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => parted.step_aside(LifecycleStep::Forgotten(kind)),
        }
    }

    fn of_the_ledger(&mut self, row: RowRef<'_>, event: Event) -> Result<(), ChainFlaw> {
        match event {
            Event::ChainStarted { chain, key, node, continues, .. } => {
                self.result.chain = Some(chain);
                self.result.node = Some(node);
                self.link.continues = continues;
                self.result.keys.push(key);
            }
            Event::CheckpointSigned(checkpoint) => self.checkpoint(row, &checkpoint)?,
            Event::LedgerKeyRotated { old, new, by_old, by_new } => {
                self.hand_over([&old, &new], [&by_old, &by_new])
                    .map_err(|why| ChainFlaw::KeyChange { why: why.to_owned() })?;
                self.signers.push(old);
                self.result.keys.push(new);
            }
            Event::ChainWitnessed { chain, head, key } => {
                let is_older = |seen: &WitnessedHead| {
                    seen.chain == chain && seen.key == key && seen.head.seq <= head.seq
                };
                self.link.witnessed.retain(|seen| !is_older(seen));
                self.link.witnessed.push(WitnessedHead { chain, head, key });
            }
            Event::ChainAcknowledged { chain, digest, .. } => self.link.acknowledged.push((chain, digest)),
            Event::LedgerPruned { classes, ranges, .. } => {
                self.prunings.push(SeenPruning { classes, ranges });
            }
            _ => {}
        }
        Ok(())
    }

    fn checkpoint(&mut self, row: RowRef<'_>, checkpoint: &Checkpoint) -> Result<(), ChainFlaw> {
        let why = if self.result.chain.as_ref() != Some(&checkpoint.chain) {
            Some("it is of another chain")
        } else if (checkpoint.first, checkpoint.last) != (self.result.signed + 1, row.seq - 1) {
            Some("it does not cover what is between it and the one before")
        } else if checkpoint.head != self.hash {
            Some("it names another hash than that of the record before it")
        } else if self.result.keys.last() != Some(&checkpoint.key) {
            Some("it names another key than that of the chain")
        } else if HexDigest::encode(self.tree.root()).to_string() != checkpoint.root {
            Some("its Merkle root is not that of the records")
        } else if !checkpoint.is_signed() {
            Some("its signature is not that of the key")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(ChainFlaw::Checkpoint { why: why.to_owned() });
        }
        self.result.checkpoints += 1;
        self.result.signed = checkpoint.last;
        self.tree = MerkleFrontier::default();
        if self.signers.last() != Some(&checkpoint.key) {
            self.signers.push(checkpoint.key.clone());
        }
        Ok(())
    }

    fn hand_over(&self, [old, new]: [&str; 2], [by_old, by_new]: [&str; 2]) -> Result<(), &'static str> {
        let chain = self.result.chain.as_ref().ok_or("there is no chain yet")?;
        if self.result.keys.last().map(String::as_str) != Some(old) {
            return Err("it is not from the key of the chain");
        }
        let statement = key::hand_over(chain, old, new);
        if !key::is_signed(old, &statement, by_old) {
            return Err("the old key has not signed it");
        }
        key::is_signed(new, &statement, by_new).then_some(()).ok_or("the new key has not signed it")
    }

    /// Every missing body must be listed as pruned. Comparing counts is not enough: an attacker could restore one body and remove
    /// another.
    fn check_gone(&self) -> Result<(), ChainBreak> {
        let explains = |(seq, class): (u64, RetentionClass)| {
            self.prunings.iter().any(|pruning| pruning.names(seq) && pruning.classes.contains(&class))
        };
        match self.gone.iter().find(|gone| !explains(**gone)) {
            Some((seq, _)) => Err(ChainBreak { seq: *seq, what: ChainFlaw::BodyGone }),
            None => Ok(()),
        }
    }

    /// The side tables must agree with the records.
    fn check_sides(&self, rows: &dyn ChainRows) -> Result<(), VerifyError> {
        let broken = |side| self.side_broken(side);
        let mut sum = 0_u64;
        let mut add = |id: &str, seq| sum = sum.wrapping_add(self.hasher.hash_one((id, seq)));
        rows.side(ClaimKind::Mention, &mut add)?;
        if sum != self.mentions {
            return Err(broken(ClaimKind::Mention));
        }
        let (mut claims, mut votes, mut voted) = (0_u64, 0_u64, 0_u64);
        rows.side(ClaimKind::Claim, &mut |key, seq| {
            if let Some(id) = key.strip_prefix(VOTED).and_then(|rest| rest.split(' ').next()) {
                voted = voted.wrapping_add(self.hasher.hash_one((id, seq)));
            }
            let sum = if is_vote(key) { &mut votes } else { &mut claims };
            *sum = sum.wrapping_add(self.hasher.hash_one((key, seq)));
        })?;
        // Of a vote that was pruned only the name of the voter is unknown: each record has one claim, and no other has any.
        if claims != self.claims || voted != self.voted || (votes != self.votes && !self.votes_gone) {
            return Err(broken(ClaimKind::Claim));
        }
        Ok(())
    }

    fn side_broken(&self, side: ClaimKind) -> VerifyError {
        VerifyError::Broken(ChainBreak {
            seq: self.seq,
            what: ChainFlaw::Index { table: side.word().to_owned() },
        })
    }

    fn check_open(&self, rows: &dyn ChainRows) -> Result<(), VerifyError> {
        let mut open = 0_usize;
        let mut is_known = true;
        rows.side(ClaimKind::Open, &mut |id, seq| {
            open += 1;
            is_known &= self.lives.get(id).is_some_and(|known| known.first == seq && !known.life.is_over());
        })?;
        let expected = self.lives.values().filter(|known| !known.life.is_over()).count();
        if is_known && open == expected { Ok(()) } else { Err(self.side_broken(ClaimKind::Open)) }
    }

    fn finish(mut self) -> Result<Verification, VerifyError> {
        self.result.records = self.seq;
        self.result.head = self.head();
        let wanted = [
            self.expected.head.map(|head| head.seq),
            self.expected.checkpoint.map(|checkpoint| checkpoint.last),
        ];
        if let Some(expected) = wanted.into_iter().flatten().find(|seq| *seq > self.seq) {
            return Err(VerifyError::Broken(ChainBreak {
                seq: self.seq + 1,
                what: ChainFlaw::Truncated { expected },
            }));
        }
        self.check_trust()?;
        let parted =
            self.parted.iter().filter_map(|(id, parted)| Some((id, parted.first?.seq, parted.life()?)));
        let lives = self.lives.iter().map(|(id, known)| (id, known.first, &known.life));
        let mut open: Vec<(u64, &str)> = lives
            .chain(parted)
            .filter(|(_, _, life)| life.status() == TransactionStatus::InProgress)
            .map(|(id, first, _)| (first, &**id))
            .collect();
        open.sort_unstable();
        self.result.incomplete = open.into_iter().filter_map(|(_, id)| transaction_id(id)).collect();
        Ok(self.result)
    }

    fn check_trust(&self) -> Result<(), VerifyError> {
        if let Some(checkpoint) = self.expected.checkpoint {
            if !checkpoint.is_signed() {
                return Err(VerifyError::Unsigned);
            }
            if self.result.chain.as_ref() != Some(&checkpoint.chain) {
                let found = self.result.chain.as_ref().map(ToString::to_string).unwrap_or_default();
                return Err(VerifyError::OtherChain { expected: checkpoint.chain.to_string(), found });
            }
            if !self.result.keys.contains(&checkpoint.key) {
                return Err(VerifyError::OtherKey);
            }
        }
        match self.expected.key {
            Some(key) if !self.signers.iter().any(|signer| signer.eq_ignore_ascii_case(key)) => {
                Err(VerifyError::OtherKey)
            }
            _ => Ok(()),
        }
    }
}

/// Checks the format `2026-01-02T03:04:05.000000Z`, not the calendar.
fn is_time(text: &str) -> bool {
    const FORM: &[u8; 27] = b"0000-00-00T00:00:00.000000Z";
    text.len() == FORM.len()
        && text.bytes().zip(FORM).all(|(found, form)| match form {
            b'0' => found.is_ascii_digit(),
            form => found == *form,
        })
}

const VOTED: &str = "voted ";

fn is_vote(claim: &str) -> bool {
    claim.starts_with(VOTED)
}
