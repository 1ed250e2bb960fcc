//! Authentication: by a token, or by name and password.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{CredentialKind, IdentityVerb, Principal, SessionId};
use zeroize::Zeroizing;

use super::operators::{credentials_of, find};
use super::tokens::{MintedCredential, NewCredential};
use super::{Authority, Identities, KnownIdentity, LONGEST_NAME, end, locked, lookup};
use crate::error::{AuthError, IdentityError};
use crate::password;
use crate::record::{CredentialId, CredentialOwner, OperatorRecord};
use crate::store::{self, IdentityStoreError, RecordRows, RecordTable};
use crate::throttle::ThrottleKey;
use crate::token::{TokenText, of_browser, page_digest, page_half};

/// Lifetime of a web login.
const WEB_SESSION: SignedDuration = SignedDuration::from_hours(12);
/// Repeated results of the same token from the same source within this time are recorded once.
const SAME_VISIT: Duration = Duration::from_secs(10 * 60);
/// Web logins of one operator. A new login revokes the oldest one, so an operator with the password can always log in.
const MOST_WEB_SESSIONS: usize = 64;
const MOST_VISITS: usize = 4096;

/// The source of an authentication attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LoginSource {
    Address(IpAddr),
    /// The uid of a Unix socket's peer.
    User(u32),
    /// A session socket. Failures there do not throttle other sources.
    Session(SessionId),
}

impl LoginSource {
    /// The source for throttling. An IPv6 /64 is one source, because one client controls all its addresses.
    pub fn network(&self) -> String {
        match self {
            Self::Address(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
                Some(v4) => v4.to_string(),
                None => {
                    let [a, b, c, d, ..] = address.segments();
                    format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
                }
            },
            other => other.to_string(),
        }
    }
}

impl fmt::Display for LoginSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Session(session) => write!(f, "{session}"),
        }
    }
}

/// When each result of a credential from a source was last recorded.
#[derive(Debug, Default)]
pub(crate) struct RecentLogins(HashMap<(CredentialId, String, &'static str), Duration>);

/// The result of a success, beside the rules of refusals.
const LET_IN: &str = "";

impl RecentLogins {
    /// Whether this result was not recorded recently.
    fn is_new(&mut self, id: &CredentialId, told: &'static str, source: &LoginSource, now: Duration) -> bool {
        let fresh = |then: &Duration| now.saturating_sub(*then) < SAME_VISIT;
        let key = (id.clone(), source.network(), told);
        if self.0.get(&key).is_some_and(fresh) {
            return false;
        }
        if self.0.len() >= MOST_VISITS {
            self.0.retain(|_, then| fresh(then));
        }
        if self.0.len() >= MOST_VISITS {
            // Duplicate records are better than unbounded memory.
            self.0.clear();
        }
        self.0.insert(key, now);
        true
    }
}

/// The credentials of a web login.
#[derive(Debug)]
pub struct WebSession {
    /// For an `HttpOnly` cookie.
    pub cookie: TokenText,
    /// The CSRF token, for the page.
    pub csrf: Zeroizing<String>,
    pub known: KnownIdentity,
}

impl Identities {
    /// Authenticates a token. Failures, and the first success of a visit, are recorded.
    ///
    /// A valid token is never throttled: a secret of 256 bits cannot be guessed, and unrelated programs share a source.
    /// Only wrong tokens are throttled.
    pub fn authenticate(&self, text: &str, source: &LoginSource) -> Result<KnownIdentity, IdentityError> {
        match self.check(text) {
            Ok(known) => self.record_login(known, source),
            Err(IdentityError::Denied(denied)) => {
                let keys = [ThrottleKey::Source(source.network())];
                self.admit(&keys, source, "a token")?;
                self.record_failure(text, &keys, source, &denied)
            }
            Err(error) => Err(error),
        }
    }

    fn record_login(
        &self,
        known: KnownIdentity,
        source: &LoginSource,
    ) -> Result<KnownIdentity, IdentityError> {
        let now = self.clock.since_boot();
        if locked(&self.seen)?.is_new(&known.id, LET_IN, source, now) {
            let purpose = format!("come in with {} token {} from {source}", known.kind, known.id);
            self.witness.authenticated(&known.principal, &purpose, None)?;
        }
        Ok(known)
    }

    fn record_failure(
        &self,
        text: &str,
        keys: &[ThrottleKey],
        source: &LoginSource,
        denied: &AuthError,
    ) -> Result<KnownIdentity, IdentityError> {
        self.failed(keys, denied)?;
        let Some(text) = TokenText::parse(text) else {
            return self.refused(denied, source, "come in with something");
        };
        if !is_guess(denied) && !self.is_new_refusal(text.id(), source, denied)? {
            return Err(denied.clone().into());
        }
        self.refused(denied, source, &format!("come in with token {}", text.id()))
    }

    /// A holder of an invalid token is not throttled, so its refusals are deduplicated to protect the ledger.
    fn is_new_refusal(
        &self,
        id: &CredentialId,
        source: &LoginSource,
        denied: &AuthError,
    ) -> Result<bool, IdentityStoreError> {
        Ok(locked(&self.seen)?.is_new(id, denied.rule().word(), source, self.clock.since_boot()))
    }

    /// The identity of a new credential, without a login record.
    pub fn holder_of(&self, minted: &MintedCredential) -> Result<KnownIdentity, IdentityError> {
        self.check(&minted.text.reveal())
    }

    /// Authenticates an operator by name and password, and creates a web login.
    pub fn login(
        &self,
        name: &str,
        password: &[u8],
        source: &LoginSource,
    ) -> Result<WebSession, IdentityError> {
        let account = ThrottleKey::Account(shortened(name));
        let guesses = ThrottleKey::Guesses { source: source.network(), account: shortened(name) };
        let here = [guesses.clone(), ThrottleKey::Passwords(source.network())];
        let keys = [here.as_slice(), std::slice::from_ref(&account)].concat();
        let asked = if self.is_known_source(name, source)? { here.as_slice() } else { &keys };
        self.admit(asked, source, "a password")?;
        let found: Option<OperatorRecord> = self.read(|rows| find(rows, name))?;
        // Outside a transaction, because hashing is slow on purpose. An unknown name takes as long.
        let right = password::is_right(password, found.as_ref().map(|operator| operator.password.as_str()));
        // An unknown name is not recorded: it may be a password typed into the wrong field.
        let as_whom = found.as_ref().map_or("come in with a password".to_owned(), |operator| {
            format!("come in as operator {} with a password", operator.name)
        });
        let Some(operator) = found.filter(|_| right) else {
            self.failed(&keys, &AuthError::Unknown)?;
            return self.refused(&AuthError::Unknown, source, &as_whom);
        };
        locked(&self.throttle)?.succeeded(&[account, guesses]);
        locked(&self.familiar)?.came(&source.network(), &operator.name, self.clock.since_boot());
        let page = page_half()?;
        let minted = self.web_session(&operator, &page)?;
        let known = self.check(&of_browser(&minted.text.reveal(), Some(&page)))?;
        let purpose = format!("come in with a password from {source}");
        self.witness.authenticated(&known.principal, &purpose, None)?;
        Ok(WebSession { csrf: page, cookie: minted.text, known })
    }

    /// Whether the account has logged in from this source recently. Such sources are exempt from the account-wide
    /// throttle.
    pub fn is_known_source(&self, name: &str, source: &LoginSource) -> Result<bool, IdentityError> {
        let now = self.clock.since_boot();
        Ok(locked(&self.familiar)?.knows(&source.network(), &shortened(name), now))
    }

    fn web_session(&self, operator: &OperatorRecord, page: &str) -> Result<MintedCredential, IdentityError> {
        let principal = Principal::Account {
            name: operator.name.clone(),
            credential: "password".to_owned(),
            node: self.node.clone(),
        };
        let by = Authority::Owner(principal);
        self.change(|rows, now| {
            // The password may have changed, or the operator may be gone, since the check.
            if find(rows, &operator.name)?.as_ref() != Some(operator) {
                return Err(AuthError::Unknown.into());
            }
            self.end_oldest(rows, &by, &operator.name, now)?;
            let fresh = NewCredential {
                kind: CredentialKind::Web,
                label: "browser".to_owned(),
                owner: CredentialOwner::Account { name: operator.name.clone() },
                rights: operator.rights.clone(),
            };
            let mut draft = fresh.draft(&by, now)?;
            draft.record.expires_at = Some(end(now, WEB_SESSION)?);
            draft.record.page = Some(page_digest(page));
            draft.record.given_with = operator.given_with.clone();
            self.add(rows, &by, IdentityVerb::Minted, draft)
        })
    }

    /// Revokes the oldest web logins of an operator beyond the limit.
    fn end_oldest(
        &self,
        rows: &mut dyn RecordRows,
        by: &Authority<'_>,
        name: &str,
        now: Timestamp,
    ) -> Result<(), IdentityError> {
        let mut browsers = credentials_of(rows, name)?;
        browsers.retain(|one| one.kind == CredentialKind::Web && one.expires_at.is_none_or(|end| end > now));
        browsers.sort_by_key(|one| one.created_at);
        let over = (browsers.len() + 1).saturating_sub(MOST_WEB_SESSIONS);
        self.revoke_all(rows, by, now, browsers.into_iter().take(over))
    }

    /// A throttled source is refused without checking its credential, so guessing during the delay gains nothing.
    fn admit(&self, keys: &[ThrottleKey], source: &LoginSource, what: &str) -> Result<(), IdentityError> {
        let wait = locked(&self.throttle)?.check(keys, self.clock.since_boot());
        let Some(wait) = wait else { return Ok(()) };
        let denied = AuthError::Wait { seconds: wait.left.as_secs().max(1) };
        if wait.first {
            return self.refused(&denied, source, &format!("come in with {what}"));
        }
        Err(denied.into())
    }

    fn failed(&self, keys: &[ThrottleKey], denied: &AuthError) -> Result<(), IdentityStoreError> {
        if is_guess(denied) {
            locked(&self.throttle)?.failed(keys, self.clock.since_boot());
        }
        Ok(())
    }

    /// Records the refusal, then returns it.
    fn refused<T>(
        &self,
        denied: &AuthError,
        source: &LoginSource,
        purpose: &str,
    ) -> Result<T, IdentityError> {
        let who = Principal::Stranger { source: source.to_string() };
        self.witness.authenticated(&who, purpose, Some(&denied.refusal()))?;
        Err(denied.clone().into())
    }

    fn check(&self, text: &str) -> Result<KnownIdentity, IdentityError> {
        let text = TokenText::parse(text).ok_or(AuthError::NoToken)?;
        let (known, now) = self.read(|rows| {
            let found = lookup::credential(rows, &text.id)?;
            let found = found.filter(|found| found.kind == text.kind && text.matches(&found.digest));
            let found = found.ok_or(AuthError::Unknown)?;
            if !text.is_of_page(found.page.as_deref()) {
                return Err(AuthError::Csrf.into());
            }
            let now = self.now(rows)?;
            let line = lookup::line(rows, found)?;
            lookup::judge(rows, &line, now)?;
            Ok((lookup::known(&line, &self.node).ok_or(AuthError::Unknown)?, now))
        })?;
        self.remember(now)?;
        Ok(known)
    }

    /// Stores the current time now and then. A clock set back while the daemon is stopped gains at most this interval.
    /// Skipped if another change is in progress, because that change stores the time as well.
    fn remember(&self, now: Timestamp) -> Result<(), IdentityError> {
        const OFTEN: SignedDuration = SignedDuration::from_mins(5);
        let stored: Option<Timestamp> =
            self.read(|rows| Ok(store::get(rows, RecordTable::Own, super::REACHED)?))?;
        if stored.is_some_and(|stored| now.duration_since(stored) < OFTEN) {
            return Ok(());
        }
        let mut failed = None;
        self.store.change_if_free(&mut |rows| {
            failed = store::put(rows, RecordTable::Own, super::REACHED, &now).err();
            store::TransactionEnd::Keep
        })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Cut to the longest possible name, which bounds the memory of the throttle.
fn shortened(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

/// The right secret of an expired or revoked token is no guess.
fn is_guess(denied: &AuthError) -> bool {
    matches!(denied, AuthError::Unknown | AuthError::NoToken)
}
