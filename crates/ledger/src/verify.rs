use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::mem;
use std::ops::ControlFlow;
use std::path::Path;

use ringfence_types::{Bytes, ChainId, TransactionId};
use serde::{Deserialize, Serialize};

use crate::chain::{Break, Flaw, GENESIS, Head, Hex, RowRef, unhex};
use crate::claim::Subject;
use crate::event::{Checkpoint, Class, Continued, Event, Kind};
use crate::key;
use crate::life::{Life, Status, Step};
use crate::merkle::Growing;
use crate::reader::transaction_id;
use crate::sqlite::open::{self, OpenError, SCHEMA_VERSION};
use crate::sqlite::{format1, rows::SqliteRows};
use crate::store::{Chains, Fault, Rows, Select, Side, StoreError, WitnessedHead};

/// How often whoever waits hears how far it is.
const NEWS: u64 = 4096;

/// A chain that holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    pub records: u64,
    /// `None`: there is no record. Kept elsewhere and given to a later [`verify()`], it shows whether records were cut
    /// off the end since.
    pub head: Option<Head>,
    /// Intended and without an end: running now, or a crash. In the order of their intents.
    pub incomplete: Vec<TransactionId>,
    pub format: i64,
    /// `None`: the chain has the format 1.
    pub chain: Option<ChainId>,
    /// Who wrote it, by its own word.
    pub node: Option<String>,
    /// Every key that has vouched for it, newest last.
    pub keys: Vec<String>,
    pub checkpoints: u64,
    /// The last record that a checkpoint covers.
    pub signed: u64,
    /// Records whose bodies were pruned.
    pub pruned: u64,
}

/// What somebody knows from elsewhere about a chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected<'a> {
    /// Must be in the chain.
    pub head: Option<&'a Head>,
    /// Must be signed, and what it covers must be in the chain.
    pub checkpoint: Option<&'a Checkpoint>,
    /// Must be among the keys that vouch for the chain, and have signed something.
    pub key: Option<&'a str>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the ledger is broken: {0}")]
    Broken(Break),
    #[error("the file is damaged after record {after}")]
    Damaged { after: u64, source: Fault },
    #[error("the checkpoint to compare with is not signed by the key it names")]
    Unsigned,
    #[error("the checkpoint to compare with is of chain {expected}, and this is {found}")]
    OtherChain { expected: String, found: String },
    #[error("no checkpoint of this chain is signed by the expected key")]
    OtherKey,
    #[error("no chain of the database has record {0}: records were cut off or rewritten")]
    NoSuchHead(Head),
    #[error("the database has rows of a chain that is not there, in the table `{table}`")]
    Stray { table: String },
    #[error("chain {chain} of node `{}` does not hold", Bytes::from(node.as_str()).display())]
    Chain { node: String, chain: String, source: Box<VerifyError> },
}

/// Walks the whole chain. With `expected`, a head from earlier, that record must still be in it.
pub fn verify(path: &Path, expected: Option<&Head>) -> Result<Verification, VerifyError> {
    verify_with(path, Expected { head: expected, ..Expected::default() }, &mut |_| {})
}

/// [`verify()`] with everything that is known from elsewhere. `news` hears from time to time how many records were checked.
pub fn verify_with(
    path: &Path,
    expected: Expected<'_>,
    news: &mut dyn FnMut(u64),
) -> Result<Verification, VerifyError> {
    match open::open_to_read(path)? {
        (connection, SCHEMA_VERSION) => {
            let mut walk = Walk::new(expected);
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

/// [`verify_with`] over any store.
pub fn verify_rows(rows: &dyn Rows, expected: Expected<'_>) -> Result<Verification, VerifyError> {
    let mut walk = Walk::new(expected);
    walk.whole(rows, &mut |_| {})?;
    walk.finish()
}

/// One chain of several, and what it says about the others.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) verification: Verification,
    /// Where other chains were seen last, and by which key.
    pub(crate) witnessed: Vec<WitnessedHead>,
    /// Chains that were accepted as they are, with their digests.
    pub(crate) acknowledged: Vec<(ChainId, String)>,
    pub(crate) continues: Option<Continued>,
    /// Every key that has signed something.
    pub(crate) signers: Vec<String>,
}

/// One chain of several, without the order of what its records are about. The caller holds the moment.
pub(crate) fn verify_link(rows: &dyn Rows) -> Result<Link, VerifyError> {
    let mut walk = Walk::new(Expected::default());
    walk.part = Part::Link;
    walk.chain(rows, &mut |_| {})?;
    let mut link = mem::take(&mut walk.link);
    link.signers = mem::take(&mut walk.signers);
    link.verification = walk.finish()?;
    Ok(link)
}

/// The order of what all chains together say. Gives the transactions that have begun, and those of them that are open.
///
/// `excused`: transactions that a chain which was set aside has a part of. Their order cannot be known any more.
pub(crate) fn verify_order(
    rows: &dyn Rows,
    excused: HashSet<String>,
) -> Result<(Vec<TransactionId>, HashSet<String>), VerifyError> {
    let mut walk = Walk::new(Expected::default());
    walk.part = Part::Order;
    walk.excused = excused;
    walk.order(rows)?;
    let open =
        walk.lives.iter().filter(|(_, known)| !known.life.is_over()).map(|(id, _)| id.to_string()).collect();
    Ok((walk.finish()?.incomplete, open))
}

/// The last record up to which the chain holds, and what is wrong after it.
pub(crate) fn upto(path: &Path) -> (Option<Head>, Result<(), VerifyError>) {
    match open::open_to_read(path) {
        Ok((connection, SCHEMA_VERSION)) => {
            let mut walk = Walk::new(Expected::default());
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

/// As much of a body as order needs. Ids are ours and have nothing to escape, so nothing is copied.
#[derive(Deserialize)]
struct Light<'a> {
    kind: &'a str,
    transaction: Option<&'a str>,
    session: Option<&'a str>,
    grant: Option<&'a str>,
    fingerprint: Option<&'a str>,
}

struct Walk<'a> {
    expected: Expected<'a>,
    seq: u64,
    hash: String,
    lives: HashMap<Box<str>, Tracked>,
    tree: Growing,
    result: Verification,
    gone: Vec<(u64, Class)>,
    prunings: Vec<Pruning>,
    signers: Vec<String>,
    hasher: RandomState,
    mentions: u64,
    /// Of all claims but those of votes.
    claims: u64,
    votes: u64,
    /// A vote without its body claims something that cannot be known any more.
    votes_gone: bool,
    part: Part,
    link: Link,
    excused: HashSet<String>,
}

/// What is checked of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Everything,
    /// Its place in the chain.
    Link,
    /// Its place in the life of its transaction, of which other chains may have a part.
    Order,
}

struct Tracked {
    life: Life,
    first: u64,
}

struct Pruning {
    classes: Vec<Class>,
    /// In order.
    runs: Vec<(u64, u64)>,
}

impl Pruning {
    fn names(&self, seq: u64) -> bool {
        let after = self.runs.partition_point(|(first, _)| *first <= seq);
        after.checked_sub(1).and_then(|at| self.runs.get(at)).is_some_and(|(_, last)| seq <= *last)
    }
}

impl<'a> Walk<'a> {
    fn new(expected: Expected<'a>) -> Self {
        Self {
            expected,
            seq: 0,
            hash: GENESIS.to_owned(),
            lives: HashMap::new(),
            tree: Growing::default(),
            result: Verification { format: SCHEMA_VERSION, ..Verification::default() },
            gone: Vec::new(),
            prunings: Vec::new(),
            signers: Vec::new(),
            hasher: RandomState::new(),
            mentions: 0,
            claims: 0,
            votes: 0,
            votes_gone: false,
            part: Part::Everything,
            link: Link::default(),
            excused: HashSet::new(),
        }
    }

    fn head(&self) -> Option<Head> {
        (self.seq > 0).then(|| Head { seq: self.seq, hash: self.hash.clone() })
    }

    fn whole(&mut self, rows: &dyn Rows, news: &mut dyn FnMut(u64)) -> Result<(), VerifyError> {
        let mut walked = Ok(());
        let read = rows.at_once(&mut || walked = self.all(rows, news));
        walked?;
        Ok(read?)
    }

    fn all(&mut self, rows: &dyn Rows, news: &mut dyn FnMut(u64)) -> Result<(), VerifyError> {
        if rows.chains() == Chains::This {
            self.chain(rows, news)?;
            return self.check_open(rows);
        }
        self.part = Part::Link;
        self.chain(rows, news)?;
        self.part = Part::Order;
        self.order(rows)
    }

    /// The lives of all transactions, wherever their records are.
    fn order(&mut self, rows: &dyn Rows) -> Result<(), VerifyError> {
        let mut broken = None;
        rows.scan(&Select::default().everywhere(), &mut |row| match self.step_order(row) {
            Ok(()) => ControlFlow::Continue(()),
            Err(found) => {
                broken = Some(found);
                ControlFlow::Break(())
            }
        })?;
        broken.map_or(Ok(()), |broken| Err(VerifyError::Broken(broken)))
    }

    fn step_order(&mut self, row: RowRef<'_>) -> Result<(), Break> {
        let Some(kind) = Kind::of_word(row.kind).filter(|kind| kind.class() != Class::Ledger) else {
            return Ok(());
        };
        match row.body {
            Some(body) => self.body(row, kind, body),
            None => {
                let subject = Subject::of_ids(kind, row.ids);
                self.live(row, &subject, Step::Forgotten(kind)).map_err(|what| Break { seq: row.seq, what })
            }
        }
    }

    fn chain(&mut self, rows: &dyn Rows, news: &mut dyn FnMut(u64)) -> Result<(), VerifyError> {
        let mut broken = None;
        let read = rows.scan(&Select::default(), &mut |row| match self.step(row) {
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
            Err(StoreError::Malformed { seq, reason }) => {
                let seq = if seq == 0 { self.seq + 1 } else { seq };
                return Err(VerifyError::Broken(Break { seq, what: Flaw::Malformed { reason } }));
            }
            Err(
                StoreError::Failed(source)
                | StoreError::Busy(source)
                | StoreError::Full(source)
                | StoreError::Unreachable(source)
                | StoreError::Denied(source),
            ) => {
                return Err(VerifyError::Damaged { after: self.seq, source });
            }
            read => read?,
        }
        self.check_gone().map_err(VerifyError::Broken)?;
        self.check_sides(rows)
    }

    fn step(&mut self, row: RowRef<'_>) -> Result<(), Break> {
        row.check_after(self.seq, &self.hash)?;
        self.check_expected(row)?;
        let flawed = |what| Break { seq: row.seq, what };
        let malformed = |reason: &str| flawed(Flaw::Malformed { reason: reason.to_owned() });
        let kind = Kind::of_word(row.kind).ok_or_else(|| malformed("its kind is none"))?;
        if !is_time(row.time) {
            return Err(malformed("its time is none"));
        }
        if (row.seq == 1) != (kind == Kind::ChainStarted) {
            return Err(flawed(Flaw::NoBeginning));
        }
        match row.body {
            Some(body) => self.body(row, kind, body)?,
            None => self.forgotten(row, kind).map_err(flawed)?,
        }
        self.tree.push(&unhex(row.hash).ok_or_else(|| flawed(Flaw::HashMismatch))?);
        self.seq = row.seq;
        self.hash.clear();
        self.hash.push_str(row.hash);
        Ok(())
    }

    fn check_expected(&self, row: RowRef<'_>) -> Result<(), Break> {
        let checkpoint =
            self.expected.checkpoint.map(|checkpoint| (checkpoint.last, checkpoint.head.as_str()));
        let head = self.expected.head.map(|head| (head.seq, head.hash.as_str()));
        for (seq, hash) in [head, checkpoint].into_iter().flatten() {
            if seq == row.seq && hash != row.hash {
                return Err(Break { seq: row.seq, what: Flaw::Rewritten });
            }
        }
        Ok(())
    }

    fn body(&mut self, row: RowRef<'_>, kind: Kind, body: &str) -> Result<(), Break> {
        let flawed = |what| Break { seq: row.seq, what };
        let no_event = |error: serde_json::Error| {
            flawed(Flaw::Malformed { reason: format!("its body is no event: {error}") })
        };
        let light: Light<'_> = serde_json::from_str(body).map_err(no_event)?;
        if light.kind != row.kind {
            return Err(flawed(Flaw::Malformed { reason: "its kind is not that of its body".to_owned() }));
        }
        let ids = [light.transaction, light.session, light.grant];
        if !ids.into_iter().flatten().eq(row.ids.split_ascii_whitespace()) {
            return Err(flawed(Flaw::IdsMismatch));
        }
        let [transaction, session, grant] = ids;
        let mut subject = Subject { kind, transaction, session, grant, voter: None };
        let step = match kind {
            Kind::Intent => Step::Intend { fingerprint: light.fingerprint.unwrap_or_default() },
            Kind::ApprovalVoted | Kind::ApprovalDecided => {
                let event: Event = serde_json::from_str(body).map_err(no_event)?;
                return self.answer(row, &event);
            }
            Kind::Checkpoint
            | Kind::KeyRotated
            | Kind::ChainStarted
            | Kind::Pruned
            | Kind::Witnessed
            | Kind::ChainAcknowledged => {
                let event: Event = serde_json::from_str(body).map_err(no_event)?;
                self.of_the_ledger(row, event).map_err(flawed)?;
                Step::None
            }
            kind => Step::of_kind(kind),
        };
        subject.voter = None;
        self.follow(row, &subject, step).map_err(flawed)
    }

    fn answer(&mut self, row: RowRef<'_>, event: &Event) -> Result<(), Break> {
        self.follow(row, &Subject::of(event), Step::of(event)).map_err(|what| Break { seq: row.seq, what })
    }

    fn forgotten(&mut self, row: RowRef<'_>, kind: Kind) -> Result<(), Flaw> {
        if kind.class() == Class::Ledger {
            return Err(Flaw::BodyGone);
        }
        self.gone.push((row.seq, kind.class()));
        self.result.pruned += 1;
        self.votes_gone |= kind == Kind::ApprovalVoted;
        self.follow(row, &Subject::of_ids(kind, row.ids), Step::Forgotten(kind))
    }

    fn follow(&mut self, row: RowRef<'_>, subject: &Subject<'_>, step: Step<'_>) -> Result<(), Flaw> {
        if self.part != Part::Order {
            self.note(row, subject);
        }
        if self.part == Part::Link { Ok(()) } else { self.live(row, subject, step) }
    }

    fn note(&mut self, row: RowRef<'_>, subject: &Subject<'_>) {
        for id in row.ids.split_ascii_whitespace() {
            self.mentions = self.mentions.wrapping_add(self.hasher.hash_one((id, row.seq)));
        }
        if let Some(key) = subject.claim() {
            let sum = if is_vote(&key) { &mut self.votes } else { &mut self.claims };
            *sum = sum.wrapping_add(self.hasher.hash_one((key.as_str(), row.seq)));
        }
    }

    fn live(&mut self, row: RowRef<'_>, subject: &Subject<'_>, step: Step<'_>) -> Result<(), Flaw> {
        let Some(id) = subject.transaction.filter(|id| !self.excused.contains(*id)) else { return Ok(()) };
        if !self.lives.contains_key(id) {
            self.lives.insert(id.into(), Tracked { life: Life::default(), first: row.seq });
        }
        let Some(tracked) = self.lives.get_mut(id) else { return Ok(()) };
        tracked
            .life
            .step(step)
            .map_err(|why| Flaw::OutOfOrder { transaction: id.to_owned(), why: why.to_string() })
    }

    fn of_the_ledger(&mut self, row: RowRef<'_>, event: Event) -> Result<(), Flaw> {
        match event {
            Event::ChainStarted { chain, key, node, continues, .. } => {
                self.result.chain = Some(chain);
                self.result.node = Some(node);
                self.link.continues = continues;
                self.result.keys.push(key);
            }
            Event::Checkpoint(checkpoint) => self.checkpoint(row, &checkpoint)?,
            Event::KeyRotated { old, new, by_old, by_new } => {
                self.hand_over([&old, &new], [&by_old, &by_new])
                    .map_err(|why| Flaw::KeyChange { why: why.to_owned() })?;
                self.signers.push(old);
                self.result.keys.push(new);
            }
            Event::Witnessed { chain, head, key } => {
                self.link.witnessed.retain(|seen| seen.chain != chain);
                self.link.witnessed.push(WitnessedHead { chain, head, key });
            }
            Event::ChainAcknowledged { chain, digest, .. } => self.link.acknowledged.push((chain, digest)),
            Event::Pruned { classes, runs, .. } => {
                self.prunings.push(Pruning { classes, runs });
            }
            _ => {}
        }
        Ok(())
    }

    fn checkpoint(&mut self, row: RowRef<'_>, checkpoint: &Checkpoint) -> Result<(), Flaw> {
        let why = if self.result.chain.as_ref() != Some(&checkpoint.chain) {
            Some("it is of another chain")
        } else if (checkpoint.first, checkpoint.last) != (self.result.signed + 1, row.seq - 1) {
            Some("it does not cover what is between it and the one before")
        } else if checkpoint.head != self.hash {
            Some("it names another hash than that of the record before it")
        } else if self.result.keys.last() != Some(&checkpoint.key) {
            Some("it names another key than that of the chain")
        } else if Hex::encode(self.tree.root()).to_string() != checkpoint.root {
            Some("its Merkle root is not that of the records")
        } else if !checkpoint.is_signed() {
            Some("its signature is not that of the key")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(Flaw::Checkpoint { why: why.to_owned() });
        }
        self.result.checkpoints += 1;
        self.result.signed = checkpoint.last;
        self.tree = Growing::default();
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

    /// Every body that is gone is one that was said to be pruned. A count would not do: whoever brings one back could take
    /// another.
    fn check_gone(&self) -> Result<(), Break> {
        let explains = |(seq, class): (u64, Class)| {
            self.prunings.iter().any(|pruning| pruning.names(seq) && pruning.classes.contains(&class))
        };
        match self.gone.iter().find(|gone| !explains(**gone)) {
            Some((seq, _)) => Err(Break { seq: *seq, what: Flaw::BodyGone }),
            None => Ok(()),
        }
    }

    /// What lies beside the records says the same as they do.
    fn check_sides(&self, rows: &dyn Rows) -> Result<(), VerifyError> {
        let broken = |side| self.side_broken(side);
        let mut sum = 0_u64;
        let mut add = |id: &str, seq| sum = sum.wrapping_add(self.hasher.hash_one((id, seq)));
        rows.side(Side::Mention, &mut add)?;
        if sum != self.mentions {
            return Err(broken(Side::Mention));
        }
        let (mut claims, mut votes) = (0_u64, 0_u64);
        rows.side(Side::Claim, &mut |key, seq| {
            let sum = if is_vote(key) { &mut votes } else { &mut claims };
            *sum = sum.wrapping_add(self.hasher.hash_one((key, seq)));
        })?;
        if claims != self.claims || (votes != self.votes && !self.votes_gone) {
            return Err(broken(Side::Claim));
        }
        Ok(())
    }

    fn side_broken(&self, side: Side) -> VerifyError {
        VerifyError::Broken(Break { seq: self.seq, what: Flaw::Index { table: side.word().to_owned() } })
    }

    fn check_open(&self, rows: &dyn Rows) -> Result<(), VerifyError> {
        let mut open = 0_usize;
        let mut is_known = true;
        rows.side(Side::Open, &mut |id, seq| {
            open += 1;
            is_known &= self.lives.get(id).is_some_and(|known| known.first == seq && !known.life.is_over());
        })?;
        let expected = self.lives.values().filter(|known| !known.life.is_over()).count();
        if is_known && open == expected { Ok(()) } else { Err(self.side_broken(Side::Open)) }
    }

    fn finish(mut self) -> Result<Verification, VerifyError> {
        self.result.records = self.seq;
        self.result.head = self.head();
        let wanted = [
            self.expected.head.map(|head| head.seq),
            self.expected.checkpoint.map(|checkpoint| checkpoint.last),
        ];
        if let Some(expected) = wanted.into_iter().flatten().find(|seq| *seq > self.seq) {
            return Err(VerifyError::Broken(Break { seq: self.seq + 1, what: Flaw::Truncated { expected } }));
        }
        self.check_trust()?;
        let mut open: Vec<(u64, &str)> = self
            .lives
            .iter()
            .filter(|(_, known)| known.life.status() == Status::InProgress)
            .map(|(id, known)| (known.first, &**id))
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

/// `2026-01-02T03:04:05.000000Z`, without asking whether there is such a day.
fn is_time(text: &str) -> bool {
    const FORM: &[u8; 27] = b"0000-00-00T00:00:00.000000Z";
    text.len() == FORM.len()
        && text.bytes().zip(FORM).all(|(found, form)| match form {
            b'0' => found.is_ascii_digit(),
            form => found == *form,
        })
}

fn is_vote(claim: &str) -> bool {
    claim.starts_with("voted ")
}
