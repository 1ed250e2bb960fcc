//! Requests to AWS: signed inside with a placeholder, signed again with the key. The server here checks them with an
//! implementation of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Request;
use ringfence_egress::{LeakAction, Signing};
use sha2::{Digest as _, Sha256};

use crate::world::{Body, Key, Root, Seen, Server, World, full, signing};

const TIME: &str = "20260102T030405Z";
const SCOPE: &str = "20260102/eu-west-1/service/aws4_request";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn sign(key: &str, canonical: &str) -> String {
    let text = format!("AWS4-HMAC-SHA256\n{TIME}\n{SCOPE}\n{}", hash(canonical.as_bytes()));
    let mut key = format!("AWS4{key}").into_bytes();
    for part in ["20260102", "eu-west-1", "service", "aws4_request", &text] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(part.as_bytes());
        key = mac.finalize().into_bytes().to_vec();
    }
    hex(&key)
}

fn canonical(method: &str, host: &str, token: &str, body: &[u8]) -> String {
    format!(
        "{method}\n/things\n\nhost:{host}\nx-amz-date:{TIME}\nx-amz-security-token:{token}\n\n\
         host;x-amz-date;x-amz-security-token\n{}",
        hash(body)
    )
}

fn authorization(id: &str, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={id}/{SCOPE}, SignedHeaders=host;x-amz-date;x-amz-security-token, Signature={signature}"
    )
}

struct Scene {
    world: World,
    server: Server,
    target: String,
    key: Key,
    token: Key,
}

async fn scene() -> Scene {
    let root = Root::new();
    let server =
        Server::http1(&root, &["aws.test"], |_| Box::pin(async { http::Response::new(full("ok")) })).await;
    let (key, token) = (Key::new("secret-key", &["aws.test"]), Key::new("token", &["aws.test"]));
    let rule = Signing { id_inside: "AKINSIDE".into(), id: "AKREAL".into(), credential: "secret-key".into() };
    let world = World::new(&root, |http| http.secrets = signing(&[&key, &token], vec![rule]));
    let target = format!("aws.test:{}", server.port);
    Scene { world, server, target, key, token }
}

fn request(scene: &Scene, key: &str, body: &'static [u8]) -> Request<Body> {
    let text = canonical("POST", &scene.target, &scene.token.placeholder, body);
    Request::post("/things")
        .header("host", &scene.target)
        .header("x-amz-date", TIME)
        .header("x-amz-security-token", &scene.token.placeholder)
        .header("authorization", authorization("AKINSIDE", &sign(key, &text)))
        .body(full(body))
        .unwrap()
}

fn is_signed(seen: &Seen, scene: &Scene) -> bool {
    let text = canonical("POST", seen.header("host"), seen.header("x-amz-security-token"), &seen.body);
    seen.header("authorization") == authorization("AKREAL", &sign(&scene.key.value, &text))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_signed_with_the_placeholder_is_signed_with_the_key() {
    let scene = scene().await;
    let (status, _, body) =
        scene.world.send(&scene.target, request(&scene, &scene.key.placeholder, b"the body")).await;
    assert_eq!(status, 200, "{body}");
    let seen = &scene.server.seen()[0];
    assert!(is_signed(seen, &scene), "{seen:?}");
    assert_eq!(seen.header("x-amz-security-token"), scene.token.value);
    assert_eq!(seen.body, b"the body");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_signed_with_anything_else_is_refused() {
    let scene = scene().await;
    let (status, _, body) =
        scene.world.send(&scene.target, request(&scene, "another key", b"the body")).await;
    assert_eq!(status, 403);
    assert!(body.contains("network.signing"), "{body}");
    let mut changed = request(&scene, &scene.key.placeholder, b"the body");
    *changed.method_mut() = http::Method::PUT;
    assert_eq!(scene.world.send(&scene.target, changed).await.0, 403);
    let mut chunked = request(&scene, &scene.key.placeholder, b"the body");
    chunked
        .headers_mut()
        .insert("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".parse().unwrap());
    let (status, _, body) = scene.world.send(&scene.target, chunked).await;
    assert_eq!(status, 403);
    assert!(body.contains("chunk by chunk"), "{body}");
    assert_eq!(scene.server.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_another_key_passes_as_it_is() {
    let scene = scene().await;
    let mut other = request(&scene, "a key of the client's own", b"");
    let text = authorization("AKOTHER", &"0".repeat(64));
    other.headers_mut().insert("authorization", text.parse().unwrap());
    assert_eq!(scene.world.send(&scene.target, other).await.0, 200);
    assert_eq!(scene.server.seen()[0].header("authorization"), text);
}

/// The key itself is never sent, so that its placeholder has no place in a request: wherever it stands, nothing leaves.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_signs_is_never_put_in() {
    let scene = scene().await;
    let placeholder = scene.key.placeholder.clone();
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(format!("me:{text}")));
    let attempts = [
        Request::get("/").header("x-any", &placeholder).body(full("")),
        Request::get("/").header("x-api-key", &placeholder).body(full("")),
        Request::get("/").header("authorization", format!("Bearer {placeholder}")).body(full("")),
        Request::get("/").header("authorization", basic(&placeholder)).body(full("")),
        Request::get(format!("/?key={placeholder}")).body(full("")),
        Request::get(format!("/{placeholder}")).body(full("")),
        Request::post("/").body(full(placeholder.clone())),
        Request::post("/").body(full(scene.key.value.clone())),
    ];
    for attempt in attempts {
        let (status, _, body) = scene.world.send(&scene.target, attempt.unwrap()).await;
        assert_eq!(status, 403, "{body}");
        assert!(body.contains("secret/secret-key"), "{body}");
    }
    // Neither in a request that is signed well otherwise.
    let mut signed = request(&scene, &placeholder, b"the body");
    signed.headers_mut().insert("x-any", placeholder.parse().unwrap());
    assert_eq!(scene.world.send(&scene.target, signed).await.0, 403);
    assert_eq!(scene.server.seen().len(), 0, "{}", scene.server.all());
    let notes = scene.world.notes().await;
    assert_eq!(notes.leaks.len(), 9, "{:?}", notes.leaks);
    assert!(notes.leaks.iter().all(|(_, leak)| leak.action == LeakAction::Blocked));
}
