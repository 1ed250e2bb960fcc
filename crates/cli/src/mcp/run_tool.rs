//! The session of a connection, for the tools. Every method takes the pipeline and answers before it returns.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ringfence_api::methods::ApiRequest;
use ringfence_api::{
    Api, ApiError, CallDetails, CallInfo, CallList, DirectoryListing, Empty, ErrorCode, ExecRequest,
    FetchResult, FileContent, Request, Response, WriteResult,
};
use ringfence_mcp::result::{self, malformed};
use ringfence_mcp::{BuiltinTool, OutputTail, ToolSession};
use ringfence_runtime::session_api::{
    directory_entry, dry_run_subject, end_call, explain_result, fetch_result, not_done,
};
use ringfence_runtime::{
    AgentSession, CallEnd, CommandIo, DryRunSubject, EffectOutput, OutputTarget, Runtime, SessionSpec,
    Settled, SignalForward, StdinSource, consider, tool_refused,
};
use ringfence_types::{ByteString, Call, ExecCall, FetchCall, FileCall, SessionId, StandardInput};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::jobs::{BackgroundJobs, JobRequest};
use crate::policy_resolution::ResolvedPolicy;
use crate::{error, explain, hook};

/// Runs the calls of one connection.
pub(super) struct ToolRunner<'a, 'scope> {
    pub(super) session: AgentSession<'a>,
    pub(super) runtime: &'a Runtime,
    pub(super) governed: &'a ResolvedPolicy,
    pub(super) background: BackgroundJobs<'a, 'scope>,
}

/// The session during one use of a tool.
struct OwnSession<'r, 'a, 'scope> {
    id: SessionId,
    workspace: PathBuf,
    runner: RefCell<&'r mut ToolRunner<'a, 'scope>>,
    interrupts: &'r [SignalForward<'r>],
}

/// What a file operation or a fetch gave.
struct EffectResult {
    output: EffectOutput,
    transaction: Option<String>,
    details: CallDetails,
}

impl ToolRunner<'_, '_> {
    pub(super) fn perform(
        &mut self,
        tool: BuiltinTool,
        arguments: &Value,
        interrupts: &[SignalForward<'_>],
    ) -> CallToolResult {
        let (id, workspace) = (self.session.id().clone(), self.session.workspace().path.clone());
        let session = OwnSession { id, workspace, runner: RefCell::new(self), interrupts };
        let performed = pin!(ringfence_mcp::perform(&session, tool, arguments));
        match performed.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => malformed("the session did not answer"),
        }
    }
}

impl Api for OwnSession<'_, '_, '_> {
    async fn call<R: ApiRequest + Serialize>(&self, request: R) -> Result<R::Answer, ApiError> {
        R::answer(self.respond(request.into())?)
    }
}

impl ToolSession for OwnSession<'_, '_, '_> {
    fn id(&self) -> &SessionId {
        &self.id
    }

    fn workspace(&self) -> &Path {
        &self.workspace
    }

    async fn check_name(&self, tool: BuiltinTool) -> Result<(), ApiError> {
        let runner = self.runner.borrow();
        let subject = DryRunSubject::Tool(tool.to_string());
        let judged = consider(runner.runtime.setup(), &runner.governed.session_spec(), None, subject);
        let Some(refusal) = tool_refused(judged) else { return Ok(()) };
        let unrecorded = runner.runtime.refuse(&refusal).err().map(|error| error::chain(&error));
        let mut said = Map::new();
        result::note(&mut said, unrecorded.as_deref().map(result::unrecorded));
        Err(ApiError { details: some(said), ..ApiError::from(refusal) })
    }

    async fn fetch(&self, url: String, method: Option<String>) -> Result<FetchResult, ApiError> {
        let method = method.unwrap_or_else(|| "GET".to_owned());
        let done = self.touch(Call::Fetch(FetchCall::new(method, url)), b"")?;
        match done.output {
            EffectOutput::Fetched(page) => {
                Ok(FetchResult { details: done.details, ..fetch_result(page, done.transaction) })
            }
            other => Err(not_done(CallEnd::Touched(other))),
        }
    }

    async fn tail(&self, call: u64) -> Result<OutputTail, ApiError> {
        self.runner.borrow().background.tail(call)
    }

    /// One text block with JSON, the format Claude Code reads.
    fn permission(&self, arguments: &Value) -> CallToolResult {
        let answer = hook::permission(&self.workspace, self.id.as_str(), arguments).unwrap_or_else(|error| {
            json!({ "behavior": "deny", "message": format!("there is no judgement: {}", error::chain(&error)) })
        });
        CallToolResult::success(vec![ContentBlock::text(answer.to_string())])
    }
}

impl OwnSession<'_, '_, '_> {
    /// The methods that the tools use.
    fn respond(&self, request: Request) -> Result<Response, ApiError> {
        Ok(match request {
            Request::CallExec(request) if request.background => Response::CallExec(self.start(request)?),
            Request::CallExec(request) => Response::CallExec(self.exec(request)),
            Request::CallList(_) => {
                Response::CallList(CallList { calls: self.runner.borrow().background.list() })
            }
            Request::CallShow(request) => {
                let patience = Duration::from_millis(request.wait_ms.unwrap_or_default());
                Response::CallShow(self.runner.borrow().background.show(request.call, patience)?)
            }
            Request::CallSignal(request) => {
                self.runner.borrow().background.signal(request.call, request.signal)?;
                Response::CallSignal(Empty::default())
            }
            Request::FileRead(request) => {
                let call = FileCall::Read { path: ByteString::from(request.path) };
                let EffectResult { output, transaction, details } = self.touch(Call::File(call), b"")?;
                let EffectOutput::Read(content) = output else {
                    return Err(not_done(CallEnd::Touched(output)));
                };
                let bytes = content.len() as u64;
                Response::FileRead(FileContent { transaction, bytes, content: content.into(), details })
            }
            Request::FileWrite(request) => {
                let content = request.content.bytes()?;
                let (path, sha256) =
                    (ByteString::from(request.path), ringfence_types::hex(Sha256::digest(&content)));
                let bytes = content.len() as u64;
                let call = Call::File(FileCall::Write { path, sha256, bytes });
                let EffectResult { transaction, details, .. } = self.touch(call, &content)?;
                Response::FileWrite(WriteResult { transaction, bytes, details })
            }
            Request::FileList(request) => {
                let path = ByteString::from(request.path.unwrap_or_else(|| PathBuf::from(".")));
                let EffectResult { output, transaction, details } =
                    self.touch(Call::File(FileCall::List { path }), b"")?;
                let EffectOutput::Listed(entries) = output else {
                    return Err(not_done(CallEnd::Touched(output)));
                };
                let entries = entries.into_iter().map(directory_entry).collect();
                Response::FileList(DirectoryListing { transaction, entries, details })
            }
            Request::PolicyExplain(request) => {
                let (runner, subject) = (self.runner.borrow(), dry_run_subject(request.subject)?);
                let judged = consider(runner.runtime.setup(), &runner.governed.session_spec(), None, subject);
                let details = match json!(explain::json(judged.as_ref(), &[])) {
                    Value::Object(details) => some(details),
                    _ => None,
                };
                Response::PolicyExplain(ringfence_api::ExplainResult { details, ..explain_result(judged) })
            }
            _ => return Err(ApiError::new(ErrorCode::NotFound, "a connection has no such method")),
        })
    }

    fn settle(&self, call: Call, stdin: StdinSource<'_>) -> (Settled, Vec<u8>, Vec<u8>) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let io = CommandIo {
            stdin,
            stdout: OutputTarget::Buffer(&mut stdout),
            stderr: OutputTarget::Buffer(&mut stderr),
            interrupts: self.interrupts,
            timeout: None,
            output_bytes: 0,
        };
        let settled = self.runner.borrow_mut().session.call(call, io);
        (settled, stdout, stderr)
    }

    fn exec_of(&self, request: ExecRequest) -> ExecCall {
        let cwd = request.cwd.map_or_else(|| self.workspace.clone(), |cwd| self.workspace.join(cwd));
        ExecCall {
            argv: request.argv.iter().map(|word| ByteString::from(word.as_str())).collect(),
            cwd: ByteString::from(cwd),
            env: Vec::new(),
            ceiling: request.ceiling.map(Box::new),
            net: self.runner.borrow().governed.effective.policy.net,
            stdin: StandardInput::None,
        }
    }

    fn exec(&self, mut request: ExecRequest) -> CallInfo {
        self.runner.borrow_mut().session.set_claim(request.reason.take());
        let exec = self.exec_of(request);
        let (settled, stdout, stderr) = self.settle(Call::Exec(exec), StdinSource::Empty);
        self.runner.borrow_mut().session.set_claim(None);
        let mut info = CallInfo { details: details(&settled), ..CallInfo::running(0, String::new()) };
        end_call(&mut info, settled, Some(stdout), Some(stderr));
        info
    }

    fn start(&self, mut request: ExecRequest) -> Result<CallInfo, ApiError> {
        let command = request.argv.last().cloned().unwrap_or_default();
        let description = request.reason.take();
        let exec = self.exec_of(request);
        let mut runner = self.runner.borrow_mut();
        let memory = Some(runner.session.joint_memory());
        let spec = SessionSpec { memory, ..runner.governed.session_spec() };
        runner.background.start(JobRequest { spec, exec, command, description })
    }

    /// Runs a file operation or a fetch.
    fn touch(&self, call: Call, content: &[u8]) -> Result<EffectResult, ApiError> {
        let stdin = if content.is_empty() { StdinSource::Empty } else { StdinSource::Bytes(content) };
        let (settled, ..) = self.settle(call, stdin);
        let mut said = details(&settled).map(|details| *details).unwrap_or_default();
        let unrecorded = settled.record_error.as_deref().map(result::unrecorded);
        result::note(&mut said, settled.notice.into_iter().chain(unrecorded));
        let transaction = settled.transaction.map(|id| id.to_string());
        match settled.ended {
            CallEnd::Touched(output) => Ok(EffectResult { output, transaction, details: some(said) }),
            ended => {
                said.extend(transaction.map(|id| ("transaction".to_owned(), json!(id))));
                Err(ApiError { details: some(said), ..not_done(ended) })
            }
        }
    }
}

/// Leaks, held changes and flows of a call.
pub(super) fn details(settled: &Settled) -> CallDetails {
    let mut said = Map::new();
    if !settled.leaks.is_empty() {
        said.insert("leaks".to_owned(), json!(settled.leaks));
    }
    if !settled.held.is_empty() {
        said.insert("held".to_owned(), json!(settled.held));
    }
    if let Some(network) = &settled.network {
        said.insert("network".to_owned(), json!(network));
    }
    some(said)
}

fn some(said: Map<String, Value>) -> CallDetails {
    (!said.is_empty()).then(|| Box::new(said))
}
