//! JSON-RPC 2.0 messages: text to a method and its request, and back, without I/O.
//!
//! Narrower than the standard in three ways. A message is one request, never a batch. Every request has an id, because
//! every request has a response. Parameters have names.

use ringfence_api::{ApiError, ErrorCode, Method};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::calls::handle::StreamItem;
use crate::errors::{internal, malformed};
use crate::limits::json_size::weighed;
use crate::transport::http::max_body;

/// Cancels a stream of this connection. The standard reserves `rpc.` for the protocol.
const CANCEL: &str = "rpc.cancel";
/// Notifies the client of the end of a stream.
const ENDED: &str = "rpc.ended";
/// Longest id, in bytes.
const LONGEST_ID: usize = 128;

/// JSON-RPC's own error numbers. All other errors use the number of their [`ErrorCode`].
const NO_JSON: i32 = -32700;
const NO_REQUEST: i32 = -32600;
const NO_METHOD: i32 = -32601;

/// The client's request id, repeated in the response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum RpcId {
    Number(i64),
    Word(String),
}

/// What a message asks for.
#[derive(Debug)]
pub(crate) enum RpcRequest {
    Method(Method, Value),
    Cancel { subscription: u64 },
}

/// Why a message was rejected.
#[derive(Debug)]
pub(crate) struct RpcError {
    pub(crate) id: Option<RpcId>,
    number: i32,
    pub(crate) error: ApiError,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RpcEnvelope<'a> {
    jsonrpc: String,
    id: Option<RpcId>,
    method: String,
    // Kept raw until the method, and so the length limit, is known.
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelParams {
    subscription: u64,
}

/// Parses one message.
pub(crate) fn parse(text: &str) -> Result<(RpcId, RpcRequest), RpcError> {
    // Bounds the whole text first, because an oversized value could be in the id.
    weighed(text.as_bytes()).map_err(|error| RpcError { id: None, number: NO_REQUEST, error })?;
    let envelope = match serde_json::from_str::<RpcEnvelope<'_>>(text) {
        Ok(envelope) => envelope,
        Err(error) => return Err(unread(text, &error)),
    };
    let no_request = |message: &str| RpcError { id: None, number: NO_REQUEST, error: malformed(message) };
    let Some(id) = envelope.id else {
        return Err(no_request("a request has an id: a number or a word"));
    };
    if matches!(&id, RpcId::Word(word) if word.len() > LONGEST_ID) {
        return Err(no_request("the id is too long"));
    }
    let rejected = |(number, error)| RpcError { id: Some(id.clone()), number, error };
    if envelope.jsonrpc != "2.0" {
        return Err(rejected((NO_REQUEST, malformed("`jsonrpc` is not `2.0`"))));
    }
    let asked = asked(&envelope.method, envelope.params).map_err(rejected)?;
    Ok((id, asked))
}

fn asked(name: &str, params: Option<&RawValue>) -> Result<RpcRequest, (i32, ApiError)> {
    let numbered = |error: ApiError| (error.code.json_rpc(), error);
    if name == CANCEL {
        let text = params.map_or("{}", RawValue::get);
        let cancel: CancelParams = serde_json::from_str(text)
            .map_err(|error| numbered(malformed(format!("invalid request: {error}"))))?;
        return Ok(RpcRequest::Cancel { subscription: cancel.subscription });
    }
    let Some(method) = Method::of_name(name) else {
        let name: String = name.chars().take(64).collect();
        let shown = ringfence_types::ByteString::from(name.as_str()).display();
        let error = ApiError::new(ErrorCode::NotFound, format!("there is no method `{shown}`"))
            .with_hint("`openapi` describes everything there is");
        return Err((NO_METHOD, error));
    };
    let text = params.map_or("{}", RawValue::get);
    if text.len() > max_body(method) {
        let message = format!("a request has at most {} bytes here", max_body(method));
        return Err(numbered(ApiError::new(ErrorCode::TooLarge, message)));
    }
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(RpcRequest::Method(method, value)),
        Ok(_) => Err(numbered(malformed("the parameters are not an object"))),
        Err(error) => Err(numbered(malformed(format!("the parameters are not JSON: {error}")))),
    }
}

fn unread(text: &str, error: &serde_json::Error) -> RpcError {
    let rejected = |number, error| RpcError { id: None, number, error };
    if text.trim_start().starts_with('[') {
        let batch = malformed("requests do not come in batches").with_hint("send them one after the other");
        return rejected(NO_REQUEST, batch);
    }
    let number = if error.is_data() { NO_REQUEST } else { NO_JSON };
    rejected(number, malformed(format!("this is no request: {error}")))
}

impl From<RpcError> for String {
    fn from(rejected: RpcError) -> Self {
        refused(rejected.id.as_ref(), rejected.number, &rejected.error)
    }
}

/// The response to a request.
pub(crate) fn answer(id: &RpcId, answer: Result<impl Serialize, ApiError>) -> String {
    match answer {
        Ok(result) => serde_json::to_string(&RpcResult { jsonrpc: "2.0", id, result })
            .unwrap_or_else(|error| failed(id, &internal(&error))),
        Err(error) => failed(id, &error),
    }
}

/// The response to a request that failed.
pub(crate) fn failed(id: &RpcId, error: &ApiError) -> String {
    refused(Some(id), error.code.json_rpc(), error)
}

#[derive(Serialize)]
struct RpcResult<'a, T> {
    jsonrpc: &'static str,
    id: &'a RpcId,
    result: T,
}

fn refused(id: Option<&RpcId>, number: i32, error: &ApiError) -> String {
    let told = json!({ "code": number, "message": error.message, "data": error });
    json!({ "jsonrpc": "2.0", "id": id, "error": told }).to_string()
}

/// The response to a stream request: the number that marks its items.
pub(crate) fn begun(subscription: u64) -> Value {
    json!({ "subscription": subscription })
}

/// One item of a stream.
pub(crate) fn told(method: Method, subscription: u64, item: &StreamItem) -> String {
    let params = json!({ "subscription": subscription, "item": item });
    json!({ "jsonrpc": "2.0", "method": method.name(), "params": params }).to_string()
}

/// The end of a stream.
pub(crate) fn ended(subscription: u64) -> String {
    json!({ "jsonrpc": "2.0", "method": ENDED, "params": { "subscription": subscription } }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(text: &str) -> (i32, Option<RpcId>) {
        let rejected = parse(text).expect_err(text);
        let (number, id) = (rejected.number, rejected.id.clone());
        let said: Value = serde_json::from_str(&String::from(rejected)).unwrap();
        assert_eq!(said["error"]["code"], number);
        assert!(said["error"]["data"]["code"].is_string() && said["id"] == json!(id), "{said}");
        (number, id)
    }

    #[test]
    fn every_method_of_the_table_is_found_by_its_name() {
        for method in Method::ALL {
            let text = json!({ "jsonrpc": "2.0", "id": "a", "method": method.name(), "params": { "x": 1 } });
            let (id, asked) = parse(&text.to_string()).unwrap();
            assert_eq!(id, RpcId::Word("a".to_owned()));
            assert!(matches!(asked, RpcRequest::Method(found, value) if found == *method && value["x"] == 1));
        }
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        for text in ["", "{", "nonsense", "\u{0}", "{\"jsonrpc\":\"2.0\",", "{\"id\":}"] {
            assert_eq!(rejected(text), (NO_JSON, None), "{text}");
        }
        let nested = "[".repeat(100_000);
        let heavy = format!("{{\"id\":[0{}]}}", ",0".repeat(100_000));
        for text in [
            "[]",
            "null",
            "7",
            "\"x\"",
            "{}",
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"health\"}]",
            "{\"jsonrpc\":\"2.0\",\"method\":\"health\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"health\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"health\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"health\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"health\",\"token\":\"x\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"health\"}",
            nested.as_str(),
            heavy.as_str(),
        ] {
            assert_eq!(rejected(text), (NO_REQUEST, None), "{text:.60}");
        }
        let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"health\"}}", "x".repeat(129));
        assert_eq!(rejected(&long), (NO_REQUEST, None));
        let id = Some(RpcId::Number(1));
        assert_eq!(
            rejected("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"health\"}"),
            (NO_REQUEST, id.clone())
        );
        assert_eq!(rejected("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"Health\"}"), (NO_METHOD, id.clone()));
        for params in ["[]", "7", "\"x\""] {
            let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"health\",\"params\":{params}}}");
            assert_eq!(rejected(&text), (ErrorCode::InvalidArgument.json_rpc(), id.clone()));
        }
    }

    /// S003-23: the length limit depends on the method, and is checked before the parameters are decoded.
    #[test]
    fn only_a_file_may_be_long() {
        let text = |method: &str| {
            let long = "x".repeat(max_body(Method::CallExec) + 1);
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "x": long } }).to_string()
        };
        assert_eq!(rejected(&text("call.exec")).0, ErrorCode::TooLarge.json_rpc());
        assert!(parse(&text("file.write")).is_ok());
    }
}
