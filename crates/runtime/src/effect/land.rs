//! The land effect: brings changes of a layer into the roots, or takes them back.

use std::collections::BTreeSet;
use std::path::Path;

use ringfence_authz::ApprovalNeeded;
use ringfence_layer::{LandingSelection, LaterChanges, Layer, LayerChange, LayerError, UndoOutcome};
use ringfence_ledger::Event;
use ringfence_sandbox::CommandIo;
use ringfence_types::{Call, Landing, LandingAction, PolicyLayer, Refusal, RefusalCode, RuleId};
use zeroize::Zeroizing;

use super::file::{EffectOutput, over_quota};
use super::{Effect, Perform, held_changes};
use crate::layer::{
    LandingOutcome, changed_since, layer_hint, patch_of_landing, report_of_landing, report_of_undo,
};
use crate::pipeline::{Admitted, CallContext as _, CallEnd, Running, Settled, chain};
use crate::session::AgentSession;

/// A landing with its layer, which stays locked until it has landed.
#[derive(Debug)]
pub struct LandEffect {
    layer: Option<Layer>,
    /// As they were looked at. A landing has some of them or all.
    changes: Vec<LayerChange>,
}

impl LandEffect {
    pub(crate) fn new(layer: Layer, changes: Vec<LayerChange>) -> Self {
        Self { layer: Some(layer), changes }
    }
}

impl Effect for LandEffect {
    fn can_become(call: &Call) -> bool {
        matches!(call, Call::Land(_))
    }

    fn diff(&self, question: &ApprovalNeeded) -> Option<Result<Zeroizing<Vec<u8>>, LayerError>> {
        let Call::Land(landing) = question.action().call() else { return None };
        Some(patch_of_landing(self.layer.as_ref()?, &self.changes, landing, question))
    }
}

impl Perform for LandEffect {
    fn perform(mut admitted: Admitted<Self>, session: &mut AgentSession<'_>, _io: CommandIo<'_>) -> Settled {
        let (layer, changes) = {
            let effect = admitted.effect_mut();
            (effect.layer.take(), std::mem::take(&mut effect.changes))
        };
        let running = match admitted.start(session) {
            Ok(running) => running,
            Err(settled) => return settled,
        };
        let (Some(layer), Call::Land(landing)) = (layer, running.call()) else {
            return running.settling.refused(session, no_layer());
        };
        if let Some(refusal) = over_quota(running.grant(), session) {
            return running.settling.refused(session, refusal);
        }
        let landing = landing.clone();
        let mut before = match held_changes::before(running.grant(), session) {
            Ok(before) => before,
            Err(ended) => return running.settling.touched(session, Err(ended)),
        };
        if let Some(before) = &mut before {
            // What a person has approved is not taken away again.
            before.approve(running.grant().opened().iter().map(|path| path.as_path().to_owned()));
        }
        let done = land(&running, layer, changes);
        let (held, looked) = held_changes::after(before, session);
        let done = done.and_then(|outcome| record(&running, &landing, outcome, session));
        let done = done.and_then(|outcome| looked.map(|()| EffectOutput::Landed(outcome)));
        running.settling.touched(session, done).with_held(&held, &session.leaks)
    }
}

/// Lands what policy evaluated: the changes as they were looked at, and none besides those of the authorized landing.
fn land(
    running: &Running<LandEffect>,
    mut layer: Layer,
    changes: Vec<LayerChange>,
) -> Result<LandingOutcome, CallEnd> {
    let Call::Land(landing) = running.call() else { return Err(CallEnd::Refused(no_layer())) };
    let failed = |error: LayerError| CallEnd::Failed {
        what: chain(&error),
        hint: layer_hint(&error).map(str::to_owned),
    };
    match landing.action {
        LandingAction::Commit => {
            let authorized: BTreeSet<&Path> =
                landing.entries.iter().map(|entry| entry.path.as_path()).collect();
            let changes =
                changes.into_iter().filter(|change| authorized.contains(change.absolute().as_path()));
            let selection = LandingSelection::Only(changes.collect());
            Ok(report_of_landing(&layer.land(&selection).map_err(failed)?))
        }
        action @ (LandingAction::Undo | LandingAction::ForcedUndo) => {
            let later = match action {
                LandingAction::ForcedUndo => LaterChanges::SetAside,
                _ => LaterChanges::Refuse,
            };
            match layer.undo(later).map_err(failed)? {
                UndoOutcome::Undone(report) => Ok(report_of_undo(&report)),
                UndoOutcome::Refused(changed) => Err(CallEnd::Refused(changed_since(&changed))),
            }
        }
    }
}

/// The record of what came of it. Without it the landing has happened all the same, so it is said and not taken back.
fn record(
    running: &Running<LandEffect>,
    landing: &Landing,
    outcome: LandingOutcome,
    session: &mut AgentSession<'_>,
) -> Result<LandingOutcome, CallEnd> {
    let event = Event::ChangesLanded {
        transaction: running.settling.transaction.clone(),
        session: session.id.clone(),
        layer: landing.layer.clone(),
        action: landing.action,
        landed: outcome.landed as u64,
        unlanded: outcome.unlanded().cloned().collect(),
    };
    match session.append(vec![event]) {
        Ok(_) => Ok(outcome),
        Err(error) => Err(CallEnd::Failed {
            what: format!(
                "{} changes landed, and that could not be recorded: {}",
                outcome.landed,
                chain(&error)
            ),
            hint: Some("`ringfence ledger verify` checks the ledger".to_owned()),
        }),
    }
}

/// A landing comes with its layer, which only a look into the layer gives.
pub(crate) fn no_layer() -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        layer: PolicyLayer::Floor,
        rule: RuleId::LandingNothing.into(),
        message: "a landing begins with its layer, not with a call".to_owned(),
        hint: Some("use `ringfence commit` or `ringfence undo`".to_owned()),
    }
}
