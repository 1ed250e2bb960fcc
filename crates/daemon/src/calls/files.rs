//! File, fetch and explain calls, through the pipeline of the session.

use std::path::Path;

use ringfence_api::{
    ApiError, Attachment, CallState, DirectoryListing, ErrorCode, ExplainRequest, ExplainResult, FetchResult,
    FetchUrl, FileChangeResult, FileContent, FileInfo, ListDirectory, MOST_SENT, MoveFile, ReadFile,
    RemoveFile, SendFile, StatFile, TextOrBase64, WriteFile, WriteResult,
};
use ringfence_runtime::session_api::{
    directory_entry, dry_run_subject, explain_result, fetch_result, not_done,
};
use ringfence_runtime::{CallEnd, CommandIo, EffectOutput, OutputTarget, Settled, StdinSource, consider};
use ringfence_types::{ByteString, Call, FetchCall, FileCall};
use sha2::{Digest as _, Sha256};

use crate::admit::attenuation;
use crate::calls::ledger_approver::LedgerApprover;
use crate::calls::live_call::CallInputs;
use crate::calls::request_scope::SessionScope;
use crate::limits::budget::Permit;
use crate::observe::telemetry::{ToolCallInfo, tool_of};
use crate::server::Daemon;

/// Memory of a directory entry besides its name.
const ENTRY: usize = 256;

pub(crate) fn read(visit: SessionScope<'_>, request: &ReadFile) -> Result<FileContent, ApiError> {
    let (transaction, bytes) = read_bytes(visit, &request.path)?;
    Ok(FileContent { transaction, bytes: bytes.len() as u64, content: bytes.into(), details: None })
}

/// The content of a file, with the transaction that recorded the read.
pub(crate) fn read_bytes(
    visit: SessionScope<'_>,
    path: &Path,
) -> Result<(Option<String>, Vec<u8>), ApiError> {
    content(visit, FileCall::Read { path: ByteString::from(path) })
}

pub(crate) fn send(visit: SessionScope<'_>, request: &SendFile) -> Result<Attachment, ApiError> {
    let (transaction, content) =
        content(visit, FileCall::Send { path: ByteString::from(request.path.as_path()) })?;
    let name = request.path.file_name().unwrap_or_default();
    Ok(Attachment {
        transaction,
        name: TextOrBase64::from(ByteString::from(name).as_slice().to_vec()),
        bytes: content.len() as u64,
        sha256: digest(&content),
        content: content.into(),
    })
}

fn content(visit: SessionScope<'_>, call: FileCall) -> Result<(Option<String>, Vec<u8>), ApiError> {
    let what = call.path().display();
    let (settled, _place) = settle(visit, Call::File(call), what, b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        CallEnd::Touched(EffectOutput::Read(bytes)) => Ok((transaction, bytes)),
        ended => Err(not_done(ended)),
    }
}

fn digest(content: &[u8]) -> String {
    ringfence_types::hex(Sha256::digest(content))
}

pub(crate) fn write(visit: SessionScope<'_>, request: WriteFile) -> Result<WriteResult, ApiError> {
    let content = request.content.bytes()?;
    write_bytes(visit, &request.path, &content)
}

pub(crate) fn write_bytes(
    visit: SessionScope<'_>,
    path: &Path,
    content: &[u8],
) -> Result<WriteResult, ApiError> {
    let bytes = content.len() as u64;
    if bytes > MOST_SENT {
        return Err(ApiError::new(ErrorCode::TooLarge, format!("a file has at most {MOST_SENT} bytes here")));
    }
    let sha256 = digest(content);
    let call = FileCall::Write { path: ByteString::from(path), sha256, bytes };
    let (settled, _place) = settle(visit, Call::File(call), shown(path), content)?;
    let transaction = transaction(&settled);
    match settled.ended {
        CallEnd::Touched(EffectOutput::Written) => Ok(WriteResult { transaction, bytes, details: None }),
        ended => Err(not_done(ended)),
    }
}

pub(crate) fn list(visit: SessionScope<'_>, request: &ListDirectory) -> Result<DirectoryListing, ApiError> {
    let path = request.path.clone().unwrap_or_else(|| visit.live.bound.workspace().path.clone());
    let what = shown(&path);
    let (settled, _place) =
        settle(visit, Call::File(FileCall::List { path: ByteString::from(path) }), what, b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        CallEnd::Touched(EffectOutput::Listed(entries)) => {
            let names: usize = entries.iter().map(|entry| entry.name.len() + ENTRY).sum();
            visit.work.scale.room_for(names as u64)?;
            let entries = entries.into_iter().map(directory_entry).collect();
            Ok(DirectoryListing { transaction, entries, details: None })
        }
        ended => Err(not_done(ended)),
    }
}

pub(crate) fn stat(visit: SessionScope<'_>, request: &StatFile) -> Result<FileInfo, ApiError> {
    let call = Call::File(FileCall::Stat { path: ByteString::from(request.path.as_path()) });
    let (settled, _place) = settle(visit, call, shown(&request.path), b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        CallEnd::Touched(EffectOutput::Looked(status)) => Ok(FileInfo {
            transaction,
            kind: status.kind,
            bytes: status.bytes,
            mode: status.mode,
            modified: status.modified,
        }),
        ended => Err(not_done(ended)),
    }
}

pub(crate) fn rename(visit: SessionScope<'_>, request: &MoveFile) -> Result<FileChangeResult, ApiError> {
    let (path, to) = (ByteString::from(request.path.as_path()), ByteString::from(request.to.as_path()));
    change(visit, FileCall::Move { path, to })
}

pub(crate) fn remove(visit: SessionScope<'_>, request: &RemoveFile) -> Result<FileChangeResult, ApiError> {
    change(visit, FileCall::Remove { path: ByteString::from(request.path.as_path()) })
}

fn change(visit: SessionScope<'_>, call: FileCall) -> Result<FileChangeResult, ApiError> {
    let what = call.path().display();
    let (settled, _place) = settle(visit, Call::File(call), what, b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        CallEnd::Touched(EffectOutput::Moved | EffectOutput::Removed) => Ok(FileChangeResult { transaction }),
        ended => Err(not_done(ended)),
    }
}

pub(crate) fn fetch(visit: SessionScope<'_>, request: &FetchUrl) -> Result<FetchResult, ApiError> {
    let call = Call::Fetch(FetchCall::new("GET".to_owned(), request.url.clone()));
    let what = ByteString::from(request.url.as_str()).display();
    let (settled, _place) = settle(visit, call, what, b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        CallEnd::Touched(EffectOutput::Fetched(page)) => {
            visit.work.scale.room_for(page.body.len() as u64)?;
            Ok(fetch_result(page, transaction))
        }
        ended => Err(not_done(ended)),
    }
}

/// Evaluates policy without an effect. A target outside the token's attenuation is denied, whatever policy says.
pub(crate) fn explain(
    daemon: &Daemon,
    SessionScope { live, left, .. }: SessionScope<'_>,
    request: ExplainRequest,
) -> Result<ExplainResult, ApiError> {
    if let Some(reason) = attenuation::would_refuse(&request, left, &live.bound.workspace().path) {
        let (rule, decision) = (Some(attenuation::RULE.into()), "deny".to_owned());
        return Ok(ExplainResult { decision, rule, reason: Some(reason), hint: None, details: None });
    }
    let subject = dry_run_subject(request.subject)?;
    let mut lane = live.bound.call_handle();
    let judged = lane.renew().and_then(|()| consider(daemon.runtime.setup(), &lane.asked(), None, subject));
    Ok(explain_result(judged))
}

/// Runs one call without a command. The caller of this function drops the permit after it made the response, which may
/// wait for memory while it holds a thread.
fn settle(
    visit: SessionScope<'_>,
    call: Call,
    what: String,
    content: &[u8],
) -> Result<(Settled, Permit), ApiError> {
    let SessionScope { live, work, left, by, telemetry, parent } = visit;
    // The call may wait for an approval and holds a thread meanwhile.
    let place = live.places.acquire()?;
    let under_way = live.call(what, CallInputs::default())?;
    work.track(&under_way);
    let mut lane = live.bound.call_handle();
    let (tool, number) = (tool_of(&call).to_owned(), under_way.number);
    let span = telemetry.tool(ToolCallInfo { tool, session: live.id().clone(), number }, parent);
    if let Some(span) = &span {
        lane.set_observer(std::sync::Arc::clone(span) as _);
    }
    lane.set_approver(LedgerApprover { cancelled: std::sync::Arc::clone(&under_way.cancelled) });
    lane.set_attenuation(left.clone());
    lane.set_made_by(by.clone());
    lane.set_memory_budget(std::sync::Arc::new(work.scale.clone()));
    let bells = under_way.bells();
    let interrupts = bells.interrupts();
    let stdin = if content.is_empty() { StdinSource::Empty } else { StdinSource::Bytes(content) };
    let io = CommandIo {
        stdin,
        stdout: OutputTarget::Discard,
        stderr: OutputTarget::Discard,
        interrupts: &interrupts,
        timeout: None,
        output_bytes: 0,
    };
    let settled = lane.call(call, io);
    span.iter().for_each(|span| span.ended(&settled));
    under_way.end(|info| {
        info.transaction = transaction(&settled);
        info.notice.clone_from(&settled.notice);
        info.state = match &settled.ended {
            CallEnd::Executed(_) | CallEnd::Touched(_) => CallState::Done,
            CallEnd::Refused(_) => CallState::Refused,
            CallEnd::Failed { hint, .. } => {
                info.hint.clone_from(hint);
                CallState::Failed
            }
        };
    });
    live.touch();
    // Without memory the file was not read. That is not a failure of the call.
    work.scale.exhausted().map_or(Ok((settled, place)), Err)
}

fn shown(path: &Path) -> String {
    ByteString::from(path).display()
}

fn transaction(settled: &Settled) -> Option<String> {
    settled.transaction.as_ref().map(ToString::to_string)
}
