//! Rules about tools: which of an agent's tools exist at all.

/// The tool rules of all policy files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolRules {
    _none: (),
}
