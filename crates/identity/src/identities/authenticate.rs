//! Letting somebody in: by a token, or by a name and a password.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ringfence_types::{CredentialKind, IdentityVerb, Principal, SessionId};
use zeroize::Zeroizing;

use super::operators::find;
use super::tokens::{Fresh, Minted};
use super::{Authority, Identities, Known, LONGEST_NAME, end, locked, lookup};
use crate::error::{Denied, IdentityError};
use crate::password;
use crate::record::{Credential, CredentialId, Operator, Owner};
use crate::store::{self, Rows, StoreError, Table};
use crate::throttle::Key;
use crate::token::{TokenText, of_browser, page_digest, page_half};

/// How long a browser stays in.
const WEB_SESSION: SignedDuration = SignedDuration::from_hours(12);
/// A token that comes again from the same place within this, and is answered the same, is not written down again.
const SAME_VISIT: Duration = Duration::from_secs(10 * 60);
/// Of one operator. Who has the password comes in at any time; whoever came in with it longest ago goes.
const MOST_WEB_SESSIONS: usize = 64;
const MOST_VISITS: usize = 4096;

/// Where somebody comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    Address(IpAddr),
    /// Of the peer of a Unix socket.
    User(u32),
    /// Of the door of a session: what goes wrong there locks out nobody else.
    Session(SessionId),
}

impl Source {
    /// One network of IPv6 is one source: whoever has it has all its addresses.
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

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Session(session) => write!(f, "{session}"),
        }
    }
}

/// Who came from where, what they were told, and when that was written down.
#[derive(Debug, Default)]
pub(crate) struct Seen(HashMap<(CredentialId, String, &'static str), Duration>);

/// What is told to somebody who is let in, beside the rules of those who are not.
const LET_IN: &str = "";

impl Seen {
    /// Whether it is a new visit.
    fn is_new(&mut self, (id, told): (&CredentialId, &'static str), source: &Source, now: Duration) -> bool {
        let fresh = |then: &Duration| now.saturating_sub(*then) < SAME_VISIT;
        let key = (id.clone(), source.network(), told);
        if self.0.get(&key).is_some_and(fresh) {
            return false;
        }
        if self.0.len() >= MOST_VISITS {
            self.0.retain(|_, then| fresh(then));
        }
        if self.0.len() >= MOST_VISITS {
            // Rather written down too often than remembered without bound.
            self.0.clear();
        }
        self.0.insert(key, now);
        true
    }
}

/// What a browser gets for a password.
#[derive(Debug)]
pub struct WebSession {
    /// For a cookie that no script can read.
    pub cookie: TokenText,
    /// For the page itself.
    pub csrf: Zeroizing<String>,
    pub known: Known,
}

impl Identities {
    /// Who shows `text`. Failures, and the first success of a visit, are written down.
    ///
    /// A good token is let in at any time: a secret of 256 bits is not guessed among wrong ones, and from every source come
    /// programs that have nothing to do with each other. Who shows wrong ones waits.
    pub fn authenticate(&self, text: &str, source: &Source) -> Result<Known, IdentityError> {
        match self.check(text) {
            Ok(known) => self.visited(known, source),
            Err(IdentityError::Denied(denied)) => {
                let keys = [Key::Source(source.network())];
                self.admit(&keys, source, "a token")?;
                self.mistaken(text, (&keys, source), &denied)
            }
            Err(error) => Err(error),
        }
    }

    fn visited(&self, known: Known, source: &Source) -> Result<Known, IdentityError> {
        let now = self.clock.since_boot();
        if locked(&self.seen)?.is_new((&known.id, LET_IN), source, now) {
            let purpose = format!("come in with {} token {} from {source}", known.kind, known.id);
            self.witness.authenticated(&known.principal, &purpose, None)?;
        }
        Ok(known)
    }

    fn mistaken(
        &self,
        text: &str,
        (keys, source): (&[Key], &Source),
        denied: &Denied,
    ) -> Result<Known, IdentityError> {
        self.failed(keys, denied)?;
        let Some(text) = TokenText::parse(text) else {
            return self.refused(denied, source, "come in with something");
        };
        if !is_guess(denied) && !self.is_new_refusal(text.id(), source, denied)? {
            return Err(denied.clone().into());
        }
        self.refused(denied, source, &format!("come in with token {}", text.id()))
    }

    /// Whoever shows the right secret of a token that is worth nothing does not wait, and would fill the ledger.
    fn is_new_refusal(
        &self,
        id: &CredentialId,
        source: &Source,
        denied: &Denied,
    ) -> Result<bool, StoreError> {
        Ok(locked(&self.seen)?.is_new((id, denied.rule()), source, self.clock.since_boot()))
    }

    /// Who has what was just made: nobody came in with it yet.
    pub fn holder_of(&self, minted: &Minted) -> Result<Known, IdentityError> {
        self.check(&minted.text.reveal())
    }

    /// Who shows a name and a password, as a session of a browser.
    pub fn login(&self, name: &str, password: &[u8], source: &Source) -> Result<WebSession, IdentityError> {
        let account = Key::Account(shortened(name));
        let guesses = Key::Guesses { source: source.network(), account: shortened(name) };
        let here = [guesses.clone(), Key::Passwords(source.network())];
        let keys = [here.as_slice(), std::slice::from_ref(&account)].concat();
        let asked = if self.is_familiar(name, source)? { here.as_slice() } else { &keys };
        self.admit(asked, source, "a password")?;
        let found: Option<Operator> = self.read(|rows| find(rows, name))?;
        // Without the store: it is slow on purpose, and the same for a name that nobody has.
        let right = password::is_right(password, found.as_ref().map(|operator| operator.password.as_str()));
        // A name that nobody has may be a password in the wrong field.
        let as_whom = found.as_ref().map_or("come in with a password".to_owned(), |operator| {
            format!("come in as operator {} with a password", operator.name)
        });
        let Some(operator) = found.filter(|_| right) else {
            self.failed(&keys, &Denied::Unknown)?;
            return self.refused(&Denied::Unknown, source, &as_whom);
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

    /// Whether somebody has come in with this name from there lately: guesses from elsewhere do not keep them out.
    pub fn is_familiar(&self, name: &str, source: &Source) -> Result<bool, IdentityError> {
        let now = self.clock.since_boot();
        Ok(locked(&self.familiar)?.knows(&source.network(), &shortened(name), now))
    }

    fn web_session(&self, operator: &Operator, page: &str) -> Result<Minted, IdentityError> {
        let principal = Principal::Account {
            name: operator.name.clone(),
            credential: "password".to_owned(),
            node: self.node.clone(),
        };
        let by = Authority::Owner(principal);
        self.change(|rows, now| {
            // Between the password and here it may have been changed, or its operator removed.
            if find(rows, &operator.name)?.as_ref() != Some(operator) {
                return Err(Denied::Unknown.into());
            }
            self.end_oldest(rows, &by, (&operator.name, now))?;
            let fresh = Fresh {
                kind: CredentialKind::Web,
                label: "browser".to_owned(),
                owner: Owner::Account { name: operator.name.clone() },
                rights: operator.rights.clone(),
            };
            let (text, credential) = fresh.credential(&by, now)?;
            let (expires, page) = (Some(end(now, WEB_SESSION)?), Some(page_digest(page)));
            let given_with = operator.given_with.clone();
            let credential = Credential { expires, page, given_with, ..credential };
            self.add(rows, (&by, IdentityVerb::Minted), credential, text)
        })
    }

    /// Makes place for another browser of an operator.
    fn end_oldest(
        &self,
        rows: &mut dyn Rows,
        by: &Authority<'_>,
        (name, now): (&str, Timestamp),
    ) -> Result<(), IdentityError> {
        let theirs = |one: &Credential| {
            let is_theirs = matches!(&one.owner, Owner::Account { name: owner } if owner == name);
            let is_good = one.revoked.is_none() && one.expires.is_none_or(|end| end > now);
            one.kind == CredentialKind::Web && is_theirs && is_good
        };
        let all: Vec<Credential> = store::all(rows, Table::Credential)?;
        let mut browsers: Vec<Credential> = all.into_iter().filter(theirs).collect();
        browsers.sort_by_key(|one| one.made);
        let over = (browsers.len() + 1).saturating_sub(MOST_WEB_SESSIONS);
        for oldest in browsers.into_iter().take(over) {
            self.revoke_row(rows, by, (oldest, now))?;
        }
        Ok(())
    }

    /// Nobody is looked at who has to wait: a right guess among wrong ones is worth nothing.
    fn admit(&self, keys: &[Key], source: &Source, what: &str) -> Result<(), IdentityError> {
        let wait = locked(&self.throttle)?.check(keys, self.clock.since_boot());
        let Some(wait) = wait else { return Ok(()) };
        let denied = Denied::Wait { seconds: wait.left.as_secs().max(1) };
        if wait.first {
            return self.refused(&denied, source, &format!("come in with {what}"));
        }
        Err(denied.into())
    }

    fn failed(&self, keys: &[Key], denied: &Denied) -> Result<(), StoreError> {
        if is_guess(denied) {
            locked(&self.throttle)?.failed(keys, self.clock.since_boot());
        }
        Ok(())
    }

    /// Written down, then said.
    fn refused<T>(&self, denied: &Denied, source: &Source, purpose: &str) -> Result<T, IdentityError> {
        let who = Principal::Stranger { source: source.to_string() };
        self.witness.authenticated(&who, purpose, Some(&denied.refusal()))?;
        Err(denied.clone().into())
    }

    fn check(&self, text: &str) -> Result<Known, IdentityError> {
        let text = TokenText::parse(text).ok_or(Denied::NoToken)?;
        let (known, now) = self.read(|rows| {
            let found = lookup::credential(rows, &text.id)?;
            let found = found.filter(|found| found.kind == text.kind && text.matches(&found.digest));
            let found = found.ok_or(Denied::Unknown)?;
            if !text.is_of_page(found.page.as_deref()) {
                return Err(Denied::Csrf.into());
            }
            let now = self.now(rows)?;
            let line = lookup::line(rows, found)?;
            lookup::judge(rows, &line, now)?;
            Ok((lookup::known(&line, &self.node).ok_or(Denied::Unknown)?, now))
        })?;
        self.remember(now)?;
        Ok(known)
    }

    /// That it has been this late, now and then: a clock that is set back while nothing runs gains no more than this. Nobody
    /// waits for it: whoever changes the store meanwhile writes it as well.
    fn remember(&self, now: Timestamp) -> Result<(), IdentityError> {
        const OFTEN: SignedDuration = SignedDuration::from_mins(5);
        let stored: Option<Timestamp> =
            self.read(|rows| Ok(store::get(rows, Table::Own, super::REACHED)?))?;
        if stored.is_some_and(|stored| now.duration_since(stored) < OFTEN) {
            return Ok(());
        }
        let mut failed = None;
        self.store.change_if_free(&mut |rows| {
            failed = store::put(rows, Table::Own, super::REACHED, &now).err();
            store::End::Keep
        })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// As much of a name as is remembered: nobody has a longer one.
fn shortened(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

/// Whoever shows the right secret of a token that is over does not guess.
fn is_guess(denied: &Denied) -> bool {
    matches!(denied, Denied::Unknown | Denied::NoToken)
}
