//! Files that run or steer something later, although they are part of the work: where writing is a question, these are.
//!
//! What only names code (a source file, a script that nothing runs by itself) is not among them, nor is what is protected
//! in every profile ([`crate::protected_names`]).

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ringfence_types::{Decision, PathDecision, Risk, RuleId};

use super::built_in::{BuiltInRule, bare, is};

/// Names with the same reason.
pub(crate) struct SteeringGroup {
    pub(crate) rule: BuiltInRule,
    pub(crate) names: &'static [&'static str],
    /// Directories by the last parts of their path: everything in them.
    pub(crate) directories: &'static [&'static str],
    pub(crate) prefixes: &'static [&'static str],
    pub(crate) suffixes: &'static [&'static str],
}

/// The rule that makes writing this file a question, if one does. Names are compared without letter case.
pub(super) fn explain(relative: &Path) -> Option<&'static BuiltInRule> {
    let path = relative.as_os_str().as_bytes();
    let parts: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").map(bare).collect();
    let name = parts.last()?;
    GROUPS.iter().find(|group| group.speaks(name, &parts)).map(|group| &group.rule)
}

impl SteeringGroup {
    fn speaks(&self, name: &[u8], parts: &[&[u8]]) -> bool {
        let begins = |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| is(start, prefix));
        let ends = |suffix: &&str| {
            name.len()
                .checked_sub(suffix.len())
                .and_then(|at| name.get(at..))
                .is_some_and(|end| is(end, suffix))
        };
        self.names.iter().any(|word| is(name, word))
            || self.prefixes.iter().any(begins)
            || self.suffixes.iter().any(ends)
            || self.directories.iter().any(|directory| is_part_of(parts, directory))
    }
}

/// Whether a path lies in the directory, is the directory, or is one above it that is a part of its name: a link at
/// `.github` brings workflows with it.
fn is_part_of(parts: &[&[u8]], directory: &str) -> bool {
    let words: Vec<&str> = directory.split('/').collect();
    let same = |parts: &[&[u8]]| parts.iter().zip(&words).all(|(part, word)| is(part, word));
    let ends = |count: usize| parts.len().checked_sub(count).and_then(|at| parts.get(at..)).is_some_and(same);
    parts.windows(words.len()).any(same) || (1..words.len()).any(ends)
}

const NONE: &[&str] = &[];

pub(crate) const GROUPS: &[SteeringGroup] = &[
    SteeringGroup {
        rule: asked(
            Risk::High,
            RuleId::PathCi,
            "continuous integration",
            "it runs on other machines, with their secrets",
        ),
        names: &[
            ".appveyor.yml",
            ".cirrus.yml",
            ".drone.yaml",
            ".drone.yml",
            ".gitlab-ci.yaml",
            ".gitlab-ci.yml",
            ".travis.yml",
            ".woodpecker.yaml",
            ".woodpecker.yml",
            "appveyor.yml",
            "azure-pipelines.yaml",
            "azure-pipelines.yml",
            "bitbucket-pipelines.yml",
            "buildspec.yaml",
            "buildspec.yml",
            "cloudbuild.json",
            "cloudbuild.yaml",
            "cloudbuild.yml",
            "codefresh.yml",
            "CODEOWNERS",
            "Earthfile",
            "Jenkinsfile",
            "wercker.yml",
        ],
        directories: &[
            ".azure-pipelines",
            ".buildkite",
            ".circleci",
            ".forgejo/workflows",
            ".gitea/workflows",
            ".github/actions",
            ".github/workflows",
            ".gitlab/ci",
            ".semaphore",
            ".tekton",
            ".woodpecker",
        ],
        prefixes: NONE,
        suffixes: NONE,
    },
    SteeringGroup {
        rule: asked(
            Risk::High,
            RuleId::PathAgentInstructions,
            "agent instructions",
            "coding agents do what it says",
        ),
        names: &[
            ".clinerules",
            ".continuerules",
            ".cursorrules",
            ".goosehints",
            ".roorules",
            ".rules",
            ".windsurfrules",
            "AGENT.md",
            "AGENTS.md",
            "AGENTS.override.md",
            "CLAUDE.local.md",
            "CLAUDE.md",
            "copilot-instructions.md",
            "GEMINI.md",
            "QWEN.md",
            "SKILL.md",
            "WARP.md",
        ],
        directories: &[
            ".augment",
            ".clinerules",
            ".github/agents",
            ".github/instructions",
            ".github/prompts",
            ".kilocode",
            ".openhands",
            ".trae",
        ],
        prefixes: NONE,
        suffixes: NONE,
    },
    SteeringGroup {
        // Refused wherever it is written (S002-9), unless the operator opens it.
        rule: BuiltInRule {
            decision: Decision::Deny,
            ..asked(
                Risk::Medium,
                RuleId::PathIdentity,
                "identity files",
                "it says who the agent and its user are",
            )
        },
        names: &["IDENTITY.md", "SOUL.md", "USER.md"],
        directories: NONE,
        prefixes: NONE,
        suffixes: NONE,
    },
    SteeringGroup {
        rule: asked(
            Risk::High,
            RuleId::PathGitHooks,
            "hooks in the workspace",
            "git runs it where it is set up",
        ),
        names: &[
            ".lefthook.yaml",
            ".lefthook.yml",
            ".pre-commit-config.yaml",
            ".pre-commit-hooks.yaml",
            "lefthook.json",
            "lefthook.toml",
            "lefthook.yaml",
            "lefthook.yml",
        ],
        directories: &[".githooks", ".husky"],
        prefixes: &[".lintstagedrc"],
        suffixes: NONE,
    },
    SteeringGroup {
        rule: asked(
            Risk::High,
            RuleId::PathVersionControl,
            "data of version control",
            "git, or another version control system, on the host obeys it",
        ),
        names: &[".arcconfig", ".gclient", ".gclient_entries", ".p4config"],
        directories: &[".bzr", ".git", ".hg", ".jj", ".pijul", ".repo", ".sl", ".svn", "_darcs"],
        prefixes: NONE,
        suffixes: NONE,
    },
    SteeringGroup {
        rule: asked(
            Risk::Medium,
            RuleId::PathBuildScript,
            "build scripts",
            "it names commands that a build, a test or an install runs",
        ),
        names: &[
            ".bazelrc",
            ".justfile",
            ".npmrc",
            ".pnp.cjs",
            ".pnp.loader.mjs",
            ".pnpmfile.cjs",
            ".pylintrc",
            ".Rprofile",
            ".tool-versions",
            ".yarnrc",
            ".yarnrc.yml",
            "BUILD",
            "BUILD.bazel",
            "build.gradle",
            "build.gradle.kts",
            "build.rs",
            "build.sbt",
            "build.xml",
            "build.zig",
            "build.zig.zon",
            "Cargo.toml",
            "CMakeLists.txt",
            "compose.yaml",
            "compose.yml",
            "composer.json",
            "configure",
            "configure.ac",
            "conftest.py",
            "Containerfile",
            "default.nix",
            "deno.json",
            "deno.jsonc",
            "devbox.json",
            "Dockerfile",
            "flake.nix",
            "Gemfile",
            "GNUmakefile",
            "gradlew",
            "Gruntfile.js",
            "gulpfile.js",
            "justfile",
            "Makefile",
            "meson.build",
            "mise.toml",
            ".mise.toml",
            "mix.exs",
            "MODULE.bazel",
            "mvnw",
            "noxfile.py",
            "package.json",
            "Package.swift",
            "Podfile",
            "pom.xml",
            "Procfile",
            "pylintrc",
            "pyproject.toml",
            "Rakefile",
            "rust-toolchain",
            "rust-toolchain.toml",
            "SConscript",
            "SConstruct",
            "settings.gradle",
            "settings.gradle.kts",
            "setup.cfg",
            "setup.py",
            "shell.nix",
            "sitecustomize.py",
            "Taskfile.dist.yml",
            "Taskfile.yaml",
            "Taskfile.yml",
            "Tiltfile",
            "tox.ini",
            "usercustomize.py",
            "Vagrantfile",
            "WORKSPACE",
            "WORKSPACE.bazel",
            "wscript",
        ],
        directories: &[".cargo", ".config/mise", ".mvn", ".yarn/plugins", ".yarn/releases", "gradle/wrapper"],
        prefixes: &["docker-compose", "Dockerfile.", "eslint.config."],
        suffixes: &[
            ".bzl",
            ".cmake",
            ".csproj",
            ".dockerfile",
            ".fsproj",
            ".gemspec",
            ".mk",
            ".props",
            ".pth",
            ".sbt",
            ".targets",
            ".vbproj",
        ],
    },
    SteeringGroup {
        rule: asked(
            Risk::Medium,
            RuleId::PathEditorConfig,
            "editor projects",
            "editors run tasks and settings from it",
        ),
        names: &[".clangd", ".dir-locals.el", ".dir-locals-2.el", ".lazy.lua", ".ycm_extra_conf.py"],
        directories: &[".theia", ".vim"],
        prefixes: NONE,
        suffixes: &[".code-workspace", ".sublime-project"],
    },
];

const fn asked(risk: Risk, name: RuleId, pattern: &'static str, reason: &'static str) -> BuiltInRule {
    BuiltInRule { name, pattern, reason, decision: Decision::Ask, risk, verdict: PathDecision::Open }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protected_names;

    #[test]
    fn what_steers_is_found_by_name_place_and_ending() {
        for (path, rule) in [
            (".github/workflows/ci.yml", "path.ci"),
            ("sub/.GitHub/Workflows/x/y.yml", "path.ci"),
            ("jenkinsfile", "path.ci"),
            ("a/b/AGENTS.MD", "path.agent-instructions"),
            (".github/copilot-instructions.md", "path.agent-instructions"),
            ("soul.MD", "path.identity"),
            (".husky/pre-commit", "path.git-hooks"),
            (".lintstagedrc.json", "path.git-hooks"),
            (".git/HEAD", "path.version-control"),
            (".git/index", "path.version-control"),
            ("src/.git/objects/info/alternates", "path.version-control"),
            (".hg/dirstate", "path.version-control"),
            ("makefile", "path.build-script"),
            ("a/./Makefile", "path.build-script"),
            ("build.zig", "path.build-script"),
            ("wscript", "path.build-script"),
            ("Directory.Build.props", "path.build-script"),
            ("x.csproj", "path.build-script"),
            ("project/plugins.sbt", "path.build-script"),
            ("Podfile", "path.build-script"),
            (".Rprofile", "path.build-script"),
            ("usercustomize.py", "path.build-script"),
            ("x.pth", "path.build-script"),
            (".pnp.cjs", "path.build-script"),
            ("eslint.config.mjs", "path.build-script"),
            (".tool-versions", "path.build-script"),
            (".config/mise/config.toml", "path.build-script"),
            ("Makefile.", "path.build-script"),
            ("Makefile ", "path.build-script"),
            ("pkg/package.json", "path.build-script"),
            ("docker-compose.override.yml", "path.build-script"),
            ("Dockerfile.prod", "path.build-script"),
            ("rules.mk", "path.build-script"),
            (".cargo/config.toml", "path.build-script"),
            ("x.code-workspace", "path.editor-config"),
            (".repo/repo/main.py", "path.version-control"),
            ("sub/.gclient", "path.version-control"),
            (".P4Config", "path.version-control"),
            (".tool-versions", "path.build-script"),
            (".pylintrc", "path.build-script"),
            (".vim/coc-settings.json", "path.editor-config"),
            (".lazy.lua", "path.editor-config"),
            (".husky", "path.git-hooks"),
            ("sub/.GitHub/workflows", "path.ci"),
            (".github", "path.ci"),
            (".github/", "path.ci"),
            ("a/.config", "path.build-script"),
        ] {
            assert_eq!(explain(Path::new(path)).map(|rule| rule.name.word()), Some(rule), "{path}");
        }
    }

    #[test]
    fn work_that_steers_nothing_is_not_asked_about() {
        for path in [
            "",
            "src/main.rs",
            "run.sh",
            "scripts/build.sh",
            ".editorconfig",
            ".gitignore",
            "package-lock.json",
            "workflows/ci.yml",
            "workflows",
            ".github/FUNDING.yml",
            "wrapper",
            "github/workflows/x",
            "docs/makefile.md",
            "Cargo.lock",
            "mk",
            "USER",
        ] {
            assert_eq!(explain(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn nothing_is_listed_that_is_protected_anyway() {
        let names = GROUPS.iter().flat_map(|group| group.names.iter().chain(group.directories));
        // Itself it is protected; most of what is in it is not.
        for name in names.filter(|name| **name != ".git") {
            assert_eq!(protected_names::is_protected(&Path::new("deep").join(name)), None, "{name}");
        }
    }
}
