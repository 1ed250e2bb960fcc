//! Client hello: detects the protocol of a client from its first bytes and reads the server name of TLS.

use rustls::server::Acceptor;

use crate::flow_gate::FlowTarget;
use ringfence_types::{Host, PolicyLayer, Refusal, RefusalCode, RuleId};

/// Protocol that the first bytes of a client start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstBytes {
    Tls,
    Http,
    Other,
    /// Too few bytes to decide.
    Open,
}

/// Longest HTTP method that is recognised.
const LONGEST_METHOD: usize = 32;

impl FirstBytes {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [] | [0x16] => Self::Open,
            [0x16, 3, ..] => Self::Tls,
            _ => Self::of_text(bytes),
        }
    }

    /// Treats as HTTP everything that some server would accept as a request: a method, white space, and a path, a URL or (after
    /// `CONNECT`) any text. Servers skip empty lines before the method, and some ignore its case.
    fn of_text(bytes: &[u8]) -> Self {
        let line = bytes.trim_ascii_start();
        let method = line.iter().take(LONGEST_METHOD).take_while(|byte| is_of_token(**byte)).count();
        let (method, rest) = line.split_at_checked(method).unwrap_or_default();
        let gap = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let target = rest.get(gap..).unwrap_or_default();
        match (method.len(), gap) {
            (LONGEST_METHOD.., _) => Self::Other,
            (_, 0) if rest.is_empty() => Self::Open,
            (0, _) | (_, 0) => Self::Other,
            // `git://` begins with four digits, a word and a path.
            _ if !method.first().is_some_and(u8::is_ascii_alphabetic) => Self::Other,
            _ if method.eq_ignore_ascii_case(b"CONNECT") => Self::Http,
            _ => Self::of_target(target),
        }
    }

    fn of_target(target: &[u8]) -> Self {
        const SCHEME: &[u8] = b"http";
        let begun = target.get(..SCHEME.len()).unwrap_or(target);
        match target {
            [b'/' | b'*', ..] => Self::Http,
            _ if begun.eq_ignore_ascii_case(SCHEME) => Self::Http,
            _ if SCHEME.starts_with(&begun.to_ascii_lowercase()) => Self::Open,
            _ => Self::Other,
        }
    }
}

fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads a `ClientHello` as it arrives.
pub(crate) struct ClientHelloReader {
    acceptor: Acceptor,
    read: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientHello {
    Incomplete,
    /// The server name, if the client sent one.
    Complete(Option<String>),
    /// Too long, or no `ClientHello`.
    Broken(String),
}

/// With every extension that is in use, a hello has less than a quarter of this.
const LONGEST_HELLO: usize = 16 * 1024;

impl ClientHelloReader {
    pub(crate) fn new() -> Self {
        Self { acceptor: Acceptor::default(), read: 0 }
    }

    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> ClientHello {
        self.read += bytes.len();
        if self.read > LONGEST_HELLO {
            return ClientHello::Broken("the TLS greeting is too long".to_owned());
        }
        while !bytes.is_empty() {
            if let Err(error) = self.acceptor.read_tls(&mut bytes) {
                return ClientHello::Broken(format!("the TLS greeting cannot be read: {error}"));
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    return ClientHello::Complete(accepted.client_hello().server_name().map(str::to_owned));
                }
                Err((error, _alert)) => {
                    return ClientHello::Broken(format!("the TLS greeting cannot be read: {error}"));
                }
            }
        }
        ClientHello::Incomplete
    }
}

/// Requires that the server name in TLS is the host that the gate evaluated. An address has no server name.
///
/// The proxy cannot read a name encrypted by ECH; the outer name must follow the same rule. The stub resolver does not return the
/// records that carry ECH keys, so no client uses ECH by default. A client that brings its own key can reach another host of the
/// same server (docs/network.md). The proxy cannot refuse ECH: browsers send GREASE extensions that look the same.
pub(crate) fn check_name(target: &FlowTarget, asked: Option<&str>) -> Result<(), Refusal> {
    match (&target.host, asked) {
        (Host::Name(_), Some(name)) if target.is_called(name) => Ok(()),
        (Host::V4(_) | Host::V6(_), None) => Ok(()),
        (_, Some(name)) => Err(disagreement(format!("TLS asks for `{name}` on a connection to `{target}`"))),
        (_, None) => Err(disagreement(format!("TLS asks for no name on a connection to `{target}`"))),
    }
}

pub(crate) fn disagreement(message: String) -> Refusal {
    Refusal {
        code: RefusalCode::Network,
        layer: PolicyLayer::Floor,
        rule: RuleId::NetworkNames.into(),
        message,
        hint: Some("connect to the host that is meant, under its own name".to_owned()),
    }
}

/// A fatal alert, for a client that has sent its hello.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TlsAlert {
    AccessDenied,
    InternalError,
    UnrecognizedName,
}

impl TlsAlert {
    /// One record of TLS: alert, version 1.2, two bytes, fatal, and which.
    pub(crate) fn record(self) -> &'static [u8] {
        match self {
            Self::AccessDenied => &[21, 3, 3, 0, 2, 2, 49],
            Self::InternalError => &[21, 3, 3, 0, 2, 2, 80],
            Self::UnrecognizedName => &[21, 3, 3, 0, 2, 2, 112],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn first_bytes_tell_the_protocol() {
        for (bytes, expected) in [
            (&b""[..], FirstBytes::Open),
            (b"\x16", FirstBytes::Open),
            (b"\x16\x03\x01", FirstBytes::Tls),
            (b"\x16\x02", FirstBytes::Other),
            (b"G", FirstBytes::Open),
            (b"\r\n", FirstBytes::Open),
            (b"GET ", FirstBytes::Open),
            (b"GET /", FirstBytes::Http),
            (b"\r\n\r\nGET /", FirstBytes::Http),
            (b"get\t /", FirstBytes::Http),
            (b"M-SEARCH * HTTP/1.1", FirstBytes::Http),
            (b"OPTIONS *", FirstBytes::Http),
            (b"GET ht", FirstBytes::Open),
            (b"GET HTTP://a/", FirstBytes::Http),
            (b"CONNECT evil.test:443", FirstBytes::Http),
            (b"PRI * HTTP/2.0", FirstBytes::Http),
            (b"SSH-2.0-x\r\n", FirstBytes::Other),
            (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", FirstBytes::Other),
            (b"EHLO host.test\r\n", FirstBytes::Other),
            (b"USER henry\r\n", FirstBytes::Other),
            (b"*1\r\n$4\r\nPING\r\n", FirstBytes::Other),
            (b"AMQP\0\0\x09\x01", FirstBytes::Other),
            (b"\x00\x00\x00\x08", FirstBytes::Other),
            (b"0032git-upload-pack /project\0", FirstBytes::Other),
            (b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJ", FirstBytes::Other),
        ] {
            assert_eq!(FirstBytes::of(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_name_in_tls_is_the_host_that_was_judged() {
        let name = FlowTarget::from_parts("a.test", 443).unwrap();
        let address = FlowTarget::from_parts("192.0.2.1", 443).unwrap();
        assert!(check_name(&name, Some("A.test")).is_ok());
        assert!(check_name(&address, None).is_ok());
        for (target, asked) in [
            (&name, None),
            (&name, Some("b.test")),
            (&name, Some("x.a.test")),
            (&address, Some("a.test")),
            (&address, Some("192.0.2.1")),
        ] {
            assert!(check_name(target, asked).is_err(), "{target} {asked:?}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_are_no_hello(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..60)) {
            let mut reader = ClientHelloReader::new();
            let mut all = vec![0x16, 3, 1];
            let mut state = reader.read(&all);
            for chunk in chunks {
                if state != ClientHello::Incomplete {
                    break;
                }
                all.extend(&chunk);
                state = reader.read(&chunk);
            }
            prop_assert_eq!(FirstBytes::of(&all), FirstBytes::Tls);
            // Random bytes never yield a name, and the reader does not wait for more of them without a limit.
            prop_assert!(!matches!(state, ClientHello::Complete(_)), "{:?}", state);
            prop_assert!(state != ClientHello::Incomplete || all.len() <= LONGEST_HELLO);
        }

        #[test]
        fn what_is_spoken_does_not_change_with_more_of_it(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let known = (0..bytes.len()).map(|end| FirstBytes::of(&bytes[..end])).find(|speech| *speech != FirstBytes::Open);
            prop_assert!(known.is_none_or(|known| known == FirstBytes::of(&bytes)));
        }
    }
}
