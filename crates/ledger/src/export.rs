//! Records in the words of other systems: OCSF and CEF. What has no place there is kept whole beside it.

mod cef;
mod ocsf;

pub use cef::cef;
pub use ocsf::Ocsf;

use ringfence_types::{Decision, Exit, Principal};

use crate::event::{Event, Verdict};

/// What became of what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allowed,
    Denied,
    /// Nothing was wanted.
    None,
}

/// How much somebody should care, as in OCSF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Informational,
    Low,
    Medium,
    High,
    Critical,
}

fn answer(event: &Event) -> Answer {
    match event {
        Event::Intent { decision: Decision::Allow | Decision::Ask, .. } => Answer::Allowed,
        Event::Intent { .. } | Event::Refused { .. } | Event::Discarded { .. } => Answer::Denied,
        Event::ApprovalDecided(decision) if decision.answer.permits() => Answer::Allowed,
        Event::ApprovalDecided(_) => Answer::Denied,
        Event::Authenticated { refusal, .. } => refusal.as_ref().map_or(Answer::Allowed, |_| Answer::Denied),
        _ => Answer::None,
    }
}

/// Whether it went as it should; `None`: there is nothing to go wrong.
fn went_well(event: &Event) -> Option<bool> {
    match event {
        Event::Settled { outcome: Some(outcome), .. } => Some(outcome.exit == Exit::Code { code: 0 }),
        Event::Settled { failure, .. } | Event::FlowEnded { failure, .. } => Some(failure.is_none()),
        Event::Interrupted { .. } | Event::Conflicted { .. } | Event::LimitHit { .. } => Some(false),
        Event::Notified { failure, .. } => Some(failure.is_none()),
        Event::Battery { attempts, .. } => {
            Some(attempts.iter().all(|attempt| attempt.verdict != Verdict::Escaped))
        }
        other => match answer(other) {
            Answer::Allowed => Some(true),
            Answer::Denied => Some(false),
            Answer::None => None,
        },
    }
}

fn severity(event: &Event) -> Severity {
    match event {
        Event::Battery { .. } if went_well(event) == Some(false) => Severity::Critical,
        Event::Intent { findings, .. } | Event::Proposed { findings, .. } if !findings.is_empty() => {
            Severity::High
        }
        Event::Found { .. } | Event::Held { .. } => Severity::High,
        Event::Refused { .. } | Event::Interrupted { .. } | Event::LoopFound { .. } => Severity::Medium,
        _ if went_well(event) == Some(false) => Severity::Low,
        _ => Severity::Informational,
    }
}

/// Who did it.
fn principal(event: &Event) -> Option<&Principal> {
    match event {
        Event::SessionStarted { principal, .. } | Event::Authenticated { principal, .. } => Some(principal),
        Event::ApprovalRequested(request) => {
            Some(request.by.as_ref().map_or(&request.requester, |by| &by.principal))
        }
        Event::Intent { by, .. } | Event::Refused { by, .. } => by.as_ref().map(|by| &by.principal),
        Event::ApprovalVoted(vote) => Some(&vote.by),
        Event::ApprovalDecided(decision) => Some(&decision.by),
        Event::GrantMade(made) => Some(&made.by),
        Event::GrantRevoked { by, .. }
        | Event::Proposed { by, .. }
        | Event::Discarded { by, .. }
        | Event::IdentityChanged { by, .. }
        | Event::LedgerRead { by, .. }
        | Event::Pruned { by, .. } => Some(by),
        _ => None,
    }
}

/// The rule that decided.
fn rule(event: &Event) -> Option<&str> {
    match event {
        Event::Intent { rule, .. } => Some(rule),
        Event::ApprovalRequested(request) => Some(&request.rule),
        Event::Refused { refusal, .. } => Some(&refusal.rule),
        _ => None,
    }
}
