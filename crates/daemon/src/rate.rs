//! How often somebody may ask: on one connection, and on however many.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ringfence_api::{ApiError, Method};
use ringfence_types::SessionId;
use sha2::{Digest as _, Sha256};

use crate::authenticate::Entrance;
use crate::http::too_many;
use crate::peer::Peer;
use crate::sources::source_of;

/// So many at once, and so many in a second.
#[derive(Clone, Copy, Debug)]
struct Limit {
    burst: u32,
    per_second: u32,
}

/// Of one connection: less than its client has, so that one that sends nonsense leaves something for the others.
const LOCAL_LINE: Limit = Limit { burst: 1000, per_second: 1000 };
const REMOTE_LINE: Limit = Limit { burst: 1000, per_second: 400 };
/// Of one client on this machine, and of one over TCP.
const LOCAL: Limit = Limit { burst: 4000, per_second: 2000 };
const REMOTE: Limit = Limit { burst: 2000, per_second: 500 };
/// Beside that, for what ends or takes back something: whoever has asked too much can still do that.
const RESERVE: Limit = Limit { burst: 50, per_second: 20 };
/// And for what needs no token and is looked for in the store all the same: a device renews its own once in an hour.
const UNKNOWN: Limit = Limit { burst: 64, per_second: 8 };
/// What is remembered. There are fewer connections from as many places.
const MOST: usize = 4096;

/// Those who have one share together: a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// A process of the owner. Another one that asks too much takes nothing from it. A number that is used again is a share that is
    /// used again, and nothing worse.
    Owner(i32),
    /// Somebody else at the socket of the operators. What is in a fence and has the number of the owner takes nothing from the owner.
    User(u32),
    Session(SessionId),
    Source(IpAddr),
    /// Over TCP, with a token that was good. Whoever comes from the same source takes nothing from it.
    Credential([u8; 32]),
}

impl Asker {
    pub(crate) fn of(entrance: &Entrance, peer: Option<Peer>) -> Self {
        match (entrance, peer) {
            (Entrance::Door(session), _) => Self::Session(session.clone()),
            (Entrance::Network(address), _) => Self::Source(source_of(*address)),
            (Entrance::Management, Some(peer)) if peer.is_owner() => Self::Owner(peer.pid),
            (Entrance::Management, peer) => Self::User(peer.map_or(u32::MAX, |peer| peer.uid)),
        }
    }

    fn credential(token: &str) -> Self {
        Self::Credential(Sha256::digest(token).into())
    }

    fn share(&self) -> Share {
        let limit = match self {
            Self::Source(_) | Self::Credential(_) => REMOTE,
            Self::Owner(_) | Self::User(_) | Self::Session(_) => LOCAL,
        };
        Share { any: Bucket::of(limit), reserve: Bucket::of(RESERVE), unknown: Bucket::of(UNKNOWN) }
    }
}

/// What ends, answers or takes back something.
pub(crate) fn is_urgent(method: Method) -> bool {
    matches!(
        method,
        Method::SessionStop
            | Method::CallCancel
            | Method::CallSignal
            | Method::ApprovalAnswer
            | Method::GrantRevoke
            | Method::GrantRevokeAll
            | Method::TokenRevoke
            | Method::OperatorRemove
            | Method::PairingRefuse
            | Method::Logout
            | Method::Shutdown
    )
}

/// What one client may ask, on all its connections.
#[derive(Debug)]
pub(crate) struct Share {
    any: Bucket,
    reserve: Bucket,
    unknown: Bucket,
}

impl Share {
    /// One request more that needs no token.
    pub(crate) fn ask_unknown(&self) -> Result<(), ApiError> {
        if self.unknown.take() { Ok(()) } else { Err(too_many()) }
    }

    fn is_full_at(&self, now: Instant) -> bool {
        [&self.any, &self.reserve, &self.unknown].iter().all(|bucket| bucket.is_full_at(now))
    }
}

/// The shares of everybody who asks.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<HashMap<Asker, Arc<Share>>>);

impl Rates {
    /// The one that somebody has already, also if they have gone and come again.
    pub(crate) fn of(&self, asker: Asker) -> Arc<Share> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(&asker) {
            make_room(&mut known);
        }
        let share = asker.share();
        Arc::clone(known.entry(asker).or_insert_with(|| Arc::new(share)))
    }

    /// From now on whoever shows this token has a share of their own. Only for one that was good: were it for any, nobody who makes
    /// them up would ever have asked too much.
    pub(crate) fn is_good(&self, entrance: &Entrance, token: Option<&str>) {
        if let (Entrance::Network(_), Some(token)) = (entrance, token) {
            let _share = self.of(Asker::credential(token));
        }
    }

    fn of_good(&self, token: &str) -> Option<Arc<Share>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&Asker::credential(token)).cloned()
    }
}

/// A full share is as good as a new one. Where that is not enough, those whose holders are gone are forgotten; as many as are left have
/// a connection each.
fn make_room(known: &mut HashMap<Asker, Arc<Share>>) {
    let now = Instant::now();
    known.retain(|_, share| Arc::strong_count(share) > 1 || !share.is_full_at(now));
    if known.len() >= MOST {
        known.retain(|_, share| Arc::strong_count(share) > 1);
    }
}

/// How often may be asked on one connection.
#[derive(Debug)]
pub(crate) struct Rate {
    line: Bucket,
    /// Of whoever came, with or without a token.
    share: Arc<Share>,
    /// Over TCP, where a good token has a share of its own.
    by_token: bool,
}

impl Rate {
    pub(crate) fn new(rates: &Rates, entrance: &Entrance, peer: Option<Peer>) -> Self {
        let by_token = matches!(entrance, Entrance::Network(_));
        let line = Bucket::of(if by_token { REMOTE_LINE } else { LOCAL_LINE });
        Self { line, share: rates.of(Asker::of(entrance, peer)), by_token }
    }

    /// One request more. What is `urgent` is asked for only where there is nothing left for anything else.
    pub(crate) fn ask(
        &self,
        rates: &Rates,
        token: Option<&str>,
        urgent: impl FnOnce() -> bool,
    ) -> Result<(), ApiError> {
        let own = token.filter(|_| self.by_token).and_then(|token| rates.of_good(token));
        let share = own.as_ref().unwrap_or(&self.share);
        if self.line.take() && share.any.take() || urgent() && share.reserve.take() {
            return Ok(());
        }
        Err(too_many())
    }
}

/// A bucket that fills with time. Whoever finds it empty has to wait.
#[derive(Debug)]
struct Bucket {
    capacity: f64,
    per_second: f64,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    fn of(limit: Limit) -> Self {
        let capacity = f64::from(limit.burst);
        let per_second = f64::from(limit.per_second);
        Self { capacity, per_second, state: Mutex::new((capacity, Instant::now())) }
    }

    fn take(&self) -> bool {
        self.take_at(Instant::now())
    }

    fn is_full_at(&self, now: Instant) -> bool {
        let (left, before) = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        left + now.saturating_duration_since(before).as_secs_f64() * self.per_second >= self.capacity
    }

    fn take_at(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, before) = *state;
        let grown = now.saturating_duration_since(before).as_secs_f64() * self.per_second;
        let left = (left + grown).min(self.capacity);
        let enough = left >= 1.0;
        *state = (if enough { left - 1.0 } else { left }, now);
        enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_empty_bucket_fills_with_time_and_not_beyond() {
        let bucket = Bucket::of(Limit { burst: 2, per_second: 10 });
        let start = Instant::now();
        assert!(bucket.take_at(start) && bucket.take_at(start) && !bucket.take_at(start));
        let later = start + Duration::from_millis(150);
        assert!(bucket.take_at(later) && !bucket.take_at(later));
        let much_later = start + Duration::from_secs(60);
        assert!(bucket.take_at(much_later) && bucket.take_at(much_later) && !bucket.take_at(much_later));
    }

    fn source(number: u32) -> Asker {
        Asker::Source(IpAddr::from(number.to_be_bytes()))
    }

    fn drain(bucket: &Bucket) {
        // Nothing comes into it before then.
        *bucket.state.lock().unwrap() = (0.0, Instant::now() + Duration::from_secs(3600));
    }

    fn empty(share: &Share) {
        drain(&share.any);
    }

    fn takes(rates: &Rates, asker: Asker) -> bool {
        rates.of(asker).any.take()
    }

    #[test]
    fn whoever_comes_again_has_what_they_left() {
        let rates = Rates::default();
        empty(&rates.of(source(1)));
        assert!(!takes(&rates, source(1)), "on another connection");
        assert!(takes(&rates, source(2)), "somebody else");
        empty(&rates.of(Asker::User(0)));
        assert!(takes(&rates, Asker::Owner(1)), "what only has the same number is somebody else");
        empty(&rates.of(Asker::Owner(1)));
        assert!(takes(&rates, Asker::Owner(2)), "another process of the owner is another client");
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_who_is_there_is_remembered() {
        let rates = Rates::default();
        let there = rates.of(source(0));
        empty(&there);
        for number in 1..u32::try_from(2 * MOST).unwrap() {
            empty(&rates.of(source(number)));
        }
        assert!(rates.0.lock().unwrap().len() <= MOST);
        assert!(!takes(&rates, source(0)));
        // Those who have asked little are forgotten before those who have asked too much.
        let rates = Rates::default();
        empty(&rates.of(source(0)));
        (1..u32::try_from(2 * MOST).unwrap()).for_each(|number| drop(rates.of(source(number))));
        assert!(rates.0.lock().unwrap().len() <= MOST && !takes(&rates, source(0)));
    }

    #[test]
    fn one_connection_and_one_token_leave_something_for_the_others() {
        let (rates, here) = (Rates::default(), Entrance::Network(IpAddr::from([127, 0, 0, 1])));
        let [one, two] = [(); 2].map(|()| Rate::new(&rates, &here, None));
        let asks = |rate: &Rate, token: Option<&str>| rate.ask(&rates, token, || false).is_ok();
        drain(&one.line);
        assert!(!asks(&one, None) && asks(&two, None), "another connection of the same client");
        empty(&two.share);
        assert!(!asks(&two, None) && !asks(&two, Some("good")), "nobody has found it good");
        rates.is_good(&here, Some("good"));
        assert!(asks(&two, Some("good")) && !asks(&two, Some("bad")));
        rates.is_good(&Entrance::Management, Some("bad"));
        assert!(!asks(&two, Some("bad")), "here a client is a process");
    }

    #[test]
    fn what_ends_something_has_a_reserve() {
        let (rates, here) = (Rates::default(), Entrance::Management);
        let rate = Rate::new(&rates, &here, None);
        drain(&rate.line);
        assert!(rate.ask(&rates, None, || false).is_err() && rate.ask(&rates, None, || true).is_ok());
        drain(&rate.share.reserve);
        assert!(rate.ask(&rates, None, || true).is_err(), "that has an end, too");
        assert!(is_urgent(Method::SessionStop) && !is_urgent(Method::CallExec));
    }
}
