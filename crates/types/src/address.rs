//! Special addresses and names: this machine, its networks and its cloud.
//!
//! An allowed host does not include these (S002-14). The ranges are the special-purpose registries of IANA; an IPv4 address
//! embedded in an IPv6 one counts as that IPv4 address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address or a name is special.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpecialAddress {
    /// Metadata service of a cloud, which gives credentials to every client. Never allowed.
    Metadata,
    Loopback,
    Unspecified,
    Private,
    LinkLocal,
    /// Between a provider and its customers (100.64.0.0/10).
    Shared,
    Multicast,
    Broadcast,
    Benchmark,
    Documentation,
    /// A tunnel or translator, whose final destination is unknown.
    Tunnel,
    Reserved,
}

impl fmt::Display for SpecialAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "the metadata service of a cloud",
            Self::Loopback => "this machine",
            Self::Unspecified => "the unspecified address",
            Self::Private => "a private network",
            Self::LinkLocal => "the local link",
            Self::Shared => "a provider's shared network",
            Self::Multicast => "a multicast group",
            Self::Broadcast => "a broadcast address",
            Self::Benchmark => "a network for benchmarks",
            Self::Documentation => "a network for documentation",
            Self::Tunnel => "a tunnel or translator",
            Self::Reserved => "a reserved network",
        })
    }
}

/// Classifies an address; `None` for an ordinary public one.
pub fn special_address(address: IpAddr) -> Option<SpecialAddress> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// Classifies a name in lower case without a final dot. The addresses of an ordinary name are checked where it is resolved.
pub fn special_name(name: &str) -> Option<SpecialAddress> {
    if METADATA_NAMES.contains(&name) {
        return Some(SpecialAddress::Metadata);
    }
    let local = LOCAL_NAMES.contains(&name) || name.ends_with(".localhost") || name.ends_with(".localdomain");
    local.then_some(SpecialAddress::Loopback)
}

const METADATA_V4: &[Ipv4Addr] = &[
    Ipv4Addr::new(169, 254, 169, 254), // almost every cloud
    Ipv4Addr::new(169, 254, 170, 2),   // AWS ECS
    Ipv4Addr::new(169, 254, 170, 23),  // AWS EKS
    Ipv4Addr::new(169, 254, 0, 23),    // Tencent
    Ipv4Addr::new(168, 63, 129, 16),   // Azure
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle
];

const METADATA_V6: &[Ipv6Addr] = &[
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

const METADATA_NAMES: &[&str] = &[
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.aws.internal",
    "metadata.azure.internal",
    "metadata.azure.com",
    "metadata.tencentyun.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "instance-data",
    "instance-data.ec2.internal",
];

const LOCAL_NAMES: &[&str] =
    &["localhost", "localdomain", "ip6-localhost", "ip6-loopback", "local", "loopback", "broadcasthost"];

fn special_v4(address: Ipv4Addr) -> Option<SpecialAddress> {
    if METADATA_V4.contains(&address) {
        return Some(SpecialAddress::Metadata);
    }
    Some(match address.octets() {
        [0, 0, 0, 0] => SpecialAddress::Unspecified,
        [0, ..] => SpecialAddress::Reserved,
        [127, ..] => SpecialAddress::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => SpecialAddress::Private,
        [169, 254, ..] => SpecialAddress::LinkLocal,
        [100, 64..=127, ..] => SpecialAddress::Shared,
        [198, 18..=19, ..] => SpecialAddress::Benchmark,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => SpecialAddress::Documentation,
        [192, 88, 99, _] => SpecialAddress::Tunnel,
        [192, 0, 0, _] | [192, 31, 196, _] | [192, 52, 193, _] | [192, 175, 48, _] => {
            SpecialAddress::Reserved
        }
        [255, 255, 255, 255] => SpecialAddress::Broadcast,
        [224..=239, ..] => SpecialAddress::Multicast,
        [240..=255, ..] => SpecialAddress::Reserved,
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<SpecialAddress> {
    if METADATA_V6.contains(&address) {
        return Some(SpecialAddress::Metadata);
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(SpecialAddress::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(SpecialAddress::Loopback),
        // Mapped, and NAT64 by the well-known prefix: the same destination as the address inside.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            special_v4(embedded(high, low))
        }
        // Compatible and translated addresses are obsolete, so only an attack would use them.
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            special_v4(embedded(high, low)).or(Some(SpecialAddress::Reserved))
        }
        [0x64, 0xff9b, 1, ..] => Some(SpecialAddress::Private),
        // 6to4 and Teredo; the latter has the bits of the address inverted.
        [0x2002, high, low, ..] => special_v4(embedded(high, low)).or(Some(SpecialAddress::Tunnel)),
        [0x2001, 0, .., high, low] => special_v4(embedded(!high, !low)).or(Some(SpecialAddress::Tunnel)),
        // ISATAP, whatever the prefix.
        [.., 0 | 0x200, 0x5efe, high, low] => {
            special_v4(embedded(high, low)).or(Some(SpecialAddress::Tunnel))
        }
        [0x2001, 2, 0, ..] => Some(SpecialAddress::Benchmark),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Some(SpecialAddress::Documentation),
        [0x2001, 0..=0x01ff, ..] => Some(SpecialAddress::Reserved),
        [0x2620, 0x4f, 0x8000, ..] => Some(SpecialAddress::Reserved),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some(SpecialAddress::Private),
        [0xfe80..=0xfebf, ..] => Some(SpecialAddress::LinkLocal),
        [0xff00..=0xffff, ..] => Some(SpecialAddress::Multicast),
        [0x2000..=0x3fff, ..] => None,
        // Public addresses are in 2000::/3; everything else is unassigned.
        _ => Some(SpecialAddress::Reserved),
    }
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn special(text: &str) -> Option<SpecialAddress> {
        special_address(text.parse().unwrap_or_else(|_| panic!("{text}")))
    }

    #[test]
    fn s002_14_the_machine_and_its_network_are_special() {
        for (text, expected) in [
            ("127.0.0.1", SpecialAddress::Loopback),
            ("127.255.255.254", SpecialAddress::Loopback),
            ("0.0.0.0", SpecialAddress::Unspecified),
            ("0.1.2.3", SpecialAddress::Reserved),
            ("10.0.0.1", SpecialAddress::Private),
            ("172.16.0.1", SpecialAddress::Private),
            ("172.31.255.255", SpecialAddress::Private),
            ("192.168.1.1", SpecialAddress::Private),
            ("169.254.1.1", SpecialAddress::LinkLocal),
            ("100.64.0.1", SpecialAddress::Shared),
            ("100.127.255.255", SpecialAddress::Shared),
            ("198.18.0.1", SpecialAddress::Benchmark),
            ("192.0.2.1", SpecialAddress::Documentation),
            ("192.88.99.1", SpecialAddress::Tunnel),
            ("192.0.0.1", SpecialAddress::Reserved),
            ("224.0.0.1", SpecialAddress::Multicast),
            ("239.255.255.255", SpecialAddress::Multicast),
            ("240.0.0.1", SpecialAddress::Reserved),
            ("255.255.255.255", SpecialAddress::Broadcast),
            ("::", SpecialAddress::Unspecified),
            ("::1", SpecialAddress::Loopback),
            ("fc00::1", SpecialAddress::Private),
            ("fdff::1", SpecialAddress::Private),
            ("fe80::1", SpecialAddress::LinkLocal),
            ("fec0::1", SpecialAddress::Private),
            ("ff02::1", SpecialAddress::Multicast),
            ("2001:db8::1", SpecialAddress::Documentation),
            ("3fff::1", SpecialAddress::Documentation),
            ("2001:2::1", SpecialAddress::Benchmark),
            ("2001:10::1", SpecialAddress::Reserved),
            ("100::1", SpecialAddress::Reserved),
            ("5f00::1", SpecialAddress::Reserved),
            ("4000::1", SpecialAddress::Reserved),
            ("64:ff9b:1::1", SpecialAddress::Private),
        ] {
            assert_eq!(special(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn n6_an_address_inside_an_address_counts() {
        for text in [
            "::ffff:127.0.0.1",
            "::ffff:7f00:1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "2001:0:1234::80ff:fffe",
            "2a00::5efe:127.0.0.1",
            "2a00::200:5efe:127.0.0.1",
        ] {
            assert_eq!(special(text), Some(SpecialAddress::Loopback), "{text}");
        }
        for text in ["2002:808:808::", "2001:0:1234::f7f7:f7f7", "2a00::5efe:8.8.8.8"] {
            assert_eq!(special(text), Some(SpecialAddress::Tunnel), "{text}");
        }
    }

    #[test]
    fn metadata_services_are_known_in_every_form() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2001:0:1::5601:5601",
        ] {
            assert_eq!(special(text), Some(SpecialAddress::Metadata), "{text}");
        }
        for name in ["metadata.google.internal", "metadata.aws.internal", "metadata", "instance-data"] {
            assert_eq!(special_name(name), Some(SpecialAddress::Metadata), "{name}");
        }
    }

    #[test]
    fn names_of_this_machine_are_special() {
        for name in ["localhost", "a.localhost", "a.b.localhost", "localhost.localdomain", "ip6-localhost"] {
            assert_eq!(special_name(name), Some(SpecialAddress::Loopback), "{name}");
        }
        for name in ["example.org", "notlocalhost", "localhost.example.org", "metadata.example.org"] {
            assert_eq!(special_name(name), None, "{name}");
        }
    }

    #[test]
    fn the_internet_is_not_special() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:4860:4860::8888",
        ] {
            assert_eq!(special(text), None, "{text}");
        }
    }

    proptest! {
        /// Compares with the classes of the standard library.
        #[test]
        fn the_standard_library_agrees(bits in any::<u32>(), wide in any::<u128>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            if v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_unspecified() || v4.is_documentation()
            {
                prop_assert!(special_v4(v4).is_some());
            }
            prop_assert_eq!(special_v6(v4.to_ipv6_mapped()), special_v4(v4));
            let v6 = Ipv6Addr::from_bits(wide);
            if v6.is_loopback() || v6.is_multicast() || v6.is_unicast_link_local() || v6.is_unique_local() {
                prop_assert!(special_v6(v6).is_some());
            }
        }
    }
}
