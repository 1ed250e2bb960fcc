use ringfence_authz::{Action, Verdict, decide, placed, refer};
use ringfence_ledger::Event;
use ringfence_sandbox::{Io, Source};
use ringfence_types::{
    Call, Decision, FileCall, Fingerprint, Layer, LeakAction, Refusal, RefusalCode, TransactionId,
};

use super::asked::{Asked, Asking, Turn};
use super::decided::Decided;
use super::settled::Refused;
use crate::approval::{BREAKER, STOPPED, STOPPED_LOOP};
use crate::leaks::{self, Content};
use crate::observe::Stage;
use crate::session::AgentSession;

/// How often a question is asked again because what it was about has changed.
const TURNS: usize = 3;

/// A call of the owner of this process.
#[derive(Debug)]
pub(super) struct Authenticated {
    pub(super) call: Call,
    /// Where the transaction began before the call.
    pub(super) transaction: Option<TransactionId>,
}

impl Authenticated {
    /// What has changed since the last call counts for this one, and where it starts by that.
    pub(super) fn renew_policy(self, session: &mut AgentSession<'_>) -> Result<Self, Refused> {
        match session.renew() {
            Ok(()) => Ok(Self { call: placed(self.call, &session.all_roots()), ..self }),
            Err(refusal) => Err(Refused::early(self.call, refusal)),
        }
    }

    /// A secret must not leave with what is asked for. Before anybody is asked: a question is shown to people.
    pub(super) fn hold_secrets(self, session: &mut AgentSession<'_>, io: &Io<'_>) -> Result<Self, Refused> {
        let content = match (&self.call, &io.stdin) {
            (Call::File(FileCall::Write { path, .. }), Source::Bytes(bytes)) => {
                Some(Content::File { path, bytes })
            }
            (Call::Exec(_) | Call::Fetch(_), Source::Bytes(bytes)) => Some(Content::Input(bytes)),
            _ => None,
        };
        match refused_leak(&self.call, content, session) {
            None => Ok(self),
            Some(refusal) => Err(Refused::early(self.call, refusal)),
        }
    }

    pub(super) fn decide(
        self,
        session: &mut AgentSession<'_>,
        mut asking: Asking<'_, '_>,
    ) -> Result<Decided, Refused> {
        let call = asking.intake.stated(self.call);
        if let Some(refusal) = ended(&call, session) {
            return Err(Refused::early(call, refusal));
        }
        // A transaction is asked about once: what began before the call cannot be asked about again.
        let turns = if self.transaction.is_some() { 1 } else { TURNS };
        let mut begun = self.transaction;
        for _turn in 0..turns {
            match turn(&call, begun.take(), session, &mut asking)? {
                Turn::Decided(decided) => return Ok(*decided),
                Turn::Again => {}
            }
        }
        Err(Refused::early(call, restless(turns)))
    }

    /// A tool that no rule speaks of, and that the agent asks about by itself. It is on record as a question.
    pub(super) fn refer(self, session: &mut AgentSession<'_>) -> Result<Decided, Refused> {
        if let Some(refusal) = ended(&self.call, session) {
            return Err(Refused::early(self.call, refusal));
        }
        let early = |refusal| Refused::early(self.call.clone(), refusal);
        let transaction = TransactionId::random().map_err(|error| early(no_id(&error.to_string())))?;
        let action = Action::new(self.call.clone(), session.all_roots());
        let grant = refer(&session.policy, action, &session.facts()).map_err(early)?;
        Ok(Decided { decision: Decision::Ask, ..Decided::by_policy(grant, transaction) })
    }
}

/// Why nothing more is done in this session, or not this again.
fn ended(call: &Call, session: &mut AgentSession<'_>) -> Option<Refusal> {
    if session.is_over() {
        return Some(terminated());
    }
    if session.common.is_closed() {
        return Some(closed());
    }
    if session.common.memory().is_over() {
        return Some(over());
    }
    repeated(call, session)
}

/// Notes what would leave with a call; the answer, where that must not be.
pub(super) fn refused_leak(
    call: &Call,
    content: Option<Content<'_>>,
    session: &mut AgentSession<'_>,
) -> Option<Refusal> {
    match leaks::judge(call, content, session) {
        Ok(passed) => {
            session.found.merge(passed);
            None
        }
        Err(leak) => {
            session.found.merge(leak.tally);
            if leak.action == LeakAction::Terminate {
                session.terminate();
            }
            Some(leak.refusal)
        }
    }
}

/// Judges the call as everything is now, and asks where that is the answer.
fn turn(
    call: &Call,
    begun: Option<TransactionId>,
    session: &mut AgentSession<'_>,
    asking: &mut Asking<'_, '_>,
) -> Result<Turn, Refused> {
    let early = |refusal| Refused::early(call.clone(), refusal);
    let transaction = begun.map_or_else(TransactionId::random, Ok);
    let transaction = transaction.map_err(|error| early(no_id(&error.to_string())))?;
    session.reach(Stage::Decide);
    session.begun(&transaction);
    let facts = session.facts();
    let mut verdict = decide(&session.policy, Action::new(call.clone(), session.all_roots()), &facts);
    if matches!(verdict, Verdict::Ask(_)) && asking.intake.read_ahead(call) {
        // With what it reads known, a stored answer may be for it, and it may be the same again.
        let known = asking.intake.stated(call.clone());
        if let Some(refusal) = repeated(&known, session) {
            return Err(Refused::early(known, refusal));
        }
        verdict = decide(&session.policy, Action::new(known, session.all_roots()), &facts);
    }
    session.decided(match &verdict {
        Verdict::Allow(_) => Decision::Allow,
        Verdict::Ask(_) => Decision::Ask,
        Verdict::Deny(_) => Decision::Deny,
    });
    match verdict {
        Verdict::Allow(grant) => Ok(Turn::Decided(Box::new(Decided::by_policy(*grant, transaction)))),
        Verdict::Ask(question) => Asked { question: *question, transaction }.answer(session, asking),
        Verdict::Deny(refusal) => Err(early(refusal)),
    }
}

/// Whether this is a loop by now. It is written down before it is said.
fn repeated(call: &Call, session: &mut AgentSession<'_>) -> Option<Refusal> {
    let fingerprint = Fingerprint::of(call, &session.all_roots());
    let repeats = session.common.memory().loops.stops(&fingerprint)?;
    let event = Event::LoopFound {
        session: session.id.clone(),
        fingerprint,
        repeats: u32::try_from(repeats).unwrap_or(u32::MAX),
        stopped: true,
    };
    // The refusal says the same, and is written as well.
    let _written = session.append(vec![event]);
    Some(Refusal {
        code: RefusalCode::Loop,
        layer: Layer::Session,
        rule: STOPPED_LOOP.to_owned(),
        message: format!(
            "the same call, or the same two in turn, came {} times in a row with the same outcome; it is not done again",
            STOPPED - 1
        ),
        hint: Some("do something else: the outcome does not change by repeating it".to_owned()),
    })
}

fn terminated() -> Refusal {
    Refusal {
        code: RefusalCode::Secret,
        layer: Layer::Session,
        rule: "leaks.terminate".to_owned(),
        message: "a secret was on its way out, and the session ended with that".to_owned(),
        hint: Some("a new session begins anew".to_owned()),
    }
}

pub(super) fn closed() -> Refusal {
    Refusal {
        code: RefusalCode::Profile,
        layer: Layer::Session,
        rule: "session.ended".to_owned(),
        message: "the session is over".to_owned(),
        hint: Some("a new session begins anew".to_owned()),
    }
}

fn over() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Session,
        rule: BREAKER.to_owned(),
        message: "the like was denied again and again, so nothing more is done in this session".to_owned(),
        hint: Some("stop, and tell the person what you wanted; a new session begins anew".to_owned()),
    }
}

fn restless(turns: usize) -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: Layer::Call,
        rule: "approval.superseded".to_owned(),
        message: match turns {
            1 => "what was asked about changed while the question waited".to_owned(),
            _ => format!("what was asked about changed each of {turns} times while the question waited"),
        },
        hint: Some("let nothing change it while a person reads the question".to_owned()),
    }
}

fn no_id(why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Ledger,
        layer: Layer::Floor,
        rule: "ledger.written-before-done".to_owned(),
        message: format!("an id for the transaction could not be made, so nothing was done: {why}"),
        hint: None,
    }
}
