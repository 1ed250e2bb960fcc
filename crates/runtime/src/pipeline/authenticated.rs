use ringfence_authz::{Action, AuthzVerdict, decide, placed, refer, with_resolved_ceiling};
use ringfence_ledger::Event;
use ringfence_types::{
    ActionFingerprint, Call, Decision, ExecCall, FileCall, NetMode, PolicyLayer, Refusal, RefusalCode,
    RuleId, TransactionId,
};

use super::awaiting_approval::{AskContext, AwaitingApproval, DecisionRound};
use super::context::{Actor, CallContext};
use super::decided::Decided;
use super::input::Intake;
use super::settled::RefusedCall;
use crate::approvals::STOPPED;
use crate::effect::{Effect, ToolEffect};
use crate::host_facts::LiveHost;
use crate::leaks::CallContent;
use crate::observer::PipelineStage;
use crate::session::{BREAKER, STOPPED_LOOP};

/// How often a call is asked about again because its bound objects changed.
const TURNS: usize = 3;

/// A call of the owner of this process.
#[derive(Debug)]
pub(super) struct Authenticated<E> {
    pub(super) effect: E,
    pub(super) call: Call,
    /// Set if the transaction began before the call.
    pub(super) transaction: Option<TransactionId>,
}

impl<E: Effect> Authenticated<E> {
    /// Applies policy changes since the last call, then resolves the working directory.
    pub(super) fn renew_policy(self, context: &mut impl CallContext) -> Result<Self, RefusedCall> {
        let call = with_resolved_ceiling(self.call, &context.roots());
        match context.renew().and_then(|()| context.narrow(&call)) {
            Ok(()) => {
                let call = placed(within_ceiling(call, context.policy().net), &context.roots());
                Ok(Self { call, ..self })
            }
            Err(refusal) => Err(RefusedCall::settle_before_start(call, refusal)),
        }
    }

    /// Refuses a call that would leak a secret. Before the approval, because people see the prompt.
    pub(super) fn scan_for_secrets(
        self,
        context: &mut impl CallContext,
        intake: &Intake<'_>,
    ) -> Result<Self, RefusedCall> {
        let content = match (&self.call, intake.given()) {
            (Call::File(FileCall::Write { path, .. }), Some(bytes)) => {
                Some(CallContent::File { path, bytes })
            }
            (Call::Exec(_) | Call::Fetch(_), Some(bytes)) => Some(CallContent::Input(bytes)),
            _ => None,
        };
        match context.refuse_leak(&self.call, content) {
            None => Ok(self),
            Some(refusal) => Err(RefusedCall::settle_before_start(self.call, refusal)),
        }
    }

    pub(super) fn decide(
        self,
        context: &mut impl CallContext,
        mut asking: AskContext<'_, '_>,
    ) -> Result<Decided<E>, RefusedCall> {
        let Self { mut effect, call, transaction } = self;
        let mut call = asking.intake.stated(call);
        if let Some(refusal) = ended(&call, context) {
            return Err(RefusedCall::settle_before_start(call, refusal));
        }
        // A transaction has one approval: one that began before the call cannot be asked about again.
        let turns = if transaction.is_some() { 1 } else { TURNS };
        let mut begun = transaction;
        for _turn in 0..turns {
            let evaluation = CallEvaluation { effect, call: &call, transaction: begun.take() };
            match evaluation.evaluate_once(context, &mut asking)? {
                DecisionRound::Decided(decided) => return Ok(*decided),
                DecisionRound::Again(again) => effect = again,
            }
            // Input read for the prompt stays known in the next round.
            call = asking.intake.stated(call);
        }
        Err(RefusedCall::settle_before_start(call, policy_unstable(turns)))
    }
}

impl Authenticated<ToolEffect> {
    /// Records a tool call that no rule covers as an approval, which the agent itself requests.
    pub(super) fn refer(self, context: &mut impl CallContext) -> Result<Decided<ToolEffect>, RefusedCall> {
        if let Some(refusal) = ended(&self.call, context) {
            return Err(RefusedCall::settle_before_start(self.call, refusal));
        }
        let early = |refusal| RefusedCall::settle_before_start(self.call.clone(), refusal);
        let transaction = TransactionId::random().map_err(|error| early(missing_id(&error.to_string())))?;
        let action = Action::new(self.call.clone(), context.roots());
        let grant = refer(context.policy(), action, &context.facts()).map_err(early)?;
        Ok(Decided { decision: Decision::Ask, ..Decided::by_policy(self.effect, grant, transaction) })
    }
}

/// A command with a ceiling of its own has at most the network of its session.
fn within_ceiling(call: Call, net: NetMode) -> Call {
    match call {
        Call::Exec(exec) if exec.ceiling.is_some() => Call::Exec(ExecCall { net: exec.net.min(net), ..exec }),
        other => other,
    }
}

/// Refuses if the session has ended or the loop guard stops the call.
fn ended(call: &Call, context: &mut impl CallContext) -> Option<Refusal> {
    let memory = context.memory();
    if memory.is_over() {
        return Some(terminated());
    }
    if memory.is_closed() {
        return Some(closed());
    }
    // A running command keeps the connections that policy allows. Where an approval is needed, the flow is
    // refused later.
    if Actor::of(call) == Actor::Program {
        return None;
    }
    if memory.memory().is_over() {
        return Some(is_ended());
    }
    is_repeat(call, context)
}

/// A call with the current policy.
struct CallEvaluation<'c, E> {
    effect: E,
    call: &'c Call,
    transaction: Option<TransactionId>,
}

impl<E: Effect> CallEvaluation<'_, E> {
    /// Evaluates the call, and requests an approval where the decision is `ask`.
    fn evaluate_once(
        self,
        context: &mut impl CallContext,
        asking: &mut AskContext<'_, '_>,
    ) -> Result<DecisionRound<E>, RefusedCall> {
        let Self { effect, call, transaction } = self;
        let early = |refusal| RefusedCall::settle_before_start(call.clone(), refusal);
        let transaction = transaction.map_or_else(TransactionId::random, Ok);
        let transaction = transaction.map_err(|error| early(missing_id(&error.to_string())))?;
        context.reached(PipelineStage::Decide);
        context.begun(&transaction);
        let facts = context.facts();
        let mut verdict = judge(call.clone(), context, &facts);
        if matches!(verdict, AuthzVerdict::Ask(_)) && asking.intake.read_ahead(call) {
            // With the input known, a grant may match, and the loop guard may recognise the call.
            let known = asking.intake.stated(call.clone());
            if let Some(refusal) = is_repeat(&known, context) {
                return Err(RefusedCall::settle_before_start(known, refusal));
            }
            verdict = judge(known, context, &facts);
        }
        if let AuthzVerdict::Ask(question) = &verdict
            && let Some(instead) = effect.asked_instead(question)
        {
            verdict = judge(instead, context, &facts);
        }
        context.judged(match &verdict {
            AuthzVerdict::Allow(_) => Decision::Allow,
            AuthzVerdict::Ask(_) => Decision::Ask,
            AuthzVerdict::Deny(_) => Decision::Deny,
        });
        match verdict {
            AuthzVerdict::Allow(grant) => {
                Ok(DecisionRound::Decided(Box::new(Decided::by_policy(effect, *grant, transaction))))
            }
            AuthzVerdict::Ask(question) => {
                AwaitingApproval { effect, question: *question, transaction }.await_answer(context, asking)
            }
            AuthzVerdict::Deny(refusal) => Err(early(refusal)),
        }
    }
}

fn judge(call: Call, context: &impl CallContext, facts: &LiveHost) -> AuthzVerdict {
    decide(context.policy(), Action::new(call, context.roots()), facts)
}

/// Refuses a loop. The ledger records it first.
fn is_repeat(call: &Call, context: &mut impl CallContext) -> Option<Refusal> {
    let fingerprint = ActionFingerprint::of(call, &context.roots());
    let repeats = context.memory().memory().loops.stops(&fingerprint)?;
    let event = Event::LoopDetected {
        session: context.session_id().clone(),
        fingerprint,
        repeats: u32::try_from(repeats).unwrap_or(u32::MAX),
        stopped: true,
    };
    // The refusal says the same and is recorded too.
    let _written = context.append(vec![event]);
    Some(Refusal {
        code: RefusalCode::Loop,
        layer: PolicyLayer::Session,
        rule: STOPPED_LOOP.into(),
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
        layer: PolicyLayer::Session,
        rule: RuleId::LeaksTerminate.into(),
        message: "a secret was on its way out, and the session ended with that".to_owned(),
        hint: Some("start a new session".to_owned()),
    }
}

pub(crate) fn closed() -> Refusal {
    Refusal {
        code: RefusalCode::Profile,
        layer: PolicyLayer::Session,
        rule: RuleId::SessionEnded.into(),
        message: "the session has ended".to_owned(),
        hint: Some("start a new session".to_owned()),
    }
}

pub(super) fn is_ended() -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Session,
        rule: BREAKER.into(),
        message: "the like was denied again and again, so nothing more is done in this session".to_owned(),
        hint: Some("stop, and tell the user what you wanted to do; a new session starts fresh".to_owned()),
    }
}

fn policy_unstable(turns: usize) -> Refusal {
    Refusal {
        code: RefusalCode::Approval,
        layer: PolicyLayer::Call,
        rule: RuleId::ApprovalSuperseded.into(),
        message: match turns {
            1 => "the action changed while the request was pending".to_owned(),
            _ => format!("the action changed {turns} times while the request was pending"),
        },
        hint: Some("keep the files unchanged while an approver reads the request".to_owned()),
    }
}

fn missing_id(why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Ledger,
        layer: PolicyLayer::Floor,
        rule: RuleId::LedgerWrittenBeforeDone.into(),
        message: format!("an id for the transaction could not be made, so nothing was done: {why}"),
        hint: None,
    }
}
