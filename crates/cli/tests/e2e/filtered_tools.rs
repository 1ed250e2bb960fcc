//! ssh behind the filter, and Ringfence's own fetch.

use serde_json::Value;

use crate::internet::Internet;
use crate::testkit::finish;

const WEB: &[&str] = &["--net", "filtered", "--allow-host", "web.test", "--allow-host", "git.test:22"];

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
    let intents: Vec<&Value> = records
        .iter()
        .map(|record| &record["event"])
        .filter(|event| event["kind"] == "call-intended")
        .collect();
    let kinds: Vec<&str> = intents.iter().map(|event| event["call"]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.get(..2), Some(&["fetch", "flow"][..]), "{kinds:?}");
    internet.world.ledger_tool(&["verify"]).expect(0);
}
