//! From a method and its request to its answer: what every transport calls, and the only thing it can call. A method of the
//! table is therefore on all of them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{
    ApiError, Caller, Chunk, ErrorCode, Happened, Question, Reply, Request, StreamCall, Subscribe,
};
use serde::{Serialize, Serializer};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::answers::Scale;
use crate::call::LiveCall;
use crate::dispatch::{Admitted, Arrived, admit, carry_out};
use crate::events::Sent;
use crate::exec::{Form, Sink, Wired};
use crate::failure::{exhausted, internal, malformed};
use crate::outbox::{LEFT, Passed, outbox, passed};
use crate::output::seq;
use crate::room::Room;
use crate::server::Daemon;
use crate::session::Live;
use crate::standing::Standing;
use crate::turns::turn;
use crate::waiter::{Waiter, Work};
use crate::{approvals, events};

/// Pieces of a stream that are under way to a client.
pub(crate) const UNDER_WAY: usize = 16;
/// Of output, of which each is longer than most.
pub(crate) const CHUNKS_UNDER_WAY: usize = 4;
/// The longest that somebody waits for the end of a call with one request.
const LONGEST_WAIT: u64 = 600_000;

/// What comes back.
#[derive(Debug)]
pub(crate) enum Answer {
    /// With what it is weighed by when it is in the form that it is sent in.
    Value(Value, Scale),
    /// It ends when there is no more, when nobody takes it, and for whoever does not keep up. Its transport ends it when
    /// the right to it is lost.
    Stream(mpsc::Receiver<Item>, Standing),
}

/// One value of a stream.
#[derive(Debug)]
pub(crate) enum Item {
    Event(Sent),
    Chunk(Box<Chunk>),
    Question(Box<Question>),
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Event(event) => Happened::serialize(event, serializer),
            Self::Chunk(chunk) => chunk.serialize(serializer),
            Self::Question(question) => question.serialize(serializer),
        }
    }
}

impl Item {
    /// What it takes up until it has gone.
    pub(crate) fn room(&self) -> Option<Arc<Room>> {
        match self {
            Self::Event(event) => Some(event.room()),
            Self::Chunk(_) | Self::Question(_) => None,
        }
    }
}

/// Asks the daemon.
pub(crate) async fn ask(daemon: &Arc<Daemon>, mut arrived: Arrived) -> Result<Answer, ApiError> {
    let span = daemon.telemetry.request(&daemon.sessions, &mut arrived);
    let answer = answer(daemon, arrived).await;
    if let Some(span) = span {
        span.ended(&answer);
    }
    answer
}

async fn answer(daemon: &Arc<Daemon>, arrived: Arrived) -> Result<Answer, ApiError> {
    let method = arrived.method;
    let shared = Arc::clone(daemon);
    if method.reply().is_stream() || method.reply() == Reply::Later {
        let admitted = admit_elsewhere(&shared, arrived).await?;
        return later(daemon, admitted).await;
    }
    carry_out(shared, arrived).await.map(|(value, scale)| Answer::Value(value, scale))
}

/// The pipeline waits for disks, people and commands; none of that is for the thread that serves all connections.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| internal(&error))?
}

/// Lets a request in or not, when it is its turn.
pub(crate) async fn admit_elsewhere(daemon: &Arc<Daemon>, arrived: Arrived) -> Result<Admitted, ApiError> {
    let (turn, daemon) = (turn(daemon, &arrived).await?, Arc::clone(daemon));
    blocking(move || {
        let _turn = turn;
        admit(&daemon, arrived)
    })
    .await
}

/// What takes its time without a thread.
async fn later(daemon: &Arc<Daemon>, admitted: Admitted) -> Result<Answer, ApiError> {
    let Admitted { caller, by, own, request, live, mut standing, work, parent, .. } = admitted;
    let live = || live.clone().ok_or_else(|| malformed("the request names no session"));
    let daemon = Arc::clone(daemon);
    let items = match request {
        Request::Events(request) => happened(daemon, caller, request)?,
        Request::ApprovalWatch(_) => asked(daemon, caller),
        Request::CallOutput(request) => output(live()?.find_call(request.call)?, &request),
        Request::CallRun(ringfence_api::RunCommand(exec)) => {
            let live = live()?;
            let wired = Wired::new(&live, exec, Form::Pieces)?.made_by(&by, own.as_ref());
            let wired = wired.traced(&daemon.telemetry, parent);
            run(&daemon, (live, &work), wired)?
        }
        Request::CallShow(request) => {
            let call = live()?.find_call(request.call)?;
            let patience = Duration::from_millis(request.wait_ms.unwrap_or(0).min(LONGEST_WAIT));
            tokio::select! {
                () = call.ended(patience) => {}
                why = standing.lost() => return Err(why),
            }
            let info = serde_json::to_value(call.info()).map_err(|error| internal(&error))?;
            return Ok(Answer::Value(info, work.scale.clone()));
        }
        _ => return Err(malformed("this is a value, and was asked for as a stream")),
    };
    Ok(Answer::Stream(items, standing))
}

fn happened(
    daemon: Arc<Daemon>,
    caller: Caller,
    request: Subscribe,
) -> Result<mpsc::Receiver<Item>, ApiError> {
    let seat = daemon.events.hall.seat().ok_or_else(|| exhausted("too many listen to what happens"))?;
    let (items, answer) = mpsc::channel(UNDER_WAY);
    let _follower = tokio::spawn(events::subscribe(daemon, (caller, seat), request, items));
    Ok(answer)
}

/// Questions are events of the ledger; here they come as an operator is shown them.
fn asked(daemon: Arc<Daemon>, caller: Caller) -> mpsc::Receiver<Item> {
    let (items, answer) = mpsc::channel(UNDER_WAY);
    // Nobody is told why it ended: whoever still wants to know asks again and hears it then.
    let _writer = tokio::spawn(async move { tell_questions(&daemon, &caller, &items).await });
    answer
}

async fn tell_questions(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    items: &mpsc::Sender<Item>,
) -> Result<(), ApiError> {
    // From before the list is made: what is asked meanwhile is in both, and told once.
    let after = daemon.events.head();
    let (shared, who) = (Arc::clone(daemon), caller.clone());
    let waiting = blocking(move || approvals::list(&shared, &who)).await?;
    let told: HashSet<String> = waiting.questions.iter().map(|question| question.id.clone()).collect();
    for question in waiting.questions {
        if items.send(Item::Question(Box::new(question))).await.is_err() {
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
        let Some(Item::Event(event)) = event else { return Ok(()) };
        let Some((id, turn)) = about_a_question(&event) else { continue };
        if turn == Turn::Asked && told.contains(&id) {
            continue;
        }
        let (shared, who) = (Arc::clone(daemon), caller.clone());
        let question = match blocking(move || approvals::show(&shared, &who, &id)).await {
            Ok(question) => question,
            // A question of others, or one that is forgotten already.
            Err(error) if error.code == ErrorCode::NotFound => continue,
            // What could not be looked at would never be told: whoever listens comes again, and is told what waits.
            Err(error) => return Err(error),
        };
        // One that was decided meanwhile is told when its decision comes by.
        if (turn == Turn::Decided) == question.decision.is_some()
            && items.send(Item::Question(Box::new(question))).await.is_err()
        {
            return Ok(());
        }
    }
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Asked,
    /// Whoever asked is gone.
    Left,
    Decided,
}

/// Which question an event is about, and what became of it.
fn about_a_question(event: &Happened) -> Option<(String, Turn)> {
    let turn = match event.kind.as_str() {
        "approval-requested" => Turn::Asked,
        "approval-left" => Turn::Left,
        "approval-decided" => Turn::Decided,
        _ => return None,
    };
    Some((event.event.get("transaction")?.as_str()?.to_owned(), turn))
}

fn output(call: Arc<LiveCall>, request: &StreamCall) -> mpsc::Receiver<Item> {
    let (items, answer) = mpsc::channel(CHUNKS_UNDER_WAY);
    let mut after = request.after;
    let _writer = tokio::spawn(async move {
        loop {
            let (chunks, over) = call.output.after(after);
            let is_all = chunks.is_empty();
            for chunk in chunks {
                after = seq(&chunk);
                if items.send(Item::Chunk(Box::new(chunk))).await.is_err() {
                    return;
                }
            }
            if over {
                let ended = Chunk::Ended { seq: after, call: Box::new(call.info()) };
                // Whoever has gone away needs no end.
                let _gone = items.send(Item::Chunk(Box::new(ended))).await;
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

/// While the client does not read, the channel is full, the pipe is full, and the command waits.
fn run(
    daemon: &Arc<Daemon>,
    (live, work): (Arc<Live>, &Arc<Work>),
    wired: Wired,
) -> Result<mpsc::Receiver<Item>, ApiError> {
    work.includes(&wired.call);
    // Nobody wants it any more, or it is over.
    let waiter = Waiter::of(work);
    let (sender, mut chunks) = outbox();
    daemon.in_background(live, wired, Sink::Send(sender))?;
    let (items, answer) = mpsc::channel(CHUNKS_UNDER_WAY);
    let _writer = tokio::spawn(async move {
        let _waiter = waiter;
        loop {
            let chunk = tokio::select! {
                chunk = chunks.next() => chunk,
                () = items.closed() => None,
            };
            let Some(chunk) = chunk else { break };
            let item = Item::Chunk(Box::new(chunk));
            if passed(&items, item, || chunks.is_over(), LEFT).await != Passed::Taken {
                break;
            }
        }
    });
    Ok(answer)
}
