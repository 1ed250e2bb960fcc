//! What the built-in lists think of one command, before the rules of policy files are heard.

use std::borrow::Cow;

use ringfence_types::{Decision, Risk};

use super::rules::CommandPattern;
use crate::judgement::{Aspect, Part};

type Text = Cow<'static, str>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opinion {
    pub(super) decision: Decision,
    pub(super) rule: Text,
    pub(super) reason: Text,
    pub(super) fix: Text,
    pub(super) risk: Risk,
    pub(super) cover: Cover,
}

/// What an `allow` rule must be like to turn an `ask` into an `allow`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cover {
    /// It names every one of these options.
    options: Vec<Vec<u8>>,
    form: Form,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
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

impl Opinion {
    pub(super) fn allow(rule: impl Into<Text>, reason: impl Into<Text>) -> Self {
        Self {
            decision: Decision::Allow,
            rule: rule.into(),
            reason: reason.into(),
            fix: Cow::Borrowed(""),
            risk: Risk::Low,
            cover: Cover::default(),
        }
    }

    /// Not on the list: a person decides, unless a rule covers it.
    pub(super) fn miss(rule: impl Into<Text>, reason: impl Into<Text>, risk: Risk) -> Self {
        Self { decision: Decision::Ask, risk, fix: Cow::Borrowed(BY_RULE), ..Self::allow(rule, reason) }
    }

    pub(super) fn deny(rule: impl Into<Text>, reason: impl Into<Text>, risk: Risk) -> Self {
        Self { decision: Decision::Deny, ..Self::miss(rule, reason, risk) }.never()
    }

    #[must_use]
    pub(super) fn fix(mut self, fix: impl Into<Text>) -> Self {
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
        self.cover.form = self.cover.form.max(Form::Named);
        self
    }

    #[must_use]
    pub(super) fn exact(mut self) -> Self {
        self.cover.form = self.cover.form.max(Form::Exact);
        self
    }

    #[must_use]
    pub(super) fn by_path(mut self) -> Self {
        self.cover.form = self.cover.form.max(Form::Path);
        self.fix("say yes to this one, or allow the program by its path in a policy file of the operator")
    }

    /// A refusal that a rule may lift after all.
    #[must_use]
    pub(super) fn coverable(mut self) -> Self {
        self.cover = Cover::default();
        self
    }

    #[must_use]
    pub(super) fn never(mut self) -> Self {
        self.cover.form = Form::Never;
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
        self.decision == Decision::Deny && self.cover.form == Form::Never
    }

    pub(super) fn is_covered_by(&self, pattern: &CommandPattern) -> bool {
        let names = |option: &Vec<u8>| pattern.names_option(option);
        let form = match self.cover.form {
            Form::Never => return false,
            Form::Any => true,
            Form::Named => pattern.is_named(),
            Form::Exact => pattern.is_exact(),
            Form::Path => pattern.names_file(),
        };
        form && (pattern.is_exact() || self.cover.options.iter().all(names))
    }

    pub(super) fn part(self, subject: String) -> Part {
        let fix = (self.decision != Decision::Allow).then_some(self.fix);
        Part {
            decision: self.decision,
            reason: self.reason,
            fix,
            risk: self.risk,
            ..Part::new(Aspect::Command, subject, self.rule)
        }
    }
}
