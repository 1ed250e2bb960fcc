//! What the machine says, for the judge: looked up when asked, as a command inside the fence would find it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ringfence_authz::{Facts, PathKind, env};

use crate::session::Setup;

/// The real machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Where the fence looks for programs.
    path: Vec<PathBuf>,
}

impl Machine {
    pub(crate) fn new(setup: &Setup) -> Self {
        let toolchains = setup.toolchains.iter().flat_map(|toolchain| toolchain.programs.iter().cloned());
        let fixed = env::FIXED.iter().find(|(name, _)| *name == "PATH").map_or("", |(_, value)| value);
        Self { path: toolchains.chain(fixed.split(':').map(PathBuf::from)).collect() }
    }
}

impl Facts for Machine {
    fn program(&self, name: &[u8], cwd: &Path) -> Option<PathBuf> {
        let name = Path::new(OsStr::from_bytes(name));
        if name.components().count() > 1 || name.is_absolute() {
            return executable(&cwd.join(name));
        }
        self.path.iter().find_map(|directory| executable(&directory.join(name)))
    }

    fn real_path(&self, path: &Path) -> PathBuf {
        for (index, ancestor) in path.ancestors().enumerate() {
            if let Ok(real) = fs::canonicalize(ancestor) {
                let missing = path.components().rev().take(index).collect::<Vec<_>>();
                return missing.into_iter().rev().fold(real, |path, component| path.join(component));
            }
        }
        path.to_owned()
    }

    fn kind(&self, path: &Path) -> PathKind {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => PathKind::File,
            Ok(metadata) if metadata.is_dir() => PathKind::Directory,
            Ok(_) => PathKind::Other,
            Err(_) => PathKind::Missing,
        }
    }

    fn git_programs(&self, dir: &Path) -> Vec<String> {
        let repository = dir.ancestors().any(|directory| directory.join(".git").exists());
        if repository { vec!["a configuration that was not read".to_owned()] } else { Vec::new() }
    }
}

fn executable(path: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    let metadata = fs::metadata(&real).ok()?;
    (metadata.is_file() && metadata.permissions().mode() & 0o111 != 0).then_some(real)
}
