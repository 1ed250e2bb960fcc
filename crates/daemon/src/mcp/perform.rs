//! Each tool as methods of the table.

use std::path::PathBuf;

use ringfence_api::methods::Asks;
use ringfence_api::{
    ApiError, CallInfo, CallSignal, CallState, Data, Entry, ErrorCode, Exec, Explain, ExplainSubject,
    FetchUrl, ListCalls, ListDirectory, Method, ReadFile, ShowCall, SignalCall, WriteFile,
};
use ringfence_mcp::input::{self, JobSignal, read};
use ringfence_mcp::result::{self, MOST, Page, Printed, done, malformed, refused, structured};
use ringfence_mcp::{BuiltIn, shell};
use ringfence_runtime::{Subject, consider, tool_refused};
use ringfence_types::{Denial, Outcome, Refusal};
use rmcp::model::CallToolResult;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::server::Server;
use crate::ask::{Answer, ask, blocking};
use crate::failure::{internal, malformed as no_sense, refusal_of};

/// How long a start waits to tell what became of a job that ends, or is refused, at once.
const AT_ONCE_MS: u64 = 300;

/// What came of a tool, or what is said instead.
type Told = Result<CallToolResult, CallToolResult>;

pub(super) async fn perform(server: &Server, tool: BuiltIn, arguments: &Value) -> CallToolResult {
    let told = match server.tool_denied(tool).await {
        Some(no) => Err(no),
        None => server.tool(tool, arguments).await,
    };
    told.unwrap_or_else(|instead| instead)
}

impl Server {
    async fn tool(&self, tool: BuiltIn, arguments: &Value) -> Told {
        match tool {
            BuiltIn::Exec => self.exec(read(arguments)?).await,
            BuiltIn::ReadFile => self.read_file(read(arguments)?).await,
            BuiltIn::WriteFile => self.write_file(read(arguments)?).await,
            BuiltIn::EditFile => self.edit_file(read(arguments)?).await,
            BuiltIn::ListDir => self.list_dir(read(arguments)?).await,
            BuiltIn::Search => self.search(read(arguments)?).await,
            BuiltIn::Fetch => self.fetch(read(arguments)?).await,
            BuiltIn::Jobs => self.jobs(read(arguments)?).await,
            BuiltIn::Explain => self.explain(read(arguments)?).await,
            // Not offered here.
            BuiltIn::PermissionPrompt => Err(malformed("an agent of a session has no tools outside of it")),
        }
    }

    /// Asks the daemon like everybody else.
    async fn call<R>(&self, what: &str, request: &R) -> Result<R::Answer, CallToolResult>
    where
        R: Asks + Serialize + Sync,
    {
        let answered = async {
            let value = serde_json::to_value(request).map_err(|error| internal(&error))?;
            match ask(&self.visitor.line.daemon, self.visitor.arrived(R::METHOD, value)).await? {
                Answer::Value(value, scale) => {
                    self.visitor.keep(scale);
                    serde_json::from_value(value).map_err(|error| internal(&error))
                }
                Answer::Stream(..) => Err(no_sense("this is a stream")),
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

    fn denial(&self, what: &str, refusal: &Refusal) -> Denial {
        Denial::of(what, refusal, Some(&self.workspace))
    }

    async fn tool_denied(&self, tool: BuiltIn) -> Option<CallToolResult> {
        if !tool.is_judged_by_name() {
            return None;
        }
        let admitted = self.visitor.admit(Method::Mcp, json!({ "session": self.visitor.session })).await;
        let daemon = std::sync::Arc::clone(&self.visitor.line.daemon);
        let judged = blocking(move || {
            let live = admitted?.live.ok_or_else(|| no_sense("the request names no session"))?;
            let mut lane = live.bound.lane();
            let subject = Subject::Tool(tool.to_string());
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

    fn command(&self, argv: &[&str], cwd: Option<PathBuf>) -> Exec {
        Exec {
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
        }
    }

    /// A command to its end, with what it printed.
    async fn run(&self, what: &str, exec: &Exec) -> Result<Ran, CallToolResult> {
        let mut info = self.call(what, exec).await?;
        let (stdout, stderr) = (bytes(info.stdout.take())?, bytes(info.stderr.take())?);
        let said = self.said(what, &info);
        if let (CallState::Done, Some(outcome)) = (info.state, info.outcome.take()) {
            return Ok(Ran { outcome, said, stdout, stderr });
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

    /// What every result of a call says.
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
        let leaks = (info.leaks > 0).then(|| {
            format!(
                "secrets were on their way out ({} times); the transaction says what became of them",
                info.leaks
            )
        });
        let unrecorded = info.unrecorded.as_deref().map(result::unrecorded);
        result::note(&mut said, [info.note.clone(), leaks, unrecorded].into_iter().flatten());
        said
    }

    async fn exec(&self, input: input::Exec) -> Told {
        let exec = Exec { reason: input.description, ..self.command(&shell(&input.command), input.cwd) };
        let Ran { outcome, said, stdout, stderr } = self.run("exec", &exec).await?;
        Ok(result::ran(said, &outcome, Printed { stdout: &stdout, stderr: &stderr }))
    }

    /// The text of a file, with the transaction of its reading.
    async fn text_of(&self, what: &str, path: &std::path::Path) -> Result<Read, CallToolResult> {
        let request = ReadFile { session: self.visitor.session.clone(), path: path.to_owned() };
        let read = self.call(what, &request).await?;
        let text = String::from_utf8(bytes(Some(read.content))?);
        let text = text.map_err(|_bytes| malformed("the file is not text (UTF-8)"))?;
        Ok(Read { text, transaction: read.transaction })
    }

    async fn read_file(&self, input: input::Read) -> Told {
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
        let request = WriteFile { session, path, content: Data::Text(content) };
        Ok(self.call(what, &request).await?.transaction)
    }

    async fn write_file(&self, input: input::Write) -> Told {
        let transaction = self.write("write_file", input.path, input.content).await?;
        Ok(structured(done(transaction), "written"))
    }

    async fn edit_file(&self, input: input::Edit) -> Told {
        let before = self.text_of("edit_file", &input.path).await?;
        let (after, count) = input.applied(&before.text)?;
        let said = done(self.write("edit_file", input.path, after).await?);
        Ok(result::edited(said, count))
    }

    async fn list_dir(&self, input: input::List) -> Told {
        let request = ListDirectory { session: self.visitor.session.clone(), path: input.path };
        let listing = self.call("list_dir", &request).await?;
        let named =
            |entry: Entry| Ok((String::from_utf8_lossy(&bytes(Some(entry.name))?).into_owned(), entry.kind));
        let entries: Vec<_> =
            listing.entries.into_iter().map(named).collect::<Result<_, CallToolResult>>()?;
        Ok(result::listed(done(listing.transaction), &entries))
    }

    async fn search(&self, input: input::Search) -> Told {
        let path = input.path.unwrap_or_else(|| PathBuf::from("."));
        let path = path.to_str().ok_or_else(|| malformed("the path is not text (UTF-8)"))?;
        let argv: Vec<&str> = ringfence_mcp::search(&input.pattern).into_iter().chain([path]).collect();
        let Ran { outcome, said, stdout, stderr } = self.run("search", &self.command(&argv, None)).await?;
        Ok(result::found(said, &outcome, Printed { stdout: &stdout, stderr: &stderr }))
    }

    async fn fetch(&self, input: input::Fetch) -> Told {
        if input.method.is_some_and(|method| method != "GET") {
            return Err(malformed("only `GET` is done here"));
        }
        let request = FetchUrl { session: self.visitor.session.clone(), url: input.url };
        let page = self.call("fetch", &request).await?;
        let body = bytes(Some(page.body))?;
        let said = done(page.transaction);
        let page = Page { status: page.status, url: &page.url, headers: page.headers, body: &body };
        Ok(result::fetched(said, page))
    }

    async fn jobs(&self, input: input::Jobs) -> Told {
        let session = self.visitor.session.clone();
        match input {
            input::Jobs::Start { command, cwd, description } => {
                let exec = self.command(&shell(&command), cwd);
                let started =
                    self.call("jobs", &Exec { background: true, reason: description, ..exec }).await?;
                let wait = ShowCall { session, call: started.call, wait_ms: Some(AT_ONCE_MS) };
                let info = self.call("jobs", &wait).await?;
                Ok(self.told(&[info]))
            }
            input::Jobs::List {} => Ok(self.told(&self.call("jobs", &ListCalls { session }).await?.calls)),
            input::Jobs::Logs { id } => self.logs(number(&id)?).await,
            input::Jobs::Signal { id, signal } => {
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
        line.insert("command".to_owned(), json!(info.what));
        Value::Object(line)
    }

    /// What there is by now: whoever wants more asks again.
    async fn logs(&self, call: u64) -> Told {
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

    async fn explain(&self, input: input::Explain) -> Told {
        let subject = match input {
            input::Explain::Command(command) => {
                ExplainSubject::Argv(shell(&command).map(str::to_owned).to_vec())
            }
            input::Explain::Read(path) => ExplainSubject::Read(path),
            input::Explain::Write(path) => ExplainSubject::Write(path),
            input::Explain::Url(url) => ExplainSubject::Url(url),
            input::Explain::Tool(name) => ExplainSubject::Tool(name),
        };
        let request = Explain { session: self.visitor.session.clone(), subject };
        Ok(result::explained(json!(self.call("explain", &request).await?)))
    }
}

/// A command that ran.
struct Ran {
    outcome: Outcome,
    said: Map<String, Value>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

struct Read {
    text: String,
    transaction: Option<String>,
}

fn bytes(data: Option<Data>) -> Result<Vec<u8>, CallToolResult> {
    data.map(Data::bytes)
        .transpose()
        .map(Option::unwrap_or_default)
        .map_err(|error| malformed(&error.message))
}

/// Jobs are calls of the session, by their number.
fn number(id: &str) -> Result<u64, CallToolResult> {
    let number = id.strip_prefix("job-").and_then(|number| number.parse().ok());
    number.ok_or_else(|| {
        malformed(&format!("there is no job `{}`", ringfence_types::Bytes::from(id).display()))
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
