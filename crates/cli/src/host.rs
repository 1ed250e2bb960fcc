//! Host facts for the runtime: state directory, toolchains, git identity.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ringfence_authz::env::ApproverPresence;
use ringfence_runtime::{HostSetup, SkeletonFile, Toolchain};
use ringfence_types::ByteString;

use crate::environment::Environment;
use crate::own;

#[derive(Debug, thiserror::Error)]
#[error("neither XDG_STATE_HOME nor HOME says where to keep the ledger")]
pub(crate) struct NoStateDir;

pub(crate) fn setup(
    environment: &Environment,
    attendance: ApproverPresence,
) -> Result<HostSetup, NoStateDir> {
    let state_dir = state_dir(environment)?;
    let config_dir = config_dir(environment).unwrap_or_else(|| state_dir.join("ringfence"));
    Ok(HostSetup {
        state_dir,
        config_dir,
        home: environment.home.clone(),
        host_env: environment.all.clone(),
        attendance,
        toolchains: environment.home.as_deref().map(toolchains).unwrap_or_default(),
        files: environment.home.as_deref().map(git_config).into_iter().collect(),
        // Works even if the file was replaced since this process started.
        sweeper: Some(PathBuf::from("/proc/self/exe")),
        own: own::files(environment),
    })
}

/// The directory of the operator's file, unless another file is named.
pub(crate) fn config_dir(environment: &Environment) -> Option<PathBuf> {
    environment.config_dir.as_ref().map(|dir| dir.join("ringfence"))
}

pub(crate) fn state_dir(environment: &Environment) -> Result<PathBuf, NoStateDir> {
    environment.state_dir.as_ref().map(|dir| dir.join("ringfence")).ok_or(NoStateDir)
}

/// Where the host would find a program by its name.
pub(crate) fn on_path(name: &Path) -> Option<PathBuf> {
    if name.components().count() != 1 {
        return None;
    }
    let path = Environment::read().all.into_iter().find(|(variable, _)| variable.as_slice() == b"PATH")?.1;
    let directories = std::env::split_paths(path.as_os_str()).collect::<Vec<_>>();
    directories.into_iter().map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

/// Toolchains below the home. Only directories of programs and libraries, never one that also holds a
/// registry token or a configuration.
fn toolchains(home: &Path) -> Vec<Toolchain> {
    /// Directories to show, directories of programs, a variable that names one of them.
    type Known = (&'static [&'static str], &'static [&'static str], Option<(&'static str, &'static str)>);
    const KNOWN: &[Known] = &[
        (&[".rustup"], &[], Some(("RUSTUP_HOME", ".rustup"))),
        (&[".cargo/bin", ".cargo/registry", ".cargo/git"], &[".cargo/bin"], None),
        (&[".pyenv"], &[".pyenv/shims", ".pyenv/bin"], Some(("PYENV_ROOT", ".pyenv"))),
        (&[".nvm/versions"], &[], None),
        (&[".volta"], &[".volta/bin"], None),
        (&[".asdf"], &[".asdf/shims", ".asdf/bin"], None),
        (&[".sdkman/candidates"], &[], None),
        (&[".local/share/mise/installs", ".local/share/mise/shims"], &[".local/share/mise/shims"], None),
        (&[".local/share/uv/python", ".local/share/uv/tools"], &[], None),
        (&[".deno/bin"], &[".deno/bin"], None),
        (&[".bun/bin"], &[".bun/bin"], None),
        (&["go/bin", "go/pkg/mod"], &["go/bin"], None),
    ];
    /// Package directories that tools always look for below HOME.
    const PACKAGES: [&str; 3] = [".cargo/registry", ".cargo/git", "go/pkg/mod"];
    let below = |names: &[&str]| -> Vec<PathBuf> {
        names.iter().map(|name| home.join(name)).filter(|path| is_real_directory(path)).collect()
    };
    KNOWN
        .iter()
        .map(|(roots, programs, variable)| Toolchain {
            roots: below(roots),
            programs: below(programs),
            links: PACKAGES
                .iter()
                .filter(|name| roots.contains(name) && is_real_directory(&home.join(name)))
                .map(|name| (PathBuf::from(name), home.join(name)))
                .collect(),
            env: variable
                .iter()
                .map(|(name, path)| (ByteString::from(*name), ByteString::from(home.join(path))))
                .collect(),
        })
        .filter(|toolchain| !toolchain.roots.is_empty())
        .collect()
}

/// A regular file, open for reading. A FIFO in its place, which a command may have made, must not block this process. It is
/// looked at once it is open: before, a command could still exchange it.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Not through a link: the mounted directory must be the named one.
fn is_real_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// The operator's name for commits made inside; nothing else of their git configuration enters.
fn git_config(home: &Path) -> SkeletonFile {
    let mut name = None;
    let mut email = None;
    for file in [home.join(".config/git/config"), home.join(".gitconfig")] {
        let Ok(text) = fs::read_to_string(file) else { continue };
        name = user_value(&text, "name").or(name);
        email = user_value(&text, "email").or(email);
    }
    let mut content = String::new();
    if name.is_some() || email.is_some() {
        content.push_str("[user]\n");
    }
    for (key, value) in [("name", name), ("email", email)] {
        if let Some(value) = value {
            content
                .push_str(&format!("\t{key} = \"{}\"\n", value.replace('\\', "\\\\").replace('"', "\\\"")));
        }
    }
    SkeletonFile { path: PathBuf::from("/etc/gitconfig"), content: content.into_bytes() }
}

/// `key` of the section `[user]`.
fn user_value(text: &str, key: &str) -> Option<String> {
    let mut in_user = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            in_user = section.trim_end_matches(']').trim().eq_ignore_ascii_case("user");
        } else if in_user
            && let Some((name, value)) = line.split_once('=')
            && name.trim().eq_ignore_ascii_case(key)
        {
            found = Some(value.trim().trim_matches('"').to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_the_operator_is_taken() {
        let text = "[core]\n\tname = x\n[User]\n\tname = \"A B\"\n email=a@b\n[alias]\n\tname = !sh\n";
        assert_eq!(user_value(text, "name").as_deref(), Some("A B"));
        assert_eq!(user_value(text, "email").as_deref(), Some("a@b"));
    }
}
