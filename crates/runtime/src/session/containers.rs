//! When a session's container is made ahead, and when it is removed although the session goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_authz::{Action, ceiling};
use ringfence_egress::Ca;
use ringfence_types::{Backend, Bytes, Call, Exec, NetMode};

use super::AgentSession;
use crate::network::bundle;
use crate::pipeline;
use crate::rules::WorkspaceRules;

/// Of the sandbox that runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    started: Option<Instant>,
    used: Option<Instant>,
    keeping: Keeping,
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

impl AgentSession<'_> {
    /// From now on as many containers wait as `[container] pool` says, each as the next call of this session would need it.
    /// What cannot be made is told by the call that needs it.
    pub fn keep_containers(&mut self) {
        self.common.times().keeping = Keeping::Yes;
        self.fill_pool();
    }

    /// Removes a container that has not been used for long, or is old. Returns when to ask again.
    pub fn rest(&self) -> Option<Duration> {
        let policy = &self.policy.container;
        let (idle, age) = (Duration::from_millis(policy.idle.0), Duration::from_millis(policy.age.0));
        self.runtime.pool.prune(age);
        let mut fence = self.common.fence();
        let Some(sandbox) = fence.sandbox.as_ref().filter(|_| self.container.is_some()) else {
            let waiting = self.runtime.pool.waiting() > 0;
            return waiting.then(|| age.max(LOOK));
        };
        let left = |since: Option<Instant>, most: Duration| {
            since.map_or(most, |since| most.saturating_sub(since.elapsed()))
        };
        let times = *self.common.times();
        let due = left(times.used, idle).min(left(times.started, age));
        // Not while another call is in it.
        if !due.is_zero() || Arc::strong_count(sandbox) > 1 {
            return Some(if due.is_zero() { LOOK } else { due });
        }
        tracing::info!(id = %self.id, "the container has rested or is old, and is removed");
        let _gone = std::mem::take(&mut *fence);
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
        };
        let action = Action::new(Call::Exec(exec), self.all_roots());
        let Ok(permissions) = ceiling(&self.policy, &action) else { return };
        let mut spec = pipeline::spec(self, &permissions, Backend::Container);
        if permissions.net == NetMode::Filtered {
            // Only its place counts: what is in it is written when a container is used.
            let Ok(ca) = Ca::new() else { return };
            spec.files.push(bundle(&Arc::new(ca)));
        }
        let rules = WorkspaceRules::new(&self.policy.rules.paths).worked_in(&self.worked_in);
        if let Err(error) = self.runtime.pool.keep(&spec, &rules, count) {
            tracing::warn!(why = %error, "no container for the pool");
        }
    }
}
