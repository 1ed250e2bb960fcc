//! Variables that a command or its call sets: a name that steers other programs is a question, whatever its value
//! (B-C21, C4).

use ringfence_types::{Bytes, Risk};

use super::{Frame, Judge};
use crate::env::{EnvRules, family_of, steers};
use crate::judgement::{Aspect, Part};

const FIX: &str = "leave the variable out, or say yes to this one";

impl Judge<'_> {
    /// Keeps a part about a variable that is set or taken away.
    pub(super) fn variable(&mut self, frame: &Frame, name: &[u8]) {
        if self.is_listed() {
            self.push(frame, judge_variable(name, &self.scene.policy.rules.env));
        }
    }
}

fn judge_variable(name: &[u8], rules: &EnvRules) -> Part {
    let bytes = Bytes::from(name);
    let shown = if name.is_empty() { "an empty name".to_owned() } else { super::arg::shorten(name) };
    let part = |rule: String| Part::new(Aspect::Variable, shown.clone(), rule);
    if !is_name(name) {
        let why = "it is not the plain name of a variable, so setting it may run something";
        return part("env.name".to_owned()).because(why).ask(Risk::High, FIX);
    }
    if starts(name, "RINGFENCE_") {
        return part("env.reserved".to_owned())
            .because("the name is reserved for Ringfence")
            .deny(Risk::High, "nothing: choose another name");
    }
    if let Some(rule) = rules.denying(name) {
        return Part::refused(Aspect::Variable, super::arg::shorten(name), &rule.refusal(&bytes));
    }
    if let Some(family) = family_of(&bytes)
        && !rules.allows(name, family)
    {
        return part(format!("env.{}", family.name)).because(family.reason).ask(Risk::High, FIX);
    }
    if steers(name) && !rules.opens(name) {
        return part("env.steering".to_owned()).because("programs take orders from it").ask(Risk::High, FIX);
    }
    part("env.harmless".to_owned()).because("no known program takes orders from it")
}

fn starts(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

fn is_name(name: &[u8]) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(word)
}
