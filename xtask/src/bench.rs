//! `cargo xtask bench`: contenders take turns in one run, so that ratios hold on a loaded machine.
//!
//! A missed target is printed, and all of them are an error in the end; a contender that cannot run is one at once.

mod arena;
mod consent;
mod containers;
mod daemon;
mod egress;
mod hook;
mod inside;
mod ledger;
mod library;
mod measure;
mod postgres;
mod proxies;
mod relay;
mod report;
mod scan;
mod start;

use std::path::Path;

use arena::Arena;
use report::Report;

use crate::{Result, command};

const GROUPS: &[Group] = &[
    Group { name: "start", run: start::run },
    Group { name: "library", run: library::run },
    Group { name: "inside", run: inside::run },
    Group { name: "consent", run: consent::run },
    Group { name: "ledger", run: ledger::run },
    Group { name: "scan", run: scan::run },
    Group { name: "scan-peers", run: scan::peers },
    Group { name: "relay", run: relay::run },
    Group { name: "postgres", run: postgres::run },
    Group { name: "egress", run: egress::run },
    Group { name: "containers", run: containers::run },
    Group { name: "hook", run: hook::run },
    Group { name: "daemon", run: daemon::run },
];

struct Group {
    name: &'static str,
    run: fn(&Arena, &mut Report) -> Result<()>,
}

/// How long to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    Quick,
    Full,
}

impl Effort {
    /// `full` rounds, or a handful.
    fn rounds(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => (full / 10).max(3),
        }
    }
}

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let (effort, groups) = parse(arguments)?;
    let arena = Arena::new(root, effort)?;
    let mut report = Report::default();
    for group in groups {
        println!("== {}", group.name);
        (group.run)(&arena, &mut report)?;
    }
    report.print_targets();
    let path = command::target_directory(root)?.join("bench.json");
    std::fs::write(&path, serde_json::to_string_pretty(&report.to_json())?)?;
    println!("\nwritten to {}", path.display());
    match report.missed() {
        0 => Ok(()),
        missed => Err(format!("{missed} targets were missed").into()),
    }
}

fn parse(arguments: &[String]) -> Result<(Effort, Vec<&'static Group>)> {
    let mut effort = Effort::Full;
    let mut chosen = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--quick" => effort = Effort::Quick,
            "--only" => {
                let name = rest.next().ok_or("--only needs a group")?;
                let group = GROUPS.iter().find(|group| group.name == name);
                chosen.push(group.ok_or_else(|| format!("no group `{name}`"))?);
            }
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    if chosen.is_empty() {
        chosen.extend(GROUPS);
    }
    Ok((effort, chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_groups_run_unless_some_are_named() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(parse(&[]).unwrap().1.len(), GROUPS.len());
        let (effort, groups) = parse(&words(&["--quick", "--only", "inside"])).unwrap();
        assert!(effort == Effort::Quick && groups.len() == 1 && groups[0].name == "inside");
        assert!(parse(&words(&["--only", "nothing"])).is_err());
    }
}
