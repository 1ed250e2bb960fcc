//! Files, pages and questions about policy, through the pipeline of the session.

use std::path::Path;

use ringfence_api::{
    ApiError, Attachment, CallState, Changed, Data, Entry, ErrorCode, Explain, ExplainSubject, Explained,
    FetchUrl, Fetched, FileContent, FileStatus, ListDirectory, Listing, MOST_SENT, MoveFile, ReadFile,
    RemoveFile, SendFile, StatFile, WriteFile, Written,
};
use ringfence_runtime::{Ended, Io, Settled, Source, Subject, TOO_MANY, Target, Touched, consider};
use ringfence_types::{Bytes, Call, Decision, Fetch, FileCall};
use sha2::{Digest as _, Sha256};

use crate::call::Inlets;
use crate::desk::Desk;
use crate::failure::{malformed, refused};
use crate::narrowed;
use crate::places::Place;
use crate::server::Daemon;
use crate::telemetry::{ToolCall, tool_of};
use crate::waiter::Visit;

/// What an entry of a directory takes up besides its name.
const ENTRY: usize = 256;

pub(crate) fn read(visit: Visit<'_>, request: &ReadFile) -> Result<FileContent, ApiError> {
    let (transaction, bytes) = read_bytes(visit, &request.path)?;
    Ok(FileContent { transaction, bytes: bytes.len() as u64, content: bytes.into() })
}

/// What is in a file, with the transaction that says who has read it.
pub(crate) fn read_bytes(visit: Visit<'_>, path: &Path) -> Result<(Option<String>, Vec<u8>), ApiError> {
    content(visit, FileCall::Read { path: Bytes::from(path) })
}

pub(crate) fn send(visit: Visit<'_>, request: &SendFile) -> Result<Attachment, ApiError> {
    let (transaction, content) =
        content(visit, FileCall::Send { path: Bytes::from(request.path.as_path()) })?;
    let name = request.path.file_name().unwrap_or_default();
    Ok(Attachment {
        transaction,
        name: Data::from(Bytes::from(name).as_slice().to_vec()),
        bytes: content.len() as u64,
        sha256: digest(&content),
        content: content.into(),
    })
}

fn content(visit: Visit<'_>, call: FileCall) -> Result<(Option<String>, Vec<u8>), ApiError> {
    let what = call.path().display();
    let (settled, _place) = settle(visit, (Call::File(call), what), b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        Ended::Touched(Touched::Read(bytes)) => Ok((transaction, bytes)),
        ended => Err(not_done(ended)),
    }
}

fn digest(content: &[u8]) -> String {
    ringfence_types::hex(Sha256::digest(content))
}

pub(crate) fn write(visit: Visit<'_>, request: WriteFile) -> Result<Written, ApiError> {
    let content = request.content.bytes()?;
    write_bytes(visit, &request.path, &content)
}

pub(crate) fn write_bytes(visit: Visit<'_>, path: &Path, content: &[u8]) -> Result<Written, ApiError> {
    let bytes = content.len() as u64;
    if bytes > MOST_SENT {
        return Err(ApiError::new(ErrorCode::TooLarge, format!("a file has at most {MOST_SENT} bytes here")));
    }
    let sha256 = digest(content);
    let call = FileCall::Write { path: Bytes::from(path), sha256, bytes };
    let (settled, _place) = settle(visit, (Call::File(call), shown(path)), content)?;
    let transaction = transaction(&settled);
    match settled.ended {
        Ended::Touched(Touched::Written) => Ok(Written { transaction, bytes }),
        ended => Err(not_done(ended)),
    }
}

pub(crate) fn list(visit: Visit<'_>, request: &ListDirectory) -> Result<Listing, ApiError> {
    let path = request.path.clone().unwrap_or_else(|| visit.live.bound.workspace().path.clone());
    let what = shown(&path);
    let (settled, _place) =
        settle(visit, (Call::File(FileCall::List { path: Bytes::from(path) }), what), b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        Ended::Touched(Touched::Listed(entries)) => {
            let names: usize = entries.iter().map(|entry| entry.name.len() + ENTRY).sum();
            visit.work.scale.room_for(names as u64)?;
            let mut listed = Vec::with_capacity(entries.len());
            for entry in entries {
                let name = Data::from(Bytes::from(entry.name).as_slice().to_vec());
                listed.push(Entry { name, kind: entry.kind });
            }
            Ok(Listing { transaction, entries: listed })
        }
        ended => Err(not_done(ended)),
    }
}

pub(crate) fn stat(visit: Visit<'_>, request: &StatFile) -> Result<FileStatus, ApiError> {
    let call = Call::File(FileCall::Stat { path: Bytes::from(request.path.as_path()) });
    let (settled, _place) = settle(visit, (call, shown(&request.path)), b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        Ended::Touched(Touched::Looked(status)) => Ok(FileStatus {
            transaction,
            kind: status.kind,
            bytes: status.bytes,
            mode: status.mode,
            modified: status.modified,
        }),
        ended => Err(not_done(ended)),
    }
}

pub(crate) fn rename(visit: Visit<'_>, request: &MoveFile) -> Result<Changed, ApiError> {
    let (path, to) = (Bytes::from(request.path.as_path()), Bytes::from(request.to.as_path()));
    change(visit, FileCall::Move { path, to })
}

pub(crate) fn remove(visit: Visit<'_>, request: &RemoveFile) -> Result<Changed, ApiError> {
    change(visit, FileCall::Remove { path: Bytes::from(request.path.as_path()) })
}

fn change(visit: Visit<'_>, call: FileCall) -> Result<Changed, ApiError> {
    let what = call.path().display();
    let (settled, _place) = settle(visit, (Call::File(call), what), b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        Ended::Touched(Touched::Moved | Touched::Removed) => Ok(Changed { transaction }),
        ended => Err(not_done(ended)),
    }
}

pub(crate) fn fetch(visit: Visit<'_>, request: &FetchUrl) -> Result<Fetched, ApiError> {
    let call = Call::Fetch(Fetch::new("GET".to_owned(), request.url.clone()));
    let what = Bytes::from(request.url.as_str()).display();
    let (settled, _place) = settle(visit, (call, what), b"")?;
    let transaction = transaction(&settled);
    match settled.ended {
        Ended::Touched(Touched::Fetched(page)) => {
            visit.work.scale.room_for(page.body.len() as u64)?;
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            let headers = page.headers.into_iter().map(|(name, value)| (name, text(value))).collect();
            let (status, url) = (page.status, page.url);
            Ok(Fetched { transaction, status, url, headers, body: page.body.into() })
        }
        ended => Err(not_done(ended)),
    }
}

/// Judges without doing anything, for whoever asks: what their token was handed on without is not for them, whatever policy says.
pub(crate) fn explain(
    daemon: &Daemon,
    Visit { live, left, .. }: Visit<'_>,
    request: Explain,
) -> Result<Explained, ApiError> {
    if let Some(reason) = narrowed::would_refuse(&request, left, &live.bound.workspace().path) {
        let (rule, decision) = (Some(narrowed::RULE.to_owned()), "deny".to_owned());
        return Ok(Explained { decision, rule, reason: Some(reason), hint: None });
    }
    let words = |argv: Vec<String>| argv.iter().map(|word| Bytes::from(word.as_str())).collect();
    let subject = match request.subject {
        ExplainSubject::Argv(argv) if argv.is_empty() => return Err(malformed("the command is empty")),
        ExplainSubject::Argv(argv) => Subject::Argv(words(argv)),
        ExplainSubject::Shell(text) => Subject::Shell(Bytes::from(text.as_str())),
        ExplainSubject::Read(path) => Subject::Read(Bytes::from(path)),
        ExplainSubject::Write(path) => Subject::Write(Bytes::from(path)),
        ExplainSubject::Url(url) => Subject::Url { url: Bytes::from(url.as_str()), method: None },
        ExplainSubject::Tool(name) => Subject::Tool(name),
    };
    let mut lane = live.bound.lane();
    let judged = lane.renew().and_then(|()| consider(daemon.runtime.setup(), &lane.asked(), None, subject));
    Ok(match judged {
        Ok(judgement) => {
            let decision = match judgement.decision() {
                Decision::Allow => "allow",
                Decision::Ask => "ask",
                Decision::Deny => "deny",
            };
            let part = judgement.decisive();
            Explained {
                decision: decision.to_owned(),
                rule: part.map(|part| part.rule.clone().into_owned()),
                reason: part.map(|part| part.reason.to_string()),
                hint: part.and_then(|part| part.fix.as_deref().map(str::to_owned)),
            }
        }
        Err(refusal) => Explained {
            decision: "deny".to_owned(),
            rule: Some(refusal.rule),
            reason: Some(refusal.message),
            hint: refusal.hint,
        },
    })
}

/// One call without a command, from beginning to end. Its place is given back by whoever has made the answer: that may wait for room
/// and has a thread meanwhile.
fn settle(
    visit: Visit<'_>,
    (call, what): (Call, String),
    content: &[u8],
) -> Result<(Settled, Place), ApiError> {
    let Visit { live, work, left, by, telemetry, parent } = visit;
    // It may wait for a person, and has a thread meanwhile.
    let place = live.places.take()?;
    let under_way = live.call(what, Inlets::default())?;
    work.includes(&under_way);
    let mut lane = live.bound.lane();
    let (tool, number) = (tool_of(&call).to_owned(), under_way.number);
    let span = telemetry.tool(ToolCall { tool, session: live.id().clone(), number }, parent);
    if let Some(span) = &span {
        lane.set_observer(std::sync::Arc::clone(span) as _);
    }
    lane.set_approver(Desk { cancelled: std::sync::Arc::clone(&under_way.cancelled) });
    lane.set_left(left.clone());
    lane.set_made_by(by.clone());
    lane.set_weigher(std::sync::Arc::new(work.scale.clone()));
    let bells = under_way.bells();
    let interrupts = bells.interrupts();
    let stdin = if content.is_empty() { Source::Empty } else { Source::Bytes(content) };
    let io = Io {
        stdin,
        stdout: Target::Discard,
        stderr: Target::Discard,
        interrupts: &interrupts,
        timeout: None,
        output_bytes: 0,
    };
    let settled = lane.call(call, io);
    span.iter().for_each(|span| span.ended(&settled));
    under_way.end(|info| {
        info.transaction = transaction(&settled);
        info.note.clone_from(&settled.note);
        info.state = match &settled.ended {
            Ended::Executed(_) | Ended::Touched(_) => CallState::Done,
            Ended::Refused(_) => CallState::Refused,
            Ended::Failed { hint, .. } => {
                info.hint.clone_from(hint);
                CallState::Failed
            }
        };
    });
    live.touch();
    // What there was no room for was not read, which is nothing that is wrong with it.
    work.scale.crowded().map_or(Ok((settled, place)), Err)
}

fn shown(path: &Path) -> String {
    Bytes::from(path).display()
}

fn transaction(settled: &Settled) -> Option<String> {
    settled.transaction.as_ref().map(ToString::to_string)
}

fn not_done(ended: Ended) -> ApiError {
    match ended {
        Ended::Refused(refusal) if refusal.rule == TOO_MANY => {
            let mut told = refused(&refusal);
            told.code = ErrorCode::TooLarge;
            told
        }
        Ended::Refused(refusal) => refused(&refusal),
        // A file that is not there, a directory that is not empty: that is how the workspace stands.
        Ended::Failed { what, hint } => {
            let told = ApiError::new(ErrorCode::Conflict, what);
            hint.map_or(told.clone(), |hint| told.with_hint(hint))
        }
        Ended::Executed(_) | Ended::Touched(_) => {
            ApiError::new(ErrorCode::Internal, "something else was done")
        }
    }
}
