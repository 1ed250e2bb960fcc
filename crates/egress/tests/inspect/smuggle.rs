//! Forms of requests that two readers read differently, and connections that want to be something else.

use http::Request;
use hyper_util::rt::TokioIo;
use ringfence_types::HostPattern;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{Answer, Root, Server, World, full, get, taken, tls};

#[tokio::test(flavor = "multi_thread")]
async fn n10_ambiguous_requests_do_not_pass() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let attempts = [
        format!("POST /a HTTP/1.1\r\nHost: {target}\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n12345"),
        format!("POST /b HTTP/1.1\r\nHost: {target}\r\nContent-Length: 4, 5\r\n\r\n12345"),
        format!(
            "POST /c HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"
        ),
        format!("POST /d HTTP/1.1\r\nHost: {target}\r\nContent-Length: +4\r\n\r\n1234"),
        format!("GET /e HTTP/1.1\r\nHost: {target}\r\nX-A: b\r\n  folded\r\n\r\n"),
        format!("GET /f HTTP/1.1\r\nHost: {target}\r\nX A: b\r\n\r\n"),
        format!("GET /g HTTP/1.1\r\nHost: {target}\r\nX-A : b\r\n\r\n"),
        format!("GET /h HTTP/1.1\r\nHost: {target}\r\nX-A: b\0c\r\n\r\n"),
        format!("GET /i HTTP/1.1\r\nHost: {target}\r\nHost: other.test\r\nConnection: close\r\n\r\n"),
        format!(
            "POST /j HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"
        ),
        format!("POST /k HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n"),
        format!(
            "POST /l HTTP/1.0\r\nHost: {target}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
        ),
        format!(
            "POST /o HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: gzip, chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"
        ),
        format!(
            "POST /p HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n"
        ),
        format!("GET /m HTTP/1.1\r\nHost: {target}\r\nX-Big: {}\r\n\r\n", "a".repeat(200 << 10)),
        format!("GET /n HTTP/1.1\r\nHost: {target}\r\n{}\r\n", "X-Many: 1\r\n".repeat(300)),
    ];
    for attempt in attempts {
        let answer = world.bytes(&target, attempt.as_bytes()).await;
        let shown: String = attempt.chars().take(60).collect();
        assert!(!answer.contains("HTTP/1.1 200"), "{shown}: {answer}");
    }
    assert_eq!(server.all(), "");
}

/// `Transfer-Encoding` wins over `Content-Length`, here and there: what is sent on has one length only.
#[tokio::test(flavor = "multi_thread")]
async fn n10_two_lengths_become_one() {
    let root = Root::new();
    let server = Server::http1(&root, &["api.test"], |_| ok()).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let attempt = format!(
        "POST /a HTTP/1.1\r\nHost: {target}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         4;x=y\r\nabcd\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {target}\r\n\r\n"
    );
    let _ = world.bytes(&target, attempt.as_bytes()).await;
    for seen in server.seen() {
        assert!(!seen.uri.path().contains("smuggled"), "{}", server.all());
        assert_eq!(seen.body, b"abcd");
        assert!(seen.header("content-length").is_empty() || seen.header("transfer-encoding").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n10_a_pipelined_request_is_judged_alone() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let rule = |flow: &ringfence_egress::Flow| match &flow.request {
        Some(request) if request.url.contains("/private") => Err(crate::world::no("path")),
        _ => Ok(()),
    };
    let world = World::ruled(&root, Box::new(rule), |_| {});
    let target = format!("api.test:{}", server.port);
    let both = format!(
        "GET /public HTTP/1.1\r\nHost: {target}\r\n\r\nGET /private HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"
    );
    let answer = world.bytes(&target, both.as_bytes()).await;
    assert!(answer.contains("HTTP/1.1 200") && answer.contains("HTTP/1.1 403"), "{answer}");
    assert_eq!(server.seen().len(), 1);
    assert_eq!(server.seen()[0].uri.path(), "/public");
}

fn ok() -> Answer {
    Box::pin(async { http::Response::new(full("ok")) })
}

#[tokio::test(flavor = "multi_thread")]
async fn hop_by_hop_headers_stay_on_their_hop() {
    let root = Root::new();
    let server = Server::http1(&root, &["api.test"], |_| ok()).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let request = get("/")
        .header("connection", "x-private, keep-alive")
        .header("x-private", "1")
        .header("proxy-authorization", "Basic eA==")
        .header("proxy-connection", "keep-alive")
        .header("keep-alive", "timeout=5")
        .header("upgrade", "h2c")
        .header("http2-settings", "AAMAAABkAAQCAAAAAAIAAAAA")
        .header("x-kept", "1");
    let (status, _, body) = world.send(&target, request.body(full("")).unwrap()).await;
    assert_eq!(status, 200, "{body}");
    let seen = &server.seen()[0];
    for name in
        ["x-private", "proxy-authorization", "proxy-connection", "keep-alive", "upgrade", "http2-settings"]
    {
        assert_eq!(seen.header(name), "", "{name}");
    }
    assert_eq!(seen.header("x-kept"), "1");
}

async fn socket_server(root: &Root) -> Server {
    let mut config = tls(root, &["api.test"]);
    config.alpn_protocols = Vec::new();
    Server::raw(Some(config), std::sync::Arc::default(), |mut request| {
        Box::pin(async move {
            if !request.headers().contains_key("upgrade") {
                return http::Response::new(full("no"));
            }
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut io = TokioIo::new(upgrade.await.unwrap());
                let mut bytes = [0; 5];
                io.read_exact(&mut bytes).await.unwrap();
                bytes.reverse();
                io.write_all(&bytes).await.unwrap();
            });
            http::Response::builder()
                .status(101)
                .header("connection", "upgrade")
                .header("upgrade", "websocket")
                .body(full(""))
                .unwrap()
        })
    })
    .await
}

fn websocket(target: &str) -> Request<crate::world::Body> {
    let request =
        get("/socket").header("host", target).header("connection", "Upgrade").header("upgrade", "websocket");
    request.body(full("")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn n10_a_connection_becomes_a_websocket_only_where_declared() {
    let root = Root::new();
    let server = socket_server(&root).await;
    let target = format!("api.test:{}", server.port);
    let closed = World::new(&root, |_| {});
    let (status, _, body) =
        taken(closed.http1(&target).await.send_request(websocket(&target)).await.unwrap()).await;
    assert_eq!(status, 403);
    assert!(body.contains("network.upgrade"), "{body}");
    let open = World::new(&root, |http| http.upgrades = vec![HostPattern::parse("api.test").unwrap()]);
    let mut sender = open.http1(&target).await;
    let response = sender.send_request(websocket(&target)).await.unwrap();
    assert_eq!(response.status(), 101);
    let mut io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    io.write_all(b"hello").await.unwrap();
    let mut bytes = [0; 5];
    io.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"olleh");
    drop(io);
    let notes = open.notes().await;
    let (_, traffic, _) = notes.ended.iter().find(|(flow, ..)| flow.request.is_some()).unwrap();
    assert_eq!((traffic.up, traffic.down), (5, 5));
    let other =
        Request::get("/").header("host", &target).header("connection", "upgrade").header("upgrade", "other");
    let open = World::new(&root, |http| http.upgrades = vec![HostPattern::parse("api.test").unwrap()]);
    let mut sender = open.http1(&target).await;
    assert_eq!(taken(sender.send_request(other.body(full("")).unwrap()).await.unwrap()).await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_of_http2_are_one_header_in_http1() {
    let root = Root::new();
    let server = Server::http1(&root, &["api.test"], |_| ok()).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let request =
        get(&format!("https://{target}/")).header("cookie", "a=1").header("cookie", "b=2").body(full(""));
    let response = world.http2(&target).await.send_request(request.unwrap()).await.unwrap();
    assert_eq!(taken(response).await.0, 200);
    assert_eq!(server.seen()[0].header("cookie"), "a=1; b=2");
}
