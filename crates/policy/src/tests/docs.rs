//! Keeps `schema/policy.schema.json`, `docs/policy.md` and `docs/policies` equal to what is read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::super::format::*;
use super::super::toml_reader::TomlTable as _;
use super::*;

#[path = "../../../authz/src/docs/marked_tables.rs"]
mod marked_tables;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_published_schema_is_up_to_date() {
    let path = repository().join("schema/policy.schema.json");
    let expected = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::fs::read_to_string(&path).unwrap_or_default() != expected {
        let fresh = std::env::temp_dir().join("ringfence-policy.schema.json");
        std::fs::write(&fresh, expected).unwrap();
        panic!("the schema is out of date; to update it: cp {} schema/policy.schema.json", fresh.display());
    }
}

#[test]
fn policy_md_is_up_to_date() {
    let schema = schema();
    let tables: Vec<(&str, String)> =
        tables().into_iter().map(|(mark, name, keys)| (mark, table(&schema, name, &keys))).collect();
    marked_tables::check("policy.md", &tables);
}

#[test]
fn every_example_in_policy_md_is_a_policy() {
    let text = std::fs::read_to_string(repository().join("docs/policy.md")).unwrap();
    let blocks: Vec<&str> =
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 5, "{}", blocks.len());
    for block in blocks {
        let files = disk(&[("/p/team.toml", ""), ("/p/camp.json", MANIFEST)]);
        PolicyFile::load(PolicyFileRole::Operator, Path::new("/p/config.toml"), block.as_bytes(), &files)
            .unwrap_or_else(|error| panic!("{block}\n{error}"));
    }
}

const MANIFEST: &str =
    r#"{"version": 2, "cli": "camp", "commands": [{"path": "status", "agent_allowed": true}]}"#;

#[test]
fn every_shipped_policy_is_one() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(repository().join("docs/policies")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let file =
            PolicyFile::load(PolicyFileRole::Operator, &path, text.as_bytes(), &|path| std::fs::read(path))
                .unwrap_or_else(|error| panic!("{error}"));
        assert!(
            text.contains("match = ") && text.contains("not_match = "),
            "{}: examples are checked",
            path.display()
        );
        merged(&flags(), &[file]).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        names.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(names, ["document-000.toml", "document-001.toml", "node.toml", "python.toml", "rust.toml"]);
}

/// What is published for editors: without the `null` that TOML does not have, and with the choice that rules make.
fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    let root = settings.into_generator().into_root_schema_for::<Top>();
    let mut schema = plain(root.to_value());
    schema["title"] = json!("Ringfence policy");
    for (table, keys) in CHOICES {
        let choices: Vec<Value> = keys.iter().map(|key| json!({ "required": [key] })).collect();
        schema["$defs"][*table]["oneOf"] = json!(choices);
    }
    schema
}

const CHOICES: &[(&str, &[&str])] = &[
    ("PathTable", &["deny", "ask", "allow"]),
    ("CommandTable", &["deny", "ask", "allow", "program", "manifest"]),
    ("ToolTable", &["deny", "ask", "allow"]),
    ("EnvTable", &["deny", "allow", "pass"]),
    ("HostTable", &["deny", "ask", "allow"]),
];

fn plain(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let null = [Value::Null, json!("null"), json!({ "type": "null" })];
            Value::Array(items.into_iter().filter(|item| !null.contains(item)).map(plain).collect())
        }
        Value::Object(map) => {
            let mut map: serde_json::Map<String, Value> =
                map.into_iter().map(|(key, value)| (key, plain(value))).collect();
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace("\n\n", "\u{0}").replace('\n', " ").replace('\u{0}', "\n\n");
            }
            for key in ["type", "anyOf"] {
                let Some(Value::Array(only)) =
                    map.get(key).filter(|list| list.as_array().is_some_and(|list| list.len() == 1))
                else {
                    continue;
                };
                match only[0].clone() {
                    Value::Object(inner) => {
                        map.remove(key);
                        map.extend(inner);
                    }
                    other => {
                        map.insert(key.to_owned(), other);
                    }
                }
            }
            Value::Object(map)
        }
        other => other,
    }
}

/// The tables of `docs/policy.md`: mark, part of the schema, and keys in their order.
fn tables() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let own = |keys: Vec<&'static str>| keys.into_iter().filter(|key| !Body::keys().contains(key)).collect();
    vec![
        ("file", "", own(Top::keys())),
        ("everywhere", "Body", Body::keys()),
        ("container", "ContainerTable", ContainerTable::keys()),
        ("limits", "LimitsTable", LimitsTable::keys()),
        ("leaks", "LeaksTable", LeaksTable::keys()),
        ("sinks", "SinksTable", SinksTable::keys()),
        ("root", "RootTable", RootTable::keys()),
        ("path", "PathTable", PathTable::keys()),
        ("command", "CommandTable", CommandTable::keys()),
        ("tool", "ToolTable", ToolTable::keys()),
        ("env", "EnvTable", EnvTable::keys()),
        ("host", "HostTable", HostTable::keys()),
        ("workspaces", "WorkspaceTable", own(WorkspaceTable::keys())),
        ("approvals", "ApprovalsTable", ApprovalsTable::keys()),
        ("quorum", "QuorumTable", QuorumTable::keys()),
        ("webhook", "WebhookTable", WebhookTable::keys()),
        ("daemon", "DaemonTable", DaemonTable::keys()),
        ("telemetry", "TelemetryTable", TelemetryTable::keys()),
        ("headers", "HeaderTable", HeaderTable::keys()),
    ]
}

fn table(schema: &Value, name: &str, keys: &[&str]) -> String {
    let part = if name.is_empty() { schema } else { &schema["$defs"][name] };
    let mut table = "| key | value | meaning |\n|---|---|---|\n".to_owned();
    for key in keys {
        let value = &part["properties"][*key];
        let meaning = value["description"].as_str().unwrap_or_else(|| panic!("`{key}` has no meaning"));
        writeln!(table, "| `{key}` | {} | {meaning} |", shape(value)).unwrap();
    }
    table
}

fn shape(value: &Value) -> String {
    if let Some(words) = value["enum"].as_array() {
        let words: Vec<String> = words.iter().map(|word| format!("`{}`", word.as_str().unwrap())).collect();
        return words.join(" ");
    }
    if let Some(reference) = value["$ref"].as_str() {
        return if reference.ends_with("Commands") { "commands".to_owned() } else { "a table".to_owned() };
    }
    if let Some(choices) = value["anyOf"].as_array() {
        return format!("{}, or a list", shape(&choices[0]));
    }
    match &value["type"] {
        Value::String(kind) if kind == "array" => "entries".to_owned(),
        Value::String(kind) if kind == "object" => "tables by name".to_owned(),
        Value::String(kind) if kind == "integer" => "a number".to_owned(),
        Value::String(kind) if kind == "boolean" => "`true` or `false`".to_owned(),
        Value::Array(kinds) if kinds.contains(&json!("number")) => "cores: `0.5`".to_owned(),
        Value::Array(_) if value["pattern"].as_str().is_some_and(|pattern| pattern.contains("ms")) => {
            "a time: `\"30s\"`".to_owned()
        }
        Value::Array(_) => "a size: `\"512m\"`".to_owned(),
        _ => "a string".to_owned(),
    }
}
