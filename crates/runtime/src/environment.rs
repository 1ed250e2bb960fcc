//! The whole environment of a command: nothing is inherited that is not put together here.

use std::path::{Path, PathBuf};

use ringfence_authz::{Grant, Policy, View, env, git_keys};
use ringfence_sandbox::HOME_INSIDE;
use ringfence_types::{Backend, Bytes, CommandMode, SessionId};

use crate::session::Setup;
use crate::workspace::Workspace;

/// What kind of tree a command runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// With a home and a /tmp of its own, at fixed places.
    Constructed,
    /// The same, but with the programs of an image.
    Image,
    /// The host's: the home of the workspace is where the host has it.
    Host,
}

impl Ground {
    pub(crate) fn of(backend: Backend, view: View) -> Self {
        match (backend, view) {
            (Backend::Native | Backend::Bubblewrap, View::Constructed) => Self::Constructed,
            (Backend::Container, View::Constructed) => Self::Image,
            _ => Self::Host,
        }
    }
}

pub(crate) fn of_command(
    setup: &Setup,
    policy: &Policy,
    workspace: &Workspace,
    session: &SessionId,
    ground: Ground,
) -> Vec<(Bytes, Bytes)> {
    let mut variables = env::base(&setup.host_env, setup.attendance, &policy.rules.env);
    for before in policy.all().skip(1) {
        let before = env::base(&setup.host_env, setup.attendance, &before.rules.env);
        variables.retain(|variable| before.contains(variable));
    }
    let (home, temporary) = match ground {
        Ground::Constructed | Ground::Image => (Path::new(HOME_INSIDE), Path::new("/tmp")),
        Ground::Host => (workspace.home.as_path(), workspace.home.as_path()),
    };
    variables.push((Bytes::from("HOME"), Bytes::from(home)));
    variables.push((Bytes::from("TMPDIR"), Bytes::from(temporary)));
    if ground != Ground::Host {
        // A git that was not built for /usr looks elsewhere for the file we lay into /etc.
        variables.push((Bytes::from("GIT_CONFIG_SYSTEM"), Bytes::from("/etc/gitconfig")));
    }
    if ground != Ground::Image {
        for toolchain in &setup.toolchains {
            variables = env::merge(variables, &toolchain.env);
        }
        let programs = setup.toolchains.iter().flat_map(|toolchain| &toolchain.programs);
        prepend_path(&mut variables, workspace.tools.iter().chain(programs));
    }
    env::merge(variables, &env::injected(session, &workspace.id, &workspace.path))
}

/// What runs without a question runs no program that a repository names. What a person approved is their decision.
pub(crate) fn without_surprises(
    variables: Vec<(Bytes, Bytes)>,
    policy: &Policy,
    grant: &Grant,
) -> Vec<(Bytes, Bytes)> {
    let contained = policy.all().all(|policy| policy.commands == CommandMode::Contained);
    if contained || grant.is_approved() {
        return variables;
    }
    env::merge(variables, &git_keys::environment())
}

fn prepend_path<'p>(variables: &mut [(Bytes, Bytes)], directories: impl Iterator<Item = &'p PathBuf>) {
    let Some((_, path)) = variables.iter_mut().find(|(name, _)| name.as_slice() == b"PATH") else { return };
    let mut joined = Vec::new();
    for directory in directories {
        joined.extend_from_slice(Bytes::from(directory.as_path()).as_slice());
        joined.push(b':');
    }
    joined.extend_from_slice(path.as_slice());
    *path = Bytes::from(joined);
}
