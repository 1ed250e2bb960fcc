//! Builds `ringfence-launch` as a freestanding program and leaves it where `include_bytes!` finds it.
//!
//! WHY a nested cargo: the launcher needs its own profile (panic=abort, no start-up files) in the same build that
//! embeds it, and cargo has no stable way to depend on another package's binary.

use std::error::Error;
use std::path::Path;
use std::process::Command;

pub(crate) fn build(out: &Path) -> Result<(), Box<dyn Error>> {
    for watched in ["src", "Cargo.toml", "build.rs"] {
        println!("cargo::rerun-if-changed=../launch/{watched}");
    }
    let target = std::env::var("TARGET")?;
    let target_dir = out.join("launcher");
    let mut cargo = Command::new(std::env::var_os("CARGO").ok_or("CARGO is not set")?);
    cargo
        .args(["build", "--quiet", "--offline", "--profile", "launcher", "--features", "bin"])
        .args(["--bin", "ringfence-launch", "--manifest-path", "../launch/Cargo.toml", "--target", &target])
        .arg("--target-dir")
        .arg(&target_dir);
    forget_outer_build(&mut cargo);
    if !cargo.status()?.success() {
        return Err("building the launcher failed".into());
    }
    std::fs::copy(target_dir.join(target).join("launcher/ringfence-launch"), out.join("ringfence-launch"))?;
    Ok(())
}

/// What the outer build sets for itself (flags, wrappers, profiles) is not for a program without a C library.
fn forget_outer_build(cargo: &mut Command) {
    let outer = [
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "CLIPPY_ARGS",
        "CARGO_TARGET_DIR",
    ];
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if outer.contains(&name.as_ref()) || name.starts_with("CARGO_PROFILE_") {
            cargo.env_remove(name.as_ref());
        }
    }
}
