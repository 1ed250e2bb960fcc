//! Policy in the form the sandbox asks for it: names in, verdicts out. A running sandbox and the file tools
//! use the same object, so they cannot disagree.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringfence_authz::{Authorization, PathRules, Policy, SteeringPolicy, protected_names};
use ringfence_sandbox::survey::SurveyRules;
use ringfence_types::{ByteString, PathDecision, ProtectionExtent, Root};

use crate::session::HostSetup;

/// The rules of a session about the files in its roots.
#[derive(Debug)]
pub(crate) struct SandboxRules<'a> {
    paths: &'a PathRules,
    steering: SteeringPolicy,
    held: Vec<PathBuf>,
    /// Paths that an approval opened, relative to their root.
    opened: Vec<PathBuf>,
    worked_in: Vec<PathBuf>,
    host: HostFiles,
}

/// Files by absolute paths that programs of the host run or obey next, wherever they lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostFiles {
    /// For Ringfence.
    own: Vec<PathBuf>,
    home: Option<PathBuf>,
    git_configs: Vec<PathBuf>,
}

impl HostFiles {
    pub(crate) fn of(setup: &HostSetup) -> Self {
        Self { own: setup.own.clone(), home: setup.home.clone(), git_configs: git_configs(setup) }
    }
}

/// The configurations of the user and of the system that git of the host may read, with and without the variables of this
/// process: another shell of the user may have others.
fn git_configs(setup: &HostSetup) -> Vec<PathBuf> {
    let variable = |name: &str| {
        let found = setup.host_env.iter().find(|(known, _)| known.as_slice() == name.as_bytes());
        found.map(|(_, value)| value.as_path().to_owned()).filter(|path| path.is_absolute())
    };
    let home = setup.home.iter().flat_map(|home| [home.join(".gitconfig"), home.join(".config/git/config")]);
    let named = variable("XDG_CONFIG_HOME").map(|directory| directory.join("git/config"));
    let named =
        named.into_iter().chain(["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].into_iter().filter_map(variable));
    home.chain(named).chain([PathBuf::from("/etc/gitconfig")]).collect()
}

impl<'a> SandboxRules<'a> {
    /// For a sandbox. It does not hold steering files: a command that may run may write them.
    pub(crate) fn new(paths: &'a PathRules) -> Self {
        let held = paths.held_while_absent();
        let (opened, worked_in) = (Vec::new(), Vec::new());
        let host = HostFiles::default();
        Self { paths, steering: SteeringPolicy::Reviewed, held, opened, worked_in, host }
    }

    /// Adds what programs of the host run or obey next.
    pub(crate) fn host(self, host: HostFiles) -> Self {
        Self { host, ..self }
    }

    pub(crate) fn worked_in(self, places: &[PathBuf]) -> Self {
        Self { worked_in: places.to_owned(), ..self }
    }

    /// For one call of the file tools, with the paths its approval opened.
    pub(crate) fn of_call(policy: &'a Policy, grant: &Authorization) -> Self {
        let steering = SteeringPolicy::of(policy.profile);
        let opened = inside(&grant.permissions().roots, grant.opened());
        Self { steering, opened, ..Self::new(&policy.rules.paths) }
    }

    fn is_opened(&self, relative: &Path) -> bool {
        self.opened.iter().any(|opened| opened == relative)
    }

    fn asks_about(&self, relative: &Path) -> bool {
        self.steering == SteeringPolicy::Asked && self.paths.steers(relative)
    }
}

impl SurveyRules for SandboxRules<'_> {
    fn judge(&self, relative: &Path) -> PathDecision {
        if self.is_opened(relative) { PathDecision::Open } else { self.paths.judge(relative) }
    }

    fn protected_at_root(&self) -> &[&str] {
        static NAMES: OnceLock<Vec<&str>> = OnceLock::new();
        NAMES.get_or_init(|| names(protected_names::AT_ROOT))
    }

    fn protected_anywhere(&self) -> &[&str] {
        static NAMES: OnceLock<Vec<&str>> = OnceLock::new();
        NAMES.get_or_init(|| names(protected_names::ANYWHERE))
    }

    fn worked_in(&self) -> &[PathBuf] {
        &self.worked_in
    }

    fn own_files(&self) -> &[PathBuf] {
        &self.host.own
    }

    fn home(&self) -> Option<&Path> {
        self.host.home.as_deref()
    }

    fn git_configs(&self) -> &[PathBuf] {
        &self.host.git_configs
    }

    fn is_protected(&self, relative: &Path) -> bool {
        let asked = || self.paths.holds(relative) || self.asks_about(relative);
        protected_names::is_protected(relative).is_some() || (!self.is_opened(relative) && asked())
    }

    fn hides_all(&self, directory: &Path) -> bool {
        self.paths.hides_all(directory) && !self.opened.iter().any(|opened| opened.starts_with(directory))
    }

    fn holds(&self, relative: &Path) -> bool {
        self.paths.holds(relative) && !self.is_opened(relative)
    }

    fn holds_in(&self, directory: &Path) -> ProtectionExtent {
        self.paths.holds_in(directory)
    }

    fn held_while_absent(&self) -> &[PathBuf] {
        &self.held
    }

    fn opened(&self) -> &[PathBuf] {
        &self.opened
    }
}

/// Each path relative to every root that contains it.
fn inside(roots: &[Root], paths: &[ByteString]) -> Vec<PathBuf> {
    let within = |path: &ByteString| {
        let roots = roots.iter().filter_map(|root| path.as_path().strip_prefix(root.path.as_path()).ok());
        roots.map(Path::to_owned).collect::<Vec<_>>()
    };
    paths.iter().flat_map(within).collect()
}

fn names(list: &'static [protected_names::ProtectedName]) -> Vec<&'static str> {
    list.iter().map(|protected| protected.name).collect()
}
