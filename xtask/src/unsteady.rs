//! A second look at tests that failed.
//!
//! On a busy machine a test can fail beside others and pass alone. It is run once more, alone; if it passes then, it is
//! counted as unsteady and named, with what it printed the first time, and a pass with more than a few of them fails.
//! An attack that worked once has worked: tests of attacks get no second look.

use crate::Result;
use crate::passes::{self, Tally};

/// Unsteady tests that one pass may have.
pub(crate) const MOST: u64 = 3;

/// Programs and modules whose tests attack the fence.
const ATTACKS: &[&str] = &[
    "battery",
    "container",
    "container_images",
    "container_isolation",
    "container_network",
    "multi_step_escapes",
    "filtered_probes",
    "protected",
    "escape",
];

/// What one test program had to say.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// Names of the tests that failed or never ended.
    pub(crate) failed: Vec<String>,
    pub(crate) output: String,
}

impl Outcome {
    pub(crate) fn of(output: String) -> Self {
        Self { tally: passes::tally_of(&output), failed: ended(&output, "FAILED"), output }
    }

    /// Of a program that had to be ended, whose tests are `listed`.
    pub(crate) fn of_hung(output: String, listed: &str) -> Self {
        let passed = ended(&output, "ok");
        let all = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        let failed: Vec<String> =
            all.filter(|name| !passed.iter().any(|other| other == name)).map(str::to_owned).collect();
        // Nothing is left when it hung after its last test: that is a failure all the same.
        let tally =
            Tally { passed: passed.len() as u64, failed: failed.len().max(1) as u64, ..Tally::default() };
        Self { tally, failed, output }
    }
}

/// Names of the tests that ended in this way.
fn ended(output: &str, how: &str) -> Vec<String> {
    let line =
        |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(how)?.strip_suffix(" ... ")?.to_owned());
    output.lines().filter_map(line).collect()
}

/// What counts in the end, given what counted first and a way to run one test alone.
pub(crate) fn look_again(
    first: Outcome,
    program: &str,
    alone: impl Fn(&str) -> Result<Tally>,
) -> Result<Tally> {
    let Outcome { mut tally, failed, .. } = first;
    let whole = failed.len() as u64 == tally.failed && tally.failed <= MOST;
    if !whole || is_attack(program) || failed.iter().any(|name| is_attack(name)) {
        return Ok(tally);
    }
    for name in failed {
        if matches!(alone(&name)?, Tally { passed: 1, failed: 0, .. }) {
            println!("UNSTEADY: {name} failed beside others and passed alone; what it printed is above");
            tally.failed -= 1;
            tally.passed += 1;
            tally.unsteady += 1;
        } else {
            println!("FAILED: {name}, and again alone");
        }
    }
    Ok(tally)
}

fn is_attack(name: &str) -> bool {
    name.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| ATTACKS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "test a::b ... ok\ntest a::c ... FAILED\ntest d ... FAILED\n\nfailures:\n    a::c\n\
        test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured\n";
    const FIRST: Tally = Tally { passed: 1, failed: 2, ignored: 0, unsteady: 0 };
    const PASSES: Tally = Tally { passed: 1, failed: 0, ignored: 0, unsteady: 0 };

    fn looked(program: &str, output: &str, alone: Tally) -> Tally {
        look_again(Outcome { tally: FIRST, ..Outcome::of(output.to_owned()) }, program, |_| Ok(alone))
            .unwrap()
    }

    #[test]
    fn what_passes_alone_is_unsteady() {
        let outcome = Outcome::of(OUTPUT.to_owned());
        assert_eq!((outcome.tally, outcome.failed), (FIRST, vec!["a::c".to_owned(), "d".to_owned()]));
        let unsteady = Tally { passed: 3, failed: 0, ignored: 0, unsteady: 2 };
        assert_eq!(looked("crates/cli (test e2e)", OUTPUT, PASSES), unsteady);
    }

    #[test]
    fn what_fails_alone_has_failed() {
        let fails = Tally { failed: 1, ..Tally::default() };
        assert_eq!(looked("e2e", OUTPUT, fails), FIRST);
        assert_eq!(looked("e2e", OUTPUT, Tally::default()), FIRST, "nothing ran");
    }

    #[test]
    fn attacks_and_crashes_get_no_second_look() {
        assert_eq!(looked("crates/cli (test battery)", OUTPUT, PASSES), FIRST);
        assert_eq!(
            looked("e2e", "test multi_step_escapes::a ... FAILED\ntest d ... FAILED\n", PASSES),
            FIRST
        );
        assert_eq!(looked("e2e", "test d ... FAILED\n", PASSES), FIRST, "one more failed than has a name");
    }

    #[test]
    fn what_never_ended_is_found_among_the_listed() {
        let output = "test a::b ... ok\ntest d has been running for over 60 seconds\n";
        let hung = Outcome::of_hung(output.to_owned(), "a::b: test\nd: test\n\n2 tests, 0 benchmarks\n");
        assert_eq!((hung.tally.passed, hung.tally.failed, hung.failed), (1, 1, vec!["d".to_owned()]));
        let late = Outcome::of_hung("test a::b ... ok\n".to_owned(), "a::b: test\n");
        assert_eq!((late.tally.failed, late.failed.len()), (1, 0), "it did not end by itself");
    }
}
