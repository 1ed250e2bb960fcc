//! Cold starts of whole programs: bare, the C floor, bubblewrap, `ringfence run`.

use std::fs;
use std::path::Path;

use super::arena::{Arena, fill};
use super::measure::{Contender, Invocation, Probe, Times, interleave, named};
use super::report::{Bound, Report};
use crate::Result;

const TRUE: &str = "/bin/true";
const WHOLE: &str = "ringfence run -- /bin/true";

pub(super) fn run(arena: &Arena, report: &mut Report) -> Result<()> {
    let times = interleave(&bare_and_peers(arena)?, arena.effort.rounds(300))?;
    report.table("cold start of a program", &times, &["C floor", "bubblewrap"]);
    let ringfence = arena.ringfence()?;
    whole_runs(arena, &ringfence, report)?;
    file_count(arena, &ringfence, report)
}

/// Apart from the floor: a durable write stalls whoever makes a directory on the same file system next, and the
/// floor makes ten.
fn whole_runs(arena: &Arena, ringfence: &Path, report: &mut Report) -> Result<()> {
    let own = arena.workspace("own-start")?;
    let contenders = [
        bubblewrap(arena)?,
        process(WHOLE, arena.invocation(ringfence, &["run", "--", TRUE], &own)),
        Contender { name: "two fsyncs".into(), probe: Probe::TwoFsyncs(arena.path("state")) },
    ];
    let times = interleave(&contenders, arena.effort.rounds(300))?;
    report.table("whole runs with a durable record", &times, &["bubblewrap"]);
    let median = |name: &str| named(&times, name).map(|times| times.median());
    let allowed = 1.2 * median("bubblewrap")? + median("two fsyncs")?;
    report.target(
        "ringfence run (1.2x bubblewrap + two fsyncs)",
        median(WHOLE)?,
        Bound::AtMost(allowed),
        "ms",
    );
    Ok(())
}

/// Everything a start is compared with; also used by the library's group.
pub(super) fn bare_and_peers(arena: &Arena) -> Result<Vec<Contender>> {
    let floor = arena.workspace("floor")?;
    let floor_name = floor.display().to_string();
    Ok(vec![
        process("bare, no libc", arena.invocation(&arena.bin("true_nolibc"), &[], &floor)),
        process("bare /bin/true", arena.invocation(Path::new(TRUE), &[], &floor)),
        process("C floor", arena.invocation(&arena.bin("floor"), &[&floor_name, TRUE], &floor)),
        bubblewrap(arena)?,
    ])
}

fn bubblewrap(arena: &Arena) -> Result<Contender> {
    let peer = arena.workspace("peer")?;
    let arguments = bubblewrap_arguments(&arena.root.join("bench/bwrap.args"), &peer)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain([TRUE]).collect();
    Ok(process("bubblewrap", arena.invocation(Path::new("/usr/bin/bwrap"), &arguments, &peer)))
}

pub(super) fn process(name: &str, invocation: Invocation) -> Contender {
    Contender { name: name.into(), probe: Probe::Process(invocation) }
}

/// One option and its arguments per line, `#` for remarks.
fn bubblewrap_arguments(file: &Path, workspace: &Path) -> Result<Vec<String>> {
    let workspace = workspace.display().to_string();
    Ok(fs::read_to_string(file)?
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(|word| word.replace("@WORKSPACE@", &workspace))
        .collect())
}

/// Twice the files may cost twice the time on top of an empty workspace, not more.
fn file_count(arena: &Arena, ringfence: &Path, report: &mut Report) -> Result<()> {
    let mut contenders = Vec::new();
    for count in [0, 10_000, 20_000] {
        let name = format!("{count} files");
        let workspace = arena.workspace(&format!("files-{count}"))?;
        fill(&workspace, count)?;
        contenders.push(process(&name, arena.invocation(ringfence, &["run", "--", TRUE], &workspace)));
    }
    let times = interleave(&contenders, arena.effort.rounds(60))?;
    report.table("ringfence run by number of files", &times, &["0 files"]);
    report.target("growth with files, second 10k / first 10k", growth(&times), Bound::AtMost(1.5), "x");
    Ok(())
}

/// How much the second step of three equidistant sizes costs compared with the first. Steps too small to tell
/// from noise count as equal.
pub(super) fn growth(times: &[Times]) -> f64 {
    match times {
        [none, half, full] => second_step_over_first([none.median(), half.median(), full.median()]),
        _ => f64::NAN,
    }
}

fn second_step_over_first([none, half, full]: [f64; 3]) -> f64 {
    const NOISE_MS: f64 = 0.3;
    ((full - half).max(0.0) + NOISE_MS) / ((half - none).max(0.0) + NOISE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_growth_is_one_and_quadratic_is_far_above() {
        assert!((second_step_over_first([1.0, 11.0, 21.0]) - 1.0).abs() < 0.01);
        assert!(second_step_over_first([0.0, 10.0, 40.0]) > 2.5);
        assert!((second_step_over_first([1.0, 1.0, 1.01]) - 1.0).abs() < 0.1);
    }

    #[test]
    fn every_argument_of_the_peer_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "# remark\n--proc /proc\n--bind @WORKSPACE@ @WORKSPACE@\n").unwrap();
        let arguments = bubblewrap_arguments(file.path(), Path::new("/w")).unwrap();
        assert_eq!(arguments, ["--proc", "/proc", "--bind", "/w", "/w"]);
    }
}
