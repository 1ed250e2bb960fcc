//! Tool list. Names are those of the policy (`docs/tools.md`).

use std::sync::Arc;

use ringfence_types::{Access, Backend, CallCeiling};
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// Output schema of a call with an effect.
fn ended(more: Value) -> Value {
    let mut properties = json!({
        "ended": { "enum": ["done", "refused", "failed"] },
        "denial": { "type": "object", "description": "why nothing was done, and what can be done instead" },
        "failure": { "type": "string" },
        "transaction": { "type": "string", "description": "`ringfence ledger show` has all about it" },
        "notice": { "type": "string" },
        "leaks": { "type": "array", "description": "secrets that were on their way out, and what became of them" },
        "network": { "type": "object", "description": "what went through the filtered network, and what did not" },
    });
    if let (Some(all), Value::Object(more)) = (properties.as_object_mut(), more) {
        all.extend(more);
    }
    json!({ "type": "object", "properties": properties, "required": ["ended"] })
}

fn object(value: Value) -> Arc<Map<String, Value>> {
    Arc::new(match value {
        Value::Object(object) => object,
        _ => Map::new(),
    })
}

fn input(properties: Value, required: &[&str]) -> Arc<Map<String, Value>> {
    object(json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    }))
}

fn reads() -> ToolAnnotations {
    ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false)
}

fn writes() -> ToolAnnotations {
    ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false)
}

fn path() -> Value {
    json!({ "type": "string", "description": "relative to the workspace, or absolute" })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn described() -> Value {
    json!({ "type": "string", "description": "what it is for, in a few words" })
}

/// Schema of the ceiling of one command.
fn ceiling() -> Value {
    let limit = json!({ "type": "integer", "minimum": 1 });
    let root = json!({
        "type": "object", "properties": { "path": path(), "access": { "enum": Access::WORDS } },
        "required": ["path", "access"], "additionalProperties": false,
    });
    let hosts = json!({ "type": "array", "items": text(), "maxItems": CallCeiling::MOST });
    json!({
        "type": "object",
        "description": "run this command alone with less than the session has, in a fence of its own; more is refused",
        "properties": {
            "roots": {
                "type": "array", "items": root, "maxItems": CallCeiling::MOST,
                "description": "the only roots that it has: `.` is the workspace",
            },
            "net": { "oneOf": [
                { "enum": ["none", "filtered"] },
                { "type": "object", "properties": { "hosts": hosts }, "required": ["hosts"], "additionalProperties": false },
            ] },
            "backend": { "enum": Backend::WORDS },
            "limits": {
                "type": "object",
                "properties": {
                    "memory_bytes": limit, "processes": limit, "cpu_seconds": limit, "open_files": limit,
                    "file_size_bytes": limit,
                },
                "additionalProperties": false,
            },
        },
        "additionalProperties": false,
    })
}

fn done(tool: Tool, more: Value, hints: ToolAnnotations) -> Tool {
    tool.with_raw_output_schema(object(ended(more))).with_annotations(hints)
}

fn fetch(methods: &[&str]) -> Tool {
    done(
        Tool::new(
            "fetch",
            "Get a page of the web through Ringfence's filter, where the policy has the filtered network.",
            input(
                json!({ "url": text(), "method": { "type": "string", "enum": methods, "default": "GET" } }),
                &["url"],
            ),
        ),
        json!({
            "status": { "type": "integer" }, "url": { "type": "string", "description": "where it came from in the end" },
            "headers": { "type": "object" }, "body": text(), "truncated": { "type": "boolean" },
        }),
        ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(true),
    )
}

fn jobs() -> Tool {
    done(
        Tool::new(
            "jobs",
            "Commands that run in the background, each in a fence of its own, until they end or the connection does: `start` \
             one (with `command`), `list` all, see the `logs` of one (with `id`), send it a `signal`.",
            input(
                json!({
                    "action": { "type": "string", "enum": ["start", "list", "logs", "signal"] },
                    "command": text(), "cwd": path(), "description": described(), "id": text(),
                    "signal": { "type": "string", "enum": ["TERM", "INT", "HUP", "KILL", "USR1", "USR2"] },
                }),
                &["action"],
            ),
        ),
        json!({
            "jobs": { "type": "array", "items": { "type": "object" } }, "output": text(),
            "truncated": { "type": "boolean" },
        }),
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true),
    )
}

/// Tools of a daemon session. There the whole agent is inside the fence, so no approval of its own tools is needed, and pages have
/// one way in.
pub fn of_session() -> Vec<Tool> {
    let mut tools = all();
    tools.retain(|tool| tool.name != "permission_prompt");
    tools.iter_mut().filter(|tool| tool.name == "fetch").for_each(|tool| *tool = fetch(&["GET"]));
    tools
}

/// Tools in a fixed order.
pub fn all() -> Vec<Tool> {
    vec![
        done(
            Tool::new(
                "exec",
                "Run a shell command in the workspace, inside a fence: no network unless allowed, no files outside, \
                 /tmp and background state last as long as this connection.",
                input(
                    json!({ "command": text(), "cwd": path(), "description": described(), "ceiling": ceiling() }),
                    &["command"],
                ),
            ),
            json!({
                "exit_code": { "type": "integer" }, "stdout": text(), "stderr": text(),
                "truncated": { "type": "boolean" }, "duration_ms": { "type": "integer" },
                "limit_hit": { "type": "string" },
                "posture": { "type": "object", "description": "what held a command with a ceiling" },
            }),
            ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true),
        ),
        done(
            Tool::new(
                "read_file",
                "Read a text file of the workspace.",
                input(
                    json!({
                        "path": path(), "first_line": { "type": "integer", "minimum": 1 },
                        "lines": { "type": "integer", "minimum": 1 },
                    }),
                    &["path"],
                ),
            ),
            json!({ "content": text(), "total_lines": { "type": "integer" }, "truncated": { "type": "boolean" } }),
            reads(),
        ),
        done(
            Tool::new(
                "write_file",
                "Create a file of the workspace, or replace all of it.",
                input(json!({ "path": path(), "content": text() }), &["path", "content"]),
            ),
            json!({}),
            writes(),
        ),
        done(
            Tool::new(
                "edit_file",
                "Replace text in a file of the workspace. The old text must be there exactly once, unless all are replaced.",
                input(
                    json!({
                        "path": path(), "old_text": text(), "new_text": text(),
                        "all": { "type": "boolean", "default": false },
                    }),
                    &["path", "old_text", "new_text"],
                ),
            ),
            json!({ "replaced": { "type": "integer" } }),
            writes().idempotent(false),
        ),
        done(
            Tool::new("list_dir", "List a directory of the workspace.", input(json!({ "path": path() }), &[])),
            json!({ "entries": { "type": "array", "items": {
                "type": "object", "properties": { "name": text(), "kind": text() },
            } } }),
            reads(),
        ),
        done(
            Tool::new(
                "search",
                "Find lines that match an extended regular expression in the files of the workspace.",
                input(json!({ "pattern": text(), "path": path() }), &["pattern"]),
            ),
            json!({ "matches": { "type": "array", "items": text() }, "truncated": { "type": "boolean" } }),
            reads(),
        ),
        fetch(&["GET", "HEAD"]),
        jobs(),
        Tool::new(
            "explain",
            "Would this be allowed, asked about or denied, and by which rule? Does nothing. Name exactly one.",
            input(
                json!({ "command": text(), "read": path(), "write": path(), "url": text(), "tool": text() }),
                &[],
            ),
        )
        .with_raw_output_schema(object(json!({
            "type": "object", "properties": { "decision": { "enum": ["allow", "ask", "deny"] } }, "required": ["decision"],
        })))
        .with_annotations(reads()),
        Tool::new(
            "permission_prompt",
            "For `--permission-prompt-tool`: decides about a tool call of Claude Code.",
            input(
                json!({ "tool_name": text(), "input": { "type": "object" }, "tool_use_id": text() }),
                &["tool_name", "input"],
            ),
        )
        .with_annotations(reads()),
    ]
}
