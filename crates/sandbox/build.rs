//! Compiles the seccomp profile ahead of time and builds the launcher that travels inside the binary.
#![expect(clippy::disallowed_methods, reason = "cargo speaks to a build script through its environment")]

#[path = "build/launcher.rs"]
mod launcher;
#[path = "build/seccomp.rs"]
mod seccomp;

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=profiles");
    seccomp::compile(Path::new("profiles/seccomp.toml"), &out)?;
    launcher::build(&out)
}
