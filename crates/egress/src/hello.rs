//! The first bytes of a client: which protocol, and in TLS which name.

use rustls::server::Acceptor;

use crate::gate::Target;
use ringfence_types::{Host, Layer, Refusal, RefusalCode};

/// What a client's first bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    Tls,
    Http,
    Other,
    /// Too few bytes to say.
    Open,
}

/// No method of HTTP is longer.
const LONGEST_METHOD: usize = 32;

impl Speech {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [] | [0x16] => Self::Open,
            [0x16, 3, ..] => Self::Tls,
            _ => Self::of_text(bytes),
        }
    }

    /// Whatever some server would take for a request is one: a method, a gap, and a path, a URL or, after `CONNECT`, anything.
    /// Servers pass over empty lines before it, and some over the case of letters.
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
pub(crate) struct HelloReader {
    acceptor: Acceptor,
    read: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    Incomplete,
    /// With the name that is asked for, if one is.
    Complete(Option<String>),
    /// Too long, or no `ClientHello`.
    Broken(String),
}

/// With every extension that is in use, a hello has less than a quarter of this.
const LONGEST_HELLO: usize = 16 * 1024;

impl HelloReader {
    pub(crate) fn new() -> Self {
        Self { acceptor: Acceptor::default(), read: 0 }
    }

    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Hello {
        self.read += bytes.len();
        if self.read > LONGEST_HELLO {
            return Hello::Broken("the TLS greeting is too long".to_owned());
        }
        while !bytes.is_empty() {
            if let Err(error) = self.acceptor.read_tls(&mut bytes) {
                return Hello::Broken(format!("the TLS greeting cannot be read: {error}"));
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    return Hello::Complete(accepted.client_hello().server_name().map(str::to_owned));
                }
                Err((error, _alert)) => {
                    return Hello::Broken(format!("the TLS greeting cannot be read: {error}"));
                }
            }
        }
        Hello::Incomplete
    }
}

/// The name in TLS must be the host that was judged. An address has none.
///
/// What a greeting encrypts (ECH) is not seen; the name beside it is held to the same rule. The records that carry keys for it
/// are not answered inside, so that no client does it unasked. One that brings such a key along can have the server of an
/// allowed host answer for another host of the same server (docs/network.md): greetings that only pretend to encrypt look the
/// same and are sent by every browser, so that refusing them would refuse browsers.
pub(crate) fn check_name(target: &Target, asked: Option<&str>) -> Result<(), Refusal> {
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
        layer: Layer::Floor,
        rule: "network.names".to_owned(),
        message,
        hint: Some("connect to the host that is meant, under its own name".to_owned()),
    }
}

/// A fatal alert, for a client that has sent its hello.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Alert {
    AccessDenied,
    InternalError,
    UnrecognizedName,
}

impl Alert {
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
            (&b""[..], Speech::Open),
            (b"\x16", Speech::Open),
            (b"\x16\x03\x01", Speech::Tls),
            (b"\x16\x02", Speech::Other),
            (b"G", Speech::Open),
            (b"\r\n", Speech::Open),
            (b"GET ", Speech::Open),
            (b"GET /", Speech::Http),
            (b"\r\n\r\nGET /", Speech::Http),
            (b"get\t /", Speech::Http),
            (b"M-SEARCH * HTTP/1.1", Speech::Http),
            (b"OPTIONS *", Speech::Http),
            (b"GET ht", Speech::Open),
            (b"GET HTTP://a/", Speech::Http),
            (b"CONNECT evil.test:443", Speech::Http),
            (b"PRI * HTTP/2.0", Speech::Http),
            (b"SSH-2.0-x\r\n", Speech::Other),
            (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", Speech::Other),
            (b"EHLO host.test\r\n", Speech::Other),
            (b"USER henry\r\n", Speech::Other),
            (b"*1\r\n$4\r\nPING\r\n", Speech::Other),
            (b"AMQP\0\0\x09\x01", Speech::Other),
            (b"\x00\x00\x00\x08", Speech::Other),
            (b"0032git-upload-pack /project\0", Speech::Other),
            (b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJ", Speech::Other),
        ] {
            assert_eq!(Speech::of(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_name_in_tls_is_the_host_that_was_judged() {
        let name = Target::from_parts("a.test", 443).unwrap();
        let address = Target::from_parts("192.0.2.1", 443).unwrap();
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
            let mut reader = HelloReader::new();
            let mut all = vec![0x16, 3, 1];
            let mut state = reader.read(&all);
            for chunk in chunks {
                if state != Hello::Incomplete {
                    break;
                }
                all.extend(&chunk);
                state = reader.read(&chunk);
            }
            prop_assert_eq!(Speech::of(&all), Speech::Tls);
            // No name comes of noise, and it is not waited for without end.
            prop_assert!(!matches!(state, Hello::Complete(_)), "{:?}", state);
            prop_assert!(state != Hello::Incomplete || all.len() <= LONGEST_HELLO);
        }

        #[test]
        fn what_is_spoken_does_not_change_with_more_of_it(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let known = (0..bytes.len()).map(|end| Speech::of(&bytes[..end])).find(|speech| *speech != Speech::Open);
            prop_assert!(known.is_none_or(|known| known == Speech::of(&bytes)));
        }
    }
}
