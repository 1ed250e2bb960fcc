//! The rules of a stack as one set.

use ringfence_types::{Decision, Layer, NetMode};

use super::super::Rules;
use super::super::file::Section;
use super::super::problem::Problem;
use super::super::rules::RuleSet;
use super::slot::Report;
use super::{Flags, Setting, Standing, Step};
use crate::command::{CommandRule, CommandRules};
use crate::env::{EnvEffect, EnvRule, EnvRules};
use crate::hosts::{HostEntry, HostRules};
use crate::judgement::{Origin, RuleSource};
use crate::path_rules::{PathRule, PathRules};
use crate::tools::{ToolRule, ToolRules};

pub(super) struct Merged {
    pub(super) rules: Rules,
    pub(super) settings: Vec<Setting>,
}

pub(super) fn rules(stack: &[Step<'_>], flags: &Flags, net: NetMode, report: &mut Report) -> Merged {
    todo!()
}
