//! The attempts of the escape battery by name. An attempt that is gone, or could not be made, is seen here.

use std::collections::BTreeMap;

use serde_json::Value;

/// A name on each line, and who else than everybody can make the attempt: `root`, or a `kernel` that has what it is about.
const LIST: &str = include_str!("list.txt");

/// Every attempt whose name begins with `part` was made and held, and there was no other.
#[track_caller]
pub(crate) fn all_held(report: &Value, part: &str) {
    let lines = LIST.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
    let listed: BTreeMap<&str, &str> = lines.filter(|(id, _)| id.starts_with(part)).collect();
    let results = report["results"].as_array().unwrap().iter();
    let told: BTreeMap<&str, &Value> =
        results.map(|result| (result["id"].as_str().unwrap(), result)).collect();
    assert_eq!(
        told.keys().collect::<Vec<_>>(),
        listed.keys().collect::<Vec<_>>(),
        "the list is crates/cli/tests/attempts/list.txt"
    );
    let is_root = rustix::process::geteuid().is_root();
    for (id, result) in told {
        let excused = match listed[id] {
            "kernel" => true,
            "root" => !is_root,
            _ => false,
        };
        let held = result["verdict"] == "held" || (excused && result["verdict"] == "not-applicable");
        assert!(held, "{result}");
    }
}
