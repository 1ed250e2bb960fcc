use std::ops::ControlFlow;

use ringfence_runtime::ledger::{
    ApprovalAnswer, Event, Filter, Kind, LedgerReader, Listed, ReadError, Timestamp,
};
use serde::Serialize;

/// What was decided since midnight.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Today {
    /// Done, or left to the agent, without a question.
    pub(super) allowed: u64,
    pub(super) asked: u64,
    pub(super) denied: u64,
    /// Answers of people.
    pub(super) yes: u64,
    pub(super) no: u64,
}

impl Today {
    /// Of a hundred answers, how many were yes.
    pub(super) fn rate(&self) -> Option<u64> {
        (self.yes * 100).checked_div(self.yes + self.no)
    }

    fn answered(&mut self, answer: ApprovalAnswer) {
        match answer {
            ApprovalAnswer::Once | ApprovalAnswer::Session | ApprovalAnswer::AlwaysHere => self.yes += 1,
            ApprovalAnswer::Denied => self.no += 1,
            ApprovalAnswer::Expired | ApprovalAnswer::Unreachable | ApprovalAnswer::Superseded => {}
        }
    }
}

/// Records are counted, not read: a day can have a million. Only what people answered is read.
pub(super) fn of(reader: &LedgerReader) -> Result<Today, ReadError> {
    const DAY: i64 = 24 * 60 * 60;
    const COUNTED: [Kind; 3] = [Kind::Intent, Kind::ApprovalRequested, Kind::Refused];
    let now = Timestamp::now().as_second();
    let Ok(midnight) = Timestamp::from_second(now - now.rem_euclid(DAY)) else { return Ok(Today::default()) };
    let mut today = Today::default();
    let answers = Filter { kinds: vec![Kind::ApprovalDecided], since: Some(midnight), ..Filter::default() };
    reader.each(&answers, |listed| {
        if let Some(Event::ApprovalDecided(decision)) = Listed::whole(listed).map(|record| record.event) {
            today.answered(decision.answer);
        }
        ControlFlow::Continue(())
    })?;
    if let [intents, asked, denied] = *reader.counts_since(midnight, &COUNTED)? {
        (today.asked, today.denied) = (asked, denied);
        // What a person said yes to was done after a question.
        today.allowed = intents.saturating_sub(today.yes);
    }
    Ok(today)
}
