//! The OpenAPI description, generated from the table of methods.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::{ApiError, ErrorCode, HttpVerb, Method, MethodAccess, RequestBodyKind, ResponseKind};

/// OpenAPI description of every method, generated from the table that the daemon dispatches by.
pub fn openapi(version: &str) -> Value {
    let settings = |settings: &mut SchemaSettings| settings.definitions_path = "/components/schemas".into();
    let mut generator = SchemaSettings::draft2020_12().with(settings).into_generator();
    let error = json!(generator.subschema_for::<ApiError>());
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for method in Method::ALL {
        let operation = operation(*method, &mut generator);
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
            "responses": refusals(&error),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// The WebSocket path, where methods are called by name with JSON-RPC.
const SOCKET: &str = "/v1/ws";

fn socket() -> Value {
    let mut responses = answers(Method::WhoAmI);
    let _new = responses.insert("101".into(), json!({ "description": "messages are JSON-RPC from here on" }));
    json!({
        "operationId": "websocket",
        "summary": "A WebSocket: every method by its `operationId`, with JSON-RPC 2.0",
        "x-right": "every authenticated client; each method has its own right",
        "security": [{ "token": [] }],
        "responses": responses,
    })
}

/// One kind of response per error code, so that a status identifies the code.
fn refusals(error: &Value) -> Map<String, Value> {
    let refusal = |code: &ErrorCode| {
        let schema = json!({ "allOf": [error, { "properties": { "code": { "const": code } } }] });
        let content = json!({ "application/json": { "schema": schema } });
        (name(*code), json!({ "description": format!("`{}`", name(*code)), "content": content }))
    };
    ErrorCode::ALL.iter().map(refusal).collect()
}

fn name(code: ErrorCode) -> String {
    json!(code).as_str().unwrap_or_default().to_owned()
}

/// Error responses of a method, by status.
fn answers(method: Method) -> Map<String, Value> {
    // Health checks never authenticate. Other open methods return 401 for a wrong password or signature.
    let is_open = matches!(method, Method::Health | Method::Ready);
    let told = |code: &&ErrorCode| !is_open || !matches!(code, ErrorCode::Unauthenticated);
    let refused = |code: &ErrorCode| {
        let place = format!("#/components/responses/{}", name(*code));
        (code.http().to_string(), json!({ "$ref": place }))
    };
    ErrorCode::ALL.iter().filter(told).map(refused).collect()
}

fn operation(method: Method, generator: &mut SchemaGenerator) -> Value {
    let types = method.types(generator);
    let request = resolved(json!(types.request), generator);
    let (security, right) = match method.access() {
        MethodAccess::Anyone => (json!([]), "every client".to_owned()),
        MethodAccess::Known => (json!([{ "token": [] }]), "every authenticated client".to_owned()),
        MethodAccess::Operator(scope) => (json!([{ "token": [scope.word()] }]), format!("scope `{scope}`")),
        MethodAccess::Session(scope) => (
            json!([{ "token": [scope.word()] }]),
            format!("an agent about its own session, or scope `{scope}`"),
        ),
    };
    let mut responses = answers(method);
    responses.extend(done(method, &json!(types.answer)));
    let mut operation = json!({
        "operationId": method.name(),
        "x-right": right,
        "security": security,
        "parameters": parameters(method, &request),
        "responses": responses,
    });
    if let (Some(all), Some(body)) = (operation.as_object_mut(), body(method, request)) {
        let _new = all.insert("requestBody".to_owned(), body);
    }
    operation
}

/// Resolves a reference.
fn resolved(mut schema: Value, generator: &SchemaGenerator) -> Value {
    while let Some(place) = schema.get("$ref").and_then(Value::as_str) {
        let name = place.rsplit('/').next().unwrap_or_default();
        match generator.definitions().get(name) {
            Some(found) => schema = found.clone(),
            None => return schema,
        }
    }
    schema
}

fn done(method: Method, answer: &Value) -> Map<String, Value> {
    let content = match (method, method.reply()) {
        // As MCP defines it, which has its own errors too.
        (Method::Mcp, _) => {
            let taken = json!({ "description": "a notification was taken" });
            let answer = json!({ "description": "done", "content": { "application/json": {}, "text/event-stream": {} } });
            let other =
                json!({ "description": "what the protocol says to a message that is none of its own" });
            let all = [("200", answer), ("202", taken), ("default", other)];
            return all.map(|(status, told)| (status.to_owned(), told)).into_iter().collect();
        }
        (_, ResponseKind::Lines) => json!({ "application/x-ndjson": { "schema": answer } }),
        (_, ResponseKind::Json | ResponseKind::Later) => json!({ "application/json": { "schema": answer } }),
        (_, ResponseKind::Events) => json!({ "text/event-stream": { "schema": answer } }),
        (_, ResponseKind::Text) => json!({ "text/plain": { "schema": answer } }),
        (_, ResponseKind::Bytes) => json!({ "application/octet-stream": {} }),
    };
    [("200".to_owned(), json!({ "description": "done", "content": content }))].into_iter().collect()
}

fn path_fields(method: Method) -> Vec<&'static str> {
    method.route().path.split(['{', '}']).skip(1).step_by(2).collect()
}

/// Fields in the path, and without a body all others too.
fn parameters(method: Method, request: &Value) -> Vec<Value> {
    let in_path = path_fields(method);
    let in_query = method.route().verb != HttpVerb::Post || method.brings() == RequestBodyKind::Bytes;
    let no_fields = Map::new();
    let fields = request.get("properties").and_then(Value::as_object).unwrap_or(&no_fields);
    let needed = |name: &str| {
        request.get("required").and_then(Value::as_array).is_some_and(|all| all.contains(&json!(name)))
    };
    let parameter = |(name, schema): (&String, &Value)| {
        if in_path.contains(&name.as_str()) {
            Some(json!({ "name": name, "in": "path", "required": true, "schema": schema }))
        } else if in_query {
            Some(json!({ "name": name, "in": "query", "required": needed(name), "schema": schema }))
        } else {
            None
        }
    };
    fields.iter().filter_map(parameter).collect()
}

/// The body: all fields that are not in the path.
fn body(method: Method, mut request: Value) -> Option<Value> {
    if method.route().verb != HttpVerb::Post {
        return None;
    }
    if method.brings() == RequestBodyKind::Bytes {
        let content = json!({ "application/octet-stream": {} });
        return Some(json!({ "required": true, "content": content }));
    }
    if method == Method::Mcp {
        return Some(
            json!({ "required": true, "content": { "application/json": { "schema": { "type": "object" } } } }),
        );
    }
    let in_path = path_fields(method);
    if let Some(fields) = request.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|name, _| !in_path.contains(&name.as_str()));
    }
    let mut needed = false;
    if let Some(required) = request.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !in_path.iter().any(|field| name == field));
        needed = !required.is_empty();
    }
    Some(json!({ "required": needed, "content": { "application/json": { "schema": request } } }))
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

    /// The description contains every field, its place, and every status.
    #[test]
    fn fields_are_in_one_place_each_and_every_status_is_named() {
        let described = openapi("0");
        let show = &described["paths"]["/v1/sessions/{session}/calls/{call}"]["get"];
        let places: Vec<(&str, &str)> = show["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|field| (field["name"].as_str().unwrap(), field["in"].as_str().unwrap()))
            .collect();
        assert_eq!(places, [("call", "path"), ("session", "path"), ("wait_ms", "query")]);
        let input = &described["paths"]["/v1/sessions/{session}/calls/{call}/input"]["post"];
        let body = &input["requestBody"]["content"]["application/json"]["schema"];
        let fields: Vec<&String> = body["properties"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["close", "data"]);
        assert_eq!((&body["required"], &input["requestBody"]["required"]), (&json!([]), &json!(false)));
        for code in ErrorCode::ALL {
            let told = &input["responses"][code.http().to_string()]["$ref"];
            let refusal = described.pointer(told.as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
            let schema = &refusal["content"]["application/json"]["schema"]["allOf"];
            assert_eq!(schema[1]["properties"]["code"]["const"], json!(code));
        }
        assert!(input["responses"].get("default").is_none());
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
