//! Servers are verified; what cannot be inspected is refused.

use std::time::{Duration, SystemTime};

use ringfence_egress::FlowEnd;

use crate::world::{Root, Server, World, full, get, taken};

async fn failure(world: &World, target: &str) -> String {
    let (status, headers, body) = world.send(target, get("/").body(full("")).unwrap()).await;
    assert_eq!(status, 502, "{body}");
    assert_eq!(headers["x-ringfence-outcome"], "failed");
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_must_be_the_targets() {
    let root = Root::new();
    let server = Server::echo(&root, &["other.test"]).await;
    let world = World::new(&root, |_| {});
    let body = failure(&world, &format!("api.test:{}", server.port)).await;
    assert!(body.contains("certificate"), "{body}");
    // The control.
    let (status, ..) =
        world.send(&format!("other.test:{}", server.port), get("/").body(full("")).unwrap()).await;
    assert_eq!(status, 200);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_must_be_valid_now() {
    let root = Root::new();
    let day = Duration::from_secs(24 * 60 * 60);
    let expired = Server::odd(&root, &["api.test"], |params| {
        params.not_before = (SystemTime::now() - 3 * day).into();
        params.not_after = (SystemTime::now() - day).into();
    })
    .await;
    let world = World::new(&root, |_| {});
    let body = failure(&world, &format!("api.test:{}", expired.port)).await;
    assert!(body.contains("xpired"), "{body}");
    assert_eq!(expired.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_must_be_signed_by_somebody_known() {
    let (root, stranger) = (Root::new(), Root::new());
    let server = Server::echo(&stranger, &["api.test"]).await;
    let world = World::new(&root, |_| {});
    let body = failure(&world, &format!("api.test:{}", server.port)).await;
    assert!(body.contains("invalid peer certificate"), "{body}");
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn n24_without_an_authority_nothing_is_tunnelled_instead() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let world = World::new(&root, |http| http.ca = None);
    world.tls(&format!("api.test:{}", server.port), ("api.test", "h2")).await.unwrap_err();
    assert_eq!(server.connections.load(std::sync::atomic::Ordering::SeqCst), 0);
    let notes = world.notes().await;
    assert!(
        notes.ended.iter().any(|(_, _, end)| crate::world::is_refused(end, "network.inspect")),
        "{notes:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_used_again() {
    let root = Root::new();
    for alpn in ["h2", "http/1.1"] {
        let mut config = crate::world::tls(&root, &["api.test"]);
        config.alpn_protocols = vec![alpn.into()];
        let server =
            Server::start(Some(config), |_| Box::pin(async { http::Response::new(full("ok")) })).await;
        let world = World::new(&root, |_| {});
        let target = format!("api.test:{}", server.port);
        for _ in 0..5 {
            // Each over a connection of its own.
            assert_eq!(world.send(&target, get("/").body(full("")).unwrap()).await.0, 200);
        }
        assert_eq!(server.connections.load(std::sync::atomic::Ordering::SeqCst), 1, "{alpn}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closed_its_connection_is_dialled_again() {
    let root = Root::new();
    let mut config = crate::world::tls(&root, &["api.test"]);
    config.alpn_protocols = Vec::new();
    let answer = |_| -> crate::world::Answer {
        Box::pin(async { http::Response::builder().header("connection", "close").body(full("ok")).unwrap() })
    };
    let server = Server::start(Some(config), answer).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let mut sender = world.http1(&target).await;
    for _ in 0..3 {
        sender.ready().await.unwrap();
        let request = get("/").header("host", &target).body(full("")).unwrap();
        let (status, _, body) = taken(sender.send_request(request).await.unwrap()).await;
        assert_eq!((status, body.as_str()), (200, "ok"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_passed_on_and_its_target_judged_anew() {
    let root = Root::new();
    let server = Server::answering(&root, &["api.test"], |_| {
        Box::pin(async {
            let response = http::Response::builder().status(302).header("location", "https://denied.test/");
            response.header("alt-svc", "h3=\":443\"").body(full("")).unwrap()
        })
    })
    .await;
    let world = World::new(&root, |_| {});
    let (status, headers, _) =
        world.send(&format!("api.test:{}", server.port), get("/").body(full("")).unwrap()).await;
    assert_eq!((status, headers["location"].as_bytes()), (302, b"https://denied.test/".as_slice()));
    assert!(!headers.contains_key("alt-svc"));
    let mut stream = tokio::net::TcpStream::connect(world.door).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(
        &mut stream,
        b"CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test\r\nConnection: close\r\n\r\n",
    )
    .await
    .unwrap();
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flow_ends_once() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    for _ in 0..3 {
        world.send(&target, http::Request::post("/").body(full("four")).unwrap()).await;
    }
    let notes = world.notes().await;
    let mut ids: Vec<u64> = notes.ended.iter().map(|(flow, ..)| flow.id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
    for (flow, traffic, end) in notes.ended.iter().filter(|(flow, ..)| flow.request.is_some()) {
        assert_eq!((traffic.up, end), (4, &FlowEnd::Done), "{flow:?}");
        assert!(traffic.down > 0);
    }
}
