//! What policy files say about variables, on top of the built-in families.
//!
//! A denial holds for everything that comes from outside: what the host has, what the operator adds at startup, what one
//! call asks for (S000-31, S000-32, S004-16). What the fence itself sets stays. Only the operator opens anything, and what
//! steers other programs only by its whole name: a pattern is written for names that one knows, and matches others.

use ringfence_types::{ByteString, Refusal, RefusalCode, RuleFamily};

use super::families::{EnvFamily, EnvNamePattern, FAMILIES, FamilyOverride};
use super::{RESERVED_PREFIX, family_of, is_name, starts_with};
use crate::judgement::RuleSource;
use crate::refusal_ext::{RefusalExt as _, refuse};

/// One rule of a policy file about variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvRule {
    pub effect: EnvEffect,
    pub pattern: EnvPattern,
    pub source: RuleSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvEffect {
    /// A caller may set it although a family says no.
    Allow,
    /// Neither inherited nor set by a caller.
    Deny,
    /// Inherited from the environment that Ringfence was started with.
    Inherit,
}

/// A name, or names that begin, end or have something alike: `AWS_*`, `*_TOKEN`, `*SECRET*`. Letter case does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvPattern {
    Is(String),
    Starts(String),
    Ends(String),
    Contains(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvPatternError {
    #[error("the name of a variable is empty")]
    Empty,
    #[error("`{0}` is not a variable name; use letters, digits, `_`, and `*` at the beginning or the end")]
    Name(String),
    #[error("`*` means every variable; name them, or how their names begin or end")]
    Everything,
}

/// A rule about variables that can never have the effect it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvRuleError {
    #[error("`{0}` cannot be opened: {1}")]
    Floor(String, &'static str),
    #[error(
        "`{0}` would open variables that steer other programs or carry credentials; give their whole names"
    )]
    Pattern(String),
}

impl EnvPattern {
    pub fn parse(text: &str) -> Result<Self, EnvPatternError> {
        let (start, rest) = text.strip_prefix('*').map_or((false, text), |rest| (true, rest));
        let (end, word) = rest.strip_suffix('*').map_or((false, rest), |rest| (true, rest));
        if word.is_empty() {
            return Err(if start { EnvPatternError::Everything } else { EnvPatternError::Empty });
        }
        let fine = if start { is_name(format!("_{word}").as_bytes()) } else { is_name(word.as_bytes()) };
        if !fine {
            return Err(EnvPatternError::Name(ByteString::from(text).display()));
        }
        let word = word.to_owned();
        Ok(match (start, end) {
            (false, false) => Self::Is(word),
            (false, true) => Self::Starts(word),
            (true, false) => Self::Ends(word),
            (true, true) => Self::Contains(word),
        })
    }

    fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Is(word) => name.eq_ignore_ascii_case(word.as_bytes()),
            Self::Starts(word) => starts_with(name, word),
            Self::Ends(word) => {
                let at = name.len().checked_sub(word.len());
                at.and_then(|at| name.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(word.as_bytes()))
            }
            Self::Contains(word) => {
                name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
            }
        }
    }

    /// Exactly this name in this letter case: what an operator opens is what they wrote.
    fn is_exactly(&self, name: &[u8]) -> bool {
        matches!(self, Self::Is(word) if word.as_bytes() == name)
    }
}

impl std::fmt::Display for EnvPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Is(word) => f.write_str(word),
            Self::Starts(word) => write!(f, "{word}*"),
            Self::Ends(word) => write!(f, "*{word}"),
            Self::Contains(word) => write!(f, "*{word}*"),
        }
    }
}

impl EnvRule {
    /// For the loader of rules: a rule without effect is a mistake.
    pub fn check(&self) -> Result<(), EnvRuleError> {
        match (self.effect, &self.pattern) {
            (EnvEffect::Deny, _) => Ok(()),
            (_, EnvPattern::Is(name)) => check_name(name),
            (EnvEffect::Inherit, pattern) if !is_about_a_family(pattern) => Ok(()),
            (_, pattern) => Err(EnvRuleError::Pattern(pattern.to_string())),
        }
    }

    pub(crate) fn refusal(&self, name: &ByteString) -> Refusal {
        let reason = self.source.reason.as_deref().unwrap_or("a rule denies it");
        let rule = RuleFamily::Env.member(&self.pattern);
        let rule = self.source.origin.as_ref().map_or_else(|| rule.clone(), |origin| rule.at(origin));
        let message = format!("variable `{}` may not be set: {reason}", name.display());
        refuse(RefusalCode::Environment, rule, message).at(self.source.layer).hint(self.source.fix())
    }
}

fn check_name(name: &str) -> Result<(), EnvRuleError> {
    if starts_with(name.as_bytes(), RESERVED_PREFIX) {
        return Err(EnvRuleError::Floor(name.to_owned(), "it is reserved for Ringfence"));
    }
    match family_of(&ByteString::from(name)) {
        Some(family) if family.opening == FamilyOverride::Never => {
            Err(EnvRuleError::Floor(name.to_owned(), family.reason))
        }
        _ => Ok(()),
    }
}

/// Whether a pattern and a family were written about the same names. Names that only happen to match both are left out
/// one by one, when they are met.
fn is_about_a_family(pattern: &EnvPattern) -> bool {
    let (EnvPattern::Is(word)
    | EnvPattern::Starts(word)
    | EnvPattern::Ends(word)
    | EnvPattern::Contains(word)) = pattern;
    let known = |name: &EnvNamePattern| match *name {
        EnvNamePattern::Is(known) => pattern.matches(known.as_bytes()),
        _ => name.matches(word.as_bytes()),
    };
    FAMILIES.iter().flat_map(|family| family.names).chain(MAYBE_CREDENTIALS).any(known)
}

/// Harmless enough to be set by a caller, who has the value already; not to be taken from the host by a pattern.
const MAYBE_CREDENTIALS: &[EnvNamePattern] = &[
    EnvNamePattern::Ends("_KEY"),
    EnvNamePattern::Ends("_KEYS"),
    EnvNamePattern::Ends("_AUTH"),
    EnvNamePattern::Ends("_PAT"),
];

/// The variable rules of all policy files. Without one only the built-in lists hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvRules {
    rules: Vec<EnvRule>,
}

impl EnvRules {
    pub fn new(rules: Vec<EnvRule>) -> Self {
        Self { rules }
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn denying(&self, name: &[u8]) -> Option<&EnvRule> {
        self.rules.iter().find(|rule| rule.effect == EnvEffect::Deny && rule.pattern.matches(name))
    }

    /// Whether the operator lets callers set a name of a family.
    pub(crate) fn allows(&self, name: &[u8], family: &EnvFamily) -> bool {
        family.opening == FamilyOverride::ByName && self.opens(name)
    }

    /// Whether the operator lets callers set a name that is in no family and steers some program, without a question.
    pub(crate) fn opens(&self, name: &[u8]) -> bool {
        self.opening(EnvEffect::Allow).any(|rule| rule.pattern.is_exactly(name))
    }

    /// Whether the operator wants a name from the host. Those that steer or carry credentials only by name.
    pub(super) fn passes(&self, name: &ByteString) -> bool {
        let bytes = name.as_slice();
        if !is_name(bytes) || starts_with(bytes, RESERVED_PREFIX) {
            return false;
        }
        let by_name_only = match family_of(name) {
            Some(family) if family.opening == FamilyOverride::Never => return false,
            family => family.is_some() || MAYBE_CREDENTIALS.iter().any(|known| known.matches(bytes)),
        };
        self.opening(EnvEffect::Inherit)
            .any(|rule| rule.pattern.is_exactly(bytes) || !by_name_only && rule.pattern.matches(bytes))
    }

    fn opening(&self, effect: EnvEffect) -> impl Iterator<Item = &EnvRule> {
        self.rules.iter().filter(move |rule| rule.effect == effect && rule.source.has_authority())
    }
}
