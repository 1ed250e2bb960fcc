//! One command against the lists, the rules and what is known about its options.

mod rules;

use ringfence_types::Bytes;

use crate::judgement::Part;
use crate::scene::Scene;

pub use rules::{CommandPattern, CommandRule, CommandRules};

/// Judges a command given as arguments, with everything it would run in turn.
pub(crate) fn judge_argv(_scene: &Scene<'_>, _argv: &[Bytes]) -> Vec<Part> {
    Vec::new()
}

/// Judges shell text.
pub(crate) fn judge_script(_scene: &Scene<'_>, _text: &[u8]) -> Vec<Part> {
    Vec::new()
}
