//! Events in words: one line that is safe on any terminal, whatever an agent has put into it.

use ringfence_types::{Bytes, Call, Exec, Exit, FileCall, FlowCall, MadeBy, StandardInput, ToolCall};

use crate::approval::{ApprovalAnswer, Covers};
use crate::event::{Event, Reading};

/// What happened, in one line. Without kind, time and id.
pub fn summary(event: &Event) -> String {
    match event {
        Event::SessionStarted { workspace, profile, agent, .. } => {
            let agent = agent.as_deref().map(|agent| format!(" by {}", shown(agent))).unwrap_or_default();
            format!("{} with profile {profile}{agent}", workspace.display())
        }
        Event::ApprovalRequested(request) => {
            format!("{} [{}] risk {}", of_call(&request.call), shown(&request.rule), request.risk)
        }
        Event::Notified { channel, failure: None, .. } => format!("by {}", shown(channel)),
        Event::Notified { channel, failure: Some(why), .. } => {
            format!("not by {}: {}", shown(channel), shown(why))
        }
        Event::ApprovalVoted(vote) => format!("{} by {}", word(vote.vote), vote.by),
        Event::ApprovalLeft { why, .. } => format!("{}; it waits on", shown(why)),
        Event::ApprovalDecided(decision) => format!("{} by {}", of_answer(decision.answer), decision.by),
        Event::GrantMade(made) => {
            format!("{} by {}{}", shown(&made.permits), made.by, of_covers(&made.covers))
        }
        Event::GrantRevoked { by, reason, .. } => format!("by {by}{}", because(reason.as_deref())),
        Event::PolicyChanged { file, change, .. } => format!("{}: {}", file.display(), shown(change)),
        Event::Authenticated { principal, purpose, refusal } => {
            let answer = refusal
                .as_ref()
                .map_or("may".to_owned(), |refusal| format!("may not ({})", shown(&refusal.message)));
            format!("{principal} {answer} {}", shown(purpose))
        }
        Event::IdentityChanged { by, change } => format!("{change} by {by}"),
        Event::Proposed { patch, title, .. } => {
            let title = title.as_deref().map(|title| format!(": {}", shown(title))).unwrap_or_default();
            format!("{} files{title}", patch.files.len())
        }
        Event::Conflicted { files, .. } => format!("{} files are not what they were", files.len()),
        Event::Discarded { by, reason, .. } => format!("by {by}{}", because(reason.as_deref())),
        other => of_effect(other),
    }
}

fn of_effect(event: &Event) -> String {
    match event {
        Event::Intent { call, rule, by, .. } => {
            format!("{} [{}]{}", of_call(call), shown(rule), of_maker(by.as_deref()))
        }
        Event::SecretReleased { name, class, how, .. } => format!("{} ({class}) as {how}", shown(name)),
        Event::Launched { posture, passed_over, .. } => {
            let instead: String =
                passed_over.iter().map(|reason| format!("; passed over: {}", shown(reason))).collect();
            format!("{} with {} controls{instead}", posture.backend, posture.controls.len())
        }
        Event::LimitHit { limit, .. } => limit.to_string(),
        Event::Found { action, findings, more, .. } => {
            let first =
                findings.first().map(|found| format!("{} in {}", shown(&found.rule), shown(&found.place)));
            let rest = (findings.len() as u64).saturating_sub(1) + more;
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("{}{rest}: {action}", first.unwrap_or_default())
        }
        Event::Held { changes, .. } => {
            let first = changes
                .first()
                .map(|held| format!("{} [{}] {}", held.path.display(), shown(&held.rule), shown(&held.what)));
            let rest = changes.len().saturating_sub(1);
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("{}{rest}", first.unwrap_or_default())
        }
        Event::Activity { what, text, .. } => format!("{}: {}", shown(what), shown(text)),
        Event::LoopFound { repeats, stopped, .. } => {
            format!("{repeats} times the same{}", if *stopped { ", stopped" } else { "" })
        }
        Event::Refused { call, refusal, by, .. } => {
            let call = call.as_ref().map(|call| format!("{} ", of_call(call))).unwrap_or_default();
            let by = of_maker(by.as_deref());
            format!("{call}[{}] {}{by}", shown(&refusal.rule), shown(&refusal.message))
        }
        Event::Settled { left_to: Some(other), .. } => format!("left to {}", shown(other)),
        Event::Settled { outcome, failure, .. } => match (outcome, failure) {
            (Some(outcome), _) => format!("{} in {} ms", of_exit(outcome.exit), outcome.duration_ms),
            (None, Some(failure)) => format!("failed: {}", shown(failure)),
            (None, None) => "done".to_owned(),
        },
        Event::FlowOpened { address, .. } => format!("at {address}"),
        Event::FlowEnded { up, down, duration_ms, failure, .. } => {
            let failure = failure.as_deref().map(|why| format!(": {}", shown(why))).unwrap_or_default();
            format!("{up} bytes out, {down} bytes in, in {duration_ms} ms{failure}")
        }
        Event::Interrupted { why, .. } => shown(why),
        Event::Battery { passed, total, backend, .. } => format!("{backend}: {passed} of {total} held"),
        other => of_the_ledger(other),
    }
}

fn of_maker(by: Option<&MadeBy>) -> String {
    by.map(|by| format!(" by {by}")).unwrap_or_default()
}

fn of_the_ledger(event: &Event) -> String {
    match event {
        Event::LedgerRead { by, how, records } => {
            format!("{} of {records} records by {by}", of_reading(*how))
        }
        Event::Pruned { by, before, records, .. } => {
            format!("{records} bodies before record {before} by {by}")
        }
        Event::ChainStarted { chain, node, continues, .. } => {
            let before = continues.as_ref().map(|before| match &before.problem {
                None => format!(", continues {}", before.file.display()),
                Some(problem) => format!(", after {}, in which {}", before.file.display(), shown(problem)),
            });
            format!("{chain} on {}{}", shown(node), before.unwrap_or_default())
        }
        Event::Checkpoint(checkpoint) => {
            format!("records {} to {} signed", checkpoint.first, checkpoint.last)
        }
        Event::KeyRotated { new, .. } => format!("to {}", shown(new)),
        Event::Witnessed { chain, head, .. } => format!("{chain} at {}", shown(&head.to_string())),
        Event::ChainAcknowledged { chain, node, by, reason, .. } => {
            format!("{chain} of {} as it was set aside, by {by}: {}", shown(node), shown(reason))
        }
        _ => String::new(),
    }
}

/// A call as a person would type it.
pub fn of_call(call: &Call) -> String {
    match call {
        Call::Exec(exec) => of_exec(exec),
        Call::File(FileCall::Move { path, to }) => format!("move {} to {}", path.display(), to.display()),
        Call::File(file) => format!("{} {}", verb(file), file.path().display()),
        Call::Apply(patch) => format!("apply {} files", patch.files.len()),
        Call::Flow(flow) => of_flow(flow),
        Call::Fetch(fetch) => format!("fetch {} {}", shown(&fetch.method), shown(&fetch.url)),
        Call::Tool(tool) => {
            format!("tool {} {}", shown(&tool.name), shown(&ToolCall::shortened(&tool.input)))
        }
    }
}

/// The command line, and that there is more to it than that.
fn of_exec(exec: &Exec) -> String {
    let words = exec.argv.iter().map(Bytes::quoted).collect::<Vec<_>>().join(" ");
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

fn of_exit(exit: Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit {code}"),
        Exit::Signal { signal } => format!("signal {signal}"),
        Exit::TimedOut => "timed out".to_owned(),
        Exit::NotExecuted { errno } => format!("not executed: {}", std::io::Error::from_raw_os_error(errno)),
    }
}

fn of_answer(answer: ApprovalAnswer) -> &'static str {
    match answer {
        ApprovalAnswer::Once => "yes, once",
        ApprovalAnswer::Session => "yes, for the session",
        ApprovalAnswer::AlwaysHere => "yes, always here",
        ApprovalAnswer::Denied => "no",
        ApprovalAnswer::Expired => "no, nobody answered in time",
        ApprovalAnswer::Unreachable => "no, nobody could be asked",
        ApprovalAnswer::Superseded => "no, it changed while the question waited",
    }
}

fn of_covers(covers: &Covers) -> String {
    match covers {
        Covers::Session { .. } => " for the session".to_owned(),
        Covers::Here { directory, .. } | Covers::Next { directory, .. } => {
            format!(" in {}", directory.display())
        }
    }
}

fn of_reading(how: Reading) -> &'static str {
    match how {
        Reading::Tail => "tail",
        Reading::Show => "show",
        Reading::Prove => "proof",
        Reading::Export => "export",
    }
}

fn word(vote: crate::Vote) -> &'static str {
    match vote {
        crate::Vote::Approve => "yes",
        crate::Vote::Deny => "no",
    }
}

fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {}", shown(reason))).unwrap_or_default()
}

pub(crate) fn shown(text: &str) -> String {
    Bytes::from(text).display()
}
