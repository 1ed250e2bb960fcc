//! The other ways to a server: a provider's base URL at the proxy, plain requests, fetches.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use hyper_util::rt::TokioIo;
use ringfence_egress::{
    FetchError, FetchLimits, FetchRequest, FetchResponse, FlowIngress, FlowTarget, ProviderRoute,
};
use ringfence_types::HostPattern;

use crate::world::{Body, Key, Root, Server, World, full, get, requests, secrets, taken};

async fn plain(world: &World, request: http::Request<Body>) -> (u16, http::HeaderMap, String) {
    let stream = tokio::net::TcpStream::connect(world.door).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    taken(sender.send_request(request).await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_reached_by_its_base_url() {
    let root = Root::new();
    let server = Server::echo(&root, &["api.test"]).await;
    let key = Key::new("provider", &["api.test"]);
    let upstream =
        FlowTarget { host: HostPattern::parse("api.test").unwrap().host().clone(), port: server.port };
    let world = World::new(&root, |http| {
        http.secrets = secrets(&[&key]);
        http.providers = vec![ProviderRoute { name: "some".into(), upstream }];
    });
    let host = world.door.to_string();
    let request = |path: &str| {
        get(path).header("host", &host).header("x-api-key", &key.placeholder).body(full("")).unwrap()
    };
    let (status, _, body) = plain(&world, request("/ringfence/provider/some/v1/messages?beta=true")).await;
    assert_eq!(status, 200, "{body}");
    assert!(!body.contains(&key.value));
    let seen = &server.seen()[0];
    assert_eq!(seen.uri.path_and_query().unwrap().as_str(), "/v1/messages?beta=true");
    assert_eq!(seen.uri.host(), Some("api.test"));
    assert_eq!(seen.header("x-api-key"), key.value);
    for path in
        ["/ringfence/provider/other/v1", "/", "/ringfence/provider/", "/ringfence/provider/some/../../x"]
    {
        let (status, _, body) = plain(&world, request(path)).await;
        assert!(status == 400 || status == 403, "{path} {status} {body}");
    }
    assert_eq!(server.seen().len(), 1);
    let notes = world.notes().await;
    assert_eq!(requests(&notes)[0].0.way, FlowIngress::Reverse);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_requests_are_judged_and_searched() {
    let root = Root::new();
    let server = Server::plain().await;
    let key = Key::new("provider", &["api.test"]);
    let world = World::new(&root, |http| http.secrets = secrets(&[&key]));
    let target = format!("other.test:{}", server.port);
    let request = |uri: String, host: &str| get(&uri).header("host", host);
    let fine = request(format!("http://{target}/x"), &target).body(full("")).unwrap();
    assert_eq!(plain(&world, fine).await.0, 200);
    let denied = format!("denied.test:{}", server.port);
    let refused = request(format!("http://{denied}/"), &denied).body(full("")).unwrap();
    assert_eq!(plain(&world, refused).await.0, 403);
    let fronted = request(format!("http://{target}/"), &denied).body(full("")).unwrap();
    assert_eq!(plain(&world, fronted).await.0, 403);
    let leaking = request(format!("http://{target}/"), &target).header("x-a", &key.placeholder);
    assert_eq!(plain(&world, leaking.body(full("")).unwrap()).await.0, 403);
    let user = request(format!("http://me:you@{target}/"), &target).body(full("")).unwrap();
    assert_eq!(plain(&world, user).await.0, 400);
    assert_eq!(server.seen().len(), 1);
    assert_eq!(server.seen()[0].uri, "/x");
    let notes = world.notes().await;
    assert_eq!(requests(&notes)[0].0.request.as_ref().unwrap().url, format!("http://{target}/x"));
}

fn request(url: String) -> FetchRequest {
    FetchRequest { method: "GET".into(), url, limits: FetchLimits::default() }
}

/// Fetches block, so they do it elsewhere.
async fn fetch(world: Arc<World>, request: FetchRequest) -> Result<FetchResponse, FetchError> {
    tokio::task::spawn_blocking(move || world.proxy().fetch(request)).await.unwrap()
}

async fn redirecting(root: &Root) -> Server {
    Server::answering(root, &["api.test", "other.test"], |seen| {
        Box::pin(async move {
            let to = |status: u16, place: &str| {
                Response::builder().status(status).header("location", place).body(full("")).unwrap()
            };
            let port = seen.uri.port_u16().unwrap();
            match seen.uri.path() {
                "/relative" => to(302, "/end"),
                "/loop" => to(307, "/loop"),
                "/away" => to(301, &format!("https://other.test:{port}/end")),
                "/denied" => to(308, &format!("https://denied.test:{port}/end")),
                "/file" => to(302, "file:///etc/passwd"),
                "/large" => Response::new(full(vec![b'x'; 100_000])),
                _ => Response::new(full(format!("{} {}", seen.method, crate::world::told(&seen)))),
            }
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_follows_redirects_each_judged() {
    let root = Root::new();
    let server = redirecting(&root).await;
    let world = Arc::new(World::new(&root, |_| {}));
    let base = format!("https://api.test:{}", server.port);
    let found = fetch(world.clone(), request(format!("{base}/relative"))).await.unwrap();
    assert_eq!((found.status, found.redirects, found.url.as_str()), (200, 1, format!("{base}/end").as_str()));
    let away = fetch(world.clone(), request(format!("{base}/away"))).await.unwrap();
    assert_eq!(away.url, format!("https://other.test:{}/end", server.port));
    let post = FetchRequest { method: "POST".into(), ..request(format!("{base}/relative")) };
    let found = fetch(world.clone(), post).await.unwrap();
    assert!(found.body.starts_with(b"GET "));
    let denied = fetch(world.clone(), request(format!("{base}/denied"))).await;
    assert!(matches!(&denied, Err(FetchError::Refused(refusal)) if refusal.rule == "denied"), "{denied:?}");
    assert!(matches!(
        fetch(world.clone(), request(format!("{base}/loop"))).await,
        Err(FetchError::Redirects(5))
    ));
    assert!(matches!(
        fetch(world.clone(), request(format!("{base}/file"))).await,
        Err(FetchError::Malformed(_))
    ));
    let world = Arc::into_inner(world).unwrap();
    let notes = world.notes().await;
    assert!(requests(&notes).iter().all(|(flow, _)| flow.way == FlowIngress::Fetch));
    assert_eq!(notes.ended.len(), notes.judged.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_has_limits() {
    let root = Root::new();
    let server = redirecting(&root).await;
    let world = Arc::new(World::new(&root, |_| {}));
    let base = format!("https://api.test:{}", server.port);
    let small = FetchLimits { bytes: 50_000, ..FetchLimits::default() };
    let large = FetchRequest { limits: small, ..request(format!("{base}/large")) };
    assert!(matches!(fetch(world.clone(), large).await, Err(FetchError::TooLarge(50_000))));
    let silent = tokio::net::TcpListener::bind((crate::world::HERE, 0)).await.unwrap();
    let url = format!("http://127.0.0.1:{}/", silent.local_addr().unwrap().port());
    let short = FetchLimits { time: Duration::from_millis(200), ..FetchLimits::default() };
    let late = fetch(world.clone(), FetchRequest { limits: short, ..request(url) }).await;
    assert!(matches!(late, Err(FetchError::Late(_))), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_not_fetched() {
    let root = Root::new();
    let server = redirecting(&root).await;
    let world = Arc::new(World::new(&root, |_| {}));
    for url in [
        "nonsense",
        "file:///etc/passwd",
        "ftp://api.test/",
        "https://me@api.test/",
        "https://*.test/",
        "http://",
    ] {
        let result = fetch(world.clone(), request(url.into())).await;
        assert!(matches!(result, Err(FetchError::Malformed(_))), "{url} {result:?}");
    }
    let method =
        FetchRequest { method: "G T".into(), ..request(format!("https://api.test:{}/", server.port)) };
    assert!(matches!(fetch(world.clone(), method).await, Err(FetchError::Malformed(_))));
    assert_eq!(server.seen().len(), 0);
    let metadata = fetch(world.clone(), request("http://169.254.169.254/latest".into())).await;
    assert!(matches!(metadata, Err(FetchError::Refused(_))), "{metadata:?}");
}
