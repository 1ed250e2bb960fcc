//! What would make a server take a request for another one than was judged.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use crate::world::{Body, Root, Server, World, full, get, is_refused, requests, taken};

async fn scene() -> (World, Server, String) {
    let root = Root::new();
    let server = Server::http1(&root, &["api.test"], |_| Box::pin(async { Response::new(full("ok")) })).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    (world, server, target)
}

#[tokio::test(flavor = "multi_thread")]
async fn n12_nothing_names_another_url_or_method() {
    let (world, server, target) = scene().await;
    let attempts = [
        get("/").header("x-original-url", "/private"),
        get("/").header("X-Rewrite-URL", "/private"),
        get("/").header("x-original-uri", "/private"),
        get("/").header("x-envoy-original-path", "/private"),
        Request::post("/").header("x-http-method-override", "DELETE"),
        Request::post("/").header("x-http-method", "DELETE"),
        Request::post("/").header("x-method-override", "DELETE"),
        Request::builder().method("MOVE").uri("/a").header("destination", "/private/b"),
        Request::post("/?_method=DELETE"),
        Request::post("/?a=b&%5Fmethod=DELETE"),
        Request::post("/?_METHOD=DELETE"),
    ];
    let count = attempts.len();
    for request in attempts {
        let (status, headers, body) = world.send(&target, request.body(full("")).unwrap()).await;
        assert_eq!(
            (status, &headers["x-ringfence-rule"]),
            (403, &"network.steering".parse().unwrap()),
            "{body}"
        );
    }
    // The control: without any of it, and with names that only look like it.
    let plain = get("/?method=x&x_method=y").header("x-original", "1").body(full("")).unwrap();
    assert_eq!(world.send(&target, plain).await.0, 200);
    assert_eq!(server.seen().len(), 1, "{}", server.all());
    let notes = world.notes().await;
    assert_eq!(requests(&notes).iter().filter(|(_, end)| is_refused(end, "network.steering")).count(), count);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_inside_is_a_proxy_for_others() {
    let (world, server, target) = scene().await;
    let names = [
        "forwarded",
        "x-forwarded-host",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-prefix",
        "x-host",
        "x-real-ip",
        "true-client-ip",
        "via",
    ];
    let request = names.iter().fold(get("/"), |request, name| request.header(*name, "127.0.0.1"));
    assert_eq!(world.send(&target, request.header("x-kept", "1").body(full("")).unwrap()).await.0, 200);
    let seen = &server.seen()[0];
    for name in names {
        assert_eq!(seen.header(name), "", "{name}");
    }
    assert_eq!(seen.header("x-kept"), "1");
}

fn with_trailer(name: &'static str) -> Body {
    let mut trailers = HeaderMap::new();
    trailers.insert(name, HeaderValue::from_static("1"));
    let frames = [Ok(Frame::data(Bytes::from("body"))), Ok(Frame::trailers(trailers))];
    StreamBody::new(futures_util::stream::iter(frames)).boxed()
}

/// What a request is read by comes before its body, or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_steers_comes_behind_a_body() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let mut sender = world.http2(&target).await;
    for name in ["authorization", "x-original-url", "x-forwarded-host", "content-type", "cookie"] {
        let request = Request::post(format!("https://{target}/")).body(with_trailer(name)).unwrap();
        let (status, _, body) = taken(sender.send_request(request).await.unwrap()).await;
        assert_eq!(status, 403, "{name}: {body}");
        assert!(body.contains("network.steering"), "{body}");
    }
    assert_eq!(server.seen().len(), 0);
    let request = Request::post(format!("https://{target}/")).body(with_trailer("x-checksum")).unwrap();
    assert_eq!(taken(sender.send_request(request).await.unwrap()).await.0, 200);
    assert_eq!(server.seen()[0].trailers.as_ref().unwrap()["x-checksum"], "1");
}

/// HTTP/2 counts frames, HTTP/1.1 believes a header: there is one, and it is a number.
#[tokio::test(flavor = "multi_thread")]
async fn n10_a_length_of_http2_is_one_number_in_http1() {
    let (world, server, target) = scene().await;
    for lengths in [&["4", "4"][..], &["4", "40"], &["+4"], &["4, 4"]] {
        let mut sender = world.http2(&target).await;
        let request = Request::post(format!("https://{target}/"));
        let request =
            lengths.iter().fold(request, |request, length| request.header("content-length", *length));
        if let Ok(response) = sender.send_request(request.body(full("body")).unwrap()).await {
            assert_ne!(taken(response).await.0, 200, "{lengths:?}");
        }
    }
    assert_eq!(server.seen().len(), 0, "{}", server.all());
    let mut sender = world.http2(&target).await;
    let request = Request::post(format!("https://{target}/")).header("content-length", "4");
    assert_eq!(taken(sender.send_request(request.body(full("body")).unwrap()).await.unwrap()).await.0, 200);
    assert_eq!(server.seen()[0].header("content-length"), "4");
}

/// Our word about a refusal is ours alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_speak_in_our_name() {
    let root = Root::new();
    let server = Server::http1(&root, &["api.test"], |_| {
        Box::pin(async {
            let response = Response::builder().status(403).header("x-ringfence-outcome", "refused");
            response.header("x-ringfence-rule", "made up").header("x-own", "1").body(full("no")).unwrap()
        })
    })
    .await;
    let world = World::new(&root, |_| {});
    let (status, headers, _) =
        world.send(&format!("api.test:{}", server.port), get("/").body(full("")).unwrap()).await;
    assert_eq!((status, headers.contains_key("x-own")), (403, true));
    assert!(!headers.keys().any(|name| name.as_str().starts_with("x-ringfence-")), "{headers:?}");
}
