//! Who asks, and whether they may.

use std::net::IpAddr;

use ringfence_api::{Access, ApiError, Caller, ErrorCode, Method, Reach};
use ringfence_runtime::identity::{Denied, Identities, IdentityError, Known, Source};
use ringfence_runtime::ledger::{AppendError, Event};
use ringfence_runtime::operator_of;
use ringfence_types::{Attenuation, Principal, Rights, Scope, SessionId};

use crate::failure::{refusal_of, unavailable};
use crate::http::Line;
use crate::peer::Peer;
use crate::quota::Noted;
use crate::server::Daemon;

/// Where somebody came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// The socket of the operators.
    Management,
    /// The door of one session.
    Door(SessionId),
    /// TCP, from this address.
    Network(IpAddr),
}

/// Somebody who is known.
#[derive(Clone, Debug)]
pub(crate) struct Entered {
    pub(crate) caller: Caller,
    /// The token they showed.
    pub(crate) known: Option<Known>,
}

/// Who shows this token; without one, whether it is the owner of the socket.
pub(crate) fn identify(
    identities: &Identities,
    (entrance, peer): (&Entrance, Option<Peer>),
    token: Option<&str>,
) -> Result<Entered, ApiError> {
    let Some(token) = token else { return owner(entrance, peer) };
    let source = source(entrance, peer);
    let known = identities.authenticate(token, &source).map_err(|error| match error {
        IdentityError::Denied(denied) => not_let_in(&denied),
        error => unavailable(&error),
    })?;
    let caller = Caller {
        principal: known.principal.clone(),
        kind: known.kind.into(),
        rights: known.rights.clone(),
        attenuation: known.attenuation.clone(),
    };
    Ok(Entered { caller, known: Some(known) })
}

/// Whether somebody who is known has come in where they may.
pub(crate) fn right_door(entrance: &Entrance, caller: &Caller) -> Result<(), ApiError> {
    match (entrance, caller.session()) {
        // Nothing that runs in a session is out there, so whoever shows its token there has found it.
        (Entrance::Network(_), Some(_)) => {
            Err(forbidden("door.network", "tokens of sessions are for the doors of their sessions"))
        }
        (Entrance::Door(session), own) if own != Some(session) => {
            Err(forbidden("door.other", "this door is for the tokens of its own session"))
        }
        _ => Ok(()),
    }
}

/// Somebody who is known and may be here, before it is known what they say. One who may not is written down.
pub(crate) fn enter(line: &Line, token: Option<&str>, purpose: &str) -> Result<Entered, ApiError> {
    let entered = identify(&line.daemon.identities, (&line.entrance, line.peer), token)?;
    line.daemon.rates.is_good(&line.entrance, token);
    if let Err(why) = right_door(&line.entrance, &entered.caller) {
        audit(&line.daemon, (&entered.caller, purpose), Some(&why)).map_err(|error| unavailable(&error))?;
        return Err(why);
    }
    Ok(entered)
}

/// The same, and whether they may call a method at all: about which session is known later, and looked at then.
pub(crate) fn enter_for(line: &Line, token: Option<&str>, method: Method) -> Result<Entered, ApiError> {
    let entered = enter(line, token, method.name())?;
    if let Err(why) = authorise(&entered.caller, method, entered.caller.session()) {
        audit(&line.daemon, (&entered.caller, method.name()), Some(&why))
            .map_err(|error| unavailable(&error))?;
        return Err(why);
    }
    Ok(entered)
}

/// Where somebody comes from, for counting what they get wrong.
pub(crate) fn source(entrance: &Entrance, peer: Option<Peer>) -> Source {
    match entrance {
        Entrance::Management => Source::User(peer.map_or(u32::MAX, |peer| peer.uid)),
        // What a session gets wrong is counted for it alone.
        Entrance::Door(session) => Source::Session(session.clone()),
        Entrance::Network(address) => Source::Address(*address),
    }
}

fn owner(entrance: &Entrance, peer: Option<Peer>) -> Result<Entered, ApiError> {
    if let (Entrance::Management, Some(peer)) = (entrance, peer)
        && peer.is_owner()
    {
        let principal = operator_of(peer.uid, &peer.pid.to_string());
        return Ok(Entered { caller: Caller::owner(principal), known: None });
    }
    Err(ApiError::new(ErrorCode::Unauthenticated, "nobody knows who asks")
        .with_rule("identity.no-token")
        .with_hint("send `Authorization: Bearer TOKEN`; inside a session it is in RINGFENCE_SESSION_TOKEN"))
}

pub(crate) fn not_let_in(denied: &Denied) -> ApiError {
    let code = match denied {
        Denied::Wait { .. } => ErrorCode::Exhausted,
        Denied::Csrf => ErrorCode::Forbidden,
        _ => ErrorCode::Unauthenticated,
    };
    let told = ApiError::new(code, denied.to_string()).with_rule(denied.rule());
    denied.hint().map_or(told.clone(), |hint| told.with_hint(hint))
}

/// Whether a caller may call a method about a session in a workspace.
pub(crate) fn authorise(caller: &Caller, method: Method, about: Option<&SessionId>) -> Result<(), ApiError> {
    match method.access() {
        Access::Anyone | Access::Known => Ok(()),
        Access::Operator(scope) => match caller.session() {
            Some(_) => Err(forbidden(
                "method.operators",
                "an agent does not manage sessions, questions or identities",
            )),
            None => require(caller, scope).and_then(|()| everywhere(caller, method)),
        },
        Access::Session(scope) => match caller.session() {
            Some(own) if about == Some(own) => Ok(()),
            Some(_) => {
                Err(forbidden("method.own-session", "an agent knows of its own session and of no other"))
            }
            None => require(caller, scope),
        },
    }
}

/// Whether a caller has a right; what they are told names it.
pub(crate) fn require(caller: &Caller, scope: Scope) -> Result<(), ApiError> {
    if caller.may(scope) {
        return Ok(());
    }
    let denied = Denied::Scope(scope);
    let told = forbidden(denied.rule(), &denied.to_string());
    Err(told.with_hint(format!("use a token with scope `{scope}`: `ringfence token create --scope {scope}`")))
}

/// What is about the whole machine is not for somebody who was let in for some workspaces.
fn everywhere(caller: &Caller, method: Method) -> Result<(), ApiError> {
    if method.reach() == Reach::Workspaces || caller.rights.workspaces.is_any() {
        return Ok(());
    }
    let why = format!("`{}` is about the whole machine, and the token is for some workspaces", method.name());
    Err(forbidden(Denied::Workspace.rule(), &why).with_hint("use a token without `--workspace`"))
}

/// Somebody who is known and may not.
pub(crate) fn may_not(denied: &Denied) -> ApiError {
    let told = forbidden(denied.rule(), &denied.to_string());
    denied.hint().map_or(told.clone(), |hint| told.with_hint(hint))
}

pub(crate) fn forbidden(rule: &str, message: &str) -> ApiError {
    ApiError::new(ErrorCode::Forbidden, message).with_rule(rule)
}

/// Writes down who was let in to do what, or was not.
pub(crate) fn audit(
    daemon: &Daemon,
    (caller, purpose): (&Caller, &str),
    refused: Option<&ApiError>,
) -> Result<(), AppendError> {
    note(daemon, (&caller.principal, purpose), refused)
}

/// The same of somebody who is no caller: a stranger, or whoever is behind a door. Whoever is told no again and again is
/// written down until there is enough of it.
pub(crate) fn note(
    daemon: &Daemon,
    (principal, purpose): (&Principal, &str),
    refused: Option<&ApiError>,
) -> Result<(), AppendError> {
    let mut refusal = refused.map(refusal_of);
    if let Some(refusal) = &mut refusal {
        match daemon.quotas.refusal(principal, format!("{purpose} {}", refusal.rule)) {
            Noted::Written => {}
            Noted::Last => refusal.message.push_str("; there were many, and the next are not written down"),
            Noted::LeftOut => return Ok(()),
        }
    }
    let principal = principal.clone();
    let event = Event::Authenticated { principal, purpose: purpose.to_owned(), refusal };
    daemon.runtime.ledger().append(&event).map(drop)
}

/// Somebody who is nobody, for methods that anyone may call.
pub(crate) fn anyone() -> Caller {
    Caller {
        principal: Principal::System,
        kind: ringfence_api::TokenKind::Session,
        rights: Rights {
            scopes: ringfence_types::ScopeSet::default(),
            workspaces: ringfence_types::Within::of(Some([])),
        },
        attenuation: Attenuation::none(),
    }
}
