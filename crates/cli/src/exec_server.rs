//! `ringfence exec-server`: runs all commands and file operations of Codex inside the fence.
//!
//! Codex starts this program and talks to it on standard input and output, one JSON message per line, so
//! there is no port for another client. The sandbox that Codex requests only narrows what policy allows
//! ([`codex_sandbox`]).

mod codex_sandbox;
mod file_uri;
mod files;
mod process;
mod serve;
mod streams;
mod unwrap_hook;
mod walk;
mod wire;

use std::process::ExitCode;

use ringfence_authz::env::ApproverPresence;
use ringfence_policy::StartupFlags;
use ringfence_runtime::{JointMemory, Runtime, SessionShared, SessionSpec};
use ringfence_types::{Access, ByteString, NetMode};

use crate::args::{AgentKind, ExecServerArgs, PolicyArgs};
use crate::commands::open_runtime;
use crate::environment::Environment;
use crate::error;
use crate::policy_resolution::{self, CliPolicySource, SpecChanges};

pub(crate) fn run(arguments: &ExecServerArgs) -> ExitCode {
    match served(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

fn served(arguments: &ExecServerArgs) -> Result<(), ExitCode> {
    let environment = Environment::read();
    let runtime = open_runtime(&environment, ApproverPresence::Unattended)?;
    let flags = StartupFlags {
        net: arguments.network.net,
        hosts: policy_resolution::hosts(&arguments.network)?,
        ..StartupFlags::default()
    };
    let place = PolicyArgs {
        agent: arguments.place.agent.clone().or_else(|| Some(AgentKind::Codex.to_string())),
        ..arguments.place.clone()
    };
    let changes = SpecChanges::None;
    let again = CliPolicySource { place, flags, environment, setup: runtime.setup().clone(), changes };
    let governed = again.resolve(&runtime)?;
    let sessions = CodexSessions::open(&runtime, governed.session_spec(), &again)?;
    let served = serve::connection(&sessions).map_err(|error| error::failed(&error, None));
    let ended = sessions.end();
    served.and(ended)
}

/// One session per combination of write access and network, because a session has one ceiling for life and
/// Codex chooses both per call. They have one memory.
struct CodexSessions<'r> {
    writing: SessionShared<'r>,
    reading: SessionShared<'r>,
    writing_offline: SessionShared<'r>,
    reading_offline: SessionShared<'r>,
    /// The environment that Codex started this process with. No call changes it.
    baseline: Vec<(ByteString, ByteString)>,
}

impl<'r> CodexSessions<'r> {
    fn open(runtime: &'r Runtime, asked: SessionSpec, again: &CliPolicySource) -> Result<Self, ExitCode> {
        let memory = JointMemory::default();
        let open = |access: Access, net: NetMode| -> Result<SessionShared<'r>, ExitCode> {
            let source = CliPolicySource { changes: SpecChanges::AtMost { access, net }, ..again.clone() };
            let asked = SessionSpec { memory: Some(memory.clone()), ..asked.clone() };
            let opened = runtime.session(source.changes.made_in(asked));
            let opened = opened.map_err(|error| error::failed(&error, error.hint().as_deref()))?;
            let mut session = opened.map_err(|refusal| error::refused(&refusal))?;
            session.set_policy_source(source);
            Ok(session.into_bound())
        };
        Ok(Self {
            writing: open(Access::Write, NetMode::Full)?,
            reading: open(Access::Read, NetMode::Full)?,
            writing_offline: open(Access::Write, NetMode::None)?,
            reading_offline: open(Access::Read, NetMode::None)?,
            baseline: again.environment.all.clone(),
        })
    }

    /// The session with at most the requested rights. A sandbox has one network for life, so a call without
    /// network must not run in a sandbox that has it.
    fn of(&self, access: Access, net: NetMode) -> &SessionShared<'r> {
        let is_less = net == NetMode::None && self.writing.policy().net != NetMode::None;
        match (access == Access::Write, is_less) {
            (true, false) => &self.writing,
            (false, false) => &self.reading,
            (true, true) => &self.writing_offline,
            (false, true) => &self.reading_offline,
        }
    }

    fn end(self) -> Result<(), ExitCode> {
        let all = [self.writing, self.reading, self.writing_offline, self.reading_offline];
        let ended = all.map(|bound| bound.call_handle().end());
        ended.into_iter().try_for_each(|ended| ended.map_err(|error| error::failed(&error, None)))
    }
}
