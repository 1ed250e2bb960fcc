//! Implements each tool with methods of the table.

use std::path::PathBuf;

use ringfence_api::methods::ApiRequest;
use ringfence_api::{
    ApiError, CallInfo, CallSignal, CallState, DirectoryEntry, ErrorCode, ExecRequest, ExplainRequest,
    ExplainSubject, FetchUrl, ListCalls, ListDirectory, Method, ReadFile, ShowCall, SignalCall, TextOrBase64,
    WriteFile,
};
use ringfence_mcp::input::{self, JobSignal, read};
use ringfence_mcp::result::{self, CommandOutput, MOST, PageResult, done, malformed, refused, structured};
use ringfence_mcp::{BuiltinTool, shell};
use ringfence_runtime::{DryRunSubject, consider, tool_refused};
use ringfence_types::{Outcome, Refusal, RefusalNotice};
use rmcp::model::CallToolResult;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::server::HttpMcpServer;
use crate::calls::handle::{MethodResponse, ask, blocking};
use crate::errors::{internal, malformed as no_sense, refusal_of};

/// How long a job start waits, to report jobs that end or are refused at once.
const AT_ONCE_MS: u64 = 300;

/// The result of a tool, or the error result.
type ToolResult = Result<CallToolResult, CallToolResult>;

pub(super) async fn perform(server: &HttpMcpServer, tool: BuiltinTool, arguments: &Value) -> CallToolResult {
    let told = match server.tool_denied(tool).await {
        Some(no) => Err(no),
        None => server.tool(tool, arguments).await,
    };
    told.unwrap_or_else(|instead| instead)
}

impl HttpMcpServer {
    async fn tool(&self, tool: BuiltinTool, arguments: &Value) -> ToolResult {
        match tool {
            BuiltinTool::Exec => self.exec(read(arguments)?).await,
            BuiltinTool::ReadFile => self.read_file(read(arguments)?).await,
            BuiltinTool::WriteFile => self.write_file(read(arguments)?).await,
            BuiltinTool::EditFile => self.edit_file(read(arguments)?).await,
            BuiltinTool::ListDir => self.list_dir(read(arguments)?).await,
            BuiltinTool::Search => self.search(read(arguments)?).await,
            BuiltinTool::Fetch => self.fetch(read(arguments)?).await,
            BuiltinTool::Jobs => self.jobs(read(arguments)?).await,
            BuiltinTool::Explain => self.explain(read(arguments)?).await,
            // Not offered over this transport.
            BuiltinTool::PermissionPrompt => {
                Err(malformed("an agent of a session has no tools outside of it"))
            }
        }
    }

    /// Calls a method like every other client.
    async fn call<R>(&self, what: &str, request: &R) -> Result<R::Answer, CallToolResult>
    where
        R: ApiRequest + Serialize + Sync,
    {
        let answered = async {
            let value = serde_json::to_value(request).map_err(|error| internal(&error))?;
            match ask(&self.visitor.line.daemon, self.visitor.arrived(R::METHOD, value)).await? {
                MethodResponse::Value(response, scale) => {
                    self.visitor.keep(scale);
                    R::answer(*response).ok_or_else(|| no_sense("this is another method"))
                }
                MethodResponse::Stream(..) => Err(no_sense("this is a stream")),
            }
        };
        answered.await.map_err(|error| self.not_done(what, &error))
    }

    fn not_done(&self, what: &str, error: &ApiError) -> CallToolResult {
        if error.refusal.is_none() && error.code != ErrorCode::Forbidden {
            return malformed(&error.message);
        }
        refused(&self.denial(what, &refusal_of(error)))
    }

    fn denial(&self, what: &str, refusal: &Refusal) -> RefusalNotice {
        RefusalNotice::of(what, refusal, Some(&self.workspace))
    }

    async fn tool_denied(&self, tool: BuiltinTool) -> Option<CallToolResult> {
        if !tool.is_judged_by_name() {
            return None;
        }
        let admitted = self.visitor.admit(Method::Mcp, json!({ "session": self.visitor.session })).await;
        let daemon = std::sync::Arc::clone(&self.visitor.line.daemon);
        let judged = blocking(move || {
            let live = admitted?.live.ok_or_else(|| no_sense("the request names no session"))?;
            let mut lane = live.bound.call_handle();
            let subject = DryRunSubject::Tool(tool.to_string());
            let judged =
                lane.renew().and_then(|()| consider(daemon.runtime.setup(), &lane.asked(), None, subject));
            let Some(refusal) = tool_refused(judged) else { return Ok(None) };
            lane.refuse(&refusal).map_err(|error| internal(&error))?;
            Ok(Some(refusal))
        });
        match judged.await {
            Ok(refusal) => refusal.map(|refusal| refused(&self.denial(tool.word(), &refusal))),
            Err(error) => Some(self.not_done(tool.word(), &error)),
        }
    }

    fn command(&self, argv: &[&str], cwd: Option<PathBuf>) -> ExecRequest {
        ExecRequest {
            session: self.visitor.session.clone(),
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
    async fn run(&self, what: &str, exec: &ExecRequest) -> Result<CommandResult, CallToolResult> {
        let mut info = self.call(what, exec).await?;
        let (stdout, stderr) = (bytes(info.stdout.take())?, bytes(info.stderr.take())?);
        let said = self.said(what, &info);
        if let (CallState::Done, Some(outcome)) = (info.state, info.outcome.take()) {
            return Ok(CommandResult { outcome, said, stdout, stderr });
        }
        let shown = match &info.refusal {
            Some(refusal) => self.denial(what, refusal).text(),
            None => {
                let failure = info.failure.unwrap_or_default();
                info.hint.map_or(failure.clone(), |hint| format!("{failure}\n{hint}"))
            }
        };
        Err(structured(said, &shown))
    }

    /// The fields of every call result.
    fn said(&self, what: &str, info: &CallInfo) -> Map<String, Value> {
        let mut said = Map::new();
        let mut say = |name: &str, value: Value| said.insert(name.to_owned(), value);
        match info.state {
            CallState::Running | CallState::Done => say("ended", json!("done")),
            CallState::Refused => {
                say("denial", json!(info.refusal.as_ref().map(|refusal| self.denial(what, refusal))));
                say("ended", json!("refused"))
            }
            CallState::Failed => {
                say("failure", json!(info.failure));
                if let Some(hint) = &info.hint {
                    say("hint", json!(hint));
                }
                say("ended", json!("failed"))
            }
        };
        if let Some(transaction) = &info.transaction {
            say("transaction", json!(transaction));
        }
        if let Some(posture) = info.posture.as_ref().filter(|posture| posture.ceiling.is_some()) {
            say("posture", json!(posture));
        }
        let leaks = (info.leaks > 0).then(|| {
            format!(
                "secrets were on their way out ({} times); the transaction says what became of them",
                info.leaks
            )
        });
        let unrecorded = info.record_error.as_deref().map(result::unrecorded);
        result::note(&mut said, [info.notice.clone(), leaks, unrecorded].into_iter().flatten());
        said
    }

    async fn exec(&self, input: input::ExecInput) -> ToolResult {
        let command = self.command(&shell(&input.command), input.cwd);
        let exec = ExecRequest { reason: input.description, ceiling: input.ceiling, ..command };
        let CommandResult { outcome, said, stdout, stderr } = self.run("exec", &exec).await?;
        Ok(result::ran(said, &outcome, CommandOutput { stdout: &stdout, stderr: &stderr }))
    }

    /// The text of a file, with the transaction of the read.
    async fn text_of(&self, what: &str, path: &std::path::Path) -> Result<FileText, CallToolResult> {
        let request = ReadFile { session: self.visitor.session.clone(), path: path.to_owned() };
        let read = self.call(what, &request).await?;
        let text = String::from_utf8(bytes(Some(read.content))?);
        let text = text.map_err(|_bytes| malformed("the file is not text (UTF-8)"))?;
        Ok(FileText { text, transaction: read.transaction })
    }

    async fn read_file(&self, input: input::ReadInput) -> ToolResult {
        let read = self.text_of("read_file", &input.path).await?;
        Ok(result::content(done(read.transaction), &read.text, &input))
    }

    async fn write(
        &self,
        what: &str,
        path: PathBuf,
        content: String,
    ) -> Result<Option<String>, CallToolResult> {
        let session = self.visitor.session.clone();
        let request = WriteFile { session, path, content: TextOrBase64::Text(content) };
        Ok(self.call(what, &request).await?.transaction)
    }

    async fn write_file(&self, input: input::WriteFileInput) -> ToolResult {
        let transaction = self.write("write_file", input.path, input.content).await?;
        Ok(structured(done(transaction), "written"))
    }

    async fn edit_file(&self, input: input::EditInput) -> ToolResult {
        let before = self.text_of("edit_file", &input.path).await?;
        let (after, count) = input.applied(&before.text)?;
        let said = done(self.write("edit_file", input.path, after).await?);
        Ok(result::edited(said, count))
    }

    async fn list_dir(&self, input: input::ListInput) -> ToolResult {
        let request = ListDirectory { session: self.visitor.session.clone(), path: input.path };
        let listing = self.call("list_dir", &request).await?;
        let named = |entry: DirectoryEntry| {
            Ok((String::from_utf8_lossy(&bytes(Some(entry.name))?).into_owned(), entry.kind))
        };
        let entries: Vec<_> =
            listing.entries.into_iter().map(named).collect::<Result<_, CallToolResult>>()?;
        Ok(result::listed(done(listing.transaction), &entries))
    }

    async fn search(&self, input: input::SearchInput) -> ToolResult {
        let path = input.path.unwrap_or_else(|| PathBuf::from("."));
        let path = path.to_str().ok_or_else(|| malformed("the path is not text (UTF-8)"))?;
        let argv: Vec<&str> = ringfence_mcp::search(&input.pattern).into_iter().chain([path]).collect();
        let CommandResult { outcome, said, stdout, stderr } =
            self.run("search", &self.command(&argv, None)).await?;
        Ok(result::found(said, &outcome, CommandOutput { stdout: &stdout, stderr: &stderr }))
    }

    async fn fetch(&self, input: input::FetchInput) -> ToolResult {
        if input.method.is_some_and(|method| method != "GET") {
            return Err(malformed("only `GET` is done here"));
        }
        let request = FetchUrl { session: self.visitor.session.clone(), url: input.url };
        let page = self.call("fetch", &request).await?;
        let body = bytes(Some(page.body))?;
        let said = done(page.transaction);
        let page = PageResult { status: page.status, url: &page.url, headers: page.headers, body: &body };
        Ok(result::fetched(said, page))
    }

    async fn jobs(&self, input: input::JobsInput) -> ToolResult {
        let session = self.visitor.session.clone();
        match input {
            input::JobsInput::Start { command, cwd, description } => {
                let exec = self.command(&shell(&command), cwd);
                let started =
                    self.call("jobs", &ExecRequest { background: true, reason: description, ..exec }).await?;
                let wait = ShowCall { session, call: started.call, wait_ms: Some(AT_ONCE_MS) };
                let info = self.call("jobs", &wait).await?;
                Ok(self.told(&[info]))
            }
            input::JobsInput::List {} => {
                Ok(self.told(&self.call("jobs", &ListCalls { session }).await?.calls))
            }
            input::JobsInput::Logs { id } => self.logs(number(&id)?).await,
            input::JobsInput::Signal { id, signal } => {
                let call = number(&id)?;
                let signal = SignalCall { session: session.clone(), call, signal: of_call(signal) };
                let _done = self.call("jobs", &signal).await?;
                let info = self.call("jobs", &ShowCall { session, call, wait_ms: None }).await?;
                Ok(self.told(&[info]))
            }
        }
    }

    fn told(&self, calls: &[CallInfo]) -> CallToolResult {
        result::jobs(calls.iter().map(|info| self.line(info)).collect())
    }

    fn line(&self, info: &CallInfo) -> Value {
        let is_over = info.state != CallState::Running;
        let mut line = if is_over { self.said("jobs", info) } else { Map::new() };
        if let Some(outcome) = &info.outcome {
            result::exited(&mut line, outcome);
        }
        line.insert("state".to_owned(), json!(if is_over { "over" } else { "running" }));
        line.insert("id".to_owned(), json!(format!("job-{}", info.call)));
        line.insert("command".to_owned(), json!(info.summary));
        Value::Object(line)
    }

    /// The output so far. The client asks again for more.
    async fn logs(&self, call: u64) -> ToolResult {
        let value = json!({ "session": self.visitor.session, "call": call });
        let printed = async {
            let admitted = self.visitor.admit(Method::CallOutput, value).await?;
            let live = admitted.live.ok_or_else(|| no_sense("the request names no session"))?;
            let call = live.find_call(call)?;
            Ok((call.output.tail(MOST), call.info()))
        };
        let ((output, is_part), info) =
            printed.await.map_err(|error: ApiError| self.not_done("jobs", &error))?;
        let output = String::from_utf8_lossy(&output).into_owned();
        let mut said = done(None);
        said.insert("jobs".to_owned(), json!([self.line(&info)]));
        said.insert("truncated".to_owned(), json!(is_part));
        said.insert("output".to_owned(), json!(output));
        Ok(structured(said, &output))
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
        let request = ExplainRequest { session: self.visitor.session.clone(), subject };
        Ok(result::explained(json!(self.call("explain", &request).await?)))
    }
}

/// The result of a command.
struct CommandResult {
    outcome: Outcome,
    said: Map<String, Value>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

struct FileText {
    text: String,
    transaction: Option<String>,
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
    number.ok_or_else(|| {
        malformed(&format!("there is no job `{}`", ringfence_types::ByteString::from(id).display()))
    })
}

fn of_call(signal: JobSignal) -> CallSignal {
    match signal {
        JobSignal::Term => CallSignal::Term,
        JobSignal::Int => CallSignal::Int,
        JobSignal::Hup => CallSignal::Hup,
        JobSignal::Kill => CallSignal::Kill,
    }
}
