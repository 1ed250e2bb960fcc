//! The environment of a command, built from scratch: nothing is inherited.

use std::path::{Path, PathBuf};

use ringfence_authz::{Authorization, FilesystemView, Policy, env, git_keys};
use ringfence_sandbox::HOME_INSIDE;
use ringfence_types::{Backend, ByteString, SessionId};

use crate::session::HostSetup;
use crate::workspace::Workspace;

/// The kind of file tree a command runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootKind {
    /// A constructed tree with its own home and `/tmp` at fixed paths.
    Constructed,
    /// The same with the programs of an image.
    Image,
    /// The host's tree; the workspace home is at its host path.
    Host,
}

impl RootKind {
    pub(crate) fn of(backend: Backend, view: FilesystemView) -> Self {
        match (backend, view) {
            (Backend::Native | Backend::Bubblewrap, FilesystemView::Constructed) => Self::Constructed,
            (Backend::Container, FilesystemView::Constructed) => Self::Image,
            _ => Self::Host,
        }
    }
}

pub(crate) fn of_command(
    setup: &HostSetup,
    policy: &Policy,
    workspace: &Workspace,
    session: &SessionId,
    ground: RootKind,
) -> Vec<(ByteString, ByteString)> {
    let mut variables = env::base(&setup.host_env, setup.attendance, &policy.rules.env);
    for before in policy.all().skip(1) {
        let before = env::base(&setup.host_env, setup.attendance, &before.rules.env);
        variables.retain(|variable| before.contains(variable));
    }
    let (home, temporary) = match ground {
        RootKind::Constructed | RootKind::Image => (Path::new(HOME_INSIDE), Path::new("/tmp")),
        RootKind::Host => (workspace.home.as_path(), workspace.home.as_path()),
    };
    variables.push((ByteString::from("HOME"), ByteString::from(home)));
    variables.push((ByteString::from("TMPDIR"), ByteString::from(temporary)));
    if ground != RootKind::Host {
        // A git that was not built for `/usr` does not read `/etc/gitconfig` by itself.
        variables.push((ByteString::from("GIT_CONFIG_SYSTEM"), ByteString::from("/etc/gitconfig")));
    }
    if ground != RootKind::Image {
        for toolchain in &setup.toolchains {
            variables = env::merge(variables, &toolchain.env);
        }
        let programs = setup.toolchains.iter().flat_map(|toolchain| &toolchain.programs);
        prepend_path(&mut variables, workspace.tools.iter().chain(programs));
    }
    let variables = env::without_foreign_character_sets(variables, policy);
    env::merge(variables, &env::injected(session, &workspace.id, &workspace.path))
}

/// Removes variables that make a command run programs named by a repository, unless a person approved the
/// call.
pub(crate) fn remove_steering_variables(
    variables: Vec<(ByteString, ByteString)>,
    policy: &Policy,
    grant: &Authorization,
) -> Vec<(ByteString, ByteString)> {
    if !git_keys::protects(policy) || grant.is_approved() {
        return variables;
    }
    env::merge(variables, &git_keys::environment())
}

fn prepend_path<'p>(
    variables: &mut [(ByteString, ByteString)],
    directories: impl Iterator<Item = &'p PathBuf>,
) {
    let Some((_, path)) = variables.iter_mut().find(|(name, _)| name.as_slice() == b"PATH") else { return };
    let mut joined = Vec::new();
    for directory in directories {
        joined.extend_from_slice(ByteString::from(directory.as_path()).as_slice());
        joined.push(b':');
    }
    joined.extend_from_slice(path.as_slice());
    *path = ByteString::from(joined);
}
