//! Any bytes into any door: it ends, nobody panics, and nothing is opened that was not judged.

use std::io::Write;
use std::net::{Shutdown, UdpSocket};
use std::sync::OnceLock;
use std::time::Duration;

use proptest::prelude::*;

use crate::clerk::Clerk;
use crate::world::{HERE, World, dialled, echo, hello, read_bytes};

/// One world for all cases: what one case breaks, the next finds broken.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        World::with(Clerk::allowing(&["allowed.test"]), |settings| {
            settings.times.head = Duration::from_millis(200);
            settings.times.silence = Duration::from_millis(200);
            settings.limits.flows_per_second = 1_000_000;
            settings.limits.queries_per_second = 1_000_000;
        })
    })
}

fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        Just(b"CONNECT allowed.test:443 HTTP/1.1\r\n".to_vec()),
        Just(b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n".to_vec()),
        Just(b"GET http://allowed.test/ HTTP/1.1\r\n".to_vec()),
        Just(b"Host: allowed.test:443\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n\r\n".to_vec()),
        Just(b"Content-Length: 5\r\n\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\x05\x01\x00".to_vec()),
        Just(b"\x05\x01\x00\x03\x09evil.test\x01\xbb".to_vec()),
        Just(b"\x04\x01\x00\x50".to_vec()),
        Just(hello(Some("allowed.test"))),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(text, 0..6).prop_map(|parts| parts.concat())
}

fn still_works(world: &World) {
    let answer = world.exchange(b"CONNECT evil.test:443 HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn into_the_explicit_door(bytes in fragments()) {
        let world = world();
        let mut client = world.client();
        let _ = client.write_all(&bytes);
        let _ = client.shutdown(Shutdown::Write);
        let _ = read_bytes(&mut client);
        still_works(world);
        let opened = world.clerk.book().opened.len();
        let passed = world.clerk.book().judged.iter().filter(|flow| flow.target.host.to_string() == "allowed.test").count();
        prop_assert!(opened <= passed);
    }

    #[test]
    fn into_a_tunnel(bytes in fragments()) {
        static ECHO: OnceLock<u16> = OnceLock::new();
        let port = ECHO.get_or_init(|| echo().port());
        let world = world();
        let mut tunnel = world.tunnel(&format!("allowed.test:{port}"));
        let _ = tunnel.write_all(&bytes);
        let _ = tunnel.shutdown(Shutdown::Write);
        let _ = read_bytes(&mut tunnel);
    }

    #[test]
    fn into_the_name_server(bytes in prop::collection::vec(any::<u8>(), 0..80), framed in any::<bool>()) {
        let world = world();
        let socket = UdpSocket::bind((HERE, 0)).unwrap();
        socket.send_to(&bytes, world.dns).unwrap();
        let mut stream = dialled(world.dns_stream);
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        let _ = stream.write_all(if framed { &length } else { &[] });
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = read_bytes(&mut stream);
    }
}
