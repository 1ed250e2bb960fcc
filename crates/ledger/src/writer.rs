//! What turns events into rows: the check of the end, of the order and of the claims, the chain, and the checkpoints that
//! are due. Runs for one batch at a time.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{Bytes, ChainId, TransactionId};

use crate::anchor::{Anchor, Anchored, Newest};
use crate::chain::{Break, Draft, Flaw, GENESIS, Head, Hex, Row, unhex};
use crate::checkpoint::{self, Covered};
use crate::claim::{self, Subject};
use crate::event::{Checkpoint, Event, Kind};
use crate::key::{self, Key, KeyError};
use crate::ledger::AppendError;
use crate::life::{Life, OutOfOrder, Step};
use crate::merkle::Growing;
use crate::postgres::remembered::Remembered;
use crate::record::Record;
use crate::seal;
use crate::store::{Batch, Chains, Entry, Rows, Select, Store, StoreError, WitnessedHead, collect};

/// How many of the newest records are counted at open. A bound, so that a start does not get slower with the years; what
/// is older is for [`crate::verify()`].
const COUNTED: u64 = 20_000;

/// A checkpoint is due after this many records, or after this time.
const CHECKPOINT_RECORDS: u64 = 1024;
const CHECKPOINT_TIME: SignedDuration = SignedDuration::from_secs(60);

/// What a process leaves behind is signed if it is more than this, or older than [`CHECKPOINT_TIME`].
const CHECKPOINT_AT_END: u64 = 64;

/// Events that are written all or not at all.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) events: Vec<Prepared>,
    /// Rows whose bodies go with it.
    pub(crate) forget: Vec<u64>,
    pub(crate) checkpoint: Wanted,
}

/// When a checkpoint comes with a request; what asks for more comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    WhenDue,
    /// Before the events of the request.
    Before,
    /// At the end, if a process that leaves should sign.
    AtEnd,
    /// At the end, if there is anything that is not signed.
    Now,
}

/// An event as it will be stored.
#[derive(Debug)]
pub(crate) struct Prepared {
    event: Event,
    draft: Draft,
}

impl Prepared {
    pub(crate) fn new(event: &Event, time: Timestamp) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_string(event)?;
        let draft = Draft {
            time: format!("{time:.6}"),
            kind: event.kind().word().to_owned(),
            ids: event.ids().collect::<Vec<_>>().join(" "),
            digest: Hex::of(body.as_bytes()).to_string(),
            body,
        };
        Ok(Self { event: event.clone(), draft })
    }

    pub(crate) fn after(self, previous: Option<&Head>) -> Entry {
        let subject = Subject::of(&self.event);
        Entry { claim: subject.claim(), life: subject.life_change(), row: Row::after(previous, self.draft) }
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) store: Box<dyn Store>,
    /// Once broken, broken until somebody opens it anew.
    broken: Option<Break>,
    /// The end of the chain when we last looked: it may grow, never shrink or change.
    seen: Option<Head>,
    lives: HashMap<TransactionId, Known>,
    signed: Option<Signed>,
    keyring: Keyring,
}

/// A life as of some record.
#[derive(Clone, Debug)]
struct Known {
    life: Life,
    upto: u64,
}

/// What the chain says about its key, and how far it is signed.
#[derive(Clone, Debug)]
struct Signed {
    chain: ChainId,
    key: String,
    /// The last record that a checkpoint covers.
    upto: u64,
    time: Timestamp,
}

/// Where the keys are, and the one in use once it was needed.
#[derive(Debug)]
pub(crate) struct Keyring {
    pub(crate) path: PathBuf,
    loaded: Option<Key>,
    /// Made by a rotation that is not written yet.
    pending: Option<Key>,
}

impl Keyring {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, loaded: None, pending: None }
    }

    /// Where a rotation leaves the next key until the chain has named it.
    pub(crate) fn next(&self) -> PathBuf {
        self.path.with_added_extension("next")
    }

    fn is_there(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok()
    }

    /// The key with this public half.
    fn load(&mut self, public: &str) -> Result<&Key, KeyError> {
        if self.loaded.as_ref().is_none_or(|key| key.public() != public) {
            self.loaded = Some(self.find(public)?);
        }
        self.loaded.as_ref().ok_or_else(|| KeyError::Missing { path: self.path.clone() })
    }

    /// [`Keyring::load`] from its file: a key that was replaced or removed meanwhile signs nothing more.
    fn load_anew(&mut self, public: &str) -> Result<&Key, KeyError> {
        self.loaded = None;
        self.load(public)
    }

    fn seal(&mut self, public: &str, statement: &[u8]) -> Result<String, KeyError> {
        match &self.pending {
            Some(key) if key.public() == public => Ok(key.sign(statement)),
            _ => self.load(public).map(|key| key.sign(statement)),
        }
    }

    /// Whether a key of this node has signed `statement`, whatever the chain says about its key.
    pub(crate) fn has_signed(&self, statement: &[u8], signature: &str) -> bool {
        let is_by = |key: &Key| key::is_signed(&key.public(), statement, signature);
        self.loaded.as_ref().is_some_and(is_by)
            || [self.path.clone(), self.next()]
                .iter()
                .any(|path| Key::load(path).is_ok_and(|key| is_by(&key)))
    }

    pub(crate) fn find(&self, public: &str) -> Result<Key, KeyError> {
        let current = Key::load(&self.path);
        if let Ok(key) = current
            && key.public() == public
        {
            return Ok(key);
        }
        // A rotation that was cut off after the chain had named the new key.
        let next = self.next();
        if Key::load(&next).is_ok_and(|key| key.public() == public) {
            key::promote(&next, &self.path)?;
        }
        let key = Key::load(&self.path)?;
        if key.public() == public { Ok(key) } else { Err(KeyError::Other { path: self.path.clone() }) }
    }
}

/// What was written, as far as others need it.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    pub(crate) results: Vec<Result<Vec<Head>, AppendError>>,
    pub(crate) checkpoints: Vec<Anchored>,
}

impl Writer {
    pub(crate) fn new(
        store: Box<dyn Store>,
        keyring: Keyring,
        elsewhere: &Elsewhere<'_>,
    ) -> Result<Self, StoreError> {
        let mut standing = standing(&*store)?;
        if let Ok(Some(head)) = &standing
            && let Some(broken) = check_elsewhere(&*store, head, elsewhere)?
        {
            standing = Err(broken);
        }
        if let Ok(Some(head)) = &standing
            && !keyring.is_there()
        {
            let why = format!("`{}`", Bytes::from(keyring.path.as_path()).display());
            standing = Err(Break { seq: head.seq, what: Flaw::Key { why } });
        }
        let (seen, broken) = match standing {
            Ok(head) => (head, None),
            Err(broken) => (None, Some(broken)),
        };
        Ok(Self { store, broken, seen, lives: HashMap::new(), signed: None, keyring })
    }

    pub(crate) fn broken(&self) -> Option<&Break> {
        self.broken.as_ref()
    }

    /// Whether a process that ends here leaves more unsigned than it should. Costs nothing if it wrote nothing.
    pub(crate) fn leaves_unsigned(&self) -> bool {
        let (Some(head), Some(signed), None) = (&self.seen, &self.signed, &self.broken) else { return false };
        let unsigned = head.seq.saturating_sub(signed.upto);
        unsigned >= CHECKPOINT_AT_END || (unsigned > 1 && is_old(signed))
    }

    /// Writes the requests in one step. Whatever is wrong with one of them does not touch the others.
    pub(crate) fn commit(&mut self, requests: &[Request]) -> Committed {
        let mut refused: HashMap<usize, AppendError> = HashMap::new();
        loop {
            let outcome = self.attempt(requests, &mut refused);
            match outcome {
                Ok(done) => return done.into_committed(requests.len(), refused),
                Err(StoreError::Taken { key }) => {
                    // Somebody on another chain was first: whoever wanted the same is out, the rest tries again.
                    let (id, why) = claim::taken(&key);
                    let loser = requests.iter().enumerate().position(|(at, request)| {
                        !refused.contains_key(&at) && request.events.iter().any(|event| event.claims(&key))
                    });
                    match loser {
                        Some(at) => drop(refused.insert(at, AppendError::OutOfOrder { id, why })),
                        None => return failed(requests.len(), refused, &StoreError::Taken { key }),
                    }
                }
                Err(error) => return failed(requests.len(), refused, &error),
            }
        }
    }

    fn attempt(
        &mut self,
        requests: &[Request],
        refused: &mut HashMap<usize, AppendError>,
    ) -> Result<Written, StoreError> {
        let Self { store, broken, seen, lives, signed, keyring } = self;
        let mut written = Written::default();
        store.append(&mut |rows| {
            written = Written::default();
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
            let plan = Plan {
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

    /// What is on disk now is what we know.
    fn settle(&mut self, written: &Written) {
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

    /// Another key vouches from here on. Both sign; the old one signs everything before first.
    pub(crate) fn rotate(&mut self) -> Result<(Event, PathBuf), AppendError> {
        let state =
            signature_state(&*self.store).map_err(AppendError::of_store)?.map_err(AppendError::Broken)?;
        let next = self.keyring.next();
        let new = Key::create_over(&next).map_err(AppendError::key)?;
        let old = self.keyring.load_anew(&state.key).map_err(AppendError::key)?;
        let statement = key::hand_over(&state.chain, &state.key, &new.public());
        let event = Event::KeyRotated {
            old: state.key,
            new: new.public(),
            by_old: old.sign(&statement),
            by_new: new.sign(&statement),
        };
        self.keyring.pending = Some(new);
        Ok((event, next))
    }

    /// After the chain has named the next key.
    pub(crate) fn promote(&mut self, next: &Path) -> Result<(), AppendError> {
        // Another process of this node that needed the key may have done it.
        if std::fs::symlink_metadata(next).is_ok() {
            key::promote(next, &self.keyring.path).map_err(AppendError::key)?;
        }
        self.keyring.loaded = None;
        self.keyring.pending = None;
        Ok(())
    }
}

impl Prepared {
    fn claims(&self, key: &str) -> bool {
        Subject::of(&self.event).claim().as_deref() == Some(key)
    }
}

fn failed(count: usize, mut refused: HashMap<usize, AppendError>, error: &StoreError) -> Committed {
    let results = (0..count)
        .map(|at| Err(refused.remove(&at).unwrap_or_else(|| AppendError::of_store(error.clone()))))
        .collect();
    Committed { results, checkpoints: Vec::new() }
}

/// The result of one attempt.
#[derive(Debug, Default)]
struct Written {
    /// Why nothing at all was written.
    fatal: Option<AppendError>,
    head: Option<Head>,
    signed: Option<Signed>,
    lives: HashMap<TransactionId, Known>,
    heads: HashMap<usize, Vec<Head>>,
    checkpoints: Vec<Anchored>,
}

impl Written {
    fn into_committed(mut self, count: usize, mut refused: HashMap<usize, AppendError>) -> Committed {
        let results = (0..count).map(|at| match (&self.fatal, refused.remove(&at)) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(self.heads.remove(&at).unwrap_or_default()),
        });
        Committed { results: results.collect(), checkpoints: self.checkpoints }
    }
}

/// A batch in the making.
struct Plan<'a> {
    rows: &'a dyn Rows,
    head: Option<Head>,
    entries: Vec<Entry>,
    known: &'a HashMap<TransactionId, Known>,
    lives: HashMap<TransactionId, Known>,
    claims: HashSet<String>,
    signed: Option<Signed>,
    checkpoints: Vec<Anchored>,
}

/// What is undone if a request turns out to be impossible.
struct Mark {
    entries: usize,
    head: Option<Head>,
    lives: Vec<(TransactionId, Option<Known>)>,
    signed: Option<Signed>,
    checkpoints: usize,
}

impl Plan<'_> {
    fn fill(
        mut self,
        requests: &[Request],
        refused: &mut HashMap<usize, AppendError>,
        keyring: &mut Keyring,
        written: &mut Written,
    ) -> Result<Batch, StoreError> {
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
        if self.is_due(wanted.unwrap_or(Wanted::WhenDue))
            && let Err(error) = self.checkpoint(keyring)
        {
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

    fn mark(&self, request: &Request) -> Mark {
        let touched = request.events.iter().filter_map(|prepared| prepared.event.transaction());
        Mark {
            entries: self.entries.len(),
            head: self.head.clone(),
            lives: touched.map(|id| (id.clone(), self.lives.get(id).cloned())).collect(),
            signed: self.signed.clone(),
            checkpoints: self.checkpoints.len(),
        }
    }

    fn undo(&mut self, mark: Mark) {
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

    fn add(&mut self, request: &Request, keyring: &mut Keyring) -> Result<Vec<Head>, AppendError> {
        if request.checkpoint == Wanted::Before && self.has_unsigned() {
            self.checkpoint(keyring)?;
        }
        request.events.iter().map(|prepared| self.add_one(prepared)).collect()
    }

    fn add_one(&mut self, prepared: &Prepared) -> Result<Head, AppendError> {
        let event = &prepared.event;
        let seq = self.head.as_ref().map_or(1, |head| head.seq.saturating_add(1));
        self.follow(event, seq)?;
        self.check_grant(event)?;
        let subject = Subject::of(event);
        if let Some(key) = subject.claim() {
            // Where a question costs a journey, the answer is left to the step that writes.
            let taken =
                self.claims.contains(&key) || (self.rows.chains() == Chains::This && self.claimed(&key)?);
            if taken {
                let (id, why) = claim::taken(&key);
                return Err(AppendError::OutOfOrder { id, why });
            }
            self.claims.insert(key);
        }
        if let Event::KeyRotated { new, .. } = event
            && let Some(signed) = &mut self.signed
        {
            signed.key.clone_from(new);
        }
        let entry = Entry {
            claim: subject.claim(),
            life: subject.life_change(),
            row: Row::after(self.head.as_ref(), prepared.draft.clone()),
        };
        Ok(self.push(entry))
    }

    fn push(&mut self, entry: Entry) -> Head {
        let head = entry.row.head();
        self.head = Some(head.clone());
        self.entries.push(entry);
        head
    }

    fn claimed(&self, key: &str) -> Result<bool, AppendError> {
        self.rows.claimed(key).map(|seq| seq.is_some()).map_err(AppendError::of_store)
    }

    /// The order of events of one transaction.
    fn follow(&mut self, event: &Event, seq: u64) -> Result<(), AppendError> {
        let Some(id) = event.transaction() else { return Ok(()) };
        let mut known = match self.lives.get(id) {
            Some(known) => known.clone(),
            None => self.caught_up(id)?,
        };
        let out_of_order = |why| AppendError::OutOfOrder { id: id.to_string(), why };
        known.life.follow(event).map_err(out_of_order)?;
        known.upto = seq;
        self.lives.insert(id.clone(), known);
        Ok(())
    }

    /// What the store says of a transaction by now.
    fn caught_up(&self, id: &TransactionId) -> Result<Known, AppendError> {
        let mut known = Known { life: Life::default(), upto: 0 };
        let mut select = Select::about(id.as_str());
        // What other chains say meanwhile has no number after which to look.
        if let (Some(cached), Chains::This) = (self.known.get(id), self.rows.chains()) {
            known = cached.clone();
            select.numbers.0 = known.upto.saturating_add(1);
        }
        for row in collect(self.rows, &select).map_err(AppendError::of_store)? {
            known.upto = row.seq;
            let out_of_order = |why| AppendError::OutOfOrder { id: id.to_string(), why };
            if row.body.is_none() {
                let kind = Kind::of_word(&row.kind).unwrap_or(Kind::Refused);
                known.life.step(Step::Forgotten(kind)).map_err(out_of_order)?;
                continue;
            }
            let record = Record::of_row(row).map_err(AppendError::Broken)?;
            known.life.follow(&record.event).map_err(out_of_order)?;
        }
        Ok(known)
    }

    /// A stored answer is used only while it is there and as often as it says.
    fn check_grant(&self, event: &Event) -> Result<(), AppendError> {
        let (Some(grant), Event::Intent { .. } | Event::GrantRevoked { .. }) = (event.grant(), event) else {
            return Ok(());
        };
        let refused = |why| Err(AppendError::OutOfOrder { id: grant.to_string(), why });
        let (made, revoked) = (format!("granted {grant}"), format!("revoked {grant}"));
        if !self.claims.contains(&made) && !self.claimed(&made)? {
            return refused(OutOfOrder::NotGranted);
        }
        if self.claims.contains(&revoked) || self.claimed(&revoked)? {
            return refused(OutOfOrder::RevokedTwice);
        }
        if let Event::Intent { .. } = event
            && self.uses_left(grant.as_str())? == Some(0)
        {
            return refused(OutOfOrder::UsedUp);
        }
        Ok(())
    }

    /// `None`: without a limit.
    fn uses_left(&self, grant: &str) -> Result<Option<u64>, AppendError> {
        let stored = collect(self.rows, &Select::about(grant)).map_err(AppendError::of_store)?;
        let new = self.entries.iter().map(|entry| &entry.row);
        let about =
            stored.iter().chain(new.filter(|row| row.ids.split_ascii_whitespace().any(|id| id == grant)));
        let (mut limit, mut used) = (None, 0);
        for row in about {
            match Kind::of_word(&row.kind) {
                Some(Kind::Intent) => used += 1,
                Some(Kind::GrantMade) => {
                    if let Event::GrantMade(made) =
                        Record::of_row(row.clone()).map_err(AppendError::Broken)?.event
                    {
                        limit = made.uses.map(u64::from);
                    }
                }
                _ => {}
            }
        }
        Ok(limit.map(|limit| limit.saturating_sub(used)))
    }

    /// How many records no checkpoint covers.
    fn unsigned(&self) -> u64 {
        let last = self.head.as_ref().map_or(0, |head| head.seq);
        last.saturating_sub(self.signed.as_ref().map_or(0, |signed| signed.upto))
    }

    /// The record of the last checkpoint itself is always unsigned.
    fn has_unsigned(&self) -> bool {
        self.unsigned() > u64::from(self.signed.as_ref().is_some_and(|signed| signed.upto > 0))
    }

    fn is_due(&self, wanted: Wanted) -> bool {
        let (unsigned, Some(signed)) = (self.unsigned(), &self.signed) else { return false };
        if !self.has_unsigned() {
            return false;
        }
        let is_old = is_old(signed);
        match wanted {
            Wanted::Now => true,
            Wanted::AtEnd => unsigned >= CHECKPOINT_AT_END || is_old,
            Wanted::WhenDue | Wanted::Before => {
                !self.entries.is_empty() && (unsigned >= CHECKPOINT_RECORDS || is_old)
            }
        }
    }

    /// Writes down where the other chains stand, as far as they have moved since the last time.
    fn witness(&mut self) -> Result<(), AppendError> {
        let others = self.rows.others().map_err(AppendError::of_store)?;
        if others.is_empty() {
            return Ok(());
        }
        let count = others.len() as u64;
        let before = collect(self.rows, &Select::newest(count.saturating_mul(4)).kinds(&[Kind::Witnessed]));
        let before = before.map_err(AppendError::of_store)?;
        for WitnessedHead { chain, head, key } in others {
            let event = Event::Witnessed { chain, head, key };
            let prepared = Prepared::new(&event, Timestamp::now()).map_err(AppendError::encode)?;
            if !before.iter().any(|row| row.digest == prepared.draft.digest) {
                self.push(prepared.after(self.head.as_ref()));
            }
        }
        Ok(())
    }

    /// The signature over the end that this batch makes, where the store keeps one.
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
        let mut tree = Growing::default();
        let broken = |seq| AppendError::Broken(Break { seq, what: Flaw::HashMismatch });
        let stored = checkpoint::hashes(self.rows, first, head.seq).map_err(AppendError::of_store)?;
        stored.ok_or_else(|| broken(first))?.iter().for_each(|hash| tree.push(hash));
        for entry in self.entries.iter().filter(|entry| entry.row.seq >= first) {
            tree.push(&unhex(&entry.row.hash).ok_or_else(|| broken(entry.row.seq))?);
        }
        let covered =
            Covered { chain: &signed.chain, first, last: head.seq, head: &head.hash, root: tree.root() };
        let time = Timestamp::now();
        let key = keyring.load_anew(&signed.key).map_err(AppendError::key)?;
        let checkpoint = Checkpoint::sign(&covered, key, time);
        let event = Event::Checkpoint(checkpoint.clone());
        let prepared = Prepared::new(&event, time).map_err(AppendError::encode)?;
        let seq = self.push(prepared.after(Some(&head))).seq;
        self.signed = Some(Signed { upto: head.seq, time, ..signed });
        self.checkpoints.push(Anchored { seq, checkpoint });
        Ok(())
    }
}

/// A clock that went back is no reason to wait for it.
fn is_old(signed: &Signed) -> bool {
    Timestamp::now().duration_since(signed.time).abs() >= CHECKPOINT_TIME
}

/// What is known of a chain outside its store.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere<'a> {
    pub(crate) anchor: Option<&'a Anchor>,
    /// What the node remembers of its own chain.
    pub(crate) remembered: Option<io::Result<Remembered>>,
}

pub(crate) fn check_elsewhere(
    rows: &dyn Rows,
    head: &Head,
    elsewhere: &Elsewhere<'_>,
) -> Result<Option<Break>, StoreError> {
    if let Some(remembered) = &elsewhere.remembered
        && let Some(broken) = check_remembered(rows, head, remembered)?
    {
        return Ok(Some(broken));
    }
    match elsewhere.anchor {
        Some(anchor) => check_anchor(rows, head, anchor),
        None => Ok(None),
    }
}

/// What this node last signed must be in its chain, and its chain must be the one it was, or continue it.
fn check_remembered(
    rows: &dyn Rows,
    head: &Head,
    remembered: &io::Result<Remembered>,
) -> Result<Option<Break>, StoreError> {
    let rolled_back = |anchored| Ok(Some(Break { seq: head.seq, what: Flaw::RolledBack { anchored } }));
    let kept = match remembered {
        Ok(kept) => kept,
        Err(why) => return rolled_back(format!("it cannot be read: {why}")),
    };
    match collect(rows, &Select::numbered(1, 1))?.pop().map(Record::of_row) {
        Some(Ok(Record { event: Event::ChainStarted { chain, .. }, .. })) if chain == kept.chain => {
            if is_there(rows, &kept.head)? {
                Ok(None)
            } else {
                rolled_back(kept.head.to_string())
            }
        }
        Some(Ok(Record { event: Event::ChainStarted { continues: Some(before), .. }, .. }))
            if before.proof.as_ref().is_some_and(|proof| proof.chain == kept.chain) =>
        {
            Ok(None)
        }
        _ => rolled_back(format!("chain {}", kept.chain)),
    }
}

/// What can be said of the chain without walking it: its last record follows the one before, and of the newest none is
/// missing.
fn standing(rows: &dyn Rows) -> Result<Result<Option<Head>, Break>, StoreError> {
    let mut found = Ok(Ok(None));
    rows.at_once(&mut || found = standing_now(rows))?;
    found
}

fn standing_now(rows: &dyn Rows) -> Result<Result<Option<Head>, Break>, StoreError> {
    let end = match checked_end(rows, None) {
        Err(StoreError::Malformed { seq, reason }) => {
            return Ok(Err(Break { seq, what: Flaw::Malformed { reason } }));
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
    Ok(Err(Break { seq: head.seq, what: Flaw::Malformed { reason } }))
}

/// The head, if the last record follows the one before it and the head seen earlier is still in the chain.
fn checked_end(rows: &dyn Rows, seen: Option<&Head>) -> Result<Result<Option<Head>, Break>, StoreError> {
    let newest = match collect(rows, &Select::newest(2)) {
        Err(StoreError::Malformed { reason, .. }) => {
            let seq = seen.map_or(0, |head| head.seq);
            return Ok(Err(Break { seq, what: Flaw::Malformed { reason } }));
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
    rows: &dyn Rows,
    head: Option<&Head>,
    seen: Option<&Head>,
) -> Result<Result<(), Break>, StoreError> {
    let Some(seen) = seen else { return Ok(Ok(())) };
    let last = head.map_or(0, |head| head.seq);
    if last < seen.seq {
        return Ok(Err(Break { seq: last + 1, what: Flaw::Truncated { expected: seen.seq } }));
    }
    if head == Some(seen) || is_there(rows, seen)? {
        return Ok(Ok(()));
    }
    Ok(Err(Break { seq: seen.seq, what: Flaw::Rewritten }))
}

fn is_there(rows: &dyn Rows, head: &Head) -> Result<bool, StoreError> {
    let found = collect(rows, &Select::numbered(head.seq, head.seq))?;
    Ok(found.iter().any(|row| row.hash == head.hash))
}

/// A record that somebody else has put behind the end of this chain shows here: they do not have the key of the node.
fn check_seal(
    rows: &dyn Rows,
    head: Option<&Head>,
    signed: Option<&Signed>,
    keyring: &Keyring,
) -> Result<Option<Break>, StoreError> {
    let (Some(head), Some(signed), Some(seal)) = (head, signed, rows.seal()?) else { return Ok(None) };
    let is_ours = keyring.has_signed(&seal::end(&signed.chain, head), &seal);
    Ok((!is_ours).then_some(Break { seq: head.seq, what: Flaw::Unsealed }))
}

/// What the records say about the key and the checkpoints.
fn signature_state(rows: &dyn Rows) -> Result<Result<Signed, Break>, StoreError> {
    let newest = |kind: Kind| -> Result<Option<Row>, StoreError> {
        Ok(collect(rows, &Select::newest(1).kinds(&[kind]))?.pop())
    };
    let no_beginning = Break { seq: 1, what: Flaw::NoBeginning };
    let Some(start) = newest(Kind::ChainStarted)? else { return Ok(Err(no_beginning)) };
    let start = match Record::of_row(start) {
        Ok(record) => record,
        Err(broken) => return Ok(Err(broken)),
    };
    let (started, Event::ChainStarted { chain, key, .. }) = (start.timestamp(), start.event) else {
        return Ok(Err(no_beginning));
    };
    let mut signed = Signed { chain, key, upto: 0, time: started };
    for kind in [Kind::KeyRotated, Kind::Checkpoint] {
        let Some(row) = newest(kind)? else { continue };
        match Record::of_row(row).map(|record| record.event) {
            Ok(Event::KeyRotated { new, .. }) => signed.key = new,
            Ok(Event::Checkpoint(checkpoint)) => {
                signed.upto = checkpoint.last;
                signed.time = checkpoint.time;
            }
            Ok(_) => {}
            Err(broken) => return Ok(Err(broken)),
        }
    }
    Ok(Ok(signed))
}

/// The newest checkpoint that was kept elsewhere must be in the chain.
fn check_anchor(rows: &dyn Rows, head: &Head, anchor: &Anchor) -> Result<Option<Break>, StoreError> {
    let start = match collect(rows, &Select::numbered(1, 1))?.pop().map(Record::of_row) {
        Some(Ok(Record { event: Event::ChainStarted { chain, continues, .. }, .. })) => (chain, continues),
        _ => return Ok(Some(Break { seq: 1, what: Flaw::NoBeginning })),
    };
    let rolled_back = |seq, anchored| Ok(Some(Break { seq, what: Flaw::RolledBack { anchored } }));
    match anchor.newest(&start.0) {
        Err(error) => rolled_back(head.seq, format!("it cannot be read: {error}")),
        Ok(Newest::Nothing) => Ok(None),
        Ok(Newest::Other(_)) if start.1.is_some() => Ok(None),
        Ok(Newest::Other(chain)) => rolled_back(head.seq, format!("chain {chain}")),
        Ok(Newest::Ours(kept)) => {
            let covered = Head { seq: kept.checkpoint.last, hash: kept.checkpoint.head.clone() };
            if is_there(rows, &covered)? { Ok(None) } else { rolled_back(head.seq, covered.to_string()) }
        }
    }
}
