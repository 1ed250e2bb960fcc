//! `deny.toml`: licences, banned crates and sources of every dependency.
//!
//! The file has the format of cargo-deny, which can be used on it as well. Building cargo-deny takes longer than all other
//! checks together, so this module reads what `cargo metadata` says (docs/adr/0058-deny-without-cargo-deny.md). A setting
//! that this module does not check is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{Result, command, report_violations};

const FILE: &str = "deny.toml";

/// Enums of one word: another word in the file does not parse, because this module would not do what it says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    #[serde(rename = "sources")]
    _sources: Sources,
    /// Checked by cargo-deny alone, where it has a database.
    #[serde(rename = "advisories")]
    _advisories: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
    #[serde(rename = "version")]
    _version: IgnoredAny,
    /// For licence texts. A package without an expression is a violation here.
    #[serde(rename = "confidence-threshold")]
    _confidence: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bans {
    deny: Vec<Ban>,
    #[serde(rename = "multiple-versions")]
    _multiple_versions: Warn,
    #[serde(rename = "wildcards")]
    _wildcards: Allow,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    /// Packages that may depend on it all the same.
    #[serde(default)]
    wrappers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    #[serde(rename = "unknown-registry")]
    _registry: Deny,
    #[serde(rename = "unknown-git")]
    _git: Deny,
}

#[derive(Deserialize)]
enum Deny {
    #[serde(rename = "deny")]
    _Deny,
}

#[derive(Deserialize)]
enum Warn {
    #[serde(rename = "warn")]
    _Warn,
}

#[derive(Deserialize)]
enum Allow {
    #[serde(rename = "allow")]
    _Allow,
}

/// Fails with every violation; otherwise says what was only noted.
pub(crate) fn run(root: &Path) -> Result<String> {
    let settings = settings(&std::fs::read_to_string(root.join(FILE))?)?;
    let metadata = metadata(root, &settings.graph.targets)?;
    report_violations("deny", &violations(&settings, &metadata))?;
    let twice = duplicates(&metadata);
    Ok(format!("{} crates in several versions, {}", twice.len(), advisories(root)?))
}

fn settings(text: &str) -> Result<Settings> {
    toml::from_str(text).map_err(|error| format!("{FILE}: {error}").into())
}

/// The dependencies of the platforms that we support, dev-dependencies included.
fn metadata(root: &Path, targets: &[String]) -> Result<Value> {
    let platforms = targets.iter().flat_map(|target| ["--filter-platform", target]);
    let arguments = ["metadata", "--format-version", "1", "--locked"];
    let text = command::output_of(command::cargo(root).args(arguments).args(platforms))?;
    Ok(serde_json::from_str(&text)?)
}

fn violations(settings: &Settings, metadata: &Value) -> Vec<String> {
    let packages = list(&metadata["packages"]);
    let mut found: Vec<String> =
        packages.iter().filter_map(|package| license_violation(package, &settings.licenses.allow)).collect();
    found.extend(packages.iter().flat_map(|package| source_violations(package, metadata)));
    let dependents = dependents(metadata);
    found.extend(settings.bans.deny.iter().flat_map(|ban| ban_violations(ban, &dependents)));
    found
}

/// An expression holds if allowed licences alone satisfy it: one side of an `OR`, both sides of an `AND`.
fn license_violation(package: &Value, allow: &[String]) -> Option<String> {
    let Some(text) = package["license"].as_str() else {
        return Some(format!("{}: no licence expression", called(package)));
    };
    let allowed = |required: &spdx::LicenseReq| {
        allow.iter().filter_map(|name| spdx::Licensee::parse(name).ok()).any(|name| name.satisfies(required))
    };
    match spdx::Expression::parse_mode(text, spdx::ParseMode::LAX) {
        Ok(expression) if expression.evaluate(allowed) => None,
        Ok(_) => Some(format!("{}: licence `{text}` is not allowed by {FILE}", called(package))),
        Err(error) => Some(format!("{}: licence `{text}` cannot be read: {}", called(package), error.reason)),
    }
}

/// Ours are in the workspace, all others in the default registry. A dependency on another registry names it.
fn source_violations(package: &Value, metadata: &Value) -> Vec<String> {
    let mut found = Vec::new();
    match package["source"].as_str() {
        None if list(&metadata["workspace_members"]).contains(&package["id"]) => {}
        None => found.push(format!("{}: a path outside the workspace", called(package))),
        Some(source) if source.starts_with("registry+") || source.starts_with("sparse+") => {}
        Some(source) => found.push(format!("{}: source `{source}`", called(package))),
    }
    let elsewhere = list(&package["dependencies"]).iter().filter_map(|wanted| wanted["registry"].as_str());
    found.extend(elsewhere.map(|registry| format!("{}: depends on registry `{registry}`", called(package))));
    found
}

fn ban_violations(ban: &Ban, dependents: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let name = &ban.name;
    let users = dependents.get(name.as_str());
    let users = || users.into_iter().flatten().copied();
    let banned = users().filter(|user| !ban.wrappers.iter().any(|wrapper| wrapper == user));
    let unused = ban.wrappers.iter().filter(|wrapper| !users().any(|user| user == *wrapper));
    let banned = banned.map(|user| format!("{user}: depends on `{name}`, which {FILE} bans"));
    let unused = unused.map(|wrapper| format!("{FILE}: `{wrapper}` does not depend on `{name}`: remove it"));
    banned.chain(unused).collect()
}

/// The packages that depend on each package, by name.
fn dependents(metadata: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    let names: BTreeMap<&str, &str> =
        list(&metadata["packages"]).iter().map(|package| (text(&package["id"]), name(package))).collect();
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        for dependency in list(&node["deps"]) {
            let (Some(from), Some(to)) = (names.get(text(&node["id"])), names.get(text(&dependency["pkg"])))
            else {
                continue;
            };
            found.entry(to).or_default().insert(from);
        }
    }
    found
}

fn duplicates(metadata: &Value) -> Vec<&str> {
    let mut versions: BTreeMap<&str, u32> = BTreeMap::new();
    for package in list(&metadata["packages"]) {
        *versions.entry(name(package)).or_default() += 1;
    }
    versions.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect()
}

/// By cargo-deny itself, where it is installed and has fetched a database before. Nothing is downloaded.
fn advisories(root: &Path) -> Result<&'static str> {
    let installed =
        command::cargo(root).args(["deny", "--version"]).output().is_ok_and(|o| o.status.success());
    if !installed || !has_database() {
        return Ok("advisories not checked (no cargo-deny with a database)");
    }
    command::must_succeed(command::cargo(root).args(["deny", "--offline", "check", "advisories"]))?;
    Ok("advisories checked")
}

fn has_database() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    home.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok())
        .is_some_and(|mut it| it.next().is_some())
}

fn called(package: &Value) -> String {
    format!("{} {}", name(package), text(&package["version"]))
}

fn name(package: &Value) -> &str {
    text(&package["name"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = r#"
        [graph]
        targets = ["x"]
        [advisories]
        yanked = "deny"
        [licenses]
        version = 2
        confidence-threshold = 0.9
        allow = ["MIT", "Apache-2.0 WITH LLVM-exception"]
        [bans]
        multiple-versions = "warn"
        wildcards = "allow"
        deny = [{ crate = "runtime", wrappers = ["client"] }, { crate = "old" }]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
    "#;

    fn package(name: &str) -> Value {
        json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": "registry+x", "dependencies": [] })
    }

    fn metadata(packages: &[Value], edges: &[(&str, &str)]) -> Value {
        let node = |(from, to): &(&str, &str)| json!({ "id": from, "deps": [{ "pkg": to }] });
        let nodes: Vec<Value> = edges.iter().map(node).collect();
        json!({ "packages": packages, "workspace_members": ["ours"], "resolve": { "nodes": nodes } })
    }

    fn found(packages: &[Value], edges: &[(&str, &str)]) -> Vec<String> {
        violations(&settings(TEXT).unwrap(), &metadata(packages, edges))
    }

    fn with(key: &str, value: Value) -> Value {
        let mut package = package("a");
        package[key] = value;
        package
    }

    /// One dependency that is in order, so that no wrapper is unused.
    fn count(package: Value) -> usize {
        found(&[package, self::package("client"), self::package("runtime")], &[("client", "runtime")]).len()
    }

    #[test]
    fn licence_expressions_need_allowed_licences() {
        for good in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(MIT) AND Apache-2.0 WITH LLVM-exception"] {
            assert_eq!(count(with("license", json!(good))), 0, "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "no such licence"] {
            assert_eq!(count(with("license", json!(bad))), 1, "{bad}");
        }
        assert_eq!(count(with("license", Value::Null)), 1);
    }

    #[test]
    fn packages_come_from_the_workspace_or_the_default_registry() {
        assert_eq!(count(with("source", json!("git+https://host.test/x"))), 1);
        assert_eq!(count(with("source", Value::Null)), 1, "a path outside the workspace");
        let mut ours = with("source", Value::Null);
        ours["id"] = json!("ours");
        assert_eq!(count(ours), 0);
        assert_eq!(count(with("dependencies", json!([{ "name": "x", "registry": "https://host.test" }]))), 1);
    }

    #[test]
    fn banned_crates_have_their_wrappers_as_only_dependents() {
        let packages = [package("a"), package("client"), package("runtime"), package("old")];
        assert_eq!(found(&packages, &[("client", "runtime")]), Vec::<String>::new());
        let more = [("client", "runtime"), ("a", "runtime"), ("a", "old")];
        let all = found(&packages, &more);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all.iter().all(|line| line.starts_with("a: depends on")), "{all:?}");
        let unused = found(&packages, &[]);
        assert_eq!(unused.len(), 1, "{unused:?}");
        assert!(unused[0].contains("`client` does not depend on `runtime`"), "{unused:?}");
    }

    #[test]
    fn settings_that_are_not_checked_are_refused() {
        assert!(settings(TEXT).is_ok());
        for (from, to) in [
            ("unknown-git = \"deny\"", "unknown-git = \"warn\""),
            ("multiple-versions = \"warn\"", "multiple-versions = \"deny\""),
            ("wildcards = \"allow\"", "wildcards = \"deny\""),
            ("unknown-git = \"deny\"", "unknown-git = \"deny\"\nallow-git = []"),
            ("wildcards = \"allow\"", "wildcards = \"allow\"\nskip = []"),
        ] {
            assert!(settings(&TEXT.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn several_versions_of_a_crate_are_counted() {
        assert_eq!(duplicates(&metadata(&[package("a"), package("b"), package("a")], &[])), ["a"]);
    }
}
