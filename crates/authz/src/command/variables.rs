//! Variables that a command or its call sets: a name that steers other programs is a question, whatever its value
//! (B-C21, C4).

use ringfence_types::{ByteString, Risk, RuleFamily, RuleId, RuleName};

use super::{CommandContext, CommandEvaluator};
use crate::env::{EnvRules, family_of, is_harmless, steers};
use crate::judgement::{JudgementPart, PartGiven, PartKind};

const UNLISTED: &str = "it is not known to be harmless, and a program may take orders from it";
const FIX_UNLISTED: &str = "leave the variable out, say yes to this one, or open the name in a policy file of the operator (`[[env]]`, `allow`)";
const FIX: &str = "leave the variable out, or say yes to this one";

impl CommandEvaluator<'_> {
    /// Keeps a part about a variable that is set or taken away.
    pub(super) fn variable(&mut self, frame: &CommandContext, change: Change<'_>) {
        self.given = PartGiven::Other;
        if self.is_listed() {
            self.push(frame, judge_variable(change, &self.scene.policy.rules.env));
        }
    }
}

/// What becomes of a variable.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// A shell sets it for itself, or takes it away. A program sees that only where it got the variable before.
    Own(&'a [u8]),
    /// Programs get it; `None` where the value is not known.
    Given(&'a [u8], Option<&'a [u8]>),
}

fn judge_variable(change: Change<'_>, rules: &EnvRules) -> JudgementPart {
    let (Change::Own(name) | Change::Given(name, _)) = change;
    let bytes = ByteString::from(name);
    let shown = if name.is_empty() { "an empty name".to_owned() } else { super::arg::shorten(name) };
    let part = |rule: RuleName| JudgementPart::new(PartKind::Variable, shown.clone(), rule);
    if !is_name(name) {
        let why = "it is not the plain name of a variable, so setting it may run something";
        return part(RuleId::EnvName.into()).because(why).ask(Risk::High, FIX);
    }
    if starts(name, "RINGFENCE_") {
        return part(RuleId::EnvReserved.into())
            .because("the name is reserved for Ringfence")
            .deny(Risk::High, "nothing: choose another name");
    }
    if let Some(rule) = rules.denying(name) {
        return JudgementPart::refused(PartKind::Variable, super::arg::shorten(name), &rule.refusal(&bytes));
    }
    if let Some(family) = family_of(&bytes)
        && !rules.allows(name, family)
    {
        return part(RuleFamily::Env.member(family.name)).because(family.reason).ask(Risk::High, FIX);
    }
    if steers(name) && !rules.opens(name) {
        return part(RuleId::EnvSteering.into()).because("programs take orders from it").ask(Risk::High, FIX);
    }
    match change {
        Change::Given(_, value)
            if !rules.opens(name) && !value.is_some_and(|value| is_harmless(name, value)) =>
        {
            part(RuleId::EnvUnlisted.into()).because(UNLISTED).ask(Risk::Medium, FIX_UNLISTED)
        }
        _ => part(RuleId::EnvHarmless.into()).because("no known program takes orders from it"),
    }
}

fn starts(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

fn is_name(name: &[u8]) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(word)
}
