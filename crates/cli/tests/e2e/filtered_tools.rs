//! Package managers, ssh and a JVM behind the filter, and Ringfence's own fetch.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::internet::Internet;
use crate::testkit::{Done, finish};

const WEB: &[&str] = &["--net", "filtered", "--allow-host", "web.test", "--allow-host", "git.test:22"];

/// The same attempt on an allowed host and on another: it works there, and nobody hears of it here.
fn only_the_allowed(
    internet: &Internet,
    attempt: impl Fn(&str) -> Vec<String>,
    works: impl Fn(&Done) -> bool,
) {
    let run = |host: &str| {
        let command = attempt(host);
        internet.run(WEB, &command.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let done = run("web.test");
    assert!(works(&done), "{:?} {} {}", done.code, done.text(), done.err);
    internet.forget_visits();
    let other = run("other.test");
    assert!(!works(&other), "{}", other.text());
    assert_eq!(internet.visits(), Vec::<Value>::new());
    let command = attempt("other.test");
    let control = internet.control(&command.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(works(&control), "the control: {} {}", control.text(), control.err);
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A wheel with nothing in it.
fn wheel(directory: &Path) {
    const MAKE: &str = "\
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + '/tiny-1.0-py3-none-any.whl', 'w') as z:
    z.writestr('tiny.py', '')
    z.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('tiny-1.0.dist-info/RECORD', '')
";
    let mut command = std::process::Command::new("python3");
    assert!(command.args(["-c", MAKE]).arg(directory).status().unwrap().success());
}

#[test]
fn pip_gets_packages_from_the_allowed_host_alone() {
    let internet = Internet::new();
    let site = internet.place.join("site/simple/tiny");
    fs::create_dir_all(&site).unwrap();
    wheel(&site);
    fs::write(site.join("index.html"), "<a href=\"tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>")
        .unwrap();
    let attempt = |host: &str| {
        let index = format!("https://{host}/simple/");
        let pip = ["python3", "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--retries", "0"];
        [words(&pip), words(&["--disable-pip-version-check", "-d", "got", "--index-url", &index, "tiny"])]
            .concat()
    };
    only_the_allowed(&internet, attempt, |done| done.code == Some(0));
    assert!(internet.world.workspace.join("got/tiny-1.0-py3-none-any.whl").exists());
}

#[test]
fn npm_reads_from_the_allowed_host_alone() {
    let internet = Internet::new();
    let package = r#"{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"tiny","version":"1.0.0","dist":{"tarball":"https://web.test/tiny.tgz"}}}}"#;
    fs::write(internet.place.join("site/tiny"), package).unwrap();
    let attempt = |host: &str| {
        let registry = format!("--registry=https://{host}/");
        words(&[
            "npm",
            "view",
            "tiny",
            "version",
            &registry,
            "--fetch-retries=0",
            "--cache=npm-cache",
            "--loglevel=error",
        ])
    };
    only_the_allowed(&internet, attempt, |done| done.text().trim() == "1.0.0");
}

/// A JVM reads none of the variables: the namespace leads it to the proxy.
#[test]
fn a_java_client_is_led_to_the_proxy() {
    let internet = Internet::new();
    let source = "import java.net.*;\npublic class Get { public static void main(String[] a) throws Exception {\n\
                  var c = new URL(a[0]).openConnection(); c.setConnectTimeout(20000); c.setReadTimeout(20000);\n\
                  System.out.print(new String(c.getInputStream().readAllBytes())); } }\n";
    internet.world.write("Get.java", source);
    let attempt =
        |host: &str| words(&["java", "-XX:TieredStopAtLevel=1", "Get.java", &format!("http://{host}/")]);
    only_the_allowed(&internet, attempt, |done| done.text().contains("hello from"));
}

/// What is no HTTP is led there as well, to the port that is allowed.
#[test]
fn ssh_reaches_the_allowed_host_and_port() {
    let internet = Internet::new();
    let ssh = |host: &str| {
        let options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "ConnectTimeout=10"];
        [&["ssh"][..], &options, &[host, "true"]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let greeted = |address: &str| {
        let visits = internet.visits();
        let at = visits.iter().filter(|visit| visit["at"] == address && visit["port"] == 22);
        at.filter(|visit| visit["data"].as_str().unwrap().starts_with("SSH-2.0")).count()
    };
    let run = |host: &str| internet.run(WEB, &ssh(host).iter().map(String::as_str).collect::<Vec<_>>());
    run("git.test");
    assert_eq!(greeted("30.0.0.30"), 1);
    run("other.test");
    assert_eq!(greeted("30.0.0.20"), 0);
    internet.control(&ssh("other.test").iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(greeted("30.0.0.20"), 1, "the control");
}

/// S002-14: the fetch of an agent goes by the same rules, and is written down.
#[test]
fn a_fetch_goes_by_the_same_rules() {
    let internet = Internet::new();
    let fetch = |arguments: &[&str]| finish(internet.ringfence().arg("fetch").args(arguments), b"");
    let page = fetch(&["--allow-host", "web.test", "https://web.test/"]).expect(0);
    assert_eq!(page.text(), "hello from 30.0.0.10\n");
    let json = fetch(&["--json", "--allow-host", "web.test", "https://web.test/nothing"]).expect(1).json();
    assert_eq!((&json["status"], &json["url"]), (&404.into(), &"https://web.test/nothing".into()));
    internet.forget_visits();
    fetch(&["https://web.test/"]).expect(126).says("--allow-host web.test");
    fetch(&["--allow-host", "web.test", "https://other.test/"]).expect(126);
    fetch(&["--allow-host", "meta.test", "http://meta.test/"]).expect(126);
    fetch(&["--allow-host", "web.test", "--profile", "review", "https://web.test/"]).expect(126);
    assert_eq!(internet.visits().iter().filter(|visit| visit["what"] == "http").count(), 0);
    let redirected =
        fetch(&["--allow-host", "web.test", "https://web.test/redirect/https:/other.test/"]).expect(126);
    assert!(redirected.err.contains("other.test"), "{}", redirected.err);
    assert_eq!((internet.came_to("30.0.0.10"), internet.came_to("30.0.0.20")), (1, 0));
    let records = internet.world.records();
    let intents: Vec<&Value> =
        records.iter().map(|record| &record["event"]).filter(|event| event["kind"] == "intent").collect();
    let kinds: Vec<&str> = intents.iter().map(|event| event["call"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.get(..2), Some(&["fetch", "flow"][..]), "{kinds:?}");
    internet.world.ledger_tool(&["verify"]).expect(0);
}
