//! Everything that names the server must name the same one.

use http::Request;

use crate::world::{Root, Server, World, full, get, is_refused, requests, taken};

#[tokio::test(flavor = "multi_thread")]
async fn n9_host_must_be_the_target() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test", "other.test"]).await;
    let world = World::new(&root, |_| {});
    let port = server.port;
    let target = format!("api.test:{port}");
    for host in [
        format!("other.test:{port}"),
        "api.test".to_owned(),
        "api.test:1".to_owned(),
        format!("api.test:{port}@other.test:{port}"),
        format!("api.test.other.test:{port}"),
        format!("127.0.0.1:{port}"),
        String::new(),
    ] {
        let (status, _, body) =
            world.send(&target, get("/").header("host", &host).body(full("")).unwrap()).await;
        assert_eq!(status, 403, "{host} {body}");
        assert!(body.contains("network.names-agree"), "{body}");
    }
    // The control, in spellings that are the same host.
    for host in [target.clone(), format!("API.test:{port}"), format!("api.test.:{port}")] {
        let (status, _, body) =
            world.send(&target, get("/").header("host", &host).body(full("")).unwrap()).await;
        assert_eq!(status, 200, "{host} {body}");
    }
    assert_eq!(server.seen().len(), 3);
    let notes = world.notes().await;
    assert_eq!(requests(&notes).iter().filter(|(_, end)| is_refused(end, "network.names-agree")).count(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn n9_the_authority_of_http2_must_be_the_target() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test", "other.test"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let mut sender = world.http2(&target).await;
    for (uri, expected) in [
        (format!("https://other.test:{}/", server.port), 403),
        (format!("https://{target}/"), 200),
        (format!("https://denied.test:{}/", server.port), 403),
        ("https://api.test/".to_owned(), 403),
    ] {
        let response = sender.send_request(get(&uri).body(full("")).unwrap()).await.unwrap();
        let (status, _, body) = taken(response).await;
        assert_eq!(status, expected, "{uri} {body}");
    }
    // A `Host` beside it is no way around.
    let fronted = get(&format!("https://{target}/")).header("host", format!("other.test:{}", server.port));
    let response = sender.send_request(fronted.body(full("")).unwrap()).await.unwrap();
    assert_eq!(taken(response).await.0, 403);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn n9_the_name_in_tls_must_be_the_target() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test", "other.test"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let error = world.tls(&target, ("other.test", "h2")).await.unwrap_err();
    assert!(error.to_string().contains("alert"), "{error}");
    // The control.
    world.tls(&target, ("api.test", "h2")).await.unwrap();
    let notes = world.notes().await;
    assert!(notes.ended.iter().any(|(_, _, end)| matches!(end, ringfence_egress::FlowEnd::Refused(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_a_target_too() {
    let root = Root::new();
    let server = Server::echo(&root, &["127.0.0.1"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("127.0.0.1:{}", server.port);
    let (status, _, body) = world.send(&target, get("/").body(full("")).unwrap()).await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn n9_an_absolute_address_inside_a_tunnel_must_agree() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let mut sender = world.http1(&target).await;
    let other = Request::get(format!("https://other.test:{}/", server.port)).header("host", &target);
    assert_eq!(taken(sender.send_request(other.body(full("")).unwrap()).await.unwrap()).await.0, 403);
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_judged_with_its_own_path_and_method() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let rule = |flow: &ringfence_egress::Flow| match &flow.request {
        Some(request) if request.url.contains("/private") || request.method == "DELETE" => {
            Err(crate::world::no("path"))
        }
        _ => Ok(()),
    };
    let world = World::ruled(&root, Box::new(rule), |_| {});
    let target = format!("api.test:{}", server.port);
    let mut sender = world.http1(&target).await;
    let attempts = [
        (Request::get("/public"), 200),
        (Request::get("/private/x"), 403),
        (Request::delete("/public"), 403),
        (Request::post("/public").header("x-http-method-override", "DELETE"), 403),
        (Request::post("/public").header("x-http-method-override", "delete"), 403),
        (Request::post("/public").header("x-http-method-override", "PUT"), 403),
        (Request::get("/public/../private"), 403),
        (Request::get("/public/%2e%2e/private"), 403),
        (Request::get("/public/%2E%2e%2fprivate"), 403),
        (Request::get("/public/..;x/private"), 403),
        (Request::get("/public/%252e%252e/private"), 403),
        (Request::get("/a%2Fb"), 200),
        (Request::trace("/public"), 403),
    ];
    let served = attempts.iter().filter(|(_, expected)| *expected == 200).count();
    for (request, expected) in attempts {
        let request = request.header("host", &target).body(full("")).unwrap();
        let shown = format!("{request:?}");
        sender.ready().await.unwrap();
        let (status, _, body) = taken(sender.send_request(request).await.unwrap()).await;
        assert_eq!(status, expected, "{shown} {body}");
    }
    assert_eq!(server.seen().len(), served);
    assert_eq!(server.connections.load(std::sync::atomic::Ordering::SeqCst), 1);
}
