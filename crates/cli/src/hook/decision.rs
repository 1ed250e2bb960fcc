//! Decides about a tool call with the same policy, approvals and ledger as every other call.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ringfence_authz::env::ApproverPresence;
use ringfence_authz::tools::{UNKNOWN, judge_foreign_tool};
use ringfence_authz::{JudgementPart, git_keys};
use ringfence_policy::StartupFlags;
use ringfence_runtime::{
    AgentSession, CallEnd, CommandIo, DryRunSubject, OutputTarget, Runtime, Settled, StdinSource, consider,
};
use ringfence_types::{
    Access, ByteString, Call, Decision, ExecCall, FetchCall, FileCall, PolicyLayer, Refusal, RefusalCode,
    RuleId, StandardInput, ToolCall,
};
use sha2::{Digest as _, Sha256};

use super::HookError;
use super::disabled_hooks::unplugged;
use super::quote::quoted;
use super::request::{AgentProject, HookRequest};
use super::tool_effect::{self, ToolEffect};
use super::transcript::{CodexContainment, contained};
use crate::args::{AgentKind, PolicyArgs};
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::policy_resolution::{self, PolicyResolutionError, ResolvedPolicy};
use crate::surroundings::Surroundings;

/// The answer for the agent.
#[derive(Debug)]
pub(super) enum HookDecision {
    /// No answer: the agent's own rules apply.
    Silence,
    /// The agent may execute the call itself.
    Go,
    /// The agent may run this instead: a `ringfence run`, which asks and records by itself, or what was asked and recorded.
    Run {
        command: String,
        waits: StartCondition,
    },
    /// The agent's user decides: another program executes the call outside any fence.
    Theirs(String),
    No {
        what: String,
        refusal: Refusal,
        workspace: Option<PathBuf>,
    },
}

/// Whether a command waits for an approval before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartCondition {
    No,
    ForAPerson,
}

pub(super) fn judged(request: &HookRequest, environment: &Environment) -> Result<HookDecision, HookError> {
    let deed = tool_effect::of(request);
    let unplugged = unplugged(request, environment);
    if deed == ToolEffect::Own && unplugged.is_none() {
        return Ok(HookDecision::Silence);
    }
    std::env::set_current_dir(&request.cwd)
        .map_err(|error| HookError::Place(ByteString::from(request.cwd.as_path()).display(), error))?;
    let setup = host::setup(environment, ApproverPresence::Unattended)
        .map_err(|error| HookError::Runtime(error.to_string()))?;
    if let Some(refusal) = unplugged.or_else(|| unrecorded(request)) {
        return refused_early(request, setup, refusal);
    }
    let place = PolicyArgs {
        profile: None,
        workspace: Some(workspace(request, environment)?),
        policy: None,
        agent: Some(request.agent.to_string()),
    };
    let desk = match policy_resolution::resolve(&place, environment, &setup, StartupFlags::default()) {
        Ok(governed) => HookContext { request, environment, setup, governed },
        Err(PolicyResolutionError::Failed(_)) => {
            return Err(HookError::Runtime("the policy cannot be read".to_owned()));
        }
        Err(PolicyResolutionError::Refused(refusal)) => return refused_early(request, setup, refusal),
    };
    match deed {
        ToolEffect::Own => Ok(HookDecision::Silence),
        ToolEffect::Shell(command) => desk.shell(&command),
        ToolEffect::Read(paths) => desk.files(&paths, |path| FileCall::Read { path }),
        ToolEffect::List(paths) => desk.files(&paths, |path| FileCall::List { path }),
        ToolEffect::Write(paths) => desk.written(&paths),
        ToolEffect::Search(paths) => desk.search(&paths),
        ToolEffect::Fetch(url) => desk.left(vec![Call::Fetch(FetchCall::by_agent(url))]),
        ToolEffect::Hosted => desk.tool(UnknownToolRule::No),
        ToolEffect::Foreign => desk.tool(UnknownToolRule::Theirs),
        ToolEffect::Malformed(missing) => desk.no(malformed(&request.tool, missing)),
    }
}

/// The workspace of the agent's project, not of its current directory: an agent can make a repository of any
/// directory, and a model names any directory with a call of Codex or Cursor.
fn workspace(request: &HookRequest, environment: &Environment) -> Result<PathBuf, HookError> {
    let unreadable = |error| HookError::Place(ByteString::from(request.cwd.as_path()).display(), error);
    let cwd = std::fs::canonicalize(&request.cwd).map_err(unreadable)?;
    let project = request.project.directory().or(match request.agent {
        AgentKind::ClaudeCode => environment.agent_project.as_ref(),
        _ => None,
    });
    let surroundings = Surroundings::new(None, environment);
    if let (AgentKind::Codex | AgentKind::Cursor, Some(project)) = (request.agent, project) {
        return Ok(surroundings.workspace(&std::fs::canonicalize(project).map_err(unreadable)?));
    }
    let project = project.and_then(|project| std::fs::canonicalize(project).ok());
    Ok(surroundings.agent_workspace(&cwd, project.as_deref()))
}

/// Without the record of the turn only the model says where Codex works, and with that which policy applies.
fn unrecorded(request: &HookRequest) -> Option<Refusal> {
    let agent = request.agent;
    (request.project == AgentProject::Unrecorded).then(|| Refusal {
        code: RefusalCode::Tool,
        layer: PolicyLayer::Floor,
        rule: RuleId::HookUnrecorded.into(),
        message: format!(
            "{agent} keeps no record of this turn (`codex exec --ephemeral`) that can be read, and nothing else says in which directory a person started it, and so which policy applies"
        ),
        hint: Some(format!("start {agent} without `--ephemeral`, or give it the tools of `ringfence mcp`")),
    })
}

fn refused_early(
    request: &HookRequest,
    setup: ringfence_runtime::HostSetup,
    refusal: Refusal,
) -> Result<HookDecision, HookError> {
    runtime(setup)?.refuse(&refusal).map_err(|error| HookError::Runtime(error::chain(&error)))?;
    Ok(HookDecision::No { what: request.tool.clone(), refusal, workspace: None })
}

/// Only the agent knows the result of an edit, and which of several texts it writes, so there the answer is bound to the
/// whole request: an edit with a harmless `content` beside it would show that and write something else.
fn content(request: &HookRequest) -> Vec<u8> {
    let others = request.input.keys().any(|key| key != "content" && !tool_effect::is_path_key(key));
    match request.text("content").filter(|_| !others) {
        Some(content) => content.as_bytes().to_vec(),
        None => serde_json::to_vec(&request.input).unwrap_or_default(),
    }
}

fn runtime(setup: ringfence_runtime::HostSetup) -> Result<Runtime, HookError> {
    Runtime::open(setup)
        .map_err(|error| HookError::Runtime(format!("the ledger cannot be opened: {}", error::chain(&error))))
}

/// One request with everything needed to evaluate it.
struct HookContext<'a> {
    request: &'a HookRequest,
    environment: &'a Environment,
    setup: ringfence_runtime::HostSetup,
    governed: ResolvedPolicy,
}

impl HookContext<'_> {
    /// Evaluates a command before the agent starts it. The `run` that it becomes evaluates it again.
    fn shell(&self, command: &str) -> Result<HookDecision, HookError> {
        let contained = match self.request.agent {
            AgentKind::Codex => contained(self.request.transcript.as_deref(), self.request.turn.as_deref()),
            _ => CodexContainment::ByNobody,
        };
        let call = || self.exec(command);
        let judged = match consider(
            &self.setup,
            &self.governed.session_spec(),
            self.here(),
            DryRunSubject::Argv(argv(command)),
        ) {
            Ok(judgement) => judgement,
            // Again, with a record.
            Err(_) => return self.left(vec![call()]),
        };
        match (self.request.agent, contained, judged.decision()) {
            (_, _, Decision::Deny) => self.left(vec![call()]),
            (AgentKind::Goose, ..) => self.no(cannot_be_rewritten(self.request.agent)),
            (_, CodexContainment::ByCodex(_), decision) => self.in_another_sandbox(command, decision),
            (_, _, Decision::Allow) => self.rewritten(command, StartCondition::No),
            (_, _, Decision::Ask) => {
                let runtime = runtime(self.setup.clone())?;
                let reachable = match self.session(&runtime)? {
                    Ok(mut session) => session.can_ask(),
                    Err(refusal) => return Ok(self.answer_no(refusal)),
                };
                drop(runtime);
                if reachable {
                    self.rewritten(command, StartCondition::ForAPerson)
                } else {
                    self.left(vec![call()])
                }
            }
        }
    }

    /// For the sandbox of Codex. Where commands are listed, and where a person approved, Codex gets the very argv that was
    /// evaluated, because the user's shell may read the text in another way. A listed command gets the variables that the
    /// fence would give it.
    fn in_another_sandbox(&self, command: &str, decision: Decision) -> Result<HookDecision, HookError> {
        let left = self.left(vec![self.exec(command)])?;
        let protects = git_keys::protects(&self.governed.effective.policy);
        if !matches!(left, HookDecision::Go) || decision == Decision::Allow && !protects {
            return Ok(left);
        }
        let variables = if decision == Decision::Allow { git_keys::environment() } else { Vec::new() };
        let variables = variables.iter().map(|(name, value)| assignment(&name.display(), value.as_os_str()));
        let words = argv(command);
        let words = variables.chain(words.iter().map(|word| quoted(word.as_os_str())));
        match words.collect::<Option<Vec<_>>>() {
            Some(words) => Ok(HookDecision::Run { command: words.join(" "), waits: StartCondition::No }),
            None => self.no(malformed(&self.request.tool, "text that a shell can take")),
        }
    }

    fn files(
        &self,
        paths: &[PathBuf],
        call: impl Fn(ByteString) -> FileCall,
    ) -> Result<HookDecision, HookError> {
        self.left(paths.iter().map(|path| Call::File(call(ByteString::from(path.as_path())))).collect())
    }

    fn written(&self, paths: &[PathBuf]) -> Result<HookDecision, HookError> {
        let content = content(self.request);
        let sha256: String = ringfence_types::hex(Sha256::digest(&content));
        let bytes = content.len() as u64;
        self.files(paths, |path| FileCall::Write { path, sha256: sha256.clone(), bytes })
    }

    /// A single file is a read. A search of a tree would show its hidden files.
    fn search(&self, paths: &[PathBuf]) -> Result<HookDecision, HookError> {
        if paths.iter().all(|path| path.is_file()) {
            return self.files(paths, |path| FileCall::Read { path });
        }
        self.no(Refusal {
            code: RefusalCode::Tool,
            layer: PolicyLayer::Floor,
            rule: RuleId::HookSearch.into(),
            message:
                "this tool reads a whole tree outside the fence, files that are hidden inside among them"
                    .to_owned(),
            hint: Some("search with the shell: `grep -rn` and `rg` run inside the fence".to_owned()),
        })
    }

    /// A tool that another program executes. An `ask` rule goes to the operator's approvals. A tool without a
    /// rule goes to the agent's user, if the agent can ask.
    fn tool(&self, unknown: UnknownToolRule) -> Result<HookDecision, HookError> {
        let name = &self.request.tool;
        let input = serde_json::Value::Object(self.request.input.clone()).to_string();
        let call = Call::Tool(ToolCall::new(name, input));
        let part = judge_foreign_tool(&self.governed.effective.policy, name);
        if part.rule == UNKNOWN && unknown == UnknownToolRule::Theirs && can_prompt(self.request.agent) {
            return self.referred(call, &part);
        }
        self.left(vec![call])
    }

    fn referred(&self, call: Call, part: &JudgementPart) -> Result<HookDecision, HookError> {
        let runtime = runtime(self.setup.clone())?;
        let mut session = match self.session(&runtime)? {
            Ok(session) => session,
            Err(refusal) => return Ok(self.answer_no(refusal)),
        };
        let to = format!("the person at {}, whom it asks", self.request.agent);
        match session.refer(call, &judged_only(&[]), &to) {
            Ok(_transaction) => Ok(HookDecision::Theirs(reason(part))),
            Err(settled) => self.settled(settled),
        }
    }

    /// Evaluates, approves and records calls that the agent executes itself, all or none.
    fn left(&self, calls: Vec<Call>) -> Result<HookDecision, HookError> {
        let runtime = runtime(self.setup.clone())?;
        let mut session = match self.session(&runtime)? {
            Ok(session) => session,
            Err(refusal) => return Ok(self.answer_no(refusal)),
        };
        session.set_claim(self.request.text("description").map(str::to_owned));
        let to = format!(
            "the tool `{}` of {}",
            ByteString::from(self.request.tool.as_str()).display(),
            self.request.agent
        );
        let content = content(self.request);
        for call in calls {
            if let Err(settled) = session.leave(call, &judged_only(&content), &to) {
                return self.settled(settled);
            }
        }
        Ok(HookDecision::Go)
    }

    fn settled(&self, settled: Settled) -> Result<HookDecision, HookError> {
        if let Some(why) = settled.record_error {
            return Err(HookError::Runtime(format!("the ledger cannot be written: {why}")));
        }
        match settled.ended {
            CallEnd::Refused(refusal) => Ok(self.answer_no(refusal)),
            CallEnd::Failed { what, .. } => Err(HookError::Runtime(what)),
            CallEnd::Executed(_) | CallEnd::Touched(_) => {
                Err(HookError::Runtime("something was done that was only to be judged".to_owned()))
            }
        }
    }

    fn session<'r>(&self, runtime: &'r Runtime) -> Result<Result<AgentSession<'r>, Refusal>, HookError> {
        let mut asked = self.governed.session_spec();
        asked.name = Some(self.request.session.clone());
        runtime.session(asked).map_err(|error| HookError::Runtime(error::chain(&error)))
    }

    /// Records a refusal that the pipeline has not recorded.
    fn no(&self, refusal: Refusal) -> Result<HookDecision, HookError> {
        let written = runtime(self.setup.clone())?.refuse(&refusal);
        written.map_err(|error| HookError::Runtime(error::chain(&error)))?;
        Ok(self.answer_no(refusal))
    }

    fn answer_no(&self, mut refusal: Refusal) -> HookDecision {
        if refusal.code == RefusalCode::Network {
            // Flags are for `run`; behind a hook only the policy file can change this.
            refusal.hint = Some(ALLOW_HOST.to_owned());
        }
        let what = ByteString::from(self.request.tool.as_str()).display();
        HookDecision::No { what, refusal, workspace: Some(self.governed.flags.workspace.clone()) }
    }

    fn here(&self) -> Option<PathBuf> {
        std::fs::canonicalize(&self.governed.cwd).ok()
    }

    /// Where the agent takes its settings from. A command may start elsewhere, and the agent may have changed
    /// its directory.
    fn agent_in(&self) -> Vec<PathBuf> {
        [Some(&self.request.cwd), self.environment.agent_project.as_ref(), self.request.project.directory()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    fn exec(&self, command: &str) -> Call {
        let workspace = &self.governed.flags.workspace;
        let shown = self.governed.effective.policy.access != Access::None;
        let here = self.here().filter(|cwd| shown && cwd.starts_with(workspace));
        let cwd = here.unwrap_or_else(|| workspace.clone());
        Call::Exec(ExecCall {
            argv: argv(command),
            cwd: ByteString::from(cwd),
            env: Vec::new(),
            ceiling: None,
            net: self.governed.effective.policy.net,
            stdin: StandardInput::None,
        })
    }

    /// The same command inside the fence, with explicit paths: variables set by a repository must not lead to
    /// another policy.
    fn rewritten(&self, command: &str, waits: StartCondition) -> Result<HookDecision, HookError> {
        let program = std::env::current_exe().map_err(HookError::NoProgram)?;
        let mut words: Vec<OsString> = vec![program.into()];
        // As one word, because a value may begin like a flag.
        let flag = |name: &str, value: &OsStr| {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            word
        };
        words.push("run".into());
        words.push(flag("--agent", OsStr::new(&self.request.agent.to_string())));
        words.push(flag("--session", OsStr::new(&self.request.session)));
        words.push(flag("--workspace", self.governed.flags.workspace.as_os_str()));
        for place in self.agent_in() {
            words.push(flag("--agent-in", place.as_os_str()));
        }
        if let Some(stated) = self.request.text("description") {
            words.push(flag("--reason", OsStr::new(stated)));
        }
        words.push("--".into());
        words.extend(argv(command).iter().map(|word| word.as_os_str().to_owned()));
        let words: Option<Vec<String>> = words.iter().map(|word| quoted(word)).collect();
        let line = words.and_then(|words| Some(format!("{}{}", self.pins()?, words.join(" "))));
        match line {
            Some(command) => Ok(HookDecision::Run { command, waits }),
            None => self.no(malformed(&self.request.tool, "text that a shell can take")),
        }
    }

    fn pins(&self) -> Option<String> {
        let environment = self.environment;
        let places: [(&str, Option<&Path>); 3] = [
            ("HOME", environment.home.as_deref()),
            ("XDG_CONFIG_HOME", environment.config_dir.as_deref()),
            ("XDG_STATE_HOME", environment.state_dir.as_deref()),
        ];
        let said = places.iter().filter_map(|(name, path)| Some((name, (*path)?)));
        said.map(|(name, path)| Some(format!("{} ", assignment(name, path.as_os_str())?))).collect()
    }
}

/// A variable before a command.
fn assignment(name: &str, value: &OsStr) -> Option<String> {
    Some(format!("{name}={}", quoted(value)?))
}

const ALLOW_HOST: &str =
    "set `net = \"filtered\"` and allow the host in a `[[host]]` entry of the operator's policy file";

/// What happens to a tool without a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnknownToolRule {
    /// The agent's user decides, if the agent can ask.
    Theirs,
    No,
}

/// Whether an agent shows a hook's question to its user and treats silence as a denial.
fn can_prompt(agent: AgentKind) -> bool {
    matches!(agent, AgentKind::ClaudeCode | AgentKind::Cursor)
}

/// An agent's command, for a shell.
pub(crate) fn argv(command: &str) -> Vec<ByteString> {
    ringfence_mcp::shell(command).map(ByteString::from).into()
}

fn reason(part: &JudgementPart) -> String {
    format!(
        "Ringfence cannot contain `{}`: {} (rule {}). {}",
        ByteString::from(part.subject.as_str()).display(),
        part.reason,
        part.rule,
        part.fix.as_deref().map(|fix| format!("To settle it for good: {fix}.")).unwrap_or_default()
    )
}

/// For a call that is executed elsewhere: its content as input, and no output.
fn judged_only(content: &[u8]) -> CommandIo<'_> {
    CommandIo {
        stdin: StdinSource::Bytes(content),
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    }
}

fn malformed(tool: &str, missing: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        layer: PolicyLayer::Call,
        rule: RuleId::HookMalformed.into(),
        message: format!("the input of `{}` has no {missing}", ByteString::from(tool).display()),
        hint: None,
    }
}

fn cannot_be_rewritten(agent: AgentKind) -> Refusal {
    Refusal {
        code: RefusalCode::Tool,
        layer: PolicyLayer::Floor,
        rule: RuleId::HookCannotRewrite.into(),
        message: format!("{agent} does not allow a hook to rewrite a command"),
        hint: Some("run it with the tool `exec` of `ringfence mcp`".to_owned()),
    }
}
