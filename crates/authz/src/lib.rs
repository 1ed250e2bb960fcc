//! What may happen: a pure function from a policy and an action to a verdict.
//!
//! INVARIANT: nothing here does I/O or reads a clock. Facts about the machine (who owns a directory, where the
//! home is) are gathered by the caller and handed in as values, so that every rule can be tested as a table.
//!
//! INVARIANT: only [`decide()`] makes a [`Grant`]. A second path to an effect therefore does not compile:
//!
//! ```compile_fail
//! use ringfence_authz::{Grant, Permissions};
//! fn forge(permissions: Permissions) -> Grant {
//!     Grant { permissions, ..unimplemented!() }
//! }
//! ```
//!
//! What the attacker controls here: every byte of the call. What the attacker does not control: the policy, the
//! roots, and the facts about the workspace.

mod danger;
mod decide;
#[cfg(test)]
mod docs;
pub mod env;
mod path_rules;
pub mod protected;
mod refuse;
pub mod sensitive;
mod workspace;

pub use danger::{DangerFlags, check_backend, check_flags, check_net, check_profile};
pub use decide::{Action, Grant, Permissions, Policy, Verdict, View, WorkspaceRules, decide};
pub use path_rules::{HiddenRule, PathRules};
pub use workspace::{FileKind, WorkspaceFacts, judge_root, judge_workspace};
