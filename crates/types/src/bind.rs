//! Where a TCP listener may be: on loopback, or with TLS.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::Bytes;

/// How a connection comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// On loopback alone.
    Plain,
    Tls,
}

/// Who can reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Programs of this machine.
    Loopback,
    Network,
}

/// An address that may be listened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    address: SocketAddr,
    transport: Transport,
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

impl Bind {
    pub fn new(address: SocketAddr, transport: Transport) -> Result<Self, BindError> {
        let bind = Self { address, transport };
        match (bind.reach(), transport) {
            (Reach::Network, Transport::Plain) => Err(BindError::InTheClear(address)),
            _ => Ok(bind),
        }
    }

    /// A name is none: what it leads to may change.
    pub fn parse(text: &str, transport: Transport) -> Result<Self, BindError> {
        let shown = || Bytes::from(text).display();
        let address = SocketAddr::from_str(text).map_err(|_syntax| BindError::Syntax(shown()))?;
        Self::new(address, transport)
    }

    /// The same address, with the port that the kernel chose where `0` was asked for.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.address.set_port(port);
        self
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// `0.0.0.0` and `::` are every address, also those of the network.
    pub fn reach(&self) -> Reach {
        if self.address.ip().to_canonical().is_loopback() { Reach::Loopback } else { Reach::Network }
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            Transport::Plain => "http",
            Transport::Tls => "https",
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
            let bind = Bind::parse(here, Transport::Plain).unwrap();
            assert_eq!(bind.reach(), Reach::Loopback, "{here}");
        }
        for open in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[::ffff:10.0.0.1]:80", "[fe80::1]:80"] {
            let error = Bind::parse(open, Transport::Plain).unwrap_err();
            assert!(matches!(error, BindError::InTheClear(_)) && error.hint().contains("TLS"), "{open}");
            assert_eq!(Bind::parse(open, Transport::Tls).unwrap().reach(), Reach::Network);
        }
        for wrong in ["", "localhost:80", "127.0.0.1", ":80", "127.0.0.1:99999", "0x7f.1:80"] {
            assert!(matches!(Bind::parse(wrong, Transport::Tls), Err(BindError::Syntax(_))), "{wrong}");
        }
    }
}
