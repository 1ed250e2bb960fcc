//! Whoever guesses passwords from somewhere keeps out neither operators nor the owner.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use ringfence_api::Method;
use serde_json::json;

use crate::daemon_authorization_matrix::Place;
use crate::daemon_early_disconnect::requests;
use crate::testkit::{eventually, finish};

fn password() -> String {
    ["correct", "horse", "battery"].join(" ")
}

fn with_ann() -> Place {
    let place = Place::new();
    let mut add = place.served.world.ringfence();
    finish(add.args(["operator", "add", "ann", "--scope", "read"]), password().as_bytes()).expect(0);
    place
}

/// The status of a login as `ann` from an address of this machine.
fn login(place: &Place, from: &str, word: &str) -> String {
    let body = json!({ "name": "ann", "password": word }).to_string();
    let url = format!("http://127.0.0.1:{}/v1/login", place.port);
    let mut curl = place.served.world.host("curl");
    curl.args([
        "-sS",
        "-m",
        "60",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--interface",
        from,
        "-d",
        &body,
        &url,
    ]);
    finish(&mut curl, b"").expect(0).text()
}

#[test]
fn guesses_from_elsewhere_keep_no_operator_out_who_was_in_before() {
    let place = with_ann();
    assert_eq!(login(&place, "127.0.0.1", &password()), "200");
    // Each place has five for nothing and guesses three times, so that it is the name that waits. The first wait is short.
    let mut looked_at = 0;
    eventually("the name waits wherever nobody was in", || {
        let told = login(&place, &format!("127.0.0.{}", 2 + looked_at / 3), "not the right one");
        looked_at += usize::from(told == "401");
        told == "429" && looked_at >= 12
    });
    assert_eq!(login(&place, "127.0.0.1", &password()), "200");
}

#[test]
fn the_owner_sets_a_password_before_strangers_had_theirs_looked_at() {
    const STRANGERS: u64 = 20;
    let place = with_ann();
    let before = requests(&place.served);
    let strangers: Vec<TcpStream> = (0..STRANGERS)
        .map(|number| {
            let body =
                json!({ "name": format!("nobody{number}"), "password": "not the right one" }).to_string();
            let mut stream = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
            let head = format!("host: 127.0.0.1:{}\r\ncontent-length: {}", place.port, body.len());
            write!(stream, "POST /v1/login HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    let mut asked_myself = 0;
    eventually("all of them have come", || {
        asked_myself += 1;
        requests(&place.served) >= before + asked_myself + STRANGERS
    });
    let another = ["another", "horse", "battery"].join(" ");
    let new = json!({ "name": "ann", "password": another });
    place.served.client().raw(Method::OperatorSetPassword, new).unwrap();
    let waits = |mut stream: &TcpStream| matches!(stream.read(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    assert!(strangers.iter().any(waits), "the owner was the last");
}
