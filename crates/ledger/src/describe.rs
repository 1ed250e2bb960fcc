//! One-line descriptions of events, safe on any terminal: text from an agent is escaped.

use ringfence_types::{
    ByteString, Call, CallOrigin, ExecCall, ExitReason, FileCall, FlowCall, StandardInput, ToolCall,
};

use crate::approval::{ApprovalAnswer, GrantSubject};
use crate::event::{Event, LedgerReadKind, SessionEndReason};

/// Describes an event in one line, without kind, time and id.
pub fn summary(event: &Event) -> String {
    match event {
        Event::SessionStarted { workspace, profile, agent, .. } => {
            let agent = agent.as_deref().map(|agent| format!(" by {}", shown(agent))).unwrap_or_default();
            format!("{} with profile {profile}{agent}", workspace.display())
        }
        Event::SessionEnded { reason, .. } => reason.map_or("", of_end).to_owned(),
        Event::ApprovalRequested(request) => {
            format!("{} [{}] risk {}", of_call(&request.call), shown(&request.rule), request.risk)
        }
        Event::ApprovalNotified { channel, failure: None, .. } => format!("sent by {}", shown(channel)),
        Event::ApprovalNotified { channel, failure: Some(failure), .. } => {
            format!("not sent by {}: {}", shown(channel), shown(failure))
        }
        Event::ApprovalVoted(vote) => format!("{} by {}", vote.vote.word(), vote.actor),
        Event::ApprovalOrphaned { reason, .. } => format!("{}; the request stays pending", shown(reason)),
        Event::ApprovalDecided(decision) => format!("{} by {}", of_answer(decision.answer), decision.actor),
        Event::GrantCreated(made) => {
            format!("{} by {}{}", shown(&made.permits), made.actor, of_covers(&made.covers))
        }
        Event::GrantRevoked { actor, reason, .. } => format!("by {actor}{}", because(reason.as_deref())),
        Event::PolicyChanged { file, change, .. } => format!("{}: {}", file.display(), shown(change)),
        Event::AuthenticationAttempted { principal, purpose, refusal } => {
            let answer = refusal
                .as_ref()
                .map_or("may".to_owned(), |refusal| format!("may not ({})", shown(&refusal.message)));
            format!("{principal} {answer} {}", shown(purpose))
        }
        Event::IdentityChanged { actor, change } => format!("{change} by {actor}"),
        Event::ProposalCreated { patch, title, .. } => {
            let title = title.as_deref().map(|title| format!(": {}", shown(title))).unwrap_or_default();
            format!("{} files{title}", patch.files.len())
        }
        Event::ProposalConflicted { files, .. } => format!("{} files have changed since", files.len()),
        Event::ProposalDiscarded { actor, reason, .. } => format!("by {actor}{}", because(reason.as_deref())),
        other => of_effect(other),
    }
}

fn of_effect(event: &Event) -> String {
    match event {
        Event::CallIntended { call, rule, call_origin, .. } => {
            format!("{} [{}]{}", of_call(call), shown(rule), of_maker(call_origin.as_deref()))
        }
        Event::SecretReleased { name, class, delivery, .. } => {
            format!("{} ({class}) as {delivery}", shown(name))
        }
        Event::SandboxStarted { posture, skipped_backends, .. } => {
            let instead: String =
                skipped_backends.iter().map(|reason| format!("; skipped: {}", shown(reason))).collect();
            format!("{} with {} controls{instead}", posture.backend, posture.controls.len())
        }
        Event::LimitReached { limit, .. } => limit.to_string(),
        Event::SecretsFound { action, findings, omitted, .. } => {
            let first =
                findings.first().map(|found| format!("{} in {}", shown(&found.rule), shown(&found.location)));
            let rest = (findings.len() as u64).saturating_sub(1) + omitted;
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("{}{rest}: {action}", first.unwrap_or_default())
        }
        Event::ChangesHeld { changes, .. } => {
            let first = changes
                .first()
                .map(|held| format!("{} [{}] {}", held.path.display(), shown(&held.rule), shown(&held.what)));
            let rest = changes.len().saturating_sub(1);
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("{}{rest}", first.unwrap_or_default())
        }
        Event::ChangesLanded { layer, action, landed, unlanded, .. } => {
            let rest = match unlanded.len() {
                0 => String::new(),
                count => format!(", {count} left as they are"),
            };
            format!("{action} of {layer}: {landed} paths{rest}")
        }
        Event::LayerDiscarded { layer, actor, changes } => {
            format!("{changes} changes of {layer} by {actor}")
        }
        Event::ActivityReported { activity, claim, .. } => format!("{}: {}", shown(activity), shown(claim)),
        Event::LoopDetected { repeats, stopped, .. } => {
            format!("the same call {repeats} times{}", if *stopped { ", stopped" } else { "" })
        }
        Event::CallRefused { call, refusal, call_origin, .. } => {
            let call = call.as_ref().map(|call| format!("{} ", of_call(call))).unwrap_or_default();
            let by = of_maker(call_origin.as_deref());
            format!("{call}[{}] {}{by}", shown(&refusal.rule), shown(&refusal.message))
        }
        Event::CallSettled { delegated_to: Some(other), .. } => format!("delegated to {}", shown(other)),
        Event::CallSettled { outcome, failure, .. } => match (outcome, failure) {
            (Some(outcome), _) => format!("{} in {} ms", of_exit(outcome.exit), outcome.duration_ms),
            (None, Some(failure)) => format!("failed: {}", shown(failure)),
            (None, None) => "done".to_owned(),
        },
        Event::FlowOpened { address, .. } => format!("at {address}"),
        Event::FlowEnded { bytes_out, bytes_in, duration_ms, failure, .. } => {
            let failure =
                failure.as_deref().map(|failure| format!(": {}", shown(failure))).unwrap_or_default();
            format!("{bytes_out} bytes out, {bytes_in} bytes in, in {duration_ms} ms{failure}")
        }
        Event::CallInterrupted { reason, .. } => shown(reason),
        Event::BatteryFinished { passed, total, backend, .. } => {
            format!("{backend}: {passed} of {total} held")
        }
        other => of_the_ledger(other),
    }
}

fn of_maker(by: Option<&CallOrigin>) -> String {
    by.map(|by| format!(" by {by}")).unwrap_or_default()
}

fn of_the_ledger(event: &Event) -> String {
    match event {
        Event::LedgerRead { actor, operation, records } => {
            format!("{} of {records} records by {actor}", of_reading(*operation))
        }
        Event::LedgerPruned { actor, before, records, .. } => {
            format!("{records} bodies before record {before} by {actor}")
        }
        Event::ChainStarted { chain, node, continues, .. } => {
            let before = continues.as_ref().map(|before| match &before.problem {
                None => format!(", continues {}", before.file.display()),
                Some(problem) => format!(", after {}, in which {}", before.file.display(), shown(problem)),
            });
            format!("{chain} on {}{}", shown(node), before.unwrap_or_default())
        }
        Event::CheckpointSigned(checkpoint) => {
            format!("records {} to {} signed", checkpoint.first, checkpoint.last)
        }
        Event::LedgerKeyRotated { new, .. } => format!("to {}", shown(new)),
        Event::ChainWitnessed { chain, head, .. } => format!("{chain} at {}", shown(&head.to_string())),
        Event::ChainWitnessRefused { chain, head } => {
            format!("{chain} at {}: its node has not signed that", shown(&head.to_string()))
        }
        Event::ChainAcknowledged { chain, node, actor, reason, .. } => {
            format!("{chain} of {} as it was set aside, by {actor}: {}", shown(node), shown(reason))
        }
        _ => String::new(),
    }
}

/// A call in the form of a command line.
pub fn of_call(call: &Call) -> String {
    match call {
        Call::Exec(exec) => of_exec(exec),
        Call::File(FileCall::Move { path, to }) => format!("move {} to {}", path.display(), to.display()),
        Call::File(file) => format!("{} {}", verb(file), file.path().display()),
        Call::Apply(patch) => format!("apply {} files", patch.files.len()),
        Call::Land(landing) => {
            format!("{} {} paths of {}", landing.action, landing.entries.len(), landing.layer)
        }
        Call::Flow(flow) => of_flow(flow),
        Call::Fetch(fetch) => format!("fetch {} {}", shown(&fetch.method), shown(&fetch.url)),
        Call::Tool(tool) => {
            format!("tool {} {}", shown(&tool.name), shown(&ToolCall::shortened(&tool.input)))
        }
    }
}

/// The command line, with a mark if the call has more than that.
fn of_exec(exec: &ExecCall) -> String {
    let words = exec.argv.iter().map(ByteString::quoted).collect::<Vec<_>>().join(" ");
    let mut more = Vec::new();
    match exec.env.len() {
        0 => {}
        1 => more.push("1 variable".to_owned()),
        count => more.push(format!("{count} variables")),
    }
    if let StandardInput::Bytes { bytes, .. } = &exec.stdin {
        more.push(format!("{bytes} bytes of standard input"));
    }
    if more.is_empty() { words } else { format!("{words} (with {})", more.join(" and ")) }
}

fn of_flow(flow: &FlowCall) -> String {
    let address = flow.address.map(|address| format!(" at {address}")).unwrap_or_default();
    match &flow.request {
        Some(request) => {
            format!("{} {}{address} ({})", shown(&request.method), shown(&request.url), flow.way)
        }
        None => format!("connect {}:{}{address} ({})", shown(&flow.host), flow.port, flow.way),
    }
}

fn verb(file: &FileCall) -> &'static str {
    match file {
        FileCall::Read { .. } => "read",
        FileCall::Write { .. } => "write",
        FileCall::List { .. } => "list",
        FileCall::Symlink { .. } => "symlink",
        FileCall::Stat { .. } => "stat",
        FileCall::Move { .. } => "move",
        FileCall::Remove { .. } => "remove",
        FileCall::Send { .. } => "send",
    }
}

fn of_exit(exit: ExitReason) -> String {
    match exit {
        ExitReason::Code { code } => format!("exit {code}"),
        ExitReason::Signal { signal } => format!("signal {signal}"),
        ExitReason::TimedOut => "timed out".to_owned(),
        ExitReason::NotExecuted { errno } => {
            format!("not executed: {}", std::io::Error::from_raw_os_error(errno))
        }
    }
}

fn of_answer(answer: ApprovalAnswer) -> &'static str {
    match answer {
        ApprovalAnswer::Once => "approved once",
        ApprovalAnswer::Session => "approved for the session",
        ApprovalAnswer::AlwaysHere => "approved always here",
        ApprovalAnswer::Deny => "denied",
        ApprovalAnswer::Expired => "expired without an answer",
        ApprovalAnswer::Unreachable => "no approver could be reached",
        ApprovalAnswer::Superseded => "superseded: the action changed",
    }
}

fn of_covers(covers: &GrantSubject) -> String {
    match covers {
        GrantSubject::Session { .. } => " for the session".to_owned(),
        GrantSubject::Here { directory, .. } | GrantSubject::Next { directory, .. } => {
            format!(" in {}", directory.display())
        }
    }
}

fn of_reading(how: LedgerReadKind) -> &'static str {
    match how {
        LedgerReadKind::Tail => "tail",
        LedgerReadKind::Show => "show",
        LedgerReadKind::Prove => "proof",
        LedgerReadKind::Export => "export",
    }
}

fn of_end(reason: SessionEndReason) -> &'static str {
    match reason {
        SessionEndReason::Finished => "finished",
        SessionEndReason::Stopped => "stopped by a client",
        SessionEndReason::Timeout => "reached its time limit",
        SessionEndReason::Idle => "was idle for too long",
        SessionEndReason::Revoked => "lost its token",
        SessionEndReason::AgentExited => "its agent exited",
        SessionEndReason::Crashed => "its agent or its sandbox failed",
        SessionEndReason::ParentEnded => "its parent session ended",
        SessionEndReason::DaemonStopped => "the daemon stopped",
        SessionEndReason::DaemonLost => "the daemon died",
        SessionEndReason::Leak => "a secret leaked",
    }
}

fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {}", shown(reason))).unwrap_or_default()
}

pub(crate) fn shown(text: &str) -> String {
    ByteString::from(text).display()
}
