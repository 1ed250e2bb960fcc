//! Translates a decision into each agent's reply format.

use serde_json::{Map, Value, json};

use super::decision::{HookDecision, StartCondition};
use super::request::{HookRequest, event};
use crate::args::AgentKind;
use ringfence_types::RefusalNotice;

/// The reply of the process.
#[derive(Debug)]
pub(super) enum HookReply {
    Json(Value),
    /// Exit code 0 without output.
    Nothing,
    /// The blocking exit code, and the reason.
    Blocked(String),
}

pub(super) fn reply(request: &HookRequest, answer: HookDecision) -> HookReply {
    match request.agent {
        AgentKind::ClaudeCode => claude_code(request, answer),
        AgentKind::Codex => codex(request, answer),
        AgentKind::Gemini => gemini(request, answer),
        AgentKind::Cursor => cursor(request, answer),
        AgentKind::Goose => goose(answer),
        AgentKind::Opencode => opencode(request, answer),
    }
}

fn claude_code(request: &HookRequest, answer: HookDecision) -> HookReply {
    let planning = request.mode.as_deref() == Some("plan");
    let said = match answer {
        HookDecision::Silence => return HookReply::Nothing,
        // In plan mode the agent's own rules apply.
        HookDecision::Go if planning => return HookReply::Nothing,
        HookDecision::Go => json!({ "permissionDecision": "allow" }),
        HookDecision::Run { command, waits } => {
            let mut input = with_command(request, command);
            if waits == StartCondition::ForAPerson {
                input.insert("timeout".to_owned(), json!(LONGEST_COMMAND));
            }
            let decision = if planning { "ask" } else { "allow" };
            json!({ "permissionDecision": decision, "updatedInput": input })
        }
        HookDecision::Theirs(reason) => {
            json!({ "permissionDecision": "ask", "permissionDecisionReason": reason })
        }
        no @ HookDecision::No { .. } => {
            json!({ "permissionDecision": "deny", "permissionDecisionReason": denial(&no) })
        }
    };
    specific(request.agent, said)
}

/// Claude Code's longest command timeout in milliseconds, because an approval comes first.
const LONGEST_COMMAND: u64 = 600_000;

/// Codex accepts `allow` only with a new command, and continues on `ask`.
fn codex(request: &HookRequest, answer: HookDecision) -> HookReply {
    let said = match answer {
        HookDecision::Silence | HookDecision::Go => return HookReply::Nothing,
        HookDecision::Run { command, .. } => {
            json!({ "permissionDecision": "allow", "updatedInput": { "command": command } })
        }
        HookDecision::Theirs(reason) => {
            json!({ "permissionDecision": "deny", "permissionDecisionReason": reason })
        }
        no @ HookDecision::No { .. } => {
            json!({ "permissionDecision": "deny", "permissionDecisionReason": denial(&no) })
        }
    };
    specific(request.agent, said)
}

fn specific(agent: AgentKind, mut said: Value) -> HookReply {
    if let Some(said) = said.as_object_mut() {
        said.insert("hookEventName".to_owned(), json!(event(agent)));
    }
    HookReply::Json(json!({ "hookSpecificOutput": said }))
}

fn gemini(request: &HookRequest, answer: HookDecision) -> HookReply {
    HookReply::Json(match answer {
        HookDecision::Silence | HookDecision::Go => return HookReply::Nothing,
        HookDecision::Run { command, .. } => json!({
            "decision": "allow",
            "hookSpecificOutput": { "hookEventName": event(request.agent), "tool_input": { "command": command } },
        }),
        HookDecision::Theirs(reason) => json!({ "decision": "deny", "reason": reason }),
        no @ HookDecision::No { .. } => json!({ "decision": "deny", "reason": denial(&no) }),
    })
}

/// Cursor treats an empty answer as a denial.
fn cursor(request: &HookRequest, answer: HookDecision) -> HookReply {
    HookReply::Json(match answer {
        HookDecision::Silence | HookDecision::Go => json!({ "permission": "allow" }),
        HookDecision::Run { command, .. } => {
            json!({ "permission": "allow", "updated_input": with_command(request, command) })
        }
        HookDecision::Theirs(reason) => {
            json!({ "permission": "ask", "user_message": reason, "agent_message": reason })
        }
        no @ HookDecision::No { .. } => {
            let reason = denial(&no);
            json!({ "permission": "deny", "user_message": reason, "agent_message": reason })
        }
    })
}

fn goose(answer: HookDecision) -> HookReply {
    match answer {
        HookDecision::Silence | HookDecision::Go => HookReply::Nothing,
        HookDecision::Theirs(reason) => HookReply::Blocked(reason),
        // goose cannot replace a command, so this decision is never made for it.
        HookDecision::Run { .. } => {
            HookReply::Blocked("Ringfence: this command cannot be put inside the fence".to_owned())
        }
        no @ HookDecision::No { .. } => HookReply::Blocked(denial(&no)),
    }
}

/// Ringfence's plugin reads this.
fn opencode(request: &HookRequest, answer: HookDecision) -> HookReply {
    HookReply::Json(match answer {
        HookDecision::Silence | HookDecision::Go => json!({ "decision": "allow" }),
        HookDecision::Run { command, .. } => {
            json!({ "decision": "allow", "args": with_command(request, command) })
        }
        HookDecision::Theirs(reason) => json!({ "decision": "deny", "reason": reason }),
        no @ HookDecision::No { .. } => json!({ "decision": "deny", "reason": denial(&no) }),
    })
}

fn with_command(request: &HookRequest, command: String) -> Map<String, Value> {
    let mut input = request.input.clone();
    input.insert("command".to_owned(), Value::String(command));
    input
}

fn denial(answer: &HookDecision) -> String {
    let HookDecision::No { what, refusal, workspace } = answer else { return String::new() };
    RefusalNotice::of(what, refusal, workspace.as_deref()).text()
}

/// The format of a `--permission-prompt-tool`.
pub(super) fn permission(request: &HookRequest, answer: HookDecision) -> Value {
    match answer {
        HookDecision::Silence | HookDecision::Go => {
            json!({ "behavior": "allow", "updatedInput": request.input })
        }
        HookDecision::Run { command, .. } => {
            json!({ "behavior": "allow", "updatedInput": with_command(request, command) })
        }
        HookDecision::Theirs(reason) => json!({ "behavior": "deny", "message": reason }),
        no @ HookDecision::No { .. } => json!({ "behavior": "deny", "message": denial(&no) }),
    }
}
