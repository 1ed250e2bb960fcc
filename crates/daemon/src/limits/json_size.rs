//! Bounds the values in a JSON text before it is decoded: a few megabytes of text can decode to hundreds of megabytes.

use std::fmt;

use ringfence_api::ApiError;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::errors::malformed;

/// Values in one message. Commands need the most: one for each word.
const VALUES: u32 = 100_000;
/// Objects in one message. An object takes as much memory as about twenty other values.
const OBJECTS: u32 = 1024;

/// Refuses text with too many values before it is decoded. Invalid JSON passes: the decoder reports it.
pub(crate) fn weighed(text: &[u8]) -> Result<(), ApiError> {
    let mut count = JsonCounter::default();
    let _no_json = count.deserialize(&mut serde_json::Deserializer::from_slice(text));
    if count.is_light() {
        return Ok(());
    }
    let message = format!("there are more than {VALUES} values or {OBJECTS} objects in the request");
    Err(malformed(message).with_hint("bytes are text or base64, not a list of numbers"))
}

#[derive(Default)]
struct JsonCounter {
    values: u32,
    objects: u32,
}

impl JsonCounter {
    fn is_light(&self) -> bool {
        self.values <= VALUES && self.objects <= OBJECTS
    }

    /// Stops the count when the text has too many values.
    fn light<E: Error>(&self) -> Result<(), E> {
        if self.is_light() { Ok(()) } else { Err(E::custom("too much")) }
    }
}

impl<'de> DeserializeSeed<'de> for &mut JsonCounter {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.values += 1;
        self.light()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut JsonCounter {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while values.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        self.objects += 1;
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(&mut *self)?;
        }
        self.light()
    }
}

#[cfg(test)]
mod tests {
    use ringfence_api::ErrorCode;

    use super::*;

    /// A JSON list that repeats `text` `count` times.
    fn list(text: &str, count: usize) -> String {
        format!("{{\"content\":[{}]}}", vec![text; count].join(","))
    }

    fn is_refused(text: &str) -> bool {
        weighed(text.as_bytes()).map_err(|error| assert_eq!(error.code, ErrorCode::InvalidArgument)).is_err()
    }

    #[test]
    fn what_becomes_much_is_refused_before_it_does() {
        for value in ["0", "-1", "0.5", "null", "true", "\"\"", "\"\\n\"", "[]"] {
            assert!(is_refused(&list(value, 100_000)), "{value}");
            assert!(!is_refused(&list(value, 99_000)), "{value}");
        }
        for value in ["{}", "{\"\":0}", "[{}]", "{\"a\\u0000\":{}}"] {
            assert!(is_refused(&list(value, 1024)), "{value}");
            assert!(!is_refused(&list(value, 500)), "{value}");
        }
        let wide: Vec<String> = (0..100_000).map(|number| format!("\"{number}\":0")).collect();
        assert!(is_refused(&format!("{{{}}}", wide.join(","))));
        assert!(is_refused(&format!("{} and no JSON", list("0", 100_000))), "it is not read to its end");
    }

    #[test]
    fn what_is_long_is_not_much_and_what_is_no_json_is_for_others() {
        assert!(!is_refused(&format!("{{\"content\":\"{}\"}}", "x".repeat(1_000_000))));
        for text in ["", "{", "nonsense", "[1,2", "\u{0}", &"[".repeat(200_000), &"{\"\":".repeat(2000)] {
            assert!(!is_refused(text), "{text:.20}");
        }
        assert!(weighed(b"\"\xff\"").is_ok());
    }
}
