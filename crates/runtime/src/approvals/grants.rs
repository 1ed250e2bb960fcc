//! Grants: which are active, what they allow, how often they were used, and how they end.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use ringfence_authz::grant_file;
use ringfence_ledger::{
    AppendError, Event, GrantRecord, GrantSubject, Kind, Ledger, LedgerOpenError, LedgerReadError,
    LedgerReader, Timestamp,
};
use ringfence_policy::{PolicyError, PolicyFile, PolicyFileRole};
use ringfence_types::{
    ByteString, GrantId, PolicyLayer, Principal, Refusal, RefusalCode, RuleId, WorkspaceId,
};

use super::inbox::time_of;
use super::is_operator;
use crate::leaks::LeakScanner;
use crate::secrets::{SecretStore, SecretStoreError};

/// Older grants are not searched.
const NEWEST: u32 = 5000;
/// Number of past approvals a rule is compared with.
const LAST_ASKS: usize = 20;

/// A grant in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveGrant {
    pub made: GrantRecord,
    pub since: Timestamp,
    pub used: u32,
}

impl ActiveGrant {
    /// Remaining uses; `None`: unlimited.
    pub fn left(&self) -> Option<u32> {
        self.made.max_uses.map(|uses| uses.saturating_sub(self.used))
    }
}

/// Why a grant is no longer in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrantEnd {
    Expired,
    UsedUp,
    Revoked,
    /// No grant has this id.
    Unknown,
}

/// Which "always here" grants count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantScope<'a> {
    In(&'a WorkspaceId),
    Everywhere,
}

/// Every active grant, oldest first. Session grants are included only for [`GrantScope::Everywhere`].
pub fn live_grants(
    reader: &LedgerReader,
    here: GrantScope<'_>,
    now: Timestamp,
) -> Result<Vec<ActiveGrant>, LedgerReadError> {
    let mut live = Vec::new();
    for record in reader.of_kinds(&[Kind::GrantCreated], NEWEST)? {
        let Event::GrantCreated(made) = &record.event else { continue };
        let wanted = match here {
            GrantScope::Everywhere => true,
            GrantScope::In(workspace) => {
                made.workspace == *workspace && matches!(made.covers, GrantSubject::Here { .. })
            }
        };
        if !wanted || made.expires_at.is_some_and(|expires| expires <= now) {
            continue;
        }
        if let Ok(grant) = standing(reader, made.grant.as_str(), now)? {
            live.push(grant);
        }
    }
    Ok(live)
}

/// The active grant from an orphaned approval with exactly this binding.
pub(crate) fn next(
    reader: &LedgerReader,
    workspace: &WorkspaceId,
    wanted: &str,
) -> Result<Option<GrantId>, LedgerReadError> {
    let now = Timestamp::now();
    for record in reader.of_kinds(&[Kind::GrantCreated], NEWEST)?.iter().rev() {
        let Event::GrantCreated(made) = &record.event else { continue };
        let is_it = matches!(&made.covers, GrantSubject::Next { binding, .. } if binding == wanted);
        if is_it && made.workspace == *workspace && standing(reader, made.grant.as_str(), now)?.is_ok() {
            return Ok(Some(made.grant.clone()));
        }
    }
    Ok(None)
}

/// The grant with this id, if it is active.
fn standing(
    reader: &LedgerReader,
    id: &str,
    now: Timestamp,
) -> Result<Result<ActiveGrant, GrantEnd>, LedgerReadError> {
    let records = reader.about(id)?;
    let made = records.iter().find_map(|record| match &record.event {
        Event::GrantCreated(made) => Some((made, record)),
        _ => None,
    });
    let Some((made, record)) = made else { return Ok(Err(GrantEnd::Unknown)) };
    // What a revocation or a use says may be pruned. That it was there still counts.
    let kinds = reader.kinds_ever_about(id)?;
    let revoked = kinds.contains(&Kind::GrantRevoked);
    let used = kinds.iter().filter(|kind| **kind == Kind::CallIntended).count();
    let used = u32::try_from(used).unwrap_or(u32::MAX);
    let expired = match made.expires_at {
        Some(expires) => expires <= now || reader.has_reached(expires, record.seq)?,
        None => false,
    };
    Ok(match made.as_ref() {
        _ if revoked => Err(GrantEnd::Revoked),
        _ if expired => Err(GrantEnd::Expired),
        made if made.max_uses.is_some_and(|uses| used >= uses) => Err(GrantEnd::UsedUp),
        made => Ok(ActiveGrant { made: made.clone(), since: time_of(record), used }),
    })
}

/// The rules of the grants, each as an operator policy file.
pub fn grant_files(grants: &[ActiveGrant]) -> Result<Vec<PolicyFile>, PolicyError> {
    let rules = grants.iter().filter_map(|grant| match &grant.made.covers {
        GrantSubject::Here { rules, .. } => Some((grant.made.grant.as_str(), rules)),
        GrantSubject::Session { .. } | GrantSubject::Next { .. } => None,
    });
    rules
        .map(|(id, rules)| PolicyFile::parse(PolicyFileRole::Operator, &grant_file(id), rules.as_bytes()))
        .collect()
}

/// How many of the last approvals in a workspace these rules would have answered, and how many there were.
pub fn matched(
    reader: &LedgerReader,
    workspace: &WorkspaceId,
    rules: &str,
) -> Result<(usize, usize), LedgerReadError> {
    let asks = reader.of_kinds(&[Kind::ApprovalRequested], NEWEST)?;
    let here = asks.iter().rev().filter_map(|record| match &record.event {
        Event::ApprovalRequested(request) if request.workspace == *workspace => Some(request),
        _ => None,
    });
    let last: Vec<_> = here.take(LAST_ASKS).collect();
    // If a rule covers an approval, that approval offered the same rule.
    let covered =
        last.iter().filter(|request| request.grant_offers.iter().any(|offer| offer.stored == rules));
    Ok((covered.count(), last.len()))
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    #[error("no grant with id `{}`", ByteString::from(id.as_str()).display())]
    Unknown { id: String },
    #[error("`{}` could be {}", ByteString::from(id.as_str()).display(), candidates.join(", "))]
    Ambiguous { id: String, candidates: Vec<String> },
    #[error("only an operator takes a grant back")]
    NotAnOperator,
    #[error("the ledger cannot be read")]
    Open(#[from] LedgerOpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] LedgerReadError),
    #[error("the ledger cannot be written")]
    Append(#[from] AppendError),
    /// Without the stored secrets Ringfence cannot redact them from the record.
    #[error("the secrets of the operator cannot be read, so nothing is written")]
    Secrets(#[from] SecretStoreError),
}

/// Whether the revoking principal may see a grant.
pub type GrantVisibility<'a> = &'a dyn Fn(&GrantRecord) -> bool;

/// Which grants are revoked, by whom and why.
#[derive(Clone, Copy, Debug)]
pub struct GrantRevocation<'a> {
    /// The beginning of the id of one grant; `None` for all that are active.
    pub id: Option<&'a str>,
    pub by: &'a Principal,
    pub reason: Option<&'a str>,
}

/// Revokes grants, and returns them. Those that are not `known` to the revoking principal are treated as absent.
pub fn revoke(
    ledger: &Ledger,
    state_dir: &Path,
    known: GrantVisibility<'_>,
    revocation: &GrantRevocation<'_>,
) -> Result<Vec<GrantId>, GrantError> {
    let GrantRevocation { id, by, reason } = *revocation;
    if !is_operator(by) {
        return Err(GrantError::NotAnOperator);
    }
    let live = live_grants(&ledger.reader()?, GrantScope::Everywhere, Timestamp::now())?;
    let ids = live.into_iter().filter(|grant| known(&grant.made)).map(|grant| grant.made.grant);
    let chosen: Vec<GrantId> = match id {
        Some(id) => vec![one_of(id, ids.filter(|known| is_meant(known.as_str(), id)).collect())?],
        None => ids.collect(),
    };
    if chosen.is_empty() {
        return Ok(chosen);
    }
    let leaks = LeakScanner::of_state(&SecretStore::new(state_dir).read()?, state_dir);
    let purpose = "revoke grants".to_owned();
    let mut events = vec![Event::AuthenticationAttempted { principal: by.clone(), purpose, refusal: None }];
    events.extend(chosen.iter().map(|grant| Event::GrantRevoked {
        grant: grant.clone(),
        actor: by.clone(),
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

/// Matches a prefix of the id, with or without its type letters.
pub(super) fn is_meant(known: &str, asked: &str) -> bool {
    let bare = known.split_once('_').map_or(known, |(_, bare)| bare);
    !asked.is_empty() && (known.starts_with(asked) || bare.starts_with(asked))
}

/// Held from the check of a grant until its use is recorded, so that two processes cannot both take its last
/// use.
#[derive(Debug)]
pub(crate) struct GrantLease {
    pub(crate) grant: GrantId,
    _lock: File,
}

/// Checks that these grants can be used now, and locks them against concurrent use. The record of the use
/// names one of them: the one with a use limit.
pub(crate) fn lease(
    ledger: &Ledger,
    state_dir: &Path,
    ids: &[&str],
) -> Result<Result<GrantLease, Refusal>, GrantLeaseError> {
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
    live.sort_by_key(|made| made.max_uses.is_none());
    Ok(match live.as_slice() {
        [one, other, ..] if one.max_uses.is_some() && other.max_uses.is_some() => Err(several()),
        [first, ..] => Ok(GrantLease { grant: first.grant.clone(), _lock: lock }),
        [] => Err(GrantEnd::Unknown.refusal("")),
    })
}

/// A use record names one grant, so the use of a second limited grant would go uncounted.
fn several() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Operator,
        rule: RuleId::GrantAmbiguous.into(),
        message: "its parts are allowed by different stored answers whose uses are counted".to_owned(),
        hint: Some("run the parts one by one".to_owned()),
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantLeaseError {
    #[error("the lock of stored answers cannot be taken")]
    Lock(#[from] io::Error),
    #[error("the ledger cannot be read")]
    Open(#[from] LedgerOpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] LedgerReadError),
}

impl GrantEnd {
    fn refusal(self, id: &str) -> Refusal {
        let how = match self {
            Self::Expired => "has expired",
            Self::UsedUp => "was used as often as it could be",
            Self::Revoked => "was revoked",
            Self::Unknown => "is not in the ledger",
        };
        Refusal {
            code: RefusalCode::Approval,
            layer: PolicyLayer::Operator,
            rule: RuleId::GrantExhausted.into(),
            message: format!("the grant {id} {how} just before it was used"),
            hint: Some("ask again".to_owned()),
        }
    }
}
