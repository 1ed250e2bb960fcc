//! A secret that comes back in parts would not be recognised: hosts that are given one are asked for whole resources, and
//! what comes where nothing should be is not passed on.

use http::{Response, StatusCode};

use crate::world::{Answer, Key, Root, Seen, Server, World, full, get, secrets, taken};

fn serves_ranges(seen: Seen) -> Answer {
    Box::pin(async move {
        let whole = seen.header("x-api-key").to_owned();
        let (first, _) = whole.split_at(whole.len() / 2);
        if seen.header("range").is_empty()
            && seen.header("x-ms-range").is_empty()
            && seen.uri.path() != "/unasked"
        {
            return Response::new(full(whole));
        }
        Response::builder()
            .status(206)
            .header("content-range", "bytes 0-9/99")
            .body(full(first.to_owned()))
            .unwrap()
    })
}

async fn scene(answer: fn(Seen) -> Answer) -> (World, Server, String, Key) {
    let root = Root::new();
    let server = Server::answering(&root, &["api.test", "other.test"], answer).await;
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let target = format!("api.test:{}", server.port);
    (world, server, target, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_does_not_split_what_comes_back() {
    let (world, server, target, key) = scene(serves_ranges).await;
    for name in ["range", "x-ms-range"] {
        let request =
            get("/").header("x-api-key", &key.placeholder).header(name, "bytes=0-9").header("if-range", "x");
        let (status, _, body) = world.send(&target, request.body(full("")).unwrap()).await;
        assert_eq!((status, body.as_str()), (200, key.placeholder.as_str()), "{name}");
    }
    assert!(
        server
            .seen()
            .iter()
            .all(|seen| seen.header("range").is_empty() && seen.header("if-range").is_empty())
    );
    // Elsewhere a part is what was asked for.
    let other = format!("other.test:{}", server.port);
    let (status, ..) =
        world.send(&other, get("/").header("range", "bytes=0-9").body(full("")).unwrap()).await;
    assert_eq!(status, 206);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_nobody_asked_for_is_refused() {
    let (world, _server, target, key) = scene(serves_ranges).await;
    let request = get("/unasked").header("x-api-key", &key.placeholder);
    let (status, _, body) = world.send(&target, request.body(full("")).unwrap()).await;
    assert_eq!(status, 502, "{body}");
    let (half, _) = key.value.split_at(key.value.len() / 2);
    assert!(!body.contains(half), "{body}");
}

fn says_more_than_it_may(seen: Seen) -> Answer {
    Box::pin(async move {
        let status =
            if seen.uri.path() == "/204" { StatusCode::NO_CONTENT } else { StatusCode::NOT_MODIFIED };
        Response::builder().status(status).body(full(seen.header("x-api-key").to_owned())).unwrap()
    })
}

/// HTTP/2 can carry frames of a body where there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_none_does_not_pass() {
    let (world, server, target, key) = scene(says_more_than_it_may).await;
    let mut sender = world.http2(&target).await;
    for status in [204, 304] {
        let request = get(&format!("https://{target}/{status}")).header("x-api-key", &key.placeholder);
        let response = sender.send_request(request.body(full("")).unwrap()).await.unwrap();
        let (answered, _, body) = taken(response).await;
        assert_eq!((answered, body.as_str()), (status, ""));
    }
    assert_eq!(server.seen().len(), 2);
    assert!(server.seen().iter().all(|seen| seen.header("x-api-key") == key.value));
}

fn hides_its_encoding(seen: Seen) -> Answer {
    Box::pin(async move {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(seen.header("x-api-key").as_bytes()).unwrap();
        let response =
            Response::builder().header("connection", "content-encoding").header("content-encoding", "gzip");
        response.body(full(encoder.finish().unwrap())).unwrap()
    })
}

/// What `Connection` names is taken out, and is read before.
#[tokio::test(flavor = "multi_thread")]
async fn an_encoding_that_is_for_this_hop_only_is_read_all_the_same() {
    let root = Root::new();
    let server = Server::http1(&root, &["api.test"], hides_its_encoding).await;
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let request = get("/").header("x-api-key", &key.placeholder).body(full("")).unwrap();
    let (status, _, body) = world.send(&format!("api.test:{}", server.port), request).await;
    assert_eq!((status, body.as_str()), (200, key.placeholder.as_str()));
}
