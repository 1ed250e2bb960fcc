//! Handles one method call. Every transport calls [`ask`], so a method of the table exists on all of them. File transfers, logins
//! and MCP tools need more than one answer and call [`admit`] themselves.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{
    ApiError, Approval, Caller, ErrorCode, EventMessage, Method, OutputChunk, Request, Response,
    ResponseKind, StreamCall, Subscribe,
};
use serde::{Serialize, Serializer};
use tokio::sync::mpsc;

use crate::admit::dispatch::{AuthorizedRequest, IncomingRequest, admit, handle};
use crate::admit::revocation::CredentialLease;
use crate::calls::exec::{OutputForm, OutputSink, PreparedExec};
use crate::calls::live_call::LiveCall;
use crate::calls::output_buffer::seq;
use crate::calls::output_channel::{LEFT, SendOutcome, outbox, sent};
use crate::calls::request_scope::{CancelOnDrop, RequestScope};
use crate::errors::{exhausted, internal, malformed};
use crate::limits::event_budget::EventPermit;
use crate::limits::response_memory::ResponseMeter;
use crate::limits::worker_permits::acquire;
use crate::observe::events::OutboundEvent;
use crate::server::Daemon;
use crate::sessions::live_session::LiveSession;
use crate::{calls::approvals, observe::events};

/// Items of a stream buffered for a client.
pub(crate) const UNDER_WAY: usize = 16;
/// The same for output, whose chunks are larger.
pub(crate) const CHUNKS_UNDER_WAY: usize = 4;
/// Longest wait for the end of a call in one request, in milliseconds.
const LONGEST_WAIT: u64 = 600_000;

/// The result of a method.
#[derive(Debug)]
pub(crate) enum MethodResponse {
    /// With the meter that charges the encoded response.
    Value(Box<Response>, ResponseMeter),
    /// Ends after the last item, when the client disconnects, and when it reads too slowly. The transport ends it when
    /// the credential is revoked.
    Stream(mpsc::Receiver<StreamItem>, CredentialLease),
}

/// One item of a stream.
#[derive(Debug)]
pub(crate) enum StreamItem {
    Event(OutboundEvent),
    Chunk(Box<OutputChunk>),
    Question(Box<Approval>),
}

impl Serialize for StreamItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Event(event) => EventMessage::serialize(event, serializer),
            Self::Chunk(chunk) => chunk.serialize(serializer),
            Self::Question(question) => question.serialize(serializer),
        }
    }
}

impl StreamItem {
    /// The item as a response of the method whose stream it is in.
    pub(crate) fn response(self, method: Method) -> Response {
        match self {
            Self::Event(event) => Response::Events(EventMessage::clone(&event)),
            Self::Question(question) => Response::ApprovalWatch(*question),
            Self::Chunk(chunk) if method == Method::CallExecStream => Response::CallExecStream(*chunk),
            Self::Chunk(chunk) => Response::CallOutput(*chunk),
        }
    }

    /// The memory the item holds until it is sent.
    pub(crate) fn room(&self) -> Option<Arc<EventPermit>> {
        match self {
            Self::Event(event) => Some(event.room()),
            Self::Chunk(_) | Self::Question(_) => None,
        }
    }
}

/// Handles a request under a telemetry span.
pub(crate) async fn ask(
    daemon: &Arc<Daemon>,
    mut arrived: IncomingRequest,
) -> Result<MethodResponse, ApiError> {
    let span = daemon.telemetry.request(&daemon.sessions, &mut arrived);
    let answer = answer(daemon, arrived).await;
    if let Some(span) = span {
        span.ended(&answer);
    }
    answer
}

async fn answer(daemon: &Arc<Daemon>, arrived: IncomingRequest) -> Result<MethodResponse, ApiError> {
    let method = arrived.method;
    let shared = Arc::clone(daemon);
    if method.reply().is_stream() || method.reply() == ResponseKind::Later {
        let admitted = admit_elsewhere(&shared, arrived).await?;
        return later(daemon, admitted).await;
    }
    handle(shared, arrived).await.map(|(response, scale)| MethodResponse::Value(Box::new(response), scale))
}

/// Runs work that blocks on disks, people or commands off the thread that serves all connections.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| internal(&error))?
}

/// Admits a request on a worker thread.
pub(crate) async fn admit_elsewhere(
    daemon: &Arc<Daemon>,
    arrived: IncomingRequest,
) -> Result<AuthorizedRequest, ApiError> {
    let (turn, daemon) = (acquire(daemon, &arrived).await?, Arc::clone(daemon));
    blocking(move || {
        let _turn = turn;
        admit(&daemon, arrived)
    })
    .await
}

/// Methods that wait without holding a thread.
async fn later(daemon: &Arc<Daemon>, admitted: AuthorizedRequest) -> Result<MethodResponse, ApiError> {
    let AuthorizedRequest { caller, by, own, request, live, mut standing, work, parent, .. } = admitted;
    let live = || live.clone().ok_or_else(|| malformed("the request names no session"));
    let daemon = Arc::clone(daemon);
    let items = match request {
        Request::Events(request) => happened(daemon, caller, request)?,
        Request::ApprovalWatch(_) => asked(daemon, caller),
        Request::CallOutput(request) => output(live()?.find_call(request.call)?, &request),
        Request::CallExecStream(ringfence_api::ExecStreamRequest(exec)) => {
            let live = live()?;
            let wired = PreparedExec::new(&live, exec, OutputForm::Pieces)?.made_by(&by, own.as_ref());
            let wired = wired.traced(&daemon.telemetry, parent);
            run(&daemon, live, &work, wired)?
        }
        Request::CallShow(request) => {
            let call = live()?.find_call(request.call)?;
            let patience = Duration::from_millis(request.wait_ms.unwrap_or(0).min(LONGEST_WAIT));
            tokio::select! {
                () = call.ended(patience) => {}
                why = standing.revoked() => return Err(why),
            }
            let response = Response::CallShow(call.info());
            return Ok(MethodResponse::Value(Box::new(response), work.scale.clone()));
        }
        _ => return Err(malformed("this is a value, and was asked for as a stream")),
    };
    Ok(MethodResponse::Stream(items, standing))
}

fn happened(
    daemon: Arc<Daemon>,
    caller: Caller,
    request: Subscribe,
) -> Result<mpsc::Receiver<StreamItem>, ApiError> {
    let seat = daemon.events.hall.seat().ok_or_else(|| exhausted("too many listen to what happens"))?;
    let (items, answer) = mpsc::channel(UNDER_WAY);
    let _follower = tokio::spawn(events::subscribe(daemon, caller, seat, request, items));
    Ok(answer)
}

/// Streams approvals as an operator sees them, driven by ledger events.
fn asked(daemon: Arc<Daemon>, caller: Caller) -> mpsc::Receiver<StreamItem> {
    let (items, answer) = mpsc::channel(UNDER_WAY);
    // The reason of a failure is not sent: the client reconnects and gets it then.
    let _writer = tokio::spawn(async move { tell_questions(&daemon, &caller, &items).await });
    answer
}

async fn tell_questions(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    items: &mpsc::Sender<StreamItem>,
) -> Result<(), ApiError> {
    // Taken before the list, so that an approval requested meanwhile is in both. It is sent once.
    let after = daemon.events.head();
    let (shared, who) = (Arc::clone(daemon), caller.clone());
    let waiting = blocking(move || approvals::list(&shared, &who)).await?;
    let told: HashSet<String> = waiting.approvals.iter().map(|question| question.id.clone()).collect();
    for question in waiting.approvals {
        if items.send(StreamItem::Question(Box::new(question))).await.is_err() {
            return Ok(());
        }
    }
    let request = Subscribe { after: Some(after), session: None };
    let mut events = happened(Arc::clone(daemon), caller.clone(), request)?;
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = items.closed() => None,
        };
        let Some(StreamItem::Event(event)) = event else { return Ok(()) };
        let Some((id, turn)) = about_a_question(&event) else { continue };
        if turn == RequestOutcome::Asked && told.contains(&id) {
            continue;
        }
        let (shared, who) = (Arc::clone(daemon), caller.clone());
        let question = match blocking(move || approvals::show(&shared, &who, &id)).await {
            Ok(question) => question,
            // An approval the caller may not see, or one that was pruned.
            Err(error) if error.code == ErrorCode::NotFound => continue,
            // Skipping an unreadable approval would lose it. The client reconnects and gets the pending list.
            Err(error) => return Err(error),
        };
        // An approval decided meanwhile is sent with its decision event.
        if (turn == RequestOutcome::Decided) == question.decision.is_some()
            && items.send(StreamItem::Question(Box::new(question))).await.is_err()
        {
            return Ok(());
        }
    }
}

/// What happened to an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestOutcome {
    Asked,
    /// The requesting process is gone.
    Left,
    Decided,
}

/// The approval an event is about, and what happened to it.
fn about_a_question(event: &EventMessage) -> Option<(String, RequestOutcome)> {
    let turn = match event.kind.as_str() {
        "approval-requested" => RequestOutcome::Asked,
        "approval-orphaned" => RequestOutcome::Left,
        "approval-decided" => RequestOutcome::Decided,
        _ => return None,
    };
    Some((event.event.get("transaction")?.as_str()?.to_owned(), turn))
}

fn output(call: Arc<LiveCall>, request: &StreamCall) -> mpsc::Receiver<StreamItem> {
    let (items, answer) = mpsc::channel(CHUNKS_UNDER_WAY);
    let mut after = request.after;
    let _writer = tokio::spawn(async move {
        loop {
            let (chunks, over) = call.output.after(after);
            let is_all = chunks.is_empty();
            for chunk in chunks {
                after = seq(&chunk);
                if items.send(StreamItem::Chunk(Box::new(chunk))).await.is_err() {
                    return;
                }
            }
            if over {
                let ended = OutputChunk::Ended { seq: after, call: Box::new(call.info()) };
                // Fails only if the client has disconnected.
                let _gone = items.send(StreamItem::Chunk(Box::new(ended))).await;
                return;
            }
            if !is_all {
                continue;
            }
            tokio::select! {
                () = call.output.changed(after) => {}
                () = items.closed() => return,
            }
        }
    });
    answer
}

/// Backpressure: while the client does not read, channel and pipe fill up and the command blocks.
fn run(
    daemon: &Arc<Daemon>,
    live: Arc<LiveSession>,
    work: &Arc<RequestScope>,
    wired: PreparedExec,
) -> Result<mpsc::Receiver<StreamItem>, ApiError> {
    work.track(&wired.call);
    // Cancels the call when the client disconnects.
    let waiter = CancelOnDrop::of(work);
    let (sender, mut chunks) = outbox();
    daemon.in_background(live, wired, OutputSink::Send(sender))?;
    let (items, answer) = mpsc::channel(CHUNKS_UNDER_WAY);
    let _writer = tokio::spawn(async move {
        let _waiter = waiter;
        loop {
            let chunk = tokio::select! {
                chunk = chunks.next() => chunk,
                () = items.closed() => None,
            };
            let Some(chunk) = chunk else { break };
            let item = StreamItem::Chunk(Box::new(chunk));
            if sent(&items, item, || chunks.is_over(), LEFT).await != SendOutcome::Taken {
                break;
            }
        }
    });
    Ok(answer)
}
