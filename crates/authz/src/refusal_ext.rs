use ringfence_types::{PolicyLayer, Refusal, RefusalCode, RuleName};

/// A refusal by the built-in floor; the other parts are added by the methods of [`RefusalExt`].
pub(crate) fn refuse(code: RefusalCode, rule: impl Into<RuleName>, message: impl Into<String>) -> Refusal {
    Refusal { code, layer: PolicyLayer::Floor, rule: rule.into(), message: message.into(), hint: None }
}

pub(crate) trait RefusalExt {
    fn hint(self, hint: impl Into<String>) -> Self;
    fn at(self, layer: PolicyLayer) -> Self;
}

impl RefusalExt for Refusal {
    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn at(mut self, layer: PolicyLayer) -> Self {
        self.layer = layer;
        self
    }
}
