//! Rules about hosts, and one URL against them.

/// The host rules of all policy files. Without one no host is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRules {
    _none: (),
}
