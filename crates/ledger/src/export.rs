//! Export of records to OCSF and CEF. Fields without an equivalent are kept whole in an extension.

mod cef;
mod ocsf;

pub use cef::cef;
pub use ocsf::OcsfExporter;

use ringfence_types::{Decision, ExitReason, Principal};

use crate::event::{AttemptVerdictWord, Event};

/// Outcome in terms of the export formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportOutcome {
    Allowed,
    Denied,
    /// The event has no outcome.
    None,
}

/// Severity as in OCSF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExportSeverity {
    Informational,
    Low,
    Medium,
    High,
    Critical,
}

fn answer(event: &Event) -> ExportOutcome {
    match event {
        Event::CallIntended { decision: Decision::Allow | Decision::Ask, .. } => ExportOutcome::Allowed,
        Event::CallIntended { .. } | Event::CallRefused { .. } | Event::ProposalDiscarded { .. } => {
            ExportOutcome::Denied
        }
        Event::ApprovalDecided(decision) if decision.answer.permits() => ExportOutcome::Allowed,
        Event::ApprovalDecided(_) => ExportOutcome::Denied,
        Event::AuthenticationAttempted { refusal, .. } => {
            refusal.as_ref().map_or(ExportOutcome::Allowed, |_| ExportOutcome::Denied)
        }
        _ => ExportOutcome::None,
    }
}

/// Whether the event was a success; `None`: it cannot fail.
fn went_well(event: &Event) -> Option<bool> {
    match event {
        Event::CallSettled { outcome: Some(outcome), .. } => {
            Some(outcome.exit == ExitReason::Code { code: 0 })
        }
        Event::CallSettled { failure, .. } | Event::FlowEnded { failure, .. } => Some(failure.is_none()),
        Event::CallInterrupted { .. } | Event::ProposalConflicted { .. } | Event::LimitReached { .. } => {
            Some(false)
        }
        Event::ApprovalNotified { failure, .. } => Some(failure.is_none()),
        Event::BatteryFinished { attempts, .. } => {
            Some(attempts.iter().all(|attempt| attempt.verdict != AttemptVerdictWord::Escaped))
        }
        other => match answer(other) {
            ExportOutcome::Allowed => Some(true),
            ExportOutcome::Denied => Some(false),
            ExportOutcome::None => None,
        },
    }
}

fn severity(event: &Event) -> ExportSeverity {
    match event {
        Event::BatteryFinished { .. } if went_well(event) == Some(false) => ExportSeverity::Critical,
        Event::CallIntended { findings, .. } | Event::ProposalCreated { findings, .. }
            if !findings.is_empty() =>
        {
            ExportSeverity::High
        }
        Event::SecretsFound { .. } | Event::ChangesHeld { .. } => ExportSeverity::High,
        Event::CallRefused { .. } | Event::CallInterrupted { .. } | Event::LoopDetected { .. } => {
            ExportSeverity::Medium
        }
        _ if went_well(event) == Some(false) => ExportSeverity::Low,
        _ => ExportSeverity::Informational,
    }
}

/// Principal of the event.
fn principal(event: &Event) -> Option<&Principal> {
    match event {
        Event::SessionStarted { principal, .. } | Event::AuthenticationAttempted { principal, .. } => {
            Some(principal)
        }
        Event::ApprovalRequested(request) => {
            Some(request.call_origin.as_ref().map_or(&request.requester, |by| &by.principal))
        }
        Event::CallIntended { call_origin, .. } | Event::CallRefused { call_origin, .. } => {
            call_origin.as_ref().map(|by| &by.principal)
        }
        Event::ApprovalVoted(vote) => Some(&vote.actor),
        Event::ApprovalDecided(decision) => Some(&decision.actor),
        Event::GrantCreated(made) => Some(&made.actor),
        Event::GrantRevoked { actor, .. }
        | Event::ProposalCreated { actor, .. }
        | Event::ProposalDiscarded { actor, .. }
        | Event::LayerDiscarded { actor, .. }
        | Event::IdentityChanged { actor, .. }
        | Event::LedgerRead { actor, .. }
        | Event::LedgerPruned { actor, .. } => Some(actor),
        _ => None,
    }
}

/// Rule that decided.
fn rule(event: &Event) -> Option<&str> {
    match event {
        Event::CallIntended { rule, .. } => Some(rule),
        Event::ApprovalRequested(request) => Some(&request.rule),
        Event::CallRefused { refusal, .. } => Some(&refusal.rule),
        _ => None,
    }
}
