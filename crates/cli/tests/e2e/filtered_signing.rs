//! AWS clients inside sign with a placeholder; what arrives is signed with the key.

use crate::internet::Internet;
use crate::testkit::{contains, finish};

/// Made up of parts; the id as well.
fn key() -> String {
    format!("{}+{}/x", "signing", "k3y".repeat(9))
}

fn id() -> String {
    format!("AK{}", "ID7".repeat(6))
}

/// Signs by the published rules, with nothing of ours.
const SIGN: &str = r#"
import hashlib, hmac, os, sys, urllib.request
DAY, TIME, BODY = '20260102', '20260102T030405Z', b'Action=Look'
def mac(key, text): return hmac.new(key, text.encode(), hashlib.sha256).digest()
def sha(data): return hashlib.sha256(data).hexdigest()
def signed(id, key):
    scope = DAY + '/eu-west-1/things/aws4_request'
    canonical = '\n'.join(['POST', '/echo', '', 'host:web.test', 'x-amz-date:' + TIME, '', 'host;x-amz-date', sha(BODY)])
    text = '\n'.join(['AWS4-HMAC-SHA256', TIME, scope, sha(canonical.encode())])
    step = ('AWS4' + key).encode()
    for part in [DAY, 'eu-west-1', 'things', 'aws4_request']: step = mac(step, part)
    return 'AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=host;x-amz-date, Signature=%s' % (id, scope, mac(step, text).hex())
"#;

const CLIENT: &str = r#"
key = sys.argv[1] if len(sys.argv) > 1 else os.environ['AWS_SECRET_ACCESS_KEY']
headers = {'x-amz-date': TIME, 'authorization': signed(os.environ['AWS_ACCESS_KEY_ID'], key)}
request = urllib.request.Request('https://web.test/echo', data=BODY, headers=headers)
try: print(urllib.request.urlopen(request, timeout=20).status)
except urllib.error.HTTPError as error: print(error.code, error.headers['x-ringfence-rule'])
"#;

#[test]
fn what_is_signed_inside_is_signed_again_with_the_key() {
    let internet = Internet::new();
    for (name, variable, value) in
        [("aws-id", "AWS_ACCESS_KEY_ID", id()), ("aws-key", "AWS_SECRET_ACCESS_KEY", key())]
    {
        let mut command = internet.ringfence();
        command.args([
            "secret",
            "set",
            name,
            "--class",
            "provider",
            "--host",
            "web.test",
            "--env-name",
            variable,
        ]);
        finish(&mut command, value.as_bytes()).expect(0);
    }
    let flags = ["--secret", "aws-id", "--secret", "aws-key", "--allow-host", "web.test"];
    let client = format!("{SIGN}{CLIENT}");
    let done = internet.run(&flags, &["python3", "-c", &client]).expect(0);
    assert_eq!(done.text(), "200\n", "{}", done.err);
    let expected = format!("{SIGN}print(signed(sys.argv[1], sys.argv[2]))");
    let expected = internet.control(&["python3", "-c", &expected, &id(), &key()]).expect(0);
    let visits = internet.visits();
    let sent = visits.iter().find(|visit| visit["target"] == "/echo").unwrap();
    assert_eq!(sent["headers"]["authorization"], expected.text().trim());
    assert!(!contains(&done.out, key().as_bytes()));
    // Signed with anything else it goes nowhere.
    let before = internet.visits().len();
    let done = internet.run(&flags, &["python3", "-c", &client, "another key"]).expect(0);
    assert_eq!(done.text(), "403 network.signing\n", "{}", done.err);
    let http = internet.visits().into_iter().skip(before).filter(|visit| visit["what"] == "http").count();
    assert_eq!(http, 0);
}

/// A key that signs is never sent. Without its id it would be one like any other, so there is no session with it.
#[test]
fn a_key_that_signs_needs_its_id() {
    let internet = Internet::new();
    let mut command = internet.ringfence();
    command.args(["secret", "set", "aws-key", "--class", "provider", "--host", "web.test"]);
    finish(command.args(["--env-name", "AWS_SECRET_ACCESS_KEY"]), key().as_bytes()).expect(0);
    let flags = ["--secret", "aws-key", "--allow-host", "web.test"];
    let script = "touch made; curl -sS -H \"X-Api-Key: $AWS_SECRET_ACCESS_KEY\" https://web.test/echo";
    internet.run(&flags, &["sh", "-c", script]).expect(126).says("secret.signing").says("AWS_ACCESS_KEY_ID");
    assert!(!internet.world.workspace.join("made").exists());
    assert_eq!(internet.came_to("30.0.0.10"), 0);
}
