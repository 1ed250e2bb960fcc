//! The architecture as a check: crate edges go strictly down, and the launcher depends on `libc` alone.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::{Result, command, report_violations, sources};

const LAUNCHER: &str = "ringfence-launch";
const LAUNCHER_MAY_USE: &[&str] = &["libc"];
const WITHOUT_LAYER: &[&str] = &["xtask"];
const TOP: u64 = 5;

pub(crate) fn run(root: &Path) -> Result<()> {
    let mut violations = crate_violations(&command::metadata(root)?);
    violations.extend(sources::violations(root)?);
    report_violations("layers", &violations)
}

fn crate_violations(metadata: &Value) -> Vec<String> {
    let packages = members(metadata);
    let layers: BTreeMap<&str, u64> =
        packages.iter().filter_map(|package| Some((name(package), layer(package)?))).collect();
    let mut violations = Vec::new();
    for package in &packages {
        check_key(package, &mut violations);
        for dependency in list(&package["dependencies"]) {
            check_edge(package, dependency, &layers, &mut violations);
        }
    }
    violations
}

fn check_key(package: &Value, violations: &mut Vec<String>) {
    let name = name(package);
    match layer(package) {
        Some(layer) if layer > TOP => violations.push(format!("{name}: layer {layer} does not exist")),
        None if !WITHOUT_LAYER.contains(&name) => {
            violations.push(format!("{name}: no `[package.metadata.ringfence] layer`"));
        }
        _ => {}
    }
}

fn check_edge(
    package: &Value,
    dependency: &Value,
    layers: &BTreeMap<&str, u64>,
    violations: &mut Vec<String>,
) {
    let (from, to) = (name(package), name(dependency));
    let normal = dependency["kind"].is_null();
    if from == LAUNCHER && normal && !LAUNCHER_MAY_USE.contains(&to) {
        violations.push(format!("{from}: may depend on {LAUNCHER_MAY_USE:?} alone, not on {to}"));
    }
    let Some(below) = layers.get(to) else { return };
    match layers.get(from) {
        Some(above) if below < above => {}
        Some(above) => {
            violations.push(format!("{from} (L{above}) -> {to} (L{below}): edges go strictly down"))
        }
        None => violations.push(format!("{from} -> {to}: a crate without layer may not use ours")),
    }
}

fn members(metadata: &Value) -> Vec<&Value> {
    let ids = list(&metadata["workspace_members"]);
    list(&metadata["packages"]).iter().filter(|package| ids.contains(&package["id"])).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap_or_default()
}

fn layer(package: &Value) -> Option<u64> {
    package["metadata"]["ringfence"]["layer"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, layer: Value, dependencies: &[(&str, Value)]) -> Value {
        let dependencies: Vec<Value> =
            dependencies.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
        json!({ "id": name, "name": name, "metadata": { "ringfence": { "layer": layer } }, "dependencies": dependencies })
    }

    fn violations(packages: &[Value]) -> Vec<String> {
        let ids: Vec<&Value> = packages.iter().map(|p| &p["id"]).collect();
        crate_violations(&json!({ "packages": packages, "workspace_members": ids }))
    }

    #[test]
    fn edges_down_are_fine() {
        let types = package("types", json!(0), &[("serde", Value::Null)]);
        let authz = package("authz", json!(1), &[("types", Value::Null)]);
        let tool = package("xtask", Value::Null, &[("serde_json", Value::Null)]);
        assert_eq!(violations(&[types, authz, tool]), Vec::<String>::new());
    }

    #[test]
    fn edges_up_and_sideways_are_not() {
        let up = [package("a", json!(0), &[("b", Value::Null)]), package("b", json!(1), &[])];
        assert_eq!(violations(&up).len(), 1);
        for same in [0, 1] {
            let side = [package("a", json!(same), &[("b", json!("dev"))]), package("b", json!(same), &[])];
            assert_eq!(violations(&side).len(), 1, "layer {same}, dev edge");
        }
    }

    #[test]
    fn every_crate_names_an_existing_layer() {
        assert_eq!(violations(&[package("a", Value::Null, &[])]).len(), 1);
        assert_eq!(violations(&[package("a", json!(6), &[])]).len(), 1);
    }

    #[test]
    fn tools_use_no_crate_of_ours() {
        let tool = package("xtask", Value::Null, &[("types", Value::Null)]);
        assert_eq!(violations(&[tool, package("types", json!(0), &[])]).len(), 1);
    }

    #[test]
    fn the_launcher_depends_on_libc_alone() {
        let fine = package(LAUNCHER, json!(0), &[("libc", Value::Null), ("proptest", json!("dev"))]);
        assert_eq!(violations(&[fine]), Vec::<String>::new());
        let heavy = package(LAUNCHER, json!(0), &[("libc", Value::Null), ("serde", Value::Null)]);
        assert_eq!(violations(&[heavy]).len(), 1);
    }
}
