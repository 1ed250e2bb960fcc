//! Rules are data: files in `rules/`, one per family. A rule says which fixed strings are in every match, the shape around
//! them, what a match must have besides, and examples.

mod checksum;
mod examples;
mod file;
mod gate;
mod known;
mod template;

use std::sync::{Arc, OnceLock};

use regex_automata::meta::Regex;
use regex_automata::util::syntax;

pub(crate) use checksum::Checksum;
pub use examples::{BadExample, check};
pub use file::{RuleError, parse};
pub(crate) use gate::{Gate, is_placeholder, is_reference, is_uuid, looks_random};
pub(crate) use known::KEYWORDS;
pub use template::{TemplateError, expand};

use crate::matcher::Matcher;

/// One kind of credential.
#[derive(Debug)]
pub struct Rule {
    pub(crate) id: Arc<str>,
    pub(crate) about: String,
    /// One of these is in every match, in whatever case.
    pub(crate) keywords: Vec<String>,
    pub(crate) shape: Shape,
    pub(crate) gate: Gate,
    pub(crate) checksum: Option<Checksum>,
    pub(crate) strength: Strength,
    pub(crate) examples: Vec<String>,
    pub(crate) counterexamples: Vec<String>,
}

impl Rule {
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

/// Whether a match speaks for itself or by what stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strength {
    Context,
    Shape,
}

#[derive(Debug)]
pub(crate) enum Shape {
    Pattern(Pattern),
    /// Too frequent or too long for a regular expression.
    Built(Matcher),
}

/// A regular expression that is looked for near a keyword.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    /// How far before the keyword a match may begin. 0: the keyword is its beginning.
    pub(crate) before: usize,
    /// How far behind the keyword it may end.
    pub(crate) reach: usize,
    pub(crate) edges: Edges,
    compiled: OnceLock<Option<Compiled>>,
}

#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) regex: Regex,
    /// No match is shorter.
    pub(crate) shortest: usize,
}

/// What may stand beside a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edges {
    Anything,
    /// Neither a letter nor a digit.
    Token,
}

impl Pattern {
    fn new(text: String, before: usize, reach: usize, edges: Edges) -> Self {
        Self { text, before, reach, edges, compiled: OnceLock::new() }
    }

    /// Compiled when its keyword first turns up: most never do.
    pub(crate) fn compiled(&self) -> Option<&Compiled> {
        self.compiled.get_or_init(|| compile(&self.text).ok()).as_ref()
    }
}

fn compile(text: &str) -> Result<Compiled, Box<regex_automata::meta::BuildError>> {
    let syntax = syntax::Config::new().unicode(false).utf8(false);
    let config =
        Regex::config().utf8_empty(false).nfa_size_limit(Some(1 << 20)).hybrid_cache_capacity(1 << 18);
    let regex = Regex::builder().configure(config).syntax(syntax).build(text).map_err(Box::new)?;
    let parsed = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(text);
    let shortest = parsed.ok().and_then(|hir| hir.properties().minimum_len()).unwrap_or_default();
    Ok(Compiled { regex, shortest })
}

/// The rules that come with the crate, parsed on first use. Their examples are checked by the tests of this crate, which
/// see every change to them; rules from elsewhere are checked by [`check`] when they are read.
pub fn built_in() -> &'static [Arc<Rule>] {
    static RULES: OnceLock<Vec<Arc<Rule>>> = OnceLock::new();
    // INVARIANT: `every_family_can_be_read`.
    RULES.get_or_init(|| load().unwrap_or_default())
}

/// Reads the built-in rules anew.
pub fn load() -> Result<Vec<Arc<Rule>>, RuleError> {
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
