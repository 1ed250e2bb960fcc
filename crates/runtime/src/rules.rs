//! Policy as the sandbox sees it: names in, verdicts out.

use std::path::Path;
use std::sync::OnceLock;

use ringfence_authz::{PathRules, protected};
use ringfence_sandbox::survey::Rules;
use ringfence_types::PathVerdict;

/// The built-in rules of a workspace.
#[derive(Debug, Default)]
pub(crate) struct WorkspaceRules {
    paths: PathRules,
}

impl Rules for WorkspaceRules {
    fn judge(&self, relative: &Path) -> PathVerdict {
        self.paths.judge(relative)
    }

    fn protected_at_root(&self) -> &[&str] {
        static NAMES: OnceLock<Vec<&str>> = OnceLock::new();
        NAMES.get_or_init(|| names(protected::AT_ROOT))
    }

    fn protected_anywhere(&self) -> &[&str] {
        static NAMES: OnceLock<Vec<&str>> = OnceLock::new();
        NAMES.get_or_init(|| names(protected::ANYWHERE))
    }

    fn is_protected(&self, relative: &Path) -> bool {
        protected::is_protected(relative).is_some()
    }
}

fn names(list: &'static [protected::Protected]) -> Vec<&'static str> {
    list.iter().map(|protected| protected.name).collect()
}
