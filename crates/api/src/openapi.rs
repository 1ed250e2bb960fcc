use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::{Access, ApiError, Method, Reply};

/// The description of every method in HTTP, made from the table that the daemon dispatches by.
pub fn openapi(version: &str) -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let error = generator.subschema_for::<ApiError>();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for method in Method::ALL {
        let types = method.types(&mut generator);
        let operation = operation(*method, json!(types.request), json!(types.answer));
        let route = method.route();
        let _new =
            paths.entry(route.path).or_default().insert(route.verb.to_string().to_lowercase(), operation);
    }
    let _new = paths.entry(SOCKET).or_default().insert("get".to_owned(), socket());
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Ringfence", "version": version },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": { "error": {
                "description": "why there is no answer",
                "content": { "application/json": { "schema": error } },
            } },
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// Where every method is called by its name, with JSON-RPC.
const SOCKET: &str = "/v1/ws";

fn socket() -> Value {
    json!({
        "operationId": "websocket",
        "summary": "A WebSocket: every method by its `operationId`, with JSON-RPC 2.0",
        "x-right": "whoever the daemon knows; each method has its own right",
        "security": [{ "token": [] }],
        "responses": {
            "101": { "description": "messages are JSON-RPC from here on" },
            "default": { "$ref": "#/components/responses/error" },
        },
    })
}

fn operation(method: Method, request: Value, answer: Value) -> Value {
    let route = method.route();
    let fields = route.path.split(['{', '}']).skip(1).step_by(2);
    let mut parameters: Vec<Value> = fields
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let media = match method.reply() {
        Reply::Json => "application/json",
        Reply::Stream => "text/event-stream",
        Reply::Text => "text/plain",
        Reply::Bytes => "application/octet-stream",
    };
    let (security, right) = match method.access() {
        Access::Anyone => (json!([]), "whoever reaches the daemon".to_owned()),
        Access::Known => (json!([{ "token": [] }]), "whoever the daemon knows".to_owned()),
        Access::Operator(scope) => (json!([{ "token": [scope.word()] }]), format!("scope `{scope}`")),
        Access::Session(scope) => (
            json!([{ "token": [scope.word()] }]),
            format!("an agent about its own session, or scope `{scope}`"),
        ),
    };
    let mut operation = json!({
        "operationId": method.name(),
        "x-right": right,
        "security": security,
        "responses": {
            "200": { "description": "done", "content": { media: { "schema": answer } } },
            "default": { "$ref": "#/components/responses/error" },
        },
    });
    if let Some(all) = operation.as_object_mut() {
        if method == Method::FileUpload {
            let query =
                json!({ "name": "path", "in": "query", "required": true, "schema": { "type": "string" } });
            parameters.push(query);
            let bytes = json!({ "type": "string", "format": "binary" });
            let body = json!({ "content": { "application/octet-stream": { "schema": bytes } } });
            let _new = all.insert("requestBody".to_owned(), body);
        } else if route.verb == crate::Verb::Post {
            let _new = all.insert(
                "requestBody".to_owned(),
                json!({ "content": { "application/json": { "schema": request } } }),
            );
        } else {
            parameters.push(json!({ "name": "query", "in": "query", "style": "form", "explode": true, "schema": request }));
        }
        let _new = all.insert("parameters".to_owned(), json!(parameters));
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_described() {
        let described = openapi("0");
        for method in Method::ALL {
            let route = method.route();
            let operation = &described["paths"][route.path][route.verb.to_string().to_lowercase()];
            assert_eq!(operation["operationId"], method.name());
            assert_ne!(route.path, SOCKET);
        }
        assert!(described["paths"][SOCKET]["get"]["responses"]["101"].is_object());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(values) => values.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let described = openapi("0");
        let mut found = Vec::new();
        references(&described, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("a reference in the document");
            assert!(described.pointer(pointer).is_some(), "{reference}");
        }
    }
}
