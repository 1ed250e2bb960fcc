use std::ops::ControlFlow;

use ringfence_ledger::{
    ApprovalAnswer, Event, Kind, LedgerReadError, LedgerReader, RecordFilter, RecordOrPruned, Timestamp,
};
use serde::Serialize;

/// Decisions since midnight.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct DecisionCounts {
    /// Executed, or left to the agent, without an approval.
    pub(super) allowed: u64,
    pub(super) asked: u64,
    pub(super) denied: u64,
    /// Answers by people.
    pub(super) yes: u64,
    pub(super) no: u64,
}

impl DecisionCounts {
    /// Percentage of yes among the answers.
    pub(super) fn rate(&self) -> Option<u64> {
        (self.yes * 100).checked_div(self.yes + self.no)
    }

    fn answered(&mut self, answer: ApprovalAnswer) {
        match answer {
            ApprovalAnswer::Once | ApprovalAnswer::Session | ApprovalAnswer::AlwaysHere => self.yes += 1,
            ApprovalAnswer::Deny => self.no += 1,
            ApprovalAnswer::Expired | ApprovalAnswer::Unreachable | ApprovalAnswer::Superseded => {}
        }
    }
}

/// Counts records without reading them, because a day can have a million. Only answers are read.
pub(super) fn of(reader: &LedgerReader) -> Result<DecisionCounts, LedgerReadError> {
    const DAY: i64 = 24 * 60 * 60;
    const COUNTED: [Kind; 3] = [Kind::CallIntended, Kind::ApprovalRequested, Kind::CallRefused];
    let now = Timestamp::now().as_second();
    let Ok(midnight) = Timestamp::from_second(now - now.rem_euclid(DAY)) else {
        return Ok(DecisionCounts::default());
    };
    let mut today = DecisionCounts::default();
    let answers =
        RecordFilter { kinds: vec![Kind::ApprovalDecided], since: Some(midnight), ..RecordFilter::default() };
    reader.each(&answers, |listed| {
        if let Some(Event::ApprovalDecided(decision)) =
            RecordOrPruned::whole(listed).map(|record| record.event)
        {
            today.answered(decision.answer);
        }
        ControlFlow::Continue(())
    })?;
    if let [intents, asked, denied] = *reader.counts_since(midnight, &COUNTED)? {
        (today.asked, today.denied) = (asked, denied);
        // Calls with an approved request were counted as intents too.
        today.allowed = intents.saturating_sub(today.yes);
    }
    Ok(today)
}
