//! `ringfence exec-server`: all commands and all file work of Codex, inside the fence.
//!
//! Codex starts this program itself and speaks to it on standard input and output, one JSON message a line: there is no
//! port that somebody else could come to. What Codex says about its own sandbox narrows what policy gives, never the
//! reverse ([`intent`]).

mod files;
mod intent;
mod path;
mod process;
mod rewritten;
mod serve;
mod streams;
mod walk;
mod wire;

use std::process::ExitCode;

use ringfence_runtime::authz::env::Attendance;
use ringfence_runtime::authz::policy::Flags;
use ringfence_runtime::{Asked, Bound, Runtime};
use ringfence_types::{Access, Root};

use crate::args::{Agent, ExecServer, Place};
use crate::asked::{self, Again};
use crate::commands::open_runtime;
use crate::environment::Environment;
use crate::error;

pub(crate) fn run(arguments: &ExecServer) -> ExitCode {
    match served(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

fn served(arguments: &ExecServer) -> Result<(), ExitCode> {
    let environment = Environment::read();
    let runtime = open_runtime(&environment, Attendance::Unattended)?;
    let flags =
        Flags { net: arguments.network.net, hosts: asked::hosts(&arguments.network)?, ..Flags::default() };
    let place = Place {
        agent: arguments.place.agent.clone().or_else(|| Some(Agent::Codex.to_string())),
        ..arguments.place.clone()
    };
    let again = Again { place, flags, environment, setup: runtime.setup().clone() };
    let governed = again.governed(&runtime)?;
    let sessions = Sessions::open(&runtime, governed.asked(), &again)?;
    let served = serve::connection(&sessions).map_err(|error| error::failed(&error, None));
    let ended = sessions.end();
    served.and(ended)
}

/// The same place twice, because a session has one ceiling for life: Codex says with each call whether it may write.
struct Sessions<'r> {
    writing: Bound<'r>,
    reading: Bound<'r>,
}

impl<'r> Sessions<'r> {
    fn open(runtime: &'r Runtime, asked: Asked, again: &Again) -> Result<Self, ExitCode> {
        let reading = read_only(asked.clone());
        let again_reading = Reading(again.clone());
        let open = |asked: Asked| {
            let opened = runtime.session(asked);
            let opened = opened.map_err(|error| error::failed(&error, error.hint().as_deref()))?;
            opened.map_err(|refusal| error::refused(&refusal))
        };
        let mut writing = open(asked)?;
        writing.set_flow_policy_source(again.clone());
        let mut reading = open(reading)?;
        reading.set_flow_policy_source(again_reading);
        Ok(Self { writing: writing.into_bound(), reading: reading.into_bound() })
    }

    fn of(&self, access: Access) -> &Bound<'r> {
        if access == Access::Write { &self.writing } else { &self.reading }
    }

    fn end(self) -> Result<(), ExitCode> {
        let ended = [self.writing, self.reading].map(|bound| bound.lane().end());
        ended.into_iter().try_for_each(|ended| ended.map_err(|error| error::failed(&error, None)))
    }
}

fn read_only(mut asked: Asked) -> Asked {
    asked.policy.access = asked.policy.access.min(Access::Read);
    let lowered = |root: Root| Root { access: root.access.min(Access::Read), ..root };
    asked.roots = asked.roots.into_iter().map(lowered).collect();
    asked
}

/// The policy as it is read again for the session that only reads.
#[derive(Clone, Debug)]
struct Reading(Again);

impl ringfence_runtime::PolicySource for Reading {
    fn read(&self) -> Result<Asked, ringfence_types::Refusal> {
        self.0.read().map(read_only)
    }
}
