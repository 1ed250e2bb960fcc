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
use ringfence_types::{Access, NetMode, Root};

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

/// The same place several times, because a session has one ceiling for life: Codex says with each call whether it may write and
/// whether it has the network.
struct Sessions<'r> {
    writing: Bound<'r>,
    reading: Bound<'r>,
    writing_offline: Bound<'r>,
    reading_offline: Bound<'r>,
}

impl<'r> Sessions<'r> {
    fn open(runtime: &'r Runtime, asked: Asked, again: &Again) -> Result<Self, ExitCode> {
        let open = |access: Access, net: NetMode| -> Result<Bound<'r>, ExitCode> {
            let ceiling = Ceiling { again: again.clone(), access, net };
            let opened = runtime.session(ceiling.narrowed(asked.clone()));
            let opened = opened.map_err(|error| error::failed(&error, error.hint().as_deref()))?;
            let mut session = opened.map_err(|refusal| error::refused(&refusal))?;
            session.set_flow_policy_source(ceiling);
            Ok(session.into_bound())
        };
        Ok(Self {
            writing: open(Access::Write, NetMode::Full)?,
            reading: open(Access::Read, NetMode::Full)?,
            writing_offline: open(Access::Write, NetMode::None)?,
            reading_offline: open(Access::Read, NetMode::None)?,
        })
    }

    /// The session that gives no more than a call asks for. A fence has one network as long as it stands, so that a call without
    /// the network must not come into one that has it.
    fn of(&self, access: Access, net: NetMode) -> &Bound<'r> {
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
        let ended = all.map(|bound| bound.lane().end());
        ended.into_iter().try_for_each(|ended| ended.map_err(|error| error::failed(&error, None)))
    }
}

/// The most that one of the sessions has, also when policy is read again.
#[derive(Clone, Debug)]
struct Ceiling {
    again: Again,
    access: Access,
    net: NetMode,
}

impl Ceiling {
    fn narrowed(&self, mut asked: Asked) -> Asked {
        asked.policy.access = asked.policy.access.min(self.access);
        asked.policy.net = asked.policy.net.min(self.net);
        let lowered = |root: Root| Root { access: root.access.min(self.access), ..root };
        asked.roots = asked.roots.into_iter().map(lowered).collect();
        asked
    }
}

impl ringfence_runtime::PolicySource for Ceiling {
    fn read(&self) -> Result<Asked, ringfence_types::Refusal> {
        self.again.read().map(|asked| self.narrowed(asked))
    }
}
