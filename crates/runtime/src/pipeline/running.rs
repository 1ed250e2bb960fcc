use std::time::Duration;

use ringfence_authz::Grant;
use ringfence_sandbox::{Command, Finished, Io, RunError};
use ringfence_types::{Call, Exec, Outcome};

use super::apply;
use super::decided::chain;
use super::file;
use super::settled::{Settled, Settling};
use crate::environment::{self, Ground};
use crate::session::AgentSession;

/// Under way. What is executed is what was judged: the call inside the grant.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) grant: Grant,
    pub(super) settling: Settling,
}

impl Running {
    pub(super) fn finish(self, session: &mut AgentSession<'_>, io: Io<'_>) -> Settled {
        match self.grant.action().call() {
            Call::Exec(exec) => {
                let answer = execute(exec, &self.grant, session, io);
                self.settling.executed(session, answer.as_ref().map(outcome).map_err(|error| chain(error)))
            }
            Call::Apply(patch) => {
                let done = apply::perform(patch, &self.grant, session, &self.settling.transaction);
                self.settling.touched(session, done)
            }
            Call::File(call) => {
                let done = file::perform(call, &self.grant, session, io);
                self.settling.touched(session, done)
            }
        }
    }
}

fn execute(
    exec: &Exec,
    grant: &Grant,
    session: &mut AgentSession<'_>,
    mut io: Io<'_>,
) -> Result<Finished, RunError> {
    let limits = &grant.permissions().limits;
    io.timeout = limits.wall_ms.map(Duration::from_millis);
    io.output_bytes = limits.output_bytes;
    let Some(sandbox) = session.sandbox.as_mut() else { return Err(RunError::SandboxEnded) };
    let ground = Ground::of(sandbox.posture().backend, grant.permissions().view);
    let setup = &session.runtime.setup;
    let mut env = environment::of_command(setup, &session.policy, &session.workspace, &session.id, ground);
    env = ringfence_authz::env::merge(env, &exec.env);
    env = ringfence_authz::env::merge(env, &session.secrets.variables());
    env = environment::without_surprises(env, &session.policy, grant);
    let command = Command { argv: exec.argv.clone(), env, cwd: exec.cwd.as_path().to_owned() };
    let answer = sandbox.run(&command, io);
    if answer.is_err() {
        // Nobody knows what is still running in it.
        session.sandbox = None;
    }
    answer
}

fn outcome(finished: &Finished) -> Outcome {
    Outcome {
        exit: finished.exit,
        limit_hit: finished.limit_hit,
        duration_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
        stdout: finished.stdout.clone(),
        stderr: finished.stderr.clone(),
    }
}
