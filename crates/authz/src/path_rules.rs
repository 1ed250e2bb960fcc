//! Which files of a workspace a command may see and change: the built-in rules and those of policy files.
//!
//! INVARIANT: only the operator's files can open what the built-in rules close. Every layer below can only add: the
//! first rule of each layer that speaks decides for that layer, and the strictest of all layers counts.
//!
//! Without rules of files (the common case of a walk over every file of a workspace) an answer costs a few comparisons
//! and allocates nothing.

mod built_in;
mod index;
mod pattern;

use std::path::Path;
use std::sync::Arc;

use ringfence_types::{Decision, Layer, PathVerdict};

use crate::judgement::RuleSource;
use index::Index;

pub use built_in::HiddenRule;
#[cfg(test)]
pub(crate) use built_in::{
    DATA_EXTENSIONS, EXCEPTIONS, GENERATED_DIRS, KEY_EXTENSIONS, MAYBE_EXTENSIONS, NAMES, Named,
};

/// One rule of a policy file about files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    pub decision: Decision,
    /// Relative to a root. Without a slash it is a name at any depth; with one it is a path from the root (`./name` for
    /// the top alone). `dir/` and `dir/**` are everything in a directory. A pattern whose last part has no wildcard
    /// names a directory with everything in it, too. `*` and `?` do not match a slash, `**` matches any depth.
    pub patterns: Vec<String>,
    /// What the rule does not speak about, in the same form.
    pub except: Vec<String>,
    pub operation: Operation,
    pub source: RuleSource,
}

/// What a rule about files speaks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// Reading and writing.
    #[default]
    All,
    /// Writing, creating and removing; reading is left as it is.
    Write,
}

/// A rule that cannot be used, with the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PathRuleError {
    /// Which of the rules, from 0.
    pub rule: usize,
    pub message: String,
}

/// The built-in rules and those of all policy files.
#[derive(Clone, Debug, Default)]
pub struct PathRules {
    files: Option<Arc<Files>>,
}

#[derive(Debug)]
struct Files {
    rules: Vec<PathRule>,
    /// The operator's first, then each layer below that has rules.
    layers: Vec<Index>,
}

/// Who decided about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ruling<'a> {
    /// No rule speaks about it.
    Open,
    BuiltIn(&'static HiddenRule),
    File(&'a PathRule),
}

impl PathRules {
    /// The rules of all files, the order within a layer being the order here.
    pub fn new(rules: Vec<PathRule>) -> Result<Self, PathRuleError> {
        if rules.is_empty() {
            return Ok(Self::default());
        }
        let mut layers = Vec::new();
        for layer in [Layer::Operator, Layer::Workspace, Layer::Session, Layer::Call] {
            let own = |(_, rule): &(usize, &PathRule)| rule.source.layer.max(Layer::Operator) == layer;
            let index = Index::new(rules.iter().enumerate().filter(own))?;
            if layer == Layer::Operator || !index.is_empty() {
                layers.push(index);
            }
        }
        Ok(Self { files: Some(Arc::new(Files { rules, layers })) })
    }

    /// The rules of files, in the order given.
    pub fn rules(&self) -> &[PathRule] {
        self.files.as_ref().map_or(&[], |files| &files.rules)
    }

    /// Whether a *file* at this path, relative to a root, is visible. A directory may have any name.
    pub fn judge(&self, relative: &Path) -> PathVerdict {
        match self.reading(relative) {
            Ruling::Open => PathVerdict::Open,
            Ruling::BuiltIn(rule) => rule.verdict,
            Ruling::File(rule) if rule.decision == Decision::Allow => PathVerdict::Open,
            Ruling::File(_) => PathVerdict::Hidden,
        }
    }

    pub(crate) fn reading(&self, relative: &Path) -> Ruling<'_> {
        self.ruling(relative, Operation::All)
    }

    fn ruling(&self, relative: &Path, operation: Operation) -> Ruling<'_> {
        let built_in = || built_in::explain(relative).map_or(Ruling::Open, Ruling::BuiltIn);
        let Some(files) = &self.files else { return built_in() };
        let mut spoken = files.layers.iter().map(|layer| files.first(layer, relative, operation));
        let operator = spoken.next().flatten().map_or_else(built_in, Ruling::File);
        spoken.flatten().map(Ruling::File).fold(operator, Ruling::stricter)
    }
}

impl PartialEq for PathRules {
    fn eq(&self, other: &Self) -> bool {
        self.rules() == other.rules()
    }
}

impl Eq for PathRules {}

impl Files {
    fn first(&self, layer: &Index, relative: &Path, operation: Operation) -> Option<&PathRule> {
        let speaks = |rule: &PathRule| operation == Operation::Write || rule.operation == Operation::All;
        let found = layer.first(relative, |rule| self.rules.get(rule).is_some_and(speaks))?;
        self.rules.get(found)
    }
}

impl Ruling<'_> {
    pub(crate) fn decision(self) -> Decision {
        match self {
            Self::Open => Decision::Allow,
            Self::BuiltIn(rule) => rule.decision,
            Self::File(rule) => rule.decision,
        }
    }

    fn stricter(self, other: Self) -> Self {
        if other.decision() > self.decision() { other } else { self }
    }
}

#[cfg(test)]
mod tests;
