//! Policy as the sandbox sees it: names in, verdicts out. The same object for a running sandbox and for the file tools, so
//! that they cannot disagree.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringfence_authz::{Grant, PathRules, Policy, Steering, protected};
use ringfence_sandbox::survey::Rules;
use ringfence_types::{Bytes, Extent, PathVerdict, Root};

/// The rules of a session about the files in its roots.
#[derive(Debug)]
pub(crate) struct WorkspaceRules<'a> {
    paths: &'a PathRules,
    steering: Steering,
    held: Vec<PathBuf>,
    /// What a person opened, relative to the root it is in.
    opened: Vec<PathBuf>,
    worked_in: Vec<PathBuf>,
    own: &'a [PathBuf],
}

impl<'a> WorkspaceRules<'a> {
    /// For a sandbox. What steers something later is not held in it: a command that may run may write it.
    pub(crate) fn new(paths: &'a PathRules) -> Self {
        let held = paths.held_while_absent();
        let (opened, worked_in) = (Vec::new(), Vec::new());
        Self { paths, steering: Steering::Reviewed, held, opened, worked_in, own: &[] }
    }

    /// With what the host runs or obeys next on behalf of Ringfence.
    pub(crate) fn own(self, files: &'a [PathBuf]) -> Self {
        Self { own: files, ..self }
    }

    pub(crate) fn worked_in(self, places: &[PathBuf]) -> Self {
        Self { worked_in: places.to_owned(), ..self }
    }

    /// For one call of the file tools, with what a person opened for it.
    pub(crate) fn of_call(policy: &'a Policy, grant: &Grant) -> Self {
        let steering = Steering::of(policy.profile);
        let opened = inside(&grant.permissions().roots, grant.opened());
        Self { steering, opened, ..Self::new(&policy.rules.paths) }
    }

    fn is_opened(&self, relative: &Path) -> bool {
        self.opened.iter().any(|opened| opened == relative)
    }

    fn asks_about(&self, relative: &Path) -> bool {
        self.steering == Steering::Asked && self.paths.steers(relative)
    }
}

impl Rules for WorkspaceRules<'_> {
    fn judge(&self, relative: &Path) -> PathVerdict {
        if self.is_opened(relative) { PathVerdict::Open } else { self.paths.judge(relative) }
    }

    fn protected_at_root(&self) -> &[&str] {
        static NAMES: OnceLock<Vec<&str>> = OnceLock::new();
        NAMES.get_or_init(|| names(protected::AT_ROOT))
    }

    fn protected_anywhere(&self) -> &[&str] {
        static NAMES: OnceLock<Vec<&str>> = OnceLock::new();
        NAMES.get_or_init(|| names(protected::ANYWHERE))
    }

    fn worked_in(&self) -> &[PathBuf] {
        &self.worked_in
    }

    fn own_files(&self) -> &[PathBuf] {
        self.own
    }

    fn is_protected(&self, relative: &Path) -> bool {
        let asked = || self.paths.holds(relative) || self.asks_about(relative);
        protected::is_protected(relative).is_some() || (!self.is_opened(relative) && asked())
    }

    fn hides_all(&self, directory: &Path) -> bool {
        self.paths.hides_all(directory) && !self.opened.iter().any(|opened| opened.starts_with(directory))
    }

    fn holds(&self, relative: &Path) -> bool {
        self.paths.holds(relative) && !self.is_opened(relative)
    }

    fn holds_in(&self, directory: &Path) -> Extent {
        self.paths.holds_in(directory)
    }

    fn held_while_absent(&self) -> &[PathBuf] {
        &self.held
    }

    fn opened(&self) -> &[PathBuf] {
        &self.opened
    }
}

/// Each path relative to every root it is in.
fn inside(roots: &[Root], paths: &[Bytes]) -> Vec<PathBuf> {
    let within = |path: &Bytes| {
        let roots = roots.iter().filter_map(|root| path.as_path().strip_prefix(root.path.as_path()).ok());
        roots.map(Path::to_owned).collect::<Vec<_>>()
    };
    paths.iter().flat_map(within).collect()
}

fn names(list: &'static [protected::Protected]) -> Vec<&'static str> {
    list.iter().map(|protected| protected.name).collect()
}
