//! Where a client says it wants to go, and where that is.

use std::net::{IpAddr, SocketAddr};

use ringfence_types::{Host, HostRule, HostRuleError, Layer, Refusal, RefusalCode};

use crate::gate::Target;
use crate::names::{Meaning, Names};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error(transparent)]
    Host(#[from] HostRuleError),
    #[error("`{0}` is a pattern, not a host")]
    Pattern(String),
    #[error("a port from 1 to 65535 is missing")]
    NoPort,
    #[error("the host has a port of its own")]
    TwoPorts,
}

impl Target {
    /// Reads `host:port`.
    pub(crate) fn from_authority(text: &str) -> Result<Self, TargetError> {
        let rule = HostRule::parse(text)?;
        let port = rule.port().ok_or(TargetError::NoPort)?;
        Ok(Self { host: one_host(&rule)?, port })
    }

    /// A host without a port, and a port.
    pub(crate) fn from_parts(host: &str, port: u16) -> Result<Self, TargetError> {
        let rule = HostRule::parse(host)?;
        match (rule.port(), port) {
            (Some(_), _) => Err(TargetError::TwoPorts),
            (None, 0) => Err(TargetError::NoPort),
            (None, port) => Ok(Self { host: one_host(&rule)?, port }),
        }
    }

    /// An address in whatever clothing counts as what it is.
    pub(crate) fn from_address(address: SocketAddr) -> Self {
        let host = match address.ip().to_canonical() {
            IpAddr::V4(address) => Host::V4(address),
            IpAddr::V6(address) => Host::V6(address),
        };
        Self { host, port: address.port() }
    }

    /// The target as its rule knows it: an address that stands for a name is that name, whoever uses it.
    pub(crate) fn named(self, names: &Names) -> Result<Self, Refusal> {
        let address: IpAddr = match &self.host {
            Host::V4(address) => (*address).into(),
            Host::V6(address) => (*address).into(),
            Host::Name(_) | Host::Below(_) => return Ok(self),
        };
        match names.meaning(address) {
            Meaning::Itself => Ok(self),
            Meaning::Name(name) => Ok(Self { host: Host::Name(name.as_ref().to_owned()), port: self.port }),
            Meaning::Nobody => Err(stands_for_nobody(address)),
        }
    }

    /// Whether a name that a client gives elsewhere, in TLS or a header, is this host.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        HostRule::parse(name).is_ok_and(|rule| *rule.host() == self.host && rule.port().is_none())
    }
}

fn one_host(rule: &HostRule) -> Result<Host, TargetError> {
    match rule.host() {
        Host::Below(_) => Err(TargetError::Pattern(rule.host().to_string())),
        host => Ok(host.clone()),
    }
}

fn stands_for_nobody(address: IpAddr) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: Layer::Floor,
        rule: "network.names".to_owned(),
        message: format!("{address} stands for no name of this session"),
        hint: Some("ask for the name again".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_one_host_and_one_port() {
        let target = Target::from_authority("Example.ORG.:443").unwrap();
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
            assert!(Target::from_authority(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_host_alone_brings_no_port() {
        assert!(Target::from_parts("example.org:80", 443).is_err());
        assert!(Target::from_parts("example.org", 0).is_err());
        assert_eq!(Target::from_parts("[::1]", 80).unwrap().to_string(), "[::1]:80");
    }

    #[test]
    fn an_address_that_stands_for_a_name_is_that_name() {
        let names = Names::new(10);
        let given = names.addresses("a.test").unwrap();
        let target = Target::from_address((given.v4.to_ipv6_mapped(), 443).into());
        assert_eq!(target.named(&names).unwrap().to_string(), "a.test:443");
        let free = Target::from_address(([198, 19, 0, 9], 443).into());
        assert!(free.named(&names).is_err());
    }

    #[test]
    fn one_host_has_many_spellings_and_no_other() {
        let target = Target::from_parts("a.test", 443).unwrap();
        assert!(target.is_called("A.test.") && target.is_called("a.test"));
        assert!(!target.is_called("b.a.test") && !target.is_called("a.test:443") && !target.is_called(""));
    }
}
