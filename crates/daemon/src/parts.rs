//! A part of a session: held to everything that the whole is told, for as long as both last.
//!
//! INVARIANT: what is decided in a part is at most what is decided in the whole. Rules of both are asked, values are the smaller
//! of the two, and what cannot be compared has to be the same.

use std::path::{Path, PathBuf};

use ringfence_runtime::Asked;
use ringfence_runtime::authz::policy::roots_held_to;
use ringfence_types::{Bytes, Refusal, Root};

use crate::ceiling;
use crate::reload::hold;

/// Whoever asks for more than the whole has is told so, rather than given less than they asked for.
pub(crate) fn check(part: &Asked, whole: &Asked) -> Result<(), Refusal> {
    match ceiling::more_than(part, whole) {
        None => Ok(()),
        Some(what) => Err(ceiling::refusal(format!(
            "the {what} would be more than the session has that it is a part of"
        ))),
    }
}

/// What is asked of the part, as far as the whole has it as well.
pub(crate) fn held(part: Asked, whole: Asked) -> Result<Asked, Refusal> {
    same(&part, &whole)?;
    let mut roots = roots_held_to(&all_roots(&part), &all_roots(&whole));
    let mut policy = part.policy.held_to(&whole.policy);
    // The workspace has its access from the policy.
    policy.access = policy.access.min(roots.remove(0).access);
    let mut settings = part.settings;
    hold(&mut settings, &whole.settings);
    let mut policy_files = [part.policy_files, whole.policy_files].concat();
    policy_files.sort();
    policy_files.dedup();
    let policy_digest = format!("{} within {}", part.policy_digest, whole.policy_digest);
    // Where it was found to be, and not where a link leads by now.
    let workspace = real(&part.workspace);
    Ok(Asked { workspace, policy, policy_digest, policy_files, settings, roots, ..part })
}

/// Of what no two are one within the other.
fn same(part: &Asked, whole: &Asked) -> Result<(), Refusal> {
    let (place, around) = (real(&part.workspace), real(&whole.workspace));
    if !place.starts_with(&around) {
        return Err(outside());
    }
    // Rules name paths below the workspace: in another one they would be about other files.
    if place != around && whole.policy.all().any(|policy| !policy.rules.paths.rules().is_empty()) {
        let message =
            "the session that it is a part of has rules about paths, which hold in its own workspace";
        return Err(Refusal {
            hint: Some("name the workspace of the whole".to_owned()),
            ..ceiling::refusal(message.to_owned())
        });
    }
    let (one, other) = (&part.policy, &whole.policy);
    if one.backend != other.backend || one.container != other.container || part.image != whole.image {
        let message = "a part runs behind the same kind of fence as the session that it is a part of";
        return Err(ceiling::refusal(message.to_owned()));
    }
    Ok(())
}

/// With the workspace first.
fn all_roots(asked: &Asked) -> Vec<Root> {
    let workspace = Root { path: Bytes::from(real(&asked.workspace)), access: asked.policy.access };
    [&[workspace], asked.roots.as_slice()].concat()
}

/// As the runtime finds it. What is not there is refused by the runtime.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

pub(crate) fn outside() -> Refusal {
    ceiling::refusal("the workspace would be more than the session has that it is a part of".to_owned())
}
