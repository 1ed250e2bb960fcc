//! A second look at tests that failed.
//!
//! On a busy machine a test can fail beside others and pass alone. It is run once more, alone; if it passes then, it is
//! counted as unsteady and named, with what it printed the first time, and a pass with more than a few of them fails.
//! An attack that worked once has worked: tests of attacks get no second look.

use crate::Result;
use crate::passes::Tally;

/// Unsteady tests that one pass may have.
pub(crate) const MOST: u64 = 3;

/// Programs and modules whose tests attack the fence.
const ATTACKS: &[&str] = &["battery", "container", "hostile", "filtered_probes", "protected", "escape"];

/// What counts in the end, given what counted first and a way to run one test alone.
pub(crate) fn look_again(
    first: Tally,
    program: &str,
    output: &str,
    alone: impl Fn(&str) -> Result<Tally>,
) -> Result<Tally> {
    let names = failed(output);
    let whole = names.len() as u64 == first.failed && first.failed <= MOST;
    if !whole || is_attack(program) || names.iter().any(|name| is_attack(name)) {
        return Ok(first);
    }
    let mut tally = first;
    for name in names {
        if matches!(alone(name)?, Tally { passed: 1, failed: 0, .. }) {
            println!("UNSTEADY: {name} failed beside others and passed alone; what it printed is above");
            tally.failed -= 1;
            tally.passed += 1;
            tally.unsteady += 1;
        }
    }
    Ok(tally)
}

fn failed(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect()
}

fn is_attack(name: &str) -> bool {
    name.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| ATTACKS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "test a::b ... ok\ntest a::c ... FAILED\ntest d ... FAILED\n\nfailures:\n    a::c\n";
    const FIRST: Tally = Tally { passed: 1, failed: 2, ignored: 0, unsteady: 0 };
    const PASSES: Tally = Tally { passed: 1, failed: 0, ignored: 0, unsteady: 0 };

    fn looked(program: &str, output: &str, alone: Tally) -> Tally {
        look_again(FIRST, program, output, |_| Ok(alone)).unwrap()
    }

    #[test]
    fn what_passes_alone_is_unsteady() {
        assert_eq!(failed(OUTPUT), ["a::c", "d"]);
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
        assert_eq!(looked("e2e", "test hostile::a ... FAILED\ntest d ... FAILED\n", PASSES), FIRST);
        assert_eq!(looked("e2e", "test d ... FAILED\n", PASSES), FIRST, "one more failed than has a name");
    }
}
