//! Dry run: evaluates a call with the same policy on the same machine, without executing or recording it.

use std::path::PathBuf;

use ringfence_authz::hosts::judge_request;
use ringfence_authz::tools::judge_tool;
use ringfence_authz::{Action, Judgement, JudgementPart, Policy, judge, placed};
use ringfence_types::{
    Access, ByteString, Call, Decision, ExecCall, FileCall, NetMode, PolicyLayer, Refusal, RefusalCode, Root,
    RuleId, StandardInput, WorkspaceId,
};

use crate::home::{self, Resident};
use crate::host_facts::{Inside, LiveHost};
use crate::session::{HostSetup, SessionSpec};
use crate::workspace::{self, Workspace, judge_extra_root};

/// What is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRunSubject {
    Argv(Vec<ByteString>),
    /// Text for a shell.
    Shell(ByteString),
    Read(ByteString),
    Write(ByteString),
    Url {
        url: ByteString,
        method: Option<String>,
    },
    Tool(String),
}

/// Why a tool is refused by its name. `ask` counts as a refusal, because no approval covers a bare name.
pub fn tool_refused(judged: Result<Judgement, Refusal>) -> Option<Refusal> {
    let judgement = match judged {
        Ok(judgement) if judgement.decision() == Decision::Allow => return None,
        Ok(judgement) => judgement,
        Err(refusal) => return Some(refusal),
    };
    let part = judgement.decisive();
    Some(Refusal {
        code: RefusalCode::Tool,
        layer: part.map_or(PolicyLayer::Floor, |part| part.layer),
        rule: part.map_or_else(|| RuleId::ToolNotAllowed.into(), |part| part.rule.clone()),
        message: part.map_or_else(|| "the tool is not allowed".to_owned(), |part| part.reason.to_string()),
        hint: part.and_then(|part| part.fix.as_deref().map(str::to_owned)),
    })
}

/// Evaluates `subject` as if it came from `cwd` in a session like `asked`. A refusal concerns the call as a
/// whole.
pub fn consider(
    setup: &HostSetup,
    asked: &SessionSpec,
    cwd: Option<PathBuf>,
    subject: DryRunSubject,
) -> Result<Judgement, Refusal> {
    let workspace = Workspace::look(setup, &asked.workspace)?;
    if !asked.policy.danger.allow_sensitive_roots {
        asked.roots.iter().try_for_each(|root| judge_extra_root(setup, root.path.as_path()))?;
    }
    let shown = asked.policy.access != Access::None;
    let cwd = cwd.filter(|cwd| shown && cwd.starts_with(&workspace)).unwrap_or_else(|| workspace.clone());
    let home = home::path(setup, &Resident::of(WorkspaceId::of_canonical_path(&workspace), asked));
    let mut roots = vec![Root { path: ByteString::from(workspace), access: asked.policy.access }];
    roots.extend(asked.roots.iter().cloned());
    let inside = Inside::of(setup, &asked.policy, &roots, &home);
    let exec = |argv| {
        Call::Exec(ExecCall {
            argv,
            cwd: ByteString::from(cwd),
            env: Vec::new(),
            ceiling: None,
            net: NetMode::None,
            stdin: StandardInput::None,
        })
    };
    let call = match subject {
        DryRunSubject::Argv(argv) => exec(argv),
        DryRunSubject::Shell(text) => exec(vec![ByteString::from("sh"), ByteString::from("-c"), text]),
        DryRunSubject::Read(path) => Call::File(FileCall::Read { path }),
        DryRunSubject::Write(path) => Call::File(FileCall::Write { path, sha256: String::new(), bytes: 0 }),
        DryRunSubject::Url { url, method } => {
            return Ok(evaluate_all(&asked.policy, |policy| {
                judge_request(policy, url.as_slice(), method.as_deref())
            }));
        }
        DryRunSubject::Tool(name) => {
            return Ok(evaluate_all(&asked.policy, |policy| judge_tool(policy, &name)));
        }
    };
    let tools = workspace::tools(setup, asked.agent.as_deref());
    let facts = LiveHost::of(setup, &asked.policy, inside).with_tools(tools.as_deref());
    judge(&asked.policy, &Action::new(placed(call, &roots), roots), &facts)
}

/// Evaluates by the policy and every earlier policy that limits it, like the pipeline.
fn evaluate_all(policy: &Policy, judge: impl Fn(&Policy) -> JudgementPart) -> Judgement {
    let before = policy.all().skip(1).map(|before| Judgement::one(judge(before)));
    before.fold(Judgement::one(judge(policy)), Judgement::and)
}
