//! What rules alone say about a command line: for the examples that they carry. Nothing is unwrapped, and where it would
//! run is not asked.

use std::path::Path;

use ringfence_types::{ByteString, Decision};

use super::{CommandLine, CommandPattern, CommandRule, CommandRules, Standpoint, matcher};
use crate::command::arg::Arg;
use crate::command::program_origin::{ProgramOrigin, ProgramTrust};
use crate::command::programs;
use crate::command::working_dirs::WorkingDirs;

pub(super) fn matches(rule: &CommandRule, argv: &[ByteString]) -> bool {
    let args: Vec<Arg<'_>> = argv.iter().map(Arg::from).collect();
    let Some(line) = line(&args) else { return false };
    let program =
        rule.pattern.program().map(|program| program.rsplit('/').next().unwrap_or(program).as_bytes());
    if !line.names().iter().any(|name| Some(*name) == program) {
        return false;
    }
    let covered = || programs::unusual(&line).is_none_or(|opinion| opinion.is_covered_by(&rule.pattern));
    matcher::speaks(rule, &line, Path::new("/")) && (rule.decision != Decision::Allow || covered())
}

pub(super) fn decision(rules: &CommandRules, argv: &[ByteString]) -> Option<Decision> {
    let args: Vec<Arg<'_>> = argv.iter().map(Arg::from).collect();
    let line = line(&args)?;
    let root = Path::new("/");
    let place = WorkingDirs::at(root);
    let mut found =
        rules.find(&line, &Standpoint { place: &place, workspace: root, exec: None, scene: None });
    if found.denied().is_some() {
        return Some(Decision::Deny);
    }
    if found.asked().is_some() {
        return Some(Decision::Ask);
    }
    let unusual = programs::unusual(&line);
    let covered =
        |pattern: &CommandPattern| unusual.as_ref().is_none_or(|opinion| opinion.is_covered_by(pattern));
    found.allowed(covered).map(|_| Decision::Allow)
}

#[cfg(test)]
impl CommandRules {
    /// How many rules are compared with a command line.
    pub(in crate::command) fn looked_at(&self, argv: &[&str]) -> usize {
        let args: Vec<Arg<'_>> = argv.iter().map(|word| Arg::Text(word.as_bytes())).collect();
        line(&args).map_or(0, |line| self.index.candidates(&line).len())
    }
}

fn line<'a>(argv: &'a [Arg<'a>]) -> Option<CommandLine<'a>> {
    let Some((Arg::Text(called), args)) = argv.split_first() else { return None };
    let name = called.rsplit(|byte| *byte == b'/').next().unwrap_or(called);
    let file = called.contains(&b'/').then(|| Path::new("/").join(ByteString::from(*called).as_path()));
    Some(CommandLine { identity: ProgramOrigin { name, file, trust: ProgramTrust::System }, called, args })
}
