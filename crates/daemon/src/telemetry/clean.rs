//! Text that may leave, and the only ways to make some.

use ringfence_runtime::Outbound;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::otlp::{AnyValue, KeyValue};
use super::trace::Context;

/// Longer texts are left out as a whole: half of a secret would not be known for one.
const LONGEST: usize = 8 * 1024;
/// Of one event.
const MOST: usize = 16 * 1024;
const LONGEST_LIST: usize = 256;
const DEEPEST: usize = 16;

/// Text without what must not leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clean(String);

impl Clean {
    /// What was written in the source of this program.
    pub(super) fn fixed(text: &'static str) -> Self {
        Self(text.to_owned())
    }
}

impl From<Clean> for String {
    fn from(clean: Clean) -> Self {
        clean.0
    }
}

/// Takes out what must not leave.
#[derive(Debug)]
pub(super) struct Cleaner<'a> {
    known: &'a Outbound,
    /// Of this daemon alone.
    salt: &'a str,
}

impl<'a> Cleaner<'a> {
    pub(super) fn new(known: &'a Outbound, salt: &'a str) -> Self {
        Self { known, salt }
    }

    /// Numbers of a trace are chosen by whoever asks, who may choose the bytes of a secret. Those become others, and the same always the
    /// same, so that what belongs together stays together.
    pub(super) fn context(&self, context: Context) -> Context {
        let Context { trace, span } = context;
        Context { trace: self.number(trace), span: self.number(span) }
    }

    fn number<const N: usize>(&self, number: [u8; N]) -> [u8; N] {
        if !self.known.finds(&number) {
            return number;
        }
        let digest = Sha256::new().chain_update(self.salt).chain_update(number).finalize();
        digest.first_chunk().copied().unwrap_or([1; N])
    }

    pub(super) fn clean(&self, text: &str) -> Clean {
        if text.len() > LONGEST {
            return Clean(format!("[{} bytes, not sent]", text.len()));
        }
        Clean(self.known.clean(text))
    }

    pub(super) fn text(&self, text: &str) -> AnyValue {
        AnyValue::text(self.clean(text))
    }

    /// What an event of the ledger says, as far as it is not too much.
    pub(super) fn json(&self, value: &Json) -> AnyValue {
        Part { cleaner: self, left: MOST }.value(value, 0)
    }
}

/// An event while it is taken over, and how much of it may still be.
struct Part<'a> {
    cleaner: &'a Cleaner<'a>,
    left: usize,
}

impl Part<'_> {
    fn value(&mut self, value: &Json, depth: usize) -> AnyValue {
        if depth > DEEPEST {
            return AnyValue::text(Clean::fixed("[too deep, not sent]"));
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
            return AnyValue::text(Clean(format!("[{} bytes, not sent]", text.len())));
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
        let mut known = Outbound::new(&directory);
        known.renew(&[zeroize::Zeroizing::new(b"correct+horse+battery".to_vec())]).unwrap();
        let cleaner = Cleaner::new(&known, "salt");
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

    /// Whoever asks chooses the numbers of their trace.
    #[test]
    fn no_secret_leaves_as_the_number_of_a_trace() {
        let mut known = Outbound::new(std::path::Path::new("/nonexistent/ringfence"));
        known.renew(&[zeroize::Zeroizing::new(b"sixteen-letters!".to_vec())]).unwrap();
        let cleaner = Cleaner::new(&known, "salt");
        let plain = Context { trace: *b"no-secret-at-all", span: [7; 8] };
        assert_eq!(cleaner.context(plain), plain, "control");
        let secret = Context { trace: *b"sixteen-letters!", span: [7; 8] };
        let (one, two) = (cleaner.context(secret), cleaner.context(secret));
        assert!(one == two && one.trace != secret.trace && one.span == secret.span, "{one:?}");
        assert_ne!(Cleaner::new(&known, "other").context(secret), one);
    }
}
