//! Routes: from a path to a method and the fields in the path.

use std::sync::LazyLock;

use ringfence_api::{ApiError, ErrorCode, HttpVerb, Method};
use serde_json::{Map, Value};

/// A method with the segments of its path.
struct RouteEntry {
    method: Method,
    verb: HttpVerb,
    parts: Vec<&'static str>,
}

static PLACES: LazyLock<Vec<RouteEntry>> = LazyLock::new(|| {
    let place = |method: &Method| {
        let route = method.route();
        RouteEntry { method: *method, verb: route.verb, parts: route.path.split('/').collect() }
    };
    Method::ALL.iter().map(place).collect()
});

/// The method, with the fields from path and query.
pub(crate) fn find(
    verb: &str,
    path: &str,
    query: Option<&str>,
) -> Result<(Method, Map<String, Value>), ApiError> {
    let verb = HttpVerb::of_word(verb);
    let parts: Vec<&str> = path.split('/').collect();
    let mut known = false;
    for place in PLACES.iter() {
        let Some(mut fields) = fields(&place.parts, &parts) else { continue };
        known = true;
        if Some(place.verb) == verb {
            add_query(&mut fields, query.unwrap_or_default())?;
            return Ok((place.method, fields));
        }
    }
    let message = if known { "nothing is done here in this way" } else { "there is nothing here" };
    Err(ApiError::new(ErrorCode::NotFound, message)
        .with_hint("`/v1/openapi.json` describes everything there is"))
}

fn fields(pattern: &[&str], parts: &[&str]) -> Option<Map<String, Value>> {
    if pattern.len() != parts.len() {
        return None;
    }
    let mut fields = Map::new();
    for (wanted, part) in pattern.iter().zip(parts) {
        match wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            // An id stays text: its prefix may be all digits, and a typed id may contain anything.
            Some("id") if !part.is_empty() => {
                let _new = fields.insert("id".to_owned(), plain(part)?.into());
            }
            Some(name) if !part.is_empty() => {
                let _new = fields.insert(name.to_owned(), worth(name, part));
            }
            None if wanted == part => {}
            _ => return None,
        }
    }
    Some(fields)
}

fn add_query(fields: &mut Map<String, Value>, query: &str) -> Result<(), ApiError> {
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let text = plain(value).ok_or_else(|| {
            ApiError::new(
                ErrorCode::InvalidArgument,
                "a query is UTF-8, with `%` and two digits for what is special",
            )
        })?;
        if fields.insert(name.to_owned(), worth(name, &text)).is_some() {
            return Err(ApiError::new(ErrorCode::InvalidArgument, "a field is said twice"));
        }
    }
    Ok(())
}

/// Decodes percent escapes. A `+` is ambiguous, space or plus, and is refused.
fn plain(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => return None,
            b'%' => {
                let digit =
                    |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                plain.push(high << 4 | low);
            }
            byte => plain.push(byte),
        }
    }
    String::from_utf8(plain).ok()
}

/// Fields that are numbers or booleans, by name: a file may be called `7` or `true`, and an id may be all digits.
const WORTH_MORE_THAN_TEXT: [&str; 4] = ["after", "call", "include_ended", "wait_ms"];

fn worth(name: &str, text: &str) -> Value {
    if !WORTH_MORE_THAN_TEXT.contains(&name) {
        return Value::from(text);
    }
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        text => text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_leads_to_its_method() {
        for method in Method::ALL {
            let route = method.route();
            let path =
                route.path.replace("{session}", "ses_1").replace("{call}", "7").replace("{id}", "tx_1");
            let (found, fields) = find(&route.verb.to_string(), &path, None).unwrap();
            assert_eq!(found, *method);
            assert_eq!(fields.len(), route.path.matches('{').count());
        }
    }

    #[test]
    fn a_query_cannot_say_again_what_the_path_says() {
        assert!(find("GET", "/v1/sessions/ses_1", Some("session=ses_2")).is_err());
        assert!(find("GET", "/v1/sessions//calls", None).is_err());
        assert!(find("GET", "/v1/nothing", None).is_err());
        let (_, fields) = find("GET", "/v1/events", Some("after=12")).unwrap();
        assert_eq!(fields["after"], 12);
    }

    /// Checked against the OpenAPI description, which is generated from the request types.
    #[test]
    fn what_is_a_number_or_a_switch_is_known_by_name() {
        let described = ringfence_api::openapi("0");
        let mut seen = std::collections::BTreeSet::new();
        for route in Method::ALL.iter().map(|method| method.route()) {
            let operation = &described["paths"][route.path][route.verb.to_string().to_lowercase()];
            for field in operation["parameters"].as_array().unwrap() {
                let (name, kind) = (field["name"].as_str().unwrap(), field["schema"]["type"].to_string());
                let is_more = kind.contains("integer") || kind.contains("boolean");
                assert_eq!(WORTH_MORE_THAN_TEXT.contains(&name), is_more, "{} {name}", route.path);
                let _first = seen.insert(name.to_owned());
            }
        }
        assert!(WORTH_MORE_THAN_TEXT.iter().all(|name| seen.contains(*name)));
        let (_, fields) = find("POST", "/v1/tokens/1234567890123456/revoke", None).unwrap();
        assert_eq!(fields["id"], "1234567890123456");
    }

    #[test]
    fn an_id_is_text_also_where_it_is_a_number() {
        for (part, id) in [("3333", "3333"), ("true", "true"), ("a%2fb%20c", "a/b c")] {
            let (method, fields) = find("GET", &format!("/v1/approvals/{part}"), None).unwrap();
            assert_eq!((method, &fields["id"]), (Method::ApprovalShow, &Value::from(id)));
        }
        assert!(find("GET", "/v1/approvals/%ff", None).is_err());
    }

    #[test]
    fn escapes_stand_for_bytes_of_text() {
        let path = |query: &str| {
            let found = find("GET", "/v1/sessions/ses_1/files/download", Some(query));
            found.ok().map(|(_, fields)| fields["path"].clone())
        };
        assert_eq!(path("path=a%20b%2fc%C3%A9"), Some(Value::from("a b/c\u{e9}")));
        assert_eq!(path("path=7"), Some(Value::from("7")));
        for nonsense in ["path=a+b", "path=%", "path=%2", "path=%zz", "path=%ff", "path=%+1"] {
            assert_eq!(path(nonsense), None, "{nonsense}");
        }
    }
}
