//! Where questions wait: at the daemon where one runs, so that there is one who decides what an operator may; else in the ledger
//! itself.

use std::cell::{Cell, OnceCell};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ringfence_api::{
    Answer, AnswerApproval, AnswerTerms, Answered as Said, Data, ErrorCode, ListApprovals, ListGrants,
    Question, RevokeAllGrants, RevokeGrant, ShowApproval, StoredAnswer,
};
use ringfence_client::ClientError;
use ringfence_runtime::Runtime;
use ringfence_runtime::approval::{
    AnswerError, Answered, Awaited, GrantError, Here, Inbox, InboxError, LiveGrant, Pending, Reply, Say,
    Terms, live_grants, matched, revoke as take_back,
};
use ringfence_runtime::ledger::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, ApprovalVote, Covers, GrantMade, LedgerReader,
    OpenError, ReadError, Timestamp,
};
use ringfence_types::{Bytes, Call, Principal};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::approval::Posed;
use crate::asked;
use crate::daemon::{self, Daemon};
use crate::environment::Environment;
use crate::error;

/// How often the daemon is asked whether somebody else has answered.
const LOOK: Duration = Duration::from_millis(250);

pub(super) enum Place {
    Daemon(Box<Daemon>),
    Here(Box<Runtime>),
}

/// A question, with what was said to it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) request: ApprovalRequest,
    pub(super) votes: Vec<ApprovalVote>,
    pub(super) asked: Timestamp,
    pub(super) decision: Option<ApprovalDecision>,
    pub(super) awaited: Awaited,
}

/// A stored answer that holds.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) made: GrantMade,
    pub(super) since: Timestamp,
    pub(super) used: u32,
    pub(super) left: Option<u32>,
    /// Of how many of the last questions it would have been the answer, and how many there were.
    pub(super) matched: Option<(usize, usize)>,
}

/// What came of an answer.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Decided { answer: ApprovalAnswer, stored: Option<Box<Held>> },
    Counted { approve: usize, deny: usize },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error(transparent)]
    Inbox(#[from] InboxError),
    #[error(transparent)]
    Grant(#[from] GrantError),
    #[error("the ledger cannot be read")]
    Open(#[from] OpenError),
    #[error("the ledger cannot be read")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Daemon(#[from] ClientError),
    #[error("the answer of the daemon makes no sense")]
    Strange,
    /// It was said why.
    #[error("the configuration cannot be read")]
    Unread(ExitCode),
}

impl PlaceError {
    /// Says why, in the same words wherever it comes from. `code` is for what was understood and does not count.
    pub(super) fn told(&self, code: u8) -> ExitCode {
        match self {
            Self::Answer(error) => {
                let _failed = error::failed(error, error.hint());
                ExitCode::from(code)
            }
            Self::Daemon(ClientError::Api(told)) if is_an_answer(told.code) => {
                let shown = |text: &str| Bytes::from(text).display();
                let _failed =
                    error::failed_text(&shown(&told.message), told.hint.as_deref().map(shown).as_deref());
                ExitCode::from(code)
            }
            Self::Daemon(error) => daemon::failed(error),
            Self::Strange => {
                error::failed(self, Some("it is of another version: start it again with this one"))
            }
            Self::Unread(code) => *code,
            error => error::failed(error, None),
        }
    }

    /// The daemon has ended, or hangs: whoever lasts longer goes on without it.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Daemon(error) if !matches!(error, ClientError::Api(_)))
    }
}

fn is_an_answer(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotFound | ErrorCode::Malformed | ErrorCode::Conflict | ErrorCode::Forbidden)
}

impl Place {
    pub(super) fn pending(&self) -> Result<Vec<Asked>, PlaceError> {
        match self {
            Self::Daemon(daemon) => {
                daemon.try_ask(&ListApprovals {})?.questions.into_iter().map(Asked::try_from).collect()
            }
            Self::Here(runtime) => {
                let pending = inbox(runtime).pending(Timestamp::now())?;
                Ok(pending.into_iter().map(|pending| Asked::of((pending, None))).collect())
            }
        }
    }

    /// The question whose id begins with `id`.
    pub(super) fn find(&self, id: &str) -> Result<Asked, PlaceError> {
        match self {
            Self::Daemon(daemon) => daemon.try_ask(&ShowApproval { id: said(id)? })?.try_into(),
            Self::Here(runtime) => Ok(Asked::of(inbox(runtime).find(id)?)),
        }
    }

    /// A question as somebody waits for its answer who has not asked it.
    pub(super) fn wait<'a>(
        &'a self,
        request: &'a ApprovalRequest,
    ) -> Result<Box<dyn Posed + 'a>, PlaceError> {
        Ok(match self {
            Self::Daemon(_) => Box::new(Elsewhere::new(self, request)),
            Self::Here(runtime) => Box::new(inbox(runtime).wait(request)?),
        })
    }

    /// Gives an answer. Who gives it is said in it, and found out by the daemon itself where it is given to one.
    pub(super) fn answer(
        &self,
        environment: &Environment,
        question: &Asked,
        reply: Reply,
    ) -> Result<Outcome, PlaceError> {
        match self {
            Self::Daemon(daemon) => daemon.try_ask(&over_the_interface(question, reply)?)?.try_into(),
            Self::Here(runtime) => {
                let reply = with_expiry(environment, runtime, reply)?;
                let inbox = inbox(runtime).seeing(question.awaited);
                let answered = inbox.answer(question.request.transaction.as_str(), &reply)?;
                let reader = runtime.ledger().reader()?;
                Ok(match answered {
                    Answered::Counted { approve, deny } => Outcome::Counted { approve, deny },
                    Answered::Decided { decision, grant } => {
                        let live = |made| LiveGrant { made, since: Timestamp::now(), used: 0 };
                        let stored = grant.map(|made| Box::new(Held::of(&reader, live(*made))));
                        Outcome::Decided { answer: decision.answer, stored }
                    }
                })
            }
        }
    }

    pub(super) fn grants(&self) -> Result<Vec<Held>, PlaceError> {
        match self {
            Self::Daemon(daemon) => {
                daemon.try_ask(&ListGrants {})?.grants.into_iter().map(Held::try_from).collect()
            }
            Self::Here(runtime) => {
                let reader = runtime.ledger().reader()?;
                let live = live_grants(&reader, Here::Everywhere, Timestamp::now())?;
                Ok(live.into_iter().map(|grant| Held::of(&reader, grant)).collect())
            }
        }
    }

    /// The ids of what was taken back: the one that begins with `id`, or all.
    pub(super) fn revoke(
        &self,
        id: Option<&str>,
        (by, reason): (&Principal, Option<&str>),
    ) -> Result<Vec<String>, PlaceError> {
        let said = reason.map(str::to_owned);
        match (self, id) {
            (Self::Daemon(_), Some("")) => Err(GrantError::Unknown { id: String::new() }.into()),
            (Self::Daemon(daemon), Some(id)) => {
                Ok(daemon.try_ask(&RevokeGrant { id: id.to_owned(), reason: said })?.grants)
            }
            (Self::Daemon(daemon), None) => Ok(daemon.try_ask(&RevokeAllGrants { reason: said })?.grants),
            (Self::Here(runtime), id) => {
                let place = (runtime.ledger(), runtime.setup().state_dir.as_path());
                let gone = take_back(place, (id, &|_| true), by, reason)?;
                Ok(gone.iter().map(ToString::to_string).collect())
            }
        }
    }
}

/// Nothing is called nothing, and an address with nothing in it leads elsewhere.
fn said(id: &str) -> Result<String, PlaceError> {
    if id.is_empty() { Err(AnswerError::Unknown { id: String::new() }.into()) } else { Ok(id.to_owned()) }
}

fn inbox(runtime: &Runtime) -> Inbox<'_> {
    Inbox::new(runtime.ledger(), &runtime.setup().state_dir)
}

/// How long "always here" holds where it was not said.
fn with_expiry(environment: &Environment, runtime: &Runtime, mut reply: Reply) -> Result<Reply, PlaceError> {
    if let Say::AlwaysHere { terms, .. } = &mut reply.say
        && terms.expires.is_none()
    {
        let settings = asked::settings(environment, runtime.setup(), None).map_err(PlaceError::Unread)?;
        let usual = settings.approvals.grant_expiry.map(|time| Duration::from_millis(time.0));
        *terms = Terms { uses: terms.uses, ..Terms::within(usual, None)? };
    }
    Ok(reply)
}

fn over_the_interface(question: &Asked, reply: Reply) -> Result<AnswerApproval, PlaceError> {
    let Reply { say, reason, .. } = reply;
    let (answer, terms) = match say {
        Say::Once => (Answer::Once, None),
        Say::Deny => (Answer::Deny, None),
        Say::Session(terms) => (Answer::Session, said_of(terms)),
        Say::AlwaysHere { offer, terms } => (Answer::AlwaysHere { offer }, said_of(terms)),
        Say::Edited(call) => match *call {
            Call::Exec(exec) => {
                let argv = exec.argv.iter().map(|word| Data::from(word.as_slice().to_vec()));
                (Answer::Instead { argv: argv.collect() }, None)
            }
            _ => return Err(PlaceError::Strange),
        },
    };
    let id = question.request.transaction.to_string();
    let asker_gone = question.awaited == Awaited::ByNobody;
    Ok(AnswerApproval { id, answer, terms, reason, asker_gone })
}

fn said_of(terms: Terms) -> Option<AnswerTerms> {
    let left = |end: Timestamp| {
        let left = Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default();
        u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
    };
    let said = AnswerTerms { expires_ms: terms.expires.map(left), uses: terms.uses };
    (terms != Terms::default()).then_some(said)
}

impl Asked {
    fn of((pending, decision): (Pending, Option<ApprovalDecision>)) -> Self {
        let Pending { request, votes, asked, awaited, .. } = pending;
        Self { request, votes, asked, decision, awaited }
    }
}

impl TryFrom<Question> for Asked {
    type Error = PlaceError;

    fn try_from(question: Question) -> Result<Self, PlaceError> {
        Ok(Self {
            request: understood(question.request)?,
            votes: question.votes.into_iter().map(understood).collect::<Result<_, _>>()?,
            asked: question.asked.parse().map_err(|_strange| PlaceError::Strange)?,
            decision: question.decision.map(understood).transpose()?,
            awaited: if question.asker_gone { Awaited::ByNobody } else { Awaited::BySomebody },
        })
    }
}

impl Held {
    fn of(reader: &LedgerReader, grant: LiveGrant) -> Self {
        let matched = match &grant.made.covers {
            Covers::Here { rules, .. } => matched(reader, &grant.made.workspace, rules).ok(),
            Covers::Session { .. } | Covers::Next { .. } => None,
        };
        let left = grant.left();
        Self { made: grant.made, since: grant.since, used: grant.used, left, matched }
    }
}

impl TryFrom<StoredAnswer> for Held {
    type Error = PlaceError;

    fn try_from(stored: StoredAnswer) -> Result<Self, PlaceError> {
        Ok(Self {
            made: understood(stored.grant)?,
            since: stored.since.parse().map_err(|_strange| PlaceError::Strange)?,
            used: stored.used,
            left: stored.uses_left,
            matched: stored.matched.map(|matched| (matched.count, matched.of)),
        })
    }
}

impl TryFrom<Said> for Outcome {
    type Error = PlaceError;

    fn try_from(said: Said) -> Result<Self, PlaceError> {
        Ok(match said {
            Said::Counted { approve, deny } => Self::Counted { approve, deny },
            Said::Decided { answer, stored } => Self::Decided {
                answer: understood(Value::from(answer))?,
                stored: stored.map(|stored| Held::try_from(*stored).map(Box::new)).transpose()?,
            },
        })
    }
}

fn understood<T: DeserializeOwned>(value: Value) -> Result<T, PlaceError> {
    serde_json::from_value(value).map_err(|_other| PlaceError::Strange)
}

/// A question at the daemon.
struct Elsewhere<'a> {
    place: &'a Place,
    request: &'a ApprovalRequest,
    /// How long it had, and since when: a clock that is set back gives nobody more time.
    given: (Duration, Instant),
    /// `None`: never again.
    look_at: Cell<Option<Instant>>,
    found: OnceCell<ApprovalDecision>,
}

impl<'a> Elsewhere<'a> {
    fn new(place: &'a Place, request: &'a ApprovalRequest) -> Self {
        let given = (super::left(request), Instant::now());
        Self { place, request, given, look_at: Cell::new(Some(Instant::now())), found: OnceCell::new() }
    }
}

impl Posed for Elsewhere<'_> {
    fn request(&self) -> &ApprovalRequest {
        self.request
    }

    fn left(&self) -> Duration {
        let (given, begun) = self.given;
        super::left(self.request).min(given.saturating_sub(begun.elapsed()))
    }

    fn decided(&self) -> Option<ApprovalDecision> {
        let due = self.look_at.get().is_some_and(|at| at <= Instant::now());
        if self.found.get().is_none() && due {
            let found = self.place.find(self.request.transaction.as_str());
            // Nobody at a prompt waits again and again for a daemon that gives no answer.
            let gone = found.as_ref().is_err_and(PlaceError::is_gone);
            self.look_at.set((!gone).then(|| Instant::now() + LOOK));
            if let Some(decision) = found.ok().and_then(|question| question.decision) {
                return Some(self.found.get_or_init(|| decision).clone());
            }
        }
        self.found.get().cloned()
    }
}
