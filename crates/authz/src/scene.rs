//! Everything a part of an action is judged against.

use std::path::Path;

use ringfence_types::Exec;

use crate::decide::Permissions;
use crate::facts::Facts;
use crate::policy::Policy;

#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) permissions: &'a Permissions,
    pub(crate) facts: &'a dyn Facts,
    /// Absolute. Where relative paths of the call begin.
    pub(crate) cwd: &'a Path,
    /// The call, where it is a command: what it is given besides its arguments.
    pub(crate) exec: Option<&'a Exec>,
}

impl Scene<'_> {
    /// The directory of the workspace: the first root.
    pub(crate) fn workspace(&self) -> &Path {
        self.permissions.roots.first().map_or(Path::new("/"), |root| root.path.as_path())
    }
}
