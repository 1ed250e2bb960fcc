//! JSON-RPC 2.0: text to a method and its request, and back. It touches no socket.
//!
//! Narrower than the standard in three ways: a message is one request and never a batch, every request has an id, because nothing
//! here is done without an answer, and parameters have names.

use ringfence_api::{ApiError, ErrorCode, Method};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::ask::Item;
use crate::failure::malformed;
use crate::http::most;
use crate::weigh::weighed;

/// Ends a stream that was begun by this conversation. The standard keeps `rpc.` for the protocol itself.
const CANCEL: &str = "rpc.cancel";
/// Says that a stream is over.
const ENDED: &str = "rpc.ended";
/// Longer ids are no ids.
const LONGEST_ID: usize = 128;

/// What is not JSON, and what is no request. Everything else has the number of its [`ErrorCode`].
const NO_JSON: i32 = -32700;
const NO_REQUEST: i32 = -32600;
const NO_METHOD: i32 = -32601;

/// Chosen by the client, and said again in the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Id {
    Number(i64),
    Word(String),
}

/// What a message asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    Method(Method, Value),
    Cancel { subscription: u64 },
}

/// Why a message is no request of ours.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) id: Option<Id>,
    number: i32,
    pub(crate) error: ApiError,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    jsonrpc: String,
    id: Option<Id>,
    method: String,
    // Not looked into before it is known how long it may be.
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    subscription: u64,
}

/// Reads one message.
pub(crate) fn parse(text: &str) -> Result<(Id, Asked), Rejected> {
    // An id is looked into before it is known that it is none.
    weighed(text.as_bytes()).map_err(|error| Rejected { id: None, number: NO_REQUEST, error })?;
    let envelope = match serde_json::from_str::<Envelope<'_>>(text) {
        Ok(envelope) => envelope,
        Err(error) => return Err(unread(text, &error)),
    };
    let no_request = |message: &str| Rejected { id: None, number: NO_REQUEST, error: malformed(message) };
    let Some(id) = envelope.id else {
        return Err(no_request("a request has an id: a number or a word"));
    };
    if matches!(&id, Id::Word(word) if word.len() > LONGEST_ID) {
        return Err(no_request("the id is too long"));
    }
    let rejected = |(number, error)| Rejected { id: Some(id.clone()), number, error };
    if envelope.jsonrpc != "2.0" {
        return Err(rejected((NO_REQUEST, malformed("`jsonrpc` is not `2.0`"))));
    }
    let asked = asked(&envelope.method, envelope.params).map_err(rejected)?;
    Ok((id, asked))
}

fn asked(name: &str, params: Option<&RawValue>) -> Result<Asked, (i32, ApiError)> {
    let numbered = |error: ApiError| (error.code.json_rpc(), error);
    if name == CANCEL {
        let text = params.map_or("{}", RawValue::get);
        let cancel: Cancel = serde_json::from_str(text)
            .map_err(|error| numbered(malformed(format!("the request makes no sense: {error}"))))?;
        return Ok(Asked::Cancel { subscription: cancel.subscription });
    }
    let Some(method) = Method::of_name(name) else {
        let name: String = name.chars().take(64).collect();
        let shown = ringfence_types::Bytes::from(name.as_str()).display();
        let error = ApiError::new(ErrorCode::NotFound, format!("there is no method `{shown}`"))
            .with_hint("`openapi` describes everything there is");
        return Err((NO_METHOD, error));
    };
    let text = params.map_or("{}", RawValue::get);
    if text.len() > most(method) {
        let message = format!("a request has at most {} bytes here", most(method));
        return Err(numbered(ApiError::new(ErrorCode::TooLarge, message)));
    }
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(Asked::Method(method, value)),
        Ok(_) => Err(numbered(malformed("the parameters are not an object"))),
        Err(error) => Err(numbered(malformed(format!("the parameters are not JSON: {error}")))),
    }
}

fn unread(text: &str, error: &serde_json::Error) -> Rejected {
    let rejected = |number, error| Rejected { id: None, number, error };
    if text.trim_start().starts_with('[') {
        let batch = malformed("requests do not come in batches").with_hint("send them one after the other");
        return rejected(NO_REQUEST, batch);
    }
    let number = if error.is_data() { NO_REQUEST } else { NO_JSON };
    rejected(number, malformed(format!("this is no request: {error}")))
}

impl From<Rejected> for String {
    fn from(rejected: Rejected) -> Self {
        refused(rejected.id.as_ref(), (rejected.number, &rejected.error))
    }
}

/// The answer to a request.
pub(crate) fn answer(id: &Id, answer: Result<Value, ApiError>) -> String {
    match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string(),
        Err(error) => refused(Some(id), (error.code.json_rpc(), &error)),
    }
}

fn refused(id: Option<&Id>, (number, error): (i32, &ApiError)) -> String {
    let told = json!({ "code": number, "message": error.message, "data": error });
    json!({ "jsonrpc": "2.0", "id": id, "error": told }).to_string()
}

/// The answer to a request for a stream: what its values will be marked with.
pub(crate) fn begun(subscription: u64) -> Value {
    json!({ "subscription": subscription })
}

/// One value of a stream.
pub(crate) fn told(method: Method, subscription: u64, item: &Item) -> String {
    let params = json!({ "subscription": subscription, "item": item });
    json!({ "jsonrpc": "2.0", "method": method.name(), "params": params }).to_string()
}

/// Nothing more comes.
pub(crate) fn ended(subscription: u64) -> String {
    json!({ "jsonrpc": "2.0", "method": ENDED, "params": { "subscription": subscription } }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(text: &str) -> (i32, Option<Id>) {
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
            assert_eq!(id, Id::Word("a".to_owned()));
            assert!(matches!(asked, Asked::Method(found, value) if found == *method && value["x"] == 1));
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
        let id = Some(Id::Number(1));
        assert_eq!(
            rejected("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"health\"}"),
            (NO_REQUEST, id.clone())
        );
        assert_eq!(rejected("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"Health\"}"), (NO_METHOD, id.clone()));
        for params in ["[]", "7", "\"x\""] {
            let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"health\",\"params\":{params}}}");
            assert_eq!(rejected(&text), (ErrorCode::Malformed.json_rpc(), id.clone()));
        }
    }

    /// S003-23: how long a request may be is a matter of its method, and known before it is looked into.
    #[test]
    fn only_a_file_may_be_long() {
        let text = |method: &str| {
            let long = "x".repeat(most(Method::CallExec) + 1);
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "x": long } }).to_string()
        };
        assert_eq!(rejected(&text("call.exec")).0, ErrorCode::TooLarge.json_rpc());
        assert!(parse(&text("file.write")).is_ok());
    }
}
