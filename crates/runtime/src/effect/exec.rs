//! The exec effect: runs commands in the sandbox of their session.

mod start;

use std::sync::Arc;
use std::time::Duration;

use ringfence_sandbox::{
    CommandExit, CommandIo, CommandRunError, SandboxCommand, SignalForward, StreamFilters,
};
use ringfence_types::{Backend, Call, LimitName, Outcome};

use super::{Effect, Perform};
use crate::command_env::{self, RootKind};
use crate::layer::{SessionLayer, layer_hint};
use crate::leaks::{OutputFilter, SinkActions};
use crate::pipeline::{Admitted, Running, Settled, chain};
use crate::proxy;
use crate::quota::{Quota, QuotaState, Room};
use crate::session::AgentSession;
use start::{LeasedSandbox, lease_sandbox};

pub(crate) use start::spec;

#[derive(Debug)]
pub struct ExecEffect;

impl Effect for ExecEffect {
    fn can_become(call: &Call) -> bool {
        matches!(call, Call::Exec(_))
    }
}

impl Perform for ExecEffect {
    fn perform(admitted: Admitted<Self>, session: &mut AgentSession<'_>, io: CommandIo<'_>) -> Settled {
        if let Err(error) = session.begin_layer(admitted.transaction()) {
            let hint = layer_hint(&error).map(str::to_owned);
            return admitted.settling().failed(session, chain(&error), hint);
        }
        let settled = Self::perform_inside(admitted, session, io);
        session.end_layer(settled)
    }
}

impl ExecEffect {
    fn perform_inside(
        admitted: Admitted<Self>,
        session: &mut AgentSession<'_>,
        io: CommandIo<'_>,
    ) -> Settled {
        if let Err(refusal) = session.record_releases(admitted.transaction()) {
            return admitted.settling().refused(session, refusal);
        }
        let leased = match lease_sandbox(session, admitted.grant().permissions()) {
            Ok(leased) => leased,
            Err(failed) => return failed.settle(admitted, session),
        };
        // The supervisor cannot answer for processes that a container engine started.
        let answers = leased.sandbox.posture().backend != Backend::Container;
        let started = if answers { admitted.start_command(session) } else { admitted.start(session) };
        let running = match started {
            Ok(running) => running,
            Err(settled) => return settled,
        };
        let layer = session.layer.clone();
        let layer = layer.as_deref().map(SessionLayer::directory);
        let room = Room::of(session, running.grant().permissions(), layer);
        if let Some(refusal) = room.as_ref().and_then(Room::refuse_command) {
            let seen = session.leave_network();
            return Settled { network: seen, ..running.settling.refused(session, refusal) };
        }
        let sandbox = Arc::clone(&leased.sandbox);
        let answer = execute(&running, leased, room, session, io);
        let changes = sandbox.take_held();
        drop(sandbox);
        let seen = session.leave_network();
        let settled = running.settling.executed(session, answer.as_ref().map(outcome));
        Settled { network: seen, ..settled }.with_held(&changes, &session.leaks)
    }
}

fn execute(
    running: &Running<ExecEffect>,
    leased: LeasedSandbox,
    room: Option<Room>,
    session: &mut AgentSession<'_>,
    mut io: CommandIo<'_>,
) -> Result<CommandExit, CommandRunError> {
    let LeasedSandbox { sandbox, filtered } = leased;
    let grant = running.grant();
    let Call::Exec(exec) = running.call() else { return Err(CommandRunError::SandboxEnded) };
    let limits = &grant.permissions().limits;
    io.timeout = limits.wall_ms.map(Duration::from_millis);
    io.output_bytes = limits.output_bytes;
    let ground = RootKind::of(sandbox.posture().backend, grant.permissions().view);
    let setup = &session.runtime.setup;
    let mut env = command_env::of_command(setup, &session.policy, &session.workspace, &session.id, ground);
    env = ringfence_authz::env::merge(env, &exec.env);
    env = ringfence_authz::env::merge(env, &session.variables);
    env = ringfence_authz::env::merge(env, &session.secrets.variables());
    env = command_env::remove_steering_variables(env, &session.policy, grant);
    if filtered {
        // Merged last, so that no requested variable bypasses the proxy.
        env = ringfence_authz::env::merge(env, &proxy::variables(ground, &session.secrets.providers()));
    }
    let approved = running.approved.clone();
    let command =
        SandboxCommand { argv: exec.argv.clone(), env, cwd: exec.cwd.as_path().to_owned(), approved };
    let actions = SinkActions::output(&session.policy.leaks);
    let [mut stdout, mut stderr] =
        ["stdout", "stderr"].map(|place| OutputFilter::new(&session.leaks, actions, place));
    let filters = StreamFilters { stdout: &mut stdout, stderr: &mut stderr };
    let quota =
        room.map(|room| Quota::new(room, sandbox.files())).transpose().map_err(CommandRunError::Relay)?;
    let run = |io: CommandIo<'_>| sandbox.run_filtered(&command, io, Some(filters));
    let answer = match &quota {
        Some(quota) => run_within(quota, io, run),
        None => run(io),
    };
    session.found.merge(stdout.tally());
    session.found.merge(stderr.tally());
    session.container_used();
    if answer.is_err() {
        // Processes may still run in the sandbox, so it must end.
        session.common.end_if(&sandbox);
    }
    answer
}

/// Runs a command, and ends it when it exceeds the disk quota.
fn run_within(
    quota: &Quota,
    io: CommandIo<'_>,
    run: impl FnOnce(CommandIo<'_>) -> Result<CommandExit, CommandRunError>,
) -> Result<CommandExit, CommandRunError> {
    let own = SignalForward { signal: libc::SIGTERM, fd: quota.bell() };
    let interrupts: Vec<SignalForward<'_>> = io.interrupts.iter().copied().chain([own]).collect();
    let answer = std::thread::scope(|scope| {
        let (running, end) = std::sync::mpsc::channel();
        scope.spawn(move || quota.watch(&end));
        let answer = run(CommandIo { interrupts: &interrupts, ..io });
        drop(running);
        answer
    });
    let exceeded = quota.settle();
    answer.map(|finished| match exceeded {
        QuotaState::Exceeded => CommandExit { limit_hit: Some(LimitName::Disk), ..finished },
        QuotaState::Within => finished,
    })
}

fn outcome(finished: &CommandExit) -> Outcome {
    Outcome {
        exit: finished.exit,
        limit_hit: finished.limit_hit,
        duration_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
        stdout: finished.stdout.clone(),
        stderr: finished.stderr.clone(),
    }
}
