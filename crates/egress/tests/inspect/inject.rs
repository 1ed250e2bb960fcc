//! Placeholders become secrets towards their own hosts, and go nowhere else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_egress::{LeakLocation, LeakResponse};
use ringfence_types::CredentialLocation;

use crate::world::{Key, Root, Server, World, full, get, is_refused, requests, secrets, taken};

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_becomes_the_secret_at_its_own_host() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let places = vec![
        CredentialLocation::query("key"),
        CredentialLocation::header("x-api-key"),
        CredentialLocation::header("authorization"),
    ];
    let key = Key { places, ..Key::new("provider", &["api.test"]) };
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let target = format!("api.test:{}", server.port);
    let basic = |secret: &str| format!("Basic {}", STANDARD.encode(format!("me:{secret}")));
    let request = get(&format!("/v1/x?key={}", key.placeholder))
        .header("x-api-key", &key.placeholder)
        .header("authorization", basic(&key.placeholder));
    let (status, _, body) = world.send(&target, request.body(full("")).unwrap()).await;
    assert_eq!(status, 200, "{body}");
    let seen = &server.seen()[0];
    assert_eq!(seen.header("x-api-key"), key.value);
    assert_eq!(seen.header("authorization"), basic(&key.value));
    assert!(
        seen.uri
            .to_string()
            .ends_with(&format!("/v1/x?key={}", key.value.replace('+', "%2B").replace('/', "%2F")))
    );
    assert_eq!(seen.uri.host(), Some("api.test"));
    // And it does not come back.
    assert!(!body.contains(&key.value) && !body.contains("Zq81"), "{body}");
    assert!(body.contains(&format!("x-api-key: {}", key.placeholder)), "{body}");
    let notes = world.notes().await;
    assert!(notes.leaks.iter().all(|(_, leak)| leak.action == LeakResponse::Redacted), "{:?}", notes.leaks);
    assert!(!format!("{notes:?}").contains("Zq81Zq81"));
    assert_eq!(requests(&notes)[0].0.request.as_ref().unwrap().url, format!("https://{target}/v1/x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_over_http2() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let target = format!("api.test:{}", server.port);
    let mut sender = world.http2(&target).await;
    let request =
        get(&format!("https://{target}/v1/x")).header("authorization", format!("Bearer {}", key.placeholder));
    let (status, _, body) = taken(sender.send_request(request.body(full("")).unwrap()).await.unwrap()).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(server.seen()[0].header("authorization"), format!("Bearer {}", key.value));
    assert!(!body.contains(&key.value));
}

#[tokio::test(flavor = "multi_thread")]
async fn n25_a_placeholder_goes_nowhere_else() {
    let root = Root::new();
    let server = Server::echo(&root, &["other.test"]).await;
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let target = format!("other.test:{}", server.port);
    let placeholder = &key.placeholder;
    let attempts = [
        get("/").header("x-api-key", placeholder).body(full("")),
        get("/")
            .header("authorization", format!("Basic {}", STANDARD.encode(format!("me:{placeholder}"))))
            .body(full("")),
        get("/").header("x-any", STANDARD.encode(placeholder)).body(full("")),
        get(&format!("/a/{placeholder}/b")).body(full("")),
        get(&format!("/?q={placeholder}")).body(full("")),
        get(&format!("/{placeholder}")).header("x-real", &key.value).body(full("")),
        http::Request::post("/").body(full(format!("{{\"k\":\"{placeholder}\"}}"))),
        http::Request::post("/").body(full(STANDARD.encode(placeholder))),
        http::Request::post("/").body(full(key.value.clone())),
        http::Request::post("/").body(full(key.value.replace('/', "\\/"))),
    ];
    for request in attempts {
        let (status, headers, body) = world.send(&target, request.unwrap()).await;
        assert_eq!(status, 403, "{body}");
        assert_eq!(headers["x-ringfence-outcome"], "refused");
        assert!(body.contains("secret/provider") && !body.contains(placeholder.as_str()), "{body}");
    }
    // The control: the same host without the secret.
    assert_eq!(world.send(&target, get("/fine").body(full("fine")).unwrap()).await.0, 200);
    assert_eq!(server.seen().len(), 1, "{}", server.all());
    let notes = world.notes().await;
    assert_eq!(notes.leaks.len(), 10);
    assert!(
        notes
            .leaks
            .iter()
            .all(|(_, leak)| leak.action == LeakResponse::Blocked && leak.fingerprint.is_some())
    );
    assert!(notes.leaks.iter().any(|(_, leak)| leak.place == LeakLocation::Header("x-api-key".into())));
    assert!(!format!("{notes:?}").contains(placeholder.as_str()), "{notes:?}");
    let refused = requests(&notes)
        .iter()
        .filter(|(_, end)| {
            is_refused(end, "secret/provider") || is_refused(end, "secret/provider/placeholder")
        })
        .count();
    assert_eq!(refused, 10);
}

/// B-O6: whoever can choose where a key stands can have an honest host publish it. The control is the first test: the same
/// key where keys stand.
#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_in_the_wrong_place_stops_the_request() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let target = format!("api.test:{}", server.port);
    let placeholder = &key.placeholder;
    let attempts = [
        get("/").header("user-agent", placeholder),
        get("/").header("cookie", format!("session={placeholder}")),
        get("/").header("referer", format!("https://api.test/{placeholder}")),
        get("/").header("x-webhook", placeholder),
        get("/").header("x-api-key", format!("{placeholder};{placeholder}")),
        get("/").header("authorization", format!("Bearer {placeholder}, {placeholder}")),
        get(&format!("/users/{placeholder}")),
        get(&format!("/?q={placeholder}")),
        get(&format!("/?key={placeholder}")),
        get(&format!("/?callback=https%3A%2F%2Fevil.test%2F{placeholder}")),
    ];
    let count = attempts.len();
    for request in attempts {
        let (status, headers, body) = world.send(&target, request.body(full("")).unwrap()).await;
        assert_eq!(
            (status, &headers["x-ringfence-rule"]),
            (403, &"network.secrets".parse().unwrap()),
            "{body}"
        );
        assert!(body.contains("--credential-location"), "{body}");
    }
    assert_eq!(server.seen().len(), 0, "{}", server.all());
    let notes = world.notes().await;
    assert_eq!(requests(&notes).iter().filter(|(_, end)| is_refused(end, "network.secrets")).count(), count);
    assert!(!format!("{notes:?}").contains(&key.value));
}
