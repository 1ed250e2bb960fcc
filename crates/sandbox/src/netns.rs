//! The network of `--net filtered`: a namespace without any interface but loopback, and listening sockets in it, the
//! *doors*, that the supervisor holds. Processes inside reach the doors and nothing else; no process outside reaches them.
//!
//! ```text
//!  inside                                             outside
//!    HTTP_PROXY=127.0.0.1:3128 ──────────────► proxy ────────► ┐
//!    connect(any address, any port) ──redirect─► transparent ─► │ supervisor: accept(2)
//!    getaddrinfo, any port 53 ───────redirect─► dns ──────────► ┘
//!    UDP elsewhere ──────────────────reject
//! ```

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use libc::{AF_INET, AF_INET6, NETLINK_NETFILTER, NETLINK_ROUTE, SOCK_DGRAM, SOCK_STREAM};
use ringfence_launch::plan::PlanOp;
use ringfence_launch::step::LaunchStep;
use ringfence_types::PROXY_PORT;
use rustix::net::{AddressFamily, SocketType};

use crate::netfilter;
use crate::netlink::{attribute, request};
use crate::sandbox::SandboxStartError;

/// Below 1024, like that of DNS: nothing inside can take its place when it is closed.
pub(crate) const TRANSPARENT_PORT: u16 = 1023;
pub(crate) const DNS_PORT: u16 = 53;

/// What a sandbox has besides loopback, so that libraries find a source address and ask for both families. The first
/// is for documentation and the second private, so no other host has either.
pub(crate) const OWN_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd72, 0x696e, 0x6766, 0, 0, 0, 0, 1);

/// What the resolver inside reads.
pub(crate) const RESOLV_CONF: &[u8] = b"nameserver 127.0.0.1\noptions timeout:2 attempts:2\n";

/// Sockets in the network of a sandbox. When they are closed, connections inside are refused.
#[derive(Debug)]
pub struct ProxySockets {
    /// On port [`PROXY_PORT`] of loopback.
    pub proxy: TcpListener,
    /// Every TCP connection to an address that is not the sandbox's own arrives here; the kernel knows where it was
    /// meant to go (`SO_ORIGINAL_DST`). `None` where the kernel has no nf_tables.
    pub transparent: Option<TcpListener>,
    /// Port 53 of loopback, and with `transparent` of every IPv4 address.
    pub dns: UdpSocket,
    pub dns_stream: TcpListener,
}

impl ProxySockets {
    /// In the order of [`NetnsSetup::operations`].
    pub(crate) fn from_sockets(sockets: Vec<OwnedFd>) -> Option<Self> {
        let mut sockets = sockets.into_iter();
        Some(Self {
            proxy: sockets.next()?.into(),
            dns: sockets.next()?.into(),
            dns_stream: sockets.next()?.into(),
            transparent: sockets.next().map(TcpListener::from),
        })
    }
}

/// Whether the kernel can redirect. Found out by trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Netfilter {
    Present,
    Absent,
}

/// Once more without it where the kernel cannot do it: the fence is the same, but programs that do not know of the
/// proxy have no network.
pub(crate) fn with_or_without_netfilter<T>(
    start: impl Fn(Netfilter) -> Result<T, SandboxStartError>,
) -> Result<T, SandboxStartError> {
    match start(Netfilter::Present) {
        Err(SandboxStartError::Step { step: LaunchStep::Network, .. }) => start(Netfilter::Absent),
        other => other,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetfilterFamilies {
    Both,
    V4,
}

impl NetfilterFamilies {
    fn here() -> Self {
        match rustix::net::socket(AddressFamily::INET6, SocketType::STREAM, None) {
            Ok(_) => Self::Both,
            Err(_) => Self::V4,
        }
    }
}

/// What the launcher does to the namespace.
#[derive(Debug)]
pub(crate) struct NetnsSetup {
    /// Netlink protocol and messages.
    requests: Vec<(i32, Vec<u8>)>,
    /// Socket type and address.
    doors: Vec<(i32, Vec<u8>)>,
}

impl NetnsSetup {
    pub(crate) fn new(netfilter: Netfilter) -> Self {
        Self::with(netfilter, NetfilterFamilies::here())
    }

    fn with(netfilter: Netfilter, families: NetfilterFamilies) -> Self {
        let mut doors = vec![
            (SOCK_STREAM, anywhere(families, PROXY_PORT)),
            (SOCK_DGRAM, on_v4(Ipv4Addr::LOCALHOST, DNS_PORT)),
            (SOCK_STREAM, on_v4(Ipv4Addr::LOCALHOST, DNS_PORT)),
        ];
        if netfilter == Netfilter::Absent {
            return Self { requests: Vec::new(), doors };
        }
        doors.push((SOCK_STREAM, anywhere(families, TRANSPARENT_PORT)));
        // The rules first: if they cannot be made there is no route either, and connections fail at once.
        let requests = vec![(NETLINK_NETFILTER, netfilter::rules()), (NETLINK_ROUTE, routes(families))];
        Self { requests, doors }
    }

    pub(crate) fn operations(&self) -> impl Iterator<Item = PlanOp<'_>> {
        let requests = self.requests.iter().map(|(protocol, messages)| PlanOp::Netlink {
            protocol: u64::from(protocol.cast_unsigned()),
            messages,
        });
        let doors = self
            .doors
            .iter()
            .map(|(kind, address)| PlanOp::Door { kind: u64::from(kind.cast_unsigned()), address });
        requests.chain(doors)
    }
}

/// On every address there is inside: loopback and our own.
fn anywhere(families: NetfilterFamilies, port: u16) -> Vec<u8> {
    match families {
        NetfilterFamilies::V4 => on_v4(Ipv4Addr::UNSPECIFIED, port),
        NetfilterFamilies::Both => {
            let family = u16::try_from(AF_INET6).unwrap_or_default();
            let (flow, scope) = ([0; 4], [0; 4]);
            let address = Ipv6Addr::UNSPECIFIED.octets();
            [&family.to_ne_bytes()[..], &port.to_be_bytes(), &flow, &address, &scope].concat()
        }
    }
}

fn on_v4(address: Ipv4Addr, port: u16) -> Vec<u8> {
    let family = u16::try_from(AF_INET).unwrap_or_default();
    [&family.to_ne_bytes()[..], &port.to_be_bytes(), &address.octets(), &[0; 8]].concat()
}

/// Our own addresses, and everything else behind loopback.
fn routes(families: NetfilterFamilies) -> Vec<u8> {
    let v4 = [own_address(AF_INET, &OWN_V4.octets()), default_route(AF_INET)].concat();
    match families {
        NetfilterFamilies::V4 => v4,
        NetfilterFamilies::Both => {
            [v4, own_address(AF_INET6, &OWN_V6.octets()), default_route(AF_INET6)].concat()
        }
    }
}

/// KERNEL: in every network namespace loopback is interface 1.
const LOOPBACK: u32 = 1;

/// `struct ifaddrmsg`, with the address as its own network.
fn own_address(family: i32, address: &[u8]) -> Vec<u8> {
    const IFA_F_NODAD: u8 = 2;
    let bits = u8::try_from(address.len() * 8).unwrap_or_default();
    let fixed = [&[byte(family), bits, IFA_F_NODAD, libc::RT_SCOPE_UNIVERSE][..], &LOOPBACK.to_ne_bytes()];
    let attributes = [attribute(libc::IFA_LOCAL, address), attribute(libc::IFA_ADDRESS, address)];
    request(libc::RTM_NEWADDR, libc::NLM_F_CREATE, &fixed.concat(), &attributes)
}

/// `struct rtmsg`. KERNEL: of routes through loopback IPv6 takes only those of type local as meant.
fn default_route(family: i32) -> Vec<u8> {
    let (table, scope, kind) = if family == AF_INET {
        (libc::RT_TABLE_MAIN, libc::RT_SCOPE_LINK, libc::RTN_UNICAST)
    } else {
        (libc::RT_TABLE_LOCAL, libc::RT_SCOPE_UNIVERSE, libc::RTN_LOCAL)
    };
    let everything = [0, 0, 0];
    let flags = [0; 4];
    let fixed = [&[byte(family)][..], &everything, &[table, libc::RTPROT_STATIC, scope, kind], &flags];
    let attributes = [attribute(libc::RTA_OIF, &LOOPBACK.to_ne_bytes())];
    request(libc::RTM_NEWROUTE, libc::NLM_F_CREATE, &fixed.concat(), &attributes)
}

fn byte(family: i32) -> u8 {
    u8::try_from(family).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use ringfence_types::Backend;
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn routes_are_what_the_kernel_reads() {
        let v4 = [
            &b"\x28\0\0\0\x14\0\x05\x04\0\0\0\0\0\0\0\0\x02\x20\x02\0\x01\0\0\0"[..],
            b"\x08\0\x02\0\xc0\0\x02\x01\x08\0\x01\0\xc0\0\x02\x01",
            b"\x24\0\0\0\x18\0\x05\x04\0\0\0\0\0\0\0\0\x02\0\0\0\xfe\x04\xfd\x01\0\0\0\0",
            b"\x08\0\x04\0\x01\0\0\0",
        ]
        .concat();
        assert_eq!(routes(NetfilterFamilies::V4), v4);
        let both = routes(NetfilterFamilies::Both);
        assert!(both.starts_with(&v4));
        assert!(both.ends_with(b"\x0a\0\0\0\xff\x04\0\x02\0\0\0\0\x08\0\x04\0\x01\0\0\0"));
    }

    #[test]
    fn without_rules_there_are_no_routes() {
        let absent = NetnsSetup::with(Netfilter::Absent, NetfilterFamilies::Both);
        assert!(absent.operations().all(|op| matches!(op, PlanOp::Door { .. })));
        assert_eq!(absent.operations().count(), 3);
        let present = NetnsSetup::with(Netfilter::Present, NetfilterFamilies::V4);
        assert_eq!(present.operations().count(), 6);
        let v4 =
            |op: PlanOp<'_>| matches!(op, PlanOp::Door { address: [2, 0, ..], .. } | PlanOp::Netlink { .. });
        assert!(present.operations().all(v4), "no socket of a family that the kernel does not have");
    }

    fn failing_at(step: LaunchStep) -> SandboxStartError {
        SandboxStartError::Step { backend: Backend::Native, step, operation: 2, errno: Errno::OPNOTSUPP }
    }

    #[test]
    fn only_what_the_kernel_cannot_redirect_is_tried_without() {
        let tried = RefCell::new(Vec::new());
        let start = |failing: LaunchStep| {
            let tried = &tried;
            move |netfilter| {
                tried.borrow_mut().push(netfilter);
                if netfilter == Netfilter::Present { Err(failing_at(failing)) } else { Ok(()) }
            }
        };
        assert!(with_or_without_netfilter(start(LaunchStep::Network)).is_ok());
        assert_eq!(tried.take(), [Netfilter::Present, Netfilter::Absent]);
        for other in [LaunchStep::Doors, LaunchStep::Namespaces, LaunchStep::Masks] {
            assert!(with_or_without_netfilter(start(other)).is_err());
            assert_eq!(tried.take(), [Netfilter::Present], "{other:?}");
        }
    }
}
