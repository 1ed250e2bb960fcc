//! The fence of one command whose ceiling is below that of its session: a reduced policy and a sandbox of its
//! own, which ends with the command.
//!
//! INVARIANT: such a command cannot reach the session socket. There it could request the same command without
//! a ceiling, so it sees neither the socket nor the token.

use ringfence_authz::narrow;
use ringfence_types::{Call, CallCeiling, ExecCall, PolicyLayer, Refusal, RefusalCode, RuleId};

use super::{AgentSession, SessionFence, SessionShared};

/// Variables that name the session socket and hold its token.
const DOOR_VARIABLES: [&str; 2] = ["RINGFENCE_SESSION_SOCKET", "RINGFENCE_SESSION_TOKEN"];

/// The fence of one call.
#[derive(Debug)]
pub(crate) struct OwnFence<'r> {
    pub(crate) ceiling: CallCeiling,
    pub(crate) fence: SessionFence,
    /// The session's own settings, restored after the call.
    whole: SessionShared<'r>,
}

impl<'r> AgentSession<'r> {
    /// Applies the ceiling of the current call, or refuses if the session cannot.
    pub(crate) fn narrow(&mut self, call: &Call) -> Result<(), Refusal> {
        self.end_own_fence();
        match call {
            Call::Exec(ExecCall { ceiling: Some(ceiling), .. }) if !ceiling.is_empty() => {
                self.narrow_to((**ceiling).clone(), SessionFence::default())
            }
            _ => Ok(()),
        }
    }

    fn narrow_to(&mut self, ceiling: CallCeiling, fence: SessionFence) -> Result<(), Refusal> {
        let bounds = narrow(&self.policy, &self.all_roots(), &ceiling)?;
        let whole = self.bound.clone();
        self.policy = bounds.policy;
        self.roots = bounds.roots.into_iter().skip(1).collect();
        self.shown = Vec::new();
        self.variables
            .retain(|(name, _)| !DOOR_VARIABLES.iter().any(|door| name.as_slice() == door.as_bytes()));
        self.own = Some(Box::new(OwnFence { ceiling, fence, whole }));
        Ok(())
    }

    /// Changes the session without the ceiling of the call, then applies the ceiling again.
    pub(super) fn as_whole(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let Some(own) = self.own.take() else { return change(self) };
        let OwnFence { ceiling, fence, whole } = *own;
        self.bound = whole;
        change(self)?;
        self.narrow_to(ceiling, fence)
    }

    /// Ends the sandbox of the call, and restores the session's settings.
    pub(crate) fn end_own_fence(&mut self) {
        let Some(own) = self.own.take() else { return };
        let OwnFence { fence: SessionFence { network, sandbox, .. }, whole, .. } = *own;
        self.bound = whole;
        drop(network);
        if let Some(sandbox) = sandbox {
            self.common.end_beside(&sandbox);
        }
    }

    /// Registers the fence of the call, so that it also ends with the session.
    pub(crate) fn put_up_own(&mut self, fence: SessionFence) -> Result<(), Refusal> {
        let (Some(own), Some(sandbox)) = (&mut self.own, fence.sandbox.clone()) else {
            return Err(crowded());
        };
        own.fence = fence;
        if self.common.keep_beside(&sandbox) { Ok(()) } else { Err(crowded()) }
    }
}

/// Each such sandbox has the full limits of the session, so their number is limited.
fn crowded() -> Refusal {
    Refusal {
        code: RefusalCode::Floor,
        layer: PolicyLayer::Session,
        rule: RuleId::CeilingSandboxes.into(),
        message: format!(
            "{} commands with a ceiling run in this session, each in a sandbox of its own",
            super::core::MOST_BESIDE
        ),
        hint: Some("wait until one of them has ended".to_owned()),
    }
}
