//! Stored answers: which of them hold, what they allow, how often they were used, and how they end.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use ringfence_authz::grant_file;
use ringfence_authz::policy::{PolicyError, PolicyFile, Role};
use ringfence_ledger::{
    AppendError, Covers, Event, GrantMade, Kind, Ledger, LedgerReader, OpenError, ReadError, Timestamp,
};
use ringfence_types::{Bytes, GrantId, Layer, Principal, Refusal, RefusalCode, WorkspaceId};

use super::inbox::time_of;
use super::is_operator;
use crate::leaks::LeakScanner;
use crate::secrets::{SecretStore, StoreError};

/// Older answers than these are not looked for.
const NEWEST: u32 = 5000;
/// How many of the last questions a rule is compared with.
const LAST_ASKS: usize = 20;

/// A stored answer that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveGrant {
    pub made: GrantMade,
    pub since: Timestamp,
    pub used: u32,
}

impl LiveGrant {
    /// How often it can be used yet; `None`: without a limit.
    pub fn left(&self) -> Option<u32> {
        self.made.uses.map(|uses| uses.saturating_sub(self.used))
    }
}

/// Why a stored answer does not hold any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spent {
    Expired,
    UsedUp,
    Revoked,
    /// There is no such answer.
    Unknown,
}

/// Which "always here" counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here<'a> {
    In(&'a WorkspaceId),
    Everywhere,
}

/// Every stored answer that holds now, oldest first. Those of sessions are among them only for [`Here::Everywhere`].
pub fn live_grants(
    reader: &LedgerReader,
    here: Here<'_>,
    now: Timestamp,
) -> Result<Vec<LiveGrant>, ReadError> {
    let mut live = Vec::new();
    for record in reader.of_kinds(&[Kind::GrantMade], NEWEST)? {
        let Event::GrantMade(made) = &record.event else { continue };
        let wanted = match here {
            Here::Everywhere => true,
            Here::In(workspace) => made.workspace == *workspace && matches!(made.covers, Covers::Here { .. }),
        };
        if !wanted || made.expires.is_some_and(|expires| expires <= now) {
            continue;
        }
        if let Ok(grant) = standing(reader, made.grant.as_str(), now)? {
            live.push(grant);
        }
    }
    Ok(live)
}

/// The answer to a question whose asker was gone that is for exactly this, if it holds.
pub(crate) fn next(
    reader: &LedgerReader,
    workspace: &WorkspaceId,
    wanted: &str,
) -> Result<Option<GrantId>, ReadError> {
    let now = Timestamp::now();
    for record in reader.of_kinds(&[Kind::GrantMade], NEWEST)?.iter().rev() {
        let Event::GrantMade(made) = &record.event else { continue };
        let is_it = matches!(&made.covers, Covers::Next { binding, .. } if binding == wanted);
        if is_it && made.workspace == *workspace && standing(reader, made.grant.as_str(), now)?.is_ok() {
            return Ok(Some(made.grant.clone()));
        }
    }
    Ok(None)
}

/// The stored answer with this id, if it holds.
fn standing(reader: &LedgerReader, id: &str, now: Timestamp) -> Result<Result<LiveGrant, Spent>, ReadError> {
    let records = reader.about(id)?;
    let made = records.iter().find_map(|record| match &record.event {
        Event::GrantMade(made) => Some((made, record)),
        _ => None,
    });
    let Some((made, record)) = made else { return Ok(Err(Spent::Unknown)) };
    let revoked = records.iter().any(|record| matches!(record.event, Event::GrantRevoked { .. }));
    let used = records.iter().filter(|record| matches!(record.event, Event::Intent { .. })).count();
    let used = u32::try_from(used).unwrap_or(u32::MAX);
    let expired = match made.expires {
        Some(expires) => expires <= now || reader.has_reached(expires, record.seq)?,
        None => false,
    };
    Ok(match made.as_ref() {
        _ if revoked => Err(Spent::Revoked),
        _ if expired => Err(Spent::Expired),
        made if made.uses.is_some_and(|uses| used >= uses) => Err(Spent::UsedUp),
        made => Ok(LiveGrant { made: made.clone(), since: time_of(record), used }),
    })
}

/// The rules of stored answers, each as a policy file of the operator.
pub fn grant_files(grants: &[LiveGrant]) -> Result<Vec<PolicyFile>, PolicyError> {
    let rules = grants.iter().filter_map(|grant| match &grant.made.covers {
        Covers::Here { rules, .. } => Some((grant.made.grant.as_str(), rules)),
        Covers::Session { .. } | Covers::Next { .. } => None,
    });
    rules.map(|(id, rules)| PolicyFile::parse(Role::Operator, &grant_file(id), rules.as_bytes())).collect()
}

/// Of how many of the last questions in a workspace these rules would have been the answer, and how many there were.
pub fn matched(
    reader: &LedgerReader,
    workspace: &WorkspaceId,
    rules: &str,
) -> Result<(usize, usize), ReadError> {
    let asks = reader.of_kinds(&[Kind::ApprovalRequested], NEWEST)?;
    let here = asks.iter().rev().filter_map(|record| match &record.event {
        Event::ApprovalRequested(request) if request.workspace == *workspace => Some(request),
        _ => None,
    });
    let last: Vec<_> = here.take(LAST_ASKS).collect();
    // A rule that covers a question is among what the question itself could have stored.
    let covered = last.iter().filter(|request| request.offers.iter().any(|offer| offer.stored == rules));
    Ok((covered.count(), last.len()))
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    #[error("nothing that was granted is called `{}`", Bytes::from(id.as_str()).display())]
    Unknown { id: String },
    #[error("`{}` could be {}", Bytes::from(id.as_str()).display(), candidates.join(", "))]
    Ambiguous { id: String, candidates: Vec<String> },
    #[error("only an operator takes a grant back")]
    NotAnOperator,
    #[error("the ledger cannot be read")]
    Open(#[from] OpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] ReadError),
    #[error("the ledger cannot be written")]
    Append(#[from] AppendError),
    /// What is not known cannot be kept out of the ledger.
    #[error("the secrets of the operator cannot be read, so nothing is written")]
    Secrets(#[from] StoreError),
}

/// Whether somebody may know of a stored answer.
pub type Sees<'a> = &'a dyn Fn(&GrantMade) -> bool;

/// Takes back the stored answer whose id begins with `id`; all that hold where it is `None`. What was taken back. Of those that
/// are not `known` to whoever takes back there are none.
pub fn revoke(
    (ledger, state_dir): (&Ledger, &Path),
    (id, known): (Option<&str>, Sees<'_>),
    by: &Principal,
    reason: Option<&str>,
) -> Result<Vec<GrantId>, GrantError> {
    if !is_operator(by) {
        return Err(GrantError::NotAnOperator);
    }
    let live = live_grants(&ledger.reader()?, Here::Everywhere, Timestamp::now())?;
    let ids = live.into_iter().filter(|grant| known(&grant.made)).map(|grant| grant.made.grant);
    let chosen: Vec<GrantId> = match id {
        Some(id) => vec![one_of(id, ids.filter(|known| is_meant(known.as_str(), id)).collect())?],
        None => ids.collect(),
    };
    if chosen.is_empty() {
        return Ok(chosen);
    }
    let leaks = LeakScanner::of_state(&SecretStore::new(state_dir).read()?, state_dir);
    let purpose = "take back stored answers".to_owned();
    let mut events = vec![Event::Authenticated { principal: by.clone(), purpose, refusal: None }];
    events.extend(chosen.iter().map(|grant| Event::GrantRevoked {
        grant: grant.clone(),
        by: by.clone(),
        reason: reason.map(|reason| leaks.text(reason)),
    }));
    let _receipts = ledger.append_all(&events)?;
    Ok(chosen)
}

fn one_of(id: &str, mut found: Vec<GrantId>) -> Result<GrantId, GrantError> {
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(GrantError::Unknown { id: id.to_owned() }),
        (Some(last), false) => {
            found.push(last);
            let candidates = found.iter().map(ToString::to_string).collect();
            Err(GrantError::Ambiguous { id: id.to_owned(), candidates })
        }
    }
}

/// By its beginning, with or without the letters in front.
pub(super) fn is_meant(known: &str, asked: &str) -> bool {
    let bare = known.split_once('_').map_or(known, |(_, bare)| bare);
    !asked.is_empty() && (known.starts_with(asked) || bare.starts_with(asked))
}

/// Held from the look at a stored answer until its use is written down: two who use its last time at once are one too
/// many.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) grant: GrantId,
    _lock: File,
}

/// Whether the stored answers with these ids can be used now, and nobody else uses one meanwhile. The record of a use names
/// one of them: the one whose uses are counted.
pub(crate) fn lease(
    ledger: &Ledger,
    state_dir: &Path,
    ids: &[&str],
) -> Result<Result<Lease, Refusal>, LeaseError> {
    let directory = state_dir.join("approvals");
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(directory.join("grants"))?;
    lock.lock()?;
    let reader = ledger.reader()?;
    let mut live = Vec::new();
    for id in ids {
        match standing(&reader, id, Timestamp::now())? {
            Ok(grant) => live.push(grant.made),
            Err(spent) => return Ok(Err(spent.refusal(id))),
        }
    }
    live.sort_by_key(|made| made.uses.is_none());
    Ok(match live.as_slice() {
        [one, other, ..] if one.uses.is_some() && other.uses.is_some() => Err(several()),
        [first, ..] => Ok(Lease { grant: first.grant.clone(), _lock: lock }),
        [] => Err(Spent::Unknown.refusal("")),
    })
}

/// Of two whose uses are counted one would not be.
fn several() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Operator,
        rule: "approval.several-grants".to_owned(),
        message: "its parts are allowed by different stored answers whose uses are counted".to_owned(),
        hint: Some("run the parts one by one".to_owned()),
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    #[error("the lock of stored answers cannot be taken")]
    Lock(#[from] io::Error),
    #[error("the ledger cannot be read")]
    Open(#[from] OpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] ReadError),
}

impl Spent {
    fn refusal(self, id: &str) -> Refusal {
        let how = match self {
            Self::Expired => "has expired",
            Self::UsedUp => "was used as often as it could be",
            Self::Revoked => "was taken back",
            Self::Unknown => "is not in the ledger",
        };
        Refusal {
            code: RefusalCode::Approval,
            layer: Layer::Operator,
            rule: "approval.grant-spent".to_owned(),
            message: format!("the stored answer {id} {how} while it was about to be used"),
            hint: Some("ask again".to_owned()),
        }
    }
}
