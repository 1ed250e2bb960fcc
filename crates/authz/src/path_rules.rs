//! Which files of a workspace a command may see and change: the built-in rules and those of policy files.
//!
//! INVARIANT: only the operator's files can open what the built-in rules close. Every layer below can only add: the
//! first rule of each layer that speaks decides for that layer, and the strictest of all layers counts.
//!
//! Without rules of files (the common case of a walk over every file of a workspace) an answer costs a few comparisons
//! and allocates nothing.

mod below;
mod built_in;
mod index;
mod pattern;
mod steering_files;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_types::{ByteString, Decision, PathDecision, PolicyLayer, Profile, ProtectionExtent};

use crate::judgement::RuleSource;
use crate::protected_names;
use index::PathRuleIndex;
use pattern::{PathPattern, PathPatternError};

pub use built_in::BuiltInRule;
#[cfg(test)]
pub(crate) use built_in::{
    DATA_EXTENSIONS, EXCEPTIONS, GENERATED_DIRS, KEY_EXTENSIONS, MAYBE_EXTENSIONS, NAMES, NamePattern,
    SETTINGS_NAMES, STATE_EXTENSIONS,
};
#[cfg(test)]
pub(crate) use steering_files::GROUPS as STEERING;

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
    pub operation: PathOperation,
    /// 0 for rules that are heard with the others of their layer. Rules of another group come from a directory around the
    /// workspace: they are heard among themselves, and only narrow.
    pub group: u32,
    pub source: RuleSource,
}

/// What a rule about files speaks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathOperation {
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
    files: Option<Arc<PathRuleLayers>>,
    /// What a session began with, where these were read while it ran: the stricter of both decides.
    began: Option<Arc<PathRules>>,
}

#[derive(Debug)]
struct PathRuleLayers {
    rules: Vec<PathRule>,
    /// The operator's first, then each layer below that has rules, then those of directories around the workspace.
    layers: Vec<PathRuleIndex>,
}

/// Whether writing what runs or steers something later is a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeringPolicy {
    Asked,
    /// It is reviewed like any other work.
    Reviewed,
}

impl SteeringPolicy {
    /// Where anything may run inside the fence, a shell can write these files as well as any other.
    pub fn of(profile: Profile) -> Self {
        match profile {
            Profile::Review | Profile::Guarded | Profile::Strict | Profile::AirGapped => Self::Asked,
            Profile::Workspace | Profile::Danger => Self::Reviewed,
        }
    }
}

/// Who decided about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRuling<'a> {
    /// No rule speaks about it.
    Open,
    BuiltIn(&'static BuiltInRule),
    File(&'a PathRule),
}

impl PathRules {
    /// The rules of all files, the order within a layer being the order here.
    pub fn new(rules: Vec<PathRule>) -> Result<Self, PathRuleError> {
        if rules.is_empty() {
            return Ok(Self::default());
        }
        for (number, rule) in rules.iter().enumerate() {
            check(rule).map_err(|why| PathRuleError { rule: number, message: why.to_string() })?;
        }
        let mut layers = Vec::new();
        for layer in [PolicyLayer::Operator, PolicyLayer::Workspace, PolicyLayer::Session, PolicyLayer::Call]
        {
            let in_layer = |rule: &PathRule| rule.source.layer.max(PolicyLayer::Operator) == layer;
            let own = |(_, rule): &(usize, &PathRule)| rule.group == 0 && in_layer(rule);
            let index = PathRuleIndex::new(rules.iter().enumerate().filter(own))?;
            if layer == PolicyLayer::Operator || !index.is_empty() {
                layers.push(index);
            }
        }
        let groups: BTreeSet<u32> = rules.iter().map(|rule| rule.group).filter(|group| *group > 0).collect();
        for group in groups {
            layers
                .push(PathRuleIndex::new(rules.iter().enumerate().filter(|(_, rule)| rule.group == group))?);
        }
        Ok(Self { files: Some(Arc::new(PathRuleLayers { rules, layers })), began: None })
    }

    /// These rules for a session that began with `began`.
    #[must_use]
    pub(crate) fn held_to(mut self, began: &Self) -> Self {
        let before = match self.began.take() {
            Some(own) => Arc::unwrap_or_clone(own).held_to(began),
            None => began.clone(),
        };
        self.began = Some(Arc::new(before)).filter(|before| **before != self);
        self
    }

    /// The rules of files, in the order given.
    pub fn rules(&self) -> &[PathRule] {
        self.files.as_ref().map_or(&[], |files| &files.rules)
    }

    /// Whether a *file* at this path, relative to a root, is visible. For built-in rules a directory may have any name.
    pub fn judge(&self, relative: &Path) -> PathDecision {
        match self.reading(relative) {
            PathRuling::Open => PathDecision::Open,
            PathRuling::BuiltIn(rule) => rule.verdict,
            PathRuling::File(rule) if rule.decision == Decision::Allow => PathDecision::Open,
            PathRuling::File(_) => PathDecision::Hidden,
        }
    }

    /// Whether nothing in this directory is visible, whatever it will be called.
    pub fn hides_all(&self, directory: &Path) -> bool {
        let own = self.files.as_ref().is_some_and(|files| files.covers(directory, PathOperation::All));
        own || self.before(|began| began.hides_all(directory))
    }

    /// Whether a rule of a file holds what is at this path against changes.
    pub fn holds(&self, relative: &Path) -> bool {
        let held = |files: &PathRuleLayers| files.strictest(relative, PathOperation::Write).is_some();
        self.files.as_deref().is_some_and(held) || self.before(|began| began.holds(relative))
    }

    /// How much of what may come to be in this directory is held.
    pub fn holds_in(&self, directory: &Path) -> ProtectionExtent {
        let own = match self.files.as_deref() {
            Some(files) if files.covers(directory, PathOperation::Write) => ProtectionExtent::Everything,
            Some(files) if files.covers_mostly(directory) => ProtectionExtent::EverythingBut,
            _ => ProtectionExtent::Nothing,
        };
        match (own, self.began.as_ref().map(|began| began.holds_in(directory))) {
            (ProtectionExtent::Everything, _) | (_, Some(ProtectionExtent::Everything)) => {
                ProtectionExtent::Everything
            }
            (ProtectionExtent::EverythingBut, _) | (_, Some(ProtectionExtent::EverythingBut)) => {
                ProtectionExtent::EverythingBut
            }
            _ => ProtectionExtent::Nothing,
        }
    }

    /// Paths from a root that are held also while nothing is there: those that a rule names without a wildcard. A mere
    /// name that is to be hidden is not among them, as none of the built-in names are: what is made inside has
    /// no secret in it.
    pub fn held_while_absent(&self) -> Vec<PathBuf> {
        let closing = self.rules().iter().filter(|rule| rule.decision != Decision::Allow);
        let named = closing.flat_map(|rule| rule.patterns.iter().map(|text| (rule.operation, text)));
        let paths = named.filter_map(|(operation, text)| match (pattern::parse(text).ok()?, operation) {
            (PathPattern::Name(name), PathOperation::Write) => Some(PathBuf::from(name)),
            (PathPattern::Path(path) | PathPattern::Tree(path), _) => Some(PathBuf::from(path)),
            (PathPattern::Name(_) | PathPattern::InName(_) | PathPattern::Globs(_), _) => None,
        });
        let mut held: Vec<PathBuf> = paths
            .filter(|path| !path.as_os_str().is_empty())
            .filter(|path| self.holds(path) || self.holds_in(path) != ProtectionExtent::Nothing)
            .collect();
        held.extend(self.began.iter().flat_map(|began| began.held_while_absent()));
        held.sort();
        held.dedup();
        held
    }

    /// Whether writing here is left to a person by a built-in rule.
    pub fn steers(&self, relative: &Path) -> bool {
        self.writing(relative, SteeringPolicy::Asked) != self.writing(relative, SteeringPolicy::Reviewed)
    }

    /// Whether one of the rules speaks about a path, whatever the others say: for the examples that a rule carries.
    pub fn speaks_alone(&self, rule: usize, relative: &Path) -> bool {
        let alone = |layer: &PathRuleIndex| layer.first(relative, |other| other == rule).is_some();
        self.files.as_ref().is_some_and(|files| files.layers.iter().any(alone))
    }

    /// Who decides about reading a file at this path, relative to a root.
    pub fn reading(&self, relative: &Path) -> PathRuling<'_> {
        self.ruling(relative, PathOperation::All, || built_in::explain(relative))
    }

    /// What cannot be read cannot be written either: a hidden file is not there.
    pub(crate) fn writing(&self, relative: &Path, steering: SteeringPolicy) -> PathRuling<'_> {
        let counts =
            |rule: &&BuiltInRule| steering == SteeringPolicy::Asked || rule.decision == Decision::Deny;
        let steers = || steering_files::explain(relative).filter(counts);
        self.reading(relative).stricter(self.ruling(relative, PathOperation::Write, steers))
    }

    /// What a listing of this directory would show.
    pub(crate) fn listing(&self, directory: &Path) -> PathRuling<'_> {
        if !self.hides_all(directory) {
            return PathRuling::Open;
        }
        let before = self.began.as_ref().map_or(PathRuling::Open, |began| began.listing(directory));
        let found =
            self.files.as_ref().and_then(|files| files.strictest(&new_in(directory), PathOperation::All));
        found.map_or(PathRuling::Open, PathRuling::File).stricter(before)
    }

    fn ruling(
        &self,
        relative: &Path,
        operation: PathOperation,
        built_in: impl Fn() -> Option<&'static BuiltInRule> + Copy,
    ) -> PathRuling<'_> {
        let own = self.own_ruling(relative, operation, built_in);
        let before = self.began.as_ref().map(|began| began.ruling(relative, operation, built_in));
        before.map_or(own, |before| own.stricter(before))
    }

    fn own_ruling(
        &self,
        relative: &Path,
        operation: PathOperation,
        built_in: impl Fn() -> Option<&'static BuiltInRule>,
    ) -> PathRuling<'_> {
        let built_in = || built_in().map_or(PathRuling::Open, PathRuling::BuiltIn);
        let Some(files) = &self.files else { return built_in() };
        let mut spoken = files.layers.iter().map(|layer| files.first(layer, relative, operation));
        let operator = spoken.next().flatten().map_or_else(built_in, PathRuling::File);
        spoken.flatten().map(PathRuling::File).fold(operator, PathRuling::stricter)
    }

    fn before(&self, says: impl FnOnce(&Self) -> bool) -> bool {
        self.began.as_deref().is_some_and(says)
    }
}

impl PartialEq for PathRules {
    fn eq(&self, other: &Self) -> bool {
        self.rules() == other.rules() && self.began == other.began
    }
}

impl Eq for PathRules {}

impl PathRuleLayers {
    fn first(&self, layer: &PathRuleIndex, relative: &Path, operation: PathOperation) -> Option<&PathRule> {
        let found = layer.first(relative, |rule| self.speaks(rule, operation))?;
        self.rules.get(found)
    }

    /// The strictest rule that closes this path, if one does.
    fn strictest(&self, relative: &Path, operation: PathOperation) -> Option<&PathRule> {
        let spoken = self.layers.iter().filter_map(|layer| self.first(layer, relative, operation));
        let closing = spoken.filter(|rule| rule.decision != Decision::Allow);
        closing.reduce(|one, other| if other.decision > one.decision { other } else { one })
    }

    /// Whether one layer closes all that could ever be in a directory.
    fn covers(&self, directory: &Path, operation: PathOperation) -> bool {
        let opens = |rule: usize| self.speaks(rule, operation) && !self.closes(rule);
        self.layers.iter().any(|layer| {
            let rule = self.covering(layer, directory, operation);
            rule.is_some_and(|rule| !layer.excepts_in(directory, rule, opens))
        })
    }

    /// Whether what comes to be in a directory cannot be written, if it has no name that some rule singles out.
    fn covers_mostly(&self, directory: &Path) -> bool {
        self.layers.iter().any(|layer| self.covering(layer, directory, PathOperation::Write).is_some())
            && self.strictest(&new_in(directory), PathOperation::Write).is_some()
    }

    fn covering(&self, layer: &PathRuleIndex, directory: &Path, operation: PathOperation) -> Option<usize> {
        let closes = |rule: usize| self.speaks(rule, operation) && self.closes(rule);
        layer.first_for_directory(&new_in(directory), closes)
    }

    fn closes(&self, rule: usize) -> bool {
        self.rules.get(rule).is_some_and(|rule| rule.decision != Decision::Allow)
    }

    fn speaks(&self, rule: usize, operation: PathOperation) -> bool {
        let own = self.rules.get(rule).map(|rule| rule.operation);
        operation == PathOperation::Write || own == Some(PathOperation::All)
    }
}

impl<'a> PathRuling<'a> {
    pub fn decision(self) -> Decision {
        match self {
            Self::Open => Decision::Allow,
            Self::BuiltIn(rule) => rule.decision,
            Self::File(rule) => rule.decision,
        }
    }

    pub(crate) fn stricter(self, other: PathRuling<'a>) -> PathRuling<'a> {
        let silent = self == Self::Open;
        if other.decision() > self.decision() || (silent && other.decision() == self.decision()) {
            other
        } else {
            self
        }
    }
}

/// What cannot be right whatever the other rules say.
fn check(rule: &PathRule) -> Result<(), PathPatternError> {
    if rule.patterns.is_empty() {
        return Err(PathPatternError::NoPattern);
    }
    for text in &rule.patterns {
        let named = match pattern::parse(text)? {
            PathPattern::Name(path)
            | PathPattern::InName(path)
            | PathPattern::Path(path)
            | PathPattern::Tree(path) => path,
            PathPattern::Globs(_) => continue,
        };
        let opens = rule.decision == Decision::Allow && rule.operation == PathOperation::Write;
        if let Some(reason) = protected_names::is_protected(Path::new(&named)).filter(|_| opens) {
            return Err(PathPatternError::Protected {
                shown: ByteString::from(text.as_str()).display(),
                reason,
            });
        }
    }
    Ok(())
}

/// A path that stands for whatever may come to be in a directory.
fn new_in(directory: &Path) -> PathBuf {
    directory.join("\u{1}unremarkable\u{1}")
}

#[cfg(test)]
mod tests;
