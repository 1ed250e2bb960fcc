use std::sync::Arc;
use std::time::Duration;

use ringfence_authz::Grant;
use ringfence_egress::{FetchError, FetchResponse};
use ringfence_sandbox::{Command, Filter as _, Filters, Finished, Flow, Interrupt, Io, RunError};
use ringfence_types::{Call, Exec, Fetch, FileCall, Layer, LimitName, Outcome, Refusal, RefusalCode};

use super::admitted::Standing;
use super::apply;
use super::decided::chain;
use super::file::{self, Touched};
use super::held;
use super::settled::{Ended, Settled, Settling};
use crate::environment::{self, Ground};
use crate::leaks::{Actions, OutputFilter};
use crate::network::{self, Seen};
use crate::quota::Quota;
use crate::session::AgentSession;

/// Under way. What is executed is what was judged: the call inside the grant.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) grant: Grant,
    pub(super) settling: Settling,
    /// For a command.
    pub(super) fence: Option<Standing>,
}

impl Running {
    pub(super) fn finish(self, session: &mut AgentSession<'_>, io: Io<'_>) -> Settled {
        match self.grant.action().call() {
            Call::Exec(exec) => {
                let sandbox = self.fence.as_ref().map(|fence| Arc::clone(&fence.sandbox));
                let answer = match self.fence {
                    Some(fence) => execute(exec, (&self.grant, fence), session, io),
                    None => Err(RunError::SandboxEnded),
                };
                let changes = sandbox.map(|sandbox| sandbox.take_held()).unwrap_or_default();
                let seen = session.leave_network();
                let settled = self.settling.executed(session, answer.as_ref().map(outcome));
                Settled { network: seen, ..settled }.with_held(&changes, &session.leaks)
            }
            Call::Apply(patch) => {
                let before = held::before(&self.grant, session);
                let done = apply::perform(patch, &self.grant, session, &self.settling.transaction);
                let changes = held::after(before, session);
                self.settling.touched(session, done).with_held(&changes, &session.leaks)
            }
            Call::File(call) => {
                if let Some(refusal) = over_quota(call, &self.grant, session) {
                    return self.settling.refused(session, refusal);
                }
                let before = held::before(&self.grant, session);
                let done = file::perform(call, &self.grant, session, io);
                let changes = held::after(before, session);
                let done = done.and_then(|touched| readable(touched, call, session));
                self.settling.touched(session, done).with_held(&changes, &session.leaks)
            }
            Call::Fetch(wanted) => {
                let (done, seen) = fetch(wanted, session);
                Settled { network: seen, ..self.settling.touched(session, done) }
            }
            Call::Flow(_) => self.settling.refused(session, not_from_here()),
            Call::Tool(_) => self.settling.refused(session, not_ours()),
        }
    }
}

/// What is read for an agent is as much output as what a command prints.
fn readable(touched: Touched, call: &FileCall, session: &mut AgentSession<'_>) -> Result<Touched, Ended> {
    let Touched::Read(content) = touched else { return Ok(touched) };
    let place = session.leaks.text(&call.path().display());
    let actions = match call {
        FileCall::Send { .. } => Actions::sent(&session.policy.leaks),
        _ => Actions::output(&session.policy.leaks),
    };
    cleaned(&content, &place, (session, actions)).map(Touched::Read)
}

/// A page for the agent, without secrets that are in it.
fn fetch(wanted: &Fetch, session: &mut AgentSession<'_>) -> (Result<Touched, Ended>, Option<Seen>) {
    let failed = |what: String| Ended::Failed { what, hint: None };
    let (fetched, seen) = match network::fetch(session, wanted) {
        Ok(answer) => answer,
        Err(error) => return (Err(failed(chain(&error))), None),
    };
    let done = match fetched {
        Ok(page) => clean_page(page, session).map(Touched::Fetched),
        Err(FetchError::Refused(refusal)) => Err(Ended::Refused(refusal)),
        Err(error) => Err(failed(error.to_string())),
    };
    (done, Some(seen))
}

/// All of it that a server has written: also where it led to, and the heads.
fn clean_page(page: FetchResponse, session: &mut AgentSession<'_>) -> Result<FetchResponse, Ended> {
    let place = session.leaks.text(&page.url);
    let url = clean(page.url.as_bytes(), &place, session)?;
    let mut headers = Vec::new();
    for (name, value) in &page.headers {
        let name = session.leaks.text(name);
        let value = clean(value, &format!("header {name} of {place}"), session)?;
        headers.push((name, value));
    }
    let body = clean(&page.body, &place, session)?;
    Ok(FetchResponse { url: String::from_utf8_lossy(&url).into_owned(), headers, body, ..page })
}

fn clean(content: &[u8], place: &str, session: &mut AgentSession<'_>) -> Result<Vec<u8>, Ended> {
    let actions = Actions::output(&session.policy.leaks);
    cleaned(content, place, (session, actions))
}

fn cleaned(
    content: &[u8],
    place: &str,
    (session, actions): (&mut AgentSession<'_>, Actions),
) -> Result<Vec<u8>, Ended> {
    let mut filter = OutputFilter::new(&session.leaks, actions, place);
    let mut clean = Vec::new();
    let flow = match filter.push(content, &mut clean) {
        Flow::On => filter.finish(&mut clean),
        stopped => stopped,
    };
    session.found.merge(filter.tally());
    match flow {
        Flow::On => Ok(clean),
        Flow::Shut | Flow::Kill => Err(Ended::Refused(unreadable(place))),
    }
}

fn unreadable(place: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Secret,
        layer: Layer::Operator,
        rule: "leaks.output".to_owned(),
        message: format!("`{place}` has a secret in it, and the policy blocks that"),
        hint: Some("`ringfence policy show` says where; `ringfence scan` shows what was found".to_owned()),
    }
}

/// The gate of the session's own proxy judges and records flows; nobody hands one in.
fn not_from_here() -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        layer: Layer::Floor,
        rule: "flow.own".to_owned(),
        message: "a flow begins inside the fence, not with a call".to_owned(),
        hint: None,
    }
}

/// What another program does for an agent is judged here and done there.
fn not_ours() -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        layer: Layer::Floor,
        rule: "tools.foreign".to_owned(),
        message: "a tool of another program is called by the agent, not here".to_owned(),
        hint: None,
    }
}

fn execute(
    exec: &Exec,
    (grant, Standing { sandbox, filtered }): (&Grant, Standing),
    session: &mut AgentSession<'_>,
    mut io: Io<'_>,
) -> Result<Finished, RunError> {
    let limits = &grant.permissions().limits;
    io.timeout = limits.wall_ms.map(Duration::from_millis);
    io.output_bytes = limits.output_bytes;
    let ground = Ground::of(sandbox.posture().backend, grant.permissions().view);
    let setup = &session.runtime.setup;
    let mut env = environment::of_command(setup, &session.policy, &session.workspace, &session.id, ground);
    env = ringfence_authz::env::merge(env, &exec.env);
    env = ringfence_authz::env::merge(env, &session.variables);
    env = ringfence_authz::env::merge(env, &session.secrets.variables());
    env = environment::without_surprises(env, &session.policy, grant);
    if filtered {
        // Last: nothing that was asked for leads past the proxy.
        env = ringfence_authz::env::merge(env, &network::variables(ground, &session.secrets.providers()));
    }
    let command = Command { argv: exec.argv.clone(), env, cwd: exec.cwd.as_path().to_owned() };
    let actions = Actions::output(&session.policy.leaks);
    let [mut stdout, mut stderr] =
        ["stdout", "stderr"].map(|place| OutputFilter::new(&session.leaks, actions, place));
    let filters = Filters { stdout: &mut stdout, stderr: &mut stderr };
    let quota = Quota::of(session, grant.permissions()).map_err(RunError::Relay)?;
    let answer = within(quota.as_ref(), io, |io| sandbox.run_filtered(&command, io, filters));
    session.found.merge(stdout.tally());
    session.found.merge(stderr.tally());
    session.container_used();
    if answer.is_err() {
        // Nobody knows what is still running in it.
        session.common.end_if(&sandbox);
    }
    answer
}

/// Runs a command, and ends it where it writes more than the quota has room for.
fn within(
    quota: Option<&Quota>,
    io: Io<'_>,
    run: impl FnOnce(Io<'_>) -> Result<Finished, RunError>,
) -> Result<Finished, RunError> {
    let Some(quota) = quota else { return run(io) };
    let own = Interrupt { signal: libc::SIGTERM, fd: quota.bell() };
    let interrupts: Vec<Interrupt<'_>> = io.interrupts.iter().copied().chain([own]).collect();
    let answer = std::thread::scope(|scope| {
        let (running, end) = std::sync::mpsc::channel();
        scope.spawn(move || quota.watch(&end));
        let answer = run(Io { interrupts: &interrupts, ..io });
        drop(running);
        answer
    });
    let exceeded = quota.is_exceeded();
    answer.map(
        |finished| {
            if exceeded { Finished { limit_hit: Some(LimitName::Disk), ..finished } } else { finished }
        },
    )
}

/// A write of the file tools adds to what a quota is about.
fn over_quota(call: &FileCall, grant: &Grant, session: &AgentSession<'_>) -> Option<Refusal> {
    let FileCall::Write { bytes, .. } = call else { return None };
    let quota = Quota::of(session, grant.permissions()).ok()??;
    quota.refuse(*bytes)
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
