//! Bytes flow as they come: nothing is held up that need not be, and nothing is lost.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::sync::mpsc;

use crate::world::{Body, Error, Key, Root, Server, World, full, get, secrets, tls};

type Frames = mpsc::Sender<Result<Frame<Bytes>, Error>>;

/// A body that is written while it is read.
pub(crate) fn pipe() -> (Frames, Body) {
    let (sender, receiver) = mpsc::channel(4);
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async {
        let frame = receiver.recv().await?;
        Some((frame, receiver))
    });
    (sender, sync(StreamBody::new(frames)).boxed())
}

fn sync<B: http_body::Body<Data = Bytes, Error = Error> + Send + 'static>(
    body: B,
) -> impl http_body::Body<Data = Bytes, Error = Error> + Send + Sync {
    http_body_util::combinators::BoxBody::new(SyncBody(std::sync::Mutex::new(Box::pin(body))))
}

struct SyncBody<B>(std::sync::Mutex<std::pin::Pin<Box<B>>>);

impl<B: http_body::Body<Data = Bytes, Error = Error>> http_body::Body for SyncBody<B> {
    type Data = Bytes;
    type Error = Error;
    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.0.lock().unwrap().as_mut().poll_frame(context)
    }
}

pub(crate) fn data(text: &str) -> Result<Frame<Bytes>, Error> {
    Ok(Frame::data(Bytes::from(text.to_owned())))
}

#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_as_they_are_sent() {
    let root = Root::new();
    for injected in [false, true] {
        // Each event is sent only after the one before has arrived.
        let (sender, body) = pipe();
        let body = Arc::new(std::sync::Mutex::new(Some(body)));
        let server = Server::answering(&root, &["api.test"], move |_| {
            let body = body.lock().unwrap().take().unwrap();
            Box::pin(async move {
                Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
            })
        })
        .await;
        let key = Key::new("provider", &["api.test"]);
        let world = World::new(&root, |http| {
            if injected {
                http.secrets = secrets(&[&key]);
            }
        });
        let target = format!("api.test:{}", server.port);
        let request =
            get("/").header("host", &target).header("x-api-key", &key.placeholder).body(full("")).unwrap();
        let response = world.http1(&target).await.send_request(request).await.unwrap();
        let mut body = response.into_body();
        for event in ["data: one\n\n", "data: {\"text\":\"two\"}\n\n", "data: three"] {
            sender.send(data(event)).await.unwrap();
            let mut arrived = Vec::new();
            while arrived.len() < event.len() {
                arrived.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
            }
            assert_eq!(arrived, event.as_bytes());
        }
        drop(sender);
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_may_talk_at_once() {
    let root = Root::new();
    // Answers each message before the next is sent.
    let server = Server::raw(Some(tls(&root, &["api.test"])), Arc::default(), |request| {
        Box::pin(async move {
            let (sender, body) = pipe();
            tokio::spawn(async move {
                let mut incoming = request.into_body();
                while let Some(Ok(frame)) = incoming.frame().await {
                    let Ok(bytes) = frame.into_data() else { continue };
                    sender.send(Ok(Frame::data(bytes))).await.unwrap();
                }
            });
            Response::new(body)
        })
    })
    .await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let (sender, body) = pipe();
    let request = Request::post(format!("https://{target}/")).body(body).unwrap();
    let response = world.http2(&target).await.send_request(request).await.unwrap();
    let mut incoming = response.into_body();
    for message in ["one.", "two.", "three."] {
        sender.send(data(message)).await.unwrap();
        let mut arrived = Vec::new();
        while arrived.len() < message.len() {
            arrived.extend_from_slice(&incoming.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(arrived, message.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_arrive_whole() {
    let root = Root::new();
    let server = Server::answering(&root, &["api.test"], |seen| {
        Box::pin(async move { Response::new(full(seen.body)) })
    })
    .await;
    let key = Key::new("provider", &["api.test"]);
    for world in [World::new(&root, |_| {}), World::new(&root, |http| http.secrets = secrets(&[&key]))] {
        let target = format!("api.test:{}", server.port);
        let text: Vec<u8> = (0..10_u32 << 20).map(|at| b"0123456789 abcde\n"[(at % 17) as usize]).collect();
        let request = Request::post("/").header("host", &target).body(full(text.clone())).unwrap();
        let response = world.http1(&target).await.send_request(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body == text, "{} bytes of {}", body.len(), text.len());
        let binary: Vec<u8> =
            (0..3_u64 << 20).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let request = Request::post(format!("https://{target}/")).body(full(binary.clone())).unwrap();
        let response = world.http2(&target).await.send_request(request).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes() == binary);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_is_told_to_continue() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let mut stream = world.tls(&target, ("api.test", "http/1.1")).await.unwrap();
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {target}\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(server.seen()[0].body, b"body");
    assert_eq!(server.seen()[0].header("expect"), "");
}

/// What is refused is refused before its body is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_is_refused_without_its_body() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let rule = |flow: &ringfence_egress::Flow| {
        if flow.request.is_some() { Err(crate::world::no("no")) } else { Ok(()) }
    };
    let world = World::ruled(&root, Box::new(rule), |_| {});
    let target = format!("api.test:{}", server.port);
    let head =
        format!("POST / HTTP/1.1\r\nHost: {target}\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    let answer = world.bytes(&target, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_pass_both_ways() {
    let root = Root::new();
    let server = Server::answering(&root, &["api.test"], |seen| {
        Box::pin(async move {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", seen.trailers.unwrap()["x-sum"].clone());
            let (sender, body) = pipe();
            sender.send(data("reply")).await.unwrap();
            sender.send(Ok(Frame::trailers(trailers))).await.unwrap();
            Response::new(body)
        })
    })
    .await;
    let key = Key::new("provider", &["api.test"]);
    for world in [World::new(&root, |_| {}), World::new(&root, |http| http.secrets = secrets(&[&key]))] {
        let target = format!("api.test:{}", server.port);
        let (sender, body) = pipe();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "7".parse().unwrap());
        sender.send(data("call")).await.unwrap();
        sender.send(Ok(Frame::trailers(trailers))).await.unwrap();
        drop(sender);
        let request =
            Request::post(format!("https://{target}/")).header("te", "trailers").body(body).unwrap();
        let response = world.http2(&target).await.send_request(request).await.unwrap();
        let collected = response.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["grpc-status"], "7");
        assert_eq!(collected.to_bytes(), "reply");
        let seen = server.seen();
        assert_eq!(seen.last().unwrap().header("te"), "trailers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_and_empty_answers_are_what_they_were() {
    let root = Root::new();
    let server = Server::answering(&root, &["api.test"], |seen| {
        Box::pin(async move {
            match seen.uri.path() {
                "/204" => Response::builder().status(204).body(full("")).unwrap(),
                "/304" => Response::builder().status(304).header("etag", "\"x\"").body(full("")).unwrap(),
                _ => Response::builder().header("content-length", "4").body(full("four")).unwrap(),
            }
        })
    })
    .await;
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let target = format!("api.test:{}", server.port);
    let (status, headers, body) = world.send(&target, Request::head("/").body(full("")).unwrap()).await;
    assert_eq!((status, headers["content-length"].as_bytes(), body.as_str()), (200, b"4".as_slice(), ""));
    for path in ["/204", "/304"] {
        let (status, _, body) = world.send(&target, get(path).body(full("")).unwrap()).await;
        assert_eq!((format!("/{status}").as_str(), body.as_str()), (path, ""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_in_the_middle_of_a_body_takes_it_along() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("api.test:{}", server.port);
    let mut stream = world.tls(&target, ("api.test", "http/1.1")).await.unwrap();
    use tokio::io::AsyncWriteExt as _;
    let head = format!("POST / HTTP/1.1\r\nHost: {target}\r\nContent-Length: 1000\r\n\r\nhalf of it");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream);
    // The proxy is as well as before.
    assert_eq!(world.send(&target, get("/").body(full("")).unwrap()).await.0, 200);
    assert!(server.seen().iter().filter(|seen| seen.method == "POST").all(|seen| !seen.whole));
}
