//! What nobody would send over gRPC: each is answered with a status or the end of its connection, and the daemon goes on for others.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use ringfence_api::{ErrorCode, Method};
use ringfence_grpc::{Rpc, RpcStreaming, v1};
use tonic::Code;

use crate::daemon_fixture::Served;
use crate::daemon_fuzz::runner;
use crate::grpc_client::{Speaker, reason};
use crate::grpc_messages::About;
use crate::malformed_requests::{Dice, bent};
use crate::test_timeouts::PATIENCE;

/// So many of each method.
const EACH: usize = 16;

/// What a connection of HTTP/2 begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn still_serves(others: &Speaker) {
    let health = others.wait(others.daemon().check_health(v1::CheckHealthRequest {})).unwrap();
    assert_eq!(health.into_inner().version, env!("CARGO_PKG_VERSION"));
}

/// Those that end what the others need are not among them, and no stream that would wait for something to happen.
fn methods() -> Vec<&'static Rpc> {
    let ends = [Method::Shutdown, Method::SessionStop, Method::ApprovalWatch, Method::Events];
    Rpc::ALL.iter().filter(|rpc| !ends.contains(&rpc.method)).collect()
}

/// S003-23, S003-24: for every method, messages that are none.
#[test]
fn no_message_of_any_method_is_too_strange_to_be_answered() {
    let mut served = Served::new();
    let session = served.session().session.to_string();
    let (speaker, others) = (Speaker::at(&served.socket, None), Speaker::at(&served.socket, None));
    // Who has asked nothing yet is not kept for long.
    still_serves(&others);
    for rpc in Rpc::ALL {
        for bytes in [&[0xff; 64][..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0xa0, 0x06, 0x01], &[0x07]] {
            let status = speaker.refused(rpc, bytes.to_vec());
            assert_eq!(
                (status.code(), reason(&status)),
                (Code::InvalidArgument, ErrorCode::InvalidArgument),
                "{}",
                rpc.path
            );
        }
    }
    let workspace = served.world.workspace.to_str().unwrap();
    let about = About { session: &session, workspace };
    let mut dice = Dice::new(0x96bc);
    let (mut asked, mut let_in) = (BTreeSet::new(), 0);
    for rpc in Rpc::ALL {
        let ends = [Method::Shutdown, Method::SessionStop, Method::Logout].contains(&rpc.method);
        let sound = about.message(rpc);
        // A stream that is begun has its time.
        let patience = if rpc.flow == RpcStreaming::Watch { "5m" } else { "2M" };
        for _ in 0..EACH {
            let mut message = bent(&mut dice, &sound);
            // Whatever it says, it is no message then.
            message.extend_from_slice(if ends { &[0x07] } else { &[] });
            let answer = speaker.within(patience, rpc.path, message.clone());
            let _first = asked.insert(rpc.path);
            match answer {
                Ok(_) => let_in += 1,
                Err(status) => {
                    let ours = [Code::Internal, Code::Unknown, Code::Unavailable].contains(&status.code());
                    assert!(!ours, "{} {message:?}: {status:?}", rpc.path);
                    // With a code, a request id and words.
                    assert_ne!(reason(&status), ErrorCode::Internal, "{} {message:?}", rpc.path);
                    assert!(!status.message().is_empty(), "{} {message:?}", rpc.path);
                }
            }
        }
    }
    assert_eq!(asked.len(), Rpc::ALL.len());
    assert!(let_in > 0, "the control: some of it is near enough to what makes sense");
    still_serves(&others);
    assert!(served.child.try_wait().unwrap().is_none(), "it is the same");
    assert!(!served.said().contains("panicked"), "{}", served.said());
}

/// S003-23: for every method, a message that is longer than it may be, and one that is as long.
#[test]
fn a_message_over_grpc_has_the_size_that_a_request_may_have() {
    let served = Served::new();
    let (speaker, others) = (Speaker::at(&served.socket, None), Speaker::at(&served.socket, None));
    for rpc in Rpc::ALL {
        let most = if rpc.method == Method::FileWrite { 25 * 1024 * 1024 + 16 * 1024 } else { 1024 * 1024 };
        let status = speaker.refused(rpc, vec![0; most + 1]);
        assert_eq!(
            (status.code(), reason(&status)),
            (Code::ResourceExhausted, ErrorCode::TooLarge),
            "{}",
            rpc.path
        );
        still_serves(&others);
    }
    let text = "x".repeat(1024 * 1024 - 64);
    let report = v1::ReportActivityRequest { session: String::new(), activity: String::new(), claim: text };
    let status = speaker.wait(speaker.activity().report_activity(report)).unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "it is read, and is about no session");
}

/// What is gRPC and not ours has the code that clients know for it.
#[test]
fn what_is_not_there_is_said_to_be_not_there() {
    let served = Served::new();
    let speaker = Speaker::at(&served.socket, None);
    for path in ["/", "/ringfence.v1.SessionService/None", "/grpc.health.v1.Health/Check", "/v1/health"] {
        let status = speaker.raw(path, Vec::new()).unwrap_err();
        assert_eq!((status.code(), reason(&status)), (Code::Unimplemented, ErrorCode::NotFound), "{path}");
    }
    for (name, value) in [
        ("grpc-timeout", "soon"),
        ("grpc-encoding", "gzip"),
        ("origin", "http://page.test"),
        ("authorization", "Basic eA=="),
    ] {
        let mut request = tonic::Request::new(v1::CheckHealthRequest {});
        let _new = request.metadata_mut().insert(name, value.parse().unwrap());
        let status = speaker.wait(speaker.daemon().check_health(request)).unwrap_err();
        let expected = match name {
            "grpc-encoding" => Code::Unimplemented,
            "origin" => Code::PermissionDenied,
            "authorization" => Code::Unauthenticated,
            _ => Code::InvalidArgument,
        };
        assert_eq!(status.code(), expected, "{name}");
    }
    assert!(methods().iter().any(|rpc| rpc.flow == RpcStreaming::Conversation));
    still_serves(&speaker);
}

pub(crate) fn frame(kind: u8, flags: u8, (stream, payload): (u32, &[u8])) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request for `path` without compression of its head, and whatever as its body.
fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        head.extend([0, u8::try_from(name.len()).unwrap()]);
        head.extend(name.as_bytes());
        head.push(u8::try_from(value.len()).unwrap());
        head.extend(value.as_bytes());
    }
    [PREFACE.to_vec(), frame(4, 0, (0, &[])), frame(1, 4, (1, &head)), frame(0, 1, (1, body))].concat()
}

/// Everything that comes back until the other side has enough or `wanted` is in it.
fn answer(socket: &std::path::Path, bytes: &[u8], wanted: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _heard_enough = stream.write_all(bytes);
    let _closed = stream.shutdown(std::net::Shutdown::Write);
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while !crate::testkit::contains(&answer, wanted) {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend(&piece[..count]),
            Err(error) => {
                assert_ne!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock,
                    "nobody answered and nobody hung up"
                );
                break;
            }
        }
    }
    answer
}

/// S003-24: below messages, for every method: frames of HTTP/2 and of gRPC that are cut, changed or made up.
#[test]
fn no_frames_bring_the_daemon_down() {
    let served = Served::new();
    let others = Speaker::at(&served.socket, None);
    // A message that is announced and does not come, one that is compressed, one of four gigabytes, two at once, none.
    let bodies: [&[u8]; 5] =
        [&[0, 0, 0, 0, 9, 1], &[1, 0, 0, 0, 0], &[0, 0xff, 0xff, 0xff, 0xff], &[0; 10], &[]];
    for rpc in methods().iter().filter(|rpc| rpc.flow != RpcStreaming::Conversation) {
        for body in bodies {
            let heard = answer(&served.socket, &request(rpc.path, body), b"application/grpc");
            assert!(heard.len() > 9, "{} {body:?}", rpc.path);
        }
    }
    still_serves(&others);
    let sound = request("/ringfence.v1.DaemonService/CheckHealth", &[0; 5]);
    assert!(!answer(&served.socket, &sound, b"x-request-id").is_empty(), "the control");
    let change = (any::<Index>(), 0..3_u8, vec(any::<u8>(), 0..12));
    let outcome = runner(150).run(&(vec(change, 1..6), select(methods())), |(changes, rpc)| {
        let mut bytes = request(rpc.path, &[0; 5]);
        for (at, kind, new) in changes {
            // What is changed comes after the preface: without that it would be HTTP/1.
            let at = PREFACE.len() + at.index(bytes.len() + 1 - PREFACE.len());
            let end = (at + new.len()).min(bytes.len());
            match kind {
                0 => drop(bytes.splice(at..at, new)),
                1 => drop(bytes.splice(at..end, [])),
                _ => drop(bytes.splice(at..end, new)),
            }
        }
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        let _heard_enough = stream.write_all(&bytes);
        Ok(())
    });
    outcome.unwrap();
    still_serves(&others);
    // One connection with nothing but frames that nobody asked for.
    for kind in 0..=255_u8 {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        let bytes = [PREFACE.to_vec(), frame(4, 0, (0, &[])), frame(kind, 0xff, (3, &[0xff; 64]))].concat();
        let _heard_enough = stream.write_all(&bytes);
    }
    still_serves(&others);
    still_serves(&Speaker::at(&served.socket, None));
}
