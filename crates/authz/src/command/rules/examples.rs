//! Whether one rule alone speaks about a command line: for the examples that a rule carries.

use std::path::Path;

use ringfence_types::{Bytes, Decision};

use super::{CommandRule, Line, matching};
use crate::command::arg::Arg;
use crate::command::identity::{Identity, Trust};
use crate::command::programs;

pub(super) fn matches(rule: &CommandRule, argv: &[Bytes]) -> bool {
    let args: Vec<Arg<'_>> = argv.iter().map(Arg::from).collect();
    let Some((Arg::Text(called), args)) = args.split_first() else { return false };
    let name = called.rsplit(|byte| *byte == b'/').next().unwrap_or(called);
    let file = called.contains(&b'/').then(|| Path::new("/").join(Bytes::from(*called).as_path()));
    let line = Line { identity: Identity { name, file, trust: Trust::System }, called, args };
    let covered = || programs::unusual(&line).is_none_or(|opinion| opinion.is_covered_by(&rule.pattern));
    matching::speaks(rule, &line, Path::new("/")) && (rule.decision != Decision::Allow || covered())
}
