//! The loop guard: detects one call repeated with the same outcome, and two calls that alternate.

use std::collections::VecDeque;

use ringfence_ledger::Event;
use ringfence_types::{ActionFingerprint, Outcome, Refusal};
use sha2::{Digest as _, Sha256};

use crate::pipeline::{CallEnd, EffectOutput};

/// Repetitions in a row after which the ledger records a loop.
pub(crate) const FLAGGED: usize = 5;
/// The call that would be this repetition is refused.
pub(crate) const STOPPED: usize = 10;

/// The last calls with their outcomes.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopGuard {
    last: VecDeque<(ActionFingerprint, String)>,
}

impl LoopGuard {
    /// The number of repetitions `next` would reach, if that is too many.
    pub(crate) fn stops(&self, next: &ActionFingerprint) -> Option<usize> {
        let same = self.row() + 1;
        if self.is_last(0, next) && same >= STOPPED {
            return Some(same);
        }
        let rounds = (self.turns() + 2) / 2;
        (self.is_last(1, next) && rounds >= STOPPED).then_some(rounds)
    }

    /// Records a call. Returns its number of repetitions when that reaches a threshold.
    pub(crate) fn note(&mut self, call: &ActionFingerprint, outcome: String) -> Option<usize> {
        if self.last.len() == 2 * STOPPED {
            self.last.pop_front();
        }
        self.last.push_back((call.clone(), outcome));
        let (same, turns) = (self.row(), self.turns());
        if same == FLAGGED || turns == 2 * FLAGGED { Some(FLAGGED) } else { None }
    }

    fn is_last(&self, back: usize, next: &ActionFingerprint) -> bool {
        self.last.iter().rev().nth(back).is_some_and(|(call, _)| call == next)
    }

    /// Number of equal entries at the end.
    fn row(&self) -> usize {
        let Some(last) = self.last.back() else { return 0 };
        self.last.iter().rev().take_while(|entry| *entry == last).count()
    }

    /// Number of alternating entries at the end.
    fn turns(&self) -> usize {
        let mut back = self.last.iter().rev();
        let (Some(one), Some(other)) = (back.next(), back.next()) else { return 0 };
        if one == other {
            return 0;
        }
        let pattern = [one, other].into_iter().cycle();
        self.last.iter().rev().zip(pattern).take_while(|(entry, expected)| entry == expected).count()
    }
}

/// Text that distinguishes two outcomes of a call.
pub(crate) fn outcome_of(ended: &CallEnd) -> String {
    match ended {
        CallEnd::Executed(outcome) => executed(outcome),
        CallEnd::Touched(EffectOutput::Read(content)) => digest(content),
        CallEnd::Touched(EffectOutput::Listed(entries)) => digest(format!("{entries:?}").as_bytes()),
        CallEnd::Touched(EffectOutput::Looked(status)) => digest(format!("{status:?}").as_bytes()),
        CallEnd::Touched(
            EffectOutput::Written
            | EffectOutput::Linked
            | EffectOutput::Moved
            | EffectOutput::Removed
            | EffectOutput::Applied
            | EffectOutput::Landed(_),
        ) => "done".to_owned(),
        CallEnd::Touched(EffectOutput::Fetched(page)) => format!("{} {}", page.status, digest(&page.body)),
        CallEnd::Refused(refusal) => refused(refusal),
        CallEnd::Failed { what, .. } => what.clone(),
    }
}

/// The same text, computed from a record.
pub(crate) fn recorded_outcome(event: &Event) -> Option<String> {
    match event {
        Event::CallSettled { outcome: Some(outcome), .. } => Some(executed(outcome)),
        Event::CallSettled { outcome: None, failure, .. } => {
            Some(failure.clone().unwrap_or_else(|| "done".to_owned()))
        }
        Event::CallRefused { refusal, .. } => Some(refused(refusal)),
        _ => None,
    }
}

fn executed(outcome: &Outcome) -> String {
    format!("{:?} {} {}", outcome.exit, outcome.stdout.sha256, outcome.stderr.sha256)
}

fn refused(refusal: &Refusal) -> String {
    format!("{} {}", refusal.rule, refusal.message)
}

fn digest(bytes: &[u8]) -> String {
    ringfence_types::hex(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_types::{ByteString, Call, FileCall};

    fn call(name: &str) -> ActionFingerprint {
        ActionFingerprint::of(&Call::File(FileCall::Read { path: ByteString::from(name) }), &[])
    }

    /// Returns after which calls the guard flagged a loop, and the first call it stopped. Letters are calls,
    /// followed by their outcomes.
    fn played(calls: &str) -> (Vec<usize>, Option<usize>) {
        let mut loops = LoopGuard::default();
        let mut flagged = Vec::new();
        for (index, pair) in calls.split_whitespace().enumerate() {
            let (name, outcome) = pair.split_at(1);
            if loops.stops(&call(name)).is_some() {
                return (flagged, Some(index + 1));
            }
            flagged.extend(loops.note(&call(name), outcome.to_owned()).map(|_| index + 1));
        }
        (flagged, None)
    }

    #[test]
    fn the_same_with_the_same_outcome_is_flagged_at_five_and_stopped_at_ten() {
        assert_eq!(played(&"a1 ".repeat(12)), (vec![5], Some(10)));
        assert_eq!(played(&"a1 ".repeat(9)), (vec![5], None));
    }

    #[test]
    fn another_outcome_or_another_call_begins_anew() {
        assert_eq!(played(&format!("{}a2 {}", "a1 ".repeat(4), "a1 ".repeat(4))), (vec![], None));
        let mut calls = "a1 ".repeat(9);
        calls.push_str("b1 ");
        calls.push_str(&"a1 ".repeat(9));
        assert_eq!(played(&calls), (vec![5, 15], None));
        let counting: Vec<String> = (0..30).map(|n| format!("a{n}")).collect();
        assert_eq!(played(&counting.join(" ")), (vec![], None), "progress is no loop");
    }

    #[test]
    fn two_in_turn_are_a_loop_as_well() {
        assert_eq!(played(&"a1 b1 ".repeat(12)), (vec![10], Some(19)));
        assert_eq!(played(&"a1 b1 c1 ".repeat(12)), (vec![], None));
    }
}
