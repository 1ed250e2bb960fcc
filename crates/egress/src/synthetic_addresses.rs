//! Synthetic addresses: stand for names inside the namespace.
//!
//! INVARIANT: in one session an address stands for one name only. Programs keep addresses longer than any TTL, and a reassigned
//! address would send the traffic of one host to another. An evicted name gets a new address at the next query, and its old address
//! leads nowhere.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// 198.18.0.0/15, reserved for benchmarks: no reachable host uses it, so it hides no host that a client may need.
const V4_BASE: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const V4_COUNT: u32 = 1 << 17;
/// A unique local prefix; the last 32 bits are the number of the name.
const V6_BASE: u128 = 0xfd52_494e_4746_0000_0000_0000_0000_0000;

#[derive(Debug)]
pub(crate) struct SyntheticNames {
    most: usize,
    table: Mutex<NameTable>,
}

#[derive(Debug, Default)]
struct NameTable {
    numbers: HashMap<Arc<str>, NameEntry>,
    names: HashMap<u32, Arc<str>>,
    /// Names by last use, oldest first.
    ages: BTreeMap<u64, Arc<str>>,
    clock: u64,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct NameEntry {
    number: u32,
    age: u64,
}

/// The two addresses of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyntheticPair {
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

/// Meaning of an address in this session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressMeaning {
    /// Assigned to this name.
    Name(Arc<str>),
    /// In the synthetic range, but not assigned.
    Nobody,
    /// An ordinary address.
    Itself,
}

impl SyntheticNames {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, table: Mutex::default() }
    }

    /// Addresses of a name; `None` when all are used up.
    pub(crate) fn addresses(&self, name: &str) -> Option<SyntheticPair> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let number = table.number(name, self.most)?;
        Some(SyntheticPair {
            v4: Ipv4Addr::from_bits(V4_BASE + number),
            v6: Ipv6Addr::from_bits(V6_BASE + u128::from(number)),
        })
    }

    pub(crate) fn meaning(&self, address: IpAddr) -> AddressMeaning {
        let Some(number) = number_of(address) else { return AddressMeaning::Itself };
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.names.get(&number).map_or(AddressMeaning::Nobody, |name| AddressMeaning::Name(Arc::clone(name)))
    }
}

impl NameTable {
    fn number(&mut self, name: &str, most: usize) -> Option<u32> {
        self.clock += 1;
        let age = self.clock;
        if let Some((name, entry)) = self.numbers.get_key_value(name) {
            let (name, entry) = (Arc::clone(name), *entry);
            self.ages.remove(&entry.age);
            self.ages.insert(age, Arc::clone(&name));
            self.numbers.insert(name, NameEntry { age, ..entry });
            return Some(entry.number);
        }
        let number = self.last + 1;
        if number >= V4_COUNT - 1 {
            return None;
        }
        while self.numbers.len() >= most.max(1) {
            self.forget_oldest();
        }
        self.last = number;
        let name: Arc<str> = name.into();
        self.ages.insert(age, Arc::clone(&name));
        self.names.insert(number, Arc::clone(&name));
        self.numbers.insert(name, NameEntry { number, age });
        Some(number)
    }

    fn forget_oldest(&mut self) {
        let Some((_, name)) = self.ages.pop_first() else { return };
        if let Some(entry) = self.numbers.remove(&name) {
            self.names.remove(&entry.number);
        }
    }
}

fn number_of(address: IpAddr) -> Option<u32> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_bits().checked_sub(V4_BASE).filter(|number| *number < V4_COUNT),
        IpAddr::V6(address) => {
            address.to_bits().checked_sub(V6_BASE).and_then(|number| number.try_into().ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_keeps_its_addresses() {
        let names = SyntheticNames::new(10);
        let first = names.addresses("a.test").unwrap();
        let second = names.addresses("b.test").unwrap();
        assert_ne!(first, second);
        assert_eq!(names.addresses("a.test"), Some(first));
        for address in [IpAddr::from(first.v4), first.v6.into(), first.v4.to_ipv6_mapped().into()] {
            assert_eq!(names.meaning(address), AddressMeaning::Name("a.test".into()));
        }
        assert_eq!(names.meaning("198.19.255.255".parse().unwrap()), AddressMeaning::Nobody);
        assert_eq!(names.meaning("198.17.255.255".parse().unwrap()), AddressMeaning::Itself);
        assert_eq!(names.meaning("198.20.0.0".parse().unwrap()), AddressMeaning::Itself);
        assert_eq!(names.meaning("fd52:494e:4746::1:0:0".parse().unwrap()), AddressMeaning::Itself);
    }

    #[test]
    fn the_pool_ends_rather_than_beginning_again() {
        let names = SyntheticNames::new(2);
        let given = (0..V4_COUNT).filter(|n| names.addresses(&format!("n{n}.test")).is_some()).count();
        assert_eq!(given, V4_COUNT as usize - 2);
        assert_eq!(names.addresses("late.test"), None);
        assert_eq!(names.table.lock().unwrap().names.len(), 2);
    }

    proptest! {
        #[test]
        fn no_address_ever_means_two_names(asked in prop::collection::vec(0_u8..12, 0..200), most in 1_usize..6) {
            let names = SyntheticNames::new(most);
            let mut meant: HashMap<Ipv4Addr, u8> = HashMap::new();
            for n in asked {
                let given = names.addresses(&format!("n{n}.test")).unwrap();
                prop_assert_eq!(*meant.entry(given.v4).or_insert(n), n);
                prop_assert_eq!(names.meaning(given.v4.into()), AddressMeaning::Name(format!("n{n}.test").into()));
                let table = names.table.lock().unwrap();
                prop_assert!(table.names.len() <= most);
                prop_assert_eq!(table.names.len(), table.numbers.len());
                prop_assert_eq!(table.names.len(), table.ages.len());
            }
        }
    }
}
