//! Decisions: in process by the example `bench_check` of `ringfence-policy`, and as whole programs beside codex's
//! `execpolicy check` with the same rules.
//!
//! - `bench_check typical N`, `shell N`, `script N`, `huge N` print N durations of one decision: `git status`, a short list of
//!   commands, a script of 10 kB, and one of 1 MB;
//! - `bench_check rules K N` prints N durations of the decision about `git status` with K rules in force;
//! - `bench_check load K N` prints N durations of reading a policy file of K rules.
//!
//! Durations are nanoseconds, one per line.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::arena::Arena;
use super::measure::{Contender, Probe, Times, interleave, named};
use super::report::{Bound, Report};
use super::start::process;
use crate::{Result, command};

/// The release whose command line and rules this file was written for.
const CODEX: &str = "@openai/codex@0.166.0";
/// Inside the package: the program itself, without the launcher in JavaScript around it.
const CODEX_PROGRAM: &str = "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex";

const FEW: usize = 10;
const MANY: usize = 1000;
const PER_TURN: &str = "200";

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    decisions(arena, report)?;
    whole_programs(arena, report)
}

fn decisions(arena: &Arena, report: &mut Report) -> Result<()> {
    let program = arena.example("ringfence-policy", "bench_check")?;
    let directory = arena.path("home");
    let contender = |name: &str, arguments: &[&str]| Contender {
        name: name.to_owned(),
        probe: Probe::Reports(arena.invocation(&program, arguments, &directory)),
    };
    let contenders = [
        contender("git status", &["typical", PER_TURN]),
        contender("a short list of commands", &["shell", PER_TURN]),
        contender("a script of 10 kB", &["script", "20"]),
        contender("a script of 1 MB", &["huge", "1"]),
        contender("git status, 100 rules", &["rules", "100", PER_TURN]),
        contender("git status, 10 000 rules", &["rules", "10000", PER_TURN]),
        contender("reading 1 000 rules", &["load", "1000", "3"]),
    ];
    let times = interleave(&contenders, arena.effort.rounds(30))?;
    report.table("decisions in process", &times, &["git status"]);
    let micros = |name: &str| named(&times, name).map(|times| times.median() * 1000.0);
    report.target("decision about git status", micros("git status")?, Bound::AtMost(20.0), "us");
    report.target(
        "decision about a script of 10 kB",
        micros("a script of 10 kB")?,
        Bound::AtMost(1000.0),
        "us",
    );
    report.target(
        "decision about a script of 1 MB",
        micros("a script of 1 MB")?,
        Bound::AtMost(50_000.0),
        "us",
    );
    let growth = micros("git status, 10 000 rules")? / micros("git status, 100 rules")?;
    report.target("10 000 rules / 100 rules", growth, Bound::AtMost(2.0), "x");
    report.target("reading 1 000 rules", micros("reading 1 000 rules")? / 1000.0, Bound::AtMost(20.0), "ms");
    Ok(())
}

fn whole_programs(arena: &Arena, report: &mut Report) -> Result<()> {
    let (ringfence, codex) = (arena.ringfence()?, install_codex(arena)?);
    let workspace = arena.workspace("consent")?;
    let bare = arena.path("home");
    let mut contenders = vec![
        process("bare, no libc", arena.invocation(&arena.bin("true_nolibc"), &[], &bare)),
        process("bare /bin/true", arena.invocation(Path::new("/bin/true"), &[], &bare)),
    ];
    for count in [FEW, MANY] {
        let own = written(arena, &format!("rules-{count}.toml"), &own_rules(count))?;
        let own = ["check", "--profile", "guarded", "--policy", &own, "--", "git", "status"];
        contenders.push(process(&ours(count), arena.invocation(&ringfence, &own, &workspace)));
        let theirs = written(arena, &format!("rules-{count}.rules"), &codex_rules(count))?;
        let theirs = ["execpolicy", "check", "--rules", &theirs, "--", "git", "status"];
        contenders.push(process(&peer(count), arena.invocation(&codex, &theirs, &workspace)));
    }
    let times = interleave(&contenders, arena.effort.rounds(200))?;
    report.table("a decision by a whole program", &times, &["bare /bin/true", &peer(FEW), &peer(MANY)]);
    for count in [FEW, MANY] {
        compare(&times, count, report)?;
    }
    Ok(())
}

fn compare(times: &[Times], count: usize, report: &mut Report) -> Result<()> {
    let (own, peer) = (named(times, &ours(count))?, named(times, &peer(count))?);
    let name = |what: &str| format!("check / codex execpolicy check, {count} rules, {what}");
    report.target(&name("median"), own.median() / peer.median(), Bound::AtMost(1.0), "x");
    report.target(&name("p99"), own.p99() / peer.p99(), Bound::AtMost(1.0), "x");
    Ok(())
}

fn ours(count: usize) -> String {
    format!("ringfence check, {count} rules")
}

fn peer(count: usize) -> String {
    format!("codex, {count} rules")
}

fn written(arena: &Arena, name: &str, text: &str) -> Result<String> {
    let path = arena.path(name);
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// Rules that say nothing about `git status`, and one that allows it.
fn own_rules(count: usize) -> String {
    let mut text = String::from("schema = 1\n\n[[command]]\nallow = \"git status\"\n");
    for number in 1..count {
        let _ = write!(text, "\n[[command]]\nallow = \"tool{number} sub{number}\"\n");
    }
    text
}

/// The same in the language of codex.
fn codex_rules(count: usize) -> String {
    let mut text = String::from("prefix_rule(pattern=[\"git\", \"status\"], decision=\"allow\")\n");
    for number in 1..count {
        let _ =
            writeln!(text, "prefix_rule(pattern=[\"tool{number}\", \"sub{number}\"], decision=\"allow\")");
    }
    text
}

/// Into a directory that goes away with the arena. What it decides is looked at once, because a program that decides
/// nothing is fast.
fn install_codex(arena: &Arena) -> Result<PathBuf> {
    let prefix = arena.npm("codex", CODEX)?;
    let program = prefix.join(CODEX_PROGRAM);
    let rules = written(arena, "trial.rules", "prefix_rule(pattern=[\"git\"], decision=\"forbidden\")\n")?;
    let trial = ["execpolicy", "check", "--rules", &rules, "--", "git", "status"];
    let answer = command::output_of(
        arena.invocation(&program, &trial, &prefix).command().stdout(std::process::Stdio::piped()),
    )?;
    if answer.contains("\"decision\":\"forbidden\"") {
        Ok(program)
    } else {
        Err(format!("codex said: {answer}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_as_many_rules_as_asked_for() {
        for count in [1, FEW, MANY] {
            assert_eq!(own_rules(count).matches("[[command]]").count(), count);
            assert_eq!(codex_rules(count).matches("prefix_rule(").count(), count);
        }
    }
}
