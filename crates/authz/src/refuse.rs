use ringfence_types::{Layer, Refusal, RefusalCode};

/// A refusal by the built-in floor; the other parts are added by the methods of [`Refuse`].
pub(crate) fn refuse(code: RefusalCode, rule: &str, message: impl Into<String>) -> Refusal {
    Refusal { code, layer: Layer::Floor, rule: rule.to_owned(), message: message.into(), hint: None }
}

pub(crate) trait Refuse {
    fn hint(self, hint: impl Into<String>) -> Self;
    fn at(self, layer: Layer) -> Self;
}

impl Refuse for Refusal {
    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn at(mut self, layer: Layer) -> Self {
        self.layer = layer;
        self
    }
}
