//! What was decided about an action, part by part, and by whom.

use std::borrow::Cow;
use std::path::PathBuf;

use ringfence_types::{ByteString, Decision, PolicyLayer, Refusal, RefusalCode, Risk, RuleName};
use serde::Serialize;

/// A place in a policy file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleLocation {
    pub file: PathBuf,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

impl RuleLocation {
    /// The id of the stored answer whose rule this is. Files have absolute names, so that none can look like one.
    pub fn grant(&self) -> Option<&str> {
        self.file.to_str()?.strip_prefix(GRANT)
    }
}

/// How the text of a stored answer is called.
const GRANT: &str = "grant ";

/// The name under which the rules of the stored answer `id` are read as a policy.
pub fn grant_file(id: &str) -> PathBuf {
    PathBuf::from(format!("{GRANT}{id}"))
}

impl std::fmt::Display for RuleLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(id) = self.grant() {
            return write!(f, "{GRANT}{}", ByteString::from(id).display());
        }
        write!(f, "{}:{}:{}", ByteString::from(self.file.as_path()).display(), self.line, self.column)
    }
}

/// Where a rule comes from. Built-in rules have no origin: their name says what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSource {
    pub layer: PolicyLayer,
    pub origin: Option<RuleLocation>,
    /// What the author of the rule says about it.
    pub reason: Option<String>,
}

impl RuleSource {
    /// What would change a rule's mind, for a [`JudgementPart`] that it decided.
    pub(crate) fn fix(&self) -> String {
        match (&self.origin, self.layer) {
            (Some(origin), _) => format!("change the rule at {origin}"),
            (None, PolicyLayer::Flags) => "leave the startup flag out".to_owned(),
            (None, _) => "change the rule".to_owned(),
        }
    }

    /// Whether the rule may open something: only what the operator wrote or started with can (C-10).
    pub(crate) fn has_authority(&self) -> bool {
        self.layer <= PolicyLayer::Operator
    }
}

/// What kind of thing a part is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartKind {
    /// A command, after unwrapping.
    Command,
    /// A file or directory that is read.
    Read,
    /// A file or directory that is written, created or removed.
    Write,
    /// A variable that is set.
    Variable,
    Host,
    Tool,
    /// The call as a whole: profile, network mode, limits.
    Call,
}

impl PartKind {
    fn code(self) -> RefusalCode {
        match self {
            Self::Command => RefusalCode::Command,
            Self::Read | Self::Write => RefusalCode::Path,
            Self::Variable => RefusalCode::Environment,
            Self::Host => RefusalCode::Network,
            Self::Tool => RefusalCode::Tool,
            Self::Call => RefusalCode::Profile,
        }
    }
}

/// What a command of a call is given besides its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartGiven {
    /// What the call itself is given.
    OfCall,
    /// Other variables or another standard input: a stored answer says nothing about them.
    Other,
}

/// One judged part of an action. The strictest part decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgementPart {
    pub aspect: PartKind,
    /// What was judged, safe to show: a command line, a path, a name.
    pub subject: String,
    pub decision: Decision,
    pub rule: RuleName,
    pub layer: PolicyLayer,
    pub origin: Option<RuleLocation>,
    /// Why, in a few words, lower case, without a final period.
    pub reason: Cow<'static, str>,
    /// The one thing that would change the answer. Every `ask` and `deny` has one.
    pub fix: Option<Cow<'static, str>>,
    pub risk: Risk,
    /// For a command: its arguments, where every one of them is known. Empty otherwise.
    pub argv: Vec<ByteString>,
    /// For a command: the file that would be executed, where it was found.
    pub program: Option<PathBuf>,
    /// For a path: its bytes, absolute.
    pub path: Option<ByteString>,
    /// For a command: whether it gets the variables and the standard input of the call.
    pub given: PartGiven,
    /// How deep it is wrapped: 0 for what was asked, 1 for what a wrapper or a script in it runs, and so on.
    pub depth: u8,
}

impl JudgementPart {
    /// Allowed by a built-in rule; the other fields are set by the methods below.
    pub fn new(aspect: PartKind, subject: impl Into<String>, rule: impl Into<RuleName>) -> Self {
        Self {
            aspect,
            subject: subject.into(),
            decision: Decision::Allow,
            rule: rule.into(),
            layer: PolicyLayer::Floor,
            origin: None,
            reason: Cow::Borrowed(""),
            fix: None,
            risk: Risk::Low,
            argv: Vec::new(),
            program: None,
            path: None,
            given: PartGiven::OfCall,
            depth: 0,
        }
    }

    #[must_use]
    pub fn because(mut self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.reason = reason.into();
        self
    }

    #[must_use]
    pub fn deny(mut self, risk: Risk, fix: impl Into<Cow<'static, str>>) -> Self {
        (self.decision, self.risk, self.fix) = (Decision::Deny, risk, Some(fix.into()));
        self
    }

    #[must_use]
    pub fn ask(mut self, risk: Risk, fix: impl Into<Cow<'static, str>>) -> Self {
        (self.decision, self.risk, self.fix) = (Decision::Ask, risk, Some(fix.into()));
        self
    }

    /// Decided by a rule of a policy file.
    #[must_use]
    pub fn by(mut self, source: &RuleSource) -> Self {
        self.layer = source.layer;
        self.origin.clone_from(&source.origin);
        if let Some(reason) = &source.reason {
            self.reason = Cow::Owned(reason.clone());
        }
        self
    }

    #[must_use]
    pub fn at_depth(mut self, depth: u8) -> Self {
        self.depth = depth;
        self
    }

    /// `approval = never`: what would be asked is refused (S001-26).
    #[must_use]
    pub(crate) fn without_question(mut self) -> Self {
        if self.decision == Decision::Ask {
            self.decision = Decision::Deny;
            self.reason = Cow::Owned(format!("{}; approvals are off (`approval = \"never\"`)", self.reason));
        }
        self
    }

    /// The same no, as the answer to a call.
    pub fn refusal(&self) -> Refusal {
        Refusal {
            code: self.aspect.code(),
            layer: self.layer,
            rule: self.origin.as_ref().map_or_else(|| self.rule.clone(), |origin| self.rule.at(origin)),
            message: format!("`{}`: {}", self.subject, self.reason),
            hint: self.fix.as_ref().map(|fix| fix.clone().into_owned()),
        }
    }

    /// A refusal of the built-in floor as a part.
    pub(crate) fn refused(aspect: PartKind, subject: impl Into<String>, refusal: &Refusal) -> Self {
        let fix = refusal.hint.clone().unwrap_or_else(|| "nothing: this cannot be allowed".to_owned());
        let mut part = Self::new(aspect, subject, refusal.rule.clone())
            .because(refusal.message.clone())
            .deny(Risk::High, fix);
        part.layer = refusal.layer;
        part
    }
}

/// Every part of an action with its decision. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    parts: Vec<JudgementPart>,
}

impl Judgement {
    /// Nothing judged is nothing allowed: without a part the answer is the one given.
    pub fn new(parts: Vec<JudgementPart>, otherwise: JudgementPart) -> Self {
        Self { parts: if parts.is_empty() { vec![otherwise] } else { parts } }
    }

    /// About something that has one part.
    pub fn one(part: JudgementPart) -> Self {
        Self { parts: vec![part] }
    }

    pub fn parts(&self) -> &[JudgementPart] {
        &self.parts
    }

    pub fn decision(&self) -> Decision {
        self.parts.iter().map(|part| part.decision).max().unwrap_or(Decision::Deny)
    }

    /// What two policies say of the same: the strictest part decides. What both say is said once.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let more: Vec<JudgementPart> =
            other.parts.into_iter().filter(|part| !self.parts.contains(part)).collect();
        self.parts.extend(more);
        self
    }

    /// `approval = never`: what would be asked is refused (S001-26).
    #[must_use]
    pub(crate) fn without_questions(mut self) -> Self {
        self.parts = self.parts.into_iter().map(JudgementPart::without_question).collect();
        self
    }

    /// The paths that are left to a person.
    pub(crate) fn asked_paths(&self) -> Vec<ByteString> {
        let asked = self.parts.iter().filter(|part| part.decision == Decision::Ask);
        asked.filter_map(|part| part.path.clone()).collect()
    }

    /// The stored answers that allow parts of it, by id.
    pub(crate) fn stored(&self) -> Vec<String> {
        let allowed = self.parts.iter().filter(|part| part.decision == Decision::Allow);
        let mut ids: Vec<String> =
            allowed.filter_map(|part| part.origin.as_ref()?.grant().map(str::to_owned)).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    pub fn risk(&self) -> Risk {
        self.parts.iter().map(|part| part.risk).max().unwrap_or(Risk::Critical)
    }

    /// The first of the strictest parts: the one that a person is told about.
    pub fn decisive(&self) -> Option<&JudgementPart> {
        let decision = self.decision();
        self.parts.iter().find(|part| part.decision == decision)
    }
}
