//! A place where an ordinary user can read and run what root has built.
//!
//! The repository and its target directory may lie in a home that nobody else can enter. So the test programs,
//! the `ringfence` binary and the sources are copied to a directory that everybody can read, and tests learn of
//! it through variables (`CONTRIBUTING.md` lists them).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::testing::TestExecutable;
use crate::{Result, agents, command, tree};

/// Removed when dropped.
pub(crate) struct Stage {
    directory: tempfile::TempDir,
    /// Where each test program was copied to, in the order it was given.
    pub(crate) programs: Vec<PathBuf>,
    pub(crate) binary: PathBuf,
    /// A Rust toolchain that the ordinary user can run.
    pub(crate) toolchain: PathBuf,
    /// The programs of agents.
    pub(crate) agents: Option<PathBuf>,
}

impl Stage {
    pub(crate) fn new(root: &Path, executables: &[TestExecutable], binary: &Path) -> Result<Self> {
        // Not /tmp: the fence gives every sandbox a /tmp of its own.
        let directory = tempfile::Builder::new().prefix("ringfence-test.").tempdir_in("/var/tmp")?;
        let at = directory.path();
        fs::set_permissions(at, fs::Permissions::from_mode(0o755))?;
        copy_sources(root, &at.join("source"))?;
        open_directory(&at.join("bin"))?;
        let programs = executables
            .iter()
            .enumerate()
            .map(|(number, test)| copy_program(&test.path, &at.join("bin").join(format!("test-{number}"))))
            .collect::<Result<_>>()?;
        let binary = copy_program(binary, &at.join("bin/ringfence"))?;
        let toolchain = stage_toolchain(root, &at.join("toolchain"))?;
        Ok(Self { directory, programs, binary, toolchain, agents: None })
    }

    pub(crate) fn add_agents(&mut self, from: &Path) -> Result<()> {
        let to = self.path().join("agents");
        agents::stage(from, &to)?;
        self.agents = Some(to);
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The copy of a directory of the repository.
    pub(crate) fn source(&self, relative: &Path) -> PathBuf {
        self.path().join("source").join(relative)
    }
}

fn copy_sources(root: &Path, to: &Path) -> Result<()> {
    open_directory(to)?;
    for file in tree::files(root)? {
        let copy = to.join(&file);
        for parent in
            copy.ancestors().skip(1).take_while(|dir| *dir != to).collect::<Vec<_>>().into_iter().rev()
        {
            open_directory(parent)?;
        }
        let mode = fs::metadata(root.join(&file))?.permissions().mode();
        fs::copy(root.join(&file), &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode | 0o444))?;
    }
    Ok(())
}

fn open_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn copy_program(from: &Path, to: &Path) -> Result<PathBuf> {
    fs::copy(from, to).map_err(|error| format!("cannot copy {}: {error}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(to.to_path_buf())
}

/// Hard links cost no space; a toolchain on another file system is copied. Without root there is one user only,
/// who can already run the toolchain.
fn stage_toolchain(root: &Path, to: &Path) -> Result<PathBuf> {
    let sysroot = command::output_of(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root))?;
    let sysroot = PathBuf::from(sysroot.trim());
    if !rustix::process::geteuid().is_root() {
        return Ok(sysroot);
    }
    open_directory(to)?;
    for part in ["bin", "lib"] {
        let from = sysroot.join(part);
        let linked =
            Command::new("cp").arg("-al").arg(&from).arg(to).stderr(std::process::Stdio::null()).status()?;
        if !linked.success() {
            command::must_succeed(Command::new("cp").arg("-a").arg(&from).arg(to))?;
        }
    }
    Ok(to.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_sources_are_readable_by_everybody() {
        let from = tempfile::tempdir().unwrap();
        let to = tempfile::tempdir().unwrap();
        fs::create_dir_all(from.path().join("a/b")).unwrap();
        fs::create_dir_all(from.path().join("target")).unwrap();
        fs::write(from.path().join("a/b/data"), "x").unwrap();
        fs::write(from.path().join("target/big"), "x").unwrap();
        fs::set_permissions(from.path().join("a"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(from.path().join("a/b/data"), fs::Permissions::from_mode(0o600)).unwrap();
        copy_sources(from.path(), &to.path().join("s")).unwrap();
        let mode = |path: &str| fs::metadata(to.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode("s/a"), mode("s/a/b"), mode("s/a/b/data")], [0o755, 0o755, 0o644]);
        assert!(!to.path().join("s/target").exists());
    }
}
