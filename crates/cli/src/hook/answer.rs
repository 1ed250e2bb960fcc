//! An answer in the words of each agent.

use serde_json::{Map, Value, json};

use super::judge::{Answer, Waits};
use super::request::{Request, event};
use crate::args::Agent;
use ringfence_types::Denial;

/// What the process says to the agent.
#[derive(Debug)]
pub(super) enum Reply {
    Json(Value),
    /// Exit code 0 without a word.
    Nothing,
    /// The exit code that blocks, and why.
    Blocked(String),
}

pub(super) fn reply(request: &Request, answer: Answer) -> Reply {
    match request.agent {
        Agent::ClaudeCode => claude_code(request, answer),
        Agent::Codex => codex(request, answer),
        Agent::Gemini => gemini(request, answer),
        Agent::Cursor => cursor(request, answer),
        Agent::Goose => goose(answer),
        Agent::Opencode => opencode(request, answer),
    }
}

fn claude_code(request: &Request, answer: Answer) -> Reply {
    let planning = request.mode.as_deref() == Some("plan");
    let said = match answer {
        Answer::Silence => return Reply::Nothing,
        // While it plans, its own rules say what it may not do yet.
        Answer::Go if planning => return Reply::Nothing,
        Answer::Go => json!({ "permissionDecision": "allow" }),
        Answer::Run { command, waits } => {
            let mut input = with_command(request, command);
            if waits == Waits::ForAPerson {
                input.insert("timeout".to_owned(), json!(LONGEST_COMMAND));
            }
            let decision = if planning { "ask" } else { "allow" };
            json!({ "permissionDecision": decision, "updatedInput": input })
        }
        Answer::Theirs(reason) => json!({ "permissionDecision": "ask", "permissionDecisionReason": reason }),
        no @ Answer::No { .. } => {
            json!({ "permissionDecision": "deny", "permissionDecisionReason": denial(&no) })
        }
    };
    specific(request.agent, said)
}

/// The longest that Claude Code lets a command take, in milliseconds: a person has to answer first.
const LONGEST_COMMAND: u64 = 600_000;

/// Codex takes no `allow` without a new command, and goes on where it is told to ask.
fn codex(request: &Request, answer: Answer) -> Reply {
    let said = match answer {
        Answer::Silence | Answer::Go => return Reply::Nothing,
        Answer::Run { command, .. } => {
            json!({ "permissionDecision": "allow", "updatedInput": { "command": command } })
        }
        Answer::Theirs(reason) => json!({ "permissionDecision": "deny", "permissionDecisionReason": reason }),
        no @ Answer::No { .. } => {
            json!({ "permissionDecision": "deny", "permissionDecisionReason": denial(&no) })
        }
    };
    specific(request.agent, said)
}

fn specific(agent: Agent, mut said: Value) -> Reply {
    if let Some(said) = said.as_object_mut() {
        said.insert("hookEventName".to_owned(), json!(event(agent)));
    }
    Reply::Json(json!({ "hookSpecificOutput": said }))
}

fn gemini(request: &Request, answer: Answer) -> Reply {
    Reply::Json(match answer {
        Answer::Silence | Answer::Go => return Reply::Nothing,
        Answer::Run { command, .. } => json!({
            "decision": "allow",
            "hookSpecificOutput": { "hookEventName": event(request.agent), "tool_input": { "command": command } },
        }),
        Answer::Theirs(reason) => json!({ "decision": "deny", "reason": reason }),
        no @ Answer::No { .. } => json!({ "decision": "deny", "reason": denial(&no) }),
    })
}

/// An answer without a word counts as a no there.
fn cursor(request: &Request, answer: Answer) -> Reply {
    Reply::Json(match answer {
        Answer::Silence | Answer::Go => json!({ "permission": "allow" }),
        Answer::Run { command, .. } => {
            json!({ "permission": "allow", "updated_input": with_command(request, command) })
        }
        Answer::Theirs(reason) => {
            json!({ "permission": "ask", "user_message": reason, "agent_message": reason })
        }
        no @ Answer::No { .. } => {
            let reason = denial(&no);
            json!({ "permission": "deny", "user_message": reason, "agent_message": reason })
        }
    })
}

fn goose(answer: Answer) -> Reply {
    match answer {
        Answer::Silence | Answer::Go => Reply::Nothing,
        Answer::Theirs(reason) => Reply::Blocked(reason),
        // It cannot take another command, so that none is ever made for it.
        Answer::Run { .. } => {
            Reply::Blocked("Ringfence: this command cannot be put inside the fence".to_owned())
        }
        no @ Answer::No { .. } => Reply::Blocked(denial(&no)),
    }
}

/// Read by our own plugin.
fn opencode(request: &Request, answer: Answer) -> Reply {
    Reply::Json(match answer {
        Answer::Silence | Answer::Go => json!({ "decision": "allow" }),
        Answer::Run { command, .. } => json!({ "decision": "allow", "args": with_command(request, command) }),
        Answer::Theirs(reason) => json!({ "decision": "deny", "reason": reason }),
        no @ Answer::No { .. } => json!({ "decision": "deny", "reason": denial(&no) }),
    })
}

fn with_command(request: &Request, command: String) -> Map<String, Value> {
    let mut input = request.input.clone();
    input.insert("command".to_owned(), Value::String(command));
    input
}

fn denial(answer: &Answer) -> String {
    let Answer::No { what, refusal, workspace } = answer else { return String::new() };
    Denial::of(what, refusal, workspace.as_deref()).text()
}

/// In the words of a tool for `--permission-prompt-tool`.
pub(super) fn permission(request: &Request, answer: Answer) -> Value {
    match answer {
        Answer::Silence | Answer::Go => json!({ "behavior": "allow", "updatedInput": request.input }),
        Answer::Run { command, .. } => {
            json!({ "behavior": "allow", "updatedInput": with_command(request, command) })
        }
        Answer::Theirs(reason) => json!({ "behavior": "deny", "message": reason }),
        no @ Answer::No { .. } => json!({ "behavior": "deny", "message": denial(&no) }),
    }
}
