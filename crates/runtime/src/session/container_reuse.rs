//! When a session's container is created ahead of use, and when it is removed before the session ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_authz::{Action, ceiling};
use ringfence_egress::SessionCa;
use ringfence_sandbox::ContainerPoolKey;
use ringfence_types::{Backend, ByteString, Call, ExecCall, NetMode, StandardInput};

use super::SessionShared;
use crate::pipeline;
use crate::proxy::bundle;
use crate::sandbox_rules::{HostFiles, SandboxRules};

/// Times of the running sandbox.
#[derive(Debug, Default)]
pub(crate) struct ContainerTimes {
    started: Option<Instant>,
    used: Option<Instant>,
    keeping: ContainerReuse,
    /// Key of the pooled containers for this session.
    kept: Option<ContainerPoolKey>,
}

/// Whether this process lives long enough to pool containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ContainerReuse {
    #[default]
    No,
    Yes,
}

/// Shortest interval between two checks.
const LOOK: Duration = Duration::from_secs(1);

impl SessionShared<'_> {
    /// Keeps `[container] pool` containers ready, each as the next call of this session needs it. A failure
    /// is reported by the call that needs the container.
    pub fn keep_containers(&self) {
        self.common.times().keeping = ContainerReuse::Yes;
        self.fill_pool();
    }

    /// Removes a container that was idle for long or is old. Returns when to check again. It never waits for
    /// the fence, so a caller that polls blocks only while the engine removes a container.
    pub fn rest(&self) -> Option<Duration> {
        let policy = &self.policy.container;
        let (idle, age) = (Duration::from_millis(policy.max_idle.0), Duration::from_millis(policy.max_age.0));
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
        // Not while another call uses it.
        if !due.is_zero() || Arc::strong_count(sandbox) > 1 {
            return Some(if due.is_zero() { LOOK } else { due });
        }
        tracing::info!(id = %self.id, "removing an idle or old container");
        let gone = std::mem::take(&mut *fence);
        // Dropped without the lock: an engine may be slow or hang, and other calls wait for the fence.
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

    /// Pooled containers of this session are of no use to others.
    pub(super) fn forget_containers(&self) {
        let kept = {
            let mut times = self.common.times();
            times.keeping = ContainerReuse::No;
            times.kept.take()
        };
        if let Some(kind) = kept {
            self.runtime.pool.forget(&kind);
        }
    }

    fn fill_pool(&self) {
        let count = self.policy.container.warm_containers;
        if self.common.times().keeping == ContainerReuse::No || self.container.is_none() || count == 0 {
            return;
        }
        let exec = ExecCall {
            argv: vec![ByteString::from("true")],
            cwd: ByteString::from(self.workspace.path.as_path()),
            env: Vec::new(),
            ceiling: None,
            net: self.policy.net,
            stdin: StandardInput::None,
        };
        let action = Action::new(Call::Exec(exec), self.all_roots());
        let Ok(permissions) = ceiling(&self.policy, &action) else { return };
        let mut spec = pipeline::spec(self, &permissions, Backend::Container);
        if permissions.net == NetMode::Filtered {
            // Only the path matters: the content is written when a container is used.
            let Ok(ca) = SessionCa::new() else { return };
            spec.files.push(bundle(&Arc::new(ca)));
        }
        let rules = SandboxRules::new(&self.policy.rules.paths)
            .worked_in(&self.worked_in)
            .host(HostFiles::of(&self.runtime.setup));
        match self.runtime.pool.keep(&spec, &rules, count) {
            Ok(kind) => self.kept(kind),
            Err(error) => tracing::warn!(error = %error, "cannot create a warm container"),
        }
    }

    /// The session may have ended or need another kind by now.
    fn kept(&self, kind: ContainerPoolKey) {
        let mut times = self.common.times();
        let before = match times.keeping {
            ContainerReuse::Yes => times.kept.replace(kind.clone()).filter(|before| *before != kind),
            ContainerReuse::No => Some(kind),
        };
        drop(times);
        if let Some(kind) = before {
            self.runtime.pool.forget(&kind);
        }
    }
}
