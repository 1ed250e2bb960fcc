//! What is wrong with a policy, where, and what would make it right.

use std::fmt;

use ringfence_authz::RuleLocation;

use super::source_text::{Excerpt, PolicySourceText, TextSpan};

/// Everything that is wrong with a policy. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    problems: Vec<PolicyProblem>,
    omitted: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyProblem {
    /// `None`: it is about a startup flag.
    pub origin: Option<RuleLocation>,
    /// Lower case, without a final period, user input in backticks.
    pub message: String,
    /// The one thing that would make it right.
    pub fix: Option<String>,
    pub excerpt: Option<Excerpt>,
}

/// An author mends the first problems first; more would not be read.
const MOST_SHOWN: usize = 50;

impl PolicyError {
    /// In the order of the text.
    pub fn problems(&self) -> &[PolicyProblem] {
        &self.problems
    }

    /// Several as one.
    pub(crate) fn all(errors: Vec<Self>) -> Option<Self> {
        let omitted: usize = errors.iter().map(|error| error.omitted).sum();
        let all = Self::new(errors.into_iter().flat_map(|error| error.problems).collect())?;
        Some(Self { omitted: all.omitted + omitted, ..all })
    }

    fn new(mut problems: Vec<PolicyProblem>) -> Option<Self> {
        if problems.is_empty() {
            return None;
        }
        let omitted = problems.len().saturating_sub(MOST_SHOWN);
        problems.truncate(MOST_SHOWN);
        Some(Self { problems, omitted })
    }
}

impl From<PolicyProblem> for PolicyError {
    fn from(problem: PolicyProblem) -> Self {
        Self { problems: vec![problem], omitted: 0 }
    }
}

impl std::error::Error for PolicyError {}

/// No colour: the caller that prints it decides about that.
impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n\n" };
            write!(f, "{separator}{problem}")?;
        }
        match self.omitted {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more"),
        }
    }
}

impl PolicyProblem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { origin: None, message: message.into(), fix: None, excerpt: None }
    }

    #[must_use]
    pub(crate) fn at(mut self, origin: RuleLocation) -> Self {
        self.origin = Some(origin);
        self
    }

    #[must_use]
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    #[must_use]
    pub(crate) fn in_source(mut self, source: &PolicySourceText, span: TextSpan) -> Self {
        self.origin = Some(source.origin(span));
        self.excerpt = Some(source.excerpt(span));
        self
    }
}

/// ```text
/// config.toml:3:1: unknown key `profil`
///   |
/// 3 | profil = "guarded"
///   | ^^^^^^
///   = did you mean `profile`?
/// ```
impl fmt::Display for PolicyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        f.write_str(&self.message)?;
        let line = self.origin.as_ref().map(|origin| origin.line.to_string()).unwrap_or_default();
        let margin = line.len();
        if let Some(Excerpt { text, mark_start, mark_len }) = &self.excerpt {
            let marks = "^".repeat(*mark_len);
            write!(f, "\n{:margin$} |\n{line} | {text}\n{:margin$} | {:mark_start$}{marks}", "", "", "")?;
        }
        match &self.fix {
            Some(fix) => write!(f, "\n{:margin$} = {fix}", ""),
            None => Ok(()),
        }
    }
}

/// The problems of one file as they are found.
#[derive(Debug)]
pub(crate) struct FileProblems<'a> {
    source: &'a PolicySourceText,
    found: Vec<(TextSpan, PolicyProblem)>,
}

impl<'a> FileProblems<'a> {
    pub(crate) fn new(source: &'a PolicySourceText) -> Self {
        Self { source, found: Vec::new() }
    }

    pub(crate) fn source(&self) -> &'a PolicySourceText {
        self.source
    }

    pub(crate) fn add(&mut self, span: TextSpan, message: impl Into<String>, fix: impl Into<String>) {
        self.found.push((span, PolicyProblem::new(cut(message.into())).fix(cut(fix.into()))));
    }

    pub(crate) fn finish(mut self) -> Result<(), PolicyError> {
        self.found.sort_by_key(|(span, _)| *span);
        let source = self.source;
        let shown = self.found.into_iter().enumerate().map(|(at, (span, problem))| {
            // What is not shown needs no place.
            if at < MOST_SHOWN { problem.in_source(source, span) } else { problem }
        });
        PolicyError::new(shown.collect()).map_or(Ok(()), Err)
    }
}

/// Messages quote what they are about, which may be long.
fn cut(text: String) -> String {
    const LONGEST: usize = 400;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => text.get(..at).unwrap_or_default().to_owned() + "…",
        None => text,
    }
}

/// The problems of a stack of files and flags.
#[derive(Debug, Default)]
pub(crate) struct StackProblems {
    found: Vec<PolicyProblem>,
}

impl StackProblems {
    /// What two checks find is one problem.
    pub(crate) fn add(&mut self, problem: PolicyProblem) {
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }

    pub(crate) fn finish(self) -> Result<(), PolicyError> {
        PolicyError::new(self.found).map_or(Ok(()), Err)
    }
}
