//! Request rate limits, per connection and per client over all its connections.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use ringfence_api::{ApiError, Method};
use ringfence_types::SessionId;
use sha2::{Digest as _, Sha256};

use crate::admit::authenticate::ListenerKind;
use crate::admit::peer::UnixPeer;
use crate::limits::rate_clock::{RateClock, at_least_one};
use crate::transport::http::too_many;

type Rate = RateLimiter<NotKeyed, InMemoryState, RateClock, NoOpMiddleware<<RateClock as Clock>::Instant>>;

const fn per_second(rate: u32, burst: u32) -> Quota {
    Quota::per_second(at_least_one(rate)).allow_burst(at_least_one(burst))
}

/// Limits of one connection. They are lower than the client's, so one connection cannot use up the client's rate.
const LOCAL_LINE: Quota = per_second(1000, 1000);
const REMOTE_LINE: Quota = per_second(400, 1000);
/// Limits of one client: on this machine, and over TCP.
const LOCAL: Quota = per_second(2000, 4000);
const REMOTE: Quota = per_second(500, 2000);
/// Reserve for methods that end or revoke something, for clients that used up their rate.
const RESERVE: Quota = per_second(20, 50);
/// Requests without a token that search the identity store. A device refreshes its token once an hour.
const UNKNOWN: Quota = per_second(8, 64);
/// Longer than any of these limits takes to be full again.
const FULL_AFTER: Duration = Duration::from_secs(10);
/// Clients in the map. There are fewer connections at once.
const MOST: usize = 4096;

/// A client: the requests that share one rate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RateKey {
    /// A process of the owner, so that one process cannot use up the rate of another. A reused PID only means a reused
    /// bucket.
    Owner(i32),
    /// Another peer at the operators' socket. A process in a fence has the owner's uid and must not use up the owner's
    /// rate.
    User(u32),
    Session(SessionId),
    Source(IpAddr),
    /// A valid token over TCP. Other clients from the same address cannot use up its rate.
    Credential([u8; 32]),
}

impl RateKey {
    pub(crate) fn of(entrance: &ListenerKind, peer: Option<UnixPeer>) -> Self {
        match (entrance, peer) {
            (ListenerKind::Door(session), _) => Self::Session(session.clone()),
            (ListenerKind::Network(address), _) => Self::Source(source_of(*address)),
            (ListenerKind::Management, Some(peer)) if peer.is_owner() => Self::Owner(peer.pid),
            (ListenerKind::Management, peer) => Self::User(peer.map_or(u32::MAX, |peer| peer.uid)),
        }
    }

    fn credential(token: &str) -> Self {
        Self::Credential(Sha256::digest(token).into())
    }

    fn share(&self) -> ClientRate {
        let limit = match self {
            Self::Source(_) | Self::Credential(_) => REMOTE,
            Self::Owner(_) | Self::User(_) | Self::Session(_) => LOCAL,
        };
        let [any, reserve, unknown] = [limit, RESERVE, UNKNOWN].map(rate);
        ClientRate { any, reserve, unknown, used: Mutex::default() }
    }
}

fn rate(quota: Quota) -> Rate {
    RateLimiter::direct_with_clock(quota, Default::default())
}

/// The source of an address. An IPv6 /64 is one source, because one client controls all its addresses.
pub(crate) fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// Methods that end, answer or revoke something.
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

/// The rate of one client over all its connections.
#[derive(Debug)]
pub(crate) struct ClientRate {
    any: Rate,
    reserve: Rate,
    unknown: Rate,
    /// The time of the last request.
    used: Mutex<Option<Instant>>,
}

impl ClientRate {
    /// Charges one request without a token.
    pub(crate) fn check_anonymous(&self) -> Result<(), ApiError> {
        if self.takes(&self.unknown) { Ok(()) } else { Err(too_many()) }
    }

    fn takes(&self, rate: &Rate) -> bool {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        rate.check().is_ok()
    }

    /// Whether a new one would be equal.
    fn is_full(&self) -> bool {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.is_none_or(|used| used.elapsed() > FULL_AFTER)
    }
}

/// The rates of all clients.
#[derive(Debug, Default)]
pub(crate) struct RequestRateLimiter(Mutex<HashMap<RateKey, Arc<ClientRate>>>);

impl RequestRateLimiter {
    /// The existing rate of a client, also after it reconnected.
    pub(crate) fn of(&self, asker: RateKey) -> Arc<ClientRate> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(&asker) {
            evict(&mut known);
        }
        let share = asker.share();
        Arc::clone(known.entry(asker).or_insert_with(|| Arc::new(share)))
    }

    /// Gives a token its own rate. Only for valid tokens: with invented ones a client would never run out.
    pub(crate) fn is_good(&self, entrance: &ListenerKind, token: Option<&str>) {
        if let (ListenerKind::Network(_), Some(token)) = (entrance, token) {
            let _share = self.of(RateKey::credential(token));
        }
    }

    fn of_good(&self, token: &str) -> Option<Arc<ClientRate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&RateKey::credential(token)).cloned()
    }
}

/// Drops full rates first, because a new one is equal. If that is not enough, drops every client without a
/// connection.
fn evict(known: &mut HashMap<RateKey, Arc<ClientRate>>) {
    known.retain(|_, share| Arc::strong_count(share) > 1 || !share.is_full());
    if known.len() >= MOST {
        known.retain(|_, share| Arc::strong_count(share) > 1);
    }
}

/// The rate limit of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionRate {
    line: Rate,
    /// The rate of the client without regard to its token.
    share: Arc<ClientRate>,
    /// True over TCP, where a valid token has its own rate.
    by_token: bool,
}

impl ConnectionRate {
    pub(crate) fn new(rates: &RequestRateLimiter, entrance: &ListenerKind, peer: Option<UnixPeer>) -> Self {
        let by_token = matches!(entrance, ListenerKind::Network(_));
        let line = rate(if by_token { REMOTE_LINE } else { LOCAL_LINE });
        Self { line, share: rates.of(RateKey::of(entrance, peer)), by_token }
    }

    /// Charges one request. `urgent` is only evaluated when the regular rate is used up.
    pub(crate) fn check(
        &self,
        rates: &RequestRateLimiter,
        token: Option<&str>,
        urgent: impl FnOnce() -> bool,
    ) -> Result<(), ApiError> {
        let own = token.filter(|_| self.by_token).and_then(|token| rates.of_good(token));
        let share = own.as_ref().unwrap_or(&self.share);
        let is_regular = self.line.check().is_ok() && share.takes(&share.any);
        if is_regular || urgent() && share.takes(&share.reserve) {
            return Ok(());
        }
        Err(too_many())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_full_again_before_a_client_counts_as_full() {
        for quota in [LOCAL_LINE, REMOTE_LINE, LOCAL, REMOTE, RESERVE, UNKNOWN] {
            assert!(quota.burst_size_replenished_in() < FULL_AFTER, "{quota:?}");
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let source = |text: &str| source_of(text.parse().unwrap());
        assert_eq!(source("2001:db8:1:2:3:4:5:6"), source("2001:db8:1:2::9"));
        assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
        assert_eq!(source("::ffff:127.0.0.1"), source("127.0.0.1"));
    }

    fn source(number: u32) -> RateKey {
        RateKey::Source(IpAddr::from(number.to_be_bytes()))
    }

    /// The clock of tests stands still, so a rate that is used up stays so.
    fn drain(rate: &Rate) {
        while rate.check().is_ok() {}
    }

    fn empty(share: &ClientRate) {
        while share.takes(&share.any) {}
    }

    fn takes(rates: &RequestRateLimiter, asker: RateKey) -> bool {
        let share = rates.of(asker);
        share.takes(&share.any)
    }

    #[test]
    fn a_client_that_comes_again_has_what_it_left() {
        let rates = RequestRateLimiter::default();
        empty(&rates.of(source(1)));
        assert!(!takes(&rates, source(1)), "on another connection");
        assert!(takes(&rates, source(2)), "another client");
        empty(&rates.of(RateKey::User(0)));
        assert!(takes(&rates, RateKey::Owner(1)), "what only has the same number is another client");
        empty(&rates.of(RateKey::Owner(1)));
        assert!(takes(&rates, RateKey::Owner(2)), "another process of the owner is another client");
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_who_is_there_is_remembered() {
        let rates = RequestRateLimiter::default();
        let there = rates.of(source(0));
        empty(&there);
        for number in 1..u32::try_from(2 * MOST).unwrap() {
            let _used = takes(&rates, source(number));
        }
        assert!(rates.0.lock().unwrap().len() <= MOST);
        assert!(!takes(&rates, source(0)));
        // Clients with full buckets are evicted before throttled ones.
        let rates = RequestRateLimiter::default();
        empty(&rates.of(source(0)));
        (1..u32::try_from(2 * MOST).unwrap()).for_each(|number| drop(rates.of(source(number))));
        assert!(rates.0.lock().unwrap().len() <= MOST && !takes(&rates, source(0)));
    }

    #[test]
    fn one_connection_and_one_token_leave_something_for_the_others() {
        let (rates, here) =
            (RequestRateLimiter::default(), ListenerKind::Network(IpAddr::from([127, 0, 0, 1])));
        let [one, two] = [(); 2].map(|()| ConnectionRate::new(&rates, &here, None));
        let asks = |rate: &ConnectionRate, token: Option<&str>| rate.check(&rates, token, || false).is_ok();
        drain(&one.line);
        assert!(!asks(&one, None) && asks(&two, None), "another connection of the same client");
        empty(&two.share);
        assert!(!asks(&two, None) && !asks(&two, Some("good")), "nobody has found it good");
        rates.is_good(&here, Some("good"));
        assert!(asks(&two, Some("good")) && !asks(&two, Some("bad")));
        rates.is_good(&ListenerKind::Management, Some("bad"));
        assert!(!asks(&two, Some("bad")), "here a client is a process");
    }

    #[test]
    fn what_ends_something_has_a_reserve() {
        let (rates, here) = (RequestRateLimiter::default(), ListenerKind::Management);
        let rate = ConnectionRate::new(&rates, &here, None);
        drain(&rate.line);
        assert!(rate.check(&rates, None, || false).is_err() && rate.check(&rates, None, || true).is_ok());
        drain(&rate.share.reserve);
        assert!(rate.check(&rates, None, || true).is_err(), "that has an end, too");
        assert!(is_urgent(Method::SessionStop) && !is_urgent(Method::CallExec));
    }
}
