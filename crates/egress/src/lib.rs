//! Which hosts a sandbox may talk to: the canonical form of `--allow-host H[:PORT]`.
//!
//! What is absent: the proxy. Until it exists `--net filtered` is refused, so that a list of hosts is never accepted
//! and then not enforced.

mod host_rule;

pub use host_rule::{Host, HostRule, HostRuleError};
