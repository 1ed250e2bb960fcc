//! Each tool, through the pipeline of the session.

use std::path::{Path, PathBuf};

use ringfence_runtime::{
    AgentSession, Ended, Interrupt, Io, Runtime, Settled, Source, Subject, Target, Touched, consider,
    tool_refused,
};
use ringfence_types::{Bytes, Call, Exec, Fetch, FileCall, StandardInput};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::jobs::Jobs;
use super::result::settled;
use crate::asked::Governed;
use crate::{error, explain, hook};
use ringfence_mcp::BuiltIn;
use ringfence_mcp::input::{self, read};
use ringfence_mcp::result::{self, Page, Printed, malformed, structured};
use ringfence_types::Denial;

/// Where the calls of one connection are done.
pub(super) struct Desk<'a, 'scope> {
    pub(super) session: AgentSession<'a>,
    pub(super) runtime: &'a Runtime,
    pub(super) governed: &'a Governed,
    pub(super) background: Jobs<'a, 'scope>,
}

/// What came of one call, with the streams of a command.
struct Done {
    settled: Settled,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

type Interrupts<'i> = [Interrupt<'i>];

impl Desk<'_, '_> {
    pub(super) fn perform(
        &mut self,
        tool: BuiltIn,
        arguments: &Value,
        interrupts: &Interrupts<'_>,
    ) -> CallToolResult {
        if let Some(no) = self.tool_denied(tool) {
            return no;
        }
        let done = match tool {
            BuiltIn::Exec => read(arguments).map(|input| self.exec(input, interrupts)),
            BuiltIn::ReadFile => read(arguments).map(|input| self.read_file(input, interrupts)),
            BuiltIn::WriteFile => read(arguments).map(|input| self.write_file(input, interrupts)),
            BuiltIn::EditFile => read(arguments).map(|input| self.edit_file(input, interrupts)),
            BuiltIn::ListDir => read(arguments).map(|input| self.list_dir(input, interrupts)),
            BuiltIn::Search => read(arguments).map(|input| self.search(input, interrupts)),
            BuiltIn::Fetch => read(arguments).map(|input| self.fetch(input, interrupts)),
            BuiltIn::Jobs => read(arguments).map(|input| self.jobs(input)),
            BuiltIn::Explain => read(arguments).map(|input| self.explain(input)),
            BuiltIn::PermissionPrompt => Ok(self.permission_prompt(arguments)),
        };
        done.unwrap_or_else(|wrong| wrong)
    }

    fn tool_denied(&self, tool: BuiltIn) -> Option<CallToolResult> {
        if !tool.is_judged_by_name() {
            return None;
        }
        let subject = Subject::Tool(tool.to_string());
        let judged = consider(self.runtime.setup(), &self.governed.asked(), None, subject);
        let refusal = tool_refused(judged)?;
        let unrecorded = self.runtime.refuse(&refusal).err().map(|error| error::chain(&error));
        let refused = Settled {
            transaction: None,
            ended: Ended::Refused(refusal),
            posture: None,
            network: None,
            note: None,
            leaks: Vec::new(),
            held: Vec::new(),
            unrecorded,
        };
        self.not_done(tool.word(), &refused)
    }

    fn call(&mut self, call: Call, stdin: Source<'_>, interrupts: &Interrupts<'_>) -> Done {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let io = Io {
            stdin,
            stdout: Target::Buffer(&mut stdout),
            stderr: Target::Buffer(&mut stderr),
            interrupts,
            timeout: None,
            output_bytes: 0,
        };
        let settled = self.session.call(call, io);
        Done { settled, stdout, stderr }
    }

    fn command(&mut self, argv: Vec<Bytes>, cwd: Option<&Path>, interrupts: &Interrupts<'_>) -> Done {
        let exec = self.exec_of(argv, cwd);
        self.call(Call::Exec(exec), Source::Empty, interrupts)
    }

    fn exec_of(&self, argv: Vec<Bytes>, cwd: Option<&Path>) -> Exec {
        let workspace = self.session.workspace().path.clone();
        let cwd = cwd.map_or_else(|| workspace.clone(), |cwd| workspace.join(cwd));
        let net = self.governed.effective.policy.net;
        Exec { argv, cwd: Bytes::from(cwd), env: Vec::new(), net, stdin: StandardInput::None }
    }

    fn said(&self, what: &str, settled_call: &Settled) -> Map<String, Value> {
        let workspace = &self.session.workspace().path;
        settled(settled_call, |refusal| Denial::of(what, refusal, Some(workspace)))
    }

    /// A result without anything of its own: the answer was no, or we broke.
    fn not_done(&self, what: &str, settled: &Settled) -> Option<CallToolResult> {
        let shown = match &settled.ended {
            Ended::Refused(refusal) => Denial::of(what, refusal, Some(&self.session.workspace().path)).text(),
            Ended::Failed { what, hint: None } => what.clone(),
            Ended::Failed { what, hint: Some(hint) } => format!("{what}\n{hint}"),
            Ended::Executed(_) | Ended::Touched(_) => return None,
        };
        Some(structured(self.said(what, settled), &shown))
    }

    fn exec(&mut self, input: input::Exec, interrupts: &Interrupts<'_>) -> CallToolResult {
        self.session.set_stated_reason(input.description);
        let done = self.command(hook::shell(&input.command), input.cwd.as_deref(), interrupts);
        self.session.set_stated_reason(None);
        let Ended::Executed(outcome) = &done.settled.ended else {
            return self.not_done("exec", &done.settled).unwrap_or_else(|| malformed("nothing was run"));
        };
        let printed = Printed { stdout: &done.stdout, stderr: &done.stderr };
        result::ran(self.said("exec", &done.settled), outcome, printed)
    }

    fn read_file(&mut self, input: input::Read, interrupts: &Interrupts<'_>) -> CallToolResult {
        let call = FileCall::Read { path: Bytes::from(input.path.as_path()) };
        let done = self.call(Call::File(call), Source::Empty, interrupts);
        let Ended::Touched(Touched::Read(bytes)) = &done.settled.ended else {
            return self
                .not_done("read_file", &done.settled)
                .unwrap_or_else(|| malformed("nothing was read"));
        };
        let Ok(all) = std::str::from_utf8(bytes) else { return malformed("the file is not text (UTF-8)") };
        result::content(self.said("read_file", &done.settled), all, &input)
    }

    fn written(&mut self, path: &Path, content: &[u8], interrupts: &Interrupts<'_>) -> Settled {
        let sha256 = ringfence_types::hex(Sha256::digest(content));
        let call = FileCall::Write { path: Bytes::from(path), sha256, bytes: content.len() as u64 };
        self.call(Call::File(call), Source::Bytes(content), interrupts).settled
    }

    fn write_file(&mut self, input: input::Write, interrupts: &Interrupts<'_>) -> CallToolResult {
        let settled = self.written(&input.path, input.content.as_bytes(), interrupts);
        let said = self.said("write_file", &settled);
        self.not_done("write_file", &settled).unwrap_or_else(|| structured(said, "written"))
    }

    fn edit_file(&mut self, input: input::Edit, interrupts: &Interrupts<'_>) -> CallToolResult {
        let call = FileCall::Read { path: Bytes::from(input.path.as_path()) };
        let done = self.call(Call::File(call), Source::Empty, interrupts);
        let Ended::Touched(Touched::Read(bytes)) = &done.settled.ended else {
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

    fn list_dir(&mut self, input: input::List, interrupts: &Interrupts<'_>) -> CallToolResult {
        let path = input.path.unwrap_or_else(|| PathBuf::from("."));
        let call = FileCall::List { path: Bytes::from(path.as_path()) };
        let done = self.call(Call::File(call), Source::Empty, interrupts);
        let Ended::Touched(Touched::Listed(entries)) = &done.settled.ended else {
            return self
                .not_done("list_dir", &done.settled)
                .unwrap_or_else(|| malformed("nothing was listed"));
        };
        let entries: Vec<_> =
            entries.iter().map(|entry| (entry.name.to_string_lossy().into_owned(), entry.kind)).collect();
        result::listed(self.said("list_dir", &done.settled), &entries)
    }

    fn search(&mut self, input: input::Search, interrupts: &Interrupts<'_>) -> CallToolResult {
        let path = input.path.unwrap_or_else(|| PathBuf::from("."));
        let mut argv = ringfence_mcp::search(&input.pattern).map(Bytes::from).to_vec();
        argv.push(Bytes::from(path.as_path()));
        let done = self.command(argv, None, interrupts);
        let Ended::Executed(outcome) = &done.settled.ended else {
            return self
                .not_done("search", &done.settled)
                .unwrap_or_else(|| malformed("nothing was searched"));
        };
        let printed = Printed { stdout: &done.stdout, stderr: &done.stderr };
        result::found(self.said("search", &done.settled), outcome, printed)
    }

    fn fetch(&mut self, input: input::Fetch, interrupts: &Interrupts<'_>) -> CallToolResult {
        let method = input.method.unwrap_or_else(|| "GET".to_owned());
        let call = Call::Fetch(Fetch::new(method, input.url));
        let done = self.call(call, Source::Empty, interrupts);
        let Ended::Touched(Touched::Fetched(page)) = &done.settled.ended else {
            return self.not_done("fetch", &done.settled).unwrap_or_else(|| malformed("nothing was fetched"));
        };
        let shown =
            |(name, value): &(String, Vec<u8>)| (name.clone(), String::from_utf8_lossy(value).into_owned());
        let headers = page.headers.iter().map(shown).collect();
        let page = Page { status: page.status, url: &page.url, headers, body: &page.body };
        result::fetched(self.said("fetch", &done.settled), page)
    }

    fn jobs(&mut self, input: input::Jobs) -> CallToolResult {
        match input {
            input::Jobs::Start { command, cwd, description } => {
                let exec = self.exec_of(hook::shell(&command), cwd.as_deref());
                self.background.start(self.governed.asked(), (exec, command, description))
            }
            input::Jobs::List {} => self.background.list(),
            input::Jobs::Logs { id } => self.background.logs(&id),
            input::Jobs::Signal { id, signal } => self.background.signal(&id, signal),
        }
    }

    fn explain(&self, input: input::Explain) -> CallToolResult {
        let subject = match input {
            input::Explain::Command(command) => Subject::Argv(hook::shell(&command)),
            input::Explain::Read(path) => Subject::Read(Bytes::from(path)),
            input::Explain::Write(path) => Subject::Write(Bytes::from(path)),
            input::Explain::Url(url) => Subject::Url { url: Bytes::from(url.as_str()), method: None },
            input::Explain::Tool(name) => Subject::Tool(name),
        };
        let judged = consider(self.runtime.setup(), &self.governed.asked(), None, subject);
        result::explained(json!(explain::json(judged.as_ref(), &[])))
    }

    /// One text block with JSON: that is what Claude Code reads.
    fn permission_prompt(&self, arguments: &Value) -> CallToolResult {
        let workspace = &self.session.workspace().path;
        let answer = hook::permission(workspace, self.session.id().as_str(), arguments).unwrap_or_else(|error| {
            json!({ "behavior": "deny", "message": format!("there is no judgement: {}", error::chain(&error)) })
        });
        CallToolResult::success(vec![ContentBlock::text(answer.to_string())])
    }
}
