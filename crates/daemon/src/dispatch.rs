//! The one path of every request: who asks, whether they may, what is written down, what is done.
//!
//! INVARIANT: [`admit`] is the only maker of [`Admitted`], and nothing below takes a request that is not in one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringfence_api::{
    Access, ApiError, Audit, CallInfo, CallList, Caller, Course, Done, ErrorCode, Health, Identity, Method,
    Ready, ReportActivity, Reported, Request, SessionInfo, SessionList, StopSession,
};
use ringfence_runtime::identity::{Denied, Known, Source, TokenText};
use ringfence_runtime::ledger::SessionEnd;
use ringfence_types::{MadeBy, Principal, SessionId};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::answers::{Scale, Whose};
use crate::authenticate::{
    Entered, Entrance, anyone, audit, authorise, forbidden, identify, may_not, note, right_door, source,
};
use crate::call::Closing;
use crate::exec::{Form, Sink, Wired};
use crate::failure::{chain, internal, malformed, unavailable};
use crate::intake::Place;
use crate::narrowed::Spends;
use crate::peer::Peer;
use crate::rate::Asker;
use crate::server::Daemon;
use crate::session::Live;
use crate::sessions::{self, AlsoOver, Because};
use crate::standing::Standing;
use crate::telemetry::Context;
use crate::turns::turn;
use crate::waiter::{Visit, Waiter, Work};
use crate::{approvals, files, identity, narrowed};

/// The longest that a session may take to end.
const LONGEST_GRACE: Duration = Duration::from_secs(60);
/// Longer texts of agents are no reports.
const LONGEST_REPORT: usize = 16 * 1024;

/// What came in on some transport.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) entrance: Entrance,
    pub(crate) peer: Option<Peer>,
    pub(crate) token: Option<String>,
    pub(crate) method: Method,
    pub(crate) value: Value,
    /// Of what is long: given back when it is a request of the method's own type, and its text and values are gone.
    pub(crate) places: Vec<Place>,
    /// The span that it belongs to, of whoever asks or of ours.
    pub(crate) parent: Option<Context>,
}

/// A request of somebody who may make it.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) caller: Caller,
    /// The token they showed.
    pub(crate) known: Option<Known>,
    /// What is written down of them with each call.
    pub(crate) by: MadeBy,
    /// What an agent showed: commands that it runs show the same, and never more.
    pub(crate) own: Option<TokenText>,
    /// Where they come from.
    pub(crate) source: Source,
    pub(crate) request: Request,
    /// The session it is about.
    pub(crate) live: Option<Arc<Live>>,
    /// Their right to what lasts.
    pub(crate) standing: Standing,
    /// What is done for them while they wait.
    pub(crate) work: Arc<Work>,
    /// The span that it belongs to.
    pub(crate) parent: Option<Context>,
}

/// A request of somebody from its arrival to its answer. What is done for it ends when they go away, which drops this, and
/// when they lose their right to it.
pub(crate) async fn carry_out(daemon: Arc<Daemon>, arrived: Arrived) -> Result<(Value, Scale), ApiError> {
    let (sender, admitted) = oneshot::channel();
    let own = turn(&daemon, &arrived).await?;
    let (arrived, turn) = match arrived.method {
        Method::OperatorAdd | Method::OperatorPassword => {
            let (arrived, turn) = identity::turn_to_make(&daemon, arrived).await?;
            (arrived, Some(turn))
        }
        _ => (arrived, None),
    };
    let work = tokio::task::spawn_blocking(move || {
        let _turns = (own, turn);
        let admitted = admit(&daemon, arrived)?;
        // Whoever has gone by now does not take it, which gives the work up before it begins.
        drop(sender.send((admitted.standing.clone(), Waiter::of(&admitted.work))));
        let (who, method) = (admitted.caller.principal.clone(), admitted.request.method());
        let scale = admitted.work.scale.clone();
        let done = perform(&daemon, admitted).map(|value| (value, scale));
        told_no(&daemon, (&who, method), done)
    });
    tokio::select! {
        done = work => done.map_err(|error| internal(&error))?,
        why = cut(admitted) => Err(why),
    }
}

async fn cut(admitted: oneshot::Receiver<(Standing, Waiter)>) -> ApiError {
    match admitted.await {
        Ok((mut standing, _waiter)) => standing.lost().await,
        Err(_refused) => std::future::pending().await,
    }
}

/// Lets a request in, or says why not. Somebody who is known and may not is written down.
pub(crate) fn admit(daemon: &Daemon, arrived: Arrived) -> Result<Admitted, ApiError> {
    let method = arrived.method;
    if method.course() == Course::Begins {
        daemon.takes_work()?;
    }
    if method.access() == Access::Anyone {
        no_business(daemon, &arrived)?;
        let request = Request::parse(method, arrived.value)?;
        if is_of_device(method) {
            daemon.rates.of(Asker::of(&arrived.entrance, arrived.peer)).ask_unknown()?;
        }
        let source = source(&arrived.entrance, arrived.peer);
        let scale = daemon.answers.scale(Whose::Stranger, &daemon.handle);
        let (standing, work) = (Standing::of_owner(), Arc::new(Work::new(&daemon.handle, scale)));
        let (caller, by, own) = (anyone(), made_by(&anyone(), None), None);
        let (known, live, parent) = (None, None, arrived.parent);
        return Ok(Admitted { caller, known, by, own, source, request, live, standing, work, parent });
    }
    let entered = identify(&daemon.identities, (&arrived.entrance, arrived.peer), arrived.token.as_deref())?;
    daemon.rates.is_good(&arrived.entrance, arrived.token.as_deref());
    let judged = may(&arrived, &entered.caller).and_then(|about| {
        let request = Request::parse(method, arrived.value)?;
        let live = live(daemon, &entered.caller, (method, about.as_ref()))?;
        narrowed(daemon, &entered, (&request, live.as_deref()))?;
        Ok((request, live))
    });
    drop(arrived.places);
    let refused = judged.as_ref().err().filter(|error| error.code == ErrorCode::Forbidden);
    if refused.is_some() || method.audit() == Audit::Always {
        // Written before done: what cannot be written down is not done.
        audit(daemon, (&entered.caller, method.name()), refused).map_err(|error| unavailable(&error))?;
    }
    let (request, live) = judged?;
    let (source, parent) = (source(&arrived.entrance, arrived.peer), arrived.parent);
    let standing = match &entered.known {
        Some(known) if lasts(method) => daemon.standings.hold(known),
        _ => Standing::of_owner(),
    };
    let work = Arc::new(Work::new(&daemon.handle, scale(daemon, &arrived.entrance)?));
    let Entered { caller, known } = entered;
    let by = made_by(&caller, known.as_ref());
    let own = arrived.token.as_deref().filter(|_| caller.session().is_some()).and_then(TokenText::parse);
    Ok(Admitted { caller, known, by, own, source, request, live, standing, work, parent })
}

/// What looks for something in the store without knowing who asks.
fn is_of_device(method: Method) -> bool {
    matches!(
        method,
        Method::DeviceAsk
            | Method::DeviceChallenge
            | Method::DeviceProve
            | Method::DeviceCollect
            | Method::DeviceRefresh
    )
}

/// What runs in a session has the room of the session, whatever it asks for.
fn scale(daemon: &Daemon, entrance: &Entrance) -> Result<Scale, ApiError> {
    let whose = match entrance {
        Entrance::Door(session) => Whose::Session(Arc::clone(&daemon.sessions.find(session)?.answers)),
        Entrance::Management | Entrance::Network(_) => Whose::Operator,
    };
    Ok(daemon.answers.scale(whose, &daemon.handle))
}

fn made_by(caller: &Caller, known: Option<&Known>) -> MadeBy {
    MadeBy { principal: caller.principal.clone(), shown: known.map(approvals::shown_of) }
}

/// What anyone may ask is asked by devices and browsers. Whatever runs in a session is neither, and has nothing to ask for
/// besides whether somebody is there.
fn no_business(daemon: &Daemon, arrived: &Arrived) -> Result<(), ApiError> {
    let Entrance::Door(session) = &arrived.entrance else { return Ok(()) };
    if matches!(arrived.method, Method::Health | Method::Ready) {
        return Ok(());
    }
    let why = forbidden("method.operators", "devices and browsers do not come by the door of a session");
    let principal = Principal::Agent { session: session.clone(), name: None };
    note(daemon, (&principal, arrived.method.name()), Some(&why)).map_err(|error| unavailable(&error))?;
    Err(why)
}

/// Somebody who was let in and is told no for who they are: that is written down as a no, whoever finds it out. Whether it
/// can be or not, the answer stays.
pub(crate) fn told_no<T>(
    daemon: &Daemon,
    (who, method): (&Principal, Method),
    answer: Result<T, ApiError>,
) -> Result<T, ApiError> {
    if let Err(why) = &answer
        && why.code == ErrorCode::Forbidden
        && method.access() != Access::Anyone
        && let Err(error) = note(daemon, (who, method.name()), Some(why))
    {
        tracing::error!(why = %error, "a refusal is not in the ledger");
    }
    answer
}

/// Whether a method is for whoever asks, here, about the session that they name.
fn may(arrived: &Arrived, caller: &Caller) -> Result<Option<SessionId>, ApiError> {
    right_door(&arrived.entrance, caller)?;
    let about = arrived.value.get("session").cloned();
    let about: Option<SessionId> = about.and_then(|id| serde_json::from_value(id).ok());
    authorise(caller, arrived.method, about.as_ref())?;
    Ok(about)
}

/// Tells somebody who may not so before anything of what they want is read. It counts as their request: who may not is written
/// down, and who may comes again with all of it.
pub(crate) fn foretell(daemon: &Daemon, arrived: &Arrived) -> Result<(), ApiError> {
    let entered = identify(&daemon.identities, (&arrived.entrance, arrived.peer), arrived.token.as_deref())?;
    let Err(why) = may(arrived, &entered.caller) else { return Ok(()) };
    audit(daemon, (&entered.caller, arrived.method.name()), Some(&why))
        .map_err(|error| unavailable(&error))?;
    Err(why)
}

/// Whether the answer may take as long as a command or a person does.
fn lasts(method: Method) -> bool {
    method.reply().is_stream() || matches!(method.access(), Access::Session(_))
}

/// The session that is meant, where whoever asks may know of it.
fn live(
    daemon: &Daemon,
    caller: &Caller,
    (method, about): (Method, Option<&SessionId>),
) -> Result<Option<Arc<Live>>, ApiError> {
    let needs = matches!(method.access(), Access::Session(_)) || method == Method::SessionStop;
    let (true, Some(id)) = (needs && method != Method::SessionShow, about) else { return Ok(None) };
    let live = daemon.sessions.find(id)?;
    let own = caller.session() == Some(id);
    if own || caller.rights.covers_workspace(&live.bound.workspace().path) {
        return Ok(Some(live));
    }
    Err(may_not(&Denied::Workspace))
}

/// Holds a token to what was left of it when it was handed on.
fn narrowed(
    daemon: &Daemon,
    entered: &Entered,
    (request, live): (&Request, Option<&Live>),
) -> Result<(), ApiError> {
    // The owner of the socket shows no token.
    let Some(known) = &entered.known else { return Ok(()) };
    let root = live.map(|live| live.bound.workspace().path.as_path());
    match narrowed::hold(request, &entered.caller.attenuation, root)? {
        Spends::Nothing => Ok(()),
        Spends::OneCall => daemon.identities.spend(known).map_err(identity::failed),
    }
}

/// Does what was asked for and says what came of it. Streams are made elsewhere.
pub(crate) fn perform(daemon: &Arc<Daemon>, admitted: Admitted) -> Result<Value, ApiError> {
    let Admitted { caller, known, by, own, source, request, live, work, parent, .. } = admitted;
    match request {
        Request::Health(_) => json(&Health { version: env!("CARGO_PKG_VERSION").to_owned() }),
        Request::Ready(_) => json(&ready(daemon)),
        Request::Metrics(_) => json(&metrics(daemon)),
        Request::OpenApi(_) => Ok(ringfence_api::openapi(env!("CARGO_PKG_VERSION"))),
        Request::WhoAmI(_) => json(&whoami(&caller)),
        Request::Shutdown(_) => {
            daemon.end();
            json(&Done {})
        }
        Request::SessionCreate(request) => {
            let _before = daemon.meters.sessions.fetch_add(1, Ordering::Relaxed);
            json(&sessions::create(daemon, (&caller, &by, parent), request)?)
        }
        Request::SessionList(request) => {
            let also = if request.all { AlsoOver::Yes } else { AlsoOver::No };
            let mut sessions = daemon.sessions.infos(also);
            sessions.retain(|info| caller.rights.covers_workspace(&info.workspace));
            json(&SessionList { sessions })
        }
        Request::SessionShow(request) => json(&shown(daemon, &caller, &request.session)?),
        Request::SessionStop(request) => json(&stopped(daemon, found(live)?, &request)),
        Request::SessionReport(request) => json(&report(daemon, (&caller, &*found(live)?), &request)?),
        Request::ApprovalList(_) => json(&approvals::list(daemon, &caller)?),
        Request::ApprovalShow(request) => json(&approvals::show(daemon, &caller, &request.id)?),
        Request::ApprovalAnswer(request) => {
            json(&approvals::answer(daemon, (&caller, known.as_ref()), request)?)
        }
        Request::GrantList(_) => json(&approvals::grants(daemon, &caller)?),
        Request::GrantRevoke(request) => {
            json(&approvals::revoke(daemon, &caller, (Some(&request.id), request.reason.as_deref()))?)
        }
        Request::GrantRevokeAll(request) => {
            json(&approvals::revoke(daemon, &caller, (None, request.reason.as_deref()))?)
        }
        request @ (Request::DeviceAsk(_)
        | Request::DeviceChallenge(_)
        | Request::DeviceProve(_)
        | Request::DeviceCollect(_)
        | Request::DeviceRefresh(_)) => identity::of_device(&daemon.identities, &source, request),
        request @ (Request::TokenList(_)
        | Request::TokenCreate(_)
        | Request::TokenRotate(_)
        | Request::TokenRevoke(_)
        | Request::TokenAttenuate(_)
        | Request::Logout(_)
        | Request::OperatorList(_)
        | Request::OperatorAdd(_)
        | Request::OperatorPassword(_)
        | Request::OperatorRemove(_)
        | Request::PairingList(_)
        | Request::PairingApprove(_)
        | Request::PairingRefuse(_)) => {
            let by = identity::authority(&caller.principal, known.as_ref());
            let done = identity::perform(&daemon.identities, (&by, known.as_ref()), request);
            daemon.standings.look(&daemon.identities);
            done
        }
        // The only answer with a cookie: the transport that has one makes it.
        Request::Login(_) => Err(malformed("a password is for browsers, over HTTP on TCP")),
        request => {
            let (live, telemetry) = (found(live)?, &daemon.telemetry);
            let left = &caller.attenuation;
            let visit = Visit { live: &live, work: &work, left, by: &by, telemetry, parent };
            in_session(daemon, (&live, visit, own.as_ref()), request)
        }
    }
}

/// What was done is told as done, also where there was no room for what it printed: whoever is told to ask again would do it twice.
fn without_output(info: CallInfo) -> CallInfo {
    let told = "there was no room for what it printed: too many long answers are under way";
    let note = info.note.map_or(told.to_owned(), |note| format!("{note}; {told}"));
    CallInfo { stdout: None, stderr: None, note: Some(note), ..info }
}

fn in_session(
    daemon: &Arc<Daemon>,
    (live, visit, own): (&Arc<Live>, Visit<'_>, Option<&TokenText>),
    request: Request,
) -> Result<Value, ApiError> {
    match request {
        Request::CallExec(request) => {
            let form = if request.background { Form::Pieces } else { Form::Whole };
            let wired = Wired::new(live, request, form)?.made_by(visit.by, own);
            let wired = wired.traced(visit.telemetry, visit.parent);
            match form {
                Form::Whole => {
                    visit.work.includes(&wired.call);
                    let info = daemon.counted(live, || {
                        let info = wired.run(live, Sink::Keep);
                        // While it still has its place, so that no more of them wait than there are places.
                        let room = visit.work.scale.room_for(printed(&info));
                        if room.is_ok() { info } else { without_output(info) }
                    })?;
                    json(&info)
                }
                Form::Pieces => {
                    let call = Arc::clone(&wired.call);
                    daemon.in_background(Arc::clone(live), wired, Sink::Keep)?;
                    json(&call.info())
                }
            }
        }
        Request::CallList(_) => json(&CallList { calls: live.call_infos() }),
        Request::CallShow(request) => json(&live.find_call(request.call)?.info()),
        Request::CallInput(request) => {
            // A shell does what it is told, whoever has started it.
            live.is_run_by(visit.by);
            let closing = if request.close { Closing::Yes } else { Closing::No };
            json(&live.find_call(request.call)?.write(&request.data.bytes()?, closing).map(|()| Done {})?)
        }
        Request::CallSignal(request) => {
            live.find_call(request.call)?.signal(request.signal);
            json(&Done {})
        }
        Request::CallResize(request) => {
            json(&live.find_call(request.call)?.resize(request.size).map(|()| Done {})?)
        }
        Request::CallCancel(request) => {
            live.find_call(request.call)?.cancel();
            json(&Done {})
        }
        Request::FileRead(request) => json(&files::read(visit, &request)?),
        Request::FileWrite(request) => json(&files::write(visit, request)?),
        Request::FileList(request) => json(&files::list(visit, &request)?),
        Request::FileStat(request) => json(&files::stat(visit, &request)?),
        Request::FileMove(request) => json(&files::rename(visit, &request)?),
        Request::FileRemove(request) => json(&files::remove(visit, &request)?),
        Request::FileSend(request) => json(&files::send(visit, &request)?),
        Request::FileUpload(_) | Request::FileDownload(_) => {
            Err(malformed("bytes are for HTTP").with_hint("`file.read` and `file.write` are for everybody"))
        }
        Request::Fetch(request) => json(&files::fetch(visit, &request)?),
        Request::Explain(request) => json(&files::explain(daemon, visit, request)?),
        Request::Mcp(_) => Err(malformed("the Model Context Protocol is for HTTP")),
        _ => Err(malformed("this is a stream, and was asked for as a value")),
    }
}

fn printed(info: &CallInfo) -> u64 {
    [&info.stdout, &info.stderr].into_iter().flatten().map(|data| data.len() as u64).sum()
}

fn found(live: Option<Arc<Live>>) -> Result<Arc<Live>, ApiError> {
    live.ok_or_else(|| malformed("the request names no session"))
}

fn shown(daemon: &Daemon, caller: &Caller, id: &SessionId) -> Result<SessionInfo, ApiError> {
    let info = daemon.sessions.show(id)?;
    if caller.session() == Some(id) || caller.rights.covers_workspace(&info.workspace) {
        return Ok(info);
    }
    Err(may_not(&Denied::Workspace))
}

fn stopped(daemon: &Daemon, live: Arc<Live>, request: &StopSession) -> SessionInfo {
    let grace = request.grace_ms.map(|grace| Duration::from_millis(grace).min(LONGEST_GRACE));
    sessions::stop(daemon, &live, (Because(SessionEnd::Stopped, "an operator ended it"), grace));
    live.info()
}

fn report(
    daemon: &Daemon,
    (caller, live): (&Caller, &Live),
    request: &ReportActivity,
) -> Result<Reported, ApiError> {
    let bytes = request.kind.len() + request.text.len();
    if bytes > LONGEST_REPORT {
        return Err(ApiError::new(
            ErrorCode::TooLarge,
            format!("a report has at most {LONGEST_REPORT} bytes"),
        ));
    }
    if let Some(session) = caller.session()
        && !daemon.quotas.report(session, u32::try_from(bytes).unwrap_or(u32::MAX))
    {
        return Err(ApiError::new(ErrorCode::Exhausted, "the session has reported more than is kept of one")
            .with_hint("report less, or less often: 1 MiB is kept each minute"));
    }
    live.touch();
    let seq = live.bound.lane().report(&request.kind, &request.text).map_err(|error| unavailable(&error))?;
    Ok(Reported { seq })
}

fn ready(daemon: &Daemon) -> Ready {
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
    Ready { ready: because.is_empty(), because }
}

pub(crate) fn metrics(daemon: &Daemon) -> String {
    let live = daemon.sessions.live();
    let running = live.iter().map(|live| live.live_calls().len()).sum();
    let mut text = daemon.meters.text(live.len(), running);
    text.push_str(&daemon.telemetry.text());
    text
}

fn whoami(caller: &Caller) -> Identity {
    let workspaces = match &caller.rights.workspaces {
        ringfence_types::Within::Any => None,
        ringfence_types::Within::Only(only) => Some(only.iter().map(ToString::to_string).collect()),
    };
    Identity {
        name: caller.principal.to_string(),
        kind: caller.kind.word().to_owned(),
        scopes: caller.rights.scopes.clone(),
        workspaces,
    }
}

fn json(value: &impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(value).map_err(|error| internal(&error))
}
