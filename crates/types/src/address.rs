//! Addresses and names that are not somewhere on the internet: the machine itself, its network, its cloud.
//!
//! A program that is allowed to talk to a host is not thereby allowed to talk to these (S002-14). The ranges are the
//! special-purpose registries of IANA as a whole; an IPv4 address inside an IPv6 one counts as that IPv4 address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address or a name is special.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// A cloud hands credentials to whoever asks here. Never allowed.
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
    /// The address of a tunnel or translator: where it leads is decided elsewhere.
    Tunnel,
    Reserved,
}

impl fmt::Display for Special {
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

/// What is special about an address; `None` for an ordinary one on the internet.
pub fn special_address(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// What is special about a name, in lower case and without a final dot. What an ordinary name resolves to is for
/// whoever resolves it to judge.
pub fn special_name(name: &str) -> Option<Special> {
    if METADATA_NAMES.contains(&name) {
        return Some(Special::Metadata);
    }
    let local = LOCAL_NAMES.contains(&name) || name.ends_with(".localhost") || name.ends_with(".localdomain");
    local.then_some(Special::Loopback)
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

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    if METADATA_V4.contains(&address) {
        return Some(Special::Metadata);
    }
    Some(match address.octets() {
        [0, 0, 0, 0] => Special::Unspecified,
        [0, ..] => Special::Reserved,
        [127, ..] => Special::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Special::Private,
        [169, 254, ..] => Special::LinkLocal,
        [100, 64..=127, ..] => Special::Shared,
        [198, 18..=19, ..] => Special::Benchmark,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Special::Documentation,
        [192, 88, 99, _] => Special::Tunnel,
        [192, 0, 0, _] | [192, 31, 196, _] | [192, 52, 193, _] | [192, 175, 48, _] => Special::Reserved,
        [255, 255, 255, 255] => Special::Broadcast,
        [224..=239, ..] => Special::Multicast,
        [240..=255, ..] => Special::Reserved,
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    if METADATA_V6.contains(&address) {
        return Some(Special::Metadata);
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(Special::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Special::Loopback),
        // Mapped, and NAT64 by the well-known prefix: the same destination as the address inside.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            special_v4(embedded(high, low))
        }
        // Compatible, translated: nobody uses them any more, so nobody means well by them.
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            special_v4(embedded(high, low)).or(Some(Special::Reserved))
        }
        [0x64, 0xff9b, 1, ..] => Some(Special::Private),
        // 6to4 and Teredo; the latter has the bits of the address inverted.
        [0x2002, high, low, ..] => special_v4(embedded(high, low)).or(Some(Special::Tunnel)),
        [0x2001, 0, .., high, low] => special_v4(embedded(!high, !low)).or(Some(Special::Tunnel)),
        // ISATAP, whatever the prefix.
        [.., 0 | 0x200, 0x5efe, high, low] => special_v4(embedded(high, low)).or(Some(Special::Tunnel)),
        [0x2001, 2, 0, ..] => Some(Special::Benchmark),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Some(Special::Documentation),
        [0x2001, 0..=0x01ff, ..] => Some(Special::Reserved),
        [0x2620, 0x4f, 0x8000, ..] => Some(Special::Reserved),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some(Special::Private),
        [0xfe80..=0xfebf, ..] => Some(Special::LinkLocal),
        [0xff00..=0xffff, ..] => Some(Special::Multicast),
        [0x2000..=0x3fff, ..] => None,
        // The internet is 2000::/3; everything else is not handed out.
        _ => Some(Special::Reserved),
    }
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn special(text: &str) -> Option<Special> {
        special_address(text.parse().unwrap_or_else(|_| panic!("{text}")))
    }

    #[test]
    fn s002_14_the_machine_and_its_network_are_special() {
        for (text, expected) in [
            ("127.0.0.1", Special::Loopback),
            ("127.255.255.254", Special::Loopback),
            ("0.0.0.0", Special::Unspecified),
            ("0.1.2.3", Special::Reserved),
            ("10.0.0.1", Special::Private),
            ("172.16.0.1", Special::Private),
            ("172.31.255.255", Special::Private),
            ("192.168.1.1", Special::Private),
            ("169.254.1.1", Special::LinkLocal),
            ("100.64.0.1", Special::Shared),
            ("100.127.255.255", Special::Shared),
            ("198.18.0.1", Special::Benchmark),
            ("192.0.2.1", Special::Documentation),
            ("192.88.99.1", Special::Tunnel),
            ("192.0.0.1", Special::Reserved),
            ("224.0.0.1", Special::Multicast),
            ("239.255.255.255", Special::Multicast),
            ("240.0.0.1", Special::Reserved),
            ("255.255.255.255", Special::Broadcast),
            ("::", Special::Unspecified),
            ("::1", Special::Loopback),
            ("fc00::1", Special::Private),
            ("fdff::1", Special::Private),
            ("fe80::1", Special::LinkLocal),
            ("fec0::1", Special::Private),
            ("ff02::1", Special::Multicast),
            ("2001:db8::1", Special::Documentation),
            ("3fff::1", Special::Documentation),
            ("2001:2::1", Special::Benchmark),
            ("2001:10::1", Special::Reserved),
            ("100::1", Special::Reserved),
            ("5f00::1", Special::Reserved),
            ("4000::1", Special::Reserved),
            ("64:ff9b:1::1", Special::Private),
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
            assert_eq!(special(text), Some(Special::Loopback), "{text}");
        }
        for text in ["2002:808:808::", "2001:0:1234::f7f7:f7f7", "2a00::5efe:8.8.8.8"] {
            assert_eq!(special(text), Some(Special::Tunnel), "{text}");
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
            assert_eq!(special(text), Some(Special::Metadata), "{text}");
        }
        for name in ["metadata.google.internal", "metadata.aws.internal", "metadata", "instance-data"] {
            assert_eq!(special_name(name), Some(Special::Metadata), "{name}");
        }
    }

    #[test]
    fn names_of_this_machine_are_special() {
        for name in ["localhost", "a.localhost", "a.b.localhost", "localhost.localdomain", "ip6-localhost"] {
            assert_eq!(special_name(name), Some(Special::Loopback), "{name}");
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
        /// The classes that the standard library knows, as a second opinion.
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
