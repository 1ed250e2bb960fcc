//! What becomes of a tool call: through the same judge, the same questions and the same ledger as everything else.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use ringfence_runtime::authz::Part;
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::Flags;
use ringfence_runtime::authz::tools::{UNKNOWN, judge_foreign_tool};
use ringfence_runtime::{AgentSession, Ended, Io, Runtime, Settled, Source, Subject, Target, consider};
use ringfence_types::{
    Access, Bytes, Call, Decision, Exec, Fetch, FileCall, Layer, Refusal, RefusalCode, StandardInput,
    ToolCall,
};
use sha2::{Digest as _, Sha256};

use super::HookError;
use super::deed::{self, Deed};
use super::quote::quoted;
use super::request::Request;
use super::transcript::{Contained, contained};
use super::unplugged::unplugged;
use crate::args::{Agent, Place};
use crate::asked::{self, Governed, Ungoverned};
use crate::environment::Environment;
use crate::error;
use crate::host;
use crate::surroundings::Surroundings;

/// What an agent is told.
#[derive(Debug)]
pub(super) enum Answer {
    /// Nothing: its own rules hold.
    Silence,
    /// It may do it itself.
    Go,
    /// It may run this instead, which asks and records on its own.
    Run {
        command: String,
        waits: Waits,
    },
    /// The person at the agent decides: what another program does is beyond any fence of ours.
    Theirs(String),
    No {
        what: String,
        refusal: Refusal,
        workspace: Option<PathBuf>,
    },
}

/// Whether a command waits for a person before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    No,
    ForAPerson,
}

pub(super) fn judged(request: &Request, environment: &Environment) -> Result<Answer, HookError> {
    let deed = deed::of(request);
    let unplugged = unplugged(request, environment);
    if deed == Deed::Own && unplugged.is_none() {
        return Ok(Answer::Silence);
    }
    std::env::set_current_dir(&request.cwd)
        .map_err(|error| HookError::Place(Bytes::from(request.cwd.as_path()).display(), error))?;
    let setup = host::setup(environment, Attendance::Unattended)
        .map_err(|error| HookError::Runtime(error.to_string()))?;
    if let Some(refusal) = unplugged {
        return refused_early(request, setup, refusal);
    }
    let place = Place {
        profile: None,
        workspace: Some(workspace(request, environment)?),
        policy: None,
        agent: Some(request.agent.to_string()),
    };
    let desk = match asked::governed(&place, environment, &setup, Flags::default()) {
        Ok(governed) => Desk { request, environment, setup, governed },
        Err(Ungoverned::Failed(_)) => {
            return Err(HookError::Runtime("the policy cannot be read".to_owned()));
        }
        Err(Ungoverned::Refused(refusal)) => return refused_early(request, setup, refusal),
    };
    match deed {
        Deed::Own => Ok(Answer::Silence),
        Deed::Shell(command) => desk.shell(&command),
        Deed::Read(paths) => desk.files(&paths, |path| FileCall::Read { path }),
        Deed::List(paths) => desk.files(&paths, |path| FileCall::List { path }),
        Deed::Write(paths) => {
            let content = content(request);
            let sha256: String = ringfence_types::hex(Sha256::digest(&content));
            let bytes = content.len() as u64;
            desk.files(&paths, |path| FileCall::Write { path, sha256: sha256.clone(), bytes })
        }
        Deed::Search(paths) => desk.search(&paths),
        Deed::Fetch(url) => desk.left(vec![Call::Fetch(Fetch::by_agent(url))]),
        Deed::Hosted => desk.tool(Unknown::No),
        Deed::Foreign => desk.tool(Unknown::Theirs),
        Deed::Malformed(missing) => desk.no(malformed(&request.tool, missing)),
    }
}

/// Of the agent's project, not of the directory that it stands in now: it can make a repository of any directory.
fn workspace(request: &Request, environment: &Environment) -> Result<PathBuf, HookError> {
    let unreadable = |error| HookError::Place(Bytes::from(request.cwd.as_path()).display(), error);
    let cwd = std::fs::canonicalize(&request.cwd).map_err(unreadable)?;
    let project = request.project.as_ref().or(match request.agent {
        Agent::ClaudeCode => environment.agent_project.as_ref(),
        _ => None,
    });
    let project = project.and_then(|project| std::fs::canonicalize(project).ok());
    Ok(Surroundings::new(None, environment).agent_workspace(&cwd, project.as_deref()))
}

fn refused_early(
    request: &Request,
    setup: ringfence_runtime::Setup,
    refusal: Refusal,
) -> Result<Answer, HookError> {
    runtime(setup)?.refuse(&refusal).map_err(|error| HookError::Runtime(error::chain(&error)))?;
    Ok(Answer::No { what: request.tool.clone(), refusal, workspace: None })
}

/// What an edit comes down to is known to the agent alone; what it was asked for is bound instead.
fn content(request: &Request) -> Vec<u8> {
    match request.text("content") {
        Some(content) => content.as_bytes().to_vec(),
        None => serde_json::to_vec(&request.input).unwrap_or_default(),
    }
}

fn runtime(setup: ringfence_runtime::Setup) -> Result<Runtime, HookError> {
    Runtime::open(setup)
        .map_err(|error| HookError::Runtime(format!("the ledger cannot be opened: {}", error::chain(&error))))
}

/// One request with all that it is judged by.
struct Desk<'a> {
    request: &'a Request,
    environment: &'a Environment,
    setup: ringfence_runtime::Setup,
    governed: Governed,
}

impl Desk<'_> {
    /// A command is judged here so that a no comes before the agent begins, and once more by the `run` that it becomes.
    fn shell(&self, command: &str) -> Result<Answer, HookError> {
        let contained = match self.request.agent {
            Agent::Codex => contained(self.request.transcript.as_deref(), self.request.turn.as_deref()),
            _ => Contained::ByNobody,
        };
        let call = || self.exec(command);
        let judged =
            match consider(&self.setup, &self.governed.asked(), self.here(), Subject::Argv(argv(command))) {
                Ok(judgement) => judgement,
                // Once more with the pen in hand.
                Err(_) => return self.left(vec![call()]),
            };
        match (self.request.agent, contained, judged.decision()) {
            (_, _, Decision::Deny) => self.left(vec![call()]),
            (Agent::Goose, ..) => self.no(cannot_be_rewritten(self.request.agent)),
            (_, Contained::ByCodex(_), _) => self.left(vec![call()]),
            (_, _, Decision::Allow) => self.rewritten(command, Waits::No),
            (_, _, Decision::Ask) => {
                let runtime = runtime(self.setup.clone())?;
                let reachable = match self.session(&runtime)? {
                    Ok(mut session) => session.can_ask(),
                    Err(refusal) => return Ok(self.answer_no(refusal)),
                };
                drop(runtime);
                if reachable { self.rewritten(command, Waits::ForAPerson) } else { self.left(vec![call()]) }
            }
        }
    }

    fn files(&self, paths: &[PathBuf], call: impl Fn(Bytes) -> FileCall) -> Result<Answer, HookError> {
        self.left(paths.iter().map(|path| Call::File(call(Bytes::from(path.as_path())))).collect())
    }

    /// One file is a read of it. What reads a whole tree would show what is hidden in it.
    fn search(&self, paths: &[PathBuf]) -> Result<Answer, HookError> {
        if paths.iter().all(|path| path.is_file()) {
            return self.files(paths, |path| FileCall::Read { path });
        }
        self.no(Refusal {
            code: RefusalCode::Tool,
            layer: Layer::Floor,
            rule: "hook.search".to_owned(),
            message:
                "this tool reads a whole tree outside the fence, files that are hidden inside among them"
                    .to_owned(),
            hint: Some("search with the shell: `grep -rn` and `rg` run inside the fence".to_owned()),
        })
    }

    /// What another program does for the agent. A question of the operator's goes to the operator's own queue; what no rule
    /// speaks of is the person's at the agent, where the agent can ask.
    fn tool(&self, unknown: Unknown) -> Result<Answer, HookError> {
        let name = &self.request.tool;
        let input = serde_json::Value::Object(self.request.input.clone()).to_string();
        let call = Call::Tool(ToolCall::new(name, input));
        let part = judge_foreign_tool(&self.governed.effective.policy, name);
        if part.rule == UNKNOWN && unknown == Unknown::Theirs && can_prompt(self.request.agent) {
            return self.referred(call, &part);
        }
        self.left(vec![call])
    }

    fn referred(&self, call: Call, part: &Part) -> Result<Answer, HookError> {
        let runtime = runtime(self.setup.clone())?;
        let mut session = match self.session(&runtime)? {
            Ok(session) => session,
            Err(refusal) => return Ok(self.answer_no(refusal)),
        };
        let to = format!("the person at {}, whom it asks", self.request.agent);
        match session.refer(call, &judged_only(&[]), &to) {
            Ok(_transaction) => Ok(Answer::Theirs(reason(part))),
            Err(settled) => self.settled(settled),
        }
    }

    /// Everything that the agent does itself: judged, asked about and written down, all of it or nothing.
    fn left(&self, calls: Vec<Call>) -> Result<Answer, HookError> {
        let runtime = runtime(self.setup.clone())?;
        let mut session = match self.session(&runtime)? {
            Ok(session) => session,
            Err(refusal) => return Ok(self.answer_no(refusal)),
        };
        session.set_stated_reason(self.request.text("description").map(str::to_owned));
        let to = format!(
            "the tool `{}` of {}",
            Bytes::from(self.request.tool.as_str()).display(),
            self.request.agent
        );
        let content = content(self.request);
        for call in calls {
            if let Err(settled) = session.leave(call, &judged_only(&content), &to) {
                return self.settled(settled);
            }
        }
        Ok(Answer::Go)
    }

    fn settled(&self, settled: Settled) -> Result<Answer, HookError> {
        if let Some(why) = settled.unrecorded {
            return Err(HookError::Runtime(format!("the ledger cannot be written: {why}")));
        }
        match settled.ended {
            Ended::Refused(refusal) => Ok(self.answer_no(refusal)),
            Ended::Failed { what, .. } => Err(HookError::Runtime(what)),
            Ended::Executed(_) | Ended::Touched(_) => {
                Err(HookError::Runtime("something was done that was only to be judged".to_owned()))
            }
        }
    }

    fn session<'r>(&self, runtime: &'r Runtime) -> Result<Result<AgentSession<'r>, Refusal>, HookError> {
        let mut asked = self.governed.asked();
        asked.name = Some(self.request.session.clone());
        runtime.session(asked).map_err(|error| HookError::Runtime(error::chain(&error)))
    }

    /// The answer is no for a reason that the pipeline has not written down.
    fn no(&self, refusal: Refusal) -> Result<Answer, HookError> {
        let written = runtime(self.setup.clone())?.refuse(&refusal);
        written.map_err(|error| HookError::Runtime(error::chain(&error)))?;
        Ok(self.answer_no(refusal))
    }

    fn answer_no(&self, mut refusal: Refusal) -> Answer {
        if refusal.code == RefusalCode::Network {
            // Flags are for `run`; whoever is behind a hook has a policy file alone.
            refusal.hint = Some(ALLOW_HOST.to_owned());
        }
        let what = Bytes::from(self.request.tool.as_str()).display();
        Answer::No { what, refusal, workspace: Some(self.governed.flags.workspace.clone()) }
    }

    fn here(&self) -> Option<PathBuf> {
        std::fs::canonicalize(&self.governed.cwd).ok()
    }

    /// Where the agent takes its settings from. A command may begin elsewhere, and so may an agent that has moved on.
    fn agent_in(&self) -> Vec<PathBuf> {
        [Some(self.request.cwd.clone()), self.environment.agent_project.clone()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn exec(&self, command: &str) -> Call {
        let workspace = &self.governed.flags.workspace;
        let shown = self.governed.effective.policy.access != Access::None;
        let here = self.here().filter(|cwd| shown && cwd.starts_with(workspace));
        let cwd = here.unwrap_or_else(|| workspace.clone());
        Call::Exec(Exec {
            argv: argv(command),
            cwd: Bytes::from(cwd),
            env: Vec::new(),
            net: self.governed.effective.policy.net,
            stdin: StandardInput::None,
        })
    }

    /// The same command inside the fence. Where things are is said again: what a repository puts into the environment of
    /// an agent must not lead to another policy.
    fn rewritten(&self, command: &str, waits: Waits) -> Result<Answer, HookError> {
        let program = std::env::current_exe().map_err(HookError::NoProgram)?;
        let mut words: Vec<OsString> = vec![program.into()];
        // In one word: a value may begin like a flag.
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
            Some(command) => Ok(Answer::Run { command, waits }),
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
        said.map(|(name, path)| Some(format!("{name}={} ", quoted(path.as_os_str())?))).collect()
    }
}

const ALLOW_HOST: &str =
    "set `net = \"filtered\"` and allow the host in a `[[host]]` entry of the operator's policy file";

/// What becomes of a tool that no rule speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unknown {
    /// The person at the agent decides, where the agent can ask.
    Theirs,
    No,
}

/// Whether an agent shows a question of a hook to a person, and takes silence as a no.
fn can_prompt(agent: Agent) -> bool {
    matches!(agent, Agent::ClaudeCode | Agent::Cursor)
}

/// A command as an agent writes it, for a shell.
pub(crate) fn argv(command: &str) -> Vec<Bytes> {
    ringfence_mcp::shell(command).map(Bytes::from).into()
}

fn reason(part: &Part) -> String {
    format!(
        "Ringfence cannot contain `{}`: {} (rule {}). {}",
        Bytes::from(part.subject.as_str()).display(),
        part.reason,
        part.rule,
        part.fix.as_deref().map(|fix| format!("To settle it for good: {fix}.")).unwrap_or_default()
    )
}

/// For a call that is done elsewhere: what it brings along, and nowhere to put anything.
fn judged_only(content: &[u8]) -> Io<'_> {
    Io {
        stdin: Source::Bytes(content),
        stdout: Target::Discard,
        stderr: Target::Discard,
        interrupts: &[],
        timeout: None,
        output_bytes: 0,
    }
}

fn malformed(tool: &str, missing: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        layer: Layer::Call,
        rule: "hook.malformed".to_owned(),
        message: format!("the input of `{}` has no {missing}", Bytes::from(tool).display()),
        hint: None,
    }
}

fn cannot_be_rewritten(agent: Agent) -> Refusal {
    Refusal {
        code: RefusalCode::Tool,
        layer: Layer::Floor,
        rule: "hook.outside".to_owned(),
        message: format!("{agent} does not let a hook put a command inside the fence"),
        hint: Some("run it with the tool `exec` of `ringfence mcp`".to_owned()),
    }
}
