//! Schemas for types of other crates, and checks that a request matches them.

use ringfence_types::{Access, Backend, CallCeiling, NetMode, Profile, Scope};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _, Unexpected};
use serde::{Deserialize as _, Deserializer};
use serde_json::{Value, json};

/// Requires an object with named fields; serde would also accept a list.
pub(crate) fn named<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    if value.is_array() {
        return Err(D::Error::invalid_type(Unexpected::Seq, &"names with values"));
    }
    T::deserialize(value).map_err(D::Error::custom)
}

/// The same for a ceiling and its parts.
pub(crate) fn named_ceiling<'de, D>(deserializer: D) -> Result<Option<CallCeiling>, D::Error>
where
    D: Deserializer<'de>,
{
    let value = Value::deserialize(deserializer)?;
    let roots = value.get("roots").and_then(Value::as_array).into_iter().flatten();
    let is_list = value.is_array() || value.get("limits").is_some_and(Value::is_array);
    if is_list || roots.clone().any(Value::is_array) {
        return Err(D::Error::invalid_type(Unexpected::Seq, &"names with values"));
    }
    if roots.clone().any(|root| root.get("path").is_some_and(|path| !path.is_string())) {
        return Err(D::Error::custom("the path of a root is text"));
    }
    let ceiling: Option<CallCeiling> = Option::deserialize(value).map_err(D::Error::custom)?;
    ceiling.iter().try_for_each(CallCeiling::check_form).map_err(D::Error::custom)?;
    Ok(ceiling)
}

pub(crate) fn profile(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": or_null(Profile::WORDS) })
}

pub(crate) fn net(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": or_null(NetMode::WORDS) })
}

fn or_null(words: &[&str]) -> Vec<Value> {
    words.iter().map(|word| json!(word)).chain([Value::Null]).collect()
}

pub(crate) fn rights(_: &mut SchemaGenerator) -> Schema {
    let scopes: Vec<&str> = Scope::ALL.iter().map(|scope| scope.word()).collect();
    json_schema!({
        "type": "object",
        "required": ["scopes", "workspaces"],
        "properties": {
            "scopes": { "type": "array", "items": { "enum": scopes } },
            "workspaces": within(&subtree()),
        },
    })
}

pub(crate) fn maybe_rights(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [rights(generator), { "type": "null" }] })
}

pub(crate) fn attenuation(_: &mut SchemaGenerator) -> Schema {
    let command = json!({ "type": "array", "items": { "type": "string" } });
    json_schema!({
        "type": "object",
        "required": ["paths", "hosts", "commands"],
        "properties": {
            "paths": within(&subtree()),
            "hosts": within(&json!({ "type": "string", "minLength": 1 })),
            "commands": within(&command),
            "calls": { "type": ["integer", "null"], "minimum": 0 },
        },
    })
}

/// Ceiling of a call: every field is optional.
pub(crate) fn ceiling(_: &mut SchemaGenerator) -> Schema {
    let root = json!({
        "type": "object",
        "required": ["path", "access"],
        "properties": {
            "path": { "type": "string", "minLength": 1, "description": "a root of the session: absolute, or relative to the workspace" },
            "access": { "enum": Access::WORDS },
        },
    });
    let hosts = json!({ "type": "array", "items": { "type": "string", "minLength": 1 }, "maxItems": CallCeiling::MOST });
    let limit = json!({ "type": ["integer", "null"], "minimum": 1 });
    json_schema!({
        "type": ["object", "null"],
        "properties": {
            "roots": { "type": ["array", "null"], "items": root, "maxItems": CallCeiling::MOST },
            "net": { "oneOf": [
                { "const": "none" },
                { "const": "filtered" },
                { "type": "null" },
                { "type": "object", "required": ["hosts"], "properties": { "hosts": hosts }, "additionalProperties": false },
            ] },
            "backend": { "enum": or_null(Backend::WORDS) },
            "limits": {
                "type": "object",
                "properties": {
                    "memory_bytes": limit, "processes": limit, "cpu_seconds": limit, "open_files": limit,
                    "file_size_bytes": limit,
                },
                "additionalProperties": false,
            },
        },
        "additionalProperties": false,
    })
}

/// An absolute path without `.` and `..`.
fn subtree() -> Value {
    json!({ "type": "string", "pattern": "^/" })
}

/// Everything, or only these.
fn within(item: &Value) -> Value {
    let only = json!({ "type": "array", "items": item });
    json!({ "oneOf": [
        { "const": "any" },
        { "type": "object", "required": ["only"], "properties": { "only": only }, "additionalProperties": false },
    ] })
}

#[cfg(test)]
mod tests {
    use crate::{AddOperator, AnswerApproval, CreateSession, CreateToken, ExecRequest};

    use super::*;

    #[test]
    fn a_list_is_nothing_with_names() {
        let wanted = |limits: Value| {
            let text = json!({ "workspace": "/w", "limits": limits });
            serde_json::from_value::<CreateSession>(text)
        };
        assert!(wanted(json!({ "processes": 7 })).is_ok());
        assert!(wanted(json!([1, 2])).is_err() && wanted(json!([])).is_err());
        let exec = |field: &str, value: Value| {
            serde_json::from_value::<ExecRequest>(json!({ "session": "s", "argv": ["a"], field: value }))
        };
        assert!(exec("terminal", json!({ "rows": 1, "columns": 2 })).is_ok());
        assert!(exec("terminal", Value::Null).is_ok() && exec("stdin", json!({ "base64": "" })).is_ok());
        assert!(exec("ceiling", json!({ "net": "none" })).is_ok() && exec("ceiling", json!([])).is_err());
        assert!(exec("ceiling", json!({ "roots": [{ "path": ".", "access": "read" }] })).is_ok());
        assert!(exec("ceiling", json!({ "roots": [[".", "read"]] })).is_err());
        assert!(exec("ceiling", json!({ "limits": [1, 2, 3, 4, 5] })).is_err());
        assert!(exec("terminal", json!([1, 2])).is_err() && exec("stdin", json!([""])).is_err());
        let token =
            |rights: Value| serde_json::from_value::<CreateToken>(json!({ "label": "l", "rights": rights }));
        assert!(token(json!({ "scopes": ["read"], "workspaces": "any" })).is_ok());
        assert!(token(json!([["read"], "any"])).is_err());
        let operator = |rights: Value| {
            let text = json!({ "name": "n", "password": "p", "rights": rights });
            serde_json::from_value::<AddOperator>(text)
        };
        assert!(operator(json!({ "scopes": ["read"], "workspaces": "any" })).is_ok());
        assert!(operator(json!([["read"], "any"])).is_err());
        let answer = |terms: Value| {
            serde_json::from_value::<AnswerApproval>(
                json!({ "id": "i", "answer": "session", "grant_terms": terms }),
            )
        };
        assert!(answer(json!({ "max_uses": 1 })).is_ok() && answer(Value::Null).is_ok());
        assert!(answer(json!([1, 2])).is_err());
    }
}
