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

pub mod cases;
mod command;
mod danger;
mod decide;
#[cfg(test)]
mod docs;
pub mod env;
mod facts;
pub mod git_keys;
pub mod hosts;
mod judgement;
mod path_rules;
mod paths;
pub mod policy;
pub mod protected;
mod refuse;
mod scene;
pub mod sensitive;
pub mod shell;
mod suggest;
pub mod tools;
mod workspace;

pub use command::{
    CommandPattern, CommandRule, CommandRules, Given, Manifest, ManifestCommand, ManifestError, PatternError,
    Restriction,
};
pub use danger::{DangerFlags, check_backend, check_flags, check_profile};
pub use decide::{
    Action, Answer, Grant, Permissions, Question, Verdict, View, WorkspaceRules, ceiling, decide, judge,
    judge_proposal, open_for_a_proposal, placed, refer,
};
pub use facts::{Facts, PathKind, Touch};
pub use judgement::{Aspect, Judgement, Origin, Part, RuleSource, grant_file};
pub use path_rules::{BuiltInRule, Operation, PathRule, PathRuleError, PathRules, Steering};
pub use paths::Intent;
pub use policy::{Policy, Rules};
pub use suggest::{Candidate, Place, Scope, candidates};
pub use workspace::{FileKind, WorkspaceFacts, is_system_dir, judge_root, judge_workspace};
