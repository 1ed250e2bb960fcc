//! Plain HTTP, wherever it turns up, is one request after the other.

use std::io::{Read as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;

use ringfence_egress::FlowIngress;

use crate::clerk::Clerk;
use crate::world::{PATIENCE, World, read_head, read_to_end, server};

/// A server that tells the head of every request, and answers each on a connection of its own.
fn web() -> (SocketAddr, mpsc::Receiver<String>) {
    let (heard, heads) = mpsc::channel();
    let address = server(move |mut stream: TcpStream| {
        let head = read_head(&mut stream);
        if !head.is_empty() {
            heard.send(head).unwrap();
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        }
    });
    (address, heads)
}

#[test]
fn a_request_to_the_proxy_is_judged_with_its_url() {
    let (server, heads) = web();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let host = format!("allowed.test:{}", server.port());
    let request = format!("GET http://{host}/a?b HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = world.exchange(request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hi"), "{answer}");
    assert!(heads.recv_timeout(PATIENCE).unwrap().starts_with("GET /a?b HTTP/1.1\r\n"));
    let book = world.clerk.after(1);
    assert_eq!(book.judged[0].way, FlowIngress::Forward);
    assert_eq!(book.judged[0].request.as_ref().unwrap().url, format!("http://{host}/a"));
    let answer =
        world.exchange(b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("x-ringfence-rule"), "{answer}");
}

/// N9: a tunnel is no way around the judgement of requests.
#[test]
fn n9_requests_in_a_tunnel_are_judged_one_by_one() {
    let (server, heads) = web();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let host = format!("allowed.test:{}", server.port());
    let mut tunnel = world.tunnel(&host);
    write!(tunnel, "GET /one HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    assert!(read_to_end(&mut tunnel).ends_with("hi"));
    assert!(heads.recv_timeout(PATIENCE).unwrap().starts_with("GET /one "));
    let book = world.clerk.after(2);
    let judged: Vec<_> =
        book.judged.iter().map(|flow| flow.request.as_ref().map(|asked| asked.url.clone())).collect();
    assert_eq!(judged, [None, Some(format!("http://{host}/one"))]);
    for request in [
        "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_owned(),
        format!("GET http://evil.test/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("CONNECT evil.test:443 HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ] {
        let mut tunnel = world.tunnel(&host);
        tunnel.write_all(request.as_bytes()).unwrap();
        let _ = tunnel.shutdown(std::net::Shutdown::Write);
        let answer = read_to_end(&mut tunnel);
        assert!(!answer.contains(" 200 "), "{request:?}: {answer}");
    }
    assert!(heads.try_recv().is_err());
}

/// N10: the server sees what was judged, and nothing that hides behind it.
#[test]
fn n10_nothing_hides_behind_a_request() {
    let (server, heads) = web();
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let host = format!("allowed.test:{}", server.port());
    let hidden = format!("GET /hidden HTTP/1.1\r\nHost: {host}\r\n\r\n");
    for head in [
        format!("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("Content-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len()),
        format!("Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("X: a\r\n Transfer-Encoding: chunked\r\n\r\n{hidden}"),
        format!("Host: evil.test\r\n\r\n{hidden}"),
    ] {
        let request = format!("POST http://{host}/seen HTTP/1.1\r\nHost: {host}\r\n{head}");
        let mut client = world.client();
        client.write_all(request.as_bytes()).unwrap();
        let answer = read_to_end(&mut client);
        assert!(answer.matches("HTTP/1.1 200").count() <= 1, "{request:?}: {answer}");
        while let Ok(head) = heads.try_recv() {
            let lengths = head.to_lowercase().matches("content-length").count();
            assert!(head.starts_with("POST /seen ") && lengths <= 1, "{request:?}: {head}");
            assert!(
                lengths == 0 || !head.to_lowercase().contains("transfer-encoding"),
                "{request:?}: {head}"
            );
        }
    }
    // A line that ends in a bare LF is one line to the proxy, and one with CRLF to the server: nobody reads two.
    let request = format!("GET http://{host}/lf HTTP/1.1\nHost: {host}\nConnection: close\n\n");
    let _ = world.exchange(request.as_bytes());
    if let Ok(head) = heads.try_recv() {
        assert!(
            head.starts_with("GET /lf HTTP/1.1\r\n") && !head.replace("\r\n", "").contains('\n'),
            "{head:?}"
        );
    }
}

/// Who waits for the server to speak cannot then speak HTTP unseen.
#[test]
fn http_after_the_server_has_spoken_does_not_pass() {
    let (heard, all) = mpsc::channel();
    let server = server(move |mut stream| {
        stream.write_all(b"220 ready\r\n").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        heard.send(rest).unwrap();
    });
    let world = World::new(Clerk::allowing(&["allowed.test"]));
    let mut tunnel = world.tunnel(&format!("allowed.test:{}", server.port()));
    let mut greeting = [0; 11];
    tunnel.read_exact(&mut greeting).unwrap();
    tunnel.write_all(b"GET /secret HTTP/1.1\r\nHost: evil.test\r\n\r\n").unwrap();
    assert_eq!(read_to_end(&mut tunnel), "");
    assert_eq!(all.recv_timeout(PATIENCE).unwrap(), b"");
}
