//! Rules are data: files in `rules/`, one per family. A rule has keywords that are in every match, the shape around them, further
//! conditions, and examples.

mod builtin_keywords;
mod checksum;
mod examples;
mod file;
mod match_filter;
mod template;

use std::sync::{Arc, OnceLock};

use regex_automata::meta::Regex;
use regex_automata::util::syntax;

pub(crate) use builtin_keywords::KEYWORDS;
pub(crate) use checksum::Checksum;
pub use examples::{BadExample, check};
pub use file::{RuleError, parse};
pub(crate) use match_filter::{MatchFilter, is_placeholder, is_reference, is_uuid, looks_random};
pub use template::{TemplateError, expand};

use crate::matcher::Matcher;

/// One kind of credential.
#[derive(Debug)]
pub struct ScanRule {
    pub(crate) id: Arc<str>,
    pub(crate) about: String,
    /// One of these is in every match, in whatever case.
    pub(crate) keywords: Vec<String>,
    pub(crate) shape: RuleShape,
    pub(crate) gate: MatchFilter,
    pub(crate) checksum: Option<Checksum>,
    pub(crate) strength: RuleStrength,
    pub(crate) examples: Vec<String>,
    pub(crate) counterexamples: Vec<String>,
}

impl ScanRule {
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn about(&self) -> &str {
        &self.about
    }

    pub fn keywords(&self) -> &[String] {
        &self.keywords
    }

    /// Templates of texts that this rule finds something in; [`expand`] makes texts of them.
    pub fn examples(&self) -> &[String] {
        &self.examples
    }

    /// Templates of texts in which it finds nothing.
    pub fn counterexamples(&self) -> &[String] {
        &self.counterexamples
    }
}

/// Whether a match is conclusive alone or by its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleStrength {
    Context,
    Shape,
}

#[derive(Debug)]
pub(crate) enum RuleShape {
    Pattern(RulePattern),
    /// Too frequent or too long for a regular expression.
    Built(Matcher),
}

/// A regular expression that is looked for near a keyword.
#[derive(Debug)]
pub(crate) struct RulePattern {
    pub(crate) text: String,
    /// How far before the keyword a match may begin. 0: the keyword is its beginning.
    pub(crate) before: usize,
    /// How far behind the keyword it may end.
    pub(crate) reach: usize,
    pub(crate) edges: RuleEdges,
    compiled: OnceLock<Option<CompiledRules>>,
}

#[derive(Debug)]
pub(crate) struct CompiledRules {
    pub(crate) regex: Regex,
    /// No match is shorter.
    pub(crate) shortest: usize,
}

/// What may stand beside a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleEdges {
    Anything,
    /// Neither a letter nor a digit.
    Token,
}

impl RulePattern {
    fn new(text: String, before: usize, reach: usize, edges: RuleEdges) -> Self {
        Self { text, before, reach, edges, compiled: OnceLock::new() }
    }

    /// Compiled when its keyword first turns up: most never do.
    pub(crate) fn compiled(&self) -> Option<&CompiledRules> {
        self.compiled.get_or_init(|| compile(&self.text).ok()).as_ref()
    }
}

fn compile(text: &str) -> Result<CompiledRules, Box<regex_automata::meta::BuildError>> {
    let syntax = syntax::Config::new().unicode(false).utf8(false);
    let config =
        Regex::config().utf8_empty(false).nfa_size_limit(Some(1 << 20)).hybrid_cache_capacity(1 << 18);
    let regex = Regex::builder().configure(config).syntax(syntax).build(text).map_err(Box::new)?;
    let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(text);
    let shortest = parsed.ok().and_then(|hir| hir.properties().minimum_len()).unwrap_or_default();
    Ok(CompiledRules { regex, shortest })
}

/// The rules that come with the crate, parsed on first use. Their examples are checked by the tests of this crate, which
/// see every change to them; rules from elsewhere are checked by [`check`] when they are read.
pub fn built_in() -> &'static [Arc<ScanRule>] {
    static RULES: OnceLock<Vec<Arc<ScanRule>>> = OnceLock::new();
    // INVARIANT: `every_family_can_be_read`.
    RULES.get_or_init(|| load().unwrap_or_default())
}

/// Reads the built-in rules anew.
pub fn load() -> Result<Vec<Arc<ScanRule>>, RuleError> {
    let mut rules = Vec::new();
    for (_, text) in FAMILIES {
        rules.extend(parse(text)?.into_iter().map(Arc::new));
    }
    Ok(rules)
}

/// Name and text of each family.
pub(crate) const FAMILIES: &[(&str, &str)] = &[
    ("ai", include_str!("../rules/ai.toml")),
    ("cloud", include_str!("../rules/cloud.toml")),
    ("code", include_str!("../rules/code.toml")),
    ("communication", include_str!("../rules/communication.toml")),
    ("data", include_str!("../rules/data.toml")),
    ("generic", include_str!("../rules/generic.toml")),
    ("keys", include_str!("../rules/keys.toml")),
    ("payment", include_str!("../rules/payment.toml")),
    ("services", include_str!("../rules/services.toml")),
];

#[cfg(test)]
mod tests;
