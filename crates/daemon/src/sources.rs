//! Where connections over TCP come from, and how many places those from one source have.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// One network of IPv6 is one source: whoever has it has all its addresses.
pub(crate) fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// Connections by source. There are no more of them than connections.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    each: usize,
}

/// Given back with its connection.
#[derive(Debug)]
pub(crate) struct Seat {
    source: IpAddr,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Sources {
    pub(crate) fn new(each: usize) -> Self {
        Self { taken: Arc::default(), each }
    }

    /// `None`: those from there have all that one source may have.
    pub(crate) fn seat(&self, address: IpAddr) -> Option<Seat> {
        let source = source_of(address);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(source).or_default();
        if *count >= self.each {
            return None;
        }
        *count += 1;
        Some(Seat { source, taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                let _last = taken.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_source_has_its_part_and_no_more() {
        let sources = Sources::new(2);
        let first = sources.seat(address("127.0.0.1"));
        let second = sources.seat(address("::ffff:127.0.0.1"));
        assert!(first.is_some() && second.is_some());
        assert!(sources.seat(address("127.0.0.1")).is_none());
        assert!(sources.seat(address("127.0.0.2")).is_some(), "another source");
        drop(first);
        assert!(sources.seat(address("127.0.0.1")).is_some(), "what is given back is there again");
        drop(second);
        assert!(sources.taken.lock().unwrap().is_empty(), "nothing is kept of who has gone");
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        assert_eq!(source_of(address("2001:db8:1:2:3:4:5:6")), source_of(address("2001:db8:1:2::9")));
        assert_ne!(source_of(address("2001:db8:1:2::1")), source_of(address("2001:db8:1:3::1")));
        assert_eq!(source_of(address("::ffff:127.0.0.1")), address("127.0.0.1"));
    }
}
