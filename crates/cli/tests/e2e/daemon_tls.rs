//! The daemon where others can reach it: on an address of a network that the test has made, with TLS or not at all.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::internet::Internet;
use crate::internet::daemon::Daemon;
use crate::testkit::{Done, finish};

/// Of the host of this internet, on the wire to the servers.
const HOST: &str = "30.0.0.1";

fn configured(internet: &Internet, more: &str) {
    internet.operator(&format!("[daemon]\nlisten = \"{HOST}:0\"\n{more}"));
}

fn tried(internet: &Internet, arguments: &[&str]) -> Done {
    let mut command = internet.ringfence();
    command.env("XDG_RUNTIME_DIR", internet.world.beside("r"));
    finish(command.args(arguments), b"")
}

/// A daemon on the network, and somebody who may read.
struct Reached<'a> {
    daemon: Daemon<'a>,
    internet: &'a Internet,
    port: String,
    token: String,
}

impl<'a> Reached<'a> {
    fn new(internet: &'a Internet) -> Self {
        let daemon = Daemon::new(internet);
        let address = format!("ringfence: serving at https://{HOST}:");
        crate::testkit::eventually("it says where it listens", || daemon.said().contains(&address));
        let said = daemon.said();
        let port = said.lines().find_map(|line| line.strip_prefix(&address)).unwrap().to_owned();
        let token = daemon.ringfence(&["token", "create", "t", "--scope", "read"]).expect(0);
        let token = token.text().trim_end().to_owned();
        Self { daemon, internet, port, token }
    }

    /// `curl` of somebody on another machine, who believes this authority, for `SITE` with the port of the daemon.
    fn curl(&self, authority: &Path, site: &str) -> Done {
        let Self { port, token, .. } = self;
        let line = format!(
            "exec curl -sS -i -m 60 --noproxy '*' --cacert {} --resolve box.test:{port}:{HOST} \
             -H 'Authorization: Bearer {token}' {site}:{port}/v1/whoami",
            authority.display()
        );
        finish(&mut self.internet.beside_servers(&line), b"")
    }

    /// What is so whatever the certificate: who believes it is answered, and nobody else.
    fn is_reached_over_tls_alone(&self, authority: &Path, others: &Path) {
        let answer = self.curl(authority, &format!("https://{HOST}")).expect(0).text();
        assert!(answer.contains(" 200") && answer.contains("\"scopes\":[\"read\"]"), "{answer}");
        assert!(answer.contains("strict-transport-security: max-age="), "{answer}");
        let stranger = self.curl(others, &format!("https://{HOST}"));
        assert_eq!((stranger.code, stranger.text().as_str()), (Some(60), ""), "{}", stranger.err);
        let clear = self.curl(authority, &format!("http://{HOST}"));
        assert!(clear.code != Some(0) && !clear.text().contains("scopes"), "{clear:?}");
        let warned = "warning: other machines can reach this address";
        assert!(self.daemon.said().contains(warned), "{}", self.daemon.said());
    }
}

/// Files of `openssl`: an authority that nobody here knows, and a certificate of the one that the operator has.
fn certificates(internet: &Internet) {
    let openssl = |arguments: &[&str]| {
        let mut command = std::process::Command::new("openssl");
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"];
        let all = [&["req", "-x509", "-days", "2"], arguments, &key].concat();
        finish(command.args(all).current_dir(&internet.place), b"").expect(0);
    };
    openssl(&["-subj", "/CN=Others", "-keyout", "others.key", "-out", "others.pem"]);
    let signed = ["-CA", "roots.pem", "-CAkey", "root.key", "-addext", "basicConstraints=critical,CA:FALSE"];
    let names = ["-addext", "subjectAltName=DNS:box.test,IP:30.0.0.1"];
    let files = ["-subj", "/CN=box.test", "-keyout", "own.key", "-out", "own.pem"];
    openssl(&[&signed[..], &names, &files].concat());
}

/// S003-21, S003-22; D1: an address that others can reach is served with TLS or not at all.
#[test]
fn s003_22_off_loopback_there_is_tls_or_nothing() {
    let internet = Internet::new();
    certificates(&internet);
    configured(&internet, "");
    for arguments in [&["serve"][..], &["serve", "--check"]] {
        let refused = tried(&internet, arguments).says("without TLS they could read every token");
        assert_eq!(refused.code, Some(125), "{refused:?}");
        assert!(refused.err.contains("tls = \"generated\""), "{}", refused.err);
    }
    configured(&internet, "tls = \"generated\"\n");
    tried(&internet, &["serve", "--check"]).expect(0);
    let made = internet.world.state.join("ringfence/tls/daemon.pem");
    let others = internet.place.join("others.pem");
    Reached::new(&internet).is_reached_over_tls_alone(&made, &others);
}

/// S003-22: with a certificate of the operator's own, by its name and by its address.
#[test]
fn s003_22_the_operators_own_certificate_is_shown() {
    let internet = Internet::new();
    certificates(&internet);
    let [certificate, key] = ["own.pem", "own.key"].map(|name| internet.place.join(name));
    let files = format!(
        "tls = \"files\"\ncertificate = \"{}\"\nkey = \"{}\"\nhosts = [\"box.test\"]\n",
        certificate.display(),
        key.display()
    );
    configured(&internet, &files);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    tried(&internet, &["serve", "--check"]).expect(125).says("the private key cannot be used");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    tried(&internet, &["serve", "--check"]).expect(0);
    let reached = Reached::new(&internet);
    let (own, others) = (internet.place.join("roots.pem"), internet.place.join("others.pem"));
    reached.is_reached_over_tls_alone(&own, &others);
    let named = reached.curl(&own, "https://box.test").expect(0).text();
    assert!(named.contains(" 200") && named.contains("\"scopes\":[\"read\"]"), "{named}");
}
