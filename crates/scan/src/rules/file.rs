//! The format of a family: `[[rule]]` entries in TOML.

use std::sync::Arc;

use serde::Deserialize;
use thiserror::Error;

use super::{
    Checksum, MatchFilter, RuleEdges, RulePattern, RuleShape, RuleStrength, ScanRule, compile, template,
};
use crate::matcher::Matcher;

/// Behind a keyword, unless a rule says otherwise.
const REACH: usize = 512;
/// A string with less than this has hardly any different characters.
const ENTROPY: f32 = 2.5;
const MOST_REACH: usize = 8192;
const MOST_BEFORE: usize = 256;
const SHORTEST_KEYWORD: usize = 3;

#[derive(Debug, Error)]
pub enum RuleError {
    #[error("not a file of rules")]
    Syntax(#[source] Box<toml::de::Error>),
    #[error("rule `{id}`: {problem}")]
    Rule { id: String, problem: RuleProblem },
}

#[derive(Debug, Error)]
pub enum RuleProblem {
    #[error("an id has small letters, digits and `-`")]
    Id,
    #[error("the id is used twice")]
    Twice,
    #[error("keyword `{}` is shorter than 3 bytes", .0.escape_debug())]
    ShortKeyword(String),
    #[error("no keyword")]
    NoKeyword,
    #[error("one of `shape`, `value` and `matcher` is needed")]
    NoShape,
    #[error("`before` or `reach` is too far")]
    TooFar,
    #[error("the shape is no regular expression: {0}")]
    Regex(Box<regex_automata::meta::BuildError>),
    #[error("no example in `match`")]
    NoExample,
    #[error("example `{}`: {reason}", example.escape_debug())]
    Template { example: String, reason: template::TemplateError },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    rule: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
struct RuleEntry {
    id: String,
    about: String,
    keywords: Vec<String>,
    /// A regular expression; the secret is group 1 where there is one.
    shape: Option<String>,
    /// Instead of `shape`: a value that is assigned to a name with one of the keywords in it.
    value: Option<String>,
    /// Instead of `shape`: a matcher in the code.
    matcher: Option<Matcher>,
    #[serde(default)]
    before: usize,
    #[serde(default = "reach")]
    reach: usize,
    #[serde(default)]
    edges: EdgeWord,
    #[serde(default = "entropy")]
    entropy: f32,
    /// The value has letters and digits.
    #[serde(default)]
    mixed: bool,
    /// It has no words in it.
    #[serde(default)]
    random: bool,
    checksum: Option<Checksum>,
    #[serde(default)]
    context: bool,
    r#match: Vec<String>,
    #[serde(default)]
    not_match: Vec<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EdgeWord {
    #[default]
    Token,
    Anything,
}

fn reach() -> usize {
    REACH
}

fn entropy() -> f32 {
    ENTROPY
}

/// Reads a file of rules. Shapes are compiled here only where a rule comes from outside: see [`super::check`].
pub fn parse(text: &str) -> Result<Vec<ScanRule>, RuleError> {
    let file: RuleFile = toml::from_str(text).map_err(|error| RuleError::Syntax(Box::new(error)))?;
    let mut rules: Vec<ScanRule> = Vec::with_capacity(file.rule.len());
    for entry in file.rule {
        let id = entry.id.clone();
        let fault = |problem| RuleError::Rule { id: id.clone(), problem };
        if rules.iter().any(|rule| *rule.id == *id) {
            return Err(fault(RuleProblem::Twice));
        }
        rules.push(rule(entry).map_err(fault)?);
    }
    Ok(rules)
}

fn rule(entry: RuleEntry) -> Result<ScanRule, RuleProblem> {
    inspect(&entry)?;
    let strength =
        if entry.context || entry.value.is_some() { RuleStrength::Context } else { RuleStrength::Shape };
    Ok(ScanRule {
        shape: shape(&entry)?,
        id: Arc::from(entry.id),
        about: entry.about,
        keywords: entry.keywords,
        gate: MatchFilter { entropy: entry.entropy, mixed: entry.mixed, random: entry.random },
        checksum: entry.checksum,
        strength,
        examples: entry.r#match,
        counterexamples: entry.not_match,
    })
}

fn inspect(entry: &RuleEntry) -> Result<(), RuleProblem> {
    let is_id = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if entry.id.is_empty() || !entry.id.bytes().all(is_id) {
        return Err(RuleProblem::Id);
    }
    if entry.keywords.is_empty() {
        return Err(RuleProblem::NoKeyword);
    }
    if let Some(short) = entry.keywords.iter().find(|keyword| keyword.len() < SHORTEST_KEYWORD) {
        return Err(RuleProblem::ShortKeyword(short.clone()));
    }
    if entry.before > MOST_BEFORE || entry.reach > MOST_REACH {
        return Err(RuleProblem::TooFar);
    }
    if entry.r#match.is_empty() {
        return Err(RuleProblem::NoExample);
    }
    Ok(())
}

fn shape(entry: &RuleEntry) -> Result<RuleShape, RuleProblem> {
    let edges = match entry.edges {
        EdgeWord::Token => RuleEdges::Token,
        EdgeWord::Anything => RuleEdges::Anything,
    };
    match (&entry.shape, &entry.value, entry.matcher) {
        (Some(shape), None, None) => {
            Ok(RuleShape::Pattern(RulePattern::new(shape.clone(), entry.before, entry.reach, edges)))
        }
        (None, Some(value), None) => {
            let text = assigned(&entry.keywords, value);
            Ok(RuleShape::Pattern(RulePattern::new(text, 0, entry.reach, edges)))
        }
        (None, None, Some(matcher)) => Ok(RuleShape::Built(matcher)),
        _ => Err(RuleProblem::NoShape),
    }
}

/// A name that contains the keyword, something that assigns, and the value: `DATADOG_API_KEY = "…"`, `"datadog": "…"`.
fn assigned(keywords: &[String], value: &str) -> String {
    let names: Vec<String> = keywords.iter().map(|keyword| quoted(keyword)).collect();
    let assignment = r#"(?:\\?["'`\]])*\s{0,8}(?:=>|:=|[:=,(])\s{0,8}(?:\\?["'`])*"#;
    format!("(?i:{})[A-Za-z0-9_. -]{{0,32}}?{assignment}({value})", names.join("|"))
}

fn quoted(literal: &str) -> String {
    literal
        .chars()
        .flat_map(|c| (!c.is_ascii_alphanumeric()).then_some('\\').into_iter().chain([c]))
        .collect()
}

impl ScanRule {
    /// Compiles the shape, to say why it cannot be.
    pub(super) fn compile(&self) -> Result<(), RuleError> {
        let RuleShape::Pattern(pattern) = &self.shape else { return Ok(()) };
        let fault = |error| RuleError::Rule { id: self.id.to_string(), problem: RuleProblem::Regex(error) };
        compile(&pattern.text).map(drop).map_err(fault)
    }
}
