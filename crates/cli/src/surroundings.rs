//! Determines the workspace if none is named.
//!
//! An agent can create any file in the workspace, including a `.git` and a policy file. So the operator's
//! file decides first, then the outermost policy file above, and last the repository. Files made inside a
//! configured workspace therefore cannot remove that workspace's policy.

use std::path::{Path, PathBuf};

use ringfence_policy::configured_workspaces;
use ringfence_runtime::policy_files::{OperatorFile, has_policy, load_operator, policy_directories};
use ringfence_types::ByteString;

use crate::environment::Environment;
use crate::host;

/// Facts about the host that are known before the workspace is.
pub(crate) struct Surroundings {
    home: Option<PathBuf>,
    /// The directories with a section in the operator's file.
    configured: Vec<PathBuf>,
}

impl Surroundings {
    /// `named` is the operator's file, if it is not the default one.
    pub(crate) fn new(named: Option<&Path>, environment: &Environment) -> Self {
        let default = host::config_dir(environment).map(|directory| directory.join("config.toml"));
        let file = named.map(OperatorFile::Named).or(default.as_deref().map(OperatorFile::Default));
        // An unreadable file is reported later, when the policy is read.
        let file = file.and_then(|file| load_operator(file, &[]).ok().flatten());
        let home = environment.home.clone();
        let home_bytes = home.as_deref().map(ByteString::from);
        let configured = file.map(|file| configured_workspaces(&file, home_bytes.as_ref()));
        Self { home, configured: configured.unwrap_or_default() }
    }

    /// The workspace for `cwd`, which is canonical.
    pub(crate) fn workspace(&self, cwd: &Path) -> PathBuf {
        self.configured(cwd).unwrap_or_else(|| self.found(cwd))
    }

    /// The workspace of an agent in `cwd` that was started in `project`. An agent may change its directory;
    /// its project stays.
    pub(crate) fn agent_workspace(&self, cwd: &Path, project: Option<&Path>) -> PathBuf {
        let Some(project) = project else { return self.workspace(cwd) };
        let elsewhere =
            || Some(self.found(cwd)).filter(|found| !cwd.starts_with(project) && has_policy(found));
        self.configured(cwd).or_else(elsewhere).unwrap_or_else(|| self.workspace(project))
    }

    /// The nearest directory with a section in the operator's file.
    fn configured(&self, cwd: &Path) -> Option<PathBuf> {
        let mut around = cwd.ancestors().filter(|directory| !self.holds_home(directory));
        around.find(|directory| self.configured.iter().any(|known| known == directory)).map(Path::to_owned)
    }

    /// The outermost directory with a policy file at or above the repository; else the repository around
    /// `cwd`, unless that is the home itself; else `cwd`.
    fn found(&self, cwd: &Path) -> PathBuf {
        let repository = cwd.ancestors().find(|directory| directory.join(".git").exists());
        let nearest = repository.filter(|directory| !self.holds_home(directory)).unwrap_or(cwd);
        let with_policy = policy_directories(nearest, self.home.as_deref()).filter(|dir| has_policy(dir));
        with_policy.last().unwrap_or(nearest).to_owned()
    }

    fn holds_home(&self, directory: &Path) -> bool {
        self.home.as_ref().is_some_and(|home| home.starts_with(directory))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Place {
        root: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            Self { root: tempfile::tempdir().unwrap() }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.root.path().canonicalize().unwrap().join(path)
        }

        fn make(&self, path: &str) -> PathBuf {
            let path = self.path(path);
            fs::create_dir_all(&path).unwrap();
            path
        }

        fn policy(&self, directory: &str) {
            let file = self.make(&format!("{directory}/.ringfence")).join("policy.toml");
            fs::write(file, "").unwrap();
        }

        fn with(&self, home: Option<&str>, configured: &[&str]) -> Surroundings {
            let configured = configured.iter().map(|path| self.path(path)).collect();
            Surroundings { home: home.map(|home| self.path(home)), configured }
        }
    }

    #[test]
    fn the_default_workspace_is_the_repository_but_never_the_home() {
        let place = Place::new();
        let inner = place.make("repo/src");
        assert_eq!(place.with(None, &[]).workspace(&inner), inner);
        place.make("repo/.git");
        assert_eq!(place.with(None, &[]).workspace(&inner), place.path("repo"));
        assert_eq!(place.with(Some("repo"), &[]).workspace(&inner), inner);
    }

    #[test]
    fn a_configured_directory_wins_over_a_repository_below_it() {
        let place = Place::new();
        let inner = place.make("w/src/deep");
        place.make("w/.git");
        place.make("w/src/.git");
        assert_eq!(place.with(None, &[]).workspace(&inner), place.path("w/src"), "nothing is configured");
        assert_eq!(place.with(None, &["w"]).workspace(&inner), place.path("w"));
        assert_eq!(
            place.with(None, &["w", "w/src/deep"]).workspace(&inner),
            inner,
            "the operator knows both"
        );
        assert_eq!(place.with(Some("w"), &["w"]).workspace(&inner), place.path("w/src"), "never the home");
        place.policy("w");
        assert_eq!(place.with(None, &[]).workspace(&inner), place.path("w"));
        place.policy("w/src");
        assert_eq!(place.with(None, &[]).workspace(&inner), place.path("w"), "the outermost");
    }

    #[test]
    fn a_policy_file_below_the_repository_moves_nothing() {
        let place = Place::new();
        let inner = place.make("w/src");
        place.make("w/.git");
        place.policy("w/src");
        assert_eq!(place.with(None, &[]).workspace(&inner), place.path("w"));
    }

    #[test]
    fn an_agent_works_in_its_project_wherever_it_stands() {
        let place = Place::new();
        let (inner, project) = (place.make("w/src/deep"), place.make("w"));
        let elsewhere = place.make("other");
        place.make("w/.git");
        place.make("w/src/.git");
        place.policy("w/src");
        let plain = place.with(None, &[]);
        assert_eq!(plain.agent_workspace(&inner, Some(&project)), project);
        assert_eq!(plain.agent_workspace(&elsewhere, Some(&project)), project);
        assert_eq!(plain.agent_workspace(&inner, None), place.path("w/src"), "without a project");
        // A variable that names the project removes no policy.
        place.policy("other");
        assert_eq!(plain.agent_workspace(&elsewhere, Some(&project)), elsewhere);
        assert_eq!(place.with(None, &["w"]).agent_workspace(&inner, Some(&elsewhere)), project);
    }
}
