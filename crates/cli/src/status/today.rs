use std::ops::ControlFlow;

use ringfence_runtime::ledger::{
    ApprovalAnswer, Event, Filter, Kind, LedgerReader, Listed, ReadError, Timestamp,
};
use ringfence_types::Decision;
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

    fn count(&mut self, event: &Event) {
        match event {
            Event::Intent { decision: Decision::Allow, .. } => self.allowed += 1,
            Event::ApprovalRequested(_) => self.asked += 1,
            Event::Refused { .. } => self.denied += 1,
            Event::ApprovalDecided(decision) => match decision.answer {
                ApprovalAnswer::Once | ApprovalAnswer::Session | ApprovalAnswer::AlwaysHere => self.yes += 1,
                ApprovalAnswer::Denied => self.no += 1,
                ApprovalAnswer::Expired | ApprovalAnswer::Unreachable | ApprovalAnswer::Superseded => {}
            },
            _ => {}
        }
    }
}

pub(super) fn of(reader: &LedgerReader) -> Result<Today, ReadError> {
    const DAY: i64 = 24 * 60 * 60;
    let now = Timestamp::now().as_second();
    let filter = Filter {
        kinds: vec![Kind::Intent, Kind::Refused, Kind::ApprovalRequested, Kind::ApprovalDecided],
        since: Timestamp::from_second(now - now.rem_euclid(DAY)).ok(),
        ..Filter::default()
    };
    let mut today = Today::default();
    reader.each(&filter, |listed| {
        if let Some(record) = Listed::whole(listed) {
            today.count(&record.event);
        }
        ControlFlow::Continue(())
    })?;
    Ok(today)
}
