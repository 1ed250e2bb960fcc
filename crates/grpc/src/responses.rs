//! Conversion of responses of the daemon to messages, field by field.

use ringfence_api as api;
use ringfence_api::{ApiError, TextOrBase64};
use serde::Serialize;
use serde_json::Value;

use crate::v1;

/// Converts an enum to its JSON text.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(value) => value.to_string(),
        Err(_) => String::new(),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn all<A, M: TryFrom<A, Error = ApiError>>(values: Vec<A>) -> Result<Vec<M>, ApiError> {
    values.into_iter().map(M::try_from).collect()
}

fn texts(values: &[impl Serialize]) -> Vec<String> {
    values.iter().map(json).collect()
}

fn bytes(data: Option<TextOrBase64>) -> Result<Option<Vec<u8>>, ApiError> {
    data.map(TextOrBase64::bytes).transpose()
}

/// One line per response.
macro_rules! become_message {
    ($($answer:ty => $message:ident, |$value:pat_param| $made:expr;)+) => {
        $(impl TryFrom<$answer> for v1::$message {
            type Error = ApiError;

            fn try_from(answer: $answer) -> Result<Self, ApiError> {
                // Destructures all fields, so that none can be forgotten.
                let $value = answer;
                Ok($made)
            }
        })+
    };
}

become_message! {
    api::Health => Health, |api::Health { version }| Self { version };
    api::Readiness => Ready, |api::Readiness { ready, reasons }| Self { ready, reasons };
    api::CallerInfo => Identity, |api::CallerInfo { name, kind, scopes, workspaces }| Self {
        name,
        kind,
        scopes: api::Scope::ALL.iter().filter(|scope| scopes.contains(**scope)).map(ToString::to_string).collect(),
        workspaces: workspaces.map(|paths| v1::Workspaces { paths }),
    };
    api::Empty => ShuttingDown, |api::Empty { record_error: _ }| Self {};
    api::Empty => CallDone, |api::Empty { record_error: _ }| Self {};
    api::SessionList => SessionList, |api::SessionList { sessions }| Self { sessions: all(sessions)? };
    api::SessionInfo => Session, |info| session(info);
    api::ActivityReceipt => ActivityReceipt, |api::ActivityReceipt { seq }| Self { seq };
    api::EventMessage => Event, |api::EventMessage { seq, time, kind, session, event }| Self {
        seq,
        time,
        kind,
        session: session.map(|session| session.to_string()),
        event_json: event.to_string(),
    };
    api::CallList => CallList, |api::CallList { calls }| Self { calls: all(calls)? };
    api::CallInfo => Call, |info| call(info)?;
    api::OutputChunk => CallChunk, |piece| chunk(piece)?;
    api::ApprovalList => ApprovalList, |api::ApprovalList { approvals }| Self { approvals: all(approvals)? };
    api::Approval => Approval, |info| approval(info);
    api::ReplyResult => ApprovalResult, |result| reply_result(result);
    api::GrantInfo => Grant, |info| grant(info);
    api::GrantList => GrantList, |api::GrantList { grants }| Self { grants: all(grants)? };
    api::GrantsRevoked => GrantsRevoked, |api::GrantsRevoked { grants }| Self { grants };
    // The length is that of the content.
    api::FileContent => FileContent, |api::FileContent { transaction, bytes: _, content, details: _ }| Self {
        transaction,
        content: content.bytes()?,
    };
    api::WriteResult => FileWritten, |api::WriteResult { transaction, bytes, details: _ }| Self { transaction, bytes };
    api::DirectoryListing => DirectoryListing, |api::DirectoryListing { transaction, entries, details: _ }| Self { transaction, entries: all(entries)? };
    api::DirectoryEntry => DirectoryEntry, |api::DirectoryEntry { name, kind }| Self { name: name.bytes()?, kind: kind.to_string() };
    api::FileInfo => FileStatus, |api::FileInfo { transaction, kind, bytes, mode, modified }| Self {
        transaction,
        kind: kind.to_string(),
        bytes,
        mode,
        modified,
    };
    api::FileChangeResult => FileChanged, |api::FileChangeResult { transaction }| Self { transaction };
    api::Attachment => Attachment, |api::Attachment { transaction, name, bytes: _, sha256, content }| Self {
        transaction,
        name: name.bytes()?,
        sha256,
        content: content.bytes()?,
    };
    api::FetchResult => FetchResult, |api::FetchResult { transaction, status, url, headers, body, details: _ }| Self {
        transaction,
        url,
        status: status.into(),
        headers: headers.into_iter().map(|(name, value)| v1::HttpHeader { name, value }).collect(),
        body: body.bytes()?,
    };
    api::ExplainResult => Explanation, |api::ExplainResult { decision, rule, reason, hint, details: _ }| Self { decision, rule: rule.map(String::from), reason, hint };
    api::TokenList => TokenList, |api::TokenList { tokens }| Self { tokens_json: texts(&tokens) };
    api::MintedToken => MintedToken, |api::MintedToken { token, secret }| Self { token_json: json(&token), secret };
    api::Empty => IdentityDone, |api::Empty { record_error: _ }| Self {};
    api::OperatorList => OperatorList, |api::OperatorList { operators }| Self { operators_json: texts(&operators) };
    api::OperatorInfo => Operator, |api::OperatorInfo { operator, record_error: _ }| Self { operator_json: json(&operator) };
    api::DeviceChallenge => DeviceChallenge, |api::DeviceChallenge { subject, nonce }| Self { subject, nonce };
    api::PairingInfo => Pairing, |api::PairingInfo { pairing }| Self { pairing_json: json(&pairing) };
    api::PairingList => PairingList, |api::PairingList { pairings }| Self { pairings_json: texts(&pairings) };
}

fn session(info: api::SessionInfo) -> v1::Session {
    let api::SessionInfo {
        session,
        label,
        agent_name,
        state,
        end_reason,
        workspace,
        workspace_id,
        profile,
        net,
        parent,
        agent_process,
        limits,
        started_at,
        created_by,
        running_calls,
        calls,
        timeout_s,
        idle_timeout_s,
        record_error: _,
    } = info;
    let state = match state {
        api::SessionState::Running => v1::SessionState::Running,
        api::SessionState::Stopping => v1::SessionState::Stopping,
        api::SessionState::Ended => v1::SessionState::Ended,
    };
    v1::Session {
        session: session.to_string(),
        label,
        agent_name,
        state: state.into(),
        end_reason,
        workspace: word(&workspace),
        workspace_id: word(&workspace_id),
        profile: word(&profile),
        net: word(&net),
        parent: parent.map(|parent| parent.to_string()),
        agent_process: agent_process.map(|api::AgentProcessInfo { argv, exit_code, failure }| {
            v1::AgentProcess { argv, exit_code: exit_code.map(u32::from), failure }
        }),
        limits_json: json(&limits),
        started_at,
        created_by,
        running_calls,
        calls,
        timeout_s,
        idle_timeout_s,
    }
}

fn call(info: api::CallInfo) -> Result<v1::Call, ApiError> {
    let api::CallInfo {
        call,
        summary,
        state,
        transaction,
        exit_code,
        outcome,
        refusal,
        failure,
        hint,
        posture,
        stdout,
        stderr,
        notice,
        leaks,
        record_error,
        details: _,
    } = info;
    let state = match state {
        api::CallState::Running => v1::CallState::Running,
        api::CallState::Done => v1::CallState::Done,
        api::CallState::Refused => v1::CallState::Refused,
        api::CallState::Failed => v1::CallState::Failed,
    };
    Ok(v1::Call {
        call,
        summary,
        state: state.into(),
        transaction,
        exit_code: exit_code.map(u32::from),
        outcome_json: outcome.as_ref().map(json),
        refusal: refusal.map(refused),
        failure,
        posture_json: posture.as_ref().map(json),
        stdout: bytes(stdout)?,
        stderr: bytes(stderr)?,
        notice,
        leaks,
        record_error,
        hint,
    })
}

fn refused(refusal: ringfence_types::Refusal) -> v1::Refusal {
    let ringfence_types::Refusal { code, layer, rule, message, hint } = refusal;
    v1::Refusal { code: word(&code), layer: word(&layer), rule: rule.into(), message, hint }
}

fn chunk(chunk: api::OutputChunk) -> Result<v1::CallChunk, ApiError> {
    use v1::call_chunk::Chunk;
    let (seq, chunk) = match chunk {
        api::OutputChunk::Stdout { seq, data } => (seq, Chunk::Stdout(data.bytes()?)),
        api::OutputChunk::Stderr { seq, data } => (seq, Chunk::Stderr(data.bytes()?)),
        api::OutputChunk::Dropped { seq } => (seq, Chunk::Dropped(v1::ChunksDropped {})),
        api::OutputChunk::Ended { seq, call: info } => (seq, Chunk::Ended(Box::new(call(*info)?))),
        // In gRPC an aborted stream ends with a status.
        api::OutputChunk::Closed { error } => return Err(*error),
    };
    Ok(v1::CallChunk { seq, chunk: Some(chunk) })
}

fn approval(info: api::Approval) -> v1::Approval {
    let api::Approval {
        id,
        session,
        requested_at,
        expires_at,
        risk,
        summary,
        request,
        votes,
        decision,
        orphaned,
    } = info;
    let (request_json, votes_json) = (json(&request), texts(&votes));
    let decision_json = decision.as_ref().map(json);
    v1::Approval {
        id,
        session,
        requested_at,
        expires_at,
        risk,
        summary,
        request_json,
        decision_json,
        votes_json,
        orphaned,
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn reply_result(result: api::ReplyResult) -> v1::ApprovalResult {
    use v1::approval_result::Result as ApprovalOutcome;
    let result = match result {
        api::ReplyResult::Decided { answer, grant: created } => {
            ApprovalOutcome::Decided(v1::ApprovalDecided {
                answer: word(&answer),
                grant: created.map(|created| grant(*created)),
            })
        }
        api::ReplyResult::VoteCounted { approvals, denials } => {
            ApprovalOutcome::VoteCounted(v1::VoteCounted {
                approvals: number(approvals),
                denials: number(denials),
            })
        }
    };
    v1::ApprovalResult { result: Some(result) }
}

fn grant(info: api::GrantInfo) -> v1::Grant {
    let api::GrantInfo { id, record, created_at, uses, uses_left, would_have_matched } = info;
    let would_have_matched = would_have_matched.map(|api::GrantMatchCount { count, total }| {
        v1::GrantMatchCount { count: number(count), total: number(total) }
    });
    v1::Grant { id, record_json: json(&record), created_at, uses, uses_left, would_have_matched }
}
