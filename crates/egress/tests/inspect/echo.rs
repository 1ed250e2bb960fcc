//! A secret that was given to a server does not come back from it.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Response;
use http_body::Frame;
use http_body_util::BodyExt as _;
use ringfence_egress::{LeakLocation, LeakResponse};

use crate::flow::{data, pipe};
use crate::world::{Answer, Key, Root, Seen, Server, World, full, get, secrets};

async fn with(answer: impl Fn(Seen) -> Answer + Send + Sync + 'static) -> (World, Server, String, Key) {
    let root = Root::new();
    let server = Server::answering(&root, &["api.test"], answer).await;
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let target = format!("api.test:{}", server.port);
    (world, server, target, key)
}

fn value(seen: &Seen) -> String {
    seen.header("x-api-key").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_come_back_with_the_placeholder() {
    let (world, _server, target, key) = with(|seen| {
        Box::pin(async move {
            let response = Response::builder()
                .header("x-echo", format!("Bearer {}", value(&seen)))
                .header(
                    "location",
                    format!("/next?key={}", value(&seen).replace('+', "%2B").replace('/', "%2F")),
                )
                .header("x-encoded", STANDARD.encode(value(&seen)))
                .header("x-other", "kept");
            response.body(full("")).unwrap()
        })
    })
    .await;
    let request = get("/").header("x-api-key", &key.placeholder).body(full("")).unwrap();
    let (status, headers, _) = world.send(&target, request).await;
    assert_eq!(status, 200);
    assert_eq!(headers["x-echo"], format!("Bearer {}", key.placeholder).as_str());
    assert_eq!(headers["x-other"], "kept");
    let all = format!("{headers:?}");
    assert!(
        !all.contains("Zq81Zq81") && !all.contains(STANDARD.encode(&key.value).get(4..20).unwrap()),
        "{all}"
    );
    let notes = world.notes().await;
    assert_eq!(notes.leaks.len(), 3);
    assert!(notes.leaks.iter().all(|(_, leak)| leak.action == LeakResponse::Redacted));
    assert!(notes.leaks.iter().any(|(_, leak)| leak.place == LeakLocation::ResponseHeader("x-echo".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_come_back_with_the_placeholder_and_another_length() {
    let (world, _server, target, key) = with(|seen| {
        Box::pin(async move {
            let text = format!("<{}> and <{}>", value(&seen), value(&seen));
            Response::builder().header("content-length", text.len()).body(full(text)).unwrap()
        })
    })
    .await;
    let request = get("/").header("x-api-key", &key.placeholder).body(full("")).unwrap();
    let (_, headers, body) = world.send(&target, request).await;
    assert_eq!(body, format!("<{0}> and <{0}>", key.placeholder));
    assert!(!headers.contains_key("content-length"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_arrives_in_pieces_is_put_together_first() {
    let (sender, body) = pipe();
    let body = Arc::new(Mutex::new(Some(body)));
    let (world, _server, target, key) = with(move |_| {
        let body = body.lock().unwrap().take().unwrap();
        Box::pin(async move { Response::new(body) })
    })
    .await;
    let request = get("/").header("host", &target).body(full("")).unwrap();
    let response = world.http1(&target).await.send_request(request).await.unwrap();
    let mut body = response.into_body();
    let (first, second) = key.value.split_at(key.value.len() / 2);
    sender.send(data(&format!("before {first}"))).await.unwrap();
    let mut arrived = Vec::new();
    while arrived.len() < b"before ".len() {
        arrived.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    // It is held back while it may become the value.
    assert!(!String::from_utf8_lossy(&arrived).contains(first.get(..6).unwrap()));
    sender.send(data(&format!("{second} after"))).await.unwrap();
    drop(sender);
    arrived.extend_from_slice(&body.collect().await.unwrap().to_bytes());
    assert_eq!(String::from_utf8(arrived).unwrap(), format!("before {} after", key.placeholder));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_answer_is_read_or_refused() {
    let (world, server, target, key) = with(|seen| {
        Box::pin(async move {
            if seen.uri.path() == "/br" {
                return Response::builder().header("content-encoding", "br").body(full("?")).unwrap();
            }
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(value(&seen).as_bytes()).unwrap();
            let body = full(encoder.finish().unwrap());
            Response::builder().header("content-encoding", "gzip").body(body).unwrap()
        })
    })
    .await;
    let request = get("/gzip").header("accept-encoding", "gzip, br").header("x-api-key", &key.placeholder);
    let (status, headers, body) = world.send(&target, request.body(full("")).unwrap()).await;
    assert_eq!((status, body.as_str()), (200, key.placeholder.as_str()));
    assert!(!headers.contains_key("content-encoding"));
    assert_eq!(server.seen()[0].header("accept-encoding"), "identity");
    let (status, _, body) = world.send(&target, get("/br").body(full("")).unwrap()).await;
    assert_eq!(status, 502, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_remembers_does_not_tell_later() {
    let remembered: Arc<Mutex<String>> = Arc::default();
    let (world, _server, target, key) = with(move |seen| {
        let mut remembered = remembered.lock().unwrap();
        if seen.uri.path() == "/set" {
            *remembered = value(&seen);
        }
        let text = remembered.clone();
        Box::pin(async move { Response::new(full(text)) })
    })
    .await;
    let request = get("/set").header("x-api-key", &key.placeholder).body(full("")).unwrap();
    world.send(&target, request).await;
    let (_, _, body) = world.send(&target, get("/get").body(full("")).unwrap()).await;
    assert_eq!(body, key.placeholder);
}

/// In a body a placeholder is only a word: it passes as it is, in one piece or in many.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_not_given_the_secret() {
    let root = Root::new();
    let server = Server::http1(&root, &["api.test"], |_| Box::pin(async { Response::new(full("")) })).await;
    let target = format!("api.test:{}", server.port);
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let text = format!("<{}>", key.placeholder);
    let request = http::Request::post("/").body(full(text.clone())).unwrap();
    assert_eq!(world.send(&target, request).await.0, 200);
    assert_eq!(server.seen().pop().unwrap().body, text.into_bytes());
    let (sender, body) = pipe();
    let placeholder = key.placeholder.clone();
    tokio::spawn(async move {
        for _ in 0..40 {
            let text = format!("{} {}", "some words ".repeat(2000), placeholder);
            sender.send(Ok(Frame::data(Bytes::from(text)))).await.unwrap();
        }
    });
    assert_eq!(world.send(&target, http::Request::post("/").body(body).unwrap()).await.0, 200);
    let body = String::from_utf8(server.seen().pop().unwrap().body).unwrap();
    assert_eq!(body.matches(&key.placeholder).count(), 40);
    assert!(!body.contains(&key.value));
}
