//! Runs each MCP tool through the pipeline of the session.

use std::path::{Path, PathBuf};

use ringfence_runtime::{
    AgentSession, CallEnd, CommandIo, DryRunSubject, EffectOutput, OutputTarget, Runtime, Settled,
    SignalForward, StdinSource, consider, tool_refused,
};
use ringfence_types::{ByteString, Call, ExecCall, FetchCall, FileCall, StandardInput};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::jobs::{BackgroundJobs, JobRequest};
use super::result::settled;
use crate::policy_resolution::ResolvedPolicy;
use crate::{error, explain, hook};
use ringfence_mcp::BuiltinTool;
use ringfence_mcp::input::{self, read};
use ringfence_mcp::result::{self, CommandOutput, PageResult, malformed, structured};
use ringfence_types::RefusalNotice;

/// Runs the calls of one connection.
pub(super) struct ToolRunner<'a, 'scope> {
    pub(super) session: AgentSession<'a>,
    pub(super) runtime: &'a Runtime,
    pub(super) governed: &'a ResolvedPolicy,
    pub(super) background: BackgroundJobs<'a, 'scope>,
}

/// The end of one call, with the output of a command.
struct ToolOutcome {
    settled: Settled,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

type Interrupts<'i> = [SignalForward<'i>];

impl ToolRunner<'_, '_> {
    pub(super) fn perform(
        &mut self,
        tool: BuiltinTool,
        arguments: &Value,
        interrupts: &Interrupts<'_>,
    ) -> CallToolResult {
        if let Some(no) = self.tool_denied(tool) {
            return no;
        }
        let done = match tool {
            BuiltinTool::Exec => read(arguments).map(|input| self.exec(input, interrupts)),
            BuiltinTool::ReadFile => read(arguments).map(|input| self.read_file(input, interrupts)),
            BuiltinTool::WriteFile => read(arguments).map(|input| self.write_file(input, interrupts)),
            BuiltinTool::EditFile => read(arguments).map(|input| self.edit_file(input, interrupts)),
            BuiltinTool::ListDir => read(arguments).map(|input| self.list_dir(input, interrupts)),
            BuiltinTool::Search => read(arguments).map(|input| self.search(input, interrupts)),
            BuiltinTool::Fetch => read(arguments).map(|input| self.fetch(input, interrupts)),
            BuiltinTool::Jobs => read(arguments).map(|input| self.jobs(input)),
            BuiltinTool::Explain => read(arguments).map(|input| self.explain(input)),
            BuiltinTool::PermissionPrompt => Ok(self.permission_prompt(arguments)),
        };
        done.unwrap_or_else(|wrong| wrong)
    }

    fn tool_denied(&self, tool: BuiltinTool) -> Option<CallToolResult> {
        if !tool.is_judged_by_name() {
            return None;
        }
        let subject = DryRunSubject::Tool(tool.to_string());
        let judged = consider(self.runtime.setup(), &self.governed.session_spec(), None, subject);
        let refusal = tool_refused(judged)?;
        let unrecorded = self.runtime.refuse(&refusal).err().map(|error| error::chain(&error));
        let refused = Settled {
            transaction: None,
            ended: CallEnd::Refused(refusal),
            posture: None,
            network: None,
            notice: None,
            leaks: Vec::new(),
            held: Vec::new(),
            record_error: unrecorded,
        };
        self.not_done(tool.word(), &refused)
    }

    fn call(&mut self, call: Call, stdin: StdinSource<'_>, interrupts: &Interrupts<'_>) -> ToolOutcome {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let io = CommandIo {
            stdin,
            stdout: OutputTarget::Buffer(&mut stdout),
            stderr: OutputTarget::Buffer(&mut stderr),
            interrupts,
            timeout: None,
            output_bytes: 0,
        };
        let settled = self.session.call(call, io);
        ToolOutcome { settled, stdout, stderr }
    }

    fn command(
        &mut self,
        argv: Vec<ByteString>,
        cwd: Option<&Path>,
        interrupts: &Interrupts<'_>,
    ) -> ToolOutcome {
        let exec = self.exec_of(argv, cwd);
        self.call(Call::Exec(exec), StdinSource::Empty, interrupts)
    }

    fn exec_of(&self, argv: Vec<ByteString>, cwd: Option<&Path>) -> ExecCall {
        let workspace = self.session.workspace().path.clone();
        let cwd = cwd.map_or_else(|| workspace.clone(), |cwd| workspace.join(cwd));
        let net = self.governed.effective.policy.net;
        ExecCall {
            argv,
            cwd: ByteString::from(cwd),
            env: Vec::new(),
            ceiling: None,
            net,
            stdin: StandardInput::None,
        }
    }

    fn said(&self, what: &str, settled_call: &Settled) -> Map<String, Value> {
        let workspace = &self.session.workspace().path;
        settled(settled_call, |refusal| RefusalNotice::of(what, refusal, Some(workspace)))
    }

    /// The result of a refused or failed call.
    fn not_done(&self, what: &str, settled: &Settled) -> Option<CallToolResult> {
        let shown = match &settled.ended {
            CallEnd::Refused(refusal) => {
                RefusalNotice::of(what, refusal, Some(&self.session.workspace().path)).text()
            }
            CallEnd::Failed { what, hint: None } => what.clone(),
            CallEnd::Failed { what, hint: Some(hint) } => format!("{what}\n{hint}"),
            CallEnd::Executed(_) | CallEnd::Touched(_) => return None,
        };
        Some(structured(self.said(what, settled), &shown))
    }

    fn exec(&mut self, input: input::ExecInput, interrupts: &Interrupts<'_>) -> CallToolResult {
        self.session.set_claim(input.description);
        let exec = self.exec_of(hook::shell(&input.command), input.cwd.as_deref());
        let exec = ExecCall { ceiling: input.ceiling.map(Box::new), ..exec };
        let done = self.call(Call::Exec(exec), StdinSource::Empty, interrupts);
        self.session.set_claim(None);
        let CallEnd::Executed(outcome) = &done.settled.ended else {
            return self.not_done("exec", &done.settled).unwrap_or_else(|| malformed("nothing was run"));
        };
        let printed = CommandOutput { stdout: &done.stdout, stderr: &done.stderr };
        result::ran(self.said("exec", &done.settled), outcome, printed)
    }

    fn read_file(&mut self, input: input::ReadInput, interrupts: &Interrupts<'_>) -> CallToolResult {
        let call = FileCall::Read { path: ByteString::from(input.path.as_path()) };
        let done = self.call(Call::File(call), StdinSource::Empty, interrupts);
        let CallEnd::Touched(EffectOutput::Read(bytes)) = &done.settled.ended else {
            return self
                .not_done("read_file", &done.settled)
                .unwrap_or_else(|| malformed("nothing was read"));
        };
        let Ok(all) = std::str::from_utf8(bytes) else { return malformed("the file is not text (UTF-8)") };
        result::content(self.said("read_file", &done.settled), all, &input)
    }

    fn written(&mut self, path: &Path, content: &[u8], interrupts: &Interrupts<'_>) -> Settled {
        let sha256 = ringfence_types::hex(Sha256::digest(content));
        let call = FileCall::Write { path: ByteString::from(path), sha256, bytes: content.len() as u64 };
        self.call(Call::File(call), StdinSource::Bytes(content), interrupts).settled
    }

    fn write_file(&mut self, input: input::WriteFileInput, interrupts: &Interrupts<'_>) -> CallToolResult {
        let settled = self.written(&input.path, input.content.as_bytes(), interrupts);
        let said = self.said("write_file", &settled);
        self.not_done("write_file", &settled).unwrap_or_else(|| structured(said, "written"))
    }

    fn edit_file(&mut self, input: input::EditInput, interrupts: &Interrupts<'_>) -> CallToolResult {
        let call = FileCall::Read { path: ByteString::from(input.path.as_path()) };
        let done = self.call(Call::File(call), StdinSource::Empty, interrupts);
        let CallEnd::Touched(EffectOutput::Read(bytes)) = &done.settled.ended else {
            return self
                .not_done("edit_file", &done.settled)
                .unwrap_or_else(|| malformed("nothing was read"));
        };
        let Ok(before) = std::str::from_utf8(bytes) else { return malformed("the file is not text (UTF-8)") };
        let (after, count) = match input.applied(before) {
            Ok(applied) => applied,
            Err(wrong) => return wrong,
        };
        let settled = self.written(&input.path, after.as_bytes(), interrupts);
        let said = self.said("edit_file", &settled);
        self.not_done("edit_file", &settled).unwrap_or_else(|| result::edited(said, count))
    }

    fn list_dir(&mut self, input: input::ListInput, interrupts: &Interrupts<'_>) -> CallToolResult {
        let path = input.path.unwrap_or_else(|| PathBuf::from("."));
        let call = FileCall::List { path: ByteString::from(path.as_path()) };
        let done = self.call(Call::File(call), StdinSource::Empty, interrupts);
        let CallEnd::Touched(EffectOutput::Listed(entries)) = &done.settled.ended else {
            return self
                .not_done("list_dir", &done.settled)
                .unwrap_or_else(|| malformed("nothing was listed"));
        };
        let entries: Vec<_> =
            entries.iter().map(|entry| (entry.name.to_string_lossy().into_owned(), entry.kind)).collect();
        result::listed(self.said("list_dir", &done.settled), &entries)
    }

    fn search(&mut self, input: input::SearchInput, interrupts: &Interrupts<'_>) -> CallToolResult {
        let path = input.path.unwrap_or_else(|| PathBuf::from("."));
        let mut argv = ringfence_mcp::search(&input.pattern).map(ByteString::from).to_vec();
        argv.push(ByteString::from(path.as_path()));
        let done = self.command(argv, None, interrupts);
        let CallEnd::Executed(outcome) = &done.settled.ended else {
            return self
                .not_done("search", &done.settled)
                .unwrap_or_else(|| malformed("nothing was searched"));
        };
        let printed = CommandOutput { stdout: &done.stdout, stderr: &done.stderr };
        result::found(self.said("search", &done.settled), outcome, printed)
    }

    fn fetch(&mut self, input: input::FetchInput, interrupts: &Interrupts<'_>) -> CallToolResult {
        let method = input.method.unwrap_or_else(|| "GET".to_owned());
        let call = Call::Fetch(FetchCall::new(method, input.url));
        let done = self.call(call, StdinSource::Empty, interrupts);
        let CallEnd::Touched(EffectOutput::Fetched(page)) = &done.settled.ended else {
            return self.not_done("fetch", &done.settled).unwrap_or_else(|| malformed("nothing was fetched"));
        };
        let shown =
            |(name, value): &(String, Vec<u8>)| (name.clone(), String::from_utf8_lossy(value).into_owned());
        let headers = page.headers.iter().map(shown).collect();
        let page = PageResult { status: page.status, url: &page.url, headers, body: &page.body };
        result::fetched(self.said("fetch", &done.settled), page)
    }

    fn jobs(&mut self, input: input::JobsInput) -> CallToolResult {
        match input {
            input::JobsInput::Start { command, cwd, description } => {
                let exec = self.exec_of(hook::shell(&command), cwd.as_deref());
                self.background.start(JobRequest {
                    spec: self.governed.session_spec(),
                    exec,
                    command,
                    description,
                })
            }
            input::JobsInput::List {} => self.background.list(),
            input::JobsInput::Logs { id } => self.background.logs(&id),
            input::JobsInput::Signal { id, signal } => self.background.signal(&id, signal),
        }
    }

    fn explain(&self, input: input::ExplainInput) -> CallToolResult {
        let subject = match input {
            input::ExplainInput::Command(command) => DryRunSubject::Argv(hook::shell(&command)),
            input::ExplainInput::Read(path) => DryRunSubject::Read(ByteString::from(path)),
            input::ExplainInput::Write(path) => DryRunSubject::Write(ByteString::from(path)),
            input::ExplainInput::Url(url) => {
                DryRunSubject::Url { url: ByteString::from(url.as_str()), method: None }
            }
            input::ExplainInput::Tool(name) => DryRunSubject::Tool(name),
        };
        let judged = consider(self.runtime.setup(), &self.governed.session_spec(), None, subject);
        result::explained(json!(explain::json(judged.as_ref(), &[])))
    }

    /// One text block with JSON, the format Claude Code reads.
    fn permission_prompt(&self, arguments: &Value) -> CallToolResult {
        let workspace = &self.session.workspace().path;
        let answer = hook::permission(workspace, self.session.id().as_str(), arguments).unwrap_or_else(|error| {
            json!({ "behavior": "deny", "message": format!("there is no judgement: {}", error::chain(&error)) })
        });
        CallToolResult::success(vec![ContentBlock::text(answer.to_string())])
    }
}
