//! Authentication and authorization of callers.

use std::net::IpAddr;

use ringfence_api::{ApiError, Caller, ErrorCode, Method, MethodAccess, MethodTarget};
use ringfence_ledger::{AppendError, Event};
use ringfence_runtime::identity::{AuthError, Identities, IdentityError, KnownIdentity, LoginSource};
use ringfence_runtime::operator_of;
use ringfence_types::{Attenuation, Principal, Rights, RuleId, Scope, SessionId};

use crate::admit::peer::UnixPeer;
use crate::errors::unavailable;
use crate::limits::audit_rate::AuditOutcome;
use crate::server::Daemon;
use crate::transport::http::HttpConnection;

/// The listener a request arrived on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// The operators' socket.
    Management,
    /// The socket of one session.
    Door(SessionId),
    /// TCP, with the client's address.
    Network(IpAddr),
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(crate) struct CallerIdentity {
    pub(crate) caller: Caller,
    /// The identity of its token. The owner has none.
    pub(crate) known: Option<KnownIdentity>,
}

/// Identifies the caller by its token, or the owner of the socket without one.
pub(crate) fn identify(
    identities: &Identities,
    entrance: &ListenerKind,
    peer: Option<UnixPeer>,
    token: Option<&str>,
) -> Result<CallerIdentity, ApiError> {
    let Some(token) = token else { return owner(entrance, peer) };
    let source = source(entrance, peer);
    let known = identities.authenticate(token, &source).map_err(|error| match error {
        IdentityError::Denied(denied) => authentication_failed(&denied),
        error => unavailable(&error),
    })?;
    let caller = Caller {
        principal: known.principal.clone(),
        kind: known.kind.into(),
        rights: known.rights.clone(),
        attenuation: known.attenuation.clone(),
    };
    Ok(CallerIdentity { caller, known: Some(known) })
}

/// Whether the caller may use this listener.
pub(crate) fn check_listener(entrance: &ListenerKind, caller: &Caller) -> Result<(), ApiError> {
    match (entrance, caller.session()) {
        // No process of a session connects over TCP, so a session token there is a stolen one.
        (ListenerKind::Network(_), Some(_)) => Err(forbidden(
            RuleId::SessionSocketNotOverTcp,
            "tokens of sessions are for the doors of their sessions",
        )),
        (ListenerKind::Door(session), own) if own != Some(session) => Err(forbidden(
            RuleId::SessionSocketWrongToken,
            "this session socket accepts only the token of its session",
        )),
        _ => Ok(()),
    }
}

/// Authenticates a caller before its request is read. A refusal is recorded.
pub(crate) fn authenticate(
    line: &HttpConnection,
    token: Option<&str>,
    purpose: &str,
) -> Result<CallerIdentity, ApiError> {
    let entered = identify(&line.daemon.identities, &line.entrance, line.peer, token)?;
    line.daemon.rates.is_good(&line.entrance, token);
    if let Err(why) = check_listener(&line.entrance, &entered.caller) {
        audit(&line.daemon, &entered.caller, purpose, Some(&why)).map_err(|error| unavailable(&error))?;
        return Err(why);
    }
    Ok(entered)
}

/// The same, and checks the method. The session the request is about is checked later.
pub(crate) fn authenticate_as(
    line: &HttpConnection,
    token: Option<&str>,
    method: Method,
) -> Result<CallerIdentity, ApiError> {
    let entered = authenticate(line, token, method.name())?;
    if let Err(why) = authorise(&entered.caller, method, entered.caller.session()) {
        audit(&line.daemon, &entered.caller, method.name(), Some(&why))
            .map_err(|error| unavailable(&error))?;
        return Err(why);
    }
    Ok(entered)
}

/// The source that failed attempts are counted for.
pub(crate) fn source(entrance: &ListenerKind, peer: Option<UnixPeer>) -> LoginSource {
    match entrance {
        ListenerKind::Management => LoginSource::User(peer.map_or(u32::MAX, |peer| peer.uid)),
        // Failed attempts of a session count for this session only.
        ListenerKind::Door(session) => LoginSource::Session(session.clone()),
        ListenerKind::Network(address) => LoginSource::Address(*address),
    }
}

fn owner(entrance: &ListenerKind, peer: Option<UnixPeer>) -> Result<CallerIdentity, ApiError> {
    if let (ListenerKind::Management, Some(peer)) = (entrance, peer)
        && peer.is_owner()
    {
        let principal = operator_of(peer.uid, &peer.pid.to_string());
        return Ok(CallerIdentity { caller: Caller::owner(principal), known: None });
    }
    Err(ApiError::new(ErrorCode::Unauthenticated, "the request has no valid credential")
        .with_rule(RuleId::IdentityNoToken)
        .with_hint("send `Authorization: Bearer TOKEN`; inside a session it is in RINGFENCE_SESSION_TOKEN"))
}

pub(crate) fn authentication_failed(denied: &AuthError) -> ApiError {
    let code = match denied {
        AuthError::Wait { .. } => ErrorCode::ResourceExhausted,
        AuthError::Csrf => ErrorCode::Forbidden,
        _ => ErrorCode::Unauthenticated,
    };
    let told = ApiError::new(code, denied.to_string()).with_rule(denied.rule());
    denied.hint().map_or(told.clone(), |hint| told.with_hint(hint))
}

/// Whether a caller may call a method about a session.
pub(crate) fn authorise(caller: &Caller, method: Method, about: Option<&SessionId>) -> Result<(), ApiError> {
    match method.access() {
        MethodAccess::Anyone | MethodAccess::Known => Ok(()),
        MethodAccess::Operator(scope) => match caller.session() {
            Some(_) => Err(forbidden(
                RuleId::MethodOperatorsOnly,
                "an agent does not manage sessions, questions or identities",
            )),
            None => require(caller, scope).and_then(|()| everywhere(caller, method)),
        },
        MethodAccess::Session(scope) => match caller.session() {
            Some(own) if about == Some(own) => Ok(()),
            Some(_) => Err(forbidden(
                RuleId::MethodOwnSessionOnly,
                "an agent knows of its own session and of no other",
            )),
            None => require(caller, scope),
        },
    }
}

/// Whether a caller has a scope. The error names it.
pub(crate) fn require(caller: &Caller, scope: Scope) -> Result<(), ApiError> {
    if caller.may(scope) {
        return Ok(());
    }
    let denied = AuthError::Scope(scope);
    let told = forbidden(denied.rule(), &denied.to_string());
    Err(told.with_hint(format!("use a token with scope `{scope}`: `ringfence token create --scope {scope}`")))
}

/// Methods about the whole machine need a token without a workspace restriction.
fn everywhere(caller: &Caller, method: Method) -> Result<(), ApiError> {
    if method.reach() == MethodTarget::Workspaces || caller.rights.workspaces.is_any() {
        return Ok(());
    }
    let why = format!("`{}` is about the whole machine, and the token is for some workspaces", method.name());
    Err(forbidden(AuthError::Workspace.rule(), &why).with_hint("use a token without `--workspace`"))
}

/// An authenticated caller without the right.
pub(crate) fn may_not(denied: &AuthError) -> ApiError {
    let told = forbidden(denied.rule(), &denied.to_string());
    denied.hint().map_or(told.clone(), |hint| told.with_hint(hint))
}

pub(crate) fn forbidden(rule: RuleId, message: &str) -> ApiError {
    ApiError::new(ErrorCode::Forbidden, message).with_rule(rule)
}

/// Records an admission or a refusal of a caller.
pub(crate) fn audit(
    daemon: &Daemon,
    caller: &Caller,
    purpose: &str,
    refused: Option<&ApiError>,
) -> Result<(), AppendError> {
    note(daemon, &caller.principal, purpose, refused)
}

/// The same of what is done first and written down with the next record.
pub(crate) fn audit_late(daemon: &Daemon, caller: &Caller, method: Method) -> Result<(), AppendError> {
    let (principal, purpose) = (caller.principal.clone(), method.name().to_owned());
    daemon.runtime.ledger().keep_late(&[Event::AuthenticationAttempted { principal, purpose, refusal: None }])
}

/// The same for a principal without a token, such as an unauthenticated client or an agent at its socket. Repeated
/// refusals are recorded up to the audit rate limit.
pub(crate) fn note(
    daemon: &Daemon,
    principal: &Principal,
    purpose: &str,
    refused: Option<&ApiError>,
) -> Result<(), AppendError> {
    let mut refusal = refused.map(ApiError::as_refusal);
    if let Some(refusal) = &mut refusal {
        match daemon.quotas.refusal(principal, format!("{purpose} {}", refusal.rule)) {
            AuditOutcome::Written => {}
            AuditOutcome::Last => {
                refusal.message.push_str("; there were many, and the next are not written down")
            }
            AuditOutcome::LeftOut => return Ok(()),
        }
    }
    let principal = principal.clone();
    let event = Event::AuthenticationAttempted { principal, purpose: purpose.to_owned(), refusal };
    daemon.runtime.ledger().append(&event).map(drop)
}

/// The caller of methods that need no authentication: it has no rights.
pub(crate) fn anyone() -> Caller {
    Caller {
        principal: Principal::System,
        kind: ringfence_api::TokenKind::Session,
        rights: Rights {
            scopes: ringfence_types::ScopeSet::default(),
            workspaces: ringfence_types::AllOrOnly::of(Some([])),
        },
        attenuation: Attenuation::none(),
    }
}
