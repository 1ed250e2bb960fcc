//! Compiles the seccomp profile to BPF while the crate is built, so that starting a sandbox only copies bytes.

#[path = "seccomp/docs.rs"]
mod docs;
#[path = "seccomp/entries.rs"]
mod entries;
#[path = "seccomp/profile.rs"]
pub(crate) mod profile;
#[path = "seccomp/program.rs"]
pub(crate) mod program;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use profile::{BuildArch, SeccompProfile, Syscall};

/// Writes `seccomp_<arch>.bin`, `seccomp_no_inet_<arch>.bin`, `seccomp_counted_<arch>.bin`, `seccomp_entries.rs` and `seccomp.md` into `out_dir`.
pub(crate) fn compile(profile_toml: &Path, out_dir: &Path) -> Result<(), SeccompBuildError> {
    let text = fs::read_to_string(profile_toml)
        .map_err(|source| SeccompBuildError::Read { path: profile_toml.to_owned(), source })?;
    let profile = SeccompProfile::parse(&text).map_err(|mistake| SeccompBuildError::Profile {
        path: profile_toml.to_owned(),
        line: mistake.line,
        problem: mistake.problem,
    })?;
    for arch in BuildArch::ALL {
        let main: Vec<&Syscall> = profile.syscalls().collect();
        write(out_dir, &format!("seccomp_{arch}.bin"), &program::assemble(arch, &profile.known, &main))?;
        let no_inet: Vec<&Syscall> = profile.no_inet.iter().collect();
        let bytes = program::assemble(arch, &profile.known, &no_inet);
        write(out_dir, &format!("seccomp_no_inet_{arch}.bin"), &bytes)?;
        let counted: Vec<&Syscall> = profile.counted.iter().collect();
        let bytes = program::assemble(arch, &profile.known, &counted);
        write(out_dir, &format!("seccomp_counted_{arch}.bin"), &bytes)?;
    }
    write(out_dir, "seccomp_entries.rs", entries::render(&profile).as_bytes())?;
    write(out_dir, "seccomp.md", docs::render(&profile).as_bytes())
}

#[derive(thiserror::Error)]
pub(crate) enum SeccompBuildError {
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}:{line}: {problem}", path.display())]
    Profile { path: PathBuf, line: usize, problem: profile::ProfileProblem },
}

// A build script that returns an error shows its `Debug` form: let that be the readable one.
impl fmt::Debug for SeccompBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn write(out_dir: &Path, name: &str, bytes: &[u8]) -> Result<(), SeccompBuildError> {
    let path = out_dir.join(name);
    fs::write(&path, bytes).map_err(|source| SeccompBuildError::Write { path, source })
}
