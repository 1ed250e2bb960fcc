//! What the built-in lists think of one command, before the rules of policy files are heard.

use std::borrow::Cow;

use ringfence_types::{Decision, Risk, RuleName};

use super::rules::CommandPattern;
use crate::judgement::{JudgementPart, PartKind};

type StaticText = Cow<'static, str>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BuiltinVerdict {
    pub(super) decision: Decision,
    pub(super) rule: RuleName,
    pub(super) reason: StaticText,
    pub(super) fix: StaticText,
    pub(super) risk: Risk,
    pub(super) cover: AllowCondition,
}

/// What an `allow` rule must be like to turn an `ask` into an `allow`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AllowCondition {
    /// It names every one of these options.
    options: Vec<Vec<u8>>,
    form: AllowForm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum AllowForm {
    /// Any rule that matches.
    #[default]
    Any,
    /// One that names more than the program.
    Named,
    /// One that names the whole command.
    Exact,
    /// One that names the file of the program, not only what it is called.
    Path,
    /// None: what would run is not known, or must not.
    Never,
}

pub(super) const BY_RULE: &str =
    "say yes to this one, or allow it in a policy file of the operator (`[[command]]`, `allow`)";
const BY_EXACT_RULE: &str = "say yes to this one, or leave the option out";
const BY_ANSWER: &str = "say yes to this one, or write it so that it is known before it runs";

impl BuiltinVerdict {
    pub(super) fn allow(rule: impl Into<RuleName>, reason: impl Into<StaticText>) -> Self {
        Self {
            decision: Decision::Allow,
            rule: rule.into(),
            reason: reason.into(),
            fix: Cow::Borrowed(""),
            risk: Risk::Low,
            cover: AllowCondition::default(),
        }
    }

    /// Not on the list: a person decides, unless a rule covers it.
    pub(super) fn miss(rule: impl Into<RuleName>, reason: impl Into<StaticText>, risk: Risk) -> Self {
        Self { decision: Decision::Ask, risk, fix: Cow::Borrowed(BY_RULE), ..Self::allow(rule, reason) }
    }

    pub(super) fn deny(rule: impl Into<RuleName>, reason: impl Into<StaticText>, risk: Risk) -> Self {
        Self { decision: Decision::Deny, ..Self::miss(rule, reason, risk) }.never()
    }

    #[must_use]
    pub(super) fn fix(mut self, fix: impl Into<StaticText>) -> Self {
        self.fix = fix.into();
        self
    }

    /// Only a rule that names this option covers it.
    #[must_use]
    pub(super) fn for_option(mut self, option: &[u8]) -> Self {
        self.cover.options.push(option.to_vec());
        self.fix(BY_EXACT_RULE)
    }

    #[must_use]
    pub(super) fn named(mut self) -> Self {
        self.cover.form = self.cover.form.max(AllowForm::Named);
        self
    }

    #[must_use]
    pub(super) fn exact(mut self) -> Self {
        self.cover.form = self.cover.form.max(AllowForm::Exact);
        self
    }

    #[must_use]
    pub(super) fn by_path(mut self) -> Self {
        self.cover.form = self.cover.form.max(AllowForm::Path);
        self.fix("say yes to this one, or allow the program by its path in a policy file of the operator")
    }

    /// A refusal that a rule may lift after all.
    #[must_use]
    pub(super) fn coverable(mut self) -> Self {
        self.cover = AllowCondition::default();
        self
    }

    #[must_use]
    pub(super) fn never(mut self) -> Self {
        self.cover.form = AllowForm::Never;
        self.fix(BY_ANSWER)
    }

    /// The stricter of two; the first where they agree. What would cover it must cover both.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        let (mut kept, dropped) = if other.decision > self.decision { (other, self) } else { (self, other) };
        kept.risk = kept.risk.max(dropped.risk);
        kept.cover.form = kept.cover.form.max(dropped.cover.form);
        kept.cover.options.extend(dropped.cover.options);
        kept
    }

    #[must_use]
    pub(super) fn and_if(self, other: Option<Self>) -> Self {
        match other {
            Some(other) => self.and(other),
            None => self,
        }
    }

    /// A refusal that no rule lifts.
    pub(super) fn is_final(&self) -> bool {
        self.decision == Decision::Deny && self.cover.form == AllowForm::Never
    }

    pub(super) fn is_covered_by(&self, pattern: &CommandPattern) -> bool {
        let names = |option: &Vec<u8>| pattern.names_option(option);
        let form = match self.cover.form {
            AllowForm::Never => return false,
            AllowForm::Any => true,
            AllowForm::Named => pattern.is_named(),
            AllowForm::Exact => pattern.is_exact(),
            AllowForm::Path => pattern.names_file(),
        };
        form && (pattern.is_exact() || self.cover.options.iter().all(names))
    }

    pub(super) fn part(self, subject: String) -> JudgementPart {
        let fix = (self.decision != Decision::Allow).then_some(self.fix);
        JudgementPart {
            decision: self.decision,
            reason: self.reason,
            fix,
            risk: self.risk,
            ..JudgementPart::new(PartKind::Command, subject, self.rule)
        }
    }
}
