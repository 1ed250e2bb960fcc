//! Redacted text, and the only ways to make it.

use ringfence_runtime::OutboundRedactor;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::otlp::{AnyValue, KeyValue};
use super::trace::TraceContext;

/// Longer texts are omitted as a whole: the scanner would not recognize half of a secret.
const LONGEST: usize = 8 * 1024;
/// Text of one event.
const MOST: usize = 16 * 1024;
const LONGEST_LIST: usize = 256;
const DEEPEST: usize = 16;

/// Text without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RedactedText(String);

impl RedactedText {
    /// Text from the source code.
    pub(super) fn fixed(text: &'static str) -> Self {
        Self(text.to_owned())
    }
}

impl From<RedactedText> for String {
    fn from(clean: RedactedText) -> Self {
        clean.0
    }
}

/// Removes secrets from text.
#[derive(Debug)]
pub(super) struct TelemetryRedactor<'a> {
    known: &'a OutboundRedactor,
    /// Random, for this daemon only.
    salt: &'a str,
}

impl<'a> TelemetryRedactor<'a> {
    pub(super) fn new(known: &'a OutboundRedactor, salt: &'a str) -> Self {
        Self { known, salt }
    }

    /// The client chooses its trace ids and could choose the bytes of a secret. Such ids are replaced by a salted
    /// digest, so that equal ids stay equal.
    pub(super) fn context(&self, context: TraceContext) -> TraceContext {
        let TraceContext { trace, span } = context;
        TraceContext { trace: self.number(trace), span: self.number(span) }
    }

    fn number<const N: usize>(&self, number: [u8; N]) -> [u8; N] {
        if !self.known.finds(&number) {
            return number;
        }
        let digest = Sha256::new().chain_update(self.salt).chain_update(number).finalize();
        digest.first_chunk().copied().unwrap_or([1; N])
    }

    pub(super) fn clean(&self, text: &str) -> RedactedText {
        if text.len() > LONGEST {
            return RedactedText(format!("[{} bytes, not sent]", text.len()));
        }
        RedactedText(self.known.clean(text))
    }

    pub(super) fn text(&self, text: &str) -> AnyValue {
        AnyValue::text(self.clean(text))
    }

    /// The content of an event, up to the size limits.
    pub(super) fn json(&self, value: &Json) -> AnyValue {
        RedactBudget { cleaner: self, left: MOST }.value(value, 0)
    }
}

/// The remaining budget of one event.
struct RedactBudget<'a> {
    cleaner: &'a TelemetryRedactor<'a>,
    left: usize,
}

impl RedactBudget<'_> {
    fn value(&mut self, value: &Json, depth: usize) -> AnyValue {
        if depth > DEEPEST {
            return AnyValue::text(RedactedText::fixed("[too deep, not sent]"));
        }
        match value {
            Json::Null => AnyValue::nothing(),
            Json::Bool(value) => AnyValue::from(*value),
            Json::Number(number) => self.number(number),
            Json::String(text) => self.text(text),
            Json::Array(values) => {
                let taken =
                    values.iter().take(LONGEST_LIST).map(|value| self.value(value, depth + 1)).collect();
                AnyValue::list(taken)
            }
            Json::Object(fields) => {
                let mut taken = Vec::new();
                for (name, value) in fields.iter().take(LONGEST_LIST) {
                    taken.push(KeyValue::named(self.cleaner.clean(name), self.value(value, depth + 1)));
                }
                AnyValue::map(taken)
            }
        }
    }

    fn number(&mut self, number: &serde_json::Number) -> AnyValue {
        match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => AnyValue::number(number),
            (None, Some(number)) => AnyValue::fraction(number),
            (None, None) => AnyValue::nothing(),
        }
    }

    fn text(&mut self, text: &str) -> AnyValue {
        let Some(left) = self.left.checked_sub(text.len()) else {
            return AnyValue::text(RedactedText(format!("[{} bytes, not sent]", text.len())));
        };
        self.left = left;
        self.cleaner.text(text)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    fn contains(value: &AnyValue, text: &str) -> bool {
        value.encode_to_vec().windows(text.len()).any(|part| part == text.as_bytes())
    }

    #[test]
    fn what_is_too_much_is_left_out_and_not_cut() {
        let directory = std::env::temp_dir().join(format!("ringfence-clean-{}", std::process::id()));
        let mut known = OutboundRedactor::new(&directory);
        known.renew(&[zeroize::Zeroizing::new(b"correct+horse+battery".to_vec())]).unwrap();
        let cleaner = TelemetryRedactor::new(&known, "salt");
        assert_eq!(String::from(cleaner.clean(&"x".repeat(LONGEST + 1))), "[8193 bytes, not sent]");
        let event = json!({ "a": "x".repeat(LONGEST), "b": "y".repeat(LONGEST), "c": "marker" });
        let taken = cleaner.json(&event);
        assert!(contains(&taken, &"y".repeat(LONGEST)) && contains(&taken, "[6 bytes, not sent]"));
        let mut deep = json!("marker");
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(!contains(&cleaner.json(&deep), "marker"));
        let event = json!({ "argv": ["x=correct+horse+battery", "marker"], "correct+horse+battery": 1 });
        let taken = cleaner.json(&event);
        assert!(contains(&taken, "marker") && !contains(&taken, "horse"), "{taken:?}");
    }

    /// The client chooses its trace ids.
    #[test]
    fn no_secret_leaves_as_the_number_of_a_trace() {
        let mut known = OutboundRedactor::new(std::path::Path::new("/nonexistent/ringfence"));
        known.renew(&[zeroize::Zeroizing::new(b"sixteen-letters!".to_vec())]).unwrap();
        let cleaner = TelemetryRedactor::new(&known, "salt");
        let plain = TraceContext { trace: *b"no-secret-at-all", span: [7; 8] };
        assert_eq!(cleaner.context(plain), plain, "control");
        let secret = TraceContext { trace: *b"sixteen-letters!", span: [7; 8] };
        let (one, two) = (cleaner.context(secret), cleaner.context(secret));
        assert!(one == two && one.trace != secret.trace && one.span == secret.span, "{one:?}");
        assert_ne!(TelemetryRedactor::new(&known, "other").context(secret), one);
    }
}
