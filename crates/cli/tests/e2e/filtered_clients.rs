//! Clients that people really use behind the filter, with the variables of the proxy and without.

use std::fs;

use crate::internet::Internet;
use crate::internet::client::{is_the_page, over_tls, words};
use crate::testkit::{finish, marker};

/// S004-3, S002-33: an allowed host is reached, any other is not, by clients that know of the proxy and by those that do not.
#[test]
fn every_client_reaches_the_allowed_host_and_no_other() {
    const PYTHON: &str =
        "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).read().decode(), end='')";
    const NODE: &str = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t), e => { console.error(e); process.exit(9) })";
    let clients: [&[&str]; 4] = [
        &["curl", "-sS", "--max-time", "20"],
        &["wget", "-q", "-T", "20", "-t", "1", "-O", "-"],
        &["python3", "-c", PYTHON],
        &["node", "-e", NODE],
    ];
    let internet = Internet::new();
    for client in clients {
        let attempt = |host: &str| words(&[client, &[&format!("https://{host}/")]].concat());
        over_tls(&internet, &attempt, &is_the_page);
    }
}

#[test]
fn python_requests_reaches_the_allowed_host_alone() {
    const GET: &str = "import requests, sys; print(requests.get(sys.argv[1], timeout=20).text, end='')";
    let internet = Internet::new();
    // On the host it trusts a bundle of its own unless it is told otherwise.
    fs::copy(internet.place.join("roots.pem"), internet.world.workspace.join("roots.pem")).unwrap();
    let script = "REQUESTS_CA_BUNDLE=${REQUESTS_CA_BUNDLE:-roots.pem} exec \"$@\"";
    let attempt = |host: &str| {
        words(&["sh", "-c", script, "sh", "/usr/bin/python3", "-c", GET, &format!("https://{host}/")])
    };
    over_tls(&internet, &attempt, &is_the_page);
}

/// direnv is written in Go and downloads with the client of its standard library.
#[test]
fn a_go_client_reaches_the_allowed_host_alone() {
    let internet = Internet::new();
    let script = "rm -rf go; HOME=$PWD/go XDG_CACHE_HOME=$PWD/go direnv fetchurl \"$1\" && find go -type f -exec cat {} +";
    let attempt = |host: &str| words(&["sh", "-c", script, "sh", &format!("https://{host}/")]);
    over_tls(&internet, &attempt, &|done, address| {
        done.code == Some(0) && done.text().contains(&format!("hello from {address}\n"))
    });
}

/// A JVM trusts what its own store holds, and reads none of the variables. A store named `.p12` would be hidden as a key.
#[test]
fn a_java_client_over_tls_reaches_the_allowed_host_alone() {
    let internet = Internet::new();
    let source = "import java.net.*;\npublic class Get { public static void main(String[] a) throws Exception {\n\
                  var c = new URL(a[0]).openConnection(); c.setConnectTimeout(20000); c.setReadTimeout(20000);\n\
                  System.out.print(new String(c.getInputStream().readAllBytes())); } }\n";
    internet.world.write("Get.java", source);
    let word = marker(&internet.world);
    trust_store(&internet, &word);
    let options = [
        "-XX:TieredStopAtLevel=1".to_owned(),
        "-Djavax.net.ssl.trustStore=roots.store".to_owned(),
        format!("-Djavax.net.ssl.trustStorePassword={word}"),
    ];
    let attempt = |host: &str| {
        [&words(&["java"]), &options[..], &words(&["Get.java", &format!("https://{host}/")])].concat()
    };
    over_tls(&internet, &attempt, &is_the_page);
}

fn trust_store(internet: &Internet, word: &str) {
    let mut keytool = internet.world.host("keytool");
    keytool.args([
        "-importcert",
        "-noprompt",
        "-alias",
        "root",
        "-storetype",
        "PKCS12",
        "-keystore",
        "roots.store",
    ]);
    keytool.args(["-storepass", word, "-file"]).arg(internet.place.join("roots.pem"));
    finish(&mut keytool, b"").expect(0);
}
