//! The writer: turns events into rows. It checks the head, the order and the claims, computes hashes and adds checkpoints that are
//! due. One batch at a time.

mod anchor_check;
mod key_check;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{ChainId, GrantId, TransactionId};

use anchor_check::check_anchor;
use key_check::check_key;
pub(crate) use key_check::lost_key;

use crate::anchor::{AnchorLine, CheckpointAnchor};
use crate::approval::GrantRecord;
use crate::chain::{ChainBreak, ChainFlaw, ChainHead, GENESIS, HexDigest, Row, RowDraft, unhex};
use crate::checkpoint::{self, CheckpointRange};
use crate::claim::{self, ClaimSubject};
use crate::event::{Checkpoint, Event, Kind};
use crate::key::{self, KeyLock, LedgerKey, LedgerKeyError};
use crate::ledger::AppendError;
use crate::lifecycle::{Lifecycle, LifecycleError, LifecycleStep};
use crate::merkle::MerkleFrontier;
use crate::postgres::local_head::LocalHead;
use crate::record::Record;
use crate::seal;
use crate::store::{
    Batch, BatchRow, ChainRows, ChainSelection, ChainStore, ChainStoreError, RowQuery, collect,
};

/// Newest records counted at open. Bounded, so that the start does not get slower with the age of the ledger; [`crate::verify()`]
/// covers older ones.
const COUNTED: u64 = 20_000;

/// A checkpoint is due after this many records, or after this time.
const CHECKPOINT_RECORDS: u64 = 1024;
const CHECKPOINT_TIME: SignedDuration = SignedDuration::from_secs(60);

/// At its end a process signs if more records than this are unsigned, or older than [`CHECKPOINT_TIME`].
const CHECKPOINT_AT_END: u64 = 64;

/// Events that are written atomically.
#[derive(Debug)]
pub(crate) struct AppendRequest {
    pub(crate) events: Vec<PreparedEvent>,
    /// Rows whose bodies are removed with it.
    pub(crate) forget: Vec<u64>,
    pub(crate) checkpoint: CheckpointTiming,
}

/// When a request writes a checkpoint, in increasing order of strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CheckpointTiming {
    WhenDue,
    /// Before the events of the request.
    Before,
    /// At the end, if a process that exits should sign.
    AtEnd,
    /// At the end, if any record is unsigned.
    Now,
}

/// An event as it will be stored.
#[derive(Debug)]
pub(crate) struct PreparedEvent {
    event: Event,
    draft: RowDraft,
}

impl PreparedEvent {
    pub(crate) fn new(event: &Event, time: Timestamp) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_string(event)?;
        let draft = RowDraft {
            time: format!("{time:.6}"),
            kind: event.kind().word().to_owned(),
            ids: event.ids().collect::<Vec<_>>().join(" "),
            digest: HexDigest::of(body.as_bytes()).to_string(),
            body,
        };
        Ok(Self { event: event.clone(), draft })
    }

    pub(crate) fn after(self, previous: Option<&ChainHead>) -> BatchRow {
        let subject = ClaimSubject::of(&self.event);
        BatchRow {
            claim: subject.claim(),
            life: subject.life_change(),
            row: Row::after(previous, self.draft),
        }
    }
}

#[derive(Debug)]
pub(crate) struct ChainWriter {
    pub(crate) store: Box<dyn ChainStore>,
    /// A broken chain stays broken until the ledger is opened again.
    broken: Option<ChainBreak>,
    /// The last seen head: the chain may grow, but never shrink or change.
    seen: Option<ChainHead>,
    lives: HashMap<TransactionId, KnownLifecycle>,
    signed: Option<SigningState>,
    keyring: Keyring,
}

/// A lifecycle up to some record.
#[derive(Clone, Debug)]
struct KnownLifecycle {
    life: Lifecycle,
    upto: u64,
}

/// The key of the chain, and how far it is signed.
#[derive(Clone, Debug)]
struct SigningState {
    chain: ChainId,
    key: String,
    /// The last record that a checkpoint covers.
    upto: u64,
    time: Timestamp,
}

/// Paths of the keys, and the loaded key.
#[derive(Debug)]
pub(crate) struct Keyring {
    pub(crate) path: PathBuf,
    loaded: Option<LedgerKey>,
    /// Created by a rotation that is not recorded yet.
    pending: Option<LedgerKey>,
}

impl Keyring {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, loaded: None, pending: None }
    }

    /// Path of the next key until the chain names it.
    pub(crate) fn next(&self) -> PathBuf {
        self.path.with_added_extension("next")
    }

    fn is_there(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok()
    }

    /// Loads the key with this public half.
    fn load(&mut self, public: &str) -> Result<&LedgerKey, LedgerKeyError> {
        if self.loaded.as_ref().is_none_or(|key| key.public() != public) {
            self.loaded = Some(self.find(public)?);
        }
        self.loaded.as_ref().ok_or_else(|| LedgerKeyError::Missing { path: self.path.clone() })
    }

    /// [`Keyring::load`] from its file: a key that was replaced or removed meanwhile signs nothing more.
    fn load_anew(&mut self, public: &str) -> Result<&LedgerKey, LedgerKeyError> {
        self.loaded = None;
        self.load(public)
    }

    fn seal(&mut self, public: &str, statement: &[u8]) -> Result<String, LedgerKeyError> {
        match &self.pending {
            Some(key) if key.public() == public => Ok(key.sign(statement)),
            _ => self.load(public).map(|key| key.sign(statement)),
        }
    }

    /// Whether a key of this node has signed `statement`, whatever key the chain names.
    pub(crate) fn has_signed(&self, statement: &[u8], signature: &str) -> bool {
        let is_by = |key: &LedgerKey| key::is_signed(&key.public(), statement, signature);
        // The first path is checked again at the end, because a rotation may move the next key there meanwhile.
        self.loaded.as_ref().is_some_and(is_by)
            || [self.path.clone(), self.next(), self.path.clone()]
                .iter()
                .any(|path| LedgerKey::load(path).is_ok_and(|key| is_by(&key)))
    }

    fn next_with(&self, public: &str) -> Option<LedgerKey> {
        LedgerKey::load(&self.next()).ok().filter(|key| key.public() == public)
    }

    /// Moves the next key into place if it has this public half. Needs the lock: a file that another process exchanges in between
    /// would replace the only key that can sign.
    fn promote(&self, public: &str) -> Result<(), LedgerKeyError> {
        match self.next_with(public) {
            Some(_) => key::promote(&self.next(), &self.path),
            None => Ok(()),
        }
    }

    /// An error says that the key is lost: missing, or another one. A key that cannot be read by this user is not.
    fn look_for(&self, public: &str) -> Result<(), LedgerKeyError> {
        // The first path is checked again at the end, because a rotation may move the next key there meanwhile.
        let mut paths = [self.path.clone(), self.next(), self.path.clone()].into_iter();
        if paths.any(|path| LedgerKey::load(&path).is_ok_and(|key| key.public() == public)) {
            return Ok(());
        }
        match LedgerKey::load(&self.path) {
            Ok(_) => Err(LedgerKeyError::Other { path: self.path.clone() }),
            Err(error @ (LedgerKeyError::Missing { .. } | LedgerKeyError::NotAKey { .. })) => Err(error),
            Err(_) => Ok(()),
        }
    }

    pub(crate) fn find(&self, public: &str) -> Result<LedgerKey, LedgerKeyError> {
        let current = LedgerKey::load(&self.path);
        if let Ok(key) = current
            && key.public() == public
        {
            return Ok(key);
        }
        // A rotation was interrupted after the chain had named the new key.
        if let Some(key) = self.next_with(public) {
            // WHY NOT wait for the lock: its holder may wait for the store that this process holds. The key works from its current
            // path, and the lock holder moves it.
            if let Some(_lock) = KeyLock::try_hold(&self.path)? {
                self.promote(public)?;
            }
            return Ok(key);
        }
        let key = LedgerKey::load(&self.path)?;
        if key.public() == public { Ok(key) } else { Err(LedgerKeyError::Other { path: self.path.clone() }) }
    }
}

/// Result of a commit.
#[derive(Debug, Default)]
pub(crate) struct CommitSummary {
    pub(crate) results: Vec<Result<Vec<ChainHead>, AppendError>>,
    pub(crate) checkpoints: Vec<AnchorLine>,
}

impl ChainWriter {
    pub(crate) fn new(
        store: Box<dyn ChainStore>,
        keyring: Keyring,
        elsewhere: &Elsewhere<'_>,
    ) -> Result<Self, ChainStoreError> {
        let mut standing = standing(&*store)?;
        if let Ok(Some(head)) = &standing
            && let Some(broken) = check_elsewhere(&*store, head, elsewhere)?
        {
            standing = Err(broken);
        }
        let mut signed = None;
        if let Ok(Some(head)) = &standing {
            match check_key(&*store, head, &keyring)? {
                Ok(state) => signed = state,
                Err(broken) => standing = Err(broken),
            }
        }
        let (seen, broken) = match standing {
            Ok(head) => (head, None),
            Err(broken) => (None, Some(broken)),
        };
        Ok(Self { store, broken, seen, lives: HashMap::new(), signed, keyring })
    }

    pub(crate) fn broken(&self) -> Option<&ChainBreak> {
        self.broken.as_ref()
    }

    /// Whether a process that exits now leaves too many unsigned records. Free if it wrote nothing.
    pub(crate) fn leaves_unsigned(&self) -> bool {
        let (Some(head), Some(signed), None) = (&self.seen, &self.signed, &self.broken) else { return false };
        let unsigned = head.seq.saturating_sub(signed.upto);
        unsigned >= CHECKPOINT_AT_END || (unsigned > 1 && is_old(signed))
    }

    /// Writes the requests in one step. An invalid request does not affect the others.
    pub(crate) fn commit(&mut self, requests: &[AppendRequest]) -> CommitSummary {
        let mut refused: HashMap<usize, AppendError> = HashMap::new();
        loop {
            let outcome = self.attempt(requests, &mut refused);
            match outcome {
                Ok(done) => return done.into_committed(requests.len(), refused),
                Err(ChainStoreError::Taken { key }) => {
                    // Another chain was first: requests with the same claim fail, the rest is retried.
                    let (id, why) = claim::taken(&key);
                    let loser = requests.iter().enumerate().position(|(at, request)| {
                        !refused.contains_key(&at) && request.events.iter().any(|event| event.claims(&key))
                    });
                    match loser {
                        Some(at) => drop(refused.insert(at, AppendError::OutOfOrder { id, why })),
                        None => return failed(requests.len(), refused, &ChainStoreError::Taken { key }),
                    }
                }
                Err(error) => return failed(requests.len(), refused, &error),
            }
        }
    }

    fn attempt(
        &mut self,
        requests: &[AppendRequest],
        refused: &mut HashMap<usize, AppendError>,
    ) -> Result<WriteAttempt, ChainStoreError> {
        let Self { store, broken, seen, lives, signed, keyring } = self;
        let mut written = WriteAttempt::default();
        store.append(&mut |rows| {
            written = WriteAttempt::default();
            if broken.is_none() {
                match checked_end(rows, seen.as_ref())? {
                    Ok(end) => written.head = end,
                    Err(found) => *broken = Some(found),
                }
            }
            if let Some(broken) = broken {
                written.fatal = Some(AppendError::Broken(broken.clone()));
                return Ok(Batch::default());
            }
            if written.head != *seen || signed.is_none() {
                *signed = match signature_state(rows)? {
                    Ok(state) => Some(state),
                    Err(found) => {
                        written.fatal = Some(AppendError::Broken(found.clone()));
                        *broken = Some(found);
                        return Ok(Batch::default());
                    }
                };
                if let Some(found) = check_seal(rows, written.head.as_ref(), signed.as_ref(), keyring)? {
                    written.fatal = Some(AppendError::Broken(found.clone()));
                    *broken = Some(found);
                    return Ok(Batch::default());
                }
            }
            let plan = BatchPlan {
                rows,
                head: written.head.clone(),
                entries: Vec::new(),
                known: lives,
                lives: HashMap::new(),
                claims: HashSet::new(),
                signed: signed.clone(),
                checkpoints: Vec::new(),
            };
            plan.fill(requests, refused, keyring, &mut written)
        })?;
        self.settle(&written);
        Ok(written)
    }

    /// Updates the cached state after a write.
    fn settle(&mut self, written: &WriteAttempt) {
        if written.fatal.is_some() {
            return;
        }
        self.seen.clone_from(&written.head);
        self.signed.clone_from(&written.signed);
        for (id, known) in &written.lives {
            if known.life.is_over() {
                self.lives.remove(id);
            } else {
                self.lives.insert(id.clone(), known.clone());
            }
        }
    }

    /// Prevents rotations by other processes until it is dropped.
    pub(crate) fn lock_key(&self) -> Result<KeyLock, AppendError> {
        KeyLock::hold(&self.keyring.path).map_err(AppendError::key)
    }

    /// Prepares a rotation. Both keys sign it; the old one signs all earlier records first.
    pub(crate) fn rotate(&mut self, _lock: &KeyLock) -> Result<Event, AppendError> {
        let state =
            signature_state(&*self.store).map_err(AppendError::of_store)?.map_err(AppendError::Broken)?;
        // Load the old key again: an interrupted rotation may have left the key that the chain names.
        self.keyring.loaded = None;
        let old = self.keyring.find(&state.key).map_err(AppendError::key)?;
        self.keyring.promote(&state.key).map_err(AppendError::key)?;
        let new = LedgerKey::create_over(&self.keyring.next()).map_err(AppendError::key)?;
        let statement = key::hand_over(&state.chain, &state.key, &new.public());
        let event = Event::LedgerKeyRotated {
            old: state.key,
            new: new.public(),
            by_old: old.sign(&statement),
            by_new: new.sign(&statement),
        };
        self.keyring.pending = Some(new);
        Ok(event)
    }

    /// After the rotation was recorded: moves the key that the chain names into place.
    pub(crate) fn promote(&mut self, _lock: &KeyLock, public: &str) -> Result<(), AppendError> {
        self.forget_next();
        self.keyring.promote(public).map_err(AppendError::key)
    }

    /// After a rotation that was not recorded.
    pub(crate) fn forget_next(&mut self) {
        self.keyring.loaded = None;
        self.keyring.pending = None;
    }
}

impl PreparedEvent {
    fn claims(&self, key: &str) -> bool {
        ClaimSubject::of(&self.event).claim().as_deref() == Some(key)
    }
}

fn failed(count: usize, mut refused: HashMap<usize, AppendError>, error: &ChainStoreError) -> CommitSummary {
    let results = (0..count)
        .map(|at| Err(refused.remove(&at).unwrap_or_else(|| AppendError::of_store(error.clone()))))
        .collect();
    CommitSummary { results, checkpoints: Vec::new() }
}

/// The result of one attempt.
#[derive(Debug, Default)]
struct WriteAttempt {
    /// Reason why nothing was written.
    fatal: Option<AppendError>,
    head: Option<ChainHead>,
    signed: Option<SigningState>,
    lives: HashMap<TransactionId, KnownLifecycle>,
    heads: HashMap<usize, Vec<ChainHead>>,
    checkpoints: Vec<AnchorLine>,
}

impl WriteAttempt {
    fn into_committed(mut self, count: usize, mut refused: HashMap<usize, AppendError>) -> CommitSummary {
        let results = (0..count).map(|at| match (&self.fatal, refused.remove(&at)) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(self.heads.remove(&at).unwrap_or_default()),
        });
        CommitSummary { results: results.collect(), checkpoints: self.checkpoints }
    }
}

/// A batch under construction.
struct BatchPlan<'a> {
    rows: &'a dyn ChainRows,
    head: Option<ChainHead>,
    entries: Vec<BatchRow>,
    known: &'a HashMap<TransactionId, KnownLifecycle>,
    lives: HashMap<TransactionId, KnownLifecycle>,
    claims: HashSet<String>,
    signed: Option<SigningState>,
    checkpoints: Vec<AnchorLine>,
}

/// State to return to if a request fails.
struct BatchMark {
    entries: usize,
    head: Option<ChainHead>,
    lives: Vec<(TransactionId, Option<KnownLifecycle>)>,
    signed: Option<SigningState>,
    checkpoints: usize,
}

impl BatchPlan<'_> {
    fn fill(
        mut self,
        requests: &[AppendRequest],
        refused: &mut HashMap<usize, AppendError>,
        keyring: &mut Keyring,
        written: &mut WriteAttempt,
    ) -> Result<Batch, ChainStoreError> {
        let mut forget = Vec::new();
        for (at, request) in requests.iter().enumerate() {
            if refused.contains_key(&at) {
                continue;
            }
            let mark = self.mark(request);
            match self.add(request, keyring) {
                Ok(heads) => {
                    forget.extend(&request.forget);
                    written.heads.insert(at, heads);
                }
                Err(error) => {
                    self.undo(mark);
                    refused.insert(at, error);
                }
            }
        }
        let wanted = requests.iter().map(|request| request.checkpoint).max();
        if let Err(error) = self.checkpoint_if_due(wanted.unwrap_or(CheckpointTiming::WhenDue), keyring) {
            written.fatal = Some(error);
            return Ok(Batch::default());
        }
        let seal = match self.seal(keyring) {
            Ok(seal) => seal,
            Err(error) => {
                written.fatal = Some(error);
                return Ok(Batch::default());
            }
        };
        written.head = self.head;
        written.signed = self.signed;
        written.lives = self.lives;
        written.checkpoints = self.checkpoints;
        Ok(Batch { entries: self.entries, forget, seal })
    }

    fn mark(&self, request: &AppendRequest) -> BatchMark {
        let touched = request.events.iter().filter_map(|prepared| prepared.event.transaction());
        BatchMark {
            entries: self.entries.len(),
            head: self.head.clone(),
            lives: touched.map(|id| (id.clone(), self.lives.get(id).cloned())).collect(),
            signed: self.signed.clone(),
            checkpoints: self.checkpoints.len(),
        }
    }

    fn undo(&mut self, mark: BatchMark) {
        for entry in self.entries.drain(mark.entries..) {
            if let Some(key) = &entry.claim {
                self.claims.remove(key);
            }
        }
        self.head = mark.head;
        for (id, known) in mark.lives {
            match known {
                Some(known) => drop(self.lives.insert(id, known)),
                None => drop(self.lives.remove(&id)),
            }
        }
        self.signed = mark.signed;
        self.checkpoints.truncate(mark.checkpoints);
    }

    fn add(&mut self, request: &AppendRequest, keyring: &mut Keyring) -> Result<Vec<ChainHead>, AppendError> {
        if request.checkpoint == CheckpointTiming::Before && self.has_unsigned() {
            self.checkpoint(keyring)?;
        }
        request.events.iter().map(|prepared| self.add_one(prepared)).collect()
    }

    fn add_one(&mut self, prepared: &PreparedEvent) -> Result<ChainHead, AppendError> {
        let event = &prepared.event;
        let seq = self.head.as_ref().map_or(1, |head| head.seq.saturating_add(1));
        self.follow(event, seq)?;
        self.check_grant(event)?;
        let subject = ClaimSubject::of(event);
        if let Some(key) = subject.claim() {
            // Where a query is a round trip, the write itself detects the conflict.
            let taken = self.claims.contains(&key)
                || (self.rows.chains() == ChainSelection::This && self.claimed(&key)?);
            if taken {
                let (id, why) = claim::taken(&key);
                return Err(AppendError::OutOfOrder { id, why });
            }
            self.claims.insert(key);
        }
        if let Event::LedgerKeyRotated { old, new, .. } = event
            && let Some(signed) = &mut self.signed
        {
            if signed.key != *old {
                return Err(AppendError::RotatedMeanwhile);
            }
            signed.key.clone_from(new);
        }
        let entry = BatchRow {
            claim: subject.claim(),
            life: subject.life_change(),
            row: Row::after(self.head.as_ref(), prepared.draft.clone()),
        };
        Ok(self.push(entry))
    }

    fn push(&mut self, entry: BatchRow) -> ChainHead {
        let head = entry.row.head();
        self.head = Some(head.clone());
        self.entries.push(entry);
        head
    }

    fn claimed(&self, key: &str) -> Result<bool, AppendError> {
        self.rows.claimed(key).map(|seq| seq.is_some()).map_err(AppendError::of_store)
    }

    /// Checks the order of events of one transaction.
    fn follow(&mut self, event: &Event, seq: u64) -> Result<(), AppendError> {
        let Some(id) = event.transaction() else { return Ok(()) };
        let mut known = match self.lives.get(id) {
            Some(known) => known.clone(),
            None => self.caught_up(id)?,
        };
        let out_of_order = |why| AppendError::OutOfOrder { id: id.to_string(), why };
        // Pruning keeps open transactions. A missing body here may have been a denial.
        if known.life.is_partly_forgotten()
            && matches!(event, Event::CallIntended { .. } | Event::GrantCreated(_))
        {
            return Err(out_of_order(LifecycleError::NotPermitted));
        }
        known.life.follow(event).map_err(out_of_order)?;
        known.upto = seq;
        self.lives.insert(id.clone(), known);
        Ok(())
    }

    /// The current lifecycle of a transaction in the store.
    fn caught_up(&self, id: &TransactionId) -> Result<KnownLifecycle, AppendError> {
        let mut known = KnownLifecycle { life: Lifecycle::default(), upto: 0 };
        let mut select = RowQuery::about(id.as_str());
        // Records of other chains have no number to continue from.
        if let (Some(cached), ChainSelection::This) = (self.known.get(id), self.rows.chains()) {
            known = cached.clone();
            select.numbers.0 = known.upto.saturating_add(1);
        }
        for row in collect(self.rows, &select).map_err(AppendError::of_store)? {
            known.upto = row.seq;
            let out_of_order = |why| AppendError::OutOfOrder { id: id.to_string(), why };
            if row.body.is_none() {
                let kind = Kind::of_word(&row.kind).unwrap_or(Kind::CallRefused);
                known.life.step(LifecycleStep::Forgotten(kind)).map_err(out_of_order)?;
                continue;
            }
            let record = Record::of_row(row).map_err(AppendError::Broken)?;
            known.life.follow(&record.event).map_err(out_of_order)?;
        }
        Ok(known)
    }

    /// A grant is used only while it is in force and within its use limit.
    fn check_grant(&self, event: &Event) -> Result<(), AppendError> {
        let (Some(grant), Event::CallIntended { .. } | Event::GrantRevoked { .. }) = (event.grant(), event)
        else {
            return Ok(());
        };
        let refused = |why| Err(AppendError::OutOfOrder { id: grant.to_string(), why });
        let (made, revoked) = (format!("granted {grant}"), format!("revoked {grant}"));
        if !self.claims.contains(&made) && !self.claimed(&made)? {
            return refused(LifecycleError::NotGranted);
        }
        if self.claims.contains(&revoked) || self.claimed(&revoked)? {
            return refused(LifecycleError::RevokedTwice);
        }
        if let Event::GrantRevoked { .. } = event {
            return Ok(());
        }
        // A claim proves that a grant existed; only its record says what it covers.
        let Some(made) = self.grant(grant)? else { return refused(LifecycleError::NotGranted) };
        match made.max_uses {
            Some(uses) if self.used(grant.as_str())? >= u64::from(uses) => refused(LifecycleError::UsedUp),
            _ => Ok(()),
        }
    }

    /// The record of the grant. `None`: no active chain has it.
    fn grant(&self, grant: &GrantId) -> Result<Option<Box<GrantRecord>>, AppendError> {
        let select = RowQuery::about(grant.as_str()).kinds(&[Kind::GrantCreated]);
        let stored = collect(self.rows, &select).map_err(AppendError::of_store)?;
        let new = self.entries.iter().map(|entry| &entry.row);
        for row in stored.iter().chain(new.filter(|row| is_about(row, Kind::GrantCreated, grant.as_str()))) {
            match Record::of_row(row.clone()).map_err(AppendError::Broken)?.event {
                Event::GrantCreated(made) if made.grant == *grant => return Ok(Some(made)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Number of uses of a grant. Chains that were set aside count too; otherwise setting one aside would restore its uses.
    fn used(&self, grant: &str) -> Result<u64, AppendError> {
        let select = RowQuery::ever_about(grant).kinds(&[Kind::CallIntended]);
        let stored = collect(self.rows, &select).map_err(AppendError::of_store)?;
        let new = self.entries.iter().filter(|entry| is_about(&entry.row, Kind::CallIntended, grant)).count();
        Ok(stored.len().saturating_add(new) as u64)
    }

    /// Number of records without a checkpoint.
    fn unsigned(&self) -> u64 {
        let last = self.head.as_ref().map_or(0, |head| head.seq);
        last.saturating_sub(self.signed.as_ref().map_or(0, |signed| signed.upto))
    }

    /// The record of the last checkpoint itself is always unsigned.
    fn has_unsigned(&self) -> bool {
        self.unsigned() > u64::from(self.signed.as_ref().is_some_and(|signed| signed.upto > 0))
    }

    /// Writes a checkpoint if due. A node with nothing to sign still records the heads of other chains on request.
    fn checkpoint_if_due(
        &mut self,
        wanted: CheckpointTiming,
        keyring: &mut Keyring,
    ) -> Result<(), AppendError> {
        let is_due = self.is_due(wanted)
            || (wanted == CheckpointTiming::Now && self.signed.is_some() && !self.unwitnessed()?.is_empty());
        if is_due { self.checkpoint(keyring) } else { Ok(()) }
    }

    fn is_due(&self, wanted: CheckpointTiming) -> bool {
        let (unsigned, Some(signed)) = (self.unsigned(), &self.signed) else { return false };
        if !self.has_unsigned() {
            return false;
        }
        let is_old = is_old(signed);
        match wanted {
            CheckpointTiming::Now => true,
            CheckpointTiming::AtEnd => unsigned >= CHECKPOINT_AT_END || is_old,
            CheckpointTiming::WhenDue | CheckpointTiming::Before => {
                !self.entries.is_empty() && (unsigned >= CHECKPOINT_RECORDS || is_old)
            }
        }
    }

    /// Witnesses the heads of other chains that have moved since the last time.
    fn witness(&mut self) -> Result<(), AppendError> {
        for prepared in self.unwitnessed()? {
            self.push(prepared.after(self.head.as_ref()));
        }
        Ok(())
    }

    fn unwitnessed(&self) -> Result<Vec<PreparedEvent>, AppendError> {
        let others = self.rows.others().map_err(AppendError::of_store)?;
        let mut moved = Vec::new();
        if others.is_empty() {
            return Ok(moved);
        }
        let count = others.len() as u64;
        let newest = RowQuery::newest(count.saturating_mul(4))
            .kinds(&[Kind::ChainWitnessed, Kind::ChainWitnessRefused]);
        let before = collect(self.rows, &newest).map_err(AppendError::of_store)?;
        for other in others {
            let prepared =
                PreparedEvent::new(&other.event(), Timestamp::now()).map_err(AppendError::encode)?;
            if !before.iter().any(|row| row.digest == prepared.draft.digest) {
                moved.push(prepared);
            }
        }
        Ok(moved)
    }

    /// Seal over the new head, if the store keeps one.
    fn seal(&self, keyring: &mut Keyring) -> Result<Option<String>, AppendError> {
        let (Some(head), Some(signed), false) = (&self.head, &self.signed, self.entries.is_empty()) else {
            return Ok(None);
        };
        if self.rows.seal().map_err(AppendError::of_store)?.is_none() {
            return Ok(None);
        }
        keyring.seal(&signed.key, &seal::end(&signed.chain, head)).map(Some).map_err(AppendError::key)
    }

    fn checkpoint(&mut self, keyring: &mut Keyring) -> Result<(), AppendError> {
        self.witness()?;
        let (Some(head), Some(signed)) = (self.head.clone(), self.signed.clone()) else { return Ok(()) };
        let first = signed.upto.saturating_add(1);
        let mut tree = MerkleFrontier::default();
        let broken = |seq| AppendError::Broken(ChainBreak { seq, what: ChainFlaw::HashMismatch });
        let stored = checkpoint::hashes(self.rows, first, head.seq).map_err(AppendError::of_store)?;
        stored.ok_or_else(|| broken(first))?.iter().for_each(|hash| tree.push(hash));
        for entry in self.entries.iter().filter(|entry| entry.row.seq >= first) {
            tree.push(&unhex(&entry.row.hash).ok_or_else(|| broken(entry.row.seq))?);
        }
        let covered = CheckpointRange {
            chain: &signed.chain,
            first,
            last: head.seq,
            head: &head.hash,
            root: tree.root(),
        };
        let time = Timestamp::now();
        let key = keyring.load_anew(&signed.key).map_err(AppendError::key)?;
        let checkpoint = Checkpoint::sign(&covered, key, time);
        let event = Event::CheckpointSigned(checkpoint.clone());
        let prepared = PreparedEvent::new(&event, time).map_err(AppendError::encode)?;
        let seq = self.push(prepared.after(Some(&head))).seq;
        self.signed = Some(SigningState { upto: head.seq, time, ..signed });
        self.checkpoints.push(AnchorLine { seq, checkpoint });
        Ok(())
    }
}

fn is_about(row: &Row, kind: Kind, id: &str) -> bool {
    Kind::of_word(&row.kind) == Some(kind) && row.ids.split_ascii_whitespace().any(|about| about == id)
}

/// A clock that was set back does not delay a checkpoint.
fn is_old(signed: &SigningState) -> bool {
    Timestamp::now().duration_since(signed.time).abs() >= CHECKPOINT_TIME
}

/// Knowledge about a chain from outside its store.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere<'a> {
    pub(crate) anchor: Option<&'a CheckpointAnchor>,
    pub(crate) memory: Option<Memory>,
}

/// Local memory of a node about its chain, and its keys.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) head: io::Result<LocalHead>,
    pub(crate) keyring: Keyring,
}

pub(crate) fn check_elsewhere(
    rows: &dyn ChainRows,
    head: &ChainHead,
    elsewhere: &Elsewhere<'_>,
) -> Result<Option<ChainBreak>, ChainStoreError> {
    if let Some(memory) = &elsewhere.memory
        && let Some(broken) = check_local_head(rows, head, memory)?
    {
        return Ok(Some(broken));
    }
    match elsewhere.anchor {
        Some(anchor) => check_anchor(rows, head, anchor),
        None => Ok(None),
    }
}

/// The last signed head of this node must be in its chain, and the chain must be the remembered one or continue it.
///
/// A first record can claim to continue another chain. So a continuation counts only if a key of this node has signed its head, and
/// with it every earlier record.
fn check_local_head(
    rows: &dyn ChainRows,
    head: &ChainHead,
    memory: &Memory,
) -> Result<Option<ChainBreak>, ChainStoreError> {
    let rolled_back =
        |anchored| Ok(Some(ChainBreak { seq: head.seq, what: ChainFlaw::RolledBack { anchored } }));
    let kept = match &memory.head {
        Ok(kept) => kept,
        Err(why) => return rolled_back(format!("it cannot be read: {why}")),
    };
    match collect(rows, &RowQuery::numbered(1, 1))?.pop().map(Record::of_row) {
        Some(Ok(Record { event: Event::ChainStarted { chain, .. }, .. })) if chain == kept.chain => {
            if is_there(rows, &kept.head)? {
                Ok(None)
            } else {
                rolled_back(kept.head.to_string())
            }
        }
        Some(Ok(Record { event: Event::ChainStarted { chain, continues: Some(before), .. }, .. }))
            if before.proof.as_ref().is_some_and(|proof| proof.chain == kept.chain)
                && is_sealed(rows, &chain, head, &memory.keyring)? =>
        {
            Ok(None)
        }
        _ => rolled_back(format!("chain {}", kept.chain)),
    }
}

/// Checks without a full walk: the last record follows its predecessor, and none of the newest is missing.
fn standing(rows: &dyn ChainRows) -> Result<Result<Option<ChainHead>, ChainBreak>, ChainStoreError> {
    let mut found = Ok(Ok(None));
    rows.at_once(&mut || found = standing_now(rows))?;
    found
}

fn standing_now(rows: &dyn ChainRows) -> Result<Result<Option<ChainHead>, ChainBreak>, ChainStoreError> {
    let end = match checked_end(rows, None) {
        Err(ChainStoreError::Malformed { seq, reason }) => {
            return Ok(Err(ChainBreak { seq, what: ChainFlaw::Malformed { reason } }));
        }
        end => end?,
    };
    let Ok(Some(head)) = &end else { return Ok(end) };
    let expected = head.seq.min(COUNTED);
    let found = rows.count_above(head.seq - expected)?;
    if found == expected {
        return Ok(end);
    }
    let reason = format!("the {expected} newest numbers have {found} records");
    Ok(Err(ChainBreak { seq: head.seq, what: ChainFlaw::Malformed { reason } }))
}

/// The head, if the last record follows the one before it and the head seen earlier is still in the chain.
fn checked_end(
    rows: &dyn ChainRows,
    seen: Option<&ChainHead>,
) -> Result<Result<Option<ChainHead>, ChainBreak>, ChainStoreError> {
    let newest = match collect(rows, &RowQuery::newest(2)) {
        Err(ChainStoreError::Malformed { reason, .. }) => {
            let seq = seen.map_or(0, |head| head.seq);
            return Ok(Err(ChainBreak { seq, what: ChainFlaw::Malformed { reason } }));
        }
        newest => newest?,
    };
    let Some(last) = newest.first() else { return Ok(check_seen(rows, None, seen)?.map(|()| None)) };
    let (seq, hash) = newest.get(1).map_or((0, GENESIS), |row| (row.seq, row.hash.as_str()));
    if let Err(broken) = last.borrowed().check_after(seq, hash) {
        return Ok(Err(broken));
    }
    let head = last.head();
    Ok(check_seen(rows, Some(&head), seen)?.map(|()| Some(head)))
}

fn check_seen(
    rows: &dyn ChainRows,
    head: Option<&ChainHead>,
    seen: Option<&ChainHead>,
) -> Result<Result<(), ChainBreak>, ChainStoreError> {
    let Some(seen) = seen else { return Ok(Ok(())) };
    let last = head.map_or(0, |head| head.seq);
    if last < seen.seq {
        return Ok(Err(ChainBreak { seq: last + 1, what: ChainFlaw::Truncated { expected: seen.seq } }));
    }
    if head == Some(seen) || is_there(rows, seen)? {
        return Ok(Ok(()));
    }
    Ok(Err(ChainBreak { seq: seen.seq, what: ChainFlaw::Rewritten }))
}

fn is_there(rows: &dyn ChainRows, head: &ChainHead) -> Result<bool, ChainStoreError> {
    let found = collect(rows, &RowQuery::numbered(head.seq, head.seq))?;
    Ok(found.iter().any(|row| row.hash == head.hash))
}

/// Detects a record that another role appended to this chain, because that role lacks the key of the node.
fn check_seal(
    rows: &dyn ChainRows,
    head: Option<&ChainHead>,
    signed: Option<&SigningState>,
    keyring: &Keyring,
) -> Result<Option<ChainBreak>, ChainStoreError> {
    let (Some(head), Some(signed)) = (head, signed) else { return Ok(None) };
    let is_ours = is_sealed(rows, &signed.chain, head, keyring)?;
    Ok((!is_ours).then_some(ChainBreak { seq: head.seq, what: ChainFlaw::Unsealed }))
}

/// Whether a key of this node has signed the head, if the store keeps seals.
fn is_sealed(
    rows: &dyn ChainRows,
    chain: &ChainId,
    head: &ChainHead,
    keyring: &Keyring,
) -> Result<bool, ChainStoreError> {
    let Some(seal) = rows.seal()? else { return Ok(true) };
    Ok(keyring.has_signed(&seal::end(chain, head), &seal))
}

/// Key and checkpoints according to the records.
fn signature_state(rows: &dyn ChainRows) -> Result<Result<SigningState, ChainBreak>, ChainStoreError> {
    let newest = |kind: Kind| -> Result<Option<Row>, ChainStoreError> {
        Ok(collect(rows, &RowQuery::newest(1).kinds(&[kind]))?.pop())
    };
    let no_beginning = ChainBreak { seq: 1, what: ChainFlaw::NoBeginning };
    let Some(start) = newest(Kind::ChainStarted)? else { return Ok(Err(no_beginning)) };
    let start = match Record::of_row(start) {
        Ok(record) => record,
        Err(broken) => return Ok(Err(broken)),
    };
    let (started, Event::ChainStarted { chain, key, .. }) = (start.timestamp(), start.event) else {
        return Ok(Err(no_beginning));
    };
    let mut signed = SigningState { chain, key, upto: 0, time: started };
    for kind in [Kind::LedgerKeyRotated, Kind::CheckpointSigned] {
        let Some(row) = newest(kind)? else { continue };
        match Record::of_row(row).map(|record| record.event) {
            Ok(Event::LedgerKeyRotated { new, .. }) => signed.key = new,
            Ok(Event::CheckpointSigned(checkpoint)) => {
                signed.upto = checkpoint.last;
                signed.time = checkpoint.time;
            }
            Ok(_) => {}
            Err(broken) => return Ok(Err(broken)),
        }
    }
    Ok(Ok(signed))
}
