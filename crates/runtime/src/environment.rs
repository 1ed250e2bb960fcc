//! The whole environment of a command: nothing is inherited that is not put together here.

use std::path::Path;

use ringfence_authz::env;
use ringfence_sandbox::HOME_INSIDE;
use ringfence_types::{Backend, Bytes, SessionId};

use crate::session::Setup;
use crate::workspace::Workspace;

pub(crate) fn of_command(
    setup: &Setup,
    workspace: &Workspace,
    session: &SessionId,
    backend: Backend,
) -> Vec<(Bytes, Bytes)> {
    let mut variables = env::base(&setup.host_env, setup.attendance);
    let home = home_inside(workspace, backend);
    let temporary = if sees_own_tmp(backend) { Path::new("/tmp").to_owned() } else { workspace.home.clone() };
    variables.push((Bytes::from("HOME"), Bytes::from(home)));
    variables.push((Bytes::from("TMPDIR"), Bytes::from(temporary)));
    if sees_own_tmp(backend) {
        // A git that was not built for /usr looks elsewhere for the file we lay into /etc.
        variables.push((Bytes::from("GIT_CONFIG_SYSTEM"), Bytes::from("/etc/gitconfig")));
    }
    for toolchain in &setup.toolchains {
        variables.extend(toolchain.env.iter().cloned());
    }
    prepend_path(&mut variables, setup);
    env::merge(variables, &env::injected(session, &workspace.id, &workspace.path))
}

fn sees_own_tmp(backend: Backend) -> bool {
    matches!(backend, Backend::Native | Backend::Bubblewrap)
}

fn home_inside(workspace: &Workspace, backend: Backend) -> &Path {
    if sees_own_tmp(backend) { Path::new(HOME_INSIDE) } else { &workspace.home }
}

fn prepend_path(variables: &mut [(Bytes, Bytes)], setup: &Setup) {
    let Some((_, path)) = variables.iter_mut().find(|(name, _)| name.as_slice() == b"PATH") else { return };
    let mut joined = Vec::new();
    for directory in setup.toolchains.iter().flat_map(|toolchain| &toolchain.programs) {
        joined.extend_from_slice(Bytes::from(directory.as_path()).as_slice());
        joined.push(b':');
    }
    joined.extend_from_slice(path.as_slice());
    *path = Bytes::from(joined);
}
