//! Secrets on their way out, in every place and form, and what only looks like one.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use futures_util::stream;
use http::{HeaderMap, Request};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use ringfence_egress::{LeakLocation, LeakResponse};

use crate::world::{Body, Error, Key, Root, Server, World, full, get, requests, secrets, taken};

/// A body in chunks, with trailers.
fn chunks(chunks: Vec<Vec<u8>>, trailers: Option<HeaderMap>) -> Body {
    let data = chunks.into_iter().map(|chunk| Ok::<_, Error>(Frame::data(Bytes::from(chunk))));
    let frames: Vec<_> = data.chain(trailers.map(|trailers| Ok(Frame::trailers(trailers)))).collect();
    StreamBody::new(stream::iter(frames)).boxed()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

struct Scene {
    world: World,
    server: Server,
    target: String,
    key: Key,
}

/// A server that the key is not for.
async fn scene() -> Scene {
    let root = Root::new();
    let server = Server::echo(&root, &["other.test"]).await;
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let target = format!("other.test:{}", server.port);
    Scene { world, server, target, key }
}

/// Text in which nothing is found.
fn filler(length: usize) -> Vec<u8> {
    b"nothing to see here, move along\n".iter().copied().cycle().take(length).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn n25_a_secret_split_over_chunks_is_found() {
    let Scene { world, server, target, key } = scene().await;
    for text in [key.placeholder.clone(), key.value.clone(), STANDARD.encode(format!("me:{}", key.value))] {
        let parts = text.as_bytes().chunks(3).map(<[u8]>::to_vec).collect();
        let (status, _, body) =
            world.send(&target, Request::post("/").body(chunks(parts, None)).unwrap()).await;
        assert_eq!(status, 403, "{body}");
    }
    let harmless = b"not a secret at all".chunks(3).map(<[u8]>::to_vec).collect();
    assert_eq!(world.send(&target, Request::post("/").body(chunks(harmless, None)).unwrap()).await.0, 200);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn n25_a_secret_in_a_trailer_is_found() {
    let Scene { world, server, target, key } = scene().await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", key.placeholder.parse().unwrap());
    let request =
        Request::post(format!("https://{target}/")).body(chunks(vec![b"body".to_vec()], Some(trailers)));
    let mut sender = world.http2(&target).await;
    let (status, _, body) = taken(sender.send_request(request.unwrap()).await.unwrap()).await;
    assert_eq!(status, 403, "{body}");
    // The control: a harmless trailer arrives.
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", "abc".parse().unwrap());
    let request =
        Request::post(format!("https://{target}/")).body(chunks(vec![b"body".to_vec()], Some(trailers)));
    let (status, _, body) = taken(sender.send_request(request.unwrap()).await.unwrap()).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(server.seen().len(), 1);
    assert_eq!(server.seen()[0].trailers.as_ref().unwrap()["x-checksum"], "abc");
}

#[tokio::test(flavor = "multi_thread")]
async fn n25_a_secret_in_a_header_of_http2_is_found() {
    let Scene { world, server, target, key } = scene().await;
    let mut sender = world.http2(&target).await;
    for (name, value) in [("x-a", key.value.clone()), ("cookie", format!("a={}", key.placeholder))] {
        let request = get(&format!("https://{target}/")).header(name, value).body(full("")).unwrap();
        assert_eq!(taken(sender.send_request(request).await.unwrap()).await.0, 403);
    }
    let named =
        get(&format!("https://{target}/")).header(key.placeholder.as_str(), "1").body(full("")).unwrap();
    assert_eq!(taken(sender.send_request(named).await.unwrap()).await.0, 403);
    assert_eq!(server.seen().len(), 0);
    let notes = world.notes().await;
    assert!(notes.leaks.iter().any(|(_, leak)| leak.place == LeakLocation::HeaderName));
    assert!(!format!("{notes:?}").contains(&key.placeholder));
}

#[tokio::test(flavor = "multi_thread")]
async fn n25_compressed_bodies_are_read() {
    let Scene { world, server, target, key } = scene().await;
    let text = [filler(3000), key.value.clone().into_bytes(), filler(3000)].concat();
    // Long enough that its compressed form spans many windows of the scanner.
    let noise: Vec<u8> =
        (0..600_000_u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 0x80).collect();
    let far = [noise.clone(), text.clone()].concat();
    for (coding, body) in
        [("gzip", gzip(&text)), ("deflate", zlib(&text)), ("gzip", gzip(&far)), ("", gzip(&text))]
    {
        let mut request = Request::post("/");
        if !coding.is_empty() {
            request = request.header("content-encoding", coding);
        }
        let (status, _, answer) = world.send(&target, request.body(full(body)).unwrap()).await;
        assert_eq!(status, 403, "{coding} {answer}");
    }
    // The header of a gzip file has room for a comment.
    let mut commented = vec![0x1f, 0x8b, 8, 0x10, 0, 0, 0, 0, 0, 3];
    commented.extend_from_slice(key.value.as_bytes());
    commented.push(0);
    commented.extend_from_slice(&gzip(b"harmless")[10..]);
    let request = Request::post("/").header("content-encoding", "gzip").body(full(commented)).unwrap();
    let (status, _, answer) = world.send(&target, request).await;
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("secret/provider"), "{answer}");
    let harmless = gzip(&filler(5000));
    let request = Request::post("/").header("content-encoding", "gzip").body(full(harmless.clone())).unwrap();
    assert_eq!(world.send(&target, request).await.0, 200);
    let whole: Vec<_> = server.seen().into_iter().filter(|seen| seen.whole).collect();
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0].body, harmless);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_does_not_leave() {
    let Scene { world, server, target, .. } = scene().await;
    let cut = gzip(&filler(5000));
    for (coding, body) in [
        ("gzip", b"this is not gzip".to_vec()),
        ("gzip", cut[..cut.len() - 5].to_vec()),
        ("br", b"anything".to_vec()),
        ("zstd", b"anything".to_vec()),
        ("gzip, gzip", gzip(&gzip(b"x"))),
        ("gzip", gzip(&vec![0; 64 << 20])),
    ] {
        let request = Request::post("/").header("content-encoding", coding).body(full(body)).unwrap();
        let (status, _, body) = world.send(&target, request).await;
        assert_eq!(status, 403, "{coding} {body}");
        assert!(body.contains("network.scan"), "{body}");
    }
    assert!(server.seen().iter().all(|seen| !seen.whole));
}

#[tokio::test(flavor = "multi_thread")]
async fn n25_a_secret_far_into_a_body_breaks_it_off() {
    let Scene { world, server, target, key } = scene().await;
    let parts = vec![filler(1 << 20), key.value.clone().into_bytes(), filler(1 << 20)];
    let (status, _, body) = world.send(&target, Request::post("/").body(chunks(parts, None)).unwrap()).await;
    assert_eq!(status, 403, "{body}");
    let notes = world.notes().await;
    assert_eq!(notes.leaks[0].1.place, LeakLocation::Body);
    // The server may have seen the beginning. It never saw a whole body, and nothing of the secret.
    for seen in server.seen() {
        assert!(!seen.whole);
        assert!(!String::from_utf8_lossy(&seen.body).contains(key.value.get(..8).unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivered_secret_may_go_to_its_own_host_as_it_is() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let key = Key::new("tool", &["api.test"]);
    let credential = ringfence_egress::SessionCredential { placeholder: None, ..key.credential() };
    let known = ringfence_egress::CredentialSet::new(vec![credential], Vec::new(), None).unwrap();
    let world = World::new(&root, |http| http.secrets = std::sync::Arc::new(known));
    let target = format!("api.test:{}", server.port);
    let request = get("/").header("x-api-key", &key.value).body(full("")).unwrap();
    assert_eq!(world.send(&target, request).await.0, 200);
    assert_eq!(server.seen()[0].header("x-api-key"), key.value);
}

/// A key of a kind that is known by its shape, made here.
fn shaped() -> String {
    format!("gh{}_{}", 'p', "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_what_looks_like_a_secret_is_blocked_or_told() {
    let root = Root::new();
    let server = Server::echo(&root, &["other.test"]).await;
    let world = World::new(&root, |_| {});
    let target = format!("other.test:{}", server.port);
    let request = Request::post("/").body(full(format!("token {}", shaped()))).unwrap();
    let (status, _, body) = world.send(&target, request).await;
    assert_eq!(status, 403, "{body}");
    assert!(!body.contains(&shaped()));
    // In a header that is made for keys it is the client's own.
    for _ in 0..2 {
        let request =
            get("/").header("authorization", format!("Bearer {}", shaped())).body(full("")).unwrap();
        assert_eq!(world.send(&target, request).await.0, 200);
    }
    let notes = world.notes().await;
    assert_eq!(
        (notes.leaks[0].1.action, &notes.leaks[0].1.place),
        (LeakResponse::Blocked, &LeakLocation::Body)
    );
    // Told once, not with every request.
    assert_eq!(notes.leaks.len(), 2, "{:?}", notes.leaks);
    assert_eq!(notes.leaks[1].1.action, LeakResponse::Flagged);
    assert!(!format!("{notes:?}").contains(&shaped()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_path_is_not_written_down() {
    let Scene { world, target, key, .. } = scene().await;
    let (status, ..) =
        world.send(&target, get(&format!("/x/{}", key.placeholder)).body(full("")).unwrap()).await;
    assert_eq!(status, 403);
    let notes = world.notes().await;
    let url = &requests(&notes)[0].0.request.as_ref().unwrap().url;
    assert!(url.contains("[redacted:secret/provider/placeholder]"), "{url}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_does_not_travel_without_tls() {
    let root = Root::new();
    let server = Server::plain().await;
    let key = Key::new("provider", &["api.test", "127.0.0.1"]);
    let target = format!("api.test:{}", server.port);
    let plain = async |world: &World, target: &str| {
        let stream = tokio::net::TcpStream::connect(world.door).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request =
            get(&format!("http://{target}/")).header("host", target).header("x-api-key", &key.placeholder);
        taken(sender.send_request(request.body(full("")).unwrap()).await.unwrap()).await
    };
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let (status, _, body) = plain(&world, &target).await;
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("secret/provider/placeholder"), "{body}");
    assert_eq!(server.seen().len(), 0);
    // Neither to this machine.
    assert_eq!(plain(&world, &format!("127.0.0.1:{}", server.port)).await.0, 403);
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_found_where_nobody_looks() {
    let Scene { world, server, target, key } = scene().await;
    for request in [
        Request::builder().method(key.placeholder.as_str()).uri("/"),
        get("/").header("host", format!("{}.test", key.placeholder)),
        get("/").header("upgrade", &key.value),
        get("/").header("connection", &key.placeholder),
        get("/").header("transfer-encoding", "chunked").header("trailer", &key.placeholder),
    ] {
        let (status, _, body) = world.send(&target, request.body(full("")).unwrap()).await;
        assert_eq!(status, 403, "{body}");
        assert!(body.contains("secret/provider"), "{body}");
    }
    assert_eq!(server.seen().len(), 0);
    let notes = world.notes().await;
    assert!(!format!("{notes:?}").contains(&key.placeholder) && !format!("{notes:?}").contains(&key.value));
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_without_end_do_not_pass_over_http2() {
    let Scene { world, server, target, .. } = scene().await;
    let mut sender = world.http2(&target).await;
    let request =
        get(&format!("https://{target}/")).header("x-big", "a".repeat(200 << 10)).body(full("")).unwrap();
    let refused = match sender.send_request(request).await {
        Ok(response) => response.status().is_client_error(),
        Err(_) => true,
    };
    assert!(refused);
    assert_eq!(server.seen().len(), 0);
}
