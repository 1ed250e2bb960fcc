//! The answers of a session's methods, from how a call ended. The daemon makes them for its clients and `ringfence mcp` for its
//! tools.

use ringfence_api::{
    ApiError, CallInfo, CallState, DirectoryEntry, ErrorCode, ExplainResult, ExplainSubject, FetchResult,
    TextOrBase64,
};
use ringfence_authz::Judgement;
use ringfence_egress::FetchResponse;
use ringfence_sandbox::files::ListedEntry;
use ringfence_types::{ByteString, Decision, Refusal};

use crate::{CallEnd, DryRunSubject, Settled, TOO_MANY};

/// Completes the state of a call with how it ended. The output is for a call that ran.
pub fn end_call(info: &mut CallInfo, settled: Settled, stdout: Option<Vec<u8>>, stderr: Option<Vec<u8>>) {
    info.transaction = settled.transaction.map(|id| id.to_string());
    info.posture = settled.posture;
    info.notice = settled.notice;
    info.leaks = settled.leaks.len() as u64;
    info.record_error = settled.record_error;
    match settled.ended {
        CallEnd::Executed(outcome) => {
            info.state = CallState::Done;
            info.exit_code = Some(outcome.exit.code());
            info.outcome = Some(outcome);
            (info.stdout, info.stderr) = (stdout.map(TextOrBase64::from), stderr.map(TextOrBase64::from));
        }
        CallEnd::Touched(_) => info.state = CallState::Done,
        CallEnd::Refused(refusal) => {
            info.state = CallState::Refused;
            info.refusal = Some(refusal);
        }
        CallEnd::Failed { what, hint } => {
            info.state = CallState::Failed;
            (info.failure, info.hint) = (Some(what), hint);
        }
    }
}

/// The error for a call without the wanted result.
pub fn not_done(ended: CallEnd) -> ApiError {
    match ended {
        CallEnd::Refused(refusal) if refusal.rule == TOO_MANY => {
            let mut told = ApiError::from(refusal);
            told.code = ErrorCode::TooLarge;
            told
        }
        CallEnd::Refused(refusal) => refusal.into(),
        // A missing file or a directory that is not empty: the state of the workspace, not an internal error.
        CallEnd::Failed { what, hint } => {
            let mut told = ApiError::new(ErrorCode::FailedPrecondition, what);
            told.hint = hint;
            told
        }
        CallEnd::Executed(_) | CallEnd::Touched(_) => {
            ApiError::new(ErrorCode::Internal, "something else was done")
        }
    }
}

pub fn directory_entry(entry: ListedEntry) -> DirectoryEntry {
    let name = TextOrBase64::from(ByteString::from(entry.name).as_slice().to_vec());
    DirectoryEntry { name, kind: entry.kind }
}

pub fn fetch_result(page: FetchResponse, transaction: Option<String>) -> FetchResult {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let headers = page.headers.into_iter().map(|(name, value)| (name, text(value))).collect();
    let (status, url, body) = (page.status, page.url, page.body.into());
    FetchResult { transaction, status, url, headers, body, details: None }
}

pub fn dry_run_subject(subject: ExplainSubject) -> Result<DryRunSubject, ApiError> {
    Ok(match subject {
        ExplainSubject::Argv(argv) if argv.is_empty() => {
            return Err(ApiError::new(ErrorCode::InvalidArgument, "the command is empty"));
        }
        ExplainSubject::Argv(argv) => {
            DryRunSubject::Argv(argv.iter().map(|word| ByteString::from(word.as_str())).collect())
        }
        ExplainSubject::Shell(text) => DryRunSubject::Shell(ByteString::from(text.as_str())),
        ExplainSubject::Read(path) => DryRunSubject::Read(ByteString::from(path)),
        ExplainSubject::Write(path) => DryRunSubject::Write(ByteString::from(path)),
        ExplainSubject::Url(url) => DryRunSubject::Url { url: ByteString::from(url.as_str()), method: None },
        ExplainSubject::Tool(name) => DryRunSubject::Tool(name),
    })
}

pub fn explain_result(judged: Result<Judgement, Refusal>) -> ExplainResult {
    match judged {
        Ok(judgement) => {
            let decision = match judgement.decision() {
                Decision::Allow => "allow",
                Decision::Ask => "ask",
                Decision::Deny => "deny",
            };
            let part = judgement.decisive();
            ExplainResult {
                decision: decision.to_owned(),
                rule: part.map(|part| part.rule.clone()),
                reason: part.map(|part| part.reason.to_string()),
                hint: part.and_then(|part| part.fix.as_deref().map(str::to_owned)),
                details: None,
            }
        }
        Err(refusal) => ExplainResult {
            decision: "deny".to_owned(),
            rule: Some(refusal.rule),
            reason: Some(refusal.message),
            hint: refusal.hint,
            details: None,
        },
    }
}
