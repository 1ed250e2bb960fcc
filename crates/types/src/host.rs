//! Host patterns: hosts and ports in normalised spelling.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

use crate::address::{SpecialAddress, special_address, special_name};

/// A host pattern in normalised spelling, with a port if it is limited to one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// Lower case, ASCII, without a final dot.
    Name(String),
    /// Every name below this one, without the name itself.
    Below(String),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostPatternError {
    #[error("the host is empty")]
    Empty,
    #[error("host `{0}` contains `{1}`; give a host name, not a URL")]
    Forbidden(String, String),
    #[error("host `*` means every host; that needs `--net full`")]
    Everything,
    #[error("host `{0}` has a `*` that is not a whole first label")]
    Wildcard(String),
    #[error("host `{0}` is an unusual spelling of the address `{1}`; programs disagree about such spellings")]
    Ambiguous(String, Ipv4Addr),
    #[error("host `{0}` ends in a number but is not an IPv4 address")]
    Numeric(String),
    #[error("host `{0}` is an IPv4 address in IPv6 clothing; write `{1}`")]
    Mapped(String, Ipv4Addr),
    #[error("`{0}` is not an IPv6 address; write it as `[2001:db8::1]`")]
    V6(String),
    #[error("host `{0}` is not a valid domain name")]
    Name(String),
    #[error("port `{0}` is not a number from 1 to 65535")]
    Port(String),
}

impl HostPattern {
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        check_characters(text)?;
        if let Some(bracketed) = text.strip_prefix('[') {
            return parse_v6(text, bracketed);
        }
        let (host, port) = match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => return Err(HostPatternError::V6(text.to_owned())),
            Some((host, port)) => (host, Some(parse_port(port)?)),
            None => (text, None),
        };
        Ok(Self { host: parse_host(host)?, port })
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// `None`: any port.
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        Self::parse(text)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(f)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Host {
    /// Classifies a host that is this machine, its network or its cloud.
    pub fn special(&self) -> Option<SpecialAddress> {
        match self {
            Self::Name(name) => special_name(name),
            Self::Below(_) => None,
            Self::V4(address) => special_address((*address).into()),
            Self::V6(address) => special_address((*address).into()),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::V4(address) => write!(f, "{address}"),
            Self::V6(address) => write!(f, "[{address}]"),
        }
    }
}

/// Refuses characters at which some parsers end a host, because two parsers would see different hosts.
fn check_characters(text: &str) -> Result<(), HostPatternError> {
    let forbidden = |c: char| c.is_control() || c.is_whitespace() || "%@/\\?#\"'<>|^`{},;&=$!()".contains(c);
    match text.chars().find(|c| forbidden(*c)) {
        Some(c) => Err(HostPatternError::Forbidden(visible(text), visible(&c.to_string()))),
        None => Ok(()),
    }
}

fn parse_v6(text: &str, bracketed: &str) -> Result<HostPattern, HostPatternError> {
    let wrong = || HostPatternError::V6(text.to_owned());
    let (address, rest) = bracketed.split_once(']').ok_or_else(wrong)?;
    let address: Ipv6Addr = address.parse().ok().ok_or_else(wrong)?;
    if let Some(inner) = address.to_ipv4_mapped() {
        return Err(HostPatternError::Mapped(text.to_owned(), inner));
    }
    let port = match rest.strip_prefix(':') {
        Some(port) => Some(parse_port(port)?),
        None if rest.is_empty() => None,
        None => return Err(wrong()),
    };
    Ok(HostPattern { host: Host::V6(address), port })
}

/// Digits only: parsers disagree about `+80` and `080`.
fn parse_port(text: &str) -> Result<u16, HostPatternError> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let port = if plain { text.parse().ok() } else { None };
    port.ok_or_else(|| HostPatternError::Port(text.to_owned()))
}

fn parse_host(text: &str) -> Result<Host, HostPatternError> {
    if text == "*" || text == "*." {
        return Err(HostPatternError::Everything);
    }
    if let Some(below) = text.strip_prefix("*.") {
        return match parse_plain(below)? {
            Host::Name(name) => Ok(Host::Below(name)),
            _ => Err(HostPatternError::Wildcard(text.to_owned())),
        };
    }
    parse_plain(text)
}

fn parse_plain(text: &str) -> Result<Host, HostPatternError> {
    let given = text.strip_suffix('.').unwrap_or(text);
    if given.is_empty() {
        return Err(HostPatternError::Empty);
    }
    if given.contains('*') {
        return Err(HostPatternError::Wildcard(text.to_owned()));
    }
    let name = to_ascii(given)?;
    match read_as_inet_aton(&name) {
        Some(address) if address.to_string() == given => Ok(Host::V4(address)),
        Some(address) => Err(HostPatternError::Ambiguous(text.to_owned(), address)),
        None if ends_in_number(&name) => Err(HostPatternError::Numeric(text.to_owned())),
        None => Ok(Host::Name(name)),
    }
}

fn to_ascii(text: &str) -> Result<String, HostPatternError> {
    let ascii = Uts46::new().to_ascii(
        text.as_bytes(),
        AsciiDenyList::STD3,
        Hyphens::CheckFirstLast,
        DnsLength::Verify,
    );
    ascii.ok().map(std::borrow::Cow::into_owned).ok_or_else(|| HostPatternError::Name(text.to_owned()))
}

/// The address that C's `inet_aton` reads: one to four parts, decimal, octal or hexadecimal; the last part fills the remaining
/// bytes. Many programs try it before resolving a name.
fn read_as_inet_aton(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u32> = host.split('.').map(read_part).collect::<Option<_>>()?;
    let (last, leading) = parts.split_last()?;
    if leading.len() > 3 || leading.iter().any(|part| *part > 255) {
        return None;
    }
    let free_bits = 32 - 8 * u32::try_from(leading.len()).ok()?;
    if u64::from(*last) >= 1_u64 << free_bits {
        return None;
    }
    let high = leading.iter().fold(0_u32, |high, part| high << 8 | part);
    // With no leading part the shift would be by all 32 bits.
    Some(Ipv4Addr::from_bits(high.checked_shl(free_bits).unwrap_or(0) | last))
}

fn read_part(part: &str) -> Option<u32> {
    if let Some(hex) = part.strip_prefix("0x") {
        return if hex.is_empty() { Some(0) } else { digits(hex, 16) };
    }
    match part.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => digits(octal, 8),
        _ => digits(part, 10),
    }
}

fn digits(text: &str, radix: u32) -> Option<u32> {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    if plain { u32::from_str_radix(text, radix).ok() } else { None }
}

fn ends_in_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") && read_part(last).is_some()
}

fn visible(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        HostPattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
    }

    #[test]
    fn one_host_has_one_spelling() {
        for (given, canonical) in [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("EXAMPLE。org", "example.org"),
            ("example.org:443", "example.org:443"),
            ("*.Example.org:8443", "*.example.org:8443"),
            ("*.internal", "*.internal"),
            ("localhost", "localhost"),
            ("192.0.2.7", "192.0.2.7"),
            ("[2001:DB8::0:1]:443", "[2001:db8::1]:443"),
            ("[::1]", "[::1]"),
            ("r3---sn-x.example", "r3---sn-x.example"),
            ("0x7f.example", "0x7f.example"),
        ] {
            assert_eq!(shown(given), canonical);
        }
    }

    #[test]
    fn every_inet_aton_spelling_is_recognised() {
        for text in [
            "127.1",
            "0x7f.1",
            "2130706433",
            "0177.0.0.1",
            "127.0.1",
            "0x7f000001",
            "017700000001",
            "127.0.0.01",
        ] {
            let error = HostPattern::parse(text).unwrap_err();
            assert_eq!(error, HostPatternError::Ambiguous(text.to_owned(), Ipv4Addr::LOCALHOST));
        }
        assert_eq!(
            HostPattern::parse("0").unwrap_err(),
            HostPatternError::Ambiguous("0".into(), Ipv4Addr::UNSPECIFIED)
        );
        assert!(matches!(HostPattern::parse("１２７.0.0.1"), Err(HostPatternError::Ambiguous(..))));
        assert!(matches!(HostPattern::parse("0X7F.0.0.1"), Err(HostPatternError::Ambiguous(..))));
    }

    #[test]
    fn numbers_that_are_no_address_are_no_name_either() {
        for text in ["1.2.3.4.5", "256.1.1.1", "4294967296", "example.1", "1.2.3.0x100", "08.1.1.1"] {
            assert!(matches!(HostPattern::parse(text), Err(HostPatternError::Numeric(_))), "{text}");
        }
    }

    #[test]
    fn what_two_readers_would_read_differently_is_refused() {
        for text in [
            "a\0b",
            "a b",
            "a%2eb",
            "user@host",
            "user:pw@host",
            "http://host",
            "host/path",
            "host?x",
            "host#x",
            "a\\b",
            "a\tb",
            "a\u{7f}b",
        ] {
            assert!(matches!(HostPattern::parse(text), Err(HostPatternError::Forbidden(..))), "{text:?}");
        }
        assert_eq!(
            HostPattern::parse("a\0").unwrap_err().to_string(),
            "host `a\\u{0}` contains `\\u{0}`; give a host name, not a URL"
        );
        for text in
            ["a..b", ".a", "-a.b", "a_b", &"a".repeat(64), &"abc.".repeat(80), "a\u{ad}\u{200d}b", "xn--a"]
        {
            assert!(HostPattern::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(HostPattern::parse(""), Err(HostPatternError::Empty));
        assert_eq!(HostPattern::parse("."), Err(HostPatternError::Empty));
    }

    #[test]
    fn wildcards_are_whole_first_labels() {
        assert_eq!(
            HostPattern::parse("*").unwrap_err().to_string(),
            "host `*` means every host; that needs `--net full`"
        );
        assert_eq!(HostPattern::parse("*:443"), Err(HostPatternError::Everything));
        for text in ["a*.b", "a.*.b", "*a.b", "**.b", "*.*.b", "*.1.2.3.4"] {
            assert!(matches!(HostPattern::parse(text), Err(HostPatternError::Wildcard(_))), "{text}");
        }
    }

    #[test]
    fn addresses_of_version_6_need_brackets_and_no_disguise() {
        for text in ["::1", "2001:db8::1", "[::1", "[::1]x", "[fe80::1", "[nonsense]", "[1.2.3.4]"] {
            assert!(matches!(HostPattern::parse(text), Err(HostPatternError::V6(_))), "{text}");
        }
        assert!(matches!(HostPattern::parse("[::ffff:127.0.0.1]"), Err(HostPatternError::Mapped(..))));
        assert!(matches!(HostPattern::parse("[fe80::1%eth0]"), Err(HostPatternError::Forbidden(..))));
    }

    #[test]
    fn ports_are_strict() {
        for port in ["", "0", "65536", "080", "+80", "-1", "8a", "443:", "99999999999"] {
            assert!(HostPattern::parse(&format!("example.org:{port}")).is_err(), "{port}");
        }
        assert_eq!(HostPattern::parse("example.org:65535").unwrap().port(), Some(65535));
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_stable(text in "\\PC{0,24}|[a-z0-9.*:x-]{0,24}|\\[[0-9a-f:]{0,20}\\](:[0-9]{1,5})?") {
            if let Ok(rule) = HostPattern::parse(&text) {
                let shown = rule.to_string();
                prop_assert!(shown.is_ascii() && shown == shown.to_ascii_lowercase());
                prop_assert_eq!(HostPattern::parse(&shown), Ok(rule));
            }
        }

        #[test]
        fn no_name_is_an_address_in_disguise(text in "[0-9a-fx.]{1,16}") {
            if let Ok(Host::Name(name)) = HostPattern::parse(&text).map(|rule| rule.host) {
                prop_assert_eq!(read_as_inet_aton(&name), None);
            }
        }
    }
}
