//! The tools, by the methods of one session. Both servers perform them with this code: `ringfence mcp` in its own process, and the
//! daemon for its clients.

use std::path::{Path, PathBuf};

use ringfence_api::{
    Api, ApiError, CallInfo, CallState, DirectoryEntry, ErrorCode, ExecRequest, ExplainRequest,
    ExplainSubject, FetchResult, ListCalls, ListDirectory, ReadFile, ShowCall, SignalCall, TextOrBase64,
    WriteFile,
};
use ringfence_types::{ByteString, Outcome, Refusal, RefusalNotice, SessionId};
use rmcp::model::CallToolResult;
use serde_json::{Map, Value, json};

use crate::input::{self, read};
use crate::result::{self, CommandOutput, PageResult, done, malformed, structured};
use crate::{BuiltinTool, shell};

/// How long a job start waits, to report jobs that end or are refused at once.
const AT_ONCE_MS: u64 = 300;

/// The session whose tools are used.
pub trait ToolSession: Api {
    fn id(&self) -> &SessionId;
    fn workspace(&self) -> &Path;

    /// Refuses a tool that policy denies by its name.
    fn check_name(&self, tool: BuiltinTool) -> impl Future<Output = Result<(), ApiError>>;

    fn fetch(
        &self,
        url: String,
        method: Option<String>,
    ) -> impl Future<Output = Result<FetchResult, ApiError>>;

    /// The last part of what a job printed.
    fn tail(&self, call: u64) -> impl Future<Output = Result<OutputTail, ApiError>>;

    /// Answers `permission_prompt`.
    fn permission(&self, arguments: &Value) -> CallToolResult;
}

/// What a job printed last.
#[derive(Debug)]
pub struct OutputTail {
    pub output: Vec<u8>,
    pub truncated: bool,
    pub info: CallInfo,
}

/// The result of a tool, or the error result.
type ToolResult = Result<CallToolResult, CallToolResult>;

/// Performs a tool with the arguments of a client.
pub async fn perform(session: &impl ToolSession, tool: BuiltinTool, arguments: &Value) -> CallToolResult {
    let call = ToolUse { session, tool };
    call.perform(arguments).await.unwrap_or_else(|instead| instead)
}

/// One use of a tool.
struct ToolUse<'s, S> {
    session: &'s S,
    tool: BuiltinTool,
}

impl<S: ToolSession> ToolUse<'_, S> {
    async fn perform(&self, arguments: &Value) -> ToolResult {
        if self.tool.is_judged_by_name() {
            self.session.check_name(self.tool).await.map_err(|error| self.not_done(error))?;
        }
        match self.tool {
            BuiltinTool::Exec => self.exec(read(arguments)?).await,
            BuiltinTool::ReadFile => self.read_file(read(arguments)?).await,
            BuiltinTool::WriteFile => self.write_file(read(arguments)?).await,
            BuiltinTool::EditFile => self.edit_file(read(arguments)?).await,
            BuiltinTool::ListDir => self.list_dir(read(arguments)?).await,
            BuiltinTool::Search => self.search(read(arguments)?).await,
            BuiltinTool::Fetch => self.fetch(read(arguments)?).await,
            BuiltinTool::Jobs => self.jobs(read(arguments)?).await,
            BuiltinTool::Explain => self.explain(read(arguments)?).await,
            BuiltinTool::PermissionPrompt => Ok(self.session.permission(arguments)),
        }
    }

    fn id(&self) -> SessionId {
        self.session.id().clone()
    }

    /// The result of a call that the session did not do.
    fn not_done(&self, error: ApiError) -> CallToolResult {
        let (mut said, shown) = if error.refusal.is_none() && error.code != ErrorCode::Forbidden {
            result::failed(&error.message, error.hint.as_deref())
        } else {
            result::denied(&self.denial(&error.as_refusal()))
        };
        said.extend(error.details.into_iter().flat_map(|details| *details));
        structured(said, &shown)
    }

    fn denial(&self, refusal: &Refusal) -> RefusalNotice {
        RefusalNotice::of(self.tool.word(), refusal, Some(self.session.workspace()))
    }

    fn command(&self, argv: &[&str], cwd: Option<PathBuf>) -> ExecRequest {
        ExecRequest {
            session: self.id(),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            cwd,
            environment: Default::default(),
            stdin: None,
            timeout_ms: None,
            background: false,
            interactive: false,
            terminal: None,
            reason: None,
            ceiling: None,
        }
    }

    /// Runs a command to its end, with its output.
    async fn run(&self, exec: ExecRequest) -> Result<CommandResult, CallToolResult> {
        let mut info = self.session.call(exec).await.map_err(|error| self.not_done(error))?;
        let (stdout, stderr) = (bytes(info.stdout.take())?, bytes(info.stderr.take())?);
        let (said, shown) = self.ended(&info);
        match info.outcome {
            Some(outcome) if info.state == CallState::Done => {
                Ok(CommandResult { outcome, said, stdout, stderr })
            }
            _ => Err(structured(said, &shown)),
        }
    }

    /// The fields of every result about a call, and the text of one that did nothing.
    fn ended(&self, info: &CallInfo) -> (Map<String, Value>, String) {
        let (mut said, shown) = match (info.state, &info.refusal) {
            (CallState::Refused, Some(refusal)) => result::denied(&self.denial(refusal)),
            (CallState::Running | CallState::Done, _) => (done(None), String::new()),
            _ => result::failed(info.failure.as_deref().unwrap_or_default(), info.hint.as_deref()),
        };
        said.extend(info.transaction.iter().map(|id| ("transaction".to_owned(), json!(id))));
        if let Some(posture) = info.posture.as_ref().filter(|posture| posture.ceiling.is_some()) {
            said.extend([("posture".to_owned(), json!(posture))]);
        }
        let leaks = (info.leaks > 0 && info.details.is_none()).then(|| {
            format!(
                "secrets were on their way out ({} times); the transaction says what became of them",
                info.leaks
            )
        });
        let unrecorded = info.record_error.as_deref().map(result::unrecorded);
        result::note(&mut said, [info.notice.clone(), leaks, unrecorded].into_iter().flatten());
        said.extend(info.details.iter().flat_map(|details| *details.clone()));
        (said, shown)
    }

    async fn exec(&self, input: input::ExecInput) -> ToolResult {
        let command = self.command(&shell(&input.command), input.cwd);
        let exec = ExecRequest { reason: input.description, ceiling: input.ceiling, ..command };
        let CommandResult { outcome, said, stdout, stderr } = self.run(exec).await?;
        Ok(result::ran(said, &outcome, CommandOutput { stdout: &stdout, stderr: &stderr }))
    }

    /// The text of a file, with the fields of the read.
    async fn text_of(&self, path: &Path) -> Result<(String, Map<String, Value>), CallToolResult> {
        let request = ReadFile { session: self.id(), path: path.to_owned() };
        let read = self.session.call(request).await.map_err(|error| self.not_done(error))?;
        let text = String::from_utf8(bytes(Some(read.content))?);
        let text = text.map_err(|_bytes| malformed("the file is not text (UTF-8)"))?;
        Ok((text, result::done_with(read.transaction, read.details)))
    }

    async fn read_file(&self, input: input::ReadInput) -> ToolResult {
        let (text, said) = self.text_of(&input.path).await?;
        Ok(result::content(said, &text, &input))
    }

    async fn write(&self, path: PathBuf, content: String) -> Result<Map<String, Value>, CallToolResult> {
        let request = WriteFile { session: self.id(), path, content: TextOrBase64::Text(content) };
        let written = self.session.call(request).await.map_err(|error| self.not_done(error))?;
        Ok(result::done_with(written.transaction, written.details))
    }

    async fn write_file(&self, input: input::WriteFileInput) -> ToolResult {
        Ok(structured(self.write(input.path, input.content).await?, "written"))
    }

    async fn edit_file(&self, input: input::EditInput) -> ToolResult {
        let (before, _read) = self.text_of(&input.path).await?;
        let (after, count) = input.applied(&before)?;
        Ok(result::edited(self.write(input.path, after).await?, count))
    }

    async fn list_dir(&self, input: input::ListInput) -> ToolResult {
        let request = ListDirectory { session: self.id(), path: input.path };
        let listing = self.session.call(request).await.map_err(|error| self.not_done(error))?;
        let named = |entry: DirectoryEntry| {
            Ok((String::from_utf8_lossy(&bytes(Some(entry.name))?).into_owned(), entry.kind))
        };
        let entries: Vec<_> =
            listing.entries.into_iter().map(named).collect::<Result<_, CallToolResult>>()?;
        Ok(result::listed(result::done_with(listing.transaction, listing.details), &entries))
    }

    async fn search(&self, input: input::SearchInput) -> ToolResult {
        let path = input.path.unwrap_or_else(|| PathBuf::from("."));
        let path = path.to_str().ok_or_else(|| malformed("the path is not text (UTF-8)"))?;
        let argv: Vec<&str> = crate::search(&input.pattern).into_iter().chain([path]).collect();
        let CommandResult { outcome, said, stdout, stderr } = self.run(self.command(&argv, None)).await?;
        Ok(result::found(said, &outcome, CommandOutput { stdout: &stdout, stderr: &stderr }))
    }

    async fn fetch(&self, input: input::FetchInput) -> ToolResult {
        let page = self.session.fetch(input.url, input.method).await;
        let page = page.map_err(|error| self.not_done(error))?;
        let body = bytes(Some(page.body))?;
        let said = result::done_with(page.transaction, page.details);
        let page = PageResult { status: page.status, url: &page.url, headers: page.headers, body: &body };
        Ok(result::fetched(said, page))
    }

    async fn jobs(&self, input: input::JobsInput) -> ToolResult {
        let session = self.id();
        let failed = |error| self.not_done(error);
        match input {
            input::JobsInput::Start { command, cwd, description } => {
                let exec = self.command(&shell(&command), cwd);
                let exec = ExecRequest { background: true, reason: description, ..exec };
                let call = self.session.call(exec).await.map_err(failed)?.call;
                let wait = ShowCall { session, call, wait_ms: Some(AT_ONCE_MS) };
                Ok(self.told(&[self.session.call(wait).await.map_err(failed)?]))
            }
            input::JobsInput::List {} => {
                Ok(self.told(&self.session.call(ListCalls { session }).await.map_err(failed)?.calls))
            }
            input::JobsInput::Logs { id } => {
                let tail = self.session.tail(number(&id)?).await.map_err(failed)?;
                Ok(result::logs(self.line(&tail.info), &tail))
            }
            input::JobsInput::Signal { id, signal } => {
                let call = number(&id)?;
                let signal = SignalCall { session: session.clone(), call, signal };
                let _done = self.session.call(signal).await.map_err(failed)?;
                let show = ShowCall { session, call, wait_ms: None };
                Ok(self.told(&[self.session.call(show).await.map_err(failed)?]))
            }
        }
    }

    fn told(&self, calls: &[CallInfo]) -> CallToolResult {
        result::jobs(calls.iter().map(|info| self.line(info)).collect())
    }

    fn line(&self, info: &CallInfo) -> Value {
        let is_over = info.state != CallState::Running;
        let mut line = if is_over { self.ended(info).0 } else { Map::new() };
        if let Some(outcome) = &info.outcome {
            result::exited(&mut line, outcome);
        }
        line.insert("state".to_owned(), json!(if is_over { "over" } else { "running" }));
        line.insert("id".to_owned(), json!(format!("job-{}", info.call)));
        line.insert("command".to_owned(), json!(info.summary));
        Value::Object(line)
    }

    async fn explain(&self, input: input::ExplainInput) -> ToolResult {
        let subject = match input {
            input::ExplainInput::Command(command) => {
                ExplainSubject::Argv(shell(&command).map(str::to_owned).to_vec())
            }
            input::ExplainInput::Read(path) => ExplainSubject::Read(path),
            input::ExplainInput::Write(path) => ExplainSubject::Write(path),
            input::ExplainInput::Url(url) => ExplainSubject::Url(url),
            input::ExplainInput::Tool(name) => ExplainSubject::Tool(name),
        };
        let request = ExplainRequest { session: self.id(), subject };
        let mut explained = self.session.call(request).await.map_err(|error| self.not_done(error))?;
        let details = explained.details.take();
        Ok(result::explained(details.map_or_else(|| json!(explained), |details| Value::Object(*details))))
    }
}

/// The result of a command.
struct CommandResult {
    outcome: Outcome,
    said: Map<String, Value>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

fn bytes(data: Option<TextOrBase64>) -> Result<Vec<u8>, CallToolResult> {
    data.map(TextOrBase64::bytes)
        .transpose()
        .map(Option::unwrap_or_default)
        .map_err(|error| malformed(&error.message))
}

/// A job is a call of the session, named by its number.
fn number(id: &str) -> Result<u64, CallToolResult> {
    let number = id.strip_prefix("job-").and_then(|number| number.parse().ok());
    number.ok_or_else(|| malformed(&format!("there is no job `{}`", ByteString::from(id).display())))
}
