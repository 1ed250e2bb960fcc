//! Everything a part of an action is judged against.

use std::path::Path;

use ringfence_types::{Call, ExecCall};

use crate::decide::CallPermissions;
use crate::host_facts::HostFacts;
use crate::policy::Policy;

#[derive(Clone, Copy)]
pub(crate) struct EvalContext<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) permissions: &'a CallPermissions,
    pub(crate) facts: &'a dyn HostFacts,
    /// Absolute. Where relative paths of the call begin.
    pub(crate) cwd: &'a Path,
    /// The call, where it is a command: what it is given besides its arguments.
    pub(crate) exec: Option<&'a ExecCall>,
}

impl<'a> EvalContext<'a> {
    pub(crate) fn new(
        policy: &'a Policy,
        permissions: &'a CallPermissions,
        facts: &'a dyn HostFacts,
        call: &'a Call,
    ) -> Self {
        let (cwd, exec) = match call {
            Call::Exec(exec) => (exec.cwd.as_path(), Some(exec)),
            _ => (workspace(permissions), None),
        };
        Self { policy, permissions, facts, cwd, exec }
    }

    /// The directory of the workspace: the first root.
    pub(crate) fn workspace(&self) -> &'a Path {
        workspace(self.permissions)
    }
}

fn workspace(permissions: &CallPermissions) -> &Path {
    permissions.roots.first().map_or(Path::new("/"), |root| root.path.as_path())
}
