//! Steps that run in order, each with its time, and one table at the end of what ran and what did not.

use std::time::{Duration, Instant};

use crate::Result;

/// One line of the table.
pub(crate) struct Step<W> {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut W) -> Result<Ran>,
}

/// A step that did not fail.
pub(crate) enum Ran {
    Done(String),
    /// It could not run here; the reason. In CI this is a failure.
    NotRun(String),
}

/// Whether a step that cannot run here may be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    Developer,
    Ci,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    Failed,
    NotRun,
}

struct Line {
    name: &'static str,
    verdict: Verdict,
    note: String,
    took: Duration,
}

/// Runs every step, also after one has failed, prints the table, and says whether all is well.
pub(crate) fn run_all<W>(steps: &[Step<W>], world: &mut W, strictness: Strictness) -> bool {
    let lines: Vec<Line> = steps.iter().map(|step| run_one(step, world, strictness)).collect();
    println!("\n{:<14} {:>8} {:>9}  note", "step", "result", "time");
    for line in &lines {
        let (word, seconds) = (word(line.verdict), line.took.as_secs_f64());
        println!("{:<14} {word:>8} {seconds:>8.1}s  {}", line.name, line.note);
    }
    lines.iter().all(|line| line.verdict != Verdict::Failed)
}

fn run_one<W>(step: &Step<W>, world: &mut W, strictness: Strictness) -> Line {
    println!("== {}", step.name);
    let start = Instant::now();
    let (verdict, note) = judge((step.run)(world), strictness);
    let took = start.elapsed();
    println!("== {}: {} in {:.1}s {note}", step.name, word(verdict), took.as_secs_f64());
    Line { name: step.name, verdict, note, took }
}

fn judge(result: Result<Ran>, strictness: Strictness) -> (Verdict, String) {
    match (result, strictness) {
        (Ok(Ran::Done(note)), _) => (Verdict::Ok, note),
        (Ok(Ran::NotRun(reason)), Strictness::Developer) => (Verdict::NotRun, reason),
        (Ok(Ran::NotRun(reason)), Strictness::Ci) => {
            (Verdict::Failed, format!("{reason}; in CI it must run"))
        }
        (Err(error), _) => (Verdict::Failed, error.to_string()),
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Failed => "FAILED",
        Verdict::NotRun => "not run",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &'static str, run: fn(&mut Vec<&'static str>) -> Result<Ran>) -> Step<Vec<&'static str>> {
        Step { name, run }
    }

    #[test]
    fn later_steps_run_after_a_failure_and_the_whole_fails() {
        let steps = [
            step("bad", |_| Err("broken".into())),
            step("good", |seen| {
                seen.push("good");
                Ok(Ran::Done(String::new()))
            }),
        ];
        let mut seen = Vec::new();
        assert!(!run_all(&steps, &mut seen, Strictness::Developer));
        assert_eq!(seen, ["good"]);
    }

    #[test]
    fn a_step_left_out_fails_only_in_ci() {
        let steps = [step("root", |_| Ok(Ran::NotRun("not root".into())))];
        assert!(run_all(&steps, &mut Vec::new(), Strictness::Developer));
        assert!(!run_all(&steps, &mut Vec::new(), Strictness::Ci));
    }
}
