//! When a session's container is made ahead, and when it is removed although the session goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_authz::{Action, ceiling};
use ringfence_egress::Ca;
use ringfence_sandbox::Kind;
use ringfence_types::{Backend, Bytes, Call, Exec, NetMode, StandardInput};

use super::Bound;
use crate::network::bundle;
use crate::pipeline;
use crate::rules::WorkspaceRules;

/// Of the sandbox that runs.
#[derive(Debug, Default)]
pub(crate) struct Times {
    started: Option<Instant>,
    used: Option<Instant>,
    keeping: Keeping,
    /// What waits for this session.
    kept: Option<Kind>,
}

/// Whether this process lives long enough for containers to wait in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keeping {
    #[default]
    No,
    Yes,
}

/// How often what waits is looked at, at most.
const LOOK: Duration = Duration::from_secs(1);

impl Bound<'_> {
    /// From now on as many containers wait as `[container] pool` says, each as the next call of this session would need it.
    /// What cannot be made is told by the call that needs it.
    pub fn keep_containers(&self) {
        self.common.times().keeping = Keeping::Yes;
        self.fill_pool();
    }

    /// Removes a container that has not been used for long, or is old. Returns when to ask again. Waits for nobody but an engine
    /// that removes: whoever asks again and again would otherwise wait as often.
    pub fn rest(&self) -> Option<Duration> {
        let policy = &self.policy.container;
        let (idle, age) = (Duration::from_millis(policy.idle.0), Duration::from_millis(policy.age.0));
        self.runtime.pool.prune(age);
        let Some(mut fence) = self.common.fence_if_free() else { return Some(LOOK) };
        let Some(sandbox) = fence.sandbox.as_ref().filter(|_| self.container.is_some()) else {
            let waiting = self.runtime.pool.waiting() > 0;
            return waiting.then(|| age.max(LOOK));
        };
        let left = |since: Option<Instant>, most: Duration| {
            since.map_or(most, |since| most.saturating_sub(since.elapsed()))
        };
        let (used, started) = {
            let times = self.common.times();
            (times.used, times.started)
        };
        let due = left(used, idle).min(left(started, age));
        // Not while another call is in it.
        if !due.is_zero() || Arc::strong_count(sandbox) > 1 {
            return Some(if due.is_zero() { LOOK } else { due });
        }
        tracing::info!(id = %self.id, "the container has rested or is old, and is removed");
        let gone = std::mem::take(&mut *fence);
        // An engine takes its time, or does not answer at all: not while others wait for the fence.
        drop(fence);
        drop(gone);
        None
    }

    pub(crate) fn container_started(&self) {
        let now = Instant::now();
        let mut times = self.common.times();
        (times.started, times.used) = (Some(now), Some(now));
        drop(times);
        self.fill_pool();
    }

    pub(crate) fn container_used(&self) {
        self.common.times().used = Some(Instant::now());
    }

    /// What waits for this session waits for nobody else.
    pub(super) fn forget_containers(&self) {
        let kept = {
            let mut times = self.common.times();
            times.keeping = Keeping::No;
            times.kept.take()
        };
        if let Some(kind) = kept {
            self.runtime.pool.forget(&kind);
        }
    }

    fn fill_pool(&self) {
        let count = self.policy.container.pool;
        if self.common.times().keeping == Keeping::No || self.container.is_none() || count == 0 {
            return;
        }
        let exec = Exec {
            argv: vec![Bytes::from("true")],
            cwd: Bytes::from(self.workspace.path.as_path()),
            env: Vec::new(),
            net: self.policy.net,
            stdin: StandardInput::None,
        };
        let action = Action::new(Call::Exec(exec), self.all_roots());
        let Ok(permissions) = ceiling(&self.policy, &action) else { return };
        let mut spec = pipeline::spec(self, &permissions, Backend::Container);
        if permissions.net == NetMode::Filtered {
            // Only its place counts: what is in it is written when a container is used.
            let Ok(ca) = Ca::new() else { return };
            spec.files.push(bundle(&Arc::new(ca)));
        }
        let rules = WorkspaceRules::new(&self.policy.rules.paths)
            .worked_in(&self.worked_in)
            .own(&self.runtime.setup.own);
        match self.runtime.pool.keep(&spec, &rules, count) {
            Ok(kind) => self.kept(kind),
            Err(error) => tracing::warn!(why = %error, "no container for the pool"),
        }
    }

    /// The session may have ended, or need another kind by now.
    fn kept(&self, kind: Kind) {
        let mut times = self.common.times();
        let before = match times.keeping {
            Keeping::Yes => times.kept.replace(kind.clone()).filter(|before| *before != kind),
            Keeping::No => Some(kind),
        };
        drop(times);
        if let Some(kind) = before {
            self.runtime.pool.forget(&kind);
        }
    }
}
