//! Bind addresses of TCP listeners: on loopback, or with TLS.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::ByteString;

/// Transport of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BindTransport {
    /// Loopback only.
    Plain,
    Tls,
}

/// Reach of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BindScope {
    /// Programs of this machine only.
    Loopback,
    Network,
}

/// A valid address of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress {
    address: SocketAddr,
    transport: BindTransport,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    #[error("`{0}` is not an address with a port")]
    Syntax(String),
    #[error("`{0}` can be reached by others, and without TLS they could read every token")]
    InTheClear(SocketAddr),
}

impl BindError {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "write `127.0.0.1:7420` or `[::1]:7420`",
            Self::InTheClear(_) => "turn TLS on, or listen on `127.0.0.1`",
        }
    }
}

impl BindAddress {
    pub fn new(address: SocketAddr, transport: BindTransport) -> Result<Self, BindError> {
        let bind = Self { address, transport };
        match (bind.reach(), transport) {
            (BindScope::Network, BindTransport::Plain) => Err(BindError::InTheClear(address)),
            _ => Ok(bind),
        }
    }

    /// Parses an address. Names are refused, because their address may change.
    pub fn parse(text: &str, transport: BindTransport) -> Result<Self, BindError> {
        let shown = || ByteString::from(text).display();
        let address = SocketAddr::from_str(text).map_err(|_syntax| BindError::Syntax(shown()))?;
        Self::new(address, transport)
    }

    /// The same address with the port that the kernel chose for `0`.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.address.set_port(port);
        self
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn transport(&self) -> BindTransport {
        self.transport
    }

    /// `0.0.0.0` and `::` include addresses of the network.
    pub fn reach(&self) -> BindScope {
        if self.address.ip().to_canonical().is_loopback() { BindScope::Loopback } else { BindScope::Network }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            BindTransport::Plain => "http",
            BindTransport::Tls => "https",
        };
        write!(f, "{scheme}://{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S003-21, S003-22.
    #[test]
    fn s003_21_only_loopback_is_served_in_the_clear() {
        for here in ["127.0.0.1:1", "127.3.4.5:80", "[::1]:443", "[::ffff:127.0.0.1]:5"] {
            let bind = BindAddress::parse(here, BindTransport::Plain).unwrap();
            assert_eq!(bind.reach(), BindScope::Loopback, "{here}");
        }
        for open in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[::ffff:10.0.0.1]:80", "[fe80::1]:80"] {
            let error = BindAddress::parse(open, BindTransport::Plain).unwrap_err();
            assert!(matches!(error, BindError::InTheClear(_)) && error.hint().contains("TLS"), "{open}");
            assert_eq!(BindAddress::parse(open, BindTransport::Tls).unwrap().reach(), BindScope::Network);
        }
        for wrong in ["", "localhost:80", "127.0.0.1", ":80", "127.0.0.1:99999", "0x7f.1:80"] {
            assert!(
                matches!(BindAddress::parse(wrong, BindTransport::Tls), Err(BindError::Syntax(_))),
                "{wrong}"
            );
        }
    }
}
