//! The rules of `--net filtered`, as one transaction for nf_tables.
//!
//! ```text
//! table inet ringfence {
//!   chain catch { type nat hook output priority -100; policy accept;
//!     meta nfproto ipv4 udp dport 53 redirect to :53
//!     meta nfproto ipv4 tcp dport 53 redirect to :53
//!     (to an address of the sandbox itself) accept
//!     meta l4proto tcp redirect to :1023
//!   }
//!   chain hold { type filter hook output priority 0; policy drop;
//!     (to an address of the sandbox itself) accept
//!     meta l4proto udp reject with icmpx port-unreachable
//!   }
//! }
//! ```
//!
//! They are for convenience, not for safety: the namespace has no interface but loopback, so without them nothing gets
//! out either, it only fails later and with other words.

use std::net::{Ipv4Addr, Ipv6Addr};

use libc::{IPPROTO_TCP, IPPROTO_UDP, NLM_F_APPEND, NLM_F_CREATE};

use crate::netlink::{attribute, marker, nest, number, request, text};
use crate::netns::{DNS_PORT, OWN_V4, OWN_V6, TRANSPARENT_PORT};

const TABLE: &str = "ringfence";
const CATCH: &str = "catch";
const HOLD: &str = "hold";

// From linux/netfilter/nfnetlink.h, nf_tables.h and nf_nat.h: what libc does not name, or names with another type.
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const NF_INET_LOCAL_OUT: u32 = 3;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 2;

const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;

const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;

const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFT_META_NFPROTO: u32 = 15;
const NFT_META_L4PROTO: u32 = 16;
const NFTA_PAYLOAD_DREG: u16 = 1;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFT_CMP_EQ: u32 = 0;
const NFTA_IMMEDIATE_DREG: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_REDIR_REG_PROTO_MIN: u16 = 1;
const NFTA_REDIR_FLAGS: u16 = 3;
const NFTA_REJECT_TYPE: u16 = 1;
const NFTA_REJECT_ICMP_CODE: u16 = 2;
const NFT_REJECT_ICMPX_UNREACH: u32 = 2;
const NFT_REJECT_ICMPX_PORT_UNREACH: u8 = 1;
const NFT_REG_VERDICT: u32 = 0;
const NFT_REG_1: u32 = 1;

const NAT_BEFORE_FILTER: i32 = -100;
const FILTER: i32 = 0;
const TCP: u8 = IPPROTO_TCP as u8;
const UDP: u8 = IPPROTO_UDP as u8;

/// The whole transaction: all of it is in force afterwards, or nothing.
pub(crate) fn rules() -> Vec<u8> {
    let mut messages = vec![
        batch(NFNL_MSG_BATCH_BEGIN),
        table(),
        chain(CATCH, "nat", NAT_BEFORE_FILTER, NF_ACCEPT),
        chain(HOLD, "filter", FILTER, NF_DROP),
        rule(CATCH, &[to_dns(UDP), redirect(DNS_PORT)]),
        rule(CATCH, &[to_dns(TCP), redirect(DNS_PORT)]),
    ];
    messages.extend(own_addresses().map(|address| rule(CATCH, &[address, accept()])));
    messages.push(rule(CATCH, &[protocol_is(TCP), redirect(TRANSPARENT_PORT)]));
    messages.extend(own_addresses().map(|address| rule(HOLD, &[address, accept()])));
    messages.push(rule(HOLD, &[protocol_is(UDP), reject()]));
    messages.push(batch(NFNL_MSG_BATCH_END));
    messages.concat()
}

/// `struct nfgenmsg`: family, version, resource.
fn family(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

fn batch(kind: u16) -> Vec<u8> {
    marker(kind, &family(0, NFNL_SUBSYS_NFTABLES))
}

fn make(kind: u16, flags: i32, attributes: &[Vec<u8>]) -> Vec<u8> {
    request(NFNL_SUBSYS_NFTABLES << 8 | kind, NLM_F_CREATE | flags, &family(NFPROTO_INET, 0), attributes)
}

fn table() -> Vec<u8> {
    make(NFT_MSG_NEWTABLE, 0, &[text(NFTA_TABLE_NAME, TABLE)])
}

fn chain(name: &str, kind: &str, priority: i32, policy: u32) -> Vec<u8> {
    let hook =
        [number(NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT), number(NFTA_HOOK_PRIORITY, priority.cast_unsigned())];
    let attributes = [
        text(NFTA_CHAIN_TABLE, TABLE),
        text(NFTA_CHAIN_NAME, name),
        nest(NFTA_CHAIN_HOOK, &hook),
        number(NFTA_CHAIN_POLICY, policy),
        text(NFTA_CHAIN_TYPE, kind),
    ];
    make(NFT_MSG_NEWCHAIN, 0, &attributes)
}

/// One part of a rule: a condition or what is done.
type RulePart = Vec<Vec<u8>>;

fn rule(chain: &str, parts: &[RulePart]) -> Vec<u8> {
    let attributes = [
        text(NFTA_RULE_TABLE, TABLE),
        text(NFTA_RULE_CHAIN, chain),
        nest(NFTA_RULE_EXPRESSIONS, &parts.concat()),
    ];
    make(NFT_MSG_NEWRULE, NLM_F_APPEND, &attributes)
}

fn expression(name: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    nest(NFTA_LIST_ELEM, &[text(NFTA_EXPR_NAME, name), nest(NFTA_EXPR_DATA, attributes)])
}

fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[number(NFTA_META_KEY, key), number(NFTA_META_DREG, NFT_REG_1)])
}

fn payload(base: u32, offset: u32, length: usize) -> Vec<u8> {
    expression(
        "payload",
        &[
            number(NFTA_PAYLOAD_DREG, NFT_REG_1),
            number(NFTA_PAYLOAD_BASE, base),
            number(NFTA_PAYLOAD_OFFSET, offset),
            number(NFTA_PAYLOAD_LEN, u32::try_from(length).unwrap_or_default()),
        ],
    )
}

fn equals(value: &[u8]) -> Vec<u8> {
    expression(
        "cmp",
        &[
            number(NFTA_CMP_SREG, NFT_REG_1),
            number(NFTA_CMP_OP, NFT_CMP_EQ),
            nest(NFTA_CMP_DATA, &[attribute(NFTA_DATA_VALUE, value)]),
        ],
    )
}

fn network_is(protocol: u8) -> RulePart {
    vec![meta(NFT_META_NFPROTO), equals(&[protocol])]
}

fn protocol_is(protocol: u8) -> RulePart {
    vec![meta(NFT_META_L4PROTO), equals(&[protocol])]
}

/// Only over IPv4, which is what `resolv.conf` inside names: answers to UDP need a socket per family.
fn to_dns(protocol: u8) -> RulePart {
    const DESTINATION_PORT: u32 = 2;
    let port =
        vec![payload(NFT_PAYLOAD_TRANSPORT_HEADER, DESTINATION_PORT, 2), equals(&DNS_PORT.to_be_bytes())];
    [network_is(NFPROTO_IPV4), protocol_is(protocol), port].concat()
}

fn own_addresses() -> impl Iterator<Item = RulePart> {
    let v4 = [&Ipv4Addr::LOCALHOST.octets()[..1], &OWN_V4.octets()].map(to_v4);
    let v6 = [Ipv6Addr::LOCALHOST, OWN_V6].map(|address| to_v6(&address.octets()));
    v4.into_iter().chain(v6)
}

/// To an address that begins with these bytes.
fn to_v4(prefix: &[u8]) -> RulePart {
    const DESTINATION: u32 = 16;
    let destination = vec![payload(NFT_PAYLOAD_NETWORK_HEADER, DESTINATION, prefix.len()), equals(prefix)];
    [network_is(NFPROTO_IPV4), destination].concat()
}

fn to_v6(address: &[u8]) -> RulePart {
    const DESTINATION: u32 = 24;
    let destination = vec![payload(NFT_PAYLOAD_NETWORK_HEADER, DESTINATION, address.len()), equals(address)];
    [network_is(NFPROTO_IPV6), destination].concat()
}

fn immediate(register: u32, data: Vec<u8>) -> Vec<u8> {
    expression("immediate", &[number(NFTA_IMMEDIATE_DREG, register), nest(NFTA_IMMEDIATE_DATA, &[data])])
}

fn accept() -> RulePart {
    let verdict = nest(NFTA_DATA_VERDICT, &[number(NFTA_VERDICT_CODE, NF_ACCEPT)]);
    vec![immediate(NFT_REG_VERDICT, verdict)]
}

/// To the same port of the loopback address of the packet's family.
fn redirect(port: u16) -> RulePart {
    let attributes =
        [number(NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1), number(NFTA_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED)];
    vec![
        immediate(NFT_REG_1, attribute(NFTA_DATA_VALUE, &port.to_be_bytes())),
        expression("redir", &attributes),
    ]
}

fn reject() -> RulePart {
    let attributes = [
        number(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH),
        attribute(NFTA_REJECT_ICMP_CODE, &[NFT_REJECT_ICMPX_PORT_UNREACH]),
    ];
    vec![expression("reject", &attributes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes, as the kernel reads them: type without flags, and content.
    fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
        let mut found = Vec::new();
        while let Some((header, _)) = bytes.split_first_chunk::<4>() {
            let length = usize::from(u16::from_le_bytes([header[0], header[1]]));
            found.push((u16::from_le_bytes([header[2], header[3]]) & 0x3fff, &bytes[4..length]));
            bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
        }
        found
    }

    fn find(bytes: &[u8], kind: u16) -> &[u8] {
        attributes(bytes).into_iter().find(|(found, _)| *found == kind).map_or(&[], |(_, value)| value)
    }

    fn word(bytes: &[u8], kind: u16) -> String {
        String::from_utf8(find(bytes, kind).to_vec()).unwrap().trim_end_matches('\0').to_owned()
    }

    fn hex(bytes: &[u8]) -> String {
        ringfence_types::hex(bytes)
    }

    /// One expression with the fields that matter, in words of nf_tables.
    fn shown(expression: &[u8]) -> String {
        let (name, data) = (word(expression, NFTA_EXPR_NAME), find(expression, NFTA_EXPR_DATA));
        let field = |kind| hex(find(data, kind)).trim_start_matches('0').to_owned();
        match name.as_str() {
            "meta" => format!("meta {}", field(NFTA_META_KEY)),
            "payload" => {
                let fields = [NFTA_PAYLOAD_BASE, NFTA_PAYLOAD_OFFSET, NFTA_PAYLOAD_LEN].map(field);
                format!("payload {}", fields.join("."))
            }
            "cmp" => format!("= {}", hex(find(find(data, NFTA_CMP_DATA), NFTA_DATA_VALUE))),
            "immediate" => {
                let data = find(data, NFTA_IMMEDIATE_DATA);
                let verdict = hex(find(find(data, NFTA_DATA_VERDICT), NFTA_VERDICT_CODE));
                format!("set {}{verdict}", hex(find(data, NFTA_DATA_VALUE)))
            }
            "redir" => format!("redir {}.{}", field(NFTA_REDIR_REG_PROTO_MIN), field(NFTA_REDIR_FLAGS)),
            _ => format!("{name} {}.{}", field(NFTA_REJECT_TYPE), field(NFTA_REJECT_ICMP_CODE)),
        }
    }

    fn message_shown(kind: u16, body: &[u8]) -> String {
        let attributes_only = &body[4..];
        match kind.to_be_bytes() {
            [10, 0] => format!("table {}", word(attributes_only, NFTA_TABLE_NAME)),
            [10, 3] => {
                let hook = find(attributes_only, NFTA_CHAIN_HOOK);
                format!(
                    "chain {} {} hook {} priority {} policy {}",
                    word(attributes_only, NFTA_CHAIN_NAME),
                    word(attributes_only, NFTA_CHAIN_TYPE),
                    hex(find(hook, NFTA_HOOK_HOOKNUM)),
                    hex(find(hook, NFTA_HOOK_PRIORITY)),
                    hex(find(attributes_only, NFTA_CHAIN_POLICY)),
                )
            }
            [10, 6] => {
                let parts = attributes(find(attributes_only, NFTA_RULE_EXPRESSIONS));
                let parts: Vec<String> = parts.iter().map(|(_, part)| shown(part)).collect();
                format!("{}: {}", word(attributes_only, NFTA_RULE_CHAIN), parts.join(", "))
            }
            [0, 16] => "begin".to_owned(),
            [0, 17] => "end".to_owned(),
            _ => panic!("{kind}"),
        }
    }

    fn read_back(mut bytes: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
            assert!(length.is_multiple_of(4), "the next message begins at a multiple of four");
            found.push(message_shown(u16::from_le_bytes([bytes[4], bytes[5]]), &bytes[16..length]));
            bytes = &bytes[length..];
        }
        found
    }

    #[test]
    fn the_rules_read_back_as_they_are_written_above() {
        let own = |chain: &str| {
            [
                format!("{chain}: meta f, = 02, payload 1.10.1, = 7f, set 00000001"),
                format!("{chain}: meta f, = 02, payload 1.10.4, = c0000201, set 00000001"),
                format!("{chain}: meta f, = 0a, payload 1.18.10, = {}1, set 00000001", "0".repeat(31)),
                format!(
                    "{chain}: meta f, = 0a, payload 1.18.10, = fd72696e67660000{}1, set 00000001",
                    "0".repeat(15)
                ),
            ]
        };
        let mut expected = vec![
            "begin".to_owned(),
            "table ringfence".to_owned(),
            "chain catch nat hook 00000003 priority ffffff9c policy 00000001".to_owned(),
            "chain hold filter hook 00000003 priority 00000000 policy 00000000".to_owned(),
            "catch: meta f, = 02, meta 10, = 11, payload 2.2.2, = 0035, set 0035, redir 1.2".to_owned(),
            "catch: meta f, = 02, meta 10, = 06, payload 2.2.2, = 0035, set 0035, redir 1.2".to_owned(),
        ];
        expected.extend(own("catch"));
        expected.push("catch: meta 10, = 06, set 03ff, redir 1.2".to_owned());
        expected.extend(own("hold"));
        expected.push("hold: meta 10, = 11, reject 2.1".to_owned());
        expected.push("end".to_owned());
        assert_eq!(read_back(&rules()), expected);
    }
}
