//! Flow targets: parses destinations and maps synthetic addresses to names.

use std::net::{IpAddr, SocketAddr};

use ringfence_types::{Host, HostPattern, HostPatternError, PolicyLayer, Refusal, RefusalCode, RuleId};

use crate::flow_gate::FlowTarget;
use crate::synthetic_addresses::{AddressMeaning, SyntheticNames};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error(transparent)]
    Host(#[from] HostPatternError),
    #[error("`{0}` is a pattern, not a host")]
    Pattern(String),
    #[error("a port from 1 to 65535 is missing")]
    NoPort,
    #[error("the host has a port of its own")]
    TwoPorts,
}

impl FlowTarget {
    /// Reads `host:port`.
    pub(crate) fn from_authority(text: &str) -> Result<Self, TargetError> {
        let rule = HostPattern::parse(text)?;
        let port = rule.port().ok_or(TargetError::NoPort)?;
        Ok(Self { host: one_host(&rule)?, port })
    }

    /// A host without a port, and a port.
    pub(crate) fn from_parts(host: &str, port: u16) -> Result<Self, TargetError> {
        let rule = HostPattern::parse(host)?;
        match (rule.port(), port) {
            (Some(_), _) => Err(TargetError::TwoPorts),
            (None, 0) => Err(TargetError::NoPort),
            (None, port) => Ok(Self { host: one_host(&rule)?, port }),
        }
    }

    /// Normalises an address, for example an IPv4 address mapped into IPv6.
    pub(crate) fn from_address(address: SocketAddr) -> Self {
        let host = match address.ip().to_canonical() {
            IpAddr::V4(address) => Host::V4(address),
            IpAddr::V6(address) => Host::V6(address),
        };
        Self { host, port: address.port() }
    }

    /// Replaces a synthetic address by its name, so the rule of the name applies.
    pub(crate) fn named(self, names: &SyntheticNames) -> Result<Self, Refusal> {
        let address: IpAddr = match &self.host {
            Host::V4(address) => (*address).into(),
            Host::V6(address) => (*address).into(),
            Host::Name(_) | Host::Below(_) => return Ok(self),
        };
        match names.meaning(address) {
            AddressMeaning::Itself => Ok(self),
            AddressMeaning::Name(name) => {
                Ok(Self { host: Host::Name(name.as_ref().to_owned()), port: self.port })
            }
            AddressMeaning::Nobody => Err(stands_for_nobody(address)),
        }
    }

    /// Whether a name from TLS or a header means this host.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        HostPattern::parse(name).is_ok_and(|rule| *rule.host() == self.host && rule.port().is_none())
    }
}

fn one_host(rule: &HostPattern) -> Result<Host, TargetError> {
    match rule.host() {
        Host::Below(_) => Err(TargetError::Pattern(rule.host().to_string())),
        host => Ok(host.clone()),
    }
}

fn stands_for_nobody(address: IpAddr) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkNames.into(),
        message: format!("{address} stands for no name of this session"),
        hint: Some("ask for the name again".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_one_host_and_one_port() {
        let target = FlowTarget::from_authority("Example.ORG.:443").unwrap();
        assert_eq!(target.to_string(), "example.org:443");
        for text in [
            "example.org",
            "example.org:",
            "example.org:0",
            "example.org:65536",
            "example.org:65979",
            "example.org:443:443",
            "*.example.org:443",
            "user@example.org:443",
            "user:pass@example.org:443",
            "evil.test\0.allowed.test:443",
            "evil.test%00.allowed.test:443",
            "evil.test/.allowed.test:443",
            "evil.test#.allowed.test:443",
            "evil.test\r\n.allowed.test:443",
            "evil.test .allowed.test:443",
            "[fd00::1%25eth0]:443",
            "[::ffff:127.0.0.1]:443",
            "127.1:80",
            "0x7f.0.0.1:80",
            "2130706433:80",
            "0177.0.0.1:80",
            "::1:80",
            "",
            ":443",
        ] {
            assert!(FlowTarget::from_authority(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_host_alone_brings_no_port() {
        assert!(FlowTarget::from_parts("example.org:80", 443).is_err());
        assert!(FlowTarget::from_parts("example.org", 0).is_err());
        assert_eq!(FlowTarget::from_parts("[::1]", 80).unwrap().to_string(), "[::1]:80");
    }

    #[test]
    fn an_address_that_stands_for_a_name_is_that_name() {
        let names = SyntheticNames::new(10);
        let given = names.addresses("a.test").unwrap();
        let target = FlowTarget::from_address((given.v4.to_ipv6_mapped(), 443).into());
        assert_eq!(target.named(&names).unwrap().to_string(), "a.test:443");
        let free = FlowTarget::from_address(([198, 19, 0, 9], 443).into());
        assert!(free.named(&names).is_err());
    }

    #[test]
    fn one_host_has_many_spellings_and_no_other() {
        let target = FlowTarget::from_parts("a.test", 443).unwrap();
        assert!(target.is_called("A.test.") && target.is_called("a.test"));
        assert!(!target.is_called("b.a.test") && !target.is_called("a.test:443") && !target.is_called(""));
    }
}
