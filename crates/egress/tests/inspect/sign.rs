//! Requests to AWS: signed inside with a placeholder, signed again with the key. The server here checks them with an
//! implementation of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Request;
use ringfence_egress::{AwsSigningKey, LeakResponse};
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
    scene_with(|_| {}).await
}

async fn scene_with(limit: impl FnOnce(&mut ringfence_egress::ProxyLimits)) -> Scene {
    let root = Root::new();
    let server =
        Server::http1(&root, &["aws.test"], |_| Box::pin(async { http::Response::new(full("ok")) })).await;
    let (key, token) = (Key::new("secret-key", &["aws.test"]), Key::new("token", &["aws.test"]));
    let rule =
        AwsSigningKey { id_inside: "AKINSIDE".into(), id: "AKREAL".into(), credential: "secret-key".into() };
    let world = World::settled(&root, Box::new(|_| Ok(())), |settings| {
        settings.http.secrets = signing(&[&key, &token], vec![rule]);
        limit(&mut settings.limits);
    });
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
    assert!(notes.leaks.iter().all(|(_, leak)| leak.action == LeakResponse::Blocked));
}

/// What is held to be signed is counted as it comes: once, and against the budget before there is more of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_signed_is_counted_before_it_is_held() {
    static BODY: [u8; 50_000] = [b'x'; 50_000];
    let scene = scene_with(|limits| limits.flow.up = 60_000).await;
    let fine = request(&scene, &scene.key.placeholder, &BODY);
    assert_eq!(scene.world.send(&scene.target, fine).await.0, 200);
    let notes = scene.world.notes().await;
    let up: Vec<u64> = notes.ended.iter().filter(|end| end.0.request.is_some()).map(|end| end.1.up).collect();
    assert_eq!(up, [50_000]);
    let scene = scene_with(|limits| limits.flow.up = 40_000).await;
    let large = request(&scene, &scene.key.placeholder, &BODY);
    let (status, headers, body) = scene.world.send(&scene.target, large).await;
    assert_eq!(
        (status, &headers["x-ringfence-rule"]),
        (403, &"limits.flow-bytes".parse().unwrap()),
        "{body}"
    );
    assert_eq!(scene.server.seen().len(), 0);
}

/// All bodies that are held have one room, and give it back.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_signed_have_one_room() {
    static BODY: [u8; 50_000] = [b'x'; 50_000];
    let scene = scene_with(|limits| limits.signed_bytes = 64 << 10).await;
    for _ in 0..3 {
        let one = request(&scene, &scene.key.placeholder, &BODY);
        assert_eq!(scene.world.send(&scene.target, one).await.0, 200);
    }
    let scene = scene_with(|limits| limits.signed_bytes = 32 << 10).await;
    let large = request(&scene, &scene.key.placeholder, &BODY);
    let (status, headers, _) = scene.world.send(&scene.target, large).await;
    assert_eq!((status, &headers["x-ringfence-rule"]), (403, &"limits.signed-bytes".parse().unwrap()));
    assert_eq!(scene.server.seen().len(), 0);
}

/// The id may be a secret as well: what stands for it is in `Authorization`, in the middle of more.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_a_secret_becomes_the_real_one() {
    let root = Root::new();
    let server =
        Server::http1(&root, &["aws.test"], |_| Box::pin(async { http::Response::new(full("ok")) })).await;
    let [key, token, id] = ["secret-key", "token", "id"].map(|name| Key::new(name, &["aws.test"]));
    let credential = "secret-key".into();
    let rule = AwsSigningKey { id_inside: id.placeholder.clone(), id: id.value.clone(), credential };
    let world = World::new(&root, |http| http.secrets = signing(&[&key, &token, &id], vec![rule]));
    let target = format!("aws.test:{}", server.port);
    let text = canonical("POST", &target, &token.placeholder, b"body");
    let request = Request::post("/things")
        .header("host", &target)
        .header("x-amz-date", TIME)
        .header("x-amz-security-token", &token.placeholder)
        .header("authorization", authorization(&id.placeholder, &sign(&key.placeholder, &text)));
    let (status, _, body) = world.send(&target, request.body(full("body")).unwrap()).await;
    assert_eq!(status, 200, "{body}");
    let seen = &server.seen()[0];
    let text = canonical("POST", seen.header("host"), &token.value, &seen.body);
    assert_eq!(seen.header("authorization"), authorization(&id.value, &sign(&key.value, &text)));
    // Of a request that was signed otherwise nothing is made.
    let bare = Request::get("/").header("authorization", authorization(&id.placeholder, "0"));
    assert_eq!(world.send(&target, bare.body(full("")).unwrap()).await.0, 403);
    assert_eq!(server.seen().len(), 1);
}

/// A list of signed headers is in order and names none twice: without that one header could be hashed ten thousand times.
#[tokio::test(flavor = "multi_thread")]
async fn signed_headers_are_a_short_list_in_order() {
    let scene = scene().await;
    for list in ["host;host;x-amz-date", "x-amz-date;host", &format!("host{}", ";x-amz-date".repeat(5000))] {
        let mut request = request(&scene, &scene.key.placeholder, b"");
        let text = format!("AWS4-HMAC-SHA256 Credential=AKINSIDE/{SCOPE}, SignedHeaders={list}, Signature=0");
        request.headers_mut().insert("authorization", text.parse().unwrap());
        let (status, _, body) = scene.world.send(&scene.target, request).await;
        assert_eq!(status, 403);
        assert!(body.contains("not in order"), "{body}");
    }
    assert_eq!(scene.server.seen().len(), 0);
}
