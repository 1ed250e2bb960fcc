//! From answers of the daemon to messages, field by field.

use ringfence_api as api;
use ringfence_api::{ApiError, Data};
use serde::Serialize;
use serde_json::Value;

use crate::v1;

/// What has a word in JSON is that word here.
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

fn texts(values: Vec<Value>) -> Vec<String> {
    values.iter().map(Value::to_string).collect()
}

fn bytes(data: Option<Data>) -> Result<Option<Vec<u8>>, ApiError> {
    data.map(Data::bytes).transpose()
}

/// One line for each answer.
macro_rules! become_message {
    ($($answer:ty => $message:ident, |$value:pat_param| $made:expr;)+) => {
        $(impl TryFrom<$answer> for v1::$message {
            type Error = ApiError;

            fn try_from(answer: $answer) -> Result<Self, ApiError> {
                // All of its fields, so that none can be forgotten.
                let $value = answer;
                Ok($made)
            }
        })+
    };
}

become_message! {
    api::Health => Health, |api::Health { version }| Self { version };
    api::Ready => Ready, |api::Ready { ready, because }| Self { ready, because };
    api::Identity => Identity, |api::Identity { name, kind, scopes, workspaces }| Self {
        name,
        kind,
        scopes: api::Scope::ALL.iter().filter(|scope| scopes.contains(**scope)).map(ToString::to_string).collect(),
        workspaces: workspaces.map(|paths| v1::Workspaces { paths }),
    };
    api::Done => ShuttingDown, |api::Done {}| Self {};
    api::Done => CallDone, |api::Done {}| Self {};
    api::SessionList => SessionList, |api::SessionList { sessions }| Self { sessions: all(sessions)? };
    api::SessionInfo => Session, |info| session(info);
    api::Reported => ActivityReported, |api::Reported { seq }| Self { seq };
    api::Happened => Event, |api::Happened { seq, time, kind, session, event }| Self {
        seq,
        time,
        kind,
        session: session.map(|session| session.to_string()),
        event_json: event.to_string(),
    };
    api::CallList => CallList, |api::CallList { calls }| Self { calls: all(calls)? };
    api::CallInfo => Call, |info| call(info)?;
    api::Chunk => CallChunk, |piece| chunk(piece)?;
    api::ApprovalList => ApprovalList, |api::ApprovalList { questions }| Self { questions: all(questions)? };
    api::Question => Question, |question| asked(question);
    api::Answered => ApprovalAnswered, |what| answered(what);
    api::StoredAnswer => StoredAnswer, |answer| stored(answer);
    api::GrantList => GrantList, |api::GrantList { grants }| Self { grants: all(grants)? };
    api::GrantsRevoked => GrantsRevoked, |api::GrantsRevoked { grants }| Self { grants };
    // The length is that of the content.
    api::FileContent => FileContent, |api::FileContent { transaction, bytes: _, content }| Self {
        transaction,
        content: content.bytes()?,
    };
    api::Written => FileWritten, |api::Written { transaction, bytes }| Self { transaction, bytes };
    api::Listing => DirectoryListing, |api::Listing { transaction, entries }| Self { transaction, entries: all(entries)? };
    api::Entry => DirectoryEntry, |api::Entry { name, kind }| Self { name: name.bytes()?, kind: kind.to_string() };
    api::FileStatus => FileStatus, |api::FileStatus { transaction, kind, bytes, mode, modified }| Self {
        transaction,
        kind: kind.to_string(),
        bytes,
        mode,
        modified,
    };
    api::Changed => FileChanged, |api::Changed { transaction }| Self { transaction };
    api::Attachment => Attachment, |api::Attachment { transaction, name, bytes: _, sha256, content }| Self {
        transaction,
        name: name.bytes()?,
        sha256,
        content: content.bytes()?,
    };
    api::Fetched => Page, |api::Fetched { transaction, status, url, headers, body }| Self {
        transaction,
        url,
        status: status.into(),
        headers: headers.into_iter().map(|(name, value)| v1::PageHeader { name, value }).collect(),
        body: body.bytes()?,
    };
    api::Explained => Explanation, |api::Explained { decision, rule, reason, hint }| Self { decision, rule, reason, hint };
    api::TokenList => TokenList, |api::TokenList { tokens }| Self { tokens_json: texts(tokens) };
    api::MintedToken => MintedToken, |api::MintedToken { token, secret }| Self { token_json: token.to_string(), secret };
    api::Done => IdentityDone, |api::Done {}| Self {};
    api::OperatorList => OperatorList, |api::OperatorList { operators }| Self { operators_json: texts(operators) };
    api::OperatorShown => Operator, |api::OperatorShown { operator }| Self { operator_json: operator.to_string() };
    api::DeviceChallenge => DeviceChallenge, |api::DeviceChallenge { subject, nonce }| Self { subject, nonce };
    api::PairingShown => Pairing, |api::PairingShown { pairing }| Self { pairing_json: pairing.to_string() };
    api::PairingList => PairingList, |api::PairingList { waiting }| Self { waiting_json: texts(waiting) };
}

fn session(info: api::SessionInfo) -> v1::Session {
    let api::SessionInfo {
        session,
        label,
        agent,
        state,
        ended,
        workspace,
        workspace_id,
        profile,
        net,
        parent,
        provider,
        limits,
        started,
        created_by,
        running,
        calls,
        timeout_s,
        idle_timeout_s,
    } = info;
    let state = match state {
        api::SessionState::Running => v1::SessionState::Running,
        api::SessionState::Stopping => v1::SessionState::Stopping,
        api::SessionState::Ended => v1::SessionState::Ended,
    };
    v1::Session {
        session: session.to_string(),
        label,
        agent,
        state: state.into(),
        ended,
        workspace: word(&workspace),
        workspace_id: word(&workspace_id),
        profile: word(&profile),
        net: word(&net),
        parent: parent.map(|parent| parent.to_string()),
        provider: provider.map(|api::ProviderInfo { argv, exit_code, failure }| v1::Provider {
            argv,
            exit_code: exit_code.map(u32::from),
            failure,
        }),
        limits_json: json(&limits),
        started,
        created_by,
        running,
        calls,
        timeout_s,
        idle_timeout_s,
    }
}

fn call(info: api::CallInfo) -> Result<v1::Call, ApiError> {
    let api::CallInfo {
        call,
        what,
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
        note,
        leaks,
        unrecorded,
    } = info;
    let state = match state {
        api::CallState::Running => v1::CallState::Running,
        api::CallState::Done => v1::CallState::Done,
        api::CallState::Refused => v1::CallState::Refused,
        api::CallState::Failed => v1::CallState::Failed,
    };
    Ok(v1::Call {
        call,
        what,
        state: state.into(),
        transaction,
        exit_code: exit_code.map(u32::from),
        outcome_json: outcome.as_ref().map(json),
        refusal: refusal.map(refused),
        failure,
        posture_json: posture.as_ref().map(json),
        stdout: bytes(stdout)?,
        stderr: bytes(stderr)?,
        note,
        leaks,
        unrecorded,
        hint,
    })
}

fn refused(refusal: ringfence_types::Refusal) -> v1::Refusal {
    let ringfence_types::Refusal { code, layer, rule, message, hint } = refusal;
    v1::Refusal { code: word(&code), layer: word(&layer), rule, message, hint }
}

fn chunk(chunk: api::Chunk) -> Result<v1::CallChunk, ApiError> {
    use v1::call_chunk::Chunk;
    let (seq, chunk) = match chunk {
        api::Chunk::Stdout { seq, data } => (seq, Chunk::Stdout(data.bytes()?)),
        api::Chunk::Stderr { seq, data } => (seq, Chunk::Stderr(data.bytes()?)),
        api::Chunk::Lost { seq } => (seq, Chunk::Lost(v1::ChunksLost {})),
        api::Chunk::Ended { seq, call: info } => (seq, Chunk::Ended(Box::new(call(*info)?))),
        // Here a stream that is cut ends with a status.
        api::Chunk::Cut { error } => return Err(*error),
    };
    Ok(v1::CallChunk { seq, chunk: Some(chunk) })
}

fn asked(question: api::Question) -> v1::Question {
    let api::Question { id, session, asked, expires, risk, sentence, request, votes, decision, asker_gone } =
        question;
    let (request_json, votes_json) = (request.to_string(), texts(votes));
    let decision_json = decision.map(|decision| decision.to_string());
    v1::Question {
        id,
        session,
        asked,
        expires,
        risk,
        sentence,
        request_json,
        decision_json,
        votes_json,
        asker_gone,
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn answered(answered: api::Answered) -> v1::ApprovalAnswered {
    use v1::approval_answered::Answered;
    let answered = match answered {
        api::Answered::Decided { answer, stored: made } => {
            Answered::Decided(v1::ApprovalDecided { answer, stored: made.map(|made| stored(*made)) })
        }
        api::Answered::Counted { approve, deny } => {
            Answered::Counted(v1::ApprovalCounted { approve: number(approve), deny: number(deny) })
        }
    };
    v1::ApprovalAnswered { answered: Some(answered) }
}

fn stored(answer: api::StoredAnswer) -> v1::StoredAnswer {
    let api::StoredAnswer { id, grant, since, used, uses_left, matched } = answer;
    let matched = matched
        .map(|api::Matched { count, of }| v1::QuestionsMatched { count: number(count), of: number(of) });
    v1::StoredAnswer { id, grant_json: grant.to_string(), since, used, uses_left, matched }
}
