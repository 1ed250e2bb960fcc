//! `ringfence approvals`: the questions that wait, from any terminal.

mod grants;
mod place;
mod watch;

use std::process::ExitCode;

use ringfence_runtime::approval::{AnswerError, Awaited, Reply, Say, Terms};
use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::ledger::{ApprovalDecision, ApprovalRequest, Timestamp};
use ringfence_types::{Bytes, Call, Principal};
use serde::Serialize;

use crate::approval::{self, Explains, Need, Prompt, Terminal, span};
use crate::args::{ApprovalsCommand, Approve, FAILED};
use crate::commands::run::{self, print_json};
use crate::daemon::Daemon;
use crate::environment::Environment;
use crate::error;
use crate::explain::Style;
use crate::output::say;
use place::{Asked, Outcome, Place, PlaceError};

/// Of a question whose asker is gone.
const GONE: &str =
    "whoever asked is gone: a yes is for the next call that is the same, once, while this has time";
/// The answer did not count, or there was nothing to answer.
const NOT_COUNTED: u8 = 1;

pub(crate) fn run(command: ApprovalsCommand) -> ExitCode {
    let desk = match Desk::open() {
        Ok(desk) => desk,
        Err(code) => return code,
    };
    let done = match command {
        ApprovalsCommand::List { json } => desk.list(json.into()),
        ApprovalsCommand::Show { id, json } => desk.show(&id, json.into()),
        ApprovalsCommand::Approve(approve) => desk.approve(&approve),
        ApprovalsCommand::Deny { id, reason } => desk.deny(&id, reason),
        ApprovalsCommand::Watch { json } => watch::run(desk, json.into()),
        ApprovalsCommand::Grants { json } => grants::list(&desk, json.into()),
        ApprovalsCommand::Revoke(revoke) => grants::revoke(&desk, &revoke),
    };
    done.unwrap_or_else(|code| code)
}

/// Who reads the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    People,
    Json,
}

impl From<bool> for Form {
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::People }
    }
}

/// Where an operator answers.
struct Desk {
    environment: Environment,
    place: Place,
}

impl Desk {
    fn open() -> Result<Self, ExitCode> {
        let environment = Environment::read();
        let refused = approval::authenticate(&environment, Need::Nothing).err();
        // What runs in a session is refused in any case, and makes no ledger of its own on the way.
        if let (Some(refusal), false) = (&refused, approval::has_ledger(&environment)) {
            return Err(error::refused(refusal));
        }
        let place = match Daemon::find(&environment).filter(|_| refused.is_none()) {
            Some(daemon) => Place::Daemon(Box::new(daemon)),
            None => Place::Here(Box::new(run::runtime(&environment, Attendance::Unattended)?)),
        };
        let desk = Self { environment, place };
        desk.operator(Need::Nothing, "look at questions")?;
        Ok(desk)
    }

    /// Who acts. Somebody who may not is written down.
    fn operator(&self, need: Need, purpose: &str) -> Result<Principal, ExitCode> {
        match &self.place {
            Place::Daemon(_) => approval::require(&self.environment, need, purpose),
            Place::Here(runtime) => approval::authenticate(&self.environment, need).map_err(|refusal| {
                approval::record(runtime, &refusal, purpose);
                error::refused(&refusal)
            }),
        }
    }

    fn list(&self, form: Form) -> Result<ExitCode, ExitCode> {
        let pending = self.place.pending().map_err(|error| error.told(FAILED))?;
        if form == Form::Json {
            print_json(&List { schema: 1, questions: pending.iter().map(Question::of).collect() });
            return Ok(ExitCode::SUCCESS);
        }
        if pending.is_empty() {
            say!("nobody waits for an answer");
        }
        for question in &pending {
            let request = &question.request;
            say!(
                "{}  {:<8}  {:<12}  {}",
                request.transaction,
                request.risk,
                span(left(request)),
                summary(request)
            );
            if question.awaited == Awaited::ByNobody {
                say!("  {}", GONE);
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn find(&self, id: &str) -> Result<Asked, ExitCode> {
        self.place.find(id).map_err(|error| error.told(NOT_COUNTED))
    }

    fn show(&self, id: &str, form: Form) -> Result<ExitCode, ExitCode> {
        let question = self.find(id)?;
        if form == Form::Json {
            let decision = question.decision.as_ref();
            print_json(&Shown { schema: 1, question: Question::of(&question), decision });
            return Ok(ExitCode::SUCCESS);
        }
        let style = Style::of(&self.environment.all, &std::io::stdout());
        let prompt = Prompt::new(&question.request, left(&question.request), Explains::No);
        say!("{}", prompt.card(100, style).trim_end());
        for vote in &question.votes {
            say!("voted        {} by {}", vote.vote.word(), vote.by);
        }
        match &question.decision {
            Some(decision) => {
                say!("answered     {} by {}", approval::word(decision.answer), decision.by);
                if let Some(reason) = &decision.reason {
                    say!("because      {}", shown(reason));
                }
            }
            None if question.awaited == Awaited::ByNobody => say!("answered     not yet; {GONE}"),
            None => say!("answered     not yet"),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn approve(&self, approve: &Approve) -> Result<ExitCode, ExitCode> {
        let by = self.operator(Need::Terminal, &format!("approve {}", shown(&approve.id)))?;
        let question = self.find(&approve.id)?;
        if let Some(decision) = &question.decision {
            let by = Box::new(decision.by.clone());
            return Err(not_counted(AnswerError::AnsweredBefore { answer: decision.answer, by }));
        }
        let say = meant(approve, &question.request)?;
        let waiting = self.place.wait(&question.request).map_err(|error| error.told(NOT_COUNTED))?;
        let confirmed =
            Terminal::new(&self.environment).confirmed(waiting.as_ref(), &meaning(&say, question.awaited));
        if let Some(decision) = waiting.decided() {
            return Err(not_counted_text(&approval::told(&decision)));
        }
        if confirmed != Some(true) {
            return Err(not_counted_text("nothing was answered"));
        }
        self.answered(&question, Reply { by, say, reason: approve.reason.clone() })
    }

    fn deny(&self, id: &str, reason: Option<String>) -> Result<ExitCode, ExitCode> {
        let by = self.operator(Need::Nothing, &format!("deny {}", shown(id)))?;
        self.answered(&self.find(id)?, Reply { by, say: Say::Deny, reason })
    }

    /// Gives an answer to a question as it was shown, and says what came of it.
    fn answered(&self, question: &Asked, reply: Reply) -> Result<ExitCode, ExitCode> {
        let answered = self.place.answer(&self.environment, question, reply);
        let request = &question.request;
        match answered.map_err(|error| error.told(NOT_COUNTED))? {
            Outcome::Decided { answer, stored } => {
                say!("{}: {}", request.transaction, approval::word(answer));
                stored.iter().for_each(|held| grants::stored(held));
            }
            Outcome::Counted { approve, deny } => {
                let quorum = request.quorum;
                say!("counted: {approve} of {} for it, {deny} of {} against", quorum.approve, quorum.deny);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What was typed, as an answer to this question.
fn meant(approve: &Approve, request: &ApprovalRequest) -> Result<Say, ExitCode> {
    let time = approve.expires.map(|time| std::time::Duration::from_millis(time.0));
    let terms = Terms::within(time, approve.uses).map_err(not_counted)?;
    if !approve.instead.is_empty() {
        let argv = approve.instead.iter().map(|word| Bytes::from(word.as_os_str()));
        return Say::instead(request, argv.collect()).map_err(not_counted);
    }
    if approve.session {
        return Ok(Say::Session(terms));
    }
    match approve.always {
        Some(number) => Ok(Say::AlwaysHere { offer: number.saturating_sub(1), terms }),
        None if terms != Terms::default() => Err(error::failed_text(
            "`--expires` and `--uses` are about a stored answer",
            Some("add `--session` or `--always`"),
        )),
        None => Ok(Say::Once),
    }
}

fn shown(text: &str) -> String {
    Bytes::from(text).display()
}

fn meaning(say: &Say, awaited: Awaited) -> String {
    match say {
        Say::Once if awaited == Awaited::ByNobody => {
            "nobody waits for it now: allow the next call that is the same, once".to_owned()
        }
        Say::Once => "allow it once".to_owned(),
        Say::Edited(call) => match call.as_ref() {
            Call::Exec(exec) => {
                let words: Vec<String> = exec.argv.iter().map(Bytes::quoted).collect();
                format!("allow this instead, once: {}", words.join(" "))
            }
            _ => "allow something else instead, once".to_owned(),
        },
        Say::Session(_) => "allow the same for the rest of the session".to_owned(),
        Say::AlwaysHere { offer, .. } => format!("always allow number {} of `always here`", offer + 1),
        Say::Deny => "deny it".to_owned(),
    }
}

fn left(request: &ApprovalRequest) -> std::time::Duration {
    request.expires.duration_since(Timestamp::now()).try_into().unwrap_or_default()
}

/// The first line of what would happen.
fn summary(request: &ApprovalRequest) -> String {
    let line = request.card.blocks.first().and_then(|block| block.lines.first()).cloned().unwrap_or_default();
    match line.char_indices().nth(100) {
        Some((end, _)) => format!("{}...", line.split_at(end).0),
        None => line,
    }
}

fn not_counted(error: AnswerError) -> ExitCode {
    PlaceError::from(error).told(NOT_COUNTED)
}

fn not_counted_text(text: &str) -> ExitCode {
    let _failed = error::failed_text(text, None);
    ExitCode::from(NOT_COUNTED)
}

/// What `approvals list --json` prints, schema 1.
#[derive(Serialize)]
struct List<'a> {
    schema: u32,
    questions: Vec<Question<'a>>,
}

/// What `approvals show --json` prints, schema 1.
#[derive(Serialize)]
struct Shown<'a> {
    schema: u32,
    #[serde(flatten)]
    question: Question<'a>,
    /// `null` while it waits.
    decision: Option<&'a ApprovalDecision>,
}

/// One question.
#[derive(Serialize)]
struct Question<'a> {
    id: &'a str,
    asked: Timestamp,
    seconds_left: u64,
    request: &'a ApprovalRequest,
    votes: usize,
    /// Nobody waits for the answer any more.
    asker_gone: bool,
}

impl<'a> Question<'a> {
    fn of(question: &'a Asked) -> Self {
        Self {
            id: question.request.transaction.as_str(),
            asked: question.asked,
            seconds_left: left(&question.request).as_secs(),
            request: &question.request,
            votes: question.votes.len(),
            asker_gone: question.awaited == Awaited::ByNobody,
        }
    }
}
