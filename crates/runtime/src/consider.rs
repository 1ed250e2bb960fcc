//! What would be decided, without doing or recording anything: the same judge on the same policy and the same machine.

use std::path::PathBuf;

use ringfence_authz::hosts::judge_request;
use ringfence_authz::tools::judge_tool;
use ringfence_authz::{Action, Judgement, Part, Policy, judge, placed};
use ringfence_types::{
    Access, Bytes, Call, Decision, Exec, FileCall, Layer, NetMode, Refusal, RefusalCode, Root, StandardInput,
    WorkspaceId,
};

use crate::facts::{Inside, Machine};
use crate::home::{self, Resident};
use crate::session::{Asked, Setup};
use crate::workspace::{self, Workspace, judge_extra_root};

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Argv(Vec<Bytes>),
    /// Text for a shell.
    Shell(Bytes),
    Read(Bytes),
    Write(Bytes),
    Url {
        url: Bytes,
        method: Option<String>,
    },
    Tool(String),
}

/// Why a tool may not be used by its name, where that is so. There is nobody to ask about a name.
pub fn tool_refused(judged: Result<Judgement, Refusal>) -> Option<Refusal> {
    let judgement = match judged {
        Ok(judgement) if judgement.decision() == Decision::Allow => return None,
        Ok(judgement) => judgement,
        Err(refusal) => return Some(refusal),
    };
    let part = judgement.decisive();
    Some(Refusal {
        code: RefusalCode::Tool,
        layer: part.map_or(Layer::Floor, |part| part.layer),
        rule: part.map_or_else(|| "tool.not-allowed".to_owned(), |part| part.rule.clone().into_owned()),
        message: part.map_or_else(|| "the tool is not allowed".to_owned(), |part| part.reason.to_string()),
        hint: part.and_then(|part| part.fix.as_deref().map(str::to_owned)),
    })
}

/// Judges `subject` as if it came from `cwd` in a session like `asked`. A refusal is a no to the call as a whole.
pub fn consider(
    setup: &Setup,
    asked: &Asked,
    cwd: Option<PathBuf>,
    subject: Subject,
) -> Result<Judgement, Refusal> {
    let workspace = Workspace::look(setup, &asked.workspace)?;
    if !asked.policy.danger.allow_sensitive_roots {
        asked.roots.iter().try_for_each(|root| judge_extra_root(setup, root.path.as_path()))?;
    }
    let shown = asked.policy.access != Access::None;
    let cwd = cwd.filter(|cwd| shown && cwd.starts_with(&workspace)).unwrap_or_else(|| workspace.clone());
    let home = home::path(setup, &Resident::of(WorkspaceId::of_canonical_path(&workspace), asked));
    let mut roots = vec![Root { path: Bytes::from(workspace), access: asked.policy.access }];
    roots.extend(asked.roots.iter().cloned());
    let inside = Inside::of(setup, &asked.policy, &roots, &home);
    let exec = |argv| {
        Call::Exec(Exec {
            argv,
            cwd: Bytes::from(cwd),
            env: Vec::new(),
            net: NetMode::None,
            stdin: StandardInput::None,
        })
    };
    let call = match subject {
        Subject::Argv(argv) => exec(argv),
        Subject::Shell(text) => exec(vec![Bytes::from("sh"), Bytes::from("-c"), text]),
        Subject::Read(path) => Call::File(FileCall::Read { path }),
        Subject::Write(path) => Call::File(FileCall::Write { path, sha256: String::new(), bytes: 0 }),
        Subject::Url { url, method } => {
            return Ok(by_all(&asked.policy, |policy| {
                judge_request(policy, url.as_slice(), method.as_deref())
            }));
        }
        Subject::Tool(name) => return Ok(by_all(&asked.policy, |policy| judge_tool(policy, &name))),
    };
    let tools = workspace::tools(setup, asked.agent.as_deref());
    let facts = Machine::of(setup, &asked.policy, inside).with_tools(tools.as_deref());
    judge(&asked.policy, &Action::new(placed(call, &roots), roots), &facts)
}

/// By the policy and by all that it is held to, as what is done is.
fn by_all(policy: &Policy, judge: impl Fn(&Policy) -> Part) -> Judgement {
    let before = policy.all().skip(1).map(|before| Judgement::one(judge(before)));
    before.fold(Judgement::one(judge(policy)), Judgement::and)
}
