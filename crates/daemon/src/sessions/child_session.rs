//! Child sessions: each is held to the policy of its parent while both run.
//!
//! INVARIANT: a child session may do at most what its parent may do. The rules of both apply, each value is the smaller
//! one, and values without an order must be equal.

use std::path::{Path, PathBuf};

use ringfence_authz::roots_held_to;
use ringfence_runtime::SessionSpec;
use ringfence_types::{ByteString, Refusal, Root};

use crate::admit::ceiling;
use crate::sessions::policy_reload::hold;

/// Refuses more than the parent has, instead of silently giving less.
pub(crate) fn check(part: &SessionSpec, whole: &SessionSpec) -> Result<(), Refusal> {
    match ceiling::more_than(part, whole) {
        None => Ok(()),
        Some(what) => {
            Err(ceiling::refusal(format!("the {what} of the child session would exceed that of its parent")))
        }
    }
}

/// The child's specification, limited to that of its parent.
pub(crate) fn held(part: SessionSpec, whole: SessionSpec) -> Result<SessionSpec, Refusal> {
    same(&part, &whole)?;
    let mut roots = roots_held_to(&all_roots(&part), &all_roots(&whole));
    let mut policy = part.policy.held_to(&whole.policy);
    // The workspace's access comes from the policy, not from the roots.
    policy.access = policy.access.min(roots.remove(0).access);
    let mut settings = part.settings;
    hold(&mut settings, &whole.settings);
    let mut policy_files = [part.policy_files, whole.policy_files].concat();
    policy_files.sort();
    policy_files.dedup();
    let policy_digest = format!("{} within {}", part.policy_digest, whole.policy_digest);
    // The canonical path, so that a link that is changed later has no effect.
    let workspace = real(&part.workspace);
    Ok(SessionSpec { workspace, policy, policy_digest, policy_files, settings, roots, ..part })
}

/// Checks values that have no order.
fn same(part: &SessionSpec, whole: &SessionSpec) -> Result<(), Refusal> {
    let (place, around) = (real(&part.workspace), real(&whole.workspace));
    if !place.starts_with(&around) {
        return Err(outside());
    }
    // Path rules are relative to the workspace: in another workspace they would match other files.
    if place != around && whole.policy.all().any(|policy| !policy.rules.paths.rules().is_empty()) {
        let message = "the parent session has rules about paths, which apply to its own workspace";
        return Err(Refusal {
            hint: Some("name the workspace of the whole".to_owned()),
            ..ceiling::refusal(message.to_owned())
        });
    }
    let (one, other) = (&part.policy, &whole.policy);
    if one.backend != other.backend || one.container != other.container || part.image != whole.image {
        let message = "a child session has the backend of its parent";
        return Err(ceiling::refusal(message.to_owned()));
    }
    Ok(())
}

/// All roots, with the workspace first.
fn all_roots(asked: &SessionSpec) -> Vec<Root> {
    let workspace = Root { path: ByteString::from(real(&asked.workspace)), access: asked.policy.access };
    [&[workspace], asked.roots.as_slice()].concat()
}

/// The path as the runtime resolves it. The runtime refuses a missing path.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

pub(crate) fn outside() -> Refusal {
    ceiling::refusal("the workspace of the child session would exceed that of its parent".to_owned())
}
