//! The shell parser against real shells: whatever bash, dash or zsh does with a script must be listed, or the script has a
//! gap. Programs are stubs that do nothing but write down how they were called.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "the helpers of a test fail like the test"
)]

mod corpus;
mod cover;
mod generate;
mod machine;

use std::time::{Duration, Instant};

use cover::{Hole, hole, runs_more};
use machine::{Machine, Shell};
use proptest::strategy::{BoxedStrategy, Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ringfence_shell::parse;

/// The start of each series: a failure is found again.
const SEED: [u8; 32] = *b"what runs is what has been read!";

/// Whether a script was worth running, or why a shell shows that the parser is wrong.
fn check(machine: &mut Machine, text: &str) -> Result<bool, (Shell, Hole)> {
    let script = parse(text.as_bytes());
    if !script.gaps.is_empty() || script.commands.is_empty() || runs_more(&script) {
        return Ok(false);
    }
    for shell in [Shell::Bash, Shell::Dash, Shell::Zsh] {
        if let Some(hole) = hole(&script, &machine.run(shell, text.as_bytes())) {
            return Err((shell, hole));
        }
    }
    Ok(true)
}

/// Runs scripts for a while, and at least some.
fn series(scripts: &BoxedStrategy<String>, least: usize, patience: Duration) {
    let mut machine = Machine::new();
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &SEED);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let (start, mut ran) = (Instant::now(), 0);
    while ran < least || start.elapsed() < patience {
        let text = scripts.new_tree(&mut runner).unwrap().current();
        match check(&mut machine, &text) {
            Ok(worth) => ran += usize::from(worth),
            Err((shell, hole)) => panic!("{shell:?} does more than is listed for {text:?}: {hole:?}"),
        }
    }
}

#[test]
fn tricky_texts_hide_nothing() {
    let mut machine = Machine::new();
    let holes: Vec<_> = corpus::TRICKY
        .iter()
        .filter_map(|text| check(&mut machine, text).err().map(|(shell, hole)| (text, shell, hole)))
        .collect();
    assert!(holes.is_empty(), "{holes:#?}");
}

/// The control: without the listing of a script, the same run is a hole.
#[test]
fn the_oracle_sees_what_is_not_listed() {
    let mut machine = Machine::new();
    for shell in [Shell::Bash, Shell::Dash, Shell::Zsh, Shell::PosixBash] {
        let record = machine.run(shell, b"alpha 'a b' $(beta) > x");
        let nothing = parse(b"");
        assert!(matches!(hole(&nothing, &record), Some(Hole::Call(_))), "{shell:?}: {record:?}");
        assert!(matches!(hole(&parse(b"alpha 'a b' $(beta)"), &record), Some(Hole::File(_))), "{shell:?}");
        assert!(matches!(hole(&parse(b"alpha a b $(beta) > x"), &record), Some(Hole::Call(_))), "{shell:?}");
        assert!(hole(&parse(b"alpha 'a b' $(beta) > x"), &record).is_none(), "{shell:?}: {record:?}");
    }
}

#[test]
fn scripts_by_the_grammar_hide_nothing() {
    series(&generate::by_grammar().boxed(), 100, Duration::from_secs(2));
}

#[test]
fn damaged_scripts_hide_nothing() {
    series(&generate::damaged().boxed(), 60, Duration::from_secs(2));
}

#[test]
fn damaged_tricky_texts_hide_nothing() {
    series(&generate::damaged_text(corpus::TRICKY).boxed(), 100, Duration::from_secs(2));
}

#[test]
fn scripts_inside_something_hide_nothing() {
    series(&generate::inside().boxed(), 60, Duration::from_secs(2));
}

#[test]
fn builtins_hide_nothing() {
    series(&generate::builtins().boxed(), 60, Duration::from_secs(2));
}

#[test]
fn bags_of_tokens_hide_nothing() {
    series(&generate::from_a_bag().boxed(), 100, Duration::from_secs(2));
}
