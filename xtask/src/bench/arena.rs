//! Where contenders meet: programs built, workspaces made, all in one directory that goes away afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Effort;
use super::measure::Invocation;
use crate::{Result, command};

pub(super) struct Arena {
    directory: tempfile::TempDir,
    pub(super) root: PathBuf,
    target: PathBuf,
    pub(super) effort: Effort,
}

const C_PROGRAMS: &[&str] = &["true_nolibc", "floor", "zygote"];
const C_FLAGS: &[&str] = &[
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-static",
    "-nostdlib",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fno-builtin",
];

impl Arena {
    pub(super) fn new(root: &Path, effort: Effort) -> Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err("the floor programs in bench/ are written for x86_64".into());
        }
        // A disk, not a tmpfs: durable writes are part of what is measured.
        let directory = tempfile::Builder::new().prefix("ringfence-bench.").tempdir_in("/var/tmp")?;
        let target = command::target_directory(root)?;
        let arena = Self { directory, root: root.to_path_buf(), target, effort };
        for name in ["bin", "home", "state"] {
            fs::create_dir(arena.path(name))?;
        }
        for name in C_PROGRAMS {
            arena.compile(name)?;
        }
        Ok(arena)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn compile(&self, name: &str) -> Result<()> {
        let source = self.root.join("bench").join(format!("{name}.c"));
        command::must_succeed(Command::new("gcc").args(C_FLAGS).arg("-o").arg(self.bin(name)).arg(source))
    }

    pub(super) fn bin(&self, name: &str) -> PathBuf {
        self.path("bin").join(name)
    }

    /// Builds the product and gives its path.
    pub(super) fn ringfence(&self) -> Result<PathBuf> {
        let build = ["build", "--release", "--package", "ringfence"];
        command::must_succeed(command::cargo(&self.root).args(build))?;
        let program = self.target.join("release/ringfence");
        self.must_really_run(&program)?;
        Ok(program)
    }

    /// A program that does nothing is fast: the one that is measured must run what it is given.
    fn must_really_run(&self, ringfence: &Path) -> Result<()> {
        let workspace = self.workspace("trial")?;
        let trial = ["run", "--", "/bin/sh", "-c", "touch ran && exit 42"];
        let status = self.invocation(ringfence, &trial, &workspace).command().status()?;
        if status.code() == Some(42) && workspace.join("ran").exists() {
            return Ok(());
        }
        Err(format!("`ringfence run` did not run the trial command: {status}").into())
    }

    /// Builds a program that measures through a library and gives its path.
    pub(super) fn example(&self, package: &str, name: &str) -> Result<PathBuf> {
        let example = ["build", "--release", "--package", package, "--example", name];
        command::must_succeed(command::cargo(&self.root).args(example))?;
        Ok(self.target.join("release/examples").join(name))
    }

    /// Installs a package of npm into a directory that goes away with this, and gives the directory.
    pub(super) fn npm(&self, name: &str, package: &str) -> Result<PathBuf> {
        let prefix = self.path(name);
        fs::create_dir(&prefix)?;
        let quiet =
            ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
        command::must_succeed(Command::new("npm").arg("--prefix").arg(&prefix).args(quiet).arg(package))?;
        Ok(prefix)
    }

    /// A command with the environment every contender gets.
    pub(super) fn invocation(&self, program: &Path, arguments: &[&str], directory: &Path) -> Invocation {
        let variable = |name: &str, value: String| (name.to_owned(), value);
        Invocation {
            program: program.to_path_buf(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            directory: directory.to_path_buf(),
            environment: vec![
                variable("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
                variable("LANG", "C.UTF-8".into()),
                variable("HOME", self.path("home").display().to_string()),
                variable("XDG_STATE_HOME", self.path("state").display().to_string()),
            ],
        }
    }

    /// A small repository with the ten protected paths that `bench/fence.h` expects to exist.
    pub(super) fn workspace(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        for directory in [".vscode", ".claude"] {
            fs::create_dir_all(path.join(directory))?;
        }
        for file in [".gitmodules", ".bashrc", ".profile", ".envrc", ".mcp.json"] {
            fs::write(path.join(file), "")?;
        }
        git(&path, &["init", "--quiet", "."])?;
        Ok(path)
    }
}

/// git with an identity and nobody's configuration.
pub(super) fn git(directory: &Path, arguments: &[&str]) -> Result<()> {
    let identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid"];
    command::must_succeed(
        Command::new("/usr/bin/git")
            .args(identity)
            .args(arguments)
            .current_dir(directory)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null"),
    )
}

/// `count` small text files, a hundred to a directory.
pub(super) fn fill(directory: &Path, count: usize) -> Result<()> {
    for number in 0..count {
        let below = directory.join(format!("part{:03}", number / 100));
        if number % 100 == 0 {
            fs::create_dir_all(&below)?;
        }
        let needle = if number % 50 == 0 { "needle" } else { "hay" };
        fs::write(
            below.join(format!("file{number:05}.txt")),
            format!("{number}\n{needle}\n{}\n", "line\n".repeat(20)),
        )?;
    }
    Ok(())
}
