//! The one path of every request: authenticate, authorize, record, perform.
//!
//! INVARIANT: only [`admit`] makes an [`AuthorizedRequest`], and the code below takes nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringfence_api::{
    ActivityReceipt, ApiError, AuditRule, CallInfo, CallList, CallSignal, Caller, CallerInfo, DrainBehavior,
    Empty, ErrorCode, Health, Method, MethodAccess, Readiness, ReportActivity, Request, Response,
    SessionInfo, SessionList, StopSession,
};
use ringfence_ledger::SessionEndReason;
use ringfence_runtime::identity::{AuthError, KnownIdentity, LoginSource, TokenText};
use ringfence_runtime::operator_api::identity as operator_identity;
use ringfence_types::{CallOrigin, Principal, RuleId, SessionId};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

use crate::admit::attenuation::BudgetCharge;
use crate::admit::authenticate::{
    CallerIdentity, ListenerKind, anyone, audit, audit_late, authorise, check_listener, forbidden, identify,
    may_not, note, source,
};
use crate::admit::peer::UnixPeer;
use crate::admit::revocation::CredentialLease;
use crate::calls::exec::{OutputForm, OutputSink, PreparedExec};
use crate::calls::live_call::InputClose;
use crate::calls::request_scope::{CancelOnDrop, RequestScope, SessionScope};
use crate::errors::{chain, internal, malformed, unavailable};
use crate::limits::budget::Permit;
use crate::limits::request_rate::RateKey;
use crate::limits::response_memory::{ResponseMeter, ResponseOwner};
use crate::limits::worker_permits::acquire;
use crate::observe::telemetry::TraceContext;
use crate::server::Daemon;
use crate::sessions::live_session::LiveSession;
use crate::sessions::registry::{self, EndReason, IncludeEnded};
use crate::{admit::attenuation, admit::identity_methods, calls::approvals, calls::files};

/// Longest grace period for ending a session.
const LONGEST_GRACE: Duration = Duration::from_secs(60);
/// Longest report of an agent, in bytes.
const LONGEST_REPORT: usize = 16 * 1024;

/// A request as a transport received it.
#[derive(Debug)]
pub(crate) struct IncomingRequest {
    pub(crate) entrance: ListenerKind,
    pub(crate) peer: Option<UnixPeer>,
    pub(crate) token: Option<String>,
    pub(crate) method: Method,
    pub(crate) value: Value,
    /// The memory permit of a long request, released when the request is decoded and its text and values are dropped.
    pub(crate) memory: Permit,
    /// The parent span, of the client or of the daemon.
    pub(crate) parent: Option<TraceContext>,
}

/// A request whose caller may make it.
#[derive(Debug)]
pub(crate) struct AuthorizedRequest {
    pub(crate) caller: Caller,
    /// The identity of its token.
    pub(crate) known: Option<KnownIdentity>,
    /// The origin recorded with each call.
    pub(crate) by: CallOrigin,
    /// The token of an agent. Commands it runs get this one, never a token with more rights.
    pub(crate) own: Option<TokenText>,
    pub(crate) source: LoginSource,
    pub(crate) request: Request,
    /// The session the request is about.
    pub(crate) live: Option<Arc<LiveSession>>,
    /// The lease that ends a long request when the credential is revoked.
    pub(crate) standing: CredentialLease,
    /// Work that ends when the client disconnects.
    pub(crate) work: Arc<RequestScope>,
    /// The parent span.
    pub(crate) parent: Option<TraceContext>,
}

/// Handles a request from arrival to response. Its work is cancelled when the client disconnects, which drops this
/// future, and when its credential is revoked.
pub(crate) async fn handle(
    daemon: Arc<Daemon>,
    arrived: IncomingRequest,
) -> Result<(Response, ResponseMeter), ApiError> {
    let (sender, admitted) = oneshot::channel();
    let own = acquire(&daemon, &arrived).await?;
    let (arrived, turn) = match arrived.method {
        Method::OperatorAdd | Method::OperatorSetPassword => {
            let (arrived, turn) = identity_methods::turn_to_make(&daemon, arrived).await?;
            (arrived, Some(turn))
        }
        _ => (arrived, None),
    };
    let work = tokio::task::spawn_blocking(move || {
        let _turns = (own, turn);
        let admitted = admit(&daemon, arrived)?;
        // If the client has disconnected, the send fails and drops the guard, which cancels the work before it starts.
        drop(sender.send((admitted.standing.clone(), CancelOnDrop::of(&admitted.work))));
        let (who, method) = (admitted.caller.principal.clone(), admitted.request.method());
        let scale = admitted.work.scale.clone();
        let done = perform(&daemon, admitted).map(|value| (value, scale));
        audit_refusal(&daemon, &who, method, done)
    });
    tokio::select! {
        done = work => done.map_err(|error| internal(&error))?,
        why = cut(admitted) => Err(why),
    }
}

async fn cut(admitted: oneshot::Receiver<(CredentialLease, CancelOnDrop)>) -> ApiError {
    match admitted.await {
        Ok((mut standing, _waiter)) => standing.revoked().await,
        Err(_refused) => std::future::pending().await,
    }
}

/// Admits a request or refuses it. A refusal of an authenticated caller is recorded.
pub(crate) fn admit(daemon: &Daemon, arrived: IncomingRequest) -> Result<AuthorizedRequest, ApiError> {
    let method = arrived.method;
    if method.course() == DrainBehavior::Begins {
        daemon.takes_work()?;
    }
    if method.access() == MethodAccess::Anyone {
        method_not_for_sessions(daemon, &arrived)?;
        let request = Request::parse(method, arrived.value)?;
        if operator_identity::is_of_device(method) {
            daemon.rates.of(RateKey::of(&arrived.entrance, arrived.peer)).check_anonymous()?;
        }
        let source = source(&arrived.entrance, arrived.peer);
        let scale = daemon.answers.scale(ResponseOwner::Stranger, &daemon.handle);
        let (standing, work) =
            (CredentialLease::of_owner(), Arc::new(RequestScope::new(&daemon.handle, scale)));
        let (caller, by, own) = (anyone(), made_by(&anyone(), None), None);
        let (known, live, parent) = (None, None, arrived.parent);
        return Ok(AuthorizedRequest {
            caller,
            known,
            by,
            own,
            source,
            request,
            live,
            standing,
            work,
            parent,
        });
    }
    let entered = identify(&daemon.identities, &arrived.entrance, arrived.peer, arrived.token.as_deref())?;
    daemon.rates.is_good(&arrived.entrance, arrived.token.as_deref());
    let judged = authorize(&arrived, &entered.caller).and_then(|about| {
        let request = Request::parse(method, arrived.value)?;
        let live = live(daemon, &entered.caller, method, about.as_ref())?;
        narrowed(daemon, &entered, &request, live.as_deref())?;
        Ok((request, live))
    });
    drop(arrived.memory);
    let refused = judged.as_ref().err().filter(|error| error.code == ErrorCode::Forbidden);
    if refused.is_none() && only_takes_away(method) {
        if method.audit() == AuditRule::Always {
            audit_late(daemon, &entered.caller, method).map_err(|error| unavailable(&error))?;
        }
    } else if refused.is_some() || method.audit() == AuditRule::Always {
        // Written before done: what cannot be written down is not done.
        audit(daemon, &entered.caller, method.name(), refused).map_err(|error| unavailable(&error))?;
    }
    let (request, live) = judged?;
    let (source, parent) = (source(&arrived.entrance, arrived.peer), arrived.parent);
    let standing = match &entered.known {
        Some(known) if is_long_lived(method) => daemon.standings.watch(known),
        _ => CredentialLease::of_owner(),
    };
    let work = Arc::new(RequestScope::new(
        &daemon.handle,
        scale(daemon, &arrived.entrance, entered.known.as_ref())?,
    ));
    let CallerIdentity { caller, known } = entered;
    let by = made_by(&caller, known.as_ref());
    let own = arrived.token.as_deref().filter(|_| caller.session().is_some()).and_then(TokenText::parse);
    Ok(AuthorizedRequest { caller, known, by, own, source, request, live, standing, work, parent })
}

/// What ends something and begins nothing. An operator must be able to do it in the one moment in which nothing can be written
/// down, so it is done first, and its record follows.
fn only_takes_away(method: Method) -> bool {
    matches!(
        method,
        Method::SessionStop
            | Method::CallCancel
            | Method::TokenRevoke
            | Method::Logout
            | Method::OperatorRemove
            | Method::Shutdown
    )
}

/// Requests at a session socket use the session's memory budget, whatever they ask for. Elsewhere each token has a share.
fn scale(
    daemon: &Daemon,
    entrance: &ListenerKind,
    known: Option<&KnownIdentity>,
) -> Result<ResponseMeter, ApiError> {
    let whose = match (entrance, known) {
        (ListenerKind::Door(session), _) => {
            ResponseOwner::Session(daemon.sessions.find(session)?.answers.clone())
        }
        (_, Some(known)) => ResponseOwner::Token(known.family.clone()),
        (_, None) => ResponseOwner::Operator,
    };
    Ok(daemon.answers.scale(whose, &daemon.handle))
}

fn made_by(caller: &Caller, known: Option<&KnownIdentity>) -> CallOrigin {
    CallOrigin { principal: caller.principal.clone(), credential: known.map(approvals::shown_of) }
}

/// Methods without authentication are for devices and browsers. A process in a session is neither, and may only ask for
/// health.
fn method_not_for_sessions(daemon: &Daemon, arrived: &IncomingRequest) -> Result<(), ApiError> {
    let ListenerKind::Door(session) = &arrived.entrance else { return Ok(()) };
    if matches!(arrived.method, Method::Health | Method::Ready) {
        return Ok(());
    }
    let why = forbidden(RuleId::MethodOperatorsOnly, "devices and browsers cannot use a session socket");
    let principal = Principal::Agent { session: session.clone(), name: None };
    note(daemon, &principal, arrived.method.name(), Some(&why)).map_err(|error| unavailable(&error))?;
    Err(why)
}

/// Records a refusal that is only found while the request is performed. The response stays the same if recording fails.
pub(crate) fn audit_refusal<T>(
    daemon: &Daemon,
    who: &Principal,
    method: Method,
    answer: Result<T, ApiError>,
) -> Result<T, ApiError> {
    if let Err(why) = &answer
        && why.code == ErrorCode::Forbidden
        && method.access() != MethodAccess::Anyone
        && let Err(error) = note(daemon, who, method.name(), Some(why))
    {
        tracing::error!(error = %error, "cannot record a refusal");
    }
    answer
}

/// Whether the caller may call the method on this listener, about the session the request names.
fn authorize(arrived: &IncomingRequest, caller: &Caller) -> Result<Option<SessionId>, ApiError> {
    check_listener(&arrived.entrance, caller)?;
    let about = arrived.value.get("session").cloned();
    let about: Option<SessionId> = about.and_then(|id| serde_json::from_value(id).ok());
    authorise(caller, arrived.method, about.as_ref())?;
    Ok(about)
}

/// Refuses a caller before its body is read. A refusal counts as the request and is recorded. An allowed caller is
/// admitted again with the whole request.
pub(crate) fn authorize_early(daemon: &Daemon, arrived: &IncomingRequest) -> Result<(), ApiError> {
    let entered = identify(&daemon.identities, &arrived.entrance, arrived.peer, arrived.token.as_deref())?;
    let Err(why) = authorize(arrived, &entered.caller) else { return Ok(()) };
    audit(daemon, &entered.caller, arrived.method.name(), Some(&why)).map_err(|error| unavailable(&error))?;
    Err(why)
}

/// Whether the response may take as long as a command or a person does.
fn is_long_lived(method: Method) -> bool {
    method.reply().is_stream() || matches!(method.access(), MethodAccess::Session(_))
}

/// The session the request is about, if the caller may know of it.
fn live(
    daemon: &Daemon,
    caller: &Caller,
    method: Method,
    about: Option<&SessionId>,
) -> Result<Option<Arc<LiveSession>>, ApiError> {
    let needs = matches!(method.access(), MethodAccess::Session(_)) || method == Method::SessionStop;
    let (true, Some(id)) = (needs && method != Method::SessionShow, about) else { return Ok(None) };
    let live = daemon.sessions.find(id)?;
    let own = caller.session() == Some(id);
    if own || caller.rights.covers_workspace(&live.bound.workspace().path) {
        return Ok(Some(live));
    }
    Err(may_not(&AuthError::Workspace))
}

/// Holds a token to its attenuation.
fn narrowed(
    daemon: &Daemon,
    entered: &CallerIdentity,
    request: &Request,
    live: Option<&LiveSession>,
) -> Result<(), ApiError> {
    // The owner of the socket has no token.
    let Some(known) = &entered.known else { return Ok(()) };
    let root = live.map(|live| live.bound.workspace().path.as_path());
    match attenuation::hold(request, &entered.caller.attenuation, root)? {
        BudgetCharge::Nothing => Ok(()),
        BudgetCharge::OneCall => daemon.identities.spend(known).map_err(identity_methods::failed),
    }
}

/// Performs a request and returns its result. Streams, and values that may take long, are made in `calls::handle`.
pub(crate) fn perform(daemon: &Arc<Daemon>, admitted: AuthorizedRequest) -> Result<Response, ApiError> {
    let method = admitted.request.method();
    let mut done = perform_now(daemon, admitted);
    if only_takes_away(method)
        && let Err(error) = daemon.runtime.ledger().write_late()
        && let Ok(response) = &mut done
    {
        let why = chain(&error);
        response.set_record_error(format!(
            "it is done, and its record follows when the ledger can be written: {why}"
        ));
    }
    done
}

fn perform_now(daemon: &Arc<Daemon>, admitted: AuthorizedRequest) -> Result<Response, ApiError> {
    let AuthorizedRequest { caller, known, by, own, source, request, live, work, parent, .. } = admitted;
    Ok(match request {
        Request::Health(_) => Response::Health(Health { version: env!("CARGO_PKG_VERSION").to_owned() }),
        Request::Ready(_) => Response::Ready(ready(daemon)),
        Request::Metrics(_) => Response::Metrics(metrics(daemon)),
        Request::OpenApi(_) => Response::OpenApi(ringfence_api::openapi(env!("CARGO_PKG_VERSION"))),
        Request::WhoAmI(_) => Response::WhoAmI(whoami(&caller)),
        Request::Shutdown(_) => {
            daemon.end();
            Response::Shutdown(Empty::default())
        }
        Request::SessionCreate(request) => {
            let _before = daemon.meters.sessions.fetch_add(1, Ordering::Relaxed);
            Response::SessionCreate(registry::create(daemon, &caller, &by, parent, request)?)
        }
        Request::SessionList(request) => {
            let also = if request.include_ended { IncludeEnded::Yes } else { IncludeEnded::No };
            let mut sessions = daemon.sessions.infos(also);
            sessions.retain(|info| caller.rights.covers_workspace(&info.workspace));
            Response::SessionList(SessionList { sessions })
        }
        Request::SessionShow(request) => Response::SessionShow(shown(daemon, &caller, &request.session)?),
        Request::SessionStop(request) => Response::SessionStop(stopped(daemon, found(live)?, &request)),
        Request::SessionReportActivity(request) => {
            Response::SessionReportActivity(report(daemon, &caller, &*found(live)?, &request)?)
        }
        Request::ApprovalList(_) => Response::ApprovalList(approvals::list(daemon, &caller)?),
        Request::ApprovalShow(request) => {
            Response::ApprovalShow(approvals::show(daemon, &caller, &request.id)?)
        }
        Request::ApprovalAnswer(request) => {
            Response::ApprovalAnswer(approvals::answer(daemon, &caller, known.as_ref(), request)?)
        }
        Request::GrantList(_) => Response::GrantList(approvals::grants(daemon, &caller)?),
        Request::GrantRevoke(request) => {
            let (id, reason) = (Some(request.id.as_str()), request.reason.as_deref());
            Response::GrantRevoke(approvals::revoke(daemon, &caller, id, reason)?)
        }
        Request::GrantRevokeAll(request) => {
            Response::GrantRevokeAll(approvals::revoke(daemon, &caller, None, request.reason.as_deref())?)
        }
        request if operator_identity::is_of_device(request.method()) => {
            operator_identity::of_device(&daemon.identities, &source, request)
                .map_err(identity_methods::failed)?
        }
        request @ (Request::TokenList(_)
        | Request::TokenCreate(_)
        | Request::TokenRotate(_)
        | Request::TokenRevoke(_)
        | Request::TokenAttenuate(_)
        | Request::Logout(_)
        | Request::OperatorList(_)
        | Request::OperatorAdd(_)
        | Request::OperatorSetPassword(_)
        | Request::OperatorRemove(_)
        | Request::PairingList(_)
        | Request::PairingApprove(_)
        | Request::PairingRefuse(_)) => {
            let by = identity_methods::authority(&caller.principal, known.as_ref());
            let done = operator_identity::perform(&daemon.identities, &by, known.as_ref(), request);
            daemon.standings.check(&daemon.identities);
            done.map_err(identity_methods::failed)?
        }
        // The only response with a cookie, so the HTTP transport makes it.
        Request::Login(_) => return Err(malformed("a password is for browsers, over HTTP on TCP")),
        request => {
            let (live, telemetry) = (found(live)?, &daemon.telemetry);
            let left = &caller.attenuation;
            let visit = SessionScope { live: &live, work: &work, left, by: &by, telemetry, parent };
            in_session(daemon, &live, visit, own.as_ref(), request)?
        }
    })
}

/// Reports a finished call as done, also without memory for its output: a client that is told to retry would run it
/// twice.
fn without_output(info: CallInfo) -> CallInfo {
    let told = "there was no room for what it printed: too many long answers are under way";
    let note = info.notice.map_or(told.to_owned(), |note| format!("{note}; {told}"));
    CallInfo { stdout: None, stderr: None, notice: Some(note), ..info }
}

fn in_session(
    daemon: &Arc<Daemon>,
    live: &Arc<LiveSession>,
    visit: SessionScope<'_>,
    own: Option<&TokenText>,
    request: Request,
) -> Result<Response, ApiError> {
    Ok(match request {
        Request::CallExec(request) => {
            let form = if request.background { OutputForm::Pieces } else { OutputForm::Whole };
            let wired = PreparedExec::new(live, request, form)?.made_by(visit.by, own);
            let wired = wired.traced(visit.telemetry, visit.parent);
            match form {
                OutputForm::Whole => {
                    visit.work.track(&wired.call);
                    let info = daemon.counted(live, || {
                        let info = wired.run(live, OutputSink::Keep);
                        // While the call holds its slot, so that waiters for memory are bounded by the slots.
                        let room = visit.work.scale.room_for(printed(&info));
                        if room.is_ok() { info } else { without_output(info) }
                    })?;
                    Response::CallExec(info)
                }
                OutputForm::Pieces => {
                    let call = Arc::clone(&wired.call);
                    daemon.in_background(Arc::clone(live), wired, OutputSink::Keep)?;
                    Response::CallExec(call.info())
                }
            }
        }
        Request::CallList(_) => Response::CallList(CallList { calls: live.call_infos() }),
        Request::CallShow(request) => Response::CallShow(live.find_call(request.call)?.info()),
        Request::CallInput(request) => {
            // Input to a shell is an action of the caller, not of the one that started the shell.
            live.is_run_by(visit.by);
            let closing = if request.close { InputClose::Yes } else { InputClose::No };
            let (call, bytes) = (live.find_call(request.call)?, request.data.bytes()?);
            // Recorded before it is done: text typed into a shell is a command of the caller that sends it.
            let what =
                format!("{} bytes, SHA-256 {}", bytes.len(), ringfence_types::hex(Sha256::digest(&bytes)));
            audit_in_call(
                daemon,
                live,
                visit.by,
                &CallAudit { method: Method::CallInput, call: request.call, what: &what },
            )?;
            call.write(&bytes, closing)?;
            Response::CallInput(Empty::default())
        }
        Request::CallSignal(request) => {
            let call = live.find_call(request.call)?;
            // A signal that ends a command only takes away; what another one does is the command's.
            let what = format!("{:?}", request.signal);
            let is_written = audit_in_call(
                daemon,
                live,
                visit.by,
                &CallAudit { method: Method::CallSignal, call: request.call, what: &what },
            );
            if !matches!(request.signal, CallSignal::Kill | CallSignal::Term | CallSignal::Int) {
                is_written?;
            }
            call.signal(request.signal);
            Response::CallSignal(Empty::default())
        }
        Request::CallResize(request) => {
            live.find_call(request.call)?.resize(request.size)?;
            Response::CallResize(Empty::default())
        }
        Request::CallCancel(request) => {
            live.find_call(request.call)?.cancel();
            Response::CallCancel(Empty::default())
        }
        Request::FileRead(request) => Response::FileRead(files::read(visit, &request)?),
        Request::FileWrite(request) => Response::FileWrite(files::write(visit, request)?),
        Request::FileList(request) => Response::FileList(files::list(visit, &request)?),
        Request::FileStat(request) => Response::FileStat(files::stat(visit, &request)?),
        Request::FileMove(request) => Response::FileMove(files::rename(visit, &request)?),
        Request::FileRemove(request) => Response::FileRemove(files::remove(visit, &request)?),
        Request::FileSend(request) => Response::FileSend(files::send(visit, &request)?),
        Request::FileUpload(_) | Request::FileDownload(_) => {
            return Err(malformed("bytes are for HTTP").with_hint("use `file.read` and `file.write`"));
        }
        Request::CallFetch(request) => Response::CallFetch(files::fetch(visit, &request)?),
        Request::PolicyExplain(request) => Response::PolicyExplain(files::explain(daemon, visit, request)?),
        Request::Mcp(_) => return Err(malformed("the Model Context Protocol is for HTTP")),
        _ => return Err(malformed("this is a stream, and was asked for as a value")),
    })
}

/// What a caller does to a running call.
struct CallAudit<'a> {
    method: Method,
    call: u64,
    what: &'a str,
}

/// Records which caller acts on a running call, because another caller may have started that call.
fn audit_in_call(
    daemon: &Daemon,
    live: &LiveSession,
    by: &CallOrigin,
    audited: &CallAudit<'_>,
) -> Result<(), ApiError> {
    let CallAudit { method, call, what } = audited;
    let shown = by.credential.as_ref().map_or(String::new(), |shown| format!(", shown {}", shown.id));
    let purpose = format!("{} of call {call} in {}, {what}{shown}", method.name(), live.id());
    note(daemon, &by.principal, &purpose, None).map_err(|error| unavailable(&error))
}

fn printed(info: &CallInfo) -> u64 {
    [&info.stdout, &info.stderr].into_iter().flatten().map(|data| data.len() as u64).sum()
}

fn found(live: Option<Arc<LiveSession>>) -> Result<Arc<LiveSession>, ApiError> {
    live.ok_or_else(|| malformed("the request names no session"))
}

fn shown(daemon: &Daemon, caller: &Caller, id: &SessionId) -> Result<SessionInfo, ApiError> {
    let info = daemon.sessions.show(id)?;
    if caller.session() == Some(id) || caller.rights.covers_workspace(&info.workspace) {
        return Ok(info);
    }
    Err(may_not(&AuthError::Workspace))
}

fn stopped(daemon: &Daemon, live: Arc<LiveSession>, request: &StopSession) -> SessionInfo {
    let grace = request.grace_ms.map(|grace| Duration::from_millis(grace).min(LONGEST_GRACE));
    registry::stop(daemon, &live, EndReason(SessionEndReason::Stopped, "an operator ended it"), grace);
    live.info()
}

fn report(
    daemon: &Daemon,
    caller: &Caller,
    live: &LiveSession,
    request: &ReportActivity,
) -> Result<ActivityReceipt, ApiError> {
    let bytes = request.activity.len() + request.claim.len();
    if bytes > LONGEST_REPORT {
        return Err(ApiError::new(
            ErrorCode::TooLarge,
            format!("a report has at most {LONGEST_REPORT} bytes"),
        ));
    }
    if let Some(session) = caller.session()
        && !daemon.quotas.report(session, u32::try_from(bytes).unwrap_or(u32::MAX))
    {
        return Err(ApiError::new(
            ErrorCode::ResourceExhausted,
            "the session has reported more than is kept of one",
        )
        .with_hint("report less, or less often: 1 MiB is kept each minute"));
    }
    live.touch();
    let seq = live
        .bound
        .call_handle()
        .report(&request.activity, &request.claim)
        .map_err(|error| unavailable(&error))?;
    Ok(ActivityReceipt { seq })
}

fn ready(daemon: &Daemon) -> Readiness {
    let mut because = Vec::new();
    if daemon.takes_work().is_err() {
        because.push("the daemon is about to end".to_owned());
    }
    if let Some(broken) = daemon.runtime.ledger().broken() {
        because.push(format!("the ledger is broken: {broken}"));
    } else if let Some(why) = daemon.runtime.ledger().unwritable() {
        because.push(why.to_string());
    }
    match daemon.identities.is_held() {
        Ok(false) => {}
        Ok(true) => because.push(
            "the store of identities is held by another process: nothing is made, ended or counted"
                .to_owned(),
        ),
        Err(error) => because.push(chain(&error)),
    }
    Readiness { ready: because.is_empty(), reasons: because }
}

pub(crate) fn metrics(daemon: &Daemon) -> String {
    let live = daemon.sessions.live();
    let running = live.iter().map(|live| live.live_calls().len()).sum();
    let mut text = daemon.meters.text(live.len(), running);
    text.push_str(&daemon.telemetry.text());
    text
}

fn whoami(caller: &Caller) -> CallerInfo {
    let workspaces = match &caller.rights.workspaces {
        ringfence_types::AllOrOnly::Any => None,
        ringfence_types::AllOrOnly::Only(only) => Some(only.iter().map(ToString::to_string).collect()),
    };
    CallerInfo {
        name: caller.principal.to_string(),
        kind: caller.kind.word().to_owned(),
        scopes: caller.rights.scopes.clone(),
        workspaces,
    }
}
