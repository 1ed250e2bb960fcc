//! Questions that wait, and their answers.

use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use ringfence_api::{
    Answer, AnswerApproval, AnswerTerms, Answered, ApiError, ApprovalList, Caller, ErrorCode, GrantList,
    GrantsRevoked, Matched, Question, StoredAnswer,
};
use ringfence_runtime::approval::{
    AnswerError, Answered as Done, Awaited, GrantError, Here, Inbox, LiveGrant, Pending, Reply, Say, Terms,
    live_grants, matched, revoke as take_back,
};
use ringfence_runtime::identity::{CredentialId, Known};
use ringfence_runtime::ledger::{
    ApprovalDecision, ApprovalRequest, Covers, GrantMade, LedgerReader, Timestamp,
};
use ringfence_types::{Bytes, MadeBy, Principal, Scope, SessionId, ShownCredential, WorkspaceId};
use serde_json::Value;

use crate::authenticate::{forbidden, require};
use crate::failure::{internal, malformed, unavailable};
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
    (caller, known): (&Caller, Option<&Known>),
    request: AnswerApproval,
) -> Result<Answered, ApiError> {
    let AnswerApproval { id, answer, terms, reason, asker_gone } = request;
    // Whoever says what runs instead runs it: where policy asks about that, their answer is the yes to their own command.
    if matches!(answer, Answer::Instead { .. }) {
        require(caller, Scope::Run)?;
    }
    // Of two who belong together and vote at once, one sees the other's vote.
    let _turn = daemon.answering.lock().unwrap_or_else(PoisonError::into_inner);
    // Once: what is looked at is what is answered, also when more questions begin with the same letters by then.
    let (pending, _) = find(daemon, caller, &id)?;
    if let Some(known) = known {
        not_by_who_asked(daemon, (caller, known), &pending.request)?;
        not_by_who_voted(daemon, known, &pending)?;
    }
    let say = meant(daemon, &pending.request, (answer, terms))?;
    let reply = Reply { by: caller.principal.clone(), say, reason };
    let shown = known.map(shown_of);
    let seen = if asker_gone { Awaited::ByNobody } else { Awaited::BySomebody };
    let done = inbox(daemon)
        .showing(shown.as_ref())
        .seeing(seen)
        .answer(pending.request.transaction.as_str(), &reply)
        .map_err(|error| not_counted(&error))?;
    Ok(match done {
        Done::Decided { decision, grant } => {
            let stored = grant.map(|made| stored_now(daemon, *made)).transpose()?;
            Answered::Decided { answer: decision.answer.word().to_owned(), stored: stored.map(Box::new) }
        }
        Done::Counted { approve, deny } => Answered::Counted { approve, deny },
    })
}

fn meant(
    daemon: &Daemon,
    asked: &ApprovalRequest,
    (answer, terms): (Answer, Option<AnswerTerms>),
) -> Result<Say, ApiError> {
    if terms.is_some() && !matches!(answer, Answer::Session | Answer::AlwaysHere { .. }) {
        return Err(malformed("terms are about a stored answer")
            .with_hint("answer `session` or `always-here`, or leave them out"));
    }
    let AnswerTerms { expires_ms, uses } = terms.unwrap_or_default();
    let time = expires_ms.map(Duration::from_millis);
    let within = |time| Terms::within(time, uses).map_err(|error| not_counted(&error));
    Ok(match answer {
        Answer::Once => Say::Once,
        Answer::Deny => Say::Deny,
        Answer::Session => Say::Session(within(time)?),
        Answer::AlwaysHere { offer } => {
            Say::AlwaysHere { offer, terms: within(time.or_else(|| daemon.governor.grant_expiry()))? }
        }
        Answer::Instead { argv } => {
            let argv = argv.into_iter().map(|word| Ok(Bytes::from(word.bytes()?)));
            Say::instead(asked, argv.collect::<Result<_, ApiError>>()?)
                .map_err(|error| not_counted(&error))?
        }
    })
}

pub(crate) fn grants(daemon: &Daemon, caller: &Caller) -> Result<GrantList, ApiError> {
    let reader = daemon.runtime.ledger().reader().map_err(|error| unavailable(&error))?;
    let live =
        live_grants(&reader, Here::Everywhere, Timestamp::now()).map_err(|error| unavailable(&error))?;
    let visible = live.into_iter().filter(|grant| sees_grant(daemon, caller, &grant.made));
    Ok(GrantList { grants: visible.map(|grant| stored(&reader, &grant)).collect::<Result<_, _>>()? })
}

/// All that they may know of where no id is said.
pub(crate) fn revoke(
    daemon: &Daemon,
    caller: &Caller,
    (id, reason): (Option<&str>, Option<&str>),
) -> Result<GrantsRevoked, ApiError> {
    let place = (daemon.runtime.ledger(), daemon.runtime.setup().state_dir.as_path());
    let known = |made: &GrantMade| sees_grant(daemon, caller, made);
    let gone = take_back(place, (id, &known), &caller.principal, reason).map_err(|error| {
        let code = match &error {
            GrantError::Unknown { .. } => ErrorCode::NotFound,
            GrantError::Ambiguous { .. } => ErrorCode::Malformed,
            GrantError::NotAnOperator => ErrorCode::Forbidden,
            _ => return unavailable(&error),
        };
        ApiError::new(code, error.to_string())
    })?;
    Ok(GrantsRevoked { grants: gone.iter().map(ToString::to_string).collect() })
}

fn stored_now(daemon: &Daemon, made: GrantMade) -> Result<StoredAnswer, ApiError> {
    let reader = daemon.runtime.ledger().reader().map_err(|error| unavailable(&error))?;
    stored(&reader, &LiveGrant { made, since: Timestamp::now(), used: 0 })
}

fn stored(reader: &LedgerReader, grant: &LiveGrant) -> Result<StoredAnswer, ApiError> {
    let matched = match &grant.made.covers {
        // What cannot be compared now is not told; the answer itself stands.
        Covers::Here { rules, .. } => matched(reader, &grant.made.workspace, rules).ok(),
        Covers::Session { .. } | Covers::Next { .. } => None,
    };
    Ok(StoredAnswer {
        id: grant.made.grant.to_string(),
        grant: serde_json::to_value(&grant.made).map_err(|error| internal(&error))?,
        since: grant.since.to_string(),
        used: grant.used,
        uses_left: grant.left(),
        matched: matched.map(|(count, of)| Matched { count, of }),
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
    let request = &pending.request;
    let root = request.roots.first().map(|root| root.path.as_path());
    covers(daemon, caller, (&request.session, &request.workspace, root))
}

fn sees_grant(daemon: &Daemon, caller: &Caller, made: &GrantMade) -> bool {
    let root = match &made.covers {
        Covers::Here { directory, .. } | Covers::Next { directory, .. } => Some(directory.as_path()),
        Covers::Session { .. } => None,
    };
    covers(daemon, caller, (&made.session, &made.workspace, root))
}

/// By the workspace of a session that is known here; of others by their first root, where that is the workspace.
fn covers(
    daemon: &Daemon,
    caller: &Caller,
    (session, workspace, root): (&SessionId, &WorkspaceId, Option<&Path>),
) -> bool {
    if caller.rights.workspaces.is_any() {
        return true;
    }
    match daemon.sessions.show(session) {
        Ok(session) => caller.rights.covers_workspace(&session.workspace),
        Err(_) => root.is_some_and(|root| {
            WorkspaceId::of_canonical_path(root) == *workspace && caller.rights.covers_workspace(root)
        }),
    }
}

/// Whoever made the call does not answer for it, whatever they show then: with the same credential, with one that was made with
/// it or with what it was made with, or as the same account. An owner of the machine who shows none is above that.
fn not_by_who_asked(
    daemon: &Daemon,
    (caller, known): (&Caller, &Known),
    request: &ApprovalRequest,
) -> Result<(), ApiError> {
    for asker in askers(daemon, request) {
        let Some(shown) = asker.shown.filter(|_| asker.principal.is_person()) else { continue };
        let account = matches!(asker.principal, Principal::Account { .. });
        let same = account && asker.principal.identity() == caller.principal.identity();
        if same || are_kin(daemon, known, &shown)? {
            let why = "whoever made the call does not answer for it";
            return Err(forbidden("approval.own-question", why)
                .with_hint("let somebody else answer, or answer on the machine itself"));
        }
    }
    Ok(())
}

/// A connection that a sandbox wants may be of any call there, and so of everybody who has run something in the session.
fn askers(daemon: &Daemon, request: &ApprovalRequest) -> Vec<MadeBy> {
    match &request.by {
        Some(by) => vec![MadeBy::clone(by)],
        // Of a session that is none of this daemon's nobody came over its interface.
        None => daemon.sessions.find(&request.session).map(|live| live.runners()).unwrap_or_default(),
    }
}

/// Where it takes several, whoever belongs to somebody who has voted is the same: one could make all others.
fn not_by_who_voted(daemon: &Daemon, known: &Known, pending: &Pending) -> Result<(), ApiError> {
    for shown in pending.votes.iter().filter_map(|vote| vote.shown.as_ref()) {
        if are_kin(daemon, known, shown)? {
            let why = "whoever has voted votes no second time with what goes back to the same credential";
            return Err(forbidden("approval.own-vote", why).with_hint(
                "it takes somebody whose token or password was not made with it, nor by who made it",
            ));
        }
    }
    Ok(())
}

/// What is public of what somebody showed.
pub(crate) fn shown_of(known: &Known) -> ShownCredential {
    ShownCredential { kind: known.kind, id: known.id.to_string() }
}

/// What is written so that it could be anybody's is somebody's own.
fn are_kin(daemon: &Daemon, known: &Known, shown: &ShownCredential) -> Result<bool, ApiError> {
    let Some(other) = CredentialId::parse(&shown.id) else { return Ok(true) };
    daemon.identities.are_kin(&other, &known.id).map_err(|error| unavailable(&error))
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
        votes: pending.votes.iter().map(|vote| json(serde_json::to_value(vote))).collect::<Result<_, _>>()?,
        decision: decision.map(|decision| json(serde_json::to_value(decision))).transpose()?,
        asker_gone: pending.awaited == Awaited::ByNobody,
    })
}

fn not_counted(error: &AnswerError) -> ApiError {
    let code = match error {
        AnswerError::Unknown { .. } => ErrorCode::NotFound,
        AnswerError::Ambiguous { .. }
        | AnswerError::ReasonRequired
        | AnswerError::NotOffered(_)
        | AnswerError::Terms(_) => ErrorCode::Malformed,
        AnswerError::NotAnOperator => ErrorCode::Forbidden,
        AnswerError::Inbox(error) => return unavailable(error),
        _ => ErrorCode::Conflict,
    };
    let told = ApiError::new(code, error.to_string());
    error.hint().map_or(told.clone(), |hint| told.with_hint(hint))
}
