//! Fields whose types belong to other crates: their form in the description of the interface, and the check that a request has it.

use ringfence_types::{NetMode, Profile, Scope};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _, Unexpected};
use serde::{Deserialize as _, Deserializer};
use serde_json::{Value, json};

/// What has names for its parts is written with them. Without this a list of the parts would do as well.
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
    use crate::{AddOperator, AnswerApproval, CreateSession, CreateToken, Exec};

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
            serde_json::from_value::<Exec>(json!({ "session": "s", "argv": ["a"], field: value }))
        };
        assert!(exec("terminal", json!({ "rows": 1, "columns": 2 })).is_ok());
        assert!(exec("terminal", Value::Null).is_ok() && exec("stdin", json!({ "base64": "" })).is_ok());
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
                json!({ "id": "i", "answer": "session", "terms": terms }),
            )
        };
        assert!(answer(json!({ "uses": 1 })).is_ok() && answer(Value::Null).is_ok());
        assert!(answer(json!([1, 2])).is_err());
    }
}
