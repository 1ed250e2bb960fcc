//! Questions that wait, and their answers.

use ringfence_api::{Answer, AnswerApproval, Answered, ApiError, ApprovalList, Caller, ErrorCode, Question};
use ringfence_runtime::approval::{AnswerError, Answered as Done, Inbox, Pending, Reply, Say, Terms};
use ringfence_runtime::identity::{CredentialId, Known};
use ringfence_runtime::ledger::{ApprovalDecision, Timestamp};
use ringfence_types::Principal;
use serde_json::Value;

use crate::authenticate::forbidden;
use crate::failure::{internal, unavailable};
use crate::server::Daemon;

pub(crate) fn list(daemon: &Daemon, caller: &Caller) -> Result<ApprovalList, ApiError> {
    let pending = inbox(daemon).pending(Timestamp::now()).map_err(|error| unavailable(&error))?;
    let visible = pending.iter().filter(|pending| sees(daemon, caller, pending));
    Ok(ApprovalList { questions: visible.map(|pending| question(pending, None)).collect::<Result<_, _>>()? })
}

pub(crate) fn show(daemon: &Daemon, caller: &Caller, id: &str) -> Result<Question, ApiError> {
    let (pending, decision) = find(daemon, caller, id)?;
    question(&pending, decision.as_ref())
}

/// Whoever asked cannot answer: an agent never gets here, and the ledger compares the two again.
pub(crate) fn answer(
    daemon: &Daemon,
    caller: &Caller,
    request: AnswerApproval,
) -> Result<Answered, ApiError> {
    let (pending, _) = find(daemon, caller, &request.id)?;
    let say = match request.answer {
        Answer::Once => Say::Once,
        Answer::Session => Say::Session(Terms::default()),
        Answer::AlwaysHere { offer } => Say::AlwaysHere { offer, terms: Terms::default() },
        Answer::Deny => Say::Deny,
    };
    let reply = Reply { by: caller.principal.clone(), say, reason: request.reason };
    let done = inbox(daemon)
        .answer(pending.request.transaction.as_str(), &reply)
        .map_err(|error| not_counted(&error))?;
    Ok(match done {
        Done::Decided { decision, .. } => Answered::Decided { answer: decision.answer.word().to_owned() },
        Done::Counted { approve, deny } => Answered::Counted { approve, deny },
    })
}

fn find(daemon: &Daemon, caller: &Caller, id: &str) -> Result<(Pending, Option<ApprovalDecision>), ApiError> {
    let found = inbox(daemon).find(id).map_err(|error| not_counted(&error))?;
    if sees(daemon, caller, &found.0) {
        return Ok(found);
    }
    Err(not_counted(&AnswerError::Unknown { id: id.to_owned() }))
}

/// Somebody who is let in for some workspaces knows of no questions of others.
fn sees(daemon: &Daemon, caller: &Caller, pending: &Pending) -> bool {
    if caller.rights.workspaces.is_any() {
        return true;
    }
    let session = daemon.sessions.show(&pending.request.session);
    session.is_ok_and(|session| caller.rights.covers_workspace(&session.workspace))
}

/// Whoever made the call does not answer for it, whatever they show then: with the same credential, with one that was made with
/// it or with what it was made with, or as the same account. An owner of the machine who shows none is above that.
pub(crate) fn not_by_who_asked(
    daemon: &Daemon,
    (caller, known): (&Caller, Option<&Known>),
    id: &str,
) -> Result<(), ApiError> {
    let Some(known) = known else { return Ok(()) };
    let Some(asked) = find(daemon, caller, id)?.0.request.by else { return Ok(()) };
    let Some(shown) = &asked.shown else { return Ok(()) };
    let account = matches!(asked.principal, Principal::Account { .. });
    let same = account && asked.principal.identity() == caller.principal.identity();
    let kin = || match CredentialId::parse(&shown.id) {
        Some(asker) => daemon.identities.are_kin(&asker, &known.id).map_err(|error| unavailable(&error)),
        None => Ok(false),
    };
    if same || kin()? {
        let why = "whoever made the call does not answer for it";
        return Err(forbidden("approval.own-question", why)
            .with_hint("let somebody else answer, or answer on the machine itself"));
    }
    Ok(())
}

fn inbox(daemon: &Daemon) -> Inbox<'_> {
    Inbox::new(daemon.runtime.ledger(), &daemon.runtime.setup().state_dir)
}

fn question(pending: &Pending, decision: Option<&ApprovalDecision>) -> Result<Question, ApiError> {
    let request = &pending.request;
    let json = |value: serde_json::Result<Value>| value.map_err(|error| internal(&error));
    Ok(Question {
        id: request.transaction.to_string(),
        session: request.session.to_string(),
        asked: pending.asked.to_string(),
        expires: request.expires.to_string(),
        risk: request.risk.to_string(),
        sentence: request.card.sentence.clone(),
        request: json(serde_json::to_value(request))?,
        decision: decision.map(|decision| json(serde_json::to_value(decision))).transpose()?,
    })
}

fn not_counted(error: &AnswerError) -> ApiError {
    let code = match error {
        AnswerError::Unknown { .. } => ErrorCode::NotFound,
        AnswerError::Ambiguous { .. } | AnswerError::ReasonRequired | AnswerError::NotOffered(_) => {
            ErrorCode::Malformed
        }
        AnswerError::NotAnOperator => ErrorCode::Forbidden,
        AnswerError::Inbox(error) => return unavailable(error),
        _ => ErrorCode::Conflict,
    };
    let told = ApiError::new(code, error.to_string());
    error.hint().map_or(told.clone(), |hint| told.with_hint(hint))
}
