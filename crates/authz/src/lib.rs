//! What may happen: a pure function from a policy and an action to a verdict.
//!
//! INVARIANT: nothing here does I/O or reads a clock. Facts about the machine (who owns a directory, where the
//! home is) are gathered by the caller and handed in as values, so that every rule can be tested as a table.
//!
//! INVARIANT: only [`decide()`] makes an [`Authorization`]. A second path to an effect therefore does not compile:
//!
//! ```compile_fail,E0451
//! use ringfence_authz::{Authorization, CallPermissions};
//! fn forge(permissions: CallPermissions) -> Authorization {
//!     Authorization { permissions, ..unimplemented!() }
//! }
//! ```
//!
//! What it is not: it reads no policy files. The crate `policy` makes a [`Policy`] of files and startup flags.
//!
//! What the attacker controls here: every byte of the call. What the attacker does not control: the policy, the
//! roots, and the facts about the workspace.

mod command;
pub mod credential_stores;
mod danger;
mod decide;
#[cfg(test)]
mod docs;
pub mod env;
mod eval_context;
pub mod git_keys;
mod grant_suggestions;
mod host_facts;
pub mod hosts;
mod judgement;
mod narrow;
mod path_rules;
mod paths;
mod policy;
pub mod protected_names;
mod refusal_ext;
pub mod tools;
mod workspace;

pub use command::{
    CommandPattern, CommandPatternError, CommandRule, CommandRules, Manifest, ManifestCommand, ManifestError,
    Restriction, RuleConditions, SessionTermError, SessionTerms, known_programs,
};
pub use danger::{DangerFlags, check_backend, check_flags, check_profile};
pub use decide::{
    Action, ApprovalNeeded, ApprovalOutcome, Authorization, AuthzVerdict, CallPermissions, FilesystemView,
    WorkspaceRuleMode, ceiling, decide, judge, judge_proposal, open_for_a_proposal, placed, refer,
};
pub use grant_suggestions::{ActionLocation, CandidateScope, GrantCandidate, candidates, executed_words};
pub use host_facts::{FileAccess, HostEntry, HostFacts, PathKind, SessionFacts};
pub use judgement::{Judgement, JudgementPart, PartKind, RuleLocation, RuleSource, grant_file};
pub use narrow::{CallBounds, narrow, with_resolved_ceiling};
pub use path_rules::{
    BuiltInRule, PathOperation, PathRule, PathRuleError, PathRules, PathRuling, SteeringPolicy,
};
pub use paths::PathIntent;
pub use policy::{ContainerPolicy, LeakPolicy, LeakSinks, Policy, PolicyRules, net_ceiling, roots_held_to};
pub use workspace::{WorkspaceFacts, WorkspaceFileKind, is_system_dir, judge_root, judge_workspace};
