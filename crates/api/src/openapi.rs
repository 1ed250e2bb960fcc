use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::{Access, ApiError, Brings, ErrorCode, Method, Reply, Verb};

/// The description of every method in HTTP, made from the table that the daemon dispatches by.
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

/// Where every method is called by its name, with JSON-RPC.
const SOCKET: &str = "/v1/ws";

fn socket() -> Value {
    let mut responses = answers(Method::WhoAmI);
    let _new = responses.insert("101".into(), json!({ "description": "messages are JSON-RPC from here on" }));
    json!({
        "operationId": "websocket",
        "summary": "A WebSocket: every method by its `operationId`, with JSON-RPC 2.0",
        "x-right": "whoever the daemon knows; each method has its own right",
        "security": [{ "token": [] }],
        "responses": responses,
    })
}

/// One kind of answer per code: a status says which code is in it.
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

/// What can come instead of what was asked for, by its status.
fn answers(method: Method) -> Map<String, Value> {
    // Whoever needs not be known is not told that they are not, but by what asks for a password or a signature.
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
        Access::Anyone => (json!([]), "whoever reaches the daemon".to_owned()),
        Access::Known => (json!([{ "token": [] }]), "whoever the daemon knows".to_owned()),
        Access::Operator(scope) => (json!([{ "token": [scope.word()] }]), format!("scope `{scope}`")),
        Access::Session(scope) => (
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

/// What a reference leads to.
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
        // As the Model Context Protocol has it, which has its own refusals as well.
        (Method::Mcp, _) => {
            let taken = json!({ "description": "a notification was taken" });
            let answer = json!({ "description": "done", "content": { "application/json": {}, "text/event-stream": {} } });
            let other =
                json!({ "description": "what the protocol says to a message that is none of its own" });
            let all = [("200", answer), ("202", taken), ("default", other)];
            return all.map(|(status, told)| (status.to_owned(), told)).into_iter().collect();
        }
        (_, Reply::Lines) => json!({ "application/x-ndjson": { "schema": answer } }),
        (_, Reply::Json | Reply::Later) => json!({ "application/json": { "schema": answer } }),
        (_, Reply::Events) => json!({ "text/event-stream": { "schema": answer } }),
        (_, Reply::Text) => json!({ "text/plain": { "schema": answer } }),
        (_, Reply::Bytes) => json!({ "application/octet-stream": {} }),
    };
    [("200".to_owned(), json!({ "description": "done", "content": content }))].into_iter().collect()
}

fn path_fields(method: Method) -> Vec<&'static str> {
    method.route().path.split(['{', '}']).skip(1).step_by(2).collect()
}

/// The fields of a request that are in its path, and without a body all others as well.
fn parameters(method: Method, request: &Value) -> Vec<Value> {
    let in_path = path_fields(method);
    let in_query = method.route().verb != Verb::Post || method.brings() == Brings::Bytes;
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

/// What of a request is in its body: all that is not in its path.
fn body(method: Method, mut request: Value) -> Option<Value> {
    if method.route().verb != Verb::Post {
        return None;
    }
    if method.brings() == Brings::Bytes {
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

    /// Whoever reads the description knows every field, where it goes, and every status that can come back.
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
